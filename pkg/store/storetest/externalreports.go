package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func externalKey(namespace string) store.ExternalKey {
	return store.ExternalKey{Namespace: namespace, Digest: key("web").Digest, Source: "ci"}
}

// externalReport returns a report whose document was made at a time and has a text. Tool distinguishes reports with other texts.
func externalReport(k store.ExternalKey, made time.Time, text string, findings ...finding.Finding) store.ExternalReport {
	return store.ExternalReport{
		ExternalKey: k, Version: 1, Time: made, Tool: "scan " + text, User: "jane", Findings: findings, Text: strings.NewReader(text),
	}
}

// anyReport is a check that nothing fails.
func anyReport(*store.ExternalState) error { return nil }

func (f fixture) saveExternal(t testing.TB, r store.ExternalReport) store.SavedExternal {
	t.Helper()
	return got[store.SavedExternal](t)(f.SaveExternalReport(t.Context(), r, anyReport))
}

// requireText fails the test unless the text of a report is this one.
func (f fixture) requireText(t testing.TB, k store.ExternalKey, want string) {
	t.Helper()
	reader, size, err := f.OpenExternalReport(context.Background(), k)
	must(t, err)
	defer reader.Close()
	if text := got[[]byte](t)(io.ReadAll(reader)); string(text) != want || size != int64(len(want)) {
		t.Errorf("the text of the report is %q with a size of %d, want %q", text, size, want)
	}
}

func requireError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

// testExternalReports: a report is saved as a whole, replaced by a newer one, and writes nothing if it is the same.
func (on suite) testExternalReports(t *testing.T) {
	f := on.newStore(t)
	k := externalKey("shop")
	_, err := f.ExternalReport(t.Context(), k)
	requireError(t, err, store.ErrNotFound)

	openssl, zlib := vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "zlib")
	now := f.clock.Now()
	first := f.saveExternal(t, externalReport(k, now, "first", openssl, zlib))
	if first.Difference != (store.Difference{New: 2, First: true}) || first.Unchanged {
		t.Errorf("the first report is %+v, want two new findings", first)
	}
	want := store.ExternalState{ExternalKey: k, Version: 1, Time: now.UTC(), Tool: "scan first", SavedAt: now.UTC(), User: "jane", Findings: 2}
	ignoreIDs := cmp.Options{cmpopts.IgnoreUnexported(store.ExternalState{}), cmpopts.IgnoreFields(store.ExternalState{}, "Text")}
	if diff := cmp.Diff(want, got[store.ExternalState](t)(f.ExternalReport(t.Context(), k)), ignoreIDs); diff != "" {
		t.Errorf("the report (-want +got):\n%s", diff)
	}
	f.requireText(t, k, "first")

	f.clock.pass(time.Hour)
	before := f.revision(t)
	again := f.saveExternal(t, externalReport(k, now, "first", openssl, zlib))
	if !again.Unchanged || again.Difference != (store.Difference{Still: 2}) || again.Text != first.Text {
		t.Errorf("the same report is %+v, want it to be unchanged", again)
	}
	if after := f.revision(t); after != before {
		t.Errorf("the same report has raised the revision from %d to %d", before, after)
	}

	next := externalReport(k, now.Add(time.Minute), "second", zlib, vulnerable("CVE-2026-0003", "curl"))
	got[int64](t)(next.Text.Seek(0, io.SeekEnd)) // as a caller leaves it that has read the text
	second := f.saveExternal(t, next)
	if second.Difference != (store.Difference{New: 1, Still: 1, Gone: 1}) || second.Text == first.Text {
		t.Errorf("the second report is %+v, want a new finding, one as before, and one that is gone", second)
	}
	f.requireText(t, k, "second")
	if n := f.count(t, "artifacts"); n != 1 {
		t.Errorf("%d texts are stored, want 1", n)
	}

	f.restart(t)
	if findings := got[[]finding.Finding](t)(f.Findings(t.Context(), k.Subject())); len(findings) != 2 {
		t.Errorf("the report has %d findings after a restart, want 2", len(findings))
	}
}

