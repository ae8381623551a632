package metrics

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/controllers"
	"github.com/scanner-operator/scanner-operator/notifier"
	"github.com/scanner-operator/scanner-operator/notifier/clairwebhook"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype/ingest"
	"github.com/scanner-operator/scanner-operator/pkg/metrics"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/restapi"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// root of the project.
const root = "../.."

var update = flag.Bool("update", false, "write the table of docs/integrate/metrics.md")

var inCode = sync.OnceValues(func() (map[string]Metric, error) {
	return Declared(root, "cmd", "controllers", "notifier", "pkg")
})

// declared returns all metrics in the code.
func declared(t *testing.T) map[string]Metric {
	t.Helper()
	all, err := inCode()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("only %d metrics were found in the code: does this test look in the right place?", len(all))
	}
	return all
}

// recorder is a registry that records the names of metrics.
type recorder map[string]bool

var described = regexp.MustCompile(`fqName: "([^"]+)"`)

func (r recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		c.Describe(descs)
		close(descs)
	}()
	for desc := range descs {
		r[described.FindStringSubmatch(desc.String())[1]] = true
	}
	return nil
}

func (r recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = r.Register(c)
	}
}

// refusing rejects every registration, so that the caller stops before it does anything else.
type refusing struct{ recorder }

var errRefused = errors.New("no more than names are wanted")

func (r refusing) Register(c prometheus.Collector) error {
	_ = r.recorder.Register(c)
	return errRefused
}

func (recorder) Unregister(prometheus.Collector) bool { return false }

// registered returns the metrics that the parts of manager and notifier register.
func registered(t *testing.T) recorder {
	t.Helper()
	all := recorder{}
	metrics.NewLoops(all)
	metrics.NewRequests(all)
	metrics.RegisterManagerBuild(all, "1")
	metrics.RegisterCluster(all, "prod-eu")
	metrics.RegisterNotifierBuild(all, "1")
	controllers.NewMetrics(all)
	grype.New(grype.Options{Clock: clock.RealClock{}, Metrics: all})
	clair.NewEngines(clair.Options{Clock: clock.RealClock{}, Metrics: all})
	notifier.NewMetrics(all)
	notifier.RegisterSender(all, nil)
	clairwebhook.NewMetrics(all)
	opened, err := store.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "store.db"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	all.MustRegister(opened)
	if err := (&preflight.Checker{Metrics: refusing{all}}).Run(t.Context()); !errors.Is(err, errRefused) {
		t.Fatalf("it registers nothing: %v", err)
	}
	for _, api := range []interface{ Handler() (http.Handler, error) }{
		&ingest.Ingest{SpoolDir: t.TempDir(), Log: logr.Discard(), Metrics: all},
		&restapi.API{Clock: clock.RealClock{}, Log: logr.Discard(), Metrics: all},
	} {
		if _, err := api.Handler(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Every declared metric is registered, and every registered metric is declared with a literal name.
func TestDeclaredMetricsAreRegistered(t *testing.T) {
	want := slices.Sorted(maps.Keys(declared(t)))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(registered(t)))); diff != "" {
		t.Errorf("metrics (-in the code +registered):\n%s", diff)
	}
}

// Names follow https://prometheus.io/docs/practices/naming/.
func TestNamesFollowConventions(t *testing.T) {
	for name, metric := range declared(t) {
		if (metric.Type == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s: counters, and nothing else, end in _total", name, metric.Type)
		}
		if metric.Type == "histogram" && !strings.HasSuffix(name, "_seconds") && !strings.HasSuffix(name, "_bytes") {
			t.Errorf("%s has no unit", name)
		}
		if !strings.HasSuffix(metric.Help, ".") {
			t.Errorf("%s: %q is no sentence", name, metric.Help)
		}
		if strings.HasPrefix(name, "scanner_operator_image_findings") {
			continue // metrics.maxImages bounds how many there are
		}
		for _, label := range metric.Labels {
			if slices.Contains([]string{"image", "digest", "pod", "vulnerability", "cve", "receiver", "host", "url"}, label) {
				t.Errorf("%s has a label %s, of which there may be any number", name, label)
			}
		}
	}
}

const begin, end = "<!-- metrics: begin -->\n", "<!-- metrics: end -->\n"

// docs/integrate/metrics.md lists all metrics as the code describes them, and no others.
func TestPageListsMetrics(t *testing.T) {
	path := filepath.Join(root, "docs/integrate/metrics.md")
	page := read(t, "docs/integrate/metrics.md")
	before, rest, found := strings.Cut(page, begin)
	listed, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table, between %q and %q", path, begin, end)
	}
	want := table(declared(t))
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("the table differs from the code; write it with: go test ./test/metrics -run Page -update (-code +page):\n%s", diff)
	}
}

func table(all map[string]Metric) string {
	var lines strings.Builder
	lines.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		metric := all[name]
		labels := ""
		if len(metric.Labels) > 0 {
			labels = "`" + strings.Join(metric.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&lines, "| `%s` | %s | %s | %s |\n", name, metric.Type, labels, metric.Help)
	}
	return lines.String()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
