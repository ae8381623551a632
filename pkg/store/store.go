// Package store persists catalogs, findings, the use of images by workloads, and what each receiver was notified of.
//
// It promises that a report and its difference from the report before become visible in one transaction. Losing the store costs
// time, but no notification: the store has an ID, by which its readers detect that it is a new one. It holds everything that is
// too large for etcd. It must not know any engine, the Kubernetes client or a message format.
package store

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Errors that callers distinguish.
var (
	// ErrNotFound means that the store has no such record.
	ErrNotFound = errors.New("not found")
	// ErrForeignPod means that the Job is already bound to another pod.
	ErrForeignPod = errors.New("the job belongs to another pod")
	// ErrLeaseEnded means that the lease has ended, or that the holder does not have it.
	ErrLeaseEnded = errors.New("the lease has ended")
	// ErrChanged means that the data has changed since the caller read it. The caller must read it again.
	ErrChanged = errors.New("what is present has changed meanwhile")
)

// Scope is the credential scope in which an SBOM and its reports count: "" is the whole cluster, anything else is one namespace.
// An image that was pulled with a namespace's own credentials counts in that namespace only, since whoever controls the namespace
// could tamper with the Job that cataloged it.
type Scope string

// Cluster is the credential scope of images that the operator cataloged in its own namespace.
const Cluster Scope = ""

// Store is the only access that the rest of the program has to the database. Its methods are safe for concurrent use.
type Store interface {
	Catalogs
	Manifests
	Jobs
	MatchQueue
	Reports
	Usage
	Announcements
	Views

	// ID returns the store's ID, which is created with the store and replaced when the store is restored from a backup. A reader that
	// remembers another ID must assume that the store lacks what the reader saved before.
	ID() string
	// RestoredFrom returns the creation time of the backup that the store was last restored from, zero if it never was. The store
	// lacks everything that happened between that time and the restore. A restored store has a new ID.
	RestoredFrom() time.Time
	// Replaced reports whether opening the store replaced the previous one by a restored backup.
	Replaced() bool
	// Deliveries returns the number of the last delivery that was begun, 0 if there was none.
	Deliveries(ctx context.Context) (int64, error)
	// TreatAsRestored gives the store a new ID and marks it as restored from a backup that is as old as its last delivery. It is for
	// a store whose content is older than what was delivered. Nothing else may use the store meanwhile.
	TreatAsRestored(ctx context.Context) error
	// Health returns nil, or an error for which StorageFault returns the current fault of the file or its volume. Faults are detected by
	// any call and by Look. Health does no I/O and does not block.
	Health() error
	// CheckHealth checks the file and its volume and returns Health, or another error if the check itself failed. A fault ends when a check
	// finds none and no call has met it since the check before.
	CheckHealth(ctx context.Context) error
	// CheckIntegrity reads the whole file. An error for which StorageFault returns ErrCorrupt means that the file is damaged.
	CheckIntegrity(ctx context.Context) error
	// Close cancels running calls, waits for them to end and releases the file lock.
	Close() error
}

// Catalog describes an image's catalog, without the SBOM itself.
type Catalog struct {
	// Engine that cataloged the image. Other engines cannot use its catalog.
	Engine         string
	Key            image.Key
	Scope          Scope
	PlatformDigest string
	Distro         string
	Packages       int
	// Tool is the name and version of the program that cataloged the image.
	Tool        string
	CatalogedAt time.Time
	// Namespace against whose storage budget the SBOM and findings count: that of the latest catalog with artifacts, else of the
	// first catalog. In the credential scope of a namespace it is always that namespace. It is only written: Catalog leaves it
	// empty.
	Namespace string
}

// Artifact names one of the files that cataloging an image produces.
type Artifact string

// The artifacts of a catalog.
const (
	ArtifactSBOM       Artifact = "sbom"        // the complete SBOM: syft-json, compressed with zstd
	ArtifactMatchInput Artifact = "match-input" // the part of the SBOM that the matcher needs, compressed with zstd
)

