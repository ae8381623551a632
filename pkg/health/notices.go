// Package health decides what a Scanner reports about itself: which health notices are due, and how an anomaly of the vulnerability data and
// images without a result are described. Its functions are pure. The reconcilers read the facts, and announce decides when a receiver gets
// a notice.
package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ExpiryNotice is how long before an exception expires a notice is sent.
const ExpiryNotice = 7 * 24 * time.Hour

// maxExamples is the number of images that a notice names.
const maxExamples = 5

// Thresholds has the minimum duration of a problem before receivers get a notice.
type Thresholds struct {
	// ScansFailing is the time without any result. ImagesFailed is the time for which an image has failed.
	ScansFailing, ImagesFailed time.Duration
}

// Facts are what a Scanner's health notices are computed from. All of it survives a restart.
type Facts struct {
	Now    time.Time
	After  Thresholds
	Images []inventory.CoveredImage
	// Engine is the condition BackendAvailable as it is now, with the time since when the engine is in that state.
	Engine metav1.Condition
	// Data is that of the engine, zero if it has none. It is outdated from the age MaxDataAge on (0: never). DataProblem describes the problem.
	Data        store.DataVersion
	MaxDataAge  time.Duration
	DataProblem string
	// Anomaly is that of the data; nil if there is none.
	Anomaly *store.DataAnomaly
	// Exceptions are those in force. Suppressed has the number of the Scanner's findings that each suppresses, by UID. It is needed only
	// within ExpiryNotice of the end of an exception.
	Exceptions []exception.Exception
	Suppressed map[string]int
}

