package announce

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// failing is the notice of a Scanner whose scans fail.
var failing = Notice{ID: "scans", Kind: NoticeScansFailing, Since: noon.Add(-time.Hour), Detail: "no scan has succeeded"}

// withNotices returns a scenario whose receiver gets health notices.
func withNotices(t *testing.T) *scenario {
	s := afterBaseline(t, "web")
	s.settings.Notices = true
	return s
}

// TestNotice: a notice is announced once, and again when it is over.
func TestNotice(t *testing.T) {
	s := withNotices(t)
	s.coverage.Notices = []Notice{failing}
	none(t, s.dispatch(), "groupWait")
	s.wantNext(s.settings.GroupWait)
	d := single(t, s.dispatchNext())
	if diff := cmp.Diff([]Notice{failing}, d.Notices); diff != "" || d.Kind != KindChanges || d.Images != 0 {
		t.Errorf("message %+v, want the notice alone (-want +got):\n%s", d, diff)
	}
	s.wantIdle()
	changed := failing
	changed.Detail, changed.Count = "still none", 7
	s.coverage.Notices = []Notice{changed}
	s.pass(24 * time.Hour)
	none(t, s.dispatch(), "what is known of it changes, and it does not")
	s.wantIdle()

	s.coverage.Notices = nil
	none(t, s.dispatch(), "it may come back")
	s.wantNext(noticeOverAfter)
	none(t, s.dispatchNext(), "groupWait")
	over := failing
	over.Over = true
	if diff := cmp.Diff([]Notice{over}, single(t, s.dispatchNext()).Notices); diff != "" {
		t.Errorf("when it is over (-want +got):\n%s", diff)
	}
	s.wantIdle()

	s.pass(time.Hour)
	s.coverage.Notices = []Notice{failing}
	s.dispatch()
	if d := single(t, s.dispatchNext()); len(d.Notices) != 1 || d.Notices[0].Over {
		t.Errorf("message %+v, want the same notice announced again", d)
	}
}

// TestFlappingNotice: a notice that is absent for a short time is announced neither as over nor as new.
func TestFlappingNotice(t *testing.T) {
	s := withNotices(t)
	s.coverage.Notices = []Notice{failing}
	s.dispatch()
	single(t, s.dispatchNext())
	for range 20 {
		s.coverage.Notices = nil
		s.dispatch()
		s.pass(noticeOverAfter - time.Second)
		none(t, s.dispatch(), "it has not been over for long enough")
		s.coverage.Notices = []Notice{failing}
		none(t, s.dispatch(), "it was announced")
		s.pass(time.Minute)
	}
	s.wantIdle()
}

// TestNoticeOverBeforeAnnounced: a notice that is over before it was announced is not announced.
func TestNoticeOverBeforeAnnounced(t *testing.T) {
	s := withNotices(t)
	s.coverage.Notices = []Notice{failing}
	s.dispatch()
	s.coverage.Notices = nil
	none(t, s.dispatchNext(), "nothing is wrong any more")
	s.wantIdle()
	if !s.last.After.PendingSince.IsZero() {
		t.Errorf("pending since %s, want nothing pending", s.last.After.PendingSince)
	}
}

// TestMoreImagesFail: a notice about failed images is announced again when there are twice as many, and at least ten more.
func TestMoreImagesFail(t *testing.T) {
	s := withNotices(t)
	for _, step := range []struct {
		failed    int
		announced bool
	}{{2, true}, {5, false}, {11, false}, {12, true}, {23, false}, {24, true}, {1, false}, {30, false}} {
		s.coverage.Notices = []Notice{{ID: "failed", Kind: NoticeImagesFailed, Reason: "Unauthorized", Count: step.failed}}
		s.dispatch()
		s.pass(time.Hour)
		if sent := s.dispatch(); (len(sent) == 1) != step.announced {
			t.Errorf("with %d images %d messages, want one: %t", step.failed, len(sent), step.announced)
		}
	}
}

// TestExceptionExpires: the notice about an expiring exception is announced once, and its end is not.
func TestExceptionExpires(t *testing.T) {
	s := withNotices(t)
	expires := Notice{ID: "exception 1", Kind: NoticeExceptionExpires, Name: "shop/accepted", Until: noon.Add(24 * time.Hour)}
	s.coverage.Notices = []Notice{expires}
	s.dispatch()
	if diff := cmp.Diff([]Notice{expires}, single(t, s.dispatchNext()).Notices); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
	for range 3 {
		s.coverage.Notices = nil
		s.dispatch()
		s.pass(2 * noticeOverAfter)
		none(t, s.dispatch(), "it covers nothing for a while")
		s.coverage.Notices = []Notice{expires}
		s.dispatch()
		s.pass(2 * noticeOverAfter)
		none(t, s.dispatch(), "it suppresses something again, and was announced")
	}
	s.coverage.Notices = nil
	s.dispatch()
	for !s.last.Next.IsZero() {
		none(t, s.dispatchNext(), "an end is announced once")
	}
	if len(s.last.After.Notices) != 0 {
		t.Errorf("notices %v are remembered, want none", s.last.After.Notices)
	}
}