// Catalogs stores SBOMs, and which platform manifest an image digest resolves to.
type Catalogs interface {
	// Catalog returns an engine's catalog of an image in a credential scope, or ErrNotFound. It also finds an image whose digest
	// is itself the platform digest of a catalog in that scope.
	Catalog(ctx context.Context, engine string, key image.Key, scope Scope) (Catalog, error)
	// SaveCatalog stores a catalog with its artifacts and replaces earlier ones. Each artifact is read to its end in chunks.
	SaveCatalog(ctx context.Context, c Catalog, artifacts map[Artifact]io.Reader) error
	// DeleteCatalog deletes an engine's catalogs of a platform manifest in all credential scopes, so that the image is cataloged
	// again. Reports stay.
	DeleteCatalog(ctx context.Context, engine, platformDigest string) error
	// CatalogScopes lists the credential scopes in which Catalog finds an image, sorted: the cluster's is the first.
	CatalogScopes(ctx context.Context, engine string, key image.Key) ([]Scope, error)
	// OpenArtifact returns a reader of an artifact, which reads it in chunks, and its size in bytes; ErrNotFound if there is none.
	OpenArtifact(ctx context.Context, platformDigest string, scope Scope, a Artifact) (io.ReadCloser, int64, error)
}

// Manifest is a platform manifest that an engine keeps in its own storage, such as Clair in its database.
type Manifest struct {
	Engine, PlatformDigest string
	// AddedByOperator means that the engine did not have the manifest before the operator gave it to the engine: only then may it be deleted
	// there.
	AddedByOperator bool
}

// Manifests records the platform manifests that engines keep in their own storage, until they are deleted there. The records
// outlive catalogs, reports and Scanners.
//
// The images of a manifest are known from SaveCatalog on. A caller that saves a manifest before its catalog must not treat it
// as unused in between.
type Manifests interface {
	// SaveManifest records a manifest. An existing record is not changed: the first value of Ours stays.
	SaveManifest(ctx context.Context, m Manifest) error
	// Manifest returns the record of a manifest, or ErrNotFound.
	Manifest(ctx context.Context, engine, platformDigest string) (Manifest, error)
	// UnusedManifests lists the manifests of an engine that no Scanner has an image of with that engine, in the order of their
	// digests. It ignores the images of the Scanner with the UID except (empty for none). It starts at the digest from (empty for the
	// first) and returns at most limit manifests.
	UnusedManifests(ctx context.Context, engine, except, from string, limit int) ([]Manifest, error)
	// HoldsManifests reports whether any of an engine's manifests belongs to an image that only this Scanner (by UID) has with that
	// engine. Manifests that no Scanner has do not count. The cost grows with the number of the Scanner's images.
	HoldsManifests(ctx context.Context, engine, scanner string) (bool, error)
	// DeleteManifest deletes the record of a manifest. A missing one is no error.
	DeleteManifest(ctx context.Context, engine, platformDigest string) error
}

// JobPurpose is what a Job was created for.
type JobPurpose string

// Purposes of Jobs.
const (
	JobCatalog JobPurpose = "catalog"
	JobMatch   JobPurpose = "match"
)

// Job is the manager's own record of a Job that it created. What a Job's pod may upload follows from this record alone, never
// from labels or owner references.
type Job struct {
	// Name is recorded before the Job is created, and UID after it: a record without a UID belongs to a Job that may not exist.
	Namespace, Name string
	UID             string
	// PodUID is the UID of the one pod that claimed this Job; empty until a pod has.
	PodUID  string
	Purpose JobPurpose
	// Key and Scope identify the image of a catalog Job; zero for match Jobs.
	Key       image.Key
	Scope     Scope
	CreatedAt time.Time
	// Scanner is the UID of the Scanner that a catalog Job was created for. Other Scanners may use the Job's result.
	Scanner string
	// ScannerNamespace is the namespace of that Scanner, or of another one that has the image now; empty if none has. It is read,
	// never saved.
	ScannerNamespace string
	// Memory is the Job's memory limit in bytes, 0 for none. MaxMemory is the highest limit that a Job for the image may get.
	Memory, MaxMemory int64
	// Worker is the container image that the Job was created with. A Job with another image than the manager's may do nothing.
	Worker string
	// EndedAt is zero while the Job is live. Failed reports whether it ended with a failure.
	EndedAt time.Time
	Failed  bool
	// Result is the digest of the upload that was accepted as the Job's result; empty while there is none. It is read, never saved.
	Result string
}

