// Package store remembers what was found, who runs it and what was said about it.
//
// It promises that a report and its difference from the one before become visible together or not at all,
// and that losing the store costs time, never silence: it has an id by which its readers notice that it is
// a new one. It keeps everything that would be too large for etcd. It knows no engine, no Kubernetes client
// and no message format.
package store

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Errors that callers tell apart.
var (
	// ErrNotFound says that the store has no such thing.
	ErrNotFound = errors.New("not found")
	// ErrForeignPod says that a Job already belongs to another pod.
	ErrForeignPod = errors.New("the job belongs to another pod")
	// ErrLeaseEnded says that a lease is not (or no longer) held.
	ErrLeaseEnded = errors.New("the lease has ended")
	// ErrChanged says that what is present is not what it was when it was looked at: look again.
	ErrChanged = errors.New("what is present has changed meanwhile")
)

// Scope is where an SBOM and its reports count: "" is the whole cluster, anything else one namespace.
// An image that was pulled with a namespace's own credentials, by a Job that whoever controls the namespace
// could tamper with, counts in that namespace only.
type Scope string

// Cluster is the scope of what the operator catalogued in its own namespace.
const Cluster Scope = ""

// Store is all that the rest of the program knows of the database. Methods are safe for concurrent use.
type Store interface {
	Catalogues
	Manifests
	Jobs
	MatchQueue
	Reports
	Usage
	Announcements
	Views

	// ID is made when the store is made, and made anew when it is restored. A reader that finds another one than it remembers faces an empty store.
	ID() string
	// RestoredFrom is when the backup was made that the store was last restored from; zero if it never was. What happened between
	// then and the restore is not in it. A restored store has another ID.
	RestoredFrom() time.Time
	// Replaced says that opening the store put a restored one in the place of the one before.
	Replaced() bool
	// Deliveries is the number of the last delivery that was begun; 0 if there was none.
	Deliveries(ctx context.Context) (int64, error)
	// TreatAsRestored has the store be another one that was restored from a backup as old as its last delivery: for one whose content is
	// older than what was delivered. Nothing else may use the store meanwhile.
	TreatAsRestored(ctx context.Context) error
	// Health is nil, or an error whose Trouble is what the file or its volume suffers from now, as met by a call or
	// by the last Look. It asks nobody and does not wait.
	Health() error
	// Look finds out how file and volume are and returns Health; another error says that it could not. A trouble is
	// over when a look finds none and no call met it since the look before.
	Look(ctx context.Context) error
	// LookInside reads the whole file. An error whose Trouble is ErrCorrupt says that it is damaged.
	LookInside(ctx context.Context) error
	// Close ends all work and releases the file lock.
	Close() error
}

// Catalogued is what is known about an image's content.
type Catalogued struct {
	// Engine that listed the content: one engine's list is of no use to another.
	Engine         string
	Key            image.Key
	Scope          Scope
	PlatformDigest string
	Distro         string
	Packages       int
	// Tool is what listed it, and its version.
	Tool         string
	CataloguedAt time.Time
	// Namespace in whose budget SBOM and findings count: the one on whose behalf the artifacts were brought, or else the first. Empty for
	// that of the scope. It is for saving only.
	Namespace string
}

// Artifact is one of the files that cataloguing an image gives.
type Artifact string

// The artifacts of a catalogue.
const (
	ArtifactSBOM       Artifact = "sbom"        // the complete SBOM, syft-json, zstd
	ArtifactMatchInput Artifact = "match-input" // what the matcher needs of it, zstd
)

// Catalogues holds SBOMs, and which image digests lead to which platform manifest.
type Catalogues interface {
	// Catalogued returns what an engine knows of an image in a scope, or ErrNotFound. A digest that is itself the
	// platform digest of something catalogued in that scope is found as well.
	Catalogued(ctx context.Context, engine string, key image.Key, scope Scope) (Catalogued, error)
	// SaveCatalogue stores an image's artifacts, read to their end in pieces, and replaces earlier ones.
	SaveCatalogue(ctx context.Context, c Catalogued, artifacts map[Artifact]io.Reader) error
	// ForgetCatalogue forgets what an engine knows of a platform manifest, in all scopes: it is to be listed anew. Reports stay.
	ForgetCatalogue(ctx context.Context, engine, platformDigest string) error
	// CataloguedScopes lists the scopes in which Catalogued finds an image, sorted: the cluster's is the first.
	CataloguedScopes(ctx context.Context, engine string, key image.Key) ([]Scope, error)
	// OpenArtifact returns an artifact, read in pieces, and its size in bytes; ErrNotFound if there is none.
	OpenArtifact(ctx context.Context, platformDigest string, scope Scope, a Artifact) (io.ReadCloser, int64, error)
}

