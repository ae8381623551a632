package storetest

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
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

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// got returns a value, and ends the test if there is an error.
func got[T any](t rapid.TB) func(value T, err error) T {
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

func subject(name string) store.Subject {
	return store.Subject{PlatformDigest: digest(name), Engine: grype}
}

func catalogOf(name string, at time.Time) store.Catalog {
	return store.Catalog{Engine: "grype", Key: key(name), PlatformDigest: digest(name), Distro: "debian 12", Packages: 7, Tool: "syft 1.0.0", CatalogedAt: at}
}

// saveCatalogs saves catalogs without artifacts.
func (f fixture) saveCatalogs(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, f.SaveCatalog(t.Context(), catalogOf(name, f.clock.Now()), nil))
	}
}

// workload returns a workload in the namespace "shop".
func workload(name, repository string) store.Workload {
	return store.Workload{Namespace: "shop", Kind: "Deployment", Name: name, Container: "main", Repository: repository, Reference: repository + ":1"}
}

func used(scanner, name string, workloads ...store.Workload) store.ImageUsage {
	return store.ImageUsage{Scanner: scanner, Namespace: "shop", Key: key(name), Engine: grype, Workloads: workloads}
}

func (f fixture) use(t testing.TB, scanner, name string, workloads ...store.Workload) {
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

func containsFold(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
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
func (f fixture) report(t testing.TB, name string, findings ...finding.Finding) store.Difference {
	t.Helper()
	return got[store.Difference](t)(f.SaveReport(t.Context(), report(name, findings...), ""))
}

func report(name string, findings ...finding.Finding) store.Report {
	return store.Report{Subject: subject(name), DataVersion: "v1", Distro: "debian 12", Findings: findings}
}

// artifacts returns texts as readers, for SaveCatalog.
func artifacts(texts map[store.Artifact]string) map[store.Artifact]io.Reader {
	readers := make(map[store.Artifact]io.Reader)
	for name, text := range maps.All(texts) {
		readers[name] = strings.NewReader(text)
	}
	return readers
}

// ids returns the vulnerability IDs of changes, in their order.
func ids(pending []store.FindingChange) []string {
	var ids []string
	for _, n := range pending {
		ids = append(ids, n.Finding.ID)
	}
	return slices.Clip(ids)
}

// announcedFindings returns announcements with the highest values, so that nothing about these findings can be a change later.
func announcedFindings(keys ...store.AnnouncementKey) []store.AnnouncedFinding {
	var announcement []store.AnnouncedFinding
	for _, key := range keys {
		announcement = append(announcement, store.AnnouncedFinding{AnnouncementKey: key, Change: diff.ChangeNew, Severity: finding.Critical, Fixable: true, KnownExploited: true})
	}
	return announcement
}
