package controllers

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
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// expiryNotice is how long before an exception expires a notice is sent.
const expiryNotice = 7 * 24 * time.Hour

// maxNoticeExamples is the number of images that a notice names.
const maxNoticeExamples = 5

// NoticeThresholds has the minimum duration of a problem before receivers get a notice.
type NoticeThresholds struct {
	// ScansFailing is the time without any result. ImagesFailed is the time for which an image has failed.
	ScansFailing, ImagesFailed time.Duration
}

// healthInput is the input from which a Scanner's health notices are computed. All of it survives a restart.
type healthInput struct {
	now    time.Time
	after  NoticeThresholds
	images []inventory.CoveredImage
	// backend is the condition BackendAvailable; nil if it is unknown.
	backend *metav1.Condition
	// data is that of the engine, zero if it has none. It is outdated from the age maxAge on (0: never). dataProblem describes the problem.
	data        store.DataVersion
	maxAge      time.Duration
	dataProblem string
	// anomaly is that of the data; nil if there is none.
	anomaly *store.DataAnomaly
	// exceptions are those in force. suppressed has the number of the Scanner's findings that each suppresses, by UID.
	exceptions []exception.Exception
	suppressed map[string]int
}

// notices returns the Scanner's health notices, ordered by ID. Notices about the same problem have the same ID.
func (c healthInput) notices() []announce.Notice {
	all := slices.Concat(c.scansFailing(), c.dataOutdated(), c.dataAnomaly(), c.imagesFailed(), c.exceptionsExpire())
	slices.SortStableFunc(all, func(a, b announce.Notice) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// scansFailing returns a notice if, for at least after.ScansFailing, the engine is unavailable, or no image gets a result although some
// wait for one or all have failed. A few failed images among others are reported by imagesFailed alone.
func (c healthInput) scansFailing() []announce.Notice {
	open, since := c.openImages()
	notice := announce.Notice{
		ID: string(announce.NoticeScansFailing), Kind: announce.NoticeScansFailing,
		Since: since, Count: len(open), Examples: firstNames(open),
	}
	if slices.ContainsFunc(open, func(img inventory.CoveredImage) bool { return img.State == inventory.ImageFailed }) {
		notice.Detail = describeFailures(open)
	}
	if c.backend != nil && c.backend.Status == metav1.ConditionFalse {
		notice.Since = earliest(since, c.backend.LastTransitionTime.Time)
		notice.Reason, notice.Detail = c.backend.Reason, c.backend.Message
	}
	if !c.hasLasted(notice.Since, c.after.ScansFailing) {
		return nil
	}
	return []announce.Notice{notice}
}

// openImages returns the images that the engine owes a result, and since when no image has got one. It returns nothing if an image has a
// current result and none is waiting.
func (c healthInput) openImages() (open []inventory.CoveredImage, since time.Time) {
	var last time.Time
	for _, img := range c.images {
		last = latest(last, img.Report.MatchedAt)
	}
	var failed []inventory.CoveredImage
	current, waiting := 0, 0
	for _, img := range c.images {
		switch {
		case img.State == inventory.ImageScanned && (img.Report.Current || !img.Report.MatchedAt.Before(c.data.Since)):
			current++ // also if it is to be matched again with the same data, because somebody requested that
			continue
		case len(img.Repositories) == 0, img.State == inventory.ImageExcluded, img.Reason == v1alpha1.ReasonSuspended:
			continue // the engine owes no result: the node has not got the image, or the Scanner was suspended a moment ago
		case img.State == inventory.ImageScanned:
			waiting++
			since = earliest(since, latest(c.data.Since, img.Since))
		case img.State == inventory.ImagePending:
			waiting++
			since = earliest(since, img.Since)
		default:
			failed = append(failed, img)
			continue
		}
		open = append(open, img)
	}
	for _, img := range failed {
		// Beside images that wait, a failure says nothing about the engine if another image got a result after it.
		if waiting == 0 || !img.Since.Before(last) {
			since = earliest(since, img.Since)
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
func (c healthInput) dataOutdated() []announce.Notice {
	if c.maxAge == 0 || !c.hasLasted(c.data.Built, c.maxAge) {
		return nil
	}
	return []announce.Notice{{
		ID: string(announce.NoticeDataOutdated), Kind: announce.NoticeDataOutdated, Since: c.data.Built.Add(c.maxAge), Detail: c.dataProblem,
	}}
}

func (c healthInput) dataAnomaly() []announce.Notice {
	if c.anomaly == nil {
		return nil
	}
	return []announce.Notice{{
		ID: string(announce.NoticeDataAnomaly), Kind: announce.NoticeDataAnomaly, Since: c.anomaly.Since, Count: c.anomaly.Missing,
		Detail: lostFindings(c.anomaly) + " are gone",
	}}
}

// imagesFailed returns one notice per reason for the images that have failed for at least after.ImagesFailed. An unknown time counts as
// recent.
func (c healthInput) imagesFailed() (all []announce.Notice) {
	byReason := map[string][]inventory.CoveredImage{}
	for _, img := range c.images {
		if img.State == inventory.ImageFailed && c.hasLasted(img.Since, c.after.ImagesFailed) {
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
			notice.Since = earliest(notice.Since, img.Since)
		}
		all = append(all, notice)
	}
	return all
}

// exceptionsExpire returns a notice for each exception that expires soon and suppresses findings. An exception whose expiration is
// postponed gets another notice before its new expiration.
func (c healthInput) exceptionsExpire() (all []announce.Notice) {
	for _, e := range c.exceptions {
		covered := c.suppressed[e.UID]
		if e.Expires.IsZero() || covered == 0 || !c.hasLasted(e.Expires.Add(-expiryNotice), 0) {
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
func (c healthInput) hasLasted(since time.Time, least time.Duration) bool {
	return !since.IsZero() && !c.now.Before(since.Add(least))
}

// firstNames returns the first names of images in sorted order.
func firstNames(images []inventory.CoveredImage) []string {
	var names []string
	for _, img := range images {
		names = append(names, img.Name)
	}
	return firstSorted(names, maxNoticeExamples)
}

// earliest returns the earliest known time; zero if none is known.
func earliest(times ...time.Time) (first time.Time) {
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