// TestNoticesAndChanges: changes and notices go into one message. Messages are groupInterval apart, whatever they contain.
func TestNoticesAndChanges(t *testing.T) {
	s := withNotices(t)
	s.addFindings("web", finding.High, 1, 1)
	s.dispatch()
	s.pass(10 * time.Second)
	s.coverage.Notices = []Notice{failing}
	none(t, s.dispatch(), "groupWait counts from the first of both")
	s.wantNext(20 * time.Second)
	if d := single(t, s.dispatchNext()); len(d.Notices) != 1 || len(d.Sections) != 1 {
		t.Errorf("message %+v, want both in one", d)
	}
	s.coverage.Notices = append(s.coverage.Notices, Notice{ID: "data", Kind: NoticeDataOutdated})
	none(t, s.dispatch(), "groupInterval")
	s.wantNext(s.settings.GroupInterval)
	if d := single(t, s.dispatchNext()); len(d.Notices) != 1 || d.Notices[0].Kind != NoticeDataOutdated {
		t.Errorf("notices %+v, want the new one", d.Notices)
	}
}

// TestNoticesBeforeTheBaseline: a Scanner that cannot scan sends a notice even before the first summary.
func TestNoticesBeforeTheBaseline(t *testing.T) {
	s := newScenario(t)
	s.settings.Notices = true
	s.coverage.DataSince = time.Time{}
	s.image("web", image.Pending)
	s.dispatch()
	none(t, s.dispatchNext(), "there is no data")
	s.wantIdle()
	s.pass(time.Hour)
	s.coverage.Notices = []Notice{failing}
	none(t, s.dispatch(), "groupWait")
	if d := single(t, s.dispatchNext()); d.Kind != KindChanges || len(d.Notices) != 1 {
		t.Errorf("message %+v, want the notice", d)
	}
	s.wantIdle()
	s.coverage.DataSince, s.coverage.Notices = s.now, nil
	s.addFindings("web", finding.High, 1, 3)
	none(t, s.dispatch(), "groupInterval")
	if d := single(t, s.dispatchNext()); d.Kind != KindFirstScan || d.Totals.High != 3 {
		t.Errorf("message %+v, want the first summary after it", d)
	}
}

// TestNoticesInASummary: the notices that hold when a summary is composed are part of it.
func TestNoticesInASummary(t *testing.T) {
	s := newScenario(t)
	s.settings.Notices = true
	s.addFindings("web", finding.High, 1, 3)
	s.dispatch()
	s.coverage.Notices = []Notice{failing}
	if d := single(t, s.dispatchNext()); d.Kind != KindFirstScan || len(d.Notices) != 1 {
		t.Errorf("message %+v, want the first summary with the notice", d)
	}
	s.wantIdle()
}

// TestNoticesSwitchedOff: a receiver with notices disabled gets none. When they are enabled again, all that hold are announced.
func TestNoticesSwitchedOff(t *testing.T) {
	s := withNotices(t)
	s.coverage.Notices = []Notice{failing}
	s.dispatch()
	single(t, s.dispatchNext())
	s.settings.Notices = false
	none(t, s.dispatch(), "no notices")
	if len(s.last.After.Notices) != 0 {
		t.Errorf("notices %v are remembered, want none", s.last.After.Notices)
	}
	s.pass(time.Hour)
	s.settings.Notices = true
	s.dispatch()
	single(t, s.dispatchNext())
}

// TestNoticeInUndeliveredMessage: a notice in a message that was never delivered is announced by the next one.
func TestNoticeInUndeliveredMessage(t *testing.T) {
	s := withNotices(t)
	s.coverage.Notices = []Notice{failing}
	s.dispatch()
	s.outcomes = []Outcome{{Result: Permanent, Reason: ReasonReceiverRefused}}
	first := single(t, s.dispatchNext())
	s.pass(maxOutboxAge)
	s.dispatch()
	if d := single(t, append([]Message{}, s.sent[1:]...)); d.ID == first.ID || len(d.Notices) != 1 {
		t.Errorf("message %+v, want the notice in another one", d)
	}
	s.wantIdle()
}

