package storetest

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func (on suite) testTheMostMemoryThatWasExceededCounts(t *testing.T) {
	f := on.newStore(t)
	for _, bytes := range []int64{2 << 30, 8 << 30, 4 << 30} {
		must(t, f.RecordMemoryExceeded(t.Context(), key("app"), "shop", bytes))
	}
	equal(t, "in its scope", got[int64](t)(f.MemoryExceeded(t.Context(), key("app"), "shop")), int64(8<<30))
	equal(t, "in the cluster", got[int64](t)(f.MemoryExceeded(t.Context(), key("app"), store.Cluster)), int64(0))
	equal(t, "of another image", got[int64](t)(f.MemoryExceeded(t.Context(), key("other"), "shop")), int64(0))
}

func (on suite) testSweepDeletesMemoryOfUnusedImages(t *testing.T) {
	f := on.newStore(t)
	f.use(t, "scanner", "used")
	for _, name := range []string{"used", "unused"} {
		must(t, f.RecordMemoryExceeded(t.Context(), key(name), store.Cluster, 2<<30))
	}
	f.clock.pass(time.Hour)
	must(t, f.RecordMemoryExceeded(t.Context(), key("recent"), store.Cluster, 2<<30))
	got[int](t)(f.Sweep(t.Context(), f.clock.Now().Add(-time.Minute)))
	for name, want := range map[string]int64{"used": 2 << 30, "unused": 0, "recent": 2 << 30} {
		equal(t, name, got[int64](t)(f.MemoryExceeded(t.Context(), key(name), store.Cluster)), want)
	}
}
