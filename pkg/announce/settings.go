package announce

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/calendar"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// FirstScan is the policy for what is present when a receiver is added.
type FirstScan string

// Values of FirstScan.
const (
	// FirstScanSummary sends one summary.
	FirstScanSummary FirstScan = "Summary"
	// FirstScanSilent records what is present as announced, without a message.
	FirstScanSilent FirstScan = "Silent"
	// FirstScanAll announces everything as new from the start.
	FirstScanAll FirstScan = "All"
)

// Settings are a Scanner's settings for one receiver.
type Settings struct {
	// Namespace and Scanner name the Scanner, or Scanner alone a ClusterScanner. Receiver is one of its receivers.
	Namespace, Scanner, Receiver string
	// Cluster is the name of the cluster; empty if it has none.
	Cluster string
	// OnlyNamespaces are the namespaces that the messages of a ClusterScanner's destination are limited to, in ascending order; nil if messages
	// are about the cluster.
	OnlyNamespaces []string
	// Generation is the Scanner's. A stopped receiver is retried when it changes.
	Generation int64
	// Address references the Secret with the receiver's address. This package passes it on and never reads the Secret.
	Address ReceiverRef
	Filter  store.ChangeFilter
	// GroupWait is how long to collect further changes into the same message after the first one.
	GroupWait time.Duration
	// GroupInterval is the least time between two messages.
	GroupInterval time.Duration
	FirstScan     FirstScan
	// QuietHours are periods in which only known exploited findings are announced.
	QuietHours []calendar.Period
	// Schedule is when the receiver gets summaries; zero for none.
	Schedule calendar.Schedule
	// Tool is the engine with its version, as its current data states; empty if unknown.
	Tool string
	// Notices announces the Scanner's health notices.
	Notices bool
	// ReadMore is the command or URL that shows all findings.
	ReadMore string
	// WebUI is the address of the web UI; empty if it has none. Messages then link to its pages.
	WebUI string
	// StoreRenewed is true if the Scanner's status records the ID of another store. It matters only for a receiver without stored state:
	// its baseline then has Renewed set.
	StoreRenewed bool
	// RestoredFrom is the time of the backup that the store was last restored from; zero if it never was.
	RestoredFrom time.Time
}

// Image is an image in use: pods of the Scanner run it now, or its last pods ended recently.
type Image struct {
	// Key identifies the image among the Scanner's images.
	Key string
	// Repositories are those in the pods' image references.
	Repositories []string
	// Namespaces are those in which pods run the image, or ran it recently.
	Namespaces []string
	State      image.State
	// Reason of a failure, one word.
	Reason string
	// Gap is what a scanned image contains and its result does not cover.
	Gap evidence.Gap
	// Receivers has one entry for each workload that runs the image: the receivers that it names, in the format of
	// store.Workload.Receivers.
	Receivers []string
	// Current is true if the result was made with the newest data of the engine's newest version.
	Current bool
	// Recent is true if no pod runs the image now.
	Recent bool
}

// Namespace is a namespace that a ClusterScanner covers.
type Namespace struct {
	Name string
	// Complete means that no image of the namespace waits for a result. Empty means that it runs no image and ran none recently.
	Complete, Empty bool
}

// Coverage is the set of images that a Scanner is responsible for, and how far each is scanned.
type Coverage struct {
	// Images are the images in use.
	Images []Image
	// Namespaces are those that a ClusterScanner covers. Empty for a Scanner.
	Namespaces []Namespace
	// Others counts images that Images cannot list because they have no key: images that were never pulled, or are excluded.
	Others Remaining
	// UnknownRepositories have an image that is not among Images and whose content is not known: one that is excluded, or runs on a node that is not
	// known yet. Nothing counts as fixed in such a repository.
	UnknownRepositories []string
	// OtherGaps is Gaps with the images in namespaces with another destination; nil if there are none. A gap there leaves open what is fixed here.
	OtherGaps map[string]evidence.Gap
	// DataSince is since when there is vulnerability data; zero if there is none.
	DataSince time.Time
	// Notices hold now, and have held long enough to be announced.
	Notices []Notice
	// Receivers are the names of all receivers of the Scanner. A notice about any other is forgotten.
	Receivers []string
}

