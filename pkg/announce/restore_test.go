package announce

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// restore replaces the store by one that was restored from a backup made at the scenario's beginning.
func (s *scenario) restore() {
	s.settings.RestoredFrom = noon
	s.data++
	for i := range s.coverage.Images {
		s.coverage.Images[i].Current = false
	}
}

// TestStoreRestored: findings that were not announced when the backup was made are one summary that claims nothing to be new. It is sent
// when every image has a result with current data, with every firstScan policy. Later findings are changes.
func TestStoreRestored(t *testing.T) {
	for _, policy := range []FirstScan{FirstScanSummary, FirstScanSilent, FirstScanAll} {
		s := announcedByTool(t, policy)
		s.restore()
		none(t, s.dispatch(), "results are older than the data")
		s.addFindings("web", finding.Critical, 1, 13)
		none(t, s.dispatchNext(), "db has no result yet")
		s.image("db", image.Scanned)
		d := single(t, s.dispatch())
		if d.Kind != KindStoreRestored || !d.RestoredFrom.Equal(noon) || d.NotAnnounced != 10 || d.Totals.Critical != 13 {
			t.Errorf("firstScan %s: message %+v, want one summary of 10 of 13 findings that were not announced before the backup", policy, d)
		}
		s.wantIdle()
		s.pass(time.Hour)
		s.addFindings("web", finding.High, 100, 1)
		s.dispatch()
		if d := single(t, s.dispatchNext()); d.Kind != KindChanges || d.Totals.Total() != 1 {
			t.Errorf("firstScan %s: message %+v, want the one new finding", policy, d)
		}
	}
}

// TestStoreRestoredWithoutMessage: a restore sends no message if everything was announced before the backup.
func TestStoreRestoredWithoutMessage(t *testing.T) {
	s := announcedByTool(t, FirstScanSummary)
	s.restore()
	s.addFindings("web", finding.Critical, 1, 3)
	s.image("db", image.Scanned)
	none(t, s.dispatch(), "images still join")
	none(t, s.dispatchNext(), "everything was announced to it")
	s.wantIdle()
}

// TestStoreRestoredWithMessage: a message that was in the outbox of the backup is not sent again. Its content is part of the summary, since
// nobody knows whether it was delivered.
func TestStoreRestoredWithMessage(t *testing.T) {
	for name, first := range map[string]bool{"news": false, "the first summary": true} {
		s := newScenario(t)
		if !first {
			s = announcedByTool(t, FirstScanSummary)
		}
		s.outcomes = []Outcome{{Result: Temporary}}
		s.addFindings("web", finding.Critical, 1, 7)
		s.dispatch()
		composed := single(t, s.dispatchNext())
		s.restore()
		s.addFindings("web", finding.Critical, 1, 7)
		s.image("db", image.Scanned)
		s.dispatch()
		d := single(t, s.dispatchNext())
		want, notAnnounced := KindStoreRestored, 4
		if first {
			want, notAnnounced = KindBaselineRenewed, 0
		}
		if d.Kind != want || d.ID == composed.ID || d.NotAnnounced != notAnnounced || d.Totals.Critical != 7 {
			t.Errorf("%s: message %+v, want %s that counts all 7 findings, %d of them not announced", name, d, want, notAnnounced)
		}
		s.wantIdle()
	}
}
