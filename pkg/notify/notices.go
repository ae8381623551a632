package notify

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// noticePatience is how long a notice has to be absent before it is said to be over: what comes and goes is not told each time.
	noticePatience = 10 * time.Minute
	// maxNotices of one message, the others wait for the next, and maxExamples of one notice.
	maxNotices  = 8
	maxExamples = 5
)

// followNotices keeps account of which of the notices that the receiver was told of are still true. An exception's end is told
// once only, and forgotten when it has passed. What was said of a receiver is forgotten when that is removed.
func (l *look) followNotices() {
	if !l.settings.Notices {
		l.state.Notices = nil
		return
	}
	l.state.Notices = maps.Clone(l.state.Notices)
	for id, told := range l.state.Notices {
		switch {
		case slices.ContainsFunc(l.coverage.Notices, func(n Notice) bool { return n.ID == id }):
			told.AbsentSince = time.Time{}
		case told.AbsentSince.IsZero():
			told.AbsentSince = l.now
		}
		l.state.Notices[id] = told
		// Until then it may cover something again, such as what a CronJob runs.
		ended := told.Notice.Kind == NoticeExceptionExpires && told.over(l.now) && !l.now.Before(told.Notice.Until)
		// A receiver that was removed does not answer again.
		removed := told.Notice.Kind == NoticeUnconfirmed && !slices.Contains(l.coverage.Receivers, told.Notice.Name)
		if ended || removed {
			delete(l.state.Notices, id)
		}
	}
}

// over says that a notice has not been true for long enough.
func (t ToldNotice) over(now time.Time) bool {
	return !t.AbsentSince.IsZero() && !now.Before(t.AbsentSince.Add(noticePatience))
}

// outgrown says that a notice has become so much worse that it is told again: twice as many images, and ten more at least.
func (t ToldNotice) outgrown(n Notice) bool {
	return n.Kind == NoticeImagesFailed && n.Count >= max(2*t.Notice.Count, t.Notice.Count+10)
}

// untoldNotices lists the notices that the receiver was not told of, and those that are over and were not said to be. Next is when
// to look again, zero for never.
func (l *look) untoldNotices() (notices []Notice, next time.Time) {
	if !l.settings.Notices {
		return nil, time.Time{}
	}
	for _, n := range l.coverage.Notices {
		if told, known := l.state.Notices[n.ID]; !known || told.outgrown(n) {
			notices = append(notices, newNotice(n))
		}
	}
	for _, told := range l.state.Notices {
		switch {
		case told.AbsentSince.IsZero():
		case !told.over(l.now):
			next = soonest(next, told.AbsentSince.Add(noticePatience))
		case told.Notice.Kind == NoticeExceptionExpires:
			next = soonest(next, told.Notice.Until)
		default:
			over := told.Notice
			over.Over = true
			notices = append(notices, over)
		}
	}
	slices.SortFunc(notices, func(a, b Notice) int {
		return cmp.Or(compareBool(a.Over, b.Over), cmp.Compare(noticeOrder[a.Kind], noticeOrder[b.Kind]), cmp.Compare(a.ID, b.ID))
	})
	return notices[:min(len(notices), maxNotices)], next
}

// noticeOrder puts first what concerns most.
var noticeOrder = map[NoticeKind]int{
	NoticeScansFailing: 1, NoticeDataOutdated: 2, NoticeDataAnomaly: 3, NoticeImagesFailed: 4, NoticeUnconfirmed: 5, NoticeExceptionExpires: 6,
}

// newNotice is a notice within bounds. Its id is the operator's own and stays as it is.
func newNotice(n Notice) Notice {
	n.Reason, n.Name, n.Detail = clip(n.Reason, maxText), clip(n.Name, maxText), clip(n.Detail, MaxMessageBytes)
	n.Since, n.Until = encodable(n.Since), encodable(n.Until)
	examples := slices.Clone(n.Examples[:min(len(n.Examples), maxExamples)])
	for i := range examples {
		examples[i] = clip(examples[i], maxText)
	}
	n.Examples = examples
	return n
}

// hearNotices remembers what a message has said of the Scanner.
func (s *State) hearNotices(notices []Notice) {
	if len(notices) == 0 {
		return
	}
	heard := maps.Clone(s.Notices)
	if heard == nil {
		heard = map[string]ToldNotice{}
	}
	for _, n := range notices {
		if n.Over {
			delete(heard, n.ID)
		} else {
			heard[n.ID] = ToldNotice{Notice: n}
		}
	}
	s.Notices = heard
}
