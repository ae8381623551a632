// Package store persists catalogs, findings, the use of images by workloads, and what each receiver was notified of.
//
// It promises that a report and its difference from the report before become visible in one transaction. Losing the store costs
// time, but no notification: the store has an ID, by which its readers detect that it is a new one. It holds everything that is
// too large for etcd. A receiver is identified by the Scanner's UID and its name there. The package must not know any engine, the
// Kubernetes client or a message format.
package store

import (
	"errors"
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

// Manifest is a platform manifest that an engine keeps in its own storage, such as Clair in its database. Its record outlives catalogs,
// reports and Scanners, until the manifest is deleted there.
//
// The images of a manifest are known from SaveCatalog on. A caller that saves a manifest before its catalog must not treat it
// as unused in between.
type Manifest struct {
	Engine, PlatformDigest string
	// AddedByOperator means that the engine did not have the manifest before the operator gave it to the engine: only then may it be deleted
	// there.
	AddedByOperator bool
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
	// Missing of Total findings have disappeared with that version, the first of them at Since.
	Missing, Total int
	Since          time.Time
	// Namespaces of TotalNamespaces namespaces show the anomaly. They are set if the Scanner's own images do not show it: then Missing
	// and Total are 0.
	Namespaces, TotalNamespaces int
}

// Data is anomalous when the findings that disappear with it exceed both of these bounds.
const (
	AnomalyShare = 0.2
	AnomalyCount = 50
)

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
	// AbsentIsFixedIn are the repositories in which an announced finding that no image has counts as fixed, unless the data has an anomaly.
	AbsentIsFixedIn []string
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
	// Body is the message as JSON (announce.Message).
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
	// Repositories that the receiver knows from then on, in addition to those of the keys. The repositories of the
	// Snapshot must be named here.
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