// Jobs records live Jobs, and ended Jobs that still exist for inspection.
type Jobs interface {
	// SaveJob inserts a record. If there is one with the same namespace and name, only its UID is updated.
	SaveJob(ctx context.Context, job Job) error
	// JobByUID returns the record of a live Job, or ErrNotFound.
	JobByUID(ctx context.Context, uid string) (Job, error)
	// LiveJobs lists the records of Jobs that have not ended, oldest first.
	LiveJobs(ctx context.Context) ([]Job, error)
	// IsRecorded reports whether a Job has a record, live or ended: by UID or, for records without a UID, by namespace and name.
	IsRecorded(ctx context.Context, namespace, name, uid string) (bool, error)
	// EndJob marks a Job as ended and revokes all that it may do. Its record stays until DeleteJob. A Job that has ended before keeps
	// that end; a missing one is no error.
	EndJob(ctx context.Context, namespace, name string, at time.Time, failed bool) error
	// EndedJobs lists the records of Jobs that have ended, latest first.
	EndedJobs(ctx context.Context) ([]Job, error)
	// ClaimJob binds a live Job to the first pod that claims it. It returns ErrForeignPod for any other pod, and ErrNotFound if there
	// is no such live Job.
	ClaimJob(ctx context.Context, uid, podUID string) (Job, error)
	// DeleteJob deletes a record by namespace and name. A missing one is no error. The leases that the Job held end; MatchQueue
	// describes what that means for their images.
	DeleteJob(ctx context.Context, namespace, name string) error
	// SaveJobResult stores the result of a catalog Job, once for each Job. What one Job stored is never replaced by another Job's
	// result.
	//
	// kept is false in two cases: the engine already has a catalog of the platform manifest in that scope, so that only the alias
	// from the image key to the manifest was stored; or the same upload was stored before. It returns ErrNotFound if the Job is not
	// live, ErrResultTaken if the Job has another result, and ErrOverBudget if the namespace's budget is used up.
	SaveJobResult(ctx context.Context, r JobResult) (kept bool, err error)
	// StoredBytes is how many bytes are stored on behalf of a namespace: SBOMs, match inputs, and findings with their texts.
	StoredBytes(ctx context.Context, namespace string) (int64, error)
	// StoredByNamespace returns StoredBytes of all namespaces; "" has what counts against none.
	StoredByNamespace(ctx context.Context) (map[string]int64, error)
	// RecordMemoryExceeded records that this many bytes of memory are not enough to catalog an image in a credential scope. The highest
	// recorded number counts. Sweep deletes the records of images that no Scanner has.
	RecordMemoryExceeded(ctx context.Context, key image.Key, scope Scope, bytes int64) error
	// MemoryExceeded returns the number that RecordMemoryExceeded recorded; 0 if there is none.
	MemoryExceeded(ctx context.Context, key image.Key, scope Scope) (int64, error)
}

// DataVersion identifies the vulnerability data of one engine.
type DataVersion struct {
	// Version identifies the data and the engine's version. While it is equal, nothing has to be rematched.
	Version string
	// Built is when the data was built, according to the data itself.
	Built time.Time
	// Tool is the engine and its version, such as "grype 0.121.2"; empty if unknown.
	Tool string
	// Since is when the store first recorded this version; zero if that is not known. It is read, never saved.
	Since time.Time
}

// Lease reserves one image for a match worker.
type Lease struct {
	ID             string
	Holder         string // UID of the Job
	PlatformDigest string
	Scope          Scope
	Engine         string
	Until          time.Time
}

// MatchQueue leases images to match workers. The queue follows from the rest of the store: it contains every cataloged image in
// use whose report is missing or was made with other data.
//
// The queue is fair to namespaces: the next image is from the namespace with the fewest leases of the engine and, among equals,
// from the one that has waited longest. An image that several namespaces have is leased once, for the first of them that is
// served.
//
// An image may kill or block the worker that matches it. An image whose lease expires, or is still held when its Job ends or is
// deleted, is therefore isolated as long as the data is the same. It is leased alone, so that no other image is lost with it, and
// for some minutes only after all others. After MaxSilentEnds such ends in a row, the match has failed, and it fails once more
// after each further one. The reason is ReasonMatchTimedOut if the last lease expired, else ReasonMatchWorkerDied. A report, or a
// failure that a worker reports, resets the count. Only leases held by Jobs count.
type MatchQueue interface {
	// SetDataVersion records the data that an engine's reports are to be made with from then on.
	SetDataVersion(ctx context.Context, engine string, v DataVersion) error
	// DataVersion returns the data version of an engine, or ErrNotFound.
	DataVersion(ctx context.Context, engine string) (DataVersion, error)
	// QueueLength returns the number of images to match. Leased images count; images that FailMatch postponed do not.
	QueueLength(ctx context.Context, engine string) (int, error)
	// LeaseMatches leases up to limit images until the given time. Within a namespace, images that were never matched come first,
	// then those with the oldest data and then the oldest report.
	//
	// An isolated image is leased only if there is no other image, and only to a holder without a lease; that holder gets nothing
	// more until the lease ends. After isolated images have waited for some minutes, one of them comes before all others: until it is
	// leased, holders that have a lease get nothing.
	LeaseMatches(ctx context.Context, engine, holder string, limit int, now, until time.Time) ([]Lease, error)
	// Lease returns a lease that the holder has at that time, or ErrLeaseEnded.
	Lease(ctx context.Context, id, holder string, now time.Time) (Lease, error)
	// ReturnLeases ends all leases that a holder has of an engine, as if they had never been given.
	ReturnLeases(ctx context.Context, engine, holder string) error
	// RequestMatch requests a rematch of an image even if its report is current or its match has failed. The findings stay until the
	// next report. For an image that is not cataloged it does nothing.
	RequestMatch(ctx context.Context, s Subject) error
	// FailMatch ends a lease without a report. The image is not leased again before RetryAt. It returns ErrLeaseEnded if the lease is
	// not held.
	FailMatch(ctx context.Context, id, holder string, f MatchFailure) error
	// MatchFailure returns why an image could not be matched with the current data, or ErrNotFound.
	MatchFailure(ctx context.Context, s Subject) (MatchFailure, error)
}

