package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var from = Provenance{
	Machine: Machine{Processor: "Example 1", Processors: 2, Memory: 4 << 30, Kernel: "6.1", Go: "go1.26"},
	Load:    1.5, Commit: "commit abc", Command: "make bench", At: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Took: 90 * time.Second,
}

// Running a part again replaces only its section. The sections are in the order of the parts.
func TestWriteReplacesOneSection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	for _, w := range []struct{ name, text string }{{"second", "the second"}, {"first", "old"}, {"first", "new | figures"}} {
		if err := Write(file, []string{"first", "second"}, w.name, "Title of "+w.name, Section{Text: w.text}, from); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	first, second := strings.Index(page, "new | figures"), strings.Index(page, "the second")
	if first < 0 || second < first || strings.Contains(page, "old") || strings.Count(page, "## ") != 2 {
		t.Errorf("want the new first section and then the second, got:\n%s", page)
	}
	for _, want := range []string{"`make bench`", "commit abc", "Example 1, 2 processors, 4 GiB", "2026-01-02 03:04 UTC in 1m30s", "load before: 1.5"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}

func TestBoundsAreListed(t *testing.T) {
	s := Section{Bounds: []Bound{{What: "fast", Kept: true}, {What: "small", Kept: false}}}
	text := s.markdown("Title", from)
	if !strings.Contains(text, "- kept: fast\n- **broken**: small\n") || s.Kept() {
		t.Errorf("want both bounds with their verdict, got:\n%s", text)
	}
}

func TestThisMachine(t *testing.T) {
	m, err := ThisMachine()
	if err != nil {
		t.Fatal(err)
	}
	if load, err := Load(); err != nil || load < 0 {
		t.Errorf("load %f, error %v", load, err)
	}
	if m.Processor == "" || m.Processors < 1 || m.Memory < 1<<26 || m.Kernel == "" || !strings.HasPrefix(m.Go, "go") {
		t.Errorf("machine %+v, want all of it", m)
	}
}