// remaining counts the images without a complete result.
func (c Coverage) remaining() Remaining {
	r := Remaining{Pending: c.Others.Pending, Excluded: c.Others.Excluded, Failed: map[string]int{}}
	for reason, n := range c.Others.Failed {
		r.Failed[reason] += n
	}
	for _, img := range c.Images {
		switch img.State {
		case image.Scanned:
			if img.Gap != evidence.NoGap {
				r.Partly++
			}
		case image.Pending:
			r.Pending++
		case image.Failed:
			r.Failed[img.Reason]++
		case image.Excluded:
			r.Excluded++
		}
	}
	if len(r.Failed) == 0 {
		r.Failed = nil
	}
	return r
}

// scannedRepositories returns the repositories with at least one scanned image, sorted.
func (c Coverage) scannedRepositories() []string {
	var repositories []string
	for _, img := range c.Images {
		if img.State == image.Scanned {
			repositories = append(repositories, img.Repositories...)
		}
	}
	slices.Sort(repositories)
	return slices.Compact(repositories)
}

// runningCompleteRepositories lists those of completeRepositories that run now and are not among UnknownRepositories, sorted.
func (c Coverage) runningCompleteRepositories() []string {
	return repositoriesWith(c.runningGaps(), evidence.NoGap)
}

// completeRepositories returns the repositories whose images in use all have a complete result, sorted. Only for them does no finding mean
// that no vulnerability is known.
func (c Coverage) completeRepositories() []string { return repositoriesWith(c.Gaps(), evidence.NoGap) }

// runningGaps is Gaps of the repositories that run now. Only there can anything be fixed: a repository that stops running has fixed nothing, and an image
// of unknown content proves nothing.
func (c Coverage) runningGaps() map[string]evidence.Gap {
	gaps, runs := c.Gaps(), map[string]bool{}
	for _, img := range c.Images {
		for _, repository := range img.Repositories {
			runs[repository] = runs[repository] || !img.Recent
		}
	}
	for _, repository := range c.UnknownRepositories {
		gaps[repository] = evidence.AnyPackages
	}
	for repository, gap := range c.OtherGaps {
		gaps[repository] = max(gaps[repository], gap)
	}
	maps.DeleteFunc(gaps, func(repository string, _ evidence.Gap) bool { return !runs[repository] })
	return gaps
}

// Gaps has each repository of the images in use, and the greatest gap of any of its images. An image without a result leaves everything open.
func (c Coverage) Gaps() map[string]evidence.Gap {
	gaps := map[string]evidence.Gap{}
	for _, img := range c.Images {
		gap := img.Gap
		if img.State != image.Scanned {
			gap = evidence.AnyPackages
		}
		for _, repository := range img.Repositories {
			gaps[repository] = max(gaps[repository], gap)
		}
	}
	return gaps
}

// repositoriesWith returns the repositories with one of some gaps, sorted.
func repositoriesWith(gaps map[string]evidence.Gap, wanted ...evidence.Gap) (repositories []string) {
	for repository, gap := range gaps {
		if slices.Contains(wanted, gap) {
			repositories = append(repositories, repository)
		}
	}
	slices.Sort(repositories)
	return repositories
}

// routedRepositories returns the set of repositories that have a workload routed to the receiver.
func (c Coverage) routedRepositories(route *store.Route) map[string]bool {
	repositories := map[string]bool{}
	for _, img := range c.Images {
		if isRoutedTo(route, img.Receivers) {
			for _, repository := range img.Repositories {
				repositories[repository] = true
			}
		}
	}
	return repositories
}

// isRoutedTo reports whether at least one of the workloads is routed to the receiver. Each workload is given by the receivers that it names,
// joined by commas. Without a route or without workloads, the result is true.
func isRoutedTo(route *store.Route, workloads []string) bool {
	if route == nil || route.All || len(workloads) == 0 {
		return true
	}
	return slices.ContainsFunc(workloads, func(receivers string) bool {
		named := strings.Split(receivers, ",")
		if slices.Contains(named, route.Receiver) {
			return true
		}
		assigned := slices.ContainsFunc(named, func(name string) bool { return slices.Contains(route.Known, name) })
		return route.Unassigned && !assigned
	})
}
