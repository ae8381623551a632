package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testSessionCodes checks that a code is taken once and until it expires, and that the bounds hold.
func (on suite) testSessionCodes(t *testing.T) {
	f := on.newStore(t)
	ctx := store.ForAnyReplica(t.Context())
	f.Follow() // no replica has to lead
	save := func(hash, owner string) error {
		f.clock.pass(time.Second)
		return f.SaveSessionCode(ctx, store.SessionCode{Hash: hash, Owner: owner, Sealed: "sealed " + hash, ExpiresAt: f.clock.Now().Add(time.Minute)}, 2, 5)
	}
	missing := func(hash string) {
		t.Helper()
		if sealed, err := f.TakeSessionCode(ctx, hash); !errors.Is(err, store.ErrNotFound) || sealed != "" {
			t.Errorf("code %s: %q, %v, want none", hash, sealed, err)
		}
	}
	for _, hash := range []string{"a", "b", "c"} {
		must(t, save(hash, "jane"))
	}
	missing("a")
	var taken atomic.Int32
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if sealed, err := f.TakeSessionCode(ctx, "b"); err == nil && sealed == "sealed b" {
				taken.Add(1)
			}
		})
	}
	wait.Wait()
	equal(t, "how often a code was taken", taken.Load(), int32(1))
	missing("b")
	for n := range 4 {
		must(t, save(fmt.Sprint("d", n), fmt.Sprint("user ", n)))
	}
	if err := save("e", "another user"); !errors.Is(err, store.ErrTooManyCodes) {
		t.Errorf("one more code than allowed: %v", err)
	}
	f.clock.pass(time.Minute)
	missing("d3")
	must(t, save("e", "another user"))
	equal(t, "the last code", got[string](t)(f.TakeSessionCode(ctx, "e")), "sealed e")
}