// testOlderExternalReports: of two documents, the newer one stays, in whatever order they come.
func (on suite) testOlderExternalReports(t *testing.T) {
	document := func(minute int, serial string, version int64) store.ExternalReport {
		r := externalReport(externalKey("shop"), newClock().Now().Add(time.Duration(minute)*time.Minute), "")
		r.SerialNumber, r.Version = serial, version
		return r
	}
	for _, tt := range []struct {
		name          string
		before, after store.ExternalReport
		superseded    bool
	}{
		{"later", document(0, "", 1), document(1, "", 1), false},
		{"earlier", document(1, "", 1), document(0, "", 1), true},
		{"same time", document(1, "", 1), document(1, "", 1), false},
		{"another document, earlier", document(1, "urn:uuid:1", 1), document(0, "urn:uuid:2", 2), true},
		{"higher version, same time", document(0, "urn:uuid:1", 1), document(0, "urn:uuid:1", 2), false},
		{"higher version, earlier", document(1, "urn:uuid:1", 1), document(0, "urn:uuid:1", 2), false},
		{"lower version, later", document(0, "urn:uuid:1", 2), document(1, "urn:uuid:1", 1), true},
		{"same version, earlier", document(1, "urn:uuid:1", 2), document(0, "urn:uuid:1", 2), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := on.newStore(t)
			tt.before.Tool, tt.before.Text = "before", strings.NewReader("before")
			tt.after.Tool, tt.after.Text = "after", strings.NewReader("after")
			f.saveExternal(t, tt.before)
			saved, err := f.SaveExternalReport(t.Context(), tt.after, anyReport)
			if errors.Is(err, store.ErrSuperseded) != tt.superseded || !tt.superseded && err != nil {
				t.Fatalf("the error is %v, want superseded: %v", err, tt.superseded)
			}
			want := tt.after
			if tt.superseded {
				want = tt.before
			}
			f.requireText(t, want.ExternalKey, want.Tool)
			if !saved.Time.Equal(want.Time) || saved.Version != want.Version {
				t.Errorf("the result is version %d of %v, want version %d of %v", saved.Version, saved.Time, want.Version, want.Time)
			}
		})
	}
}

