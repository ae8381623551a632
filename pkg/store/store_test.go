package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

// clock is a time that only the test changes.
type clock struct {
	mutex sync.Mutex
	time  time.Time
}

func newClock() *clock { return &clock{time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.time
}

func (c *clock) pass(d time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.time = c.time.Add(d)
}

// fixture is an open store in its own directory.
type fixture struct {
	*Store
	clock *clock
}

func newStore(t testing.TB) fixture {
	t.Helper()
	if dsn := os.Getenv("STORE_TEST_POSTGRESQL"); dsn != "" {
		return newPostgreSQL(t, dsn)
	}
	return openWith(t, filepath.Join(t.TempDir(), "store.db"), newSQLite)
}

// newSQLite opens a store as OpenSQLite does, without the migrations if it is new.
func newSQLite(ctx context.Context, path string, now func() time.Time) (*Store, error) {
	return storetest.Open(ctx, path, now, OpenSQLite)
}

func openStore(t testing.TB, path string) fixture {
	t.Helper()
	return openWith(t, path, OpenSQLite)
}

func openWith(t testing.TB, path string, open storetest.Opener[*Store]) fixture {
	t.Helper()
	c := newClock()
	s, err := open(t.Context(), path, c.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return fixture{Store: s, clock: c}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// got returns a value, and ends the test if there is an error.
func got[T any](t testing.TB) func(value T, err error) T {
	return func(value T, err error) T {
		t.Helper()
		must(t, err)
		return value
	}
}

// requireContext fails the test if an error does not name the store and what was done.
func (f fixture) requireContext(t testing.TB, err error, action string) {
	t.Helper()
	if start := fmt.Sprintf("store %s: %s: ", f.path, action); !strings.HasPrefix(err.Error(), start) {
		t.Errorf("the error is %q, and does not start with %q", err, start)
	}
}

// equal compares values. Nil and empty lists are equal.
func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const grype = "grype"

// digest returns a digest made from a name.
func digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

var amd64 = image.Platform{OS: "linux", Architecture: "amd64"}

// key returns the key that a node reports for the image with this name. Its digest is not the platform digest.
func key(name string) image.Key { return image.Key{Digest: digest("index " + name), Platform: amd64} }

func subject(name string) Subject { return Subject{PlatformDigest: digest(name), Engine: grype} }

func catalogOf(name string, at time.Time) Catalog {
	return Catalog{Engine: "grype", Key: key(name), PlatformDigest: digest(name), Distro: "debian 12", Packages: 7, Tool: "syft 1.0.0", CatalogedAt: at}
}

// saveCatalogs saves catalogs without artifacts.
func (f fixture) saveCatalogs(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, f.SaveCatalog(t.Context(), catalogOf(name, f.clock.Now()), nil))
	}
}

// workload returns a workload in the namespace "shop".
func workload(name, repository string) Workload {
	return Workload{Namespace: "shop", Kind: "Deployment", Name: name, Container: "main", Repository: repository, Reference: repository + ":1"}
}

func used(scanner, name string, workloads ...Workload) ImageUsage {
	return ImageUsage{Scanner: scanner, Namespace: "shop", Key: key(name), Engine: grype, Workloads: workloads}
}

func (f fixture) use(t testing.TB, scanner, name string, workloads ...Workload) {
	t.Helper()
	must(t, f.SetUsage(t.Context(), used(scanner, name, workloads...)))
}

// vulnerable is a finding of high severity without a fix. All optional fields are empty.
func vulnerable(id, pkg string, changes ...func(*finding.Finding)) finding.Finding {
	f := finding.Finding{
		ID: id, Severity: finding.High, FixState: finding.FixStateNotFixed,
		Package: finding.Package{Name: pkg, Version: "1.0", Type: "deb", PURL: "pkg:deb/debian/" + pkg + "@1.0?arch=amd64"},
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func severity(s finding.Severity) func(*finding.Finding) {
	return func(f *finding.Finding) { f.Severity = s }
}

func version(v string) func(*finding.Finding) {
	return func(f *finding.Finding) { f.Package.Version = v }
}

func fixed(f *finding.Finding) { f.FixState, f.FixVersions = finding.FixStateFixed, []string{"1.1"} }

func exploited(f *finding.Finding) { f.KnownExploited = true }

// report saves a report of an image with these findings.
func (f fixture) report(t testing.TB, name string, findings ...finding.Finding) Difference {
	t.Helper()
	return got[Difference](t)(f.SaveReport(t.Context(), report(name, findings...), ""))
}

func report(name string, findings ...finding.Finding) Report {
	return Report{Subject: subject(name), DataVersion: "v1", Distro: "debian 12", Findings: findings}
}

// queryPlan returns the query plan of a statement.
func (f fixture) queryPlan(t testing.TB, statement string, args ...any) string {
	t.Helper()
	rows, err := f.reading().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement, args...)
	must(t, err)
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		must(t, rows.Scan(&id, &parent, &unused, &detail))
		plan = append(plan, detail)
	}
	must(t, rows.Err())
	return strings.Join(plan, "\n")
}

// requireIndexes fails the test if a statement scans a whole table, or does not use an index that it should.
func (f fixture) requireIndexes(t testing.TB, statement string, args []any, indexes ...string) {
	t.Helper()
	plan := f.queryPlan(t, statement, args...)
	for line := range strings.Lines(plan) {
		// Scans of parameters in JSON, subqueries and single rows are allowed.
		table, isScan := strings.CutPrefix(strings.TrimSpace(line), "SCAN ")
		if isScan && !strings.Contains(plan, "CO-ROUTINE "+table+"\n") && !strings.Contains(plan, "MATERIALIZE "+table+"\n") && !strings.Contains(line, "VIRTUAL TABLE") &&
			!strings.HasPrefix(line, "SCAN wanted") && !strings.HasPrefix(line, "SCAN (subquery") &&
			!strings.HasPrefix(line, "SCAN used") && !strings.HasPrefix(line, "SCAN runs") && !strings.HasPrefix(line, "SCAN CONSTANT") {
			t.Errorf("the statement goes through a whole table: %s\n%s", line, plan)
		}
	}
	for _, index := range indexes {
		if !strings.Contains(plan, index) {
			t.Errorf("the statement does not use %s:\n%s", index, plan)
		}
	}
}

// artifacts returns texts as readers, for SaveCatalog.
func artifacts(texts map[Artifact]string) map[Artifact]io.Reader {
	readers := make(map[Artifact]io.Reader)
	for name, text := range maps.All(texts) {
		readers[name] = strings.NewReader(text)
	}
	return readers
}

// ids returns the vulnerability IDs of changes, in their order.
func ids(pending []FindingChange) []string {
	var ids []string
	for _, n := range pending {
		ids = append(ids, n.Finding.ID)
	}
	return slices.Clip(ids)
}

// announcedFindings returns announcements with the highest values, so that nothing about these findings can be a change later.
func announcedFindings(keys ...AnnouncementKey) []AnnouncedFinding {
	var announcement []AnnouncedFinding
	for _, key := range keys {
		announcement = append(announcement, AnnouncedFinding{AnnouncementKey: key, Change: diff.ChangeNew, Severity: finding.Critical, Fixable: true, KnownExploited: true})
	}
	return announcement
}
