package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testReplacedTools checks that the latest replaced tools of each engine are kept, in their order.
func (on suite) testReplacedTools(t *testing.T) {
	f := on.newStore(t)
	equal(t, "replaced tools at first", len(got[[]store.ReplacedTool](t)(f.ReplacedTools(t.Context(), grype))), 0)
	var all []store.ReplacedTool
	for n := range 6 {
		r := store.ReplacedTool{Tool: fmt.Sprint("grype ", n), Worker: "worker:v1", At: f.clock.Now().Add(time.Duration(n) * time.Minute).UTC()}
		must(t, f.AddReplacedTool(t.Context(), grype, r))
		all = append(all, r)
	}
	equal(t, "replaced tools", got[[]store.ReplacedTool](t)(f.ReplacedTools(t.Context(), grype)), all[2:])
	equal(t, "replaced tools of another engine", len(got[[]store.ReplacedTool](t)(f.ReplacedTools(t.Context(), clair))), 0)
}