// Manifest is a platform manifest that an engine keeps elsewhere, such as Clair in its own database.
type Manifest struct {
	Engine, PlatformDigest string
	// Ours says that the engine did not know it before: then it may be deleted there.
	Ours bool
}

// Manifests remembers what engines keep elsewhere, until it is deleted there. It outlasts catalogues, reports and Scanners.
//
// Which images lead to a manifest is known from SaveCatalogue on. Who remembers a manifest before it is listed must not take it
// for unused in between.
type Manifests interface {
	// SaveManifest remembers a manifest. One that is known stays as it was: who was first does not change.
	SaveManifest(ctx context.Context, m Manifest) error
	// Manifest returns what is remembered, or ErrNotFound.
	Manifest(ctx context.Context, engine, platformDigest string) (Manifest, error)
	// UnusedManifests lists those of an engine which no Scanner has an image with by that engine, but for the one named
	// (by UID; empty for none), in the order of their digests, at most limit, from a digest on (empty for all).
	UnusedManifests(ctx context.Context, engine, except, from string, limit int) ([]Manifest, error)
	// HoldsManifests says whether any of an engine's manifests is that of an image which only this Scanner (by UID) has by that engine. It
	// costs as much as the Scanner has images. Manifests that nobody has are no Scanner's.
	HoldsManifests(ctx context.Context, engine, scanner string) (bool, error)
	// ForgetManifest forgets one. A missing one is no error.
	ForgetManifest(ctx context.Context, engine, platformDigest string) error
}

// JobPurpose is what a Job was made for.
type JobPurpose string

// Purposes of Jobs.
const (
	JobCatalog JobPurpose = "catalog"
	JobMatch   JobPurpose = "match"
)

// Job is the manager's own record of a Job that it made. What a Job's pod may upload follows from this
// record alone, never from labels or owner references.
type Job struct {
	// Name is recorded before the Job is made, UID after: a record without UID is a Job that may not exist.
	Namespace, Name string
	UID             string
	// PodUID is the one pod that spoke for this Job; empty until one did.
	PodUID  string
	Purpose JobPurpose
	// Key and Scope are what a catalog Job is about; zero for match Jobs.
	Key       image.Key
	Scope     Scope
	CreatedAt time.Time
	// Scanner is the UID of the one on whose behalf a catalog Job was made. Others may use what it brings.
	Scanner string
	// ScannerNamespace is that Scanner's, or that of another one which has the image now; empty if none has. It is read,
	// never saved.
	ScannerNamespace string
	// Memory is the Job's limit in bytes, 0 for none, and MostMemory the greatest that the image may get.
	Memory, MostMemory int64
	// Worker is the image that the Job was made with. Jobs of another one than the manager's may do nothing.
	Worker string
	// EndedAt is zero while the Job lives. Failed says how it ended.
	EndedAt time.Time
	Failed  bool
	// Result is the digest of the upload that was taken as the Job's result, empty while there is none. It is read, never saved.
	Result string
}