// testExternalReportsOfOthers: a report counts in its namespace only, and changes no report of another source, namespace, platform or engine.
func (on suite) testExternalReportsOfOthers(t *testing.T) {
	f := on.newStore(t)
	now := f.clock.Now()
	f.saveCatalogs(t, "web")
	f.use(t, "scanner", "web", workload("web", "web"))
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl"))
	own := got[store.Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web")))

	hostile := vulnerable("CVE-2026-0001", "openssl", exploited, func(f *finding.Finding) { f.Description = "hostile" })
	keys := []store.ExternalKey{externalKey("shop"), externalKey("bank"), externalKey("shop"), externalKey("shop")}
	keys[2].Source, keys[3].Platform = "other", "linux/arm64"
	for _, k := range keys {
		f.saveExternal(t, externalReport(k, now, k.Namespace+k.Source+k.Platform, vulnerable("CVE-2026-0001", "openssl")))
	}
	f.saveExternal(t, externalReport(keys[0], now.Add(time.Second), "hostile", hostile))
	for _, k := range keys[1:] {
		f.requireText(t, k, k.Namespace+k.Source+k.Platform)
	}
	for _, other := range []store.Subject{keys[1].Subject(), keys[2].Subject(), own.Subject} {
		if found := got[[]finding.Finding](t)(f.Findings(t.Context(), other)); len(found) != 1 || found[0].KnownExploited || found[0].Description == "hostile" {
			t.Errorf("%+v has the findings %+v, want what its own report states", other, found)
		}
	}
	equal(t, "the image's own report", got[store.Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web"))), own)
	var names []string
	for _, e := range got[[]store.ExternalState](t)(f.ExternalReports(t.Context(), "shop", key("web").Digest)) {
		names = append(names, e.Source+" "+e.Platform)
	}
	equal(t, "reports of the image in the namespace", names, []string{"ci ", "ci linux/arm64", "other "})
}

// testDeleteExternalReport: a deleted report leaves nothing, and other reports stay.
func (on suite) testDeleteExternalReport(t *testing.T) {
	f := on.newStore(t)
	k, other := externalKey("shop"), externalKey("shop")
	other.Source = "other"
	f.saveExternal(t, externalReport(k, f.clock.Now(), "text", vulnerable("CVE-2026-0001", "openssl")))
	f.saveExternal(t, externalReport(other, f.clock.Now(), "other", vulnerable("CVE-2026-0001", "openssl")))
	must(t, f.DeleteExternalReport(t.Context(), k, anyReport))
	_, err := f.ExternalReport(t.Context(), k)
	requireError(t, err, store.ErrNotFound)
	_, err = f.Findings(t.Context(), k.Subject())
	requireError(t, err, store.ErrNotFound)
	requireError(t, f.DeleteExternalReport(t.Context(), k, anyReport), store.ErrNotFound)
	f.requireText(t, other, "other")
	for _, table := range []string{"external_reports", "reports", "artifacts", "chunks", "findings"} {
		if n := f.count(t, table); n != 1 {
			t.Errorf("%d rows of %s are left, want that of the other report", n, table)
		}
	}
	// Of a deleted report nothing is known any more, not even its time.
	f.saveExternal(t, externalReport(k, f.clock.Now().Add(-time.Hour), "earlier"))
}

// testExternalReportsAreWhole: a report that is refused or cannot be read leaves the former one as it was.
func (on suite) testExternalReportsAreWhole(t *testing.T) {
	f := on.newStore(t)
	k := externalKey("shop")
	f.saveExternal(t, externalReport(k, f.clock.Now(), "first", vulnerable("CVE-2026-0001", "openssl")))
	next := externalReport(k, f.clock.Now().Add(time.Minute), "second", vulnerable("CVE-2026-0002", "zlib"))
	refused := errors.New("refused")
	_, err := f.SaveExternalReport(t.Context(), next, func(before *store.ExternalState) error {
		if before == nil || before.Findings != 1 {
			t.Errorf("the check gets %+v, want the report in the store", before)
		}
		return refused
	})
	requireError(t, err, refused)
	requireError(t, f.DeleteExternalReport(t.Context(), k, func(*store.ExternalState) error { return refused }), refused)

	broken := next
	broken.Text = &brokenReader{Reader: strings.NewReader("sec")}
	_, err = f.SaveExternalReport(t.Context(), broken, anyReport)
	requireError(t, err, errBroken)

	large := next
	large.Budget = 100
	_, err = f.SaveExternalReport(t.Context(), large, anyReport)
	requireError(t, err, store.ErrOverBudget)

	f.requireText(t, k, "first")
	if findings := got[[]finding.Finding](t)(f.Findings(t.Context(), k.Subject())); len(findings) != 1 || findings[0].ID != "CVE-2026-0001" {
		t.Errorf("the findings are %+v, want those of the first report", findings)
	}
	large.Budget = 10_000
	f.saveExternal(t, large)
	if stored := got[int64](t)(f.StoredBytes(t.Context(), "shop")); stored < int64(len("second")) || stored > large.Budget {
		t.Errorf("%d bytes count against the namespace, want those of the report", stored)
	}
}

var errBroken = errors.New("broken")

// brokenReader fails at the end of a text.
type brokenReader struct{ *strings.Reader }

// Read implements io.Reader.
func (r *brokenReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errBroken
	}
	return n, err
}

// testSweepExternalReports: a report is kept while its image runs in its namespace, and for the retention afterwards.
func (on suite) testSweepExternalReports(t *testing.T) {
	f := on.newStore(t)
	k := externalKey("shop")
	exists := func() bool {
		t.Helper()
		got[int](t)(f.Sweep(t.Context(), f.clock.Now().Add(-24*time.Hour)))
		_, err := f.ExternalReport(t.Context(), k)
		if !errors.Is(err, store.ErrNotFound) {
			must(t, err)
		}
		return err == nil
	}
	f.saveExternal(t, externalReport(k, f.clock.Now(), "text", vulnerable("CVE-2026-0001", "openssl")))
	f.saveExternal(t, externalReport(externalKey("bank"), f.clock.Now(), "text", vulnerable("CVE-2026-0001", "openssl")))
	f.use(t, "scanner", "web", workload("web", "web"))
	f.clock.pass(72 * time.Hour)
	if !exists() {
		t.Fatal("the report of an image that runs is gone")
	}
	if n := f.count(t, "external_reports"); n != 1 {
		t.Errorf("%d reports are left, want none of the namespace that does not run the image", n-1)
	}
	must(t, f.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "scanner", Namespace: "shop", Key: key("web")}, false))
	if !exists() {
		t.Fatal("the report is gone at once when its image does not run any more")
	}
	f.clock.pass(25 * time.Hour)
	if exists() {
		t.Error("the report is kept longer than its image")
	}
	if n := f.count(t, "artifacts"); n != 0 {
		t.Errorf("%d texts are left, want none", n)
	}
}

