package storetest

import (
	"strings"
	"testing"
	"time"
)

// testDeliveriesAreCounted checks that each delivery gets the next number, whichever receiver it is for.
func (on suite) testDeliveriesAreCounted(t *testing.T) {
	f := on.newStore(t)
	equal(t, "deliveries of a new store", got[int64](t)(f.Deliveries(t.Context())), int64(0))
	for i, receiver := range []string{"slack", "mail", "slack"} {
		equal(t, "number", got[int64](t)(f.BeginDelivery(t.Context(), "scanner", receiver, []byte(receiver))), int64(i+1))
	}
	equal(t, "state", string(got[[]byte](t)(f.ReceiverState(t.Context(), "scanner", "mail"))), "mail")
	equal(t, "deliveries", got[int64](t)(f.Deliveries(t.Context())), int64(3))
}

// testTreatedAsRestored checks that the store gets another ID, also in its file, and the time of its last delivery, and that a
// second call gives another ID and time.
func (on suite) testTreatedAsRestored(t *testing.T) {
	f := on.newStore(t)
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
	var id string
	f.queryRow(t, `SELECT value FROM meta WHERE name = 'id'`, nil, &id)
	equal(t, "the id in the database", id, f.ID())
}

// testTreatedAsRestoredBeforeTheFirstDelivery checks that a store without deliveries counts as restored after it is opened again, and
// gets a later time with each call.
func (on suite) testTreatedAsRestoredBeforeTheFirstDelivery(t *testing.T) {
	f := on.newStore(t)
	var last time.Time
	for range 3 {
		must(t, f.TreatAsRestored(t.Context()))
		f.restart(t)
		if from := f.RestoredFrom(); from.IsZero() || !from.After(last) {
			t.Errorf("restored from %s, want a time after %s", from, last)
		}
		last = f.RestoredFrom()
	}
}

// testUnreadableTimeOfARestore checks that a store cannot be opened whose time of the last restore is not a number.
func (on suite) testUnreadableTimeOfARestore(t *testing.T) {
	f := on.newStore(t)
	f.exec(t, `INSERT INTO meta (name, value) VALUES ('restored_from', 'noon')`)
	must(t, f.Close())
	s, err := f.database.Open(t.Context(), f.clock.Now)
	if err == nil {
		must(t, s.Close())
	}
	if err == nil || !strings.Contains(err.Error(), "restored_from") {
		t.Errorf("got %v, want an error that names the value", err)
	}
}