// Jobs remembers the Jobs that live, and those that have ended and are still there to be looked at.
type Jobs interface {
	// SaveJob inserts the record or, by namespace and name, updates its UID.
	SaveJob(ctx context.Context, job Job) error
	// JobByUID returns the record of a live Job, or ErrNotFound.
	JobByUID(ctx context.Context, uid string) (Job, error)
	// LiveJobs lists the records of Jobs that have not ended, oldest first.
	LiveJobs(ctx context.Context) ([]Job, error)
	// IsRecorded says whether a Job is one of the records, live or ended: by UID or, of those that have none yet, by name.
	IsRecorded(ctx context.Context, namespace, name, uid string) (bool, error)
	// EndJob takes from a Job all that it may do. Its record stays until DeleteJob. One that has ended keeps its end;
	// a missing one is no error.
	EndJob(ctx context.Context, namespace, name string, at time.Time, failed bool) error
	// EndedJobs lists the records of Jobs that have ended, the latest first.
	EndedJobs(ctx context.Context) ([]Job, error)
	// ClaimJob binds a Job to the first pod that speaks for it; ErrForeignPod for any other, ErrNotFound for no such Job.
	ClaimJob(ctx context.Context, uid, podUID string) (Job, error)
	// DeleteJob forgets a record by namespace and name. A missing one is no error. Leases that it held end; what
	// that says of their images is described at MatchQueue.
	DeleteJob(ctx context.Context, namespace, name string) error
	// SaveJobResult stores what a catalog Job brought, once for each Job. kept is false if nothing but the way from the key to the platform
	// manifest was stored: the engine knows the manifest's content in that scope, or the same upload was stored before. What one
	// Job stored is never replaced by another one's result. ErrNotFound if the Job does not live, ErrResultTaken if it has brought another
	// result, ErrOverBudget if the namespace has no room left.
	SaveJobResult(ctx context.Context, r JobResult) (kept bool, err error)
	// StoredBytes is how many bytes are stored on behalf of a namespace: SBOMs, match inputs, and findings with their texts.
	StoredBytes(ctx context.Context, namespace string) (int64, error)
	// StoredByNamespace is StoredBytes of all namespaces; "" has what counts for none.
	StoredByNamespace(ctx context.Context) (map[string]int64, error)
	// ExceedMemory notes that so many bytes of memory are not enough to catalog an image in a scope. The most that
	// was ever noted counts. Sweep forgets it of images that no Scanner has.
	ExceedMemory(ctx context.Context, key image.Key, scope Scope, bytes int64) error
	// MemoryExceeded returns it; 0 if nothing was noted.
	MemoryExceeded(ctx context.Context, key image.Key, scope Scope) (int64, error)
}

// DataVersion identifies the vulnerability data of one engine.
type DataVersion struct {
	// Version is unique for the data and for the engine's version; equal means nothing to match again.
	Version string
	// Built is the data's own time.
	Built time.Time
	// Tool is the engine and its version, such as "grype 0.121.2"; empty if unknown.
	Tool string
	// Since is when the store first knew this version; zero if that is not known. It is read, never saved.
	Since time.Time
}

// Lease lends one image to a match worker.
type Lease struct {
	ID             string
	Holder         string // UID of the Job
	PlatformDigest string
	Scope          Scope
	Engine         string
	Until          time.Time
}

// MatchQueue hands out what must be matched. The queue follows from the rest of the store: it is every cataloged image
// in use whose report is missing or made with other data.
//
// Namespaces take turns: the next image is of the namespace that has the fewest leases of the engine and, among equals, of the one that
// waits longest. An image that several namespaces have is leased once, in the first turn that comes to it, whosever that is.
//
// An image may kill or block the worker that matches it. Each image whose lease runs out, or which a Job held when it was deleted, is
// suspected, as long as the data is the same: it is leased alone, and after all others for some minutes, so that it takes no other image
// with it. After MaxSilentEnds times in a row it has failed, with ReasonMatchTimedOut if its lease ran out the last time, else with
// ReasonMatchWorkerDied, and once more after each further try. A report, or a failure that a worker reports, begins the count anew.
// Only leases that Jobs hold count.
type MatchQueue interface {
	// SetDataVersion records the data that reports are to be made with from now on.
	SetDataVersion(ctx context.Context, engine string, v DataVersion) error
	// DataVersion returns it, or ErrNotFound.
	DataVersion(ctx context.Context, engine string) (DataVersion, error)
	// QueueLength is the number of images to match, leased ones included, those put off by FailMatch not.
	QueueLength(ctx context.Context, engine string) (int, error)
	// LeaseMatches leases up to limit images until the given time. In each namespace never matched ones come first, then the
	// oldest data and reports. A suspected one comes only when there are no others, and only to a holder that has no lease; until it
	// has ended, that holder gets nothing. When suspected ones have waited for some minutes, one of them comes before all others, and
	// holders that have a lease get nothing until it does.
	LeaseMatches(ctx context.Context, engine, holder string, limit int, now, until time.Time) ([]Lease, error)
	// Lease returns a lease that the holder has at that time, or ErrLeaseEnded.
	Lease(ctx context.Context, id, holder string, now time.Time) (Lease, error)
	// ReturnLeases ends all that a holder has of an engine, as if they had never been lent.
	ReturnLeases(ctx context.Context, engine, holder string) error
	// RequestMatch has an image matched again though its report is of the current data, or failed. What was found stays until the next
	// report. Of an image that is not cataloged nothing is requested.
	RequestMatch(ctx context.Context, s Subject) error
	// FailMatch ends a lease without a report. The image is not lent again before retryAt.
	FailMatch(ctx context.Context, id, holder string, f MatchFailure) error
	// MatchFailure returns why an image could not be matched with the current data, or ErrNotFound.
	MatchFailure(ctx context.Context, s Subject) (MatchFailure, error)
}