// testFindingsOfExternalReportsThatAreGone: a source cannot fill the store with findings that each report replaces.
func (on suite) testFindingsOfExternalReportsThatAreGone(t *testing.T) {
	const each = maxGoneExternal/2 + 1
	f := on.newStore(t)
	k := externalKey("shop")
	for report := range 4 {
		f.clock.pass(time.Minute)
		findings := make([]finding.Finding, each)
		for i := range findings {
			findings[i] = vulnerable(fmt.Sprintf("CVE-%d-%d", 2000+report, i), "openssl")
		}
		f.saveExternal(t, externalReport(k, f.clock.Now(), fmt.Sprint(report), findings...))
	}
	if n := f.count(t, "findings"); n != each+maxGoneExternal {
		t.Errorf("%d findings are stored, want %d present and %d gone", n, each, maxGoneExternal)
	}
	if n := f.count(t, `findings f JOIN vulnerabilities v ON v.id = f.vulnerability_id WHERE v.canonical_id LIKE 'CVE-2000-%'`); n != 0 {
		t.Errorf("%d findings of the first report are left, want the later ones", n)
	}
}

// testExternalReportsHaveABudget: whatever reports consist of, and whatever they replace, the store grows by little more than the budget of their namespace.
func (on suite) testExternalReportsHaveABudget(t *testing.T) {
	const budget, rounds, each = 4 << 20, 12, 300
	long := func(round, i, bytes int) string {
		return strings.Repeat(fmt.Sprintf("%x ", sha256.Sum256(fmt.Append(nil, round, i))), bytes/65)
	}
	id := func(round, i int) string { return fmt.Sprintf("CVE-%d-%d", 1000+round, i) }
	for name, of := range map[string]func(round int) (source string, made func(i int) finding.Finding){
		"long descriptions": func(round int) (string, func(int) finding.Finding) {
			return "ci", func(i int) finding.Finding {
				return vulnerable(id(round, i), "openssl", func(f *finding.Finding) { f.Description = long(round, i, 60<<10) })
			}
		},
		"URLs of many sources": func(round int) (string, func(int) finding.Finding) {
			return fmt.Sprint("ci-", round), func(i int) finding.Finding {
				return vulnerable(id(0, i), "openssl", func(f *finding.Finding) { f.URL = "https://example.com/" + long(round, i, 1900) })
			}
		},
		"findings that are gone": func(round int) (string, func(int) finding.Finding) {
			return "ci", func(i int) finding.Finding { return vulnerable("CVE-2026-0001", long(round, i, 4<<10)) }
		},
		"other names each time": func(round int) (string, func(int) finding.Finding) {
			return "ci", func(i int) finding.Finding {
				return vulnerable(id(0, i), "openssl", func(f *finding.Finding) {
					for n := range 10 {
						f.Aliases = append(f.Aliases, long(round, 10*i+n, 250))
					}
				})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			before, refused := got[int64](t)(f.database.Size(t.Context(), f.Store)), 0
			for round := range rounds {
				f.clock.pass(time.Minute)
				k := externalKey("shop")
				source, made := of(round)
				k.Source = source
				findings := make([]finding.Finding, each)
				for i := range findings {
					findings[i] = made(i)
				}
				r := externalReport(k, f.clock.Now(), fmt.Sprint(round), findings...)
				r.Budget = budget
				if _, err := f.SaveExternalReport(t.Context(), r, anyReport); errors.Is(err, store.ErrOverBudget) {
					refused++
				} else {
					must(t, err)
				}
			}
			counted := got[int64](t)(f.StoredBytes(t.Context(), "shop"))
			equal(t, "counted in a list", got[map[string]int64](t)(f.StoredByNamespace(t.Context()))["shop"], counted)
			grown := got[int64](t)(f.database.Size(t.Context(), f.Store)) - before
			t.Logf("%d of %d refused, %d KiB counted, %d KiB grown", refused, rounds, counted>>10, grown>>10)
			if refused == 0 || refused == rounds || grown > 4*budget {
				t.Errorf("%d of %d reports were refused, and the database has grown by %d KiB with a budget of %d KiB", refused, rounds, grown>>10, budget>>10)
			}
		})
	}
}

