package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testEndedSessions checks that a session stays ended until it expires, and that whoever ends very many makes room with its own.
func (on suite) testEndedSessions(t *testing.T) {
	f := on.newStore(t)
	ctx := store.ForAnyReplica(t.Context())
	f.Follow() // no replica has to lead
	end := func(hash, tenant string, lasts time.Duration) {
		t.Helper()
		f.clock.pass(time.Second)
		must(t, f.EndSession(ctx, store.EndedSession{Hash: hash, Tenant: tenant, ExpiresAt: f.clock.Now().Add(lasts)}, 3, 6))
	}
	ended := func(what string, want ...string) {
		t.Helper()
		hashes, err := f.EndedSessions(t.Context())
		must(t, err)
		slices.Sort(hashes)
		equal(t, what, hashes, want)
	}
	ended("sessions at first")
	end("jane", "jane", time.Hour)
	end("jane", "jane", time.Hour) // once more
	ended("a session", "jane")
	for n := range 5 {
		end(fmt.Sprint("evil", n), "evil", 2*time.Hour)
	}
	ended("the last ones of a tenant", "evil2", "evil3", "evil4", "jane")
	for n := range 4 {
		end(fmt.Sprint("other", n), fmt.Sprint("other", n), 2*time.Hour)
	}
	ended("the last ones of the tenant with the most", "evil4", "jane", "other0", "other1", "other2", "other3")
	f.clock.pass(time.Hour)
	ended("after a session has expired", "evil4", "other0", "other1", "other2", "other3")
}
