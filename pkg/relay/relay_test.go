package relay

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// fencedStore is a store in which another term has begun.
type fencedStore struct{ notices []store.Notice }

func (f *fencedStore) Notify(_ context.Context, n store.Notice) error {
	f.notices = append(f.notices, n)
	return nil
}
func (*fencedStore) TakeNotices(context.Context) ([]store.Notice, error) {
	return nil, store.ErrNotLeading
}
func (*fencedStore) IsFenced(context.Context) (bool, error) { return true, nil }

// TestFormerLeader checks that a replica that does not know yet that another one leads leaves a notice for that one.
func TestFormerLeader(t *testing.T) {
	s := &fencedStore{}
	r := &Relay{Store: s, Leads: func() bool { return true }, Log: logr.Discard()}
	r.Handle("image", func(context.Context, string, string) {})
	r.Send(t.Context(), "image", "a", "b")
	if want := []store.Notice{{Kind: "image", Subject: "a", Content: "b"}}; !slices.Equal(s.notices, want) {
		t.Errorf("a former leader left %v, want %v", s.notices, want)
	}
}

// TestRelay checks that the leader acts at once, and on what other replicas and those of a newer version have left, once.
func TestRelay(t *testing.T) {
	s, err := store.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "store.db"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	leads := false
	heard := make(chan string, 10)
	r := &Relay{Store: s, Leads: func() bool { return leads }, Log: logr.Discard()}
	r.Handle("image", func(_ context.Context, subject, content string) { heard <- subject + content })
	s.Follow()
	r.Send(t.Context(), "image", "of a loop", "")
	request := store.ForAnyReplica(t.Context())
	r.Send(request, "image", "a", "")
	r.Send(request, "of a newer version", "b", "")
	ended, end := context.WithCancel(request)
	end()
	r.Send(ended, "image", "c", " of a request that has ended")
	if len(heard) > 0 {
		t.Fatalf("a replica that does not lead acted on %s", <-heard)
	}
	leads = true
	if _, err := s.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Send(t.Context(), "image", "d", "")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	var all []string
	for range 3 {
		select {
		case one := <-heard:
			all = append(all, one)
		case <-time.After(10 * time.Second):
			t.Fatalf("the leader acted on %q only", all)
		}
	}
	time.Sleep(2 * pollInterval)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if want := []string{"d", "a", "c of a request that has ended"}; !slices.Equal(all, want) || len(heard) > 0 {
		t.Errorf("the leader acted on %q and %d more, want %q", all, len(heard), want)
	}
}