// MaxSilentEnds is how often in a row an image's lease may expire, or end with its Job, before the match counts as failed.
const MaxSilentEnds = 3

// Reasons of a MatchFailure that the store itself sets.
const (
	// ReasonMatchWorkerDied is the reason for an image whose match workers die.
	ReasonMatchWorkerDied = "MatchWorkerDied"
	// ReasonMatchTimedOut is the reason for an image whose leases expire.
	ReasonMatchTimedOut = "MatchTimedOut"
)

// MatchFailure is why an image could not be matched, and when the match is retried.
type MatchFailure struct {
	Reason, Message string
	FailedAt        time.Time
	RetryAt         time.Time
}

// Subject identifies what a report is about: an image's platform manifest, in one credential scope, matched by one engine.
type Subject struct {
	PlatformDigest string
	Scope          Scope
	Engine         string
}

// Report is all findings that an engine has for an image.
type Report struct {
	Subject
	DataVersion string
	MatchedAt   time.Time
	Distro      string
	// NotCovered names contents that the image has or may have and for which the engine never has findings.
	NotCovered []string
	// Evidence is what the report's data proves about findings that the report lacks.
	Evidence Evidence
	// Findings are merged (finding.Merge). Nil and empty are equal: the image has no findings.
	Findings []finding.Finding
}

// Difference is how a report changed the findings of its subject.
type Difference struct {
	New, Still, Gone int
	// First means that the subject had no report before.
	First bool
}

// Summary is a report without its findings.
type Summary struct {
	Subject
	DataVersion string
	MatchedAt   time.Time
	NotCovered  []string
	Counts      finding.Counts
	// Top are the worst findings by finding.Worse, at most five.
	Top []finding.Finding
	// Suppressed is the number of suppressed findings. They are neither in Counts nor in Top.
	Suppressed int
}

// ImageExceptions determines which findings of an image are suppressed: those that exceptions cover under each of the image's names.
type ImageExceptions struct {
	Exceptions exception.Set
	Images     []exception.Image
}

// SeverityBefore is a severity that a finding had until a time.
type SeverityBefore struct {
	Severity finding.Severity `json:"severity"`
	Until    time.Time        `json:"until"`
}

// DataAnomaly means that too many findings have disappeared with one version of an engine's data for that data to be trusted.
type DataAnomaly struct {
	DataVersion string
	// Missing of Of findings have disappeared with that version, the first of them at Since.
	Missing, Total int
	Since          time.Time
	// Namespaces of TotalNamespaces namespaces show the anomaly. They are set if the Scanner's own images do not show it: then Missing
	// and Of are 0.
	Namespaces, TotalNamespaces int
}

// Data is anomalous when the findings that disappear with it exceed both of these bounds.
const (
	AnomalyShare = 0.2
	AnomalyCount = 50
)

