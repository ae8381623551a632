package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestTerms checks who may write: the leader, until another process leads. Every replica may write what a context of ForAnyReplica says.
func TestTerms(t *testing.T) {
	eachServer(t, func(t *testing.T, d TestDatabase) {
		clock := newClock()
		first, second := opened(t, d, clock), opened(t, d, clock)
		write := func(s *Store) error { _, err := s.BeginDelivery(t.Context(), "scanner", "slack", nil); return err }
		must(t, write(first)) // until it follows, a process is alone
		first.Follow()
		second.Follow()
		refused(t, first, write)
		epoch := got[int64](t)(first.Lead(t.Context()))
		equal(t, "epoch", epoch, clock.Now().UnixMilli())
		must(t, write(first))
		refused(t, second, write)
		equal(t, "a leader is fenced", got[bool](t)(first.IsFenced(t.Context())), false)
		equal(t, "a follower is fenced", got[bool](t)(second.IsFenced(t.Context())), false)
		must(t, second.Notify(ForAnyReplica(t.Context()), Notice{Kind: "image", Subject: "sha256:1"}))

		next := got[int64](t)(second.Lead(t.Context()))
		equal(t, "next epoch", next, epoch+1)
		refused(t, first, write)
		equal(t, "what the first one believes", first.Epoch(), epoch)
		equal(t, "the first one is fenced", got[bool](t)(first.IsFenced(t.Context())), true)
		equal(t, "the second one is fenced", got[bool](t)(second.IsFenced(t.Context())), false)
		must(t, write(second))
		equal(t, "deliveries", got[int64](t)(first.Deliveries(t.Context())), int64(3))
		refused(t, first, func(s *Store) error { _, err := s.TakeNotices(t.Context()); return err })
		equal(t, "notices", got[[]Notice](t)(second.TakeNotices(t.Context())), []Notice{{Kind: "image", Subject: "sha256:1"}})
	})
}

// TestTakeoverWaitsForTransactions checks that a term begins after the transaction that is under way, which is committed.
func TestTakeoverWaitsForTransactions(t *testing.T) {
	eachServer(t, func(t *testing.T, d TestDatabase) {
		clock := newClock()
		first, second := opened(t, d, clock), opened(t, d, clock)
		epoch := got[int64](t)(first.Lead(t.Context()))
		began, led := make(chan struct{}), make(chan error, 1)
		go func() {
			<-began
			_, err := second.Lead(context.Background())
			led <- err
		}()
		must(t, first.write(t.Context(), "take long", func(ctx context.Context, tx *session) error {
			close(began)
			select {
			case err := <-led:
				return errors.Join(errors.New("the second one leads before the transaction has ended"), err)
			case <-time.After(300 * time.Millisecond):
			}
			return saveMeta(ctx, tx, "long", 1)
		}))
		must(t, <-led)
		equal(t, "epoch", second.Epoch(), epoch+1)
		equal(t, "what the first one wrote", got[int64](t)(readMeta(t.Context(), second.reading(), "long")), int64(1))
		refused(t, first, func(s *Store) error { return s.exec(t.Context(), "write", `DELETE FROM meta WHERE name = 'long'`) })
	})
}

// TestLeaderKnowsTheFormerOne checks that the time before a term is when the former leader was last present, and not when the process began to
// follow.
func TestLeaderKnowsTheFormerOne(t *testing.T) {
	eachServer(t, func(t *testing.T, d TestDatabase) {
		clock := newClock()
		first, second := opened(t, d, clock), opened(t, d, clock)
		got[int64](t)(first.Lead(t.Context()))
		second.Follow()
		clock.pass(time.Hour)
		must(t, first.CheckHealth(t.Context()))
		last := clock.Now()
		clock.pass(time.Minute)
		must(t, second.CheckHealth(t.Context())) // it writes nothing
		got[int64](t)(second.Lead(t.Context()))
		equal(t, "the end of the term before", second.presence.before.UnixMilli(), last.UnixMilli())
	})
}

// TestEpochOutlivesARollback checks that a store that was put back to an earlier state goes on with a higher epoch.
func TestEpochOutlivesARollback(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		before := got[int64](t)(f.Lead(t.Context()))
		equal(t, "a leader is fenced", got[bool](t)(f.IsFenced(t.Context())), false)
		_, err := f.writer.ExecContext(t.Context(), `UPDATE store_revision SET epoch = 7`)
		must(t, err)
		f.clock.pass(time.Second)
		if after := got[int64](t)(f.Lead(t.Context())); after <= before {
			t.Errorf("epoch %d after %d", after, before)
		}
	})
}

// TestNotices checks that of several notices about the same, the last one counts, and that they come in their order.
func TestNotices(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		f.Follow()
		for _, n := range []Notice{{"image", "b", ""}, {"worker", "a", "old"}, {"image", "a", ""}, {"worker", "a", "new"}} {
			must(t, f.Notify(ForAnyReplica(t.Context()), n))
		}
		got[int64](t)(f.Lead(t.Context()))
		equal(t, "notices", got[[]Notice](t)(f.TakeNotices(t.Context())), []Notice{{"image", "b", ""}, {"image", "a", ""}, {"worker", "a", "new"}})
		equal(t, "notices the second time", got[[]Notice](t)(f.TakeNotices(t.Context())), []Notice(nil))
	})
}

// TestSchemaOfNewerVersion checks that a store is opened that a newer version has only added to, and no other one.
func TestSchemaOfNewerVersion(t *testing.T) {
	for _, database := range Databases {
		t.Run(database.Name, func(t *testing.T) {
			d := database.New(t)
			s := got[*Store](t)(d.Open(t.Context(), time.Now))
			must(t, addToSchema(t.Context(), s))
			must(t, s.Close())
			s = got[*Store](t)(d.Open(t.Context(), time.Now))
			equal(t, "schema", got[Status](t)(s.Status(t.Context())).Schema, int64(newerSchema))
			_, err := s.writer.ExecContext(t.Context(), `UPDATE store_revision SET oldest_schema = 99999`)
			must(t, err)
			must(t, s.Close())
			_, err = d.Open(t.Context(), time.Now)
			equal(t, "the error says why", strings.Contains(fmt.Sprint(err), "written by a newer version of the operator (schema 99999"), true)
			_, err = d.OpenReadOnly(t.Context(), time.Now)
			equal(t, "the error says why", strings.Contains(fmt.Sprint(err), "written by a newer version of the operator (schema 99999"), true)
		})
	}
}

// eachServer runs a test on each database that several processes can have open.
func eachServer(t *testing.T, test func(t *testing.T, d TestDatabase)) {
	for _, d := range Databases[1:] {
		t.Run(d.Name, func(t *testing.T) { test(t, d.New(t)) })
	}
}

func opened(t *testing.T, d TestDatabase, c *clock) *Store {
	t.Helper()
	s := got[*Store](t)(d.Open(t.Context(), c.Now))
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// refused checks that a store refuses to write since another process leads, and that nothing of it is left.
func refused(t *testing.T, s *Store, write func(*Store) error) {
	t.Helper()
	before := got[int64](t)(s.Revision(t.Context()))
	if err := write(s); !errors.Is(err, ErrNotLeading) {
		t.Errorf("%v, want %v", err, ErrNotLeading)
	}
	equal(t, "revision after a refused write", got[int64](t)(s.Revision(t.Context())), before)
}
