package announce

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

const (
	// noticeOverAfter is how long a notice must be absent before it is announced as over, so that a flapping notice is not announced each
	// time.
	noticeOverAfter = 10 * time.Minute
	// maxNotices bounds the notices of one message; the others wait for the next. maxExamples bounds the examples of one notice.
	maxNotices  = 8
	maxExamples = 5
)

// updateNotices updates which announced notices still hold. The notice about an expiring exception is announced once, and forgotten after
// the exception has expired. A notice about a receiver is forgotten when the receiver is removed.
func (p *planning) updateNotices() {
	if !p.settings.Notices {
		p.state.Notices = nil
		return
	}
	p.state.Notices = maps.Clone(p.state.Notices)
	for id, announced := range p.state.Notices {
		switch {
		case slices.ContainsFunc(p.coverage.Notices, func(n Notice) bool { return n.ID == id }):
			announced.AbsentSince = time.Time{}
		case announced.AbsentSince.IsZero():
			announced.AbsentSince = p.now
		}
		p.state.Notices[id] = announced
		// Before it expires, the exception may suppress something again, such as what a CronJob runs. It must not be announced twice.
		ended := announced.Notice.Kind == NoticeExceptionExpires && announced.isOver(p.now) && !p.now.Before(announced.Notice.Until)
		// A removed receiver cannot answer again.
		removed := announced.Notice.Kind == NoticeUnconfirmed && !slices.Contains(p.coverage.Receivers, announced.Notice.Name)
		if ended || removed {
			delete(p.state.Notices, id)
		}
	}
}

// isOver reports whether the notice has been absent for noticeOverAfter.
func (a AnnouncedNotice) isOver(now time.Time) bool {
	return !a.AbsentSince.IsZero() && !now.Before(a.AbsentSince.Add(noticeOverAfter))
}

// isMuchWorse reports whether a notice about failed images is so much worse that it is announced again: twice as many images, and at least ten
// more.
func (a AnnouncedNotice) isMuchWorse(n Notice) bool {
	return n.Kind == NoticeImagesFailed && n.Count >= max(2*a.Notice.Count, a.Notice.Count+10)
}

// pendingNotices returns the notices to announce: new ones, much worse ones and those that are over, at most maxNotices. next is when to
// plan again; zero for never.
func (p *planning) pendingNotices() (notices []Notice, next time.Time) {
	if !p.settings.Notices {
		return nil, time.Time{}
	}
	for _, n := range p.coverage.Notices {
		if announced, known := p.state.Notices[n.ID]; !known || announced.isMuchWorse(n) {
			notices = append(notices, boundedNotice(n))
		}
	}
	for _, announced := range p.state.Notices {
		switch {
		case announced.AbsentSince.IsZero():
		case !announced.isOver(p.now):
			next = earliestSet(next, announced.AbsentSince.Add(noticeOverAfter))
		case announced.Notice.Kind == NoticeExceptionExpires:
			next = earliestSet(next, announced.Notice.Until)
		default:
			over := announced.Notice
			over.Over = true
			notices = append(notices, over)
		}
	}
	slices.SortFunc(notices, func(a, b Notice) int {
		return cmp.Or(compareBool(a.Over, b.Over), cmp.Compare(noticeOrder[a.Kind], noticeOrder[b.Kind]), cmp.Compare(a.ID, b.ID))
	})
	return notices[:min(len(notices), maxNotices)], next
}

// noticeOrder ranks kinds by urgency, the most urgent first.
var noticeOrder = map[NoticeKind]int{
	NoticeScansFailing: 1, NoticeDataOutdated: 2, NoticeDataAnomaly: 3, NoticeImagesFailed: 4, NoticeUnconfirmed: 5, NoticeExceptionExpires: 6,
}

// boundedNotice returns n with its texts and examples within bounds. The ID comes from the operator itself and needs no bound.
func boundedNotice(n Notice) Notice {
	n.Reason, n.Name, n.Detail = text.Truncate(n.Reason, maxText), text.Truncate(n.Name, maxText), text.Truncate(n.Detail, MaxMessageBytes)
	n.Since, n.Until = encodable(n.Since), encodable(n.Until)
	examples := slices.Clone(n.Examples[:min(len(n.Examples), maxExamples)])
	for i := range examples {
		examples[i] = text.Truncate(examples[i], maxText)
	}
	n.Examples = examples
	return n
}

// recordNotices records the notices of a message as announced, and forgets those that the message announces as over.
func (s *State) recordNotices(notices []Notice) {
	if len(notices) == 0 {
		return
	}
	announced := maps.Clone(s.Notices)
	if announced == nil {
		announced = map[string]AnnouncedNotice{}
	}
	for _, n := range notices {
		if n.Over {
			delete(announced, n.ID)
		} else {
			announced[n.ID] = AnnouncedNotice{Notice: n}
		}
	}
	s.Notices = announced
}