// Reports stores the current report of each subject and the lifetime of each finding.
type Reports interface {
	// SaveReport replaces a subject's report, and updates the lifetime of its findings in the same transaction: findings that are
	// present for the first time get a first-seen time, those that are gone a gone time. The transaction also ends the lease leaseID
	// of the subject; an empty leaseID means that there is none. It returns ErrLeaseEnded if the lease is not held.
	SaveReport(ctx context.Context, r Report, leaseID string) (Difference, error)
	// Summary returns the current report without its findings, or ErrNotFound. Suppressed findings are only counted.
	Summary(ctx context.Context, s Subject, e ImageExceptions) (Summary, error)
	// DataAnomaly returns the anomaly of an engine's data as a Scanner (by UID) sees it, nil if there is none. It considers what the
	// operator itself cataloged, and the credential scopes of the Scanner's images. What other namespaces uploaded counts only if
	// most of them show the same. During an anomaly no finding counts as fixed. The anomaly ends when the missing findings are back,
	// or after two weeks.
	DataAnomaly(ctx context.Context, scanner, engine string) (*DataAnomaly, error)
	// HasReport reports whether an engine has a report of an image in a credential scope, even while the image is to be cataloged
	// again.
	HasReport(ctx context.Context, engine string, key image.Key, scope Scope) (bool, error)
	// Findings returns the current findings of a subject, worst first; ErrNotFound if there is no report.
	Findings(ctx context.Context, s Subject) ([]finding.Finding, error)
}

// Workload is one container of a Kubernetes workload and the image that it runs.
type Workload struct {
	Namespace string
	// Kind and Name of the top-most known owner: Deployment, StatefulSet, DaemonSet, CronJob, Job, Pod, …
	Kind, Name string
	// Container is the container's name.
	Container string
	// Repository is the normalized repository of the pod spec's image. Announcements are grouped by it.
	Repository string
	// Reference is the image reference in the pod spec, with its tag.
	Reference string
	// Receivers that the pods or their namespace name, sorted and joined by commas; empty if they name none.
	Receivers string
	// Completes means that the pods are meant to end, as those of a CronJob are. Such pods count as ended once they are gone.
	Completes bool
}

// EndedWorkload is a workload whose pods ran an image and have ended: they succeeded or failed.
type EndedWorkload struct {
	Workload
	// At is when the last of these pods ended.
	At time.Time
}

// ImageUsage is the use of an image by a Scanner.
type ImageUsage struct {
	// Scanner is the Scanner's UID.
	Scanner   string
	Namespace string
	Key       image.Key
	Scope     Scope
	Engine    string
	// Suspended keeps the image out of the match queue, unless a Scanner that is not suspended has it too.
	Suspended bool
	// Workloads that run the image now. Without any, the image is still matched, but its findings are not counted.
	Workloads []Workload
	// Ended are workloads whose ended pods still exist, whether or not other pods of theirs run the image now. The image stays in
	// use, and its findings are announced, until all these ends are before EndedSince, or until one of the image's workloads has run
	// another image of the repository. Workloads that have left the image are kept up to a bound, the latest ones first.
	Ended      []EndedWorkload
	EndedSince time.Time
	// Dropped are workloads whose pods still exist but no longer belong to the Scanner: they have not ended. A workload that is in
	// Ended as well has pods of both kinds; of these, the ended ones count.
	Dropped []Workload
}

// ScannerImage is an image that a Scanner has.
type ScannerImage struct {
	// Scanner is the Scanner's UID.
	Scanner, Namespace string
	Key                image.Key
}

// RecentImage is an image that no workload runs now and that is still in use, since its last pods ended recently.
type RecentImage struct {
	Key image.Key
	// Reference is one of the image's references. Repositories and Receivers are those of the workloads that ran the image.
	Reference               string
	Repositories, Receivers []string
}

// ReportAge is the age of a report and of its data.
type ReportAge struct {
	MatchedAt time.Time
	// Current means that the report was made with the engine's current data. It is true while no data version is known.
	Current bool
}

