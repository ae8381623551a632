package grype

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestOtherGrypeVersionProvesNoFix: if another Grype version misses a finding with the same database build, the finding is not fixed. If the
// next build lacks it, it is.
func TestOtherGrypeVersionProvesNoFix(t *testing.T) {
	const anotherTool = "grype 0.111.0"
	e := newEngine(t)
	web := public("web")
	e.matched(web, 0)
	matchedBy := func(hours int, tool string) (fixed bool) {
		t.Helper()
		database := build(hours)
		_, err := e.RecordDatabase(t.Context(), workerapi.DatabaseStatus{Tool: tool, Installed: &database})
		e.must(err)
		clean := report(hours)
		clean.Tool = tool
		e.must(e.SaveReport(t.Context(), e.leaseOne(), clean))
		page, err := e.Store.FindingsPage(t.Context(), store.Subject{PlatformDigest: platformDigest(web), Scope: web.Scope, Engine: Engine},
			store.FindingFilter{Gone: true}, store.FindingCursor{}, 10)
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

// TestTwoBuildsOfOneTag: two builds of the worker under one image tag, with different Grype versions, do not alternate in setting the data
// version. The version that was replaced is refused for an hour, by each replica of the manager. A manager with another worker image, as after an upgrade
// that is taken back, does not refuse it.
func TestTwoBuildsOfOneTag(t *testing.T) {
	const before, after = "grype 0.110.0", "grype 0.111.0"
	e := newEngine(t)
	for n, step := range []struct {
		tool    string
		refused bool
		current string
	}{
		{before, false, before},
		{before, false, before},
		{after, false, after},
		{before, true, after},
		{after, false, after},
	} {
		database := build(n) // even a newer database changes nothing
		_, err := e.RecordDatabase(t.Context(), workerapi.DatabaseStatus{Tool: step.tool, Installed: &database})
		if refused := errors.Is(err, backend.ErrWorkerReplaced); refused != step.refused || err != nil && !refused {
			t.Errorf("step %d: %s reports its database: %v, want that it is refused: %t", n, step.tool, err, step.refused)
		}
		current, err := e.Store.DataVersion(t.Context(), Engine)
		e.must(err)
		if current.Tool != step.current {
			t.Errorf("step %d: reports are made by %s, want %s", n, current.Tool, step.current)
		}
	}
	e.Backend = New(e.Options)
	database := build(9)
	if _, err := e.RecordDatabase(t.Context(), workerapi.DatabaseStatus{Tool: before, Installed: &database}); !errors.Is(err, backend.ErrWorkerReplaced) {
		t.Errorf("another replica with %s: %v, want that it is refused", before, err)
	}
	other := e.Options
	other.WorkerImage = "registry.example.com/scanner-grype:before"
	e.Backend = New(other)
	if _, err := e.RecordDatabase(t.Context(), workerapi.DatabaseStatus{Tool: before, Installed: &database}); err != nil {
		t.Errorf("another worker image with %s: %v, want that it is taken", before, err)
	}
}

// TestInventedTools: a compromised match worker that reports invented Grype versions blocks the true version for an hour at most, and uses
// bounded memory.
func TestInventedTools(t *testing.T) {
	e := newEngine(t)
	database := build(1)
	reported := func(tool string) error {
		_, err := e.RecordDatabase(t.Context(), workerapi.DatabaseStatus{Tool: tool, Installed: &database})
		return err
	}
	current := func() string {
		t.Helper()
		version, err := e.Store.DataVersion(t.Context(), Engine)
		e.must(err)
		return version.Tool
	}
	e.must(reported(tool))
	e.must(reported("grype made up"))
	if err := reported(tool); !errors.Is(err, backend.ErrWorkerReplaced) {
		t.Errorf("%s after another one: %v, want that it is refused", tool, err)
	}
	e.advance(time.Hour)
	e.must(reported(tool))
	if got := current(); got != tool {
		t.Errorf("after an hour reports are made by %s, want %s", got, tool)
	}
	for n := range 1000 {
		e.must(reported(fmt.Sprint("grype made up ", n)))
	}
	replaced, err := e.Store.ReplacedTools(t.Context(), Engine)
	e.must(err)
	if got := len(replaced); got > 4 {
		t.Errorf("%d versions are remembered, want a few", got)
	}
	e.must(reported(tool))
	if got := current(); got != tool {
		t.Errorf("reports are made by %s, want %s", got, tool)
	}
}
