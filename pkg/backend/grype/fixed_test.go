package grype

import (
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestAnotherGrypeProvesNothing: what is missing in a build of the database is not fixed because another version of Grype misses
// it in the same build, but because the next build does.
func TestAnotherGrypeProvesNothing(t *testing.T) {
	const anotherTool = "grype 0.111.0"
	e := newEngine(t)
	web := public("web")
	e.matched(web, 0)
	matchedBy := func(hours int, tool string) (fixed bool) {
		t.Helper()
		database := build(hours)
		_, err := e.DatabaseReported(t.Context(), workerapi.DatabaseStatus{Tool: tool, Installed: &database})
		e.must(err)
		clean := report(hours)
		clean.Tool = tool
		e.must(e.SaveReport(t.Context(), e.leases(), clean))
		page, err := e.Store.FindingsPage(t.Context(), store.Subject{PlatformDigest: platformDigest(web), Scope: web.Scope, Engine: Engine},
			store.FindingFilter{Gone: true}, store.FindingMark{}, 10)
		e.must(err)
		if len(page.Findings) != 1 {
			t.Fatalf("%d findings have gone, want 1", len(page.Findings))
		}
		return !page.Findings[0].FixedAt.IsZero()
	}
	for _, step := range []struct {
		hours int
		tool  string
		want  bool
	}{{1, tool, false}, {1, anotherTool, false}, {2, anotherTool, true}} {
		if got := matchedBy(step.hours, step.tool); got != step.want {
			t.Errorf("missing by %s in build %d: fixed is %t, want %t", step.tool, step.hours, got, step.want)
		}
	}
}
