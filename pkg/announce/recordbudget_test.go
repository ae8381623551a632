package announce

import (
	"fmt"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// TestNoRoomForRecords checks that without room for records nothing is announced, and that the receiver's status gives the reason. Records stay.
// What was not announced is announced when there is room.
func TestNoRoomForRecords(t *testing.T) {
	for _, policy := range []FirstScan{FirstScanSummary, FirstScanSilent, FirstScanAll} {
		t.Run(string(policy), func(t *testing.T) {
			s := newScenario(t)
			s.settings.FirstScan = policy
			s.image("web", image.Scanned)
			s.addFindings("web", finding.High, 1, 3)
			s.dispatchUntilIdle()
			before := len(s.sent)

			s.store.LimitRecords(1)
			s.addFindings("web", finding.High, 4, 2)
			s.pass(time.Hour)
			if sent := s.dispatch(); len(sent) != 0 {
				t.Errorf("without room %d messages are sent", len(sent))
			}
			s.wantNext(roomCheck)
			if reason, message := s.state().Problem(); reason != ReasonStoreBudget || message == "" {
				t.Errorf("the receiver says %q: %q, want %s", reason, message, ReasonStoreBudget)
			}
			encoded := string(s.encoded())
			s.dispatchNext()
			if string(s.encoded()) != encoded {
				t.Errorf("the state changes without room, from %s to %s", encoded, s.encoded())
			}

			s.store.LimitRecords(0)
			s.dispatchUntilIdle()
			if len(s.sent) != before+1 || s.notAnnounced() != 0 {
				t.Errorf("with room %d messages are sent and %d findings are left, want one message and none", len(s.sent)-before, s.notAnnounced())
			}
			if e := s.state().LastError; e != nil {
				t.Errorf("with room the receiver says %+v", e)
			}
		})
	}
}

// TestRoomAfterClockPutBack checks that the error about a lack of room, which ends anyway, does not move the receiver's times when the clock is
// set back.
func TestRoomAfterClockPutBack(t *testing.T) {
	s := newScenario(t)
	s.image("web", image.Scanned)
	s.addFindings("web", finding.High, 1, 3)
	s.dispatchUntilIdle()
	delivered := s.state().LastDelivery

	s.store.LimitRecords(1)
	s.pass(5 * time.Hour)
	s.dispatch()
	if reason, _ := s.state().Problem(); reason != ReasonStoreBudget {
		t.Fatalf("the receiver says %q, want %s", reason, ReasonStoreBudget)
	}
	s.store.LimitRecords(0)
	s.pass(-3 * time.Hour)
	s.dispatch()
	if got := s.state().LastDelivery; !got.Equal(delivered) {
		t.Errorf("with room the last delivery moves from %s to %s", delivered, got)
	}
}

// TestMessageOnItsWayWithoutRoom: what was composed before is delivered once and recorded.
func TestMessageOnItsWayWithoutRoom(t *testing.T) {
	s := newScenario(t)
	s.settings.FirstScan = FirstScanAll
	s.image("web", image.Scanned)
	s.addFindings("web", finding.High, 1, 3)
	s.outcomes = []Outcome{{Result: Temporary, Reason: ReasonReceiverFailed, Message: "502"}}
	for len(s.sent) == 0 {
		s.dispatch()
		s.now = s.last.Next
	}
	s.store.LimitRecords(1)
	s.dispatchNext()
	s.dispatchNext()
	if len(s.sent) != 2 || s.notAnnounced() != 0 || s.state().Outbox != nil {
		t.Errorf("%d attempts, %d findings not recorded, want the second attempt to be recorded", len(s.sent), s.notAnnounced())
	}
}

// TestRoomBecomesFree checks that without room, what is fixed is recorded without a message, so that a sweep makes room and the
// receiver is served again.
func TestRoomBecomesFree(t *testing.T) {
	s := newScenario(t)
	s.settings.Filter.Changes = []diff.Change{diff.ChangeNew, diff.ChangeFixed}
	s.image("web", image.Scanned)
	s.addFindings("web", finding.High, 1, 40)
	s.dispatchUntilIdle()
	before := len(s.sent)

	s.store.LimitRecords(4000)
	s.data++
	s.removeFindings("web")
	s.data++
	s.addFindings("web", finding.High, 50, 1)
	s.pass(time.Hour)
	if sent := s.dispatch(); len(sent) != 0 {
		t.Errorf("without room %d messages are sent", len(sent))
	}
	for range 2 {
		_, err := s.store.Sweep(t.Context(), s.now.Add(-time.Hour))
		s.must(err)
		s.pass(25 * time.Hour)
	}
	s.dispatch()
	s.dispatchNext()
	if len(s.sent) != before+1 || s.notAnnounced() != 0 {
		t.Errorf("after the sweep %d messages are sent and %d findings are left, want one message and none", len(s.sent)-before, s.notAnnounced())
	}
}

// TestNoRoomDuringEngineChange checks that the records of an earlier engine make room for those of the present one, whether the budget was used up
// before the change or during it.
func TestNoRoomDuringEngineChange(t *testing.T) {
	for _, before := range []bool{true, false} {
		for _, policy := range []FirstScan{FirstScanSummary, FirstScanSilent, FirstScanAll} {
			t.Run(fmt.Sprintf("%s, before %t", policy, before), func(t *testing.T) {
				s := announcedByEngine(t, policy)
				s.addFindings("web", finding.Critical, 1, 40)
				s.dispatchUntilIdle()
				if before {
					s.store.LimitRecords(3000)
					s.dispatch()
				}
				s.switchTo(clair)
				s.image("web", image.Pending)
				s.dispatch()
				s.store.LimitRecords(3000)
				delete(s.findings, "web")
				s.addFindings("web", finding.Critical, 100, 1)
				for range 5 {
					s.dispatch()
					s.pass(25 * time.Hour)
				}
				full, err := s.store.RecordsFull(t.Context(), scannerUID)
				s.must(err)
				if full || s.notAnnounced() != 0 {
					t.Errorf("full %t, %d findings not announced, want room and none", full, s.notAnnounced())
				}
			})
		}
	}
}

// TestPresentWithoutRoom checks that the record of a finding that was fixed and is back stays when sweeps make room.
func TestPresentWithoutRoom(t *testing.T) {
	s := newScenario(t)
	s.settings.FirstScan = FirstScanAll
	s.settings.Filter.Changes = []diff.Change{diff.ChangeNew}
	s.addFindings("web", finding.Critical, 1, 3)
	s.dispatchUntilIdle()
	sent := len(s.sent)
	all := s.findings["web"]
	for range 2 {
		s.data++
		s.removeFindings("web")
		s.pass(time.Hour)
		s.dispatch()
	}
	s.store.LimitRecords(1)
	s.data++
	s.findings["web"] = all
	s.image("web", image.Scanned)
	for range 3 {
		s.dispatch()
		_, err := s.store.Sweep(t.Context(), s.now.Add(-time.Hour))
		s.must(err)
		s.pass(25 * time.Hour)
	}
	s.store.LimitRecords(0)
	s.dispatchUntilIdle()
	if len(s.sent) != sent {
		t.Errorf("message %+v, want none: the findings were announced before", s.sent[len(s.sent)-1].Changes)
	}
}
