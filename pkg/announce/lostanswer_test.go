package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/proxy"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// TestLostAnswerToCommit: whichever commit of a delivery the database server does not answer, the finding is announced, and only once.
func TestLostAnswerToCommit(t *testing.T) {
	postgres := server.PostgreSQL(t)
	commits := 0
	for lost := true; lost; commits++ {
		t.Run(fmt.Sprint("commit ", commits+1), func(t *testing.T) { lost = deliverWithLostAnswer(t, postgres, int64(commits+1)) })
	}
	// The last one of the loop was not there.
	if commits--; commits < 3 {
		t.Errorf("a delivery has %d commits, want those of the outbox, the attempt and the record", commits)
	}
}

// deliverWithLostAnswer reports whether there was a commit with this number.
func deliverWithLostAnswer(t *testing.T, postgres *server.Server, number int64) (lost bool) {
	s := newScenario(t)
	between := proxy.Start(t, postgres.Port)
	address, err := url.Parse(postgres.NewDatabase(t))
	s.must(err)
	address.Host = fmt.Sprintf("127.0.0.1:%d", between.Port)
	dsn := address.String()
	opened, err := store.OpenPostgreSQL(t.Context(), store.Server{DSN: func() (string, error) { return dsn, nil }, MaxConnections: 3}, func() time.Time { return s.now })
	s.must(err)
	t.Cleanup(func() { s.must(opened.Close()) })
	s.must(s.store.Close())
	s.store = &faultyStore{Store: opened}
	s.settings.FirstScan = FirstScanSilent
	s.image("api", image.Scanned)
	s.dispatchUntilIdle()
	none(t, s.sent, "the baseline is silent")
	s.addFindings("api", finding.Critical, 1, 1)

	var commits atomic.Int64
	between.SetRule(func(piece []byte) proxy.Verdict {
		if bytes.Contains(piece, []byte("commit\x00")) && commits.Add(1) == number {
			return proxy.CutAnswer
		}
		return proxy.Forward
	})
	failed := 0
	for range 20 {
		err := s.tryDispatch()
		switch {
		case errors.Is(err, store.ErrUnavailable):
			failed++
			s.pass(30 * time.Second)
			continue
		case err != nil:
			t.Fatal(err)
		}
		if s.last.Next.IsZero() {
			break
		}
		s.now = s.last.Next
	}
	s.wantIdle()
	lost = commits.Load() >= number
	if lost != (failed == 1) {
		t.Errorf("the answer to commit %d was lost: %v, and %d visits have failed", number, lost, failed)
	}
	single(t, s.sent)
	if n := s.notAnnounced(); n != 0 {
		t.Errorf("%d findings are not announced", n)
	}
	messages, err := s.store.Messages(context.Background(), scannerUID, "", 0, 10)
	s.must(err)
	if len(messages) != 1 {
		t.Errorf("the message log has %d entries, want 1", len(messages))
	}
	return lost
}
