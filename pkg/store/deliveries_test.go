package store

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDeliveriesAreCounted checks that each delivery gets the next number, whichever receiver it is for.
func TestDeliveriesAreCounted(t *testing.T) {
	f := newStore(t)
	equal(t, "deliveries of a new store", got[int64](t)(f.Deliveries(t.Context())), int64(0))
	for i, receiver := range []string{"slack", "mail", "slack"} {
		equal(t, "number", got[int64](t)(f.BeginDelivery(t.Context(), "scanner", receiver, []byte(receiver))), int64(i+1))
	}
	equal(t, "state", string(got[[]byte](t)(f.ReceiverState(t.Context(), "scanner", "mail"))), "mail")
	equal(t, "deliveries", got[int64](t)(f.Deliveries(t.Context())), int64(3))
}

// TestTreatedAsRestored checks that the store gets another ID, also in its file, and the time of its last delivery, and that a
// second call gives another ID and time.
func TestTreatedAsRestored(t *testing.T) {
	f := newStore(t)
	first := f.ID()
	got[int64](t)(f.BeginDelivery(t.Context(), "scanner", "slack", nil))
	last := f.clock.Now()
	f.clock.pass(time.Hour)
	must(t, f.TreatAsRestored(t.Context()))
	second := f.ID()
	if second == first || !f.RestoredFrom().Equal(last) {
		t.Errorf("id %s, restored from %s; want another id than %s and the time of the last delivery, %s", second, f.RestoredFrom(), first, last)
	}
	must(t, f.TreatAsRestored(t.Context()))
	if f.ID() == second || !f.RestoredFrom().After(last) {
		t.Errorf("id %s, restored from %s the second time; want another id and another time", f.ID(), f.RestoredFrom())
	}
	equal(t, "the id in the file", got[string](t)(readID(t, f.Store)), f.ID())
}

// TestTreatedAsRestoredBeforeTheFirstDelivery checks that a store without deliveries counts as restored after it is opened again, and
// gets a later time with each call.
func TestTreatedAsRestoredBeforeTheFirstDelivery(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var last time.Time
	for range 3 {
		f := openStore(t, path)
		must(t, f.TreatAsRestored(t.Context()))
		must(t, f.Close())
		again := openStore(t, path)
		if from := again.RestoredFrom(); from.IsZero() || !from.After(last) {
			t.Errorf("restored from %s, want a time after %s", from, last)
		}
		last = again.RestoredFrom()
		must(t, again.Close())
	}
}

// TestUnreadableTimeOfARestore checks that a store cannot be opened whose time of the last restore is not a number.
func TestUnreadableTimeOfARestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := openStore(t, path)
	got[sql.Result](t)(f.writer.ExecContext(t.Context(), `INSERT INTO meta (name, value) VALUES (?, 'noon')`, restoredFrom))
	must(t, f.Close())
	s, err := OpenSQLite(t.Context(), path, newClock().Now)
	if err == nil {
		must(t, s.Close())
	}
	if err == nil || !strings.Contains(err.Error(), restoredFrom) {
		t.Errorf("got %v, want an error that names the value", err)
	}
}

func readID(t *testing.T, s *Store) (id string, err error) {
	t.Helper()
	err = s.reader.QueryRowContext(t.Context(), `SELECT value FROM meta WHERE name = 'id'`).Scan(&id)
	return id, err
}