// Notices returns the Scanner's health notices, ordered by ID. Notices about the same problem have the same ID.
func (f Facts) Notices() []announce.Notice {
	all := slices.Concat(f.scansFailing(), f.dataOutdated(), f.dataAnomaly(), f.imagesFailed(), f.exceptionsExpire())
	slices.SortStableFunc(all, func(a, b announce.Notice) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// scansFailing returns a notice if, for at least After.ScansFailing, the engine is unavailable, or no image gets a result although some
// wait for one or all have failed. A few failed images among others are reported by imagesFailed alone.
func (f Facts) scansFailing() []announce.Notice {
	open, since := f.openImages()
	notice := announce.Notice{
		ID: string(announce.NoticeScansFailing), Kind: announce.NoticeScansFailing,
		Since: since, Count: len(open), Examples: firstNames(open),
	}
	if slices.ContainsFunc(open, func(img inventory.CoveredImage) bool { return img.State == image.Failed }) {
		notice.Detail = DescribeFailures(open)
	}
	if f.Engine.Status == metav1.ConditionFalse {
		notice.Since = Earliest(since, f.Engine.LastTransitionTime.Time)
		notice.Reason, notice.Detail = f.Engine.Reason, f.Engine.Message
	}
	if !f.hasLasted(notice.Since, f.After.ScansFailing) {
		return nil
	}
	return []announce.Notice{notice}
}

// openImages returns the images that the engine owes a result, and since when no image has got one. It returns nothing if an image has a
// current result and none is waiting.
func (f Facts) openImages() (open []inventory.CoveredImage, since time.Time) {
	var last time.Time
	for _, img := range f.Images {
		last = latest(last, img.Report.MatchedAt)
	}
	var failed []inventory.CoveredImage
	current, waiting := 0, 0
	for _, img := range f.Images {
		switch {
		case img.State == image.Scanned && (img.Report.Current || !img.Report.MatchedAt.Before(f.Data.Since)):
			current++ // also if it is to be matched again with the same data, because somebody requested that
			continue
		case len(img.Repositories) == 0, img.State == image.Excluded, img.Reason == v1alpha1.ReasonSuspended:
			continue // the engine owes no result: the node does not have the image yet, or the Scanner was suspended a moment ago
		case img.State == image.Scanned:
			waiting++
			since = Earliest(since, latest(f.Data.Since, img.Since))
		case img.State == image.Pending:
			waiting++
			since = Earliest(since, img.Since)
		default:
			failed = append(failed, img)
			continue
		}
		open = append(open, img)
	}
	for _, img := range failed {
		// Beside images that wait, a failure says nothing about the engine if another image got a result after it.
		if waiting == 0 || !img.Since.Before(last) {
			since = Earliest(since, img.Since)
			open = append(open, img)
		}
	}
	if len(open) == 0 || waiting == 0 && current > 0 {
		return nil, time.Time{}
	}
	if !since.IsZero() && last.After(since) {
		since = last
	}
	return open, since
}

// dataOutdated returns a notice while the data in use is older than the configuration allows.
func (f Facts) dataOutdated() []announce.Notice {
	if f.MaxDataAge == 0 || !f.hasLasted(f.Data.Built, f.MaxDataAge) {
		return nil
	}
	return []announce.Notice{{
		ID: string(announce.NoticeDataOutdated), Kind: announce.NoticeDataOutdated, Since: f.Data.Built.Add(f.MaxDataAge), Detail: f.DataProblem,
	}}
}

func (f Facts) dataAnomaly() []announce.Notice {
	if f.Anomaly == nil {
		return nil
	}
	return []announce.Notice{{
		ID: string(announce.NoticeDataAnomaly), Kind: announce.NoticeDataAnomaly, Since: f.Anomaly.Since, Count: f.Anomaly.Missing,
		Detail: lostFindings(f.Anomaly) + " are gone",
	}}
}

// imagesFailed returns one notice per reason for the images that have failed for at least After.ImagesFailed. An unknown time counts as
// recent.
func (f Facts) imagesFailed() (all []announce.Notice) {
	byReason := map[string][]inventory.CoveredImage{}
	for _, img := range f.Images {
		if img.State == image.Failed && f.hasLasted(img.Since, f.After.ImagesFailed) {
			reason := cmp.Or(img.Reason, v1alpha1.ReasonBackendError)
			byReason[reason] = append(byReason[reason], img)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		failed := byReason[reason]
		notice := announce.Notice{
			ID: string(announce.NoticeImagesFailed) + "/" + reason, Kind: announce.NoticeImagesFailed,
			Reason: reason, Count: len(failed), Examples: firstNames(failed),
		}
		for _, img := range failed {
			notice.Since = Earliest(notice.Since, img.Since)
		}
		all = append(all, notice)
	}
	return all
}

// exceptionsExpire returns a notice for each exception that expires soon and suppresses findings. An exception whose expiration is
// postponed gets another notice before its new expiration.
func (f Facts) exceptionsExpire() (all []announce.Notice) {
	for _, e := range f.Exceptions {
		covered := f.Suppressed[e.UID]
		if e.Expires.IsZero() || covered == 0 || !f.hasLasted(e.Expires.Add(-ExpiryNotice), 0) {
			continue
		}
		name := e.Name
		if e.Namespace != "" {
			name = e.Namespace + "/" + e.Name
		}
		all = append(all, announce.Notice{
			ID:   fmt.Sprintf("%s/%s/%d", announce.NoticeExceptionExpires, e.UID, e.Expires.Unix()),
			Kind: announce.NoticeExceptionExpires, Until: e.Expires, Name: name, Detail: e.Reason, Count: covered,
		})
	}
	return all
}

// hasLasted reports whether at least a given duration has passed since a time. An unknown time never has.
func (f Facts) hasLasted(since time.Time, least time.Duration) bool {
	return !since.IsZero() && !f.Now.Before(since.Add(least))
}

// firstNames returns the first names of images in sorted order.
func firstNames(images []inventory.CoveredImage) []string {
	var names []string
	for _, img := range images {
		names = append(names, img.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxExamples)]
}

// Earliest returns the earliest known time; zero if none is known.
func Earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// latest of some times; zero if none is known.
func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