// Usage stores which Scanner has which image, and which workloads run it.
type Usage interface {
	// SetUsage replaces the recorded use of an image by a Scanner. Without running or ended workloads, scope and engine stay as they
	// were.
	SetUsage(ctx context.Context, u ImageUsage) error
	// RecentImages lists a Scanner's images of an engine that no workload runs now and that are still in use.
	RecentImages(ctx context.Context, scanner, engine string) ([]RecentImage, error)
	// InUse reports whether any Scanner has an image with an engine in a credential scope.
	InUse(ctx context.Context, engine string, key image.Key, scope Scope) (bool, error)
	// IsNeeded reports whether a Scanner that is not suspended has an image with an engine in a credential scope, and a workload runs
	// the image or has ended recently.
	IsNeeded(ctx context.Context, engine string, key image.Key, scope Scope) (bool, error)
	// ImagesInUse counts the images that Scanners have with an engine, each once per scope.
	ImagesInUse(ctx context.Context, engine string) (int, error)
	// ReportAges returns the images of a Scanner that have a report of the engine in the scope that the Scanner has them in now,
	// whatever data the report was made with. Other images are not in the map.
	ReportAges(ctx context.Context, scanner, engine string) (map[image.Key]ReportAge, error)
	// ScannerImages lists which Scanner has which image in a namespace, or in all namespaces if it is empty.
	ScannerImages(ctx context.Context, namespace string) ([]ScannerImage, error)
	// ReleaseImage deletes the record that a Scanner has an image.
	ReleaseImage(ctx context.Context, scanner string, key image.Key) error
	// Scanners lists the UIDs of the Scanners that the store has records of.
	Scanners(ctx context.Context) ([]string, error)
	// DeleteScanners deletes all records of these Scanners: the use of images, receivers, announcements and the message log.
	DeleteScanners(ctx context.Context, scanners []string) error
	// Sweep deletes catalogs, reports and findings of images that no Scanner has had in use since the given time. It returns the
	// number of images deleted.
	Sweep(ctx context.Context, unusedSince time.Time) (int, error)
}

// FindingChange is one change that a receiver has not been notified of. It concerns a vulnerability in a package in those images of a
// repository that are in use: they run, or their last pods have ended recently. Repository, vulnerability and package are the
// identity of an announcement.
type FindingChange struct {
	Change     diff.Change
	Repository string
	// Finding is the worst finding with this repository, vulnerability ID and package name that is not suppressed. With diff.ChangeFixed
	// it has only what was recorded with its announcement: ID, aliases, package name, severity.
	Finding finding.Finding
	// FirstSeen is when the store first recorded the finding. FixSince is since when a fix is known, by the engine's own date or else
	// the store's. ExploitedSince is since when the store knows it to be exploited. They are zero where that does not apply.
	FirstSeen, FixSince, ExploitedSince time.Time
	// SeverityBefore is the severity at the time of the announcement or, for a finding that was never announced, before its severity
	// changed. It equals the finding's severity if that has not changed.
	SeverityBefore finding.Severity
	// ExceptionEnded means that an exception suppressed the finding and has ended.
	ExceptionEnded bool
	// Workloads that run an image with the finding; with diff.ChangeFixed those that run the repository.
	Workloads []Workload
}

// AnnouncementKey identifies an announcement.
type AnnouncementKey struct {
	Repository string `json:"repository"`
	ID         string `json:"id"`
	Package    string `json:"package"`
}

// AnnouncedFinding is what was announced of one finding. From then on only differences from it are announced.
type AnnouncedFinding struct {
	AnnouncementKey
	Change         diff.Change      `json:"change"`
	Severity       finding.Severity `json:"severity"`
	Fixable        bool             `json:"fixable,omitempty"`
	KnownExploited bool             `json:"knownExploited,omitempty"`
	Aliases        []string         `json:"aliases,omitempty"`
}

// ChangeFilter selects what a receiver is notified of. A known exploited vulnerability always passes.
type ChangeFilter struct {
	// MinSeverity is the lowest severity that passes. It does not apply to Unknown.
	MinSeverity finding.Severity
	// Unknown decides when findings of unknown severity pass: never, when fixable, or always.
	Unknown UnknownPolicy
	// OnlyFixable excludes findings without a fix.
	OnlyFixable bool
	// Changes that are announced; nil for the default. UpdateAnnouncements records all other changes as if they had been announced.
	Changes []diff.Change
	// Engine selects the images that the Scanner has with this engine; empty for any. It also applies to known exploited
	// vulnerabilities, and to everything that Present returns.
	Engine string
	// Route selects the workloads that concern the receiver; nil for all.
	Route *Route
	// Exceptions that are in force in the Scanner's namespace.
	Exceptions exception.Set
	// CompleteRepositories are the repositories in which every image has a complete result. Only there can a finding count as fixed.
	CompleteRepositories []string
	// IncludeIdle makes PendingChanges treat images as in use that nothing runs now and that the Scanner still has, unless a rollout has replaced
	// them.
	IncludeIdle bool
}

// Route selects the workloads that concern a receiver. A workload that names only receivers that the Scanner does not have is
// treated as one that names none, so that its findings are announced.
type Route struct {
	Receiver string
	// Known are the names of the Scanner's receivers.
	Known []string
	// Unassigned selects the workloads that name no receiver.
	Unassigned bool
}