// MaxSilentEnds is how often in a row an image's lease may run out, or end with its Job, before that is a failure.
const MaxSilentEnds = 3

// Reasons of a MatchFailure that the store finds itself.
const (
	// ReasonMatchWorkerDied is that of an image whose workers die.
	ReasonMatchWorkerDied = "MatchWorkerDied"
	// ReasonMatchTimedOut is that of an image whose leases run out.
	ReasonMatchTimedOut = "MatchTimedOut"
)

// MatchFailure says why an image could not be matched, and when it is tried again.
type MatchFailure struct {
	Reason, Message string
	FailedAt        time.Time
	RetryAt         time.Time
}

// Subject is what a report is about: an image's platform manifest, as seen in a scope, by one engine.
type Subject struct {
	PlatformDigest string
	Scope          Scope
	Engine         string
}

// Report is everything that an engine knows to be wrong with an image.
type Report struct {
	Subject
	DataVersion string
	MatchedAt   time.Time
	Distro      string
	// NotCovered names what the image holds or may hold and the engine has no findings for in any case.
	NotCovered []string
	// Evidence is what its data proves about findings that it does not have.
	Evidence Evidence
	// Findings are merged (finding.Merge). Nil and empty are equal: nothing is known to be wrong.
	Findings []finding.Finding
}

// Difference is what a report changed.
type Difference struct {
	New, Still, Gone int
	// First says that there was no report of this subject before.
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
	// Excepted is the number of findings that exceptions cover. They are neither in Counts nor in Top.
	Excepted int
}

// Excepting says which findings of an image are covered: those that exceptions cover under each of its names.
type Excepting struct {
	Exceptions exception.Set
	Images     []exception.Image
}

// SeverityBefore is a severity that a finding had until a time.
type SeverityBefore struct {
	Severity finding.Severity `json:"severity"`
	Until    time.Time        `json:"until"`
}

// DataAnomaly says that too much of what an engine found has gone with one version of its data to be believed.
type DataAnomaly struct {
	DataVersion string
	// Missing findings of so many went with it, first at Since.
	Missing, Of int
	Since       time.Time
	// Namespaces of so many show it, when what the Scanner's own images show is not enough to notice it: then Missing and Of are 0.
	Namespaces, OfNamespaces int
}

// When findings that go with one version of the data are too many to be believed: more than both.
const (
	AnomalyShare  = 0.2
	AnomalyNumber = 50
)

