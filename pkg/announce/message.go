// Package announce decides what to announce to which receiver, and when.
//
// A message is computed from a difference: what is present minus what was announced to a receiver. The computation is
// level-triggered: whatever is interrupted is computed again. A message with an unknown outcome is sent again under the same ID, by which
// the notifier recognizes it. The package knows neither Slack nor Kubernetes.
//
// A Dispatcher makes one plan after the other and carries each out. A plan first handles the message in the outbox (outbox.go), then the
// baseline (baseline.go, and why one begins: baseline_reasons.go), then changes (plan.go). evidence.go limits which findings count as fixed,
// and earlierengine.go does so after a change of the engine. compose.go makes messages.
package announce

import (
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Kind is the type of a message.
type Kind string

// Kinds of messages.
const (
	// KindFirstScan summarizes what was present when the Scanner (or the receiver) was created.
	KindFirstScan Kind = "FirstScan"
	// KindBaselineRenewed is the same summary after the store was lost. It does not claim that anything is new.
	KindBaselineRenewed Kind = "BaselineRenewed"
	// KindEngineChanged is the same summary after the Scanner's engine was changed. Findings that only the new engine reports are not
	// claimed to be new.
	KindEngineChanged Kind = "EngineChanged"
	// KindEngineUpdated summarizes the additional findings of a new version of the same engine, if there are any.
	KindEngineUpdated Kind = "EngineUpdated"
	// KindFilterWidened summarizes what was present before the receiver's filter was widened and passes it now, if there is anything.
	KindFilterWidened Kind = "FilterWidened"
	// KindStoreRestored summarizes, after the store was restored from a backup, what was not announced when the backup was made, if there
	// is anything. It may have been announced since the backup.
	KindStoreRestored Kind = "StoreRestored"
	// KindScheduledSummary summarizes, at a time that the receiver's schedule names, what is present and what has happened since the summary before.
	KindScheduledSummary Kind = "ScheduledSummary"
	// KindChanges lists what was not announced yet: changes, new images and notices about the Scanner's health.
	KindChanges Kind = "News"
	// KindAlerts has no content of its own: Delivery.Alerts has all that is present.
	KindAlerts Kind = "Alerts"
	// KindTest is a message that a person requested to see whether it arrives. It has no content, and announces nothing.
	KindTest Kind = "Test"
)

// ClusterScannerKind is Message.ScannerKind for a ClusterScanner.
const ClusterScannerKind = "ClusterScanner"

// Message is one message, complete and independent of the receiver's format.
type Message struct {
	// ID is unique for each message and stays the same when the message is sent again. It has 32 hexadecimal digits.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// ScannerKind is the kind of the object that Scanner names: empty for a Scanner, or ClusterScannerKind. Namespace is the Scanner's; it is
	// empty for a ClusterScanner.
	ScannerKind string    `json:"scannerKind,omitempty"`
	Namespace   string    `json:"namespace"`
	Scanner     string    `json:"scanner"`
	CreatedAt   time.Time `json:"createdAt"`
	// Cluster is the name of the cluster, as the operator's configuration has it; empty if it has none.
	Cluster string `json:"cluster,omitempty"`
	// OnlyNamespaces are the namespaces that a ClusterScanner's message is limited to, in ascending order and at most three. MoreOnlyNamespaces
	// is the number of further ones. Without any, the message is about the cluster.
	OnlyNamespaces     []string `json:"onlyNamespaces,omitempty"`
	MoreOnlyNamespaces int      `json:"moreOnlyNamespaces,omitempty"`
	// Engine and EngineBefore are the new and the previous engine. They are set for KindEngineChanged, and with their versions for
	// KindEngineUpdated.
	Engine       string `json:"engine,omitempty"`
	EngineBefore string `json:"engineBefore,omitempty"`
	// Totals counts findings without suppressed ones: all that are present in a summary, and the announced ones that are not fixed in
	// KindChanges.
	Totals finding.Counts `json:"totals"`
	// Suppressed is, in summaries, the number of findings that exceptions suppress. Totals does not count them.
	Suppressed int `json:"excepted,omitempty"`
	// RestoredFrom is the time of the backup, for KindStoreRestored, and for KindEngineChanged if the store was restored as well; else zero.
	RestoredFrom time.Time `json:"restoredFrom,omitzero"`
	// NotAnnounced is the number of findings that were not announced before, for KindEngineUpdated, KindFilterWidened and KindStoreRestored.
	// Worst lists only such findings.
	NotAnnounced int `json:"untold,omitempty"`
	// Changes counts the announced changes by kind, including findings that are only counted.
	Changes map[diff.Change]int `json:"changes,omitempty"`
	// Images is the number of image repositories that the message covers.
	Images int `json:"images"`
	// Sections, one per image repository, worst first. Summaries have none.
	Sections []Section `json:"sections,omitempty"`
	// Rest counts what is announced without a section. No later message repeats it.
	Rest Rest `json:"rest,omitzero"`
	// NewImages are repositories that run for the first time and have no findings to announce, at most ten. MoreNewImages is the number of
	// further ones.
	NewImages     []string `json:"newImages,omitempty"`
	MoreNewImages int      `json:"moreNewImages,omitempty"`
	// Notices are about the Scanner's own health.
	Notices []Notice `json:"notices,omitempty"`
	// Actions are, in summaries, the most urgent updates, at most five. They end findings that were not announced before. MoreActions is the
	// number of further ones.
	Actions     []UpdateAction `json:"actions,omitempty"`
	MoreActions int            `json:"moreActions,omitempty"`
	// Worst are findings of a summary that were not announced before: first those of Actions, then the worst without a fix.
	Worst []Item `json:"worst,omitempty"`
	// Namespaces are, in a ClusterScanner's summary, those with the most urgent findings, worst first. MoreNamespaces is the number of
	// further ones that have findings. JoinedNamespaces are, in KindChanges, those that joined a ClusterScanner, worst first, and
	// MoreJoinedNamespaces is the number of further ones. Totals counts the findings of all of them.
	Namespaces           []NamespaceSummary `json:"namespaces,omitempty"`
	MoreNamespaces       int                `json:"moreNamespaces,omitempty"`
	JoinedNamespaces     []NamespaceSummary `json:"joinedNamespaces,omitempty"`
	MoreJoinedNamespaces int                `json:"moreJoinedNamespaces,omitempty"`
	// Remaining counts the images that a summary does not cover.
	Remaining Remaining `json:"remaining,omitzero"`
	// Trend and OldestExploited are set in KindScheduledSummary: what has happened since the summary before, and the finding that is known to be
	// exploited for the longest time; nil if there is none.
	Trend           *Trend `json:"trend,omitempty"`
	OldestExploited *Item  `json:"oldestExploited,omitempty"`
	// Unconfirmed describes earlier messages to this receiver that were given up; nil if there are none.
	Unconfirmed *Unconfirmed `json:"unconfirmed,omitempty"`
	// ReadMore is the command or URL that shows all findings.
	ReadMore string `json:"readMore,omitempty"`
	// WebUI is the address of the web UI, to whose pages a message links; empty for no links.
	WebUI string `json:"webUI,omitempty"`
}

// Section is about one image repository.
type Section struct {
	Repository string `json:"repository"`
	// References are the tags in use, at most five.
	References []string `json:"references,omitempty"`
	// Workloads that run it, such as "Deployment shop/api", at most ten. MoreWorkloads is the number of further ones. WorkloadNamespaces is
	// the number of namespaces of all of them; 0 counts as 1.
	Workloads          []string `json:"workloads,omitempty"`
	MoreWorkloads      int      `json:"moreWorkloads,omitempty"`
	WorkloadNamespaces int      `json:"workloadNamespaces,omitempty"`
	// FirstTime is true if the repository is new to the receiver. Its section then gives totals and the worst findings, not each finding as
	// a change.
	FirstTime bool `json:"firstTime,omitempty"`
	// Totals counts the section's findings, without fixed ones.
	Totals finding.Counts `json:"totals"`
	// Actions are the most urgent updates, at most ten. MoreActions is the number of further ones. A message of an earlier version has none.
	Actions     []UpdateAction `json:"actions,omitempty"`
	MoreActions int            `json:"moreActions,omitempty"`
	// Items are findings: first those of Actions, then those without a fix, at last fixed ones, the worst of each first. MoreItems counts those
	// left out.
	Items     []Item `json:"items,omitempty"`
	MoreItems int    `json:"moreItems,omitempty"`
}

// UpdateAction is the update of one package in one image repository, with the findings that it ends. Package action groups them by version;
// an UpdateAction combines the versions of one package.
type UpdateAction struct {
	Repository string `json:"repository"`
	// References, Workloads, MoreWorkloads and WorkloadNamespaces are as in Section, of the images that have the findings. At most three
	// workloads are named.
	References         []string `json:"references,omitempty"`
	Workloads          []string `json:"workloads,omitempty"`
	MoreWorkloads      int      `json:"moreWorkloads,omitempty"`
	WorkloadNamespaces int      `json:"workloadNamespaces,omitempty"`
	Package            string   `json:"package"`
	// Versions are the installed versions with the findings, that of the worst finding first, at most three. MoreVersions is the number of
	// further ones.
	Versions     []string `json:"versions,omitempty"`
	MoreVersions int      `json:"moreVersions,omitempty"`
	// Fixes are versions to update to, the one that ends the most urgent findings first, at most two. Ends counts the findings that any version
	// ends.
	Fixes []Fix          `json:"fixes,omitempty"`
	Ends  finding.Counts `json:"ends"`
	// AtLeast is true if there were too many findings to count all that the update ends.
	AtLeast bool `json:"atLeast,omitempty"`
	// Items is the number of findings in the list of items that belong to the action. They follow those of the action before.
	Items int `json:"items"`
}

// Fix is a version that ends findings.
type Fix struct {
	// Version is the version as the advisory names it. Several versions that each end all the findings are joined by ", ".
	Version string `json:"version"`
	// Findings is the number of findings that this version ends and no earlier Fix does.
	Findings int `json:"findings"`
}

// NamespaceSummary is what is present in one namespace.
type NamespaceSummary struct {
	Namespace string         `json:"namespace"`
	Totals    finding.Counts `json:"totals"`
	// Images is the number of image repositories.
	Images int `json:"images"`
	// Actions are the most urgent updates, at most three, without items.
	Actions []UpdateAction `json:"actions,omitempty"`
}

// Item is one vulnerability in one package.
type Item struct {
	// Change is why the item is announced; empty in summaries.
	Change   diff.Change      `json:"change,omitempty"`
	ID       string           `json:"id"`
	Severity finding.Severity `json:"severity"`
	// SeverityBefore is the previous severity. It equals Severity if the severity has not changed.
	SeverityBefore finding.Severity `json:"severityBefore"`
	Package        string           `json:"package"`
	Version        string           `json:"version,omitempty"`
	FixedIn        string           `json:"fixedIn,omitempty"`
	FixState       string           `json:"fixState,omitempty"`
	EPSS           float64          `json:"epss,omitempty"`
	KnownExploited bool             `json:"knownExploited,omitempty"`
	URL            string           `json:"url,omitempty"`
	// FirstSeen is when the finding was first seen in this store. FixSince is when a fix became known, and ExploitedSince when an exploit
	// became known. Zero means unknown.
	FirstSeen      time.Time `json:"firstSeen,omitzero"`
	FixSince       time.Time `json:"fixSince,omitzero"`
	ExploitedSince time.Time `json:"exploitedSince,omitzero"`
	// ExceptionEnded is true if the item is announced because its exception ended.
	ExceptionEnded bool `json:"exceptionEnded,omitempty"`
	// Repository is set in summaries, whose items have no section. Workloads, MoreWorkloads and WorkloadNamespaces are as in UpdateAction, of
	// those items of a summary that belong to no update.
	Repository         string   `json:"repository,omitempty"`
	Workloads          []string `json:"workloads,omitempty"`
	MoreWorkloads      int      `json:"moreWorkloads,omitempty"`
	WorkloadNamespaces int      `json:"workloadNamespaces,omitempty"`
}

// Rest counts changes that have no section.
type Rest struct {
	Images   int `json:"images,omitempty"`
	Findings int `json:"findings,omitempty"`
	// Repositories names those with the worst findings, at most ten.
	Repositories []string `json:"repositories,omitempty"`
}

// NoticeKind is the type of a health notice.
type NoticeKind string

// Kinds of notices.
const (
	// NoticeScansFailing: images are pending or failed, and no scan has succeeded for some time.
	NoticeScansFailing NoticeKind = "ScansFailing"
	// NoticeDataOutdated: the vulnerability data is older than the operator's configuration allows.
	NoticeDataOutdated NoticeKind = "DataOutdated"
	// NoticeDataAnomaly: too many findings disappeared with one version of the vulnerability data.
	NoticeDataAnomaly NoticeKind = "DataAnomaly"
	// NoticeImagesFailed: images cannot be scanned, all for the same reason.
	NoticeImagesFailed NoticeKind = "ImagesFailed"
	// NoticeUnconfirmed: messages to another receiver of the Scanner get no answer.
	NoticeUnconfirmed NoticeKind = "DeliveryUnconfirmed"
	// NoticeExceptionExpires: an exception expires within a week. The findings that it suppresses are then announced again.
	NoticeExceptionExpires NoticeKind = "ExceptionExpires"
)

// Notice is one notice about a Scanner's health. It is announced when it begins to hold, and again when it is over. A notice about an
// expiring exception is announced only once.
type Notice struct {
	// ID stays the same as long as the notice is about the same problem.
	ID   string     `json:"id"`
	Kind NoticeKind `json:"kind"`
	// Since is when the problem began; zero if unknown. Until is when an exception expires.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Reason is the failure reason of images. Name is that of an exception ("shop/accepted", without a namespace for a cluster-wide one) or
	// of a receiver. Detail is text for people.
	Reason string `json:"reason,omitempty"`
	Name   string `json:"name,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Count is the number of images, findings or messages. Examples names some of them, at most five.
	Count    int      `json:"count,omitempty"`
	Examples []string `json:"examples,omitempty"`
	// Over is true if the notice holds no more; never for NoticeExceptionExpires.
	Over bool `json:"over,omitempty"`
}

// Remaining counts the images that a summary does not cover.
type Remaining struct {
	Pending  int            `json:"pending,omitempty"`
	Failed   map[string]int `json:"failed,omitempty"` // by reason
	Excluded int            `json:"excluded,omitempty"`
	// Partly counts scanned images with content that the engine does not cover.
	Partly int `json:"partly,omitempty"`
}