// TestManyNotices: notices that do not fit into a message are part of the next, the most urgent first and those that are over last.
func TestManyNotices(t *testing.T) {
	s := withNotices(t)
	s.coverage.Notices = []Notice{failing}
	s.dispatch()
	single(t, s.dispatchNext())
	s.coverage.Notices = []Notice{{ID: "data", Kind: NoticeDataOutdated}}
	for i := range 2 * maxNotices {
		s.coverage.Notices = append(s.coverage.Notices, Notice{ID: fmt.Sprintf("exception %02d", i), Kind: NoticeExceptionExpires})
	}
	s.dispatch()
	var kinds []NoticeKind
	for !s.last.Next.IsZero() {
		for _, d := range s.dispatchNext() {
			if len(d.Notices) > maxNotices {
				t.Errorf("%d notices in a message, want at most %d", len(d.Notices), maxNotices)
			}
			for _, n := range d.Notices {
				kinds = append(kinds, n.Kind)
			}
		}
	}
	if len(kinds) != 2+2*maxNotices || kinds[0] != NoticeDataOutdated {
		t.Errorf("%d notices %v, want %d, first that the data is outdated", len(kinds), kinds, 2+2*maxNotices)
	}
}

// withNewImages adds new images to the changes that a receiver wants; nil for the default.
func withNewImages(changes []diff.Change) []diff.Change {
	if changes == nil {
		changes = diff.DefaultChanges
	}
	return append(slices.Clone(changes), diff.ChangeNewImage)
}

// TestNewImages: if new images are wanted, repositories that run for the first time and have no findings to announce are announced as new images.
func TestNewImages(t *testing.T) {
	s := afterBaseline(t, "web")
	s.settings.Filter.Changes = withNewImages(nil)
	none(t, s.dispatch(), "web has been there before")
	s.wantIdle()
	s.image("cache", image.Scanned)
	s.image("half", image.Pending)
	s.addFindings("db", finding.High, 1, 2)
	none(t, s.dispatch(), "groupWait")
	d := single(t, s.dispatchNext())
	if lines := cmp.Diff([]string{"cache"}, d.NewImages); lines != "" || d.Changes[diff.ChangeNewImage] != 1 {
		t.Errorf("message %+v, want cache as a new image (-want +got):\n%s", d, lines)
	}
	if len(d.Sections) != 1 || d.Sections[0].Repository != "db" || !d.Sections[0].FirstTime {
		t.Errorf("sections %+v, want the one of db, for the first time", d.Sections)
	}
	s.wantIdle()
	s.image("half", image.Scanned)
	none(t, s.dispatch(), "groupInterval")
	if d := single(t, s.dispatchNext()); !cmp.Equal([]string{"half"}, d.NewImages) || len(d.Sections) != 0 {
		t.Errorf("message %+v, want half alone", d)
	}
	s.release("half")
	s.dispatch()
	s.image("half", image.Scanned)
	none(t, s.dispatch(), "half ran before")
	s.wantIdle()
}

// TestManyNewImages: ten new images are named, and all count as announced.
func TestManyNewImages(t *testing.T) {
	s := afterBaseline(t)
	s.settings.Filter.Changes = withNewImages(nil)
	for i := range 14 {
		s.image(fmt.Sprintf("app-%02d", i), image.Scanned)
	}
	s.dispatch()
	d := single(t, s.dispatchNext())
	if len(d.NewImages) != 10 || d.MoreNewImages != 4 || d.Changes[diff.ChangeNewImage] != 14 {
		t.Errorf("%d named and %d more, changes %v; want 10, 4 and 14", len(d.NewImages), d.MoreNewImages, d.Changes)
	}
	s.wantIdle()
}

// TestNewImagesOfOthers: images of workloads that are routed to other receivers are not announced, and count as known.
func TestNewImagesOfOthers(t *testing.T) {
	s := afterBaseline(t)
	s.settings.Filter.Changes = withNewImages(nil)
	s.settings.Filter.Route = &store.Route{Receiver: "team", Known: []string{"team", "others"}, Unassigned: true}
	s.dispatch()
	for repository, receivers := range map[string][]string{
		"ours": {"others,team"}, "both": {"others", ""}, "theirs": {"others"}, "nobody's": {""}, "stranger's": {"unknown"},
	} {
		s.image(repository, image.Scanned)
		s.coverage.Images[len(s.coverage.Images)-1].Receivers = receivers
	}
	s.dispatch()
	if diff := cmp.Diff([]string{"both", "nobody's", "ours", "stranger's"}, single(t, s.dispatchNext()).NewImages); diff != "" {
		t.Errorf("new images (-want +got):\n%s", diff)
	}
	if !s.isKnown("theirs") {
		t.Error("theirs is not known")
	}
	s.settings.Filter.Route.Unassigned = false
	s.image("another", image.Scanned)
	s.coverage.Images[len(s.coverage.Images)-1].Receivers = []string{""}
	none(t, s.dispatch(), "it names nobody")
	s.wantIdle()
}