// Reports holds the current report of each subject and the life of each finding.
type Reports interface {
	// SaveReport replaces a subject's report, in one transaction with the difference: findings that are there
	// for the first time get a first-seen time, those that are gone a gone time. A lease for the subject with
	// leaseID is ended in the same transaction; an empty leaseID means that there is none. ErrLeaseEnded if it is not held.
	SaveReport(ctx context.Context, r Report, leaseID string) (Difference, error)
	// Summary returns the current report without its findings, or ErrNotFound. What is covered is only counted.
	Summary(ctx context.Context, s Subject, e Excepting) (Summary, error)
	// DataAnomaly returns what is anomalous about the data of an engine as a Scanner (by UID) sees it, nil if nothing is. Counted is what
	// the operator cataloged itself, and what counts in the scopes of the Scanner's images. What other namespaces uploaded counts only if
	// most of them show the same. As long as there is an anomaly, nothing is called fixed; it ends when what went is back, or after two
	// weeks.
	DataAnomaly(ctx context.Context, scanner, engine string) (*DataAnomaly, error)
	// HasReport says whether an engine has reported on an image in a scope, also while it is to be cataloged anew.
	HasReport(ctx context.Context, engine string, key image.Key, scope Scope) (bool, error)
	// Findings returns the current findings of a subject, worst first; ErrNotFound if there is no report.
	Findings(ctx context.Context, s Subject) ([]finding.Finding, error)
}

// Workload runs an image.
type Workload struct {
	Namespace string
	// Kind and Name of the top-most owner that is known: Deployment, StatefulSet, DaemonSet, CronJob, Job, Pod, …
	Kind, Name string
	// Container is the name of the container in it.
	Container string
	// Repository is the pod spec's, normalised: what announcements are grouped by.
	Repository string
	// Reference is the pod spec's, with its tag.
	Reference string
	// Receivers that its pods (or their namespace) name, sorted and joined by commas; empty if they name none.
	Receivers string
	// Completes says that its pods are meant to end, as those of a CronJob are: pods that are gone have ended then.
	Completes bool
}

// EndedWorkload is one whose pods ran an image and have ended: they succeeded or failed.
type EndedWorkload struct {
	Workload
	// At is when the last of them ended.
	At time.Time
}

// Used says that a Scanner has an image.
type Used struct {
	// Scanner is its UID.
	Scanner   string
	Namespace string
	Key       image.Key
	Scope     Scope
	Engine    string
	// Suspended keeps the image out of the match queue, unless another Scanner that has it is not.
	Suspended bool
	// Workloads that run it now. Empty: the image is kept matched and is not counted.
	Workloads []Workload
	// Ended are workloads whose ended pods are still there, whether or not others of their pods run it now. The image stays in use, which means that its
	// findings are announced, until all that ended did so before EndedSince, or one of its workloads has run another image of the
	// repository. Workloads that no longer run the image are kept up to a bound, those that left last.
	Ended      []EndedWorkload
	EndedSince time.Time
	// Dropped are workloads whose pods are still there and are the Scanner's no longer: they have not ended. A workload that is in Ended as
	// well has pods of both kinds, of which those count that ended.
	Dropped []Workload
}

// ScannerImage is an image that a Scanner has.
type ScannerImage struct {
	// Scanner is its UID.
	Scanner, Namespace string
	Key                image.Key
}

// RecentImage is an image that nothing runs now and that is still in use, since its last pods ended not long ago.
type RecentImage struct {
	Key image.Key
	// Reference is one of those that name it. Repositories and Receivers are those of the workloads that ran it.
	Reference               string
	Repositories, Receivers []string
}

// ReportAge says how old a report is.
type ReportAge struct {
	MatchedAt time.Time
	// Current says that it was made with the engine's current data. As long as none is known, it is.
	Current bool
}

