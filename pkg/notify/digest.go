// Package notify decides what to say, to whom and when.
//
// A message, here a Digest, is computed from a difference: what is present minus what a receiver was told. It
// is level-triggered: whatever stops half-way is computed again, and a message whose fate is unknown is sent
// again under the same id, which the notifier recognises. The package knows neither Slack nor Kubernetes.
package notify

import (
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Kind is what a message is about.
type Kind string

// Kinds of messages.
const (
	// KindFirstScan summarises what was there when the Scanner (or the receiver) was made.
	KindFirstScan Kind = "FirstScan"
	// KindBaselineRenewed is the same after the store was lost: nothing in it is claimed to be new.
	KindBaselineRenewed Kind = "BaselineRenewed"
	// KindEngineChanged is the same after the Scanner got another engine: what only that one finds is not claimed to be new.
	KindEngineChanged Kind = "EngineChanged"
	// KindEngineUpdated sums up what a new version of the same engine finds in addition, if that is anything.
	KindEngineUpdated Kind = "EngineUpdated"
	// KindFilterWidened sums up what was there already when the receiver was set to hear of more, if that is anything.
	KindFilterWidened Kind = "FilterWidened"
	// KindStoreRestored sums up what the receiver had not heard of when the backup was made that the store was restored from, if that
	// is anything: it may have heard of it since.
	KindStoreRestored Kind = "StoreRestored"
	// KindNews lists what a receiver has not heard of: changes, new images, and what the Scanner has to say about itself.
	KindNews Kind = "News"
)

// Digest is one message, complete and independent of how a receiver shows it.
type Digest struct {
	// ID is unique for the message and stays the same when it is sent again. 32 hexadecimal digits.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Namespace and Scanner that speak.
	Namespace string    `json:"namespace"`
	Scanner   string    `json:"scanner"`
	CreatedAt time.Time `json:"createdAt"`
	// Engine and EngineBefore say, for KindEngineChanged and KindEngineUpdated, which engine it is now and which it was, with its
	// version for the latter.
	Engine       string `json:"engine,omitempty"`
	EngineBefore string `json:"engineBefore,omitempty"`
	// Totals counts, for summaries, everything that was found, and for KindNews what is told but for what is fixed.
	Totals finding.Counts `json:"totals"`
	// Excepted is, for summaries, how many findings exceptions cover beside Totals.
	Excepted int `json:"excepted,omitempty"`
	// RestoredFrom is, for KindStoreRestored, when the backup was made.
	RestoredFrom time.Time `json:"restoredFrom,omitzero"`
	// Untold is, for KindEngineUpdated, KindFilterWidened and KindStoreRestored, how many findings the receiver had not heard of; Worst are of those.
	Untold int `json:"untold,omitempty"`
	// Changes counts what is told by kind, findings that are only counted included.
	Changes map[store.Change]int `json:"changes,omitempty"`
	// Images is the number of image repositories concerned.
	Images int `json:"images"`
	// Sections, one per image repository, worst first. Summaries have none.
	Sections []Section `json:"sections,omitempty"`
	// Rest is what is told without a section: it counts as told and is not part of a later message.
	Rest Rest `json:"rest,omitzero"`
	// NewImages are repositories that run for the first time, with nothing to tell of; at most ten, and how many more there are.
	NewImages     []string `json:"newImages,omitempty"`
	MoreNewImages int      `json:"moreNewImages,omitempty"`
	// Notices are what the Scanner says about itself.
	Notices []Notice `json:"notices,omitempty"`
	// Worst are the worst findings of a summary, at most five.
	Worst []Item `json:"worst,omitempty"`
	// Remaining says, in a summary, what is not part of it yet: images pending, failed by reason.
	Remaining Remaining `json:"remaining,omitzero"`
	// Unconfirmed describes earlier messages to this receiver that were given up; nil if there are none.
	Unconfirmed *Unconfirmed `json:"unconfirmed,omitempty"`
	// ReadMore is the command or address where everything can be read.
	ReadMore string `json:"readMore,omitempty"`
}

// Section is about one image repository.
type Section struct {
	Repository string `json:"repository"`
	// References are the tags in use, at most five.
	References []string `json:"references,omitempty"`
	// Workloads that run it, such as "Deployment shop/api", at most ten, and how many more there are.
	Workloads     []string `json:"workloads"`
	MoreWorkloads int      `json:"moreWorkloads,omitempty"`
	// FirstTime says that the repository is new here: its section gives totals and the worst, not every finding as news.
	FirstTime bool `json:"firstTime,omitempty"`
	// Totals counts the section's findings but for what is fixed.
	Totals finding.Counts `json:"totals"`
	// Items by package, that with the worst item first and in each the worst first; what is fixed comes last. MoreItems were left out.
	Items     []Item `json:"items"`
	MoreItems int    `json:"moreItems,omitempty"`
}

// Item is one vulnerability in one package.
type Item struct {
	// Change is why it is told; empty in summaries.
	Change   store.Change     `json:"change,omitempty"`
	ID       string           `json:"id"`
	Severity finding.Severity `json:"severity"`
	// SeverityBefore is what it was before, equal to Severity if that has not changed.
	SeverityBefore finding.Severity `json:"severityBefore"`
	Package        string           `json:"package"`
	Version        string           `json:"version,omitempty"`
	FixedIn        string           `json:"fixedIn,omitempty"`
	FixState       string           `json:"fixState,omitempty"`
	EPSS           float64          `json:"epss,omitempty"`
	KnownExploited bool             `json:"knownExploited,omitempty"`
	URL            string           `json:"url,omitempty"`
	// FirstSeen is since when it is known here, FixSince since when there is a fix, ExploitedSince since when it is known to be exploited.
	FirstSeen      time.Time `json:"firstSeen,omitzero"`
	FixSince       time.Time `json:"fixSince,omitzero"`
	ExploitedSince time.Time `json:"exploitedSince,omitzero"`
	// ExceptionEnded says that it is told since an exception covers it no longer.
	ExceptionEnded bool `json:"exceptionEnded,omitempty"`
	// Repository is set in summaries, where items stand outside a section.
	Repository string `json:"repository,omitempty"`
}

// Rest is what is only counted.
type Rest struct {
	Images   int `json:"images,omitempty"`
	Findings int `json:"findings,omitempty"`
	// Repositories are the names of the worst, at most ten.
	Repositories []string `json:"repositories,omitempty"`
}

// NoticeKind is what a Scanner says about itself.
type NoticeKind string

// Kinds of notices.
const (
	// NoticeScansFailing: images wait or fail, and none was scanned for a time.
	NoticeScansFailing NoticeKind = "ScansFailing"
	// NoticeDataOutdated: the vulnerability data is older than the operator's configuration allows.
	NoticeDataOutdated NoticeKind = "DataOutdated"
	// NoticeDataAnomaly: too many findings have gone with one version of the data.
	NoticeDataAnomaly NoticeKind = "DataAnomaly"
	// NoticeImagesFailed: images cannot be scanned for one reason.
	NoticeImagesFailed NoticeKind = "ImagesFailed"
	// NoticeUnconfirmed: messages to another receiver of the Scanner are not answered.
	NoticeUnconfirmed NoticeKind = "DeliveryUnconfirmed"
	// NoticeExceptionExpires: an exception ends within a week, and what it covers will be news again.
	NoticeExceptionExpires NoticeKind = "ExceptionExpires"
)

// Notice is one thing that a Scanner has to say about itself. It is told when it begins to be true and, but for an exception's end,
// again when it is over.
type Notice struct {
	// ID is the same as long as it is about the same trouble.
	ID   string     `json:"id"`
	Kind NoticeKind `json:"kind"`
	// Since is when it began, zero if that is not known; Until is when an exception expires.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Reason is that of failed images; Name that of an exception ("shop/accepted", or a name alone for one of the cluster) or of a
	// receiver; Detail is for people.
	Reason string `json:"reason,omitempty"`
	Name   string `json:"name,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Count of images or findings, and some of them by name, at most five.
	Count    int      `json:"count,omitempty"`
	Examples []string `json:"examples,omitempty"`
	// Over says that it is no longer true.
	Over bool `json:"over,omitempty"`
}

// Remaining is what a summary does not cover.
type Remaining struct {
	Pending  int            `json:"pending,omitempty"`
	Failed   map[string]int `json:"failed,omitempty"` // by reason
	Excluded int            `json:"excluded,omitempty"`
	// Partly counts images that were scanned, and that hold what the engine does not cover.
	Partly int `json:"partly,omitempty"`
}