// testWithdrawnReportsTakeNothing: nothing of a withdrawn report is left, also of what it stated about vulnerabilities.
func (on suite) testWithdrawnReportsTakeNothing(t *testing.T) {
	f := on.newStore(t)
	k, other := externalKey("shop"), externalKey("shop")
	other.Digest = digest("index other")
	f.saveExternal(t, externalReport(k, f.clock.Now(), "text", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "openssl")))
	f.saveExternal(t, externalReport(other, f.clock.Now(), "text", vulnerable("CVE-2026-0001", "openssl")))
	must(t, f.DeleteExternalReport(t.Context(), k, anyReport))
	equal(t, "vulnerabilities while the other report has one", f.count(t, "vulnerabilities"), 1)
	must(t, f.DeleteExternalReport(t.Context(), other, anyReport))
	equal(t, "vulnerabilities", f.count(t, "vulnerabilities"), 0)
	equal(t, "stored", got[int64](t)(f.StoredBytes(t.Context(), "shop")), int64(0))
}

// newInSlack returns what the receiver slack has not been notified of, as "change ID".
func (f fixture) newInSlack(t testing.TB, filter store.ChangeFilter) []string {
	t.Helper()
	must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", filter, store.UpdateAll))
	changes, _, err := f.PendingChanges(t.Context(), "scanner", "slack", filter, 0)
	must(t, err)
	var all []string
	for _, c := range changes {
		all = append(all, string(c.Change)+" "+c.Finding.ID)
	}
	return all
}

// announcePending records all that is pending as announced.
func (f fixture) announcePending(t testing.TB, filter store.ChangeFilter) {
	t.Helper()
	changes, _, err := f.PendingChanges(t.Context(), "scanner", "slack", filter, 0)
	must(t, err)
	var announced []store.AnnouncedFinding
	for _, c := range changes {
		announced = append(announced, store.AnnouncedFinding{
			AnnouncementKey: store.AnnouncementKey{Repository: c.Repository, ID: c.Finding.ID, Package: c.Finding.Package.Name},
			Change:          c.Change, Severity: c.Finding.Severity, Fixable: c.Finding.Fixable(), KnownExploited: c.Finding.KnownExploited, Aliases: c.Finding.Aliases,
		})
	}
	must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{MessageID: "message", At: f.clock.Now(), Findings: announced}))
}

// testAnnouncedSources: the findings of a source are announced if the Scanner says so, once for all reports. What is withdrawn is not fixed.
func (on suite) testAnnouncedSources(t *testing.T) {
	f := on.newStore(t)
	filter := store.ChangeFilter{Changes: []diff.Change{diff.ChangeNew, diff.ChangeFixed}, AbsentIsFixedIn: []string{"web"}}
	k := externalKey("shop")
	both, own, theirs := vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "openssl"), vulnerable("CVE-2026-0003", "curl")
	f.saveExternal(t, externalReport(k, f.clock.Now(), "first", both, theirs))
	f.use(t, "scanner", "web", workload("web", "web"))
	must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"ci"}))
	equal(t, "before the engine has a result", f.newInSlack(t, filter), []string{})
	must(t, f.SetAnnouncedSources(t.Context(), "scanner", nil))

	f.running(t, "web", "web", both, own)
	equal(t, "without the source", f.newInSlack(t, filter), []string{"New CVE-2026-0001", "New CVE-2026-0002"})
	f.announcePending(t, filter)
	equal(t, "once it is announced", f.newInSlack(t, filter), []string{})

	must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"ci", "other"}))
	before := f.revision(t)
	must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"other", "ci"}))
	if after := f.revision(t); after != before {
		t.Errorf("the same sources have raised the revision from %d to %d", before, after)
	}
	equal(t, "with the source", f.newInSlack(t, filter), []string{"New CVE-2026-0003"})
	f.announcePending(t, filter)

	for name, withdraw := range map[string]struct{ away, back func() }{
		"a report that is deleted": {
			func() { must(t, f.DeleteExternalReport(t.Context(), k, anyReport)) },
			func() { f.saveExternal(t, externalReport(k, f.clock.Now(), "again", both, theirs)) },
		},
		"a source that is not announced any more": {
			func() { must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"other"})) },
			func() { must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"ci", "other"})) },
		},
	} {
		withdraw.away()
		equal(t, name, f.newInSlack(t, filter), []string{})
		f.clock.pass(time.Hour)
		equal(t, name+", an hour later", f.newInSlack(t, filter), []string{})
		withdraw.back()
		equal(t, name+", and back", f.newInSlack(t, filter), []string{})
	}

	// Two newer reports without the finding prove that it is fixed, as two versions of an engine's data do.
	for minute := range 2 {
		f.clock.pass(time.Minute)
		f.saveExternal(t, externalReport(k, f.clock.Now(), fmt.Sprint("without ", minute), both))
	}
	equal(t, "a finding that two reports lack", f.newInSlack(t, filter), []string{"Fixed CVE-2026-0003"})
	must(t, f.DeleteScanners(t.Context(), []string{"scanner"}))
	if n := f.count(t, "announced_sources"); n != 0 {
		t.Errorf("%d sources are left of a Scanner that is deleted", n)
	}
}