// UnknownPolicy is when findings of unknown severity pass a filter.
type UnknownPolicy string

// The policies for findings of unknown severity.
const (
	UnknownNever     UnknownPolicy = "Never"
	UnknownIfFixable UnknownPolicy = "IfFixable"
	UnknownAlways    UnknownPolicy = "Always"
)

// Totals are the numbers of a Scanner's findings.
type Totals struct {
	// Counts excludes suppressed findings; Suppressed is the number of these.
	Counts     finding.Counts
	Suppressed int
	// ByException is how many findings each exception suppresses, by the exception's UID.
	ByException map[string]int
}

// UpdateExtent is which part of a receiver's announcement records UpdateAnnouncements updates.
type UpdateExtent string

const (
	// UpdateAll updates all of them. It is the zero value.
	UpdateAll UpdateExtent = ""
	// UpdateKnown is used while a summary of all that is present is still to be sent. Announcements are carried over to the other IDs
	// of their vulnerabilities, and suppressed findings are marked, but nothing is recorded as announced or fixed without a message.
	UpdateKnown UpdateExtent = "Known"
	// UpdateSuppressed is used while a message is being delivered, since its announcements will be recorded by the IDs that it has.
	// Only suppressed findings are marked: if their exception ends before the delivery does, they are announced again.
	UpdateSuppressed UpdateExtent = "Exceptions"
)

// Announcements stores what each receiver was notified of. A receiver is identified by the Scanner's UID and its name there.
type Announcements interface {
	// UpdateAnnouncements updates a receiver's announcement records to what is present, as far as that needs no message. It carries an
	// announcement over when its vulnerability has got another ID, marks announced findings that an exception suppresses, and records
	// changes that the receiver is not notified of. A second call changes nothing, unless there were more than a million edits.
	UpdateAnnouncements(ctx context.Context, scanner, receiver string, f ChangeFilter, extent UpdateExtent) error
	// PendingChanges lists what a receiver has not been told, ordered by repository and then finding.Worse, with what is fixed last.
	// At most limit entries and some MiB of text, but one entry at least if there is any; limit 0 is for all, whatever memory that takes.
	// Of a repository with more the worst are listed. total is the number of all. UpdateAnnouncements comes before it.
	PendingChanges(ctx context.Context, scanner, receiver string, f ChangeFilter, limit int) (changes []FindingChange, total int, err error)
	// Present evaluates everything that a Scanner has in use in one consistent read, however much that is. Of the findings that pass
	// the filter and are not announced it returns the worst ones, at most worst.
	Present(ctx context.Context, scanner, receiver string, f ChangeFilter, worst int) (Present, error)
	// ScannerTotals counts the findings of the images that run now for a Scanner, once per repository, vulnerability and package,
	// whether announced or not.
	ScannerTotals(ctx context.Context, scanner string, exceptions exception.Set) (Totals, error)
	// LimitRecords bounds the bytes that are recorded of the receivers of one namespace: what was announced to each, and its state. It comes before
	// anything else; 0 is no bound. Without room UpdateAnnouncements adds no record, it only changes those that exist, a state takes no large message (ErrOverBudget), and All records
	// no further repository. What a delivered message says is recorded in any case.
	LimitRecords(bytes int64)
	// RecordsFull reports whether the records of the receivers in a Scanner's namespace use all that LimitRecords allows.
	RecordsFull(ctx context.Context, scanner string) (bool, error)
	// KnownRepositories lists the repositories that a receiver has heard of, by announcement or by RecordAnnouncement with repositories.
	KnownRepositories(ctx context.Context, scanner, receiver string) ([]string, error)
	// RecordedRepositories lists the repositories with at least one announcement record of a receiver, sorted. Records without a message count.
	RecordedRepositories(ctx context.Context, scanner, receiver string) ([]string, error)
	// LatestRecord returns the latest time of an announcement record of a receiver; zero without records. It is later than now if the clock
	// was set back.
	LatestRecord(ctx context.Context, scanner, receiver string) (time.Time, error)
	// ReceiverState returns the state that was saved last for a receiver, nil if there is none. Only the caller interprets it.
	ReceiverState(ctx context.Context, scanner, receiver string) ([]byte, error)
	// SaveReceiverState stores the state of a receiver.
	SaveReceiverState(ctx context.Context, scanner, receiver string, state []byte) error
	// BeginDelivery stores the receiver's state before a message is sent, and returns the number of this delivery. Deliveries to all
	// receivers share one sequence, in which each number is one higher than the one before.
	BeginDelivery(ctx context.Context, scanner, receiver string, state []byte) (number int64, err error)
	// RecordAnnouncement records in one transaction what the message with the given MessageID announced to a receiver, which repositories
	// the receiver knows from then on, its new state and the log entry. If it returns an error, nothing is recorded. The error is
	// ErrChanged if Snapshot is of another snapshot.
	RecordAnnouncement(ctx context.Context, scanner, receiver string, announcement Announcement) error
	// DecideAndRecord is RecordAnnouncement for the announcement that decide returns. decide runs while there is no other writer, so that
	// nothing changes between reading and recording. decide may only read. Its error is returned, and then nothing is recorded.
	DecideAndRecord(ctx context.Context, scanner, receiver string, decide func(context.Context) (Announcement, error)) error
	// RetainReceivers deletes all records of a Scanner's receivers that are not listed: their state, known repositories and
	// announcements. A receiver that is added again later is a new one. The message log stays.
	RetainReceivers(ctx context.Context, scanner string, names []string) error
	// Messages returns a Scanner's message log, latest first: at most limit entries, older than the one with the ID before (0 for the
	// latest), to one receiver or (empty) to all.
	Messages(ctx context.Context, scanner, receiver string, before int64, limit int) ([]Message, error)
	// SweepMessages deletes the log entries from before a time, and returns their number. Entries beyond MaxMessages for a receiver
	// are deleted with each new message.
	SweepMessages(ctx context.Context, before time.Time) (int, error)
}