// Usage knows which Scanner has which image, and which workloads run it.
type Usage interface {
	// SetUsed replaces what is known of an image's use by a Scanner. Without workloads, running or ended, scope and engine stay as they were.
	SetUsed(ctx context.Context, u Used) error
	// RecentImages lists a Scanner's images of an engine that nothing runs now and that are still in use.
	RecentImages(ctx context.Context, scanner, engine string) ([]RecentImage, error)
	// InUse says whether any Scanner has an image with an engine in a scope.
	InUse(ctx context.Context, engine string, key image.Key, scope Scope) (bool, error)
	// Wanted says whether a Scanner that is not suspended has an image with an engine in a scope, and a workload runs it or has ended
	// recently.
	Wanted(ctx context.Context, engine string, key image.Key, scope Scope) (bool, error)
	// ImagesInUse counts the images that Scanners have with an engine, each once per scope.
	ImagesInUse(ctx context.Context, engine string) (int, error)
	// Reported gives the images that a Scanner has with an engine and that this store has a report of by it, in the scope
	// that the Scanner has them in now, whatever data it was made with. Other images are not in the map.
	Reported(ctx context.Context, scanner, engine string) (map[image.Key]ReportAge, error)
	// ScannerImages lists which Scanner has which image in a namespace, or (empty) in all.
	ScannerImages(ctx context.Context, namespace string) ([]ScannerImage, error)
	// Release forgets that a Scanner has an image.
	Release(ctx context.Context, scanner string, key image.Key) error
	// Scanners lists the UIDs of the Scanners that the store knows anything of.
	Scanners(ctx context.Context) ([]string, error)
	// ForgetScanners forgets everything of these Scanners: use, receivers, announcements, the log of messages.
	ForgetScanners(ctx context.Context, scanners []string) error
	// Sweep deletes catalogues, reports and findings that no Scanner has had in use since the given time. It
	// returns the number of images deleted.
	Sweep(ctx context.Context, unusedSince time.Time) (int, error)
}

// Change is what makes something worth telling.
type Change string

// Changes. Worth telling by default are all but the last two.
const (
	// ChangeNew: it passes the receiver's filter and was never told, or what covered it has ended.
	ChangeNew Change = "New"
	// ChangeFixAvailable: it was told when there was no fix, and now there is one.
	ChangeFixAvailable Change = "FixAvailable"
	// ChangeEscalated: since it was told it has become known exploited, or its severity has reached the receiver's. Also: it was
	// never told, and was less severe when it was found. Then New alone lets it pass as well.
	ChangeEscalated Change = "Escalated"
	// ChangeRegressed: it was told, was fixed, and is back.
	ChangeRegressed Change = "Regressed"
	// ChangeFixed: it was told, and no running image of the repository has it any more, whomever it concerns. An image that nothing
	// runs for now, while its workloads have run no other of the repository since, counts as running as long as the Scanner has it.
	ChangeFixed Change = "Fixed"
	// ChangeNewImage: a repository of which the receiver has never heard. The planner finds it, not the store.
	ChangeNewImage Change = "NewImage"
)

// News is one thing that a receiver has not been told: a vulnerability in a package in those of a repository's
// images that are in use (they run, or their last pods have ended recently), and what has changed about it. That triple is the identity of an announcement.
type News struct {
	Change     Change
	Repository string
	// Finding is the worst of all findings with this repository, vulnerability id and package name that no exception covers. With
	// ChangeFixed it has only what was recorded when it was told: id, aliases, package name, severity.
	Finding finding.Finding
	// FirstSeen is when the store first knew it. FixSince is since when a fix is known, by the engine's own date or else the store's;
	// ExploitedSince since when the store knows it to be exploited. Zero if there is none.
	FirstSeen, FixSince, ExploitedSince time.Time
	// SeverityBefore is what it was when it was told, or before it changed if it never was; equal to the finding's if it is the same.
	SeverityBefore finding.Severity
	// ExceptionEnded says that it was covered by an exception, which is why it is news.
	ExceptionEnded bool
	// Workloads that run it; with ChangeFixed those that run the repository.
	Workloads []Workload
}

// AnnouncementKey identifies what was said.
type AnnouncementKey struct {
	Repository string `json:"repository"`
	ID         string `json:"id"`
	Package    string `json:"package"`
}

// Said is what was said about one thing: from then on only what differs from it is news.
type Said struct {
	AnnouncementKey
	Change         Change           `json:"change"`
	Severity       finding.Severity `json:"severity"`
	Fixable        bool             `json:"fixable,omitempty"`
	KnownExploited bool             `json:"knownExploited,omitempty"`
	Aliases        []string         `json:"aliases,omitempty"`
}