// testAnnouncedReportsCount: an announced report counts where its image runs, until the image or its Scanner is gone. Nobody else learns what it states.
func (on suite) testAnnouncedReportsCount(t *testing.T) {
	f := on.newStore(t)
	k := externalKey("shop")
	f.saveExternal(t, externalReport(k, f.clock.Now(), "first", vulnerable("CVE-2026-0001", "openssl", exploited)))
	inShop, inBlog := store.Sight{Namespaces: []string{"shop"}}, store.Sight{Namespaces: []string{"blog"}}
	image := store.ScannerImage{Scanner: "scanner", Namespace: "shop", Key: key("web")}
	for _, step := range []struct {
		what string
		do   func()
		runs int
	}{
		{"a report of an image that does not run", func() { must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"ci"})) }, 0},
		{"an image that runs", func() { f.use(t, "scanner", "web", workload("web", "web")) }, 1},
		{"an image that is released", func() { must(t, f.ReleaseImage(t.Context(), image, false)) }, 0},
		{"an image that runs again", func() { f.use(t, "scanner", "web", workload("web", "web")) }, 1},
		{"a Scanner that is deleted", func() { must(t, f.DeleteScanners(t.Context(), []string{"scanner"})) }, 0},
	} {
		step.do()
		for _, seen := range []store.Sight{{All: true}, inShop} {
			equal(t, fmt.Sprintf("%s: vulnerabilities in %+v", step.what, seen), len(f.allVulnerabilities(t, seen, store.VulnerabilityFilter{}, 10)), step.runs)
			details := got[store.VulnerabilityDetails](t)(f.Vulnerability(t.Context(), seen, "CVE-2026-0001"))
			equal(t, fmt.Sprintf("%s: details in %+v", step.what, seen), []any{details.Images, details.KnownExploited}, []any{step.runs, step.runs > 0})
		}
		equal(t, step.what+": IDs in another namespace", len(got[store.VulnerabilityDetails](t)(f.Vulnerability(t.Context(), inBlog, "CVE-2026-0001")).IDs), 0)
	}
}