// MaxMessages is how many messages to one receiver the log keeps.
const MaxMessages = 1000

// Message is an entry of the message log.
type Message struct {
	// ID rises with time.
	ID                int64
	Scanner, Receiver string
	MessageID         string
	Kind, Title       string
	// Findings is how many findings the message announced.
	Findings int
	At       time.Time
	// Unconfirmed means that the message was sent and the receiver never answered.
	Unconfirmed bool
	// Body is the message as JSON (notify.Message).
	Body []byte
}

// Present is a summary of everything that a Scanner has in use, from one consistent read.
type Present struct {
	// Counts are those of ScannerTotals for the filter's engine and route, with recently used images included. Suppressed is the number
	// of suppressed findings.
	Counts     finding.Counts
	Suppressed int
	// NotAnnounced is how many findings pass the filter and are not announced to the receiver. Worst are the worst of them, by finding.Worse
	// and then repository. Repositories are those that have any, sorted.
	NotAnnounced int
	Worst        []FindingChange
	Repositories []string
	// SnapshotID identifies the snapshot of all that is present, announced or not. It is opaque: while it is equal, so is what is
	// present.
	SnapshotID string
}

// Announcement is what one message announced, or what a silent baseline recorded without a message.
type Announcement struct {
	// MessageID of the message; empty for a silent baseline.
	MessageID string
	At        time.Time
	// Findings replaces earlier announcements of the same findings. Entries with diff.ChangeFixed are recorded as fixed.
	Findings []AnnouncedFinding
	// Snapshot also records everything that passes a filter, without loading it into memory; nil for none.
	Snapshot *FilteredSnapshot
	// ResetRepositories resets the repositories that the receiver knows: with another engine, each is new. It also deletes the
	// announcements of findings that are not present by the Snapshot's filter: that the other engine does not find them does not mean that
	// they are fixed.
	ResetRepositories bool
	// DeleteAbsent deletes announcements of findings that are not present; nil for none.
	DeleteAbsent *AbsentFindings
	// Repositories that the receiver knows from then on, in addition to those of the keys. The repositories of All must be named
	// here.
	Repositories []string
	// Retract is the MessageID of a message that was recorded before it was sent and was never delivered. Its announcements are
	// deleted. Empty for none.
	Retract string
	State   []byte
	// LogEntry is the entry for the message log; nil for none. The store fills in its ID, Scanner, receiver, MessageID and time.
	LogEntry *Message
}

// FilteredSnapshot is everything that passed a filter in a snapshot, as Present returned it.
type FilteredSnapshot struct {
	Filter     ChangeFilter
	SnapshotID string
}

// AbsentFindings are the findings of some repositories that were announced up to a time, and that no image of the repository has by the
// filter's engine, whatever else the filter says. A repository that has no result by that engine has none.
type AbsentFindings struct {
	Filter       ChangeFilter
	Repositories []string
	Until        time.Time
}