// NewsFilter narrows what a receiver wants to know. A known exploited vulnerability always passes.
type NewsFilter struct {
	// MinSeverity does not apply to Unknown.
	MinSeverity finding.Severity
	// Unknown lets findings of unknown severity pass: never, when fixable, or always.
	Unknown UnknownPolicy
	// OnlyFixable drops what has no fix.
	OnlyFixable bool
	// Changes that are told; nil for the default. What is not told is recorded by FollowUp as if it had been.
	Changes []Change
	// Engine narrows down to images that the Scanner has with this engine; empty for any. It holds for known exploited
	// ones too, and for all that Present gives.
	Engine string
	// Route narrows down to the workloads that concern the receiver; nil for all.
	Route *Route
	// Exceptions that are in force in the Scanner's namespace.
	Exceptions exception.Set
	// Settled are the repositories of which every image has a complete result: only there anything can be fixed.
	Settled []string
	// Kept lets News count images as in use that nothing runs now and that the Scanner still has, unless a rollout has replaced them.
	Kept bool
}

// Route says which workloads concern a receiver. A workload that names only receivers that the Scanner does not have is taken
// as one that names none, so that nothing goes untold.
type Route struct {
	Receiver string
	// Known are the Scanner's receivers.
	Known []string
	// Unassigned lets workloads pass that name none.
	Unassigned bool
}

// UnknownPolicy says when findings of unknown severity pass.
type UnknownPolicy string

// The policies.
const (
	UnknownNever     UnknownPolicy = "Never"
	UnknownIfFixable UnknownPolicy = "IfFixable"
	UnknownAlways    UnknownPolicy = "Always"
)

// Totals are a Scanner's findings in numbers.
type Totals struct {
	// Counts leaves out what exceptions cover; Excepted is how many that are.
	Counts   finding.Counts
	Excepted int
	// ByException says how many each exception covers, by UID.
	ByException map[string]int
}

// Extent is how much of what is recorded of a receiver is brought up to date.
type Extent string

const (
	// FollowAll is the zero value.
	FollowAll Extent = ""
	// FollowKnown is for as long as a summary of all that is present is still to come: what the receiver has been told already is found
	// by its other ids, and exceptions are noted, but nothing becomes known or fixed without a message.
	FollowKnown Extent = "Known"
	// FollowExceptions is for as long as a message is on its way: what it says will be recorded by the ids that it has. Only exceptions
	// are noted, since the end of one that is over by then is news.
	FollowExceptions Extent = "Exceptions"
)

// Announcements knows what each receiver was told. A receiver is identified by the Scanner's UID and its name there.
type Announcements interface {
	// FollowUp brings what is recorded of a receiver up to what is present, as far as that needs no message: a vulnerability that has
	// got another id was told under the one before; what was told and is now covered by an exception is marked as such; changes that the
	// receiver is not told of are recorded. It changes nothing when called again.
	FollowUp(ctx context.Context, scanner, receiver string, f NewsFilter, extent Extent) error
	// News lists what a receiver has not been told, ordered by repository and then finding.Worse, with what is fixed last.
	// At most limit entries and some MiB of text, but one entry at least if there is any; limit 0 is for all, whatever memory that takes.
	// Of a repository with more the worst are listed. total is the number of all. FollowUp comes before it.
	News(ctx context.Context, scanner, receiver string, f NewsFilter, limit int) (news []News, total int, err error)
	// Present looks at everything that a Scanner has in use at one moment, however much that is, and names the worst of
	// what passes the filter and the receiver has not been told, at most that many.
	Present(ctx context.Context, scanner, receiver string, f NewsFilter, worst int) (Present, error)
	// ScannerTotals counts the findings of what runs now for a Scanner once per repository, vulnerability and package, whatever was told.
	ScannerTotals(ctx context.Context, scanner string, exceptions exception.Set) (Totals, error)
	// LimitRecords bounds the bytes that are recorded of the receivers of one namespace: what each was told, and its state. It comes before
	// anything else; 0 is no bound. Without room FollowUp records nothing, a state takes no large message (ErrOverBudget), and All records
	// no further repository. What a delivered message says is recorded in any case.
	LimitRecords(bytes int64)
	// RecordsFull says whether what is recorded of the receivers in a Scanner's namespace takes all that LimitRecords allows.
	RecordsFull(ctx context.Context, scanner string) (bool, error)
	// KnownRepositories lists the repositories that a receiver has heard of, by announcement or by MarkAnnounced with repositories.
	KnownRepositories(ctx context.Context, scanner, receiver string) ([]string, error)
	// ReceiverState returns the state that its owner saved, nil if none.
	ReceiverState(ctx context.Context, scanner, receiver string) ([]byte, error)
	// SaveReceiverState stores it.
	SaveReceiverState(ctx context.Context, scanner, receiver string, state []byte) error
	// BeginDelivery stores the state in which a message is handed over, and counts that: each number is one higher than the one before.
	BeginDelivery(ctx context.Context, scanner, receiver string, state []byte) (number int64, err error)
	// MarkAnnounced records in one transaction what a receiver was told by the message with the given digest
	// id, which repositories it has now heard of, its new state and the entry of the log. With an error nothing is recorded;
	// ErrChanged if All is of another moment.
	MarkAnnounced(ctx context.Context, scanner, receiver string, said Announced) error
	// DecideAndMark is MarkAnnounced of what is decided while nobody writes, so that nothing changes between a look and its record. decide
	// may only read; its error is returned, and nothing is recorded.
	DecideAndMark(ctx context.Context, scanner, receiver string, decide func(context.Context) (Announced, error)) error
	// KeepReceivers forgets everything of a Scanner's receivers that are not listed: their state, the repositories
	// they have heard of, what they were told. One that comes back later is a new one. The log stays.
	KeepReceivers(ctx context.Context, scanner string, names []string) error
	// Messages returns the log of a Scanner's messages, the latest first: at most limit, from before an id on (0 for the latest),
	// to one receiver or (empty) to all.
	Messages(ctx context.Context, scanner, receiver string, before int64, limit int) ([]Message, error)
	// SweepMessages deletes from the log what was said before a time, and returns how much. What is beyond MaxMessages for a receiver
	// goes with each new message.
	SweepMessages(ctx context.Context, before time.Time) (int, error)
}

