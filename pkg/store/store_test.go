package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
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

// newStore opens a SQLite store in a directory of its own.
func newStore(t testing.TB) fixture {
	t.Helper()
	return openIn(t, newSQLiteDatabase(t))
}

// openStore opens the SQLite store of a file.
func openStore(t testing.TB, path string) fixture {
	t.Helper()
	return openIn(t, TestDatabase{Open: func(ctx context.Context, now func() time.Time) (*Store, error) { return OpenSQLite(ctx, path, now) }})
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

// report saves a report of an image with these findings.
func (f fixture) report(t testing.TB, name string, findings ...finding.Finding) Difference {
	t.Helper()
	return got[Difference](t)(f.SaveReport(t.Context(), report(name, findings...), ""))
}

func report(name string, findings ...finding.Finding) Report {
	return Report{Subject: subject(name), DataVersion: "v1", Distro: "debian 12", Findings: findings}
}

// announcedFindings returns announcements with the highest values, so that nothing about these findings can be a change later.
func announcedFindings(keys ...AnnouncementKey) []AnnouncedFinding {
	var announcement []AnnouncedFinding
	for _, key := range keys {
		announcement = append(announcement, AnnouncedFinding{AnnouncementKey: key, Change: diff.ChangeNew, Severity: finding.Critical, Fixable: true, KnownExploited: true})
	}
	return announcement
}

// running sets up one image that a workload runs.
func (f fixture) running(t *testing.T, name, repository string, findings ...finding.Finding) {
	t.Helper()
	f.saveCatalogs(t, name)
	f.use(t, "scanner", name, workload("runs "+name, repository))
	f.report(t, name, findings...)
}

// nightly is a workload whose pods are meant to end.
func nightly(name, repository string) Workload {
	w := workload(name, repository)
	w.Kind, w.Completes = "CronJob", true
	return w
}

// useIn records that the Scanner of a namespace has images.
func (f fixture) useIn(t testing.TB, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		u := used("scanner of "+namespace, name)
		u.Namespace = namespace
		must(t, f.SetUsage(t.Context(), u))
	}
}

// reportBy saves a report of an image by a version of the data.
func (f fixture) reportBy(t testing.TB, data, name string, findings ...finding.Finding) Difference {
	t.Helper()
	r := report(name, findings...)
	r.DataVersion = data
	return got[Difference](t)(f.SaveReport(t.Context(), r, ""))
}

func (f fixture) data(t testing.TB, version string) {
	t.Helper()
	must(t, f.SetDataVersion(t.Context(), grype, DataVersion{Version: version}))
}

// inNamespace records that an image runs in a namespace, for the named Scanner.
func (f fixture) inNamespace(t testing.TB, namespace, scanner, name string, workloads ...string) {
	t.Helper()
	u := ImageUsage{Scanner: scanner, Namespace: namespace, Key: key(name), Engine: grype}
	for _, w := range workloads {
		u.Workloads = append(u.Workloads, Workload{Namespace: namespace, Kind: "Deployment", Name: w, Container: "main", Repository: "r/" + name, Reference: "r/" + name + ":1"})
	}
	must(t, f.SetUsage(t.Context(), u))
}