// testSummaryWithAnnouncedReports: what only announced reports have counts once among the findings of an image, in its namespace, and the list of its
// findings has what counts.
func (on suite) testSummaryWithAnnouncedReports(t *testing.T) {
	f := on.newStore(t)
	own, both := vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "openssl")
	f.running(t, "web", "web", own, both)
	for source, severities := range map[string]finding.Severity{"ci": finding.Low, "nightly": finding.Critical, "ignored": finding.Critical} {
		k := externalKey("shop")
		k.Source = source
		theirs := both
		theirs.Package.Version = "of " + source
		found := []finding.Finding{theirs, vulnerable("CVE-2026-0003", "npm-lib", severity(severities), fixed), vulnerable("CVE-2026-0004 of "+source, "npm-lib")}
		f.saveExternal(t, externalReport(k, f.clock.Now(), source, found...))
	}
	elsewhere := externalKey("bank")
	f.saveExternal(t, externalReport(elsewhere, f.clock.Now(), "elsewhere", vulnerable("CVE-2026-0005", "npm-lib")))
	arm := externalKey("shop")
	arm.Platform, arm.Source = "linux/arm64", "nightly"
	f.saveExternal(t, externalReport(arm, f.clock.Now(), "arm", vulnerable("CVE-2026-0006", "npm-lib")))

	suppressing := func(vulnerabilities ...string) exception.Set {
		return exception.NewSet([]exception.Exception{{UID: "x", Namespace: "shop", Vulnerabilities: vulnerabilities}}, f.clock.Now())
	}
	version := func(versions ...string) exception.Set {
		e := exception.Exception{UID: "x", Namespace: "shop", Vulnerabilities: []string{"CVE-2026-0002"}}
		for _, version := range versions {
			e.Packages = append(e.Packages, exception.Package{Name: "openssl", Version: version})
		}
		return exception.NewSet([]exception.Exception{e}, f.clock.Now())
	}
	names := []exception.Image{{Reference: image.Reference{Repository: "web", Tag: "1"}, Digest: key("web").Digest, Namespace: "shop"}}
	for name, test := range map[string]struct {
		sources    []string
		exceptions exception.Set
		high, all  int
		suppressed int
		top        string
	}{
		"no source":                                {nil, exception.Set{}, 2, 2, 0, "CVE-2026-0001"},
		"one source":                               {[]string{"ci"}, exception.Set{}, 3, 4, 0, "CVE-2026-0001"},
		"a source without a report":                {[]string{"other"}, exception.Set{}, 2, 2, 0, "CVE-2026-0001"},
		"two sources, of which one is worse":       {[]string{"ci", "nightly"}, exception.Set{}, 4, 5, 0, "CVE-2026-0003"},
		"an exception for what both have":          {[]string{"ci", "nightly"}, suppressing("CVE-2026-0002"), 3, 4, 1, "CVE-2026-0003"},
		"an exception for what sources have":       {[]string{"ci", "nightly"}, suppressing("CVE-2026-0003"), 4, 4, 1, "CVE-2026-0001"},
		"an exception for the engine's version":    {[]string{"ci", "nightly"}, version(own.Package.Version), 4, 5, 0, "CVE-2026-0003"},
		"an exception for the version of a source": {[]string{"ci", "nightly"}, version("of ci"), 4, 5, 0, "CVE-2026-0003"},
		"an exception for two versions of three":   {[]string{"ci", "nightly"}, version(own.Package.Version, "of ci"), 4, 5, 0, "CVE-2026-0003"},
		"an exception for the versions of all":     {[]string{"ci"}, version(own.Package.Version, "of ci"), 2, 3, 1, "CVE-2026-0001"},
		"an exception for the engine's, no source": {nil, version(own.Package.Version), 1, 1, 1, "CVE-2026-0001"},
		"an exception for all":                     {[]string{"ci"}, exception.NewSet([]exception.Exception{{UID: "x", Namespace: "shop", Packages: []exception.Package{{Name: "*"}}}}, f.clock.Now()), 0, 0, 4, ""},
	} {
		summary := got[store.Summary](t)(f.Summary(t.Context(), subject("web"), store.ImageExceptions{
			Exceptions: test.exceptions, Images: names, Announced: store.AnnouncedReports{Namespace: "shop", Image: key("web"), Sources: test.sources},
		}))
		equal(t, name+": high, all, suppressed", []int{summary.Counts.High, summary.Counts.Total(), summary.Suppressed}, []int{test.high, test.all, test.suppressed})
		top := ""
		if len(summary.Top) > 0 {
			top = summary.Top[0].ID
		}
		equal(t, name+": the worst", top, test.top)
		equal(t, name+": listed", len(summary.Top), test.all)
		excepting := store.ImageExceptions{Exceptions: test.exceptions, Images: names, Announced: store.AnnouncedReports{Namespace: "shop", Image: key("web"), Sources: test.sources}}
		list := func(suppressed *bool) (ids []string) {
			filter := store.FindingFilter{Exceptions: excepting, Suppressed: suppressed}
			for next := (&store.FindingCursor{}); next != nil; {
				page := got[store.FindingPage](t)(f.FindingsPage(t.Context(), subject("web"), filter, *next, 2))
				for _, of := range page.Findings {
					ids = append(ids, of.ID)
					equal(t, name+": "+of.ID+" is of a source", of.Source != "", of.Package.Version != own.Package.Version || of.Package.Name == "npm-lib")
				}
				next = page.Next
			}
			return ids
		}
		open, isSuppressed := false, true
		listed := list(&open)
		equal(t, name+": the list of those that are not suppressed", len(listed), test.all)
		if len(listed) > 0 {
			equal(t, name+": the first of the list", listed[0], test.top)
		}
		equal(t, name+": the list of the suppressed", len(list(&isSuppressed)), test.suppressed)
		equal(t, name+": the list of all", len(list(nil)), test.all+test.suppressed)
	}
}