// MaxMessages is how many messages to one receiver the log keeps.
const MaxMessages = 1000

// Message is an entry of the log.
type Message struct {
	// ID rises with time.
	ID                int64
	Scanner, Receiver string
	DigestID          string
	Kind, Title       string
	// Findings is how many findings count as told by it.
	Findings int
	At       time.Time
	// Unconfirmed says that the message was sent and that the receiver never answered.
	Unconfirmed bool
	// Body is the message as JSON (notify.Digest).
	Body []byte
}

// Present is everything that a Scanner has at one moment.
type Present struct {
	// Counts are those of ScannerTotals, of the filter's engine and route and of recently used images too; Excepted is how many
	// exceptions cover.
	Counts   finding.Counts
	Excepted int
	// News is how many findings pass the filter that the receiver has not been told. Worst are the worst of them, by
	// finding.Worse and then repository; Repositories those that have any, sorted.
	News         int
	Worst        []News
	Repositories []string
	// Moment names all that is present, announced or not. Opaque; as long as it is the same, so is what is present.
	Moment string
}

// Announced is what one message said, or what a silent baseline passed over.
type Announced struct {
	// DigestID of the message; empty for a silent baseline.
	DigestID string
	At       time.Time
	// Said replaces what was said before about the same thing. With ChangeFixed it is recorded as fixed.
	Said []Said
	// All records everything that passes a filter, so that nobody has to hold it; nil for none.
	All *All
	// ForgetRepositories lets the receiver have heard of no repository before: by another engine, each is new. What was told and is not
	// present by All's filter is forgotten as well: that the other engine does not find it does not make it fixed.
	ForgetRepositories bool
	// Repositories that the receiver has now heard of, beside those of the keys. Those of All must be named here.
	Repositories []string
	// Retract is the DigestID of a message that was recorded before it was sent and never arrived: what it said was
	// not said. Empty for none.
	Retract string
	State   []byte
	// Log is the entry of the log; nil for none. Its id, Scanner, receiver, DigestID and time are filled in.
	Log *Message
}

// All is everything that passed a filter at a moment, as Present looked at it.
type All struct {
	Filter NewsFilter
	Moment string
	// OnlyForget announces nothing. Announcements of findings that are not present are forgotten, as by ForgetRepositories; all others
	// and the known repositories stay.
	OnlyForget bool
}
