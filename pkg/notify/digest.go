// Package notify decides what to say, to whom and when.
//
// A message, here a Digest, is computed from a difference: what is present minus what a receiver was told. It
// is level-triggered: whatever stops half-way is computed again, and a message whose fate is unknown is sent
// again under the same id, which the notifier recognises. The package knows neither Slack nor Kubernetes.
package notify

import (
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
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
	// KindNew lists findings that a receiver has not heard of.
	KindNew Kind = "New"
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
	// Engine and EngineBefore say, for KindEngineChanged, which engine it is now and which it was.
	Engine       string `json:"engine,omitempty"`
	EngineBefore string `json:"engineBefore,omitempty"`
	// Totals counts, for summaries, everything that was found, and for KindNew what is new.
	Totals finding.Counts `json:"totals"`
	// Images is the number of image repositories concerned.
	Images int `json:"images"`
	// Sections, one per image repository, worst first. Summaries have none.
	Sections []Section `json:"sections,omitempty"`
	// MoreSections is how many further repositories have news that are part of the next message.
	MoreSections int `json:"moreSections,omitempty"`
	// Worst are the worst findings of a summary, at most five.
	Worst []Item `json:"worst,omitempty"`
	// Remaining says, in a summary, what is not part of it yet: images pending, failed by reason.
	Remaining Remaining `json:"remaining,omitzero"`
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
	FirstTime bool           `json:"firstTime,omitempty"`
	Totals    finding.Counts `json:"totals"`
	// Items, worst first; MoreItems were left out.
	Items     []Item `json:"items"`
	MoreItems int    `json:"moreItems,omitempty"`
}

// Item is one vulnerability in one package.
type Item struct {
	ID             string           `json:"id"`
	Severity       finding.Severity `json:"severity"`
	Package        string           `json:"package"`
	Version        string           `json:"version"`
	FixedIn        string           `json:"fixedIn,omitempty"`
	FixState       string           `json:"fixState,omitempty"`
	EPSS           float64          `json:"epss,omitempty"`
	KnownExploited bool             `json:"knownExploited,omitempty"`
	URL            string           `json:"url,omitempty"`
	FirstSeen      time.Time        `json:"firstSeen,omitzero"`
	// Repository is set in summaries, where items stand outside a section.
	Repository string `json:"repository,omitempty"`
}

// Remaining is what a summary does not cover.
type Remaining struct {
	Pending  int            `json:"pending,omitempty"`
	Failed   map[string]int `json:"failed,omitempty"` // by reason
	Excluded int            `json:"excluded,omitempty"`
	// Partly counts images that were scanned, and that hold what the engine does not cover.
	Partly int `json:"partly,omitempty"`
}
