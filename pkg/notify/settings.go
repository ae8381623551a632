package notify

import (
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// FirstScan says how a receiver learns of what is there at the beginning.
type FirstScan string

// Ways to begin.
const (
	// FirstScanSummary sends one summary.
	FirstScanSummary FirstScan = "Summary"
	// FirstScanSilent passes over what is there.
	FirstScanSilent FirstScan = "Silent"
	// FirstScanAll treats everything as news from the start.
	FirstScanAll FirstScan = "All"
)

// Settings are what a Scanner says about one receiver.
type Settings struct {
	// Namespace and Scanner that speak, Receiver that is spoken to.
	Namespace, Scanner, Receiver string
	// Generation of the Scanner: a stopped receiver is tried again when it changes.
	Generation int64
	// Address says where the receiver's address is kept. It is passed on, never read here.
	Address ReceiverRef
	Filter  store.NewsFilter
	// GroupWait is how long to wait after a first finding for others to go into the same message.
	GroupWait time.Duration
	// GroupInterval is the least time between two messages.
	GroupInterval time.Duration
	FirstScan     FirstScan
	// Tool names the engine and its version, as its current data says; empty if unknown.
	Tool string
	// NewImages says that a repository that runs for the first time is told of, and Notices that the Scanner's troubles are.
	NewImages, Notices bool
	// ReadMore is the command or address where everything can be read.
	ReadMore string
	// StoreRenewed says that the Scanner remembers another store than this one. It matters only when the
	// receiver has no state yet: its baseline is then a renewed one.
	StoreRenewed bool
	// RestoredFrom is when the backup was made that the store was last restored from; zero if it never was.
	RestoredFrom time.Time
}

// ImageState is how far an image is.
type ImageState string

// States of an image. Each image is in exactly one.
const (
	ImagePending  ImageState = "Pending"
	ImageScanned  ImageState = "Scanned"
	ImageFailed   ImageState = "Failed"
	ImageExcluded ImageState = "Excluded"
)

// Image is one image that is in use: a Scanner's pods run it now, or its last ones have ended recently.
type Image struct {
	// Key identifies it among the Scanner's images.
	Key string
	// Repositories by which pods name it.
	Repositories []string
	State        ImageState
	// Reason of a failure, one word.
	Reason string
	// Partly says of a scanned image that it holds what the engine does not cover.
	Partly bool
	// Receivers has what each of the workloads that run it says of its receivers, as in store.Workload.
	Receivers []string
	// Current says that its result was made with the newest data of the engine's newest version.
	Current bool
	// Recent says that nothing runs it now.
	Recent bool
}

// Coverage is what a Scanner knows of its images.
type Coverage struct {
	// Known says that the Scanner has looked for its images at all. Before that nothing is decided.
	Known bool
	// Images in use.
	Images []Image
	// Others counts images that are not listed one by one, since they have no key: never pulled, excluded.
	Others Remaining
	// Unlisted are repositories of images that run and are not among Images: excluded images, and those on nodes that are not known yet.
	// What such an image holds is not known, so nothing counts as fixed in its repository.
	Unlisted []string
	// DataSince is since when there is vulnerability data; zero if there is none.
	DataSince time.Time
	// Notices are true now and have been for long enough to be told.
	Notices []Notice
	// Receivers are the names of all that the Scanner has. A notice about any other is forgotten.
	Receivers []string
}

// remaining counts what has no result.
func (c Coverage) remaining() Remaining {
	r := Remaining{Pending: c.Others.Pending, Excluded: c.Others.Excluded, Failed: map[string]int{}}
	for reason, n := range c.Others.Failed {
		r.Failed[reason] += n
	}
	for _, img := range c.Images {
		switch img.State {
		case ImageScanned:
			if img.Partly {
				r.Partly++
			}
		case ImagePending:
			r.Pending++
		case ImageFailed:
			r.Failed[img.Reason]++
		case ImageExcluded:
			r.Excluded++
		}
	}
	if len(r.Failed) == 0 {
		r.Failed = nil
	}
	return r
}

// scannedRepositories lists the repositories of which at least one image has a result, sorted.
func (c Coverage) scannedRepositories() []string {
	var repositories []string
	for _, img := range c.Images {
		if img.State == ImageScanned {
			repositories = append(repositories, img.Repositories...)
		}
	}
	slices.Sort(repositories)
	return slices.Compact(repositories)
}

// settledRepositories lists those of resolvedRepositories that run now and that have no Unlisted image, sorted. Only in those can anything
// be fixed: a repository that stops running has fixed nothing, and an image of unknown content proves nothing.
func (c Coverage) settledRepositories() []string {
	runs := map[string]bool{}
	for _, img := range c.Images {
		for _, repository := range img.Repositories {
			runs[repository] = runs[repository] || !img.Recent
		}
	}
	for _, repository := range c.Unlisted {
		runs[repository] = false
	}
	return slices.DeleteFunc(c.resolvedRepositories(), func(repository string) bool { return !runs[repository] })
}

// resolvedRepositories lists the repositories of which every image in use has a result for all that it holds, sorted. Only of those can
// it be said that nothing is known to be wrong with them.
func (c Coverage) resolvedRepositories() []string {
	open := map[string]bool{}
	for _, img := range c.Images {
		for _, repository := range img.Repositories {
			open[repository] = open[repository] || img.State != ImageScanned || img.Partly
		}
	}
	var resolved []string
	for repository, waits := range open {
		if !waits {
			resolved = append(resolved, repository)
		}
	}
	slices.Sort(resolved)
	return resolved
}

// concerning lists the repositories that workloads run which concern a receiver, in no order.
func (c Coverage) concerning(route *store.Route) map[string]bool {
	repositories := map[string]bool{}
	for _, img := range c.Images {
		if concerns(route, img.Receivers) {
			for _, repository := range img.Repositories {
				repositories[repository] = true
			}
		}
	}
	return repositories
}

// concerns says whether a route leads from one of some workloads to the receiver.
func concerns(route *store.Route, workloads []string) bool {
	if route == nil || len(workloads) == 0 {
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
