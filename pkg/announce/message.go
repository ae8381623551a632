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
	// KindChanges lists what was not announced yet: changes, new images and notices about the Scanner's health.
	KindChanges Kind = "News"
)

// Message is one message, complete and independent of the receiver's format.
type Message struct {
	// ID is unique for each message and stays the same when the message is sent again. It has 32 hexadecimal digits.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Namespace and Scanner name the Scanner that sends the message.
	Namespace string    `json:"namespace"`
	Scanner   string    `json:"scanner"`
	CreatedAt time.Time `json:"createdAt"`
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
	// Worst are the worst findings of a summary that were not announced before, at most five.
	Worst []Item `json:"worst,omitempty"`
	// Remaining counts the images that a summary does not cover.
	Remaining Remaining `json:"remaining,omitzero"`
	// Unconfirmed describes earlier messages to this receiver that were given up; nil if there are none.
	Unconfirmed *Unconfirmed `json:"unconfirmed,omitempty"`
	// ReadMore is the command or URL that shows all findings.
	ReadMore string `json:"readMore,omitempty"`
}

// Section is about one image repository.
type Section struct {
	Repository string `json:"repository"`
	// References are the tags in use, at most five.
	References []string `json:"references,omitempty"`
	// Workloads that run it, such as "Deployment shop/api", at most ten. MoreWorkloads is the number of further ones.
	Workloads     []string `json:"workloads"`
	MoreWorkloads int      `json:"moreWorkloads,omitempty"`
	// FirstTime is true if the repository is new to the receiver. Its section then gives totals and the worst findings, not each finding as
	// a change.
	FirstTime bool `json:"firstTime,omitempty"`
	// Totals counts the section's findings, without fixed ones.
	Totals finding.Counts `json:"totals"`
	// Items are grouped by package, the worst package and the worst item first. Fixed findings come last. MoreItems counts those left out.
	Items     []Item `json:"items"`
	MoreItems int    `json:"moreItems,omitempty"`
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
	// Repository is set in summaries, whose items have no section.
	Repository string `json:"repository,omitempty"`
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
