package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// sourceReports saves a report of a source about an image.
func (f fixture) sourceReports(t testing.TB, source, name string, findings ...finding.Finding) {
	t.Helper()
	k := store.ExternalKey{Namespace: "shop", Digest: key(name).Digest, Source: source}
	f.clock.pass(time.Minute)
	f.saveExternal(t, externalReport(k, f.clock.Now(), fmt.Sprint(source, " ", name, f.clock.Now()), findings...))
}

// replace rolls out a scanned image of the repository web in the place of another.
func (f fixture) replace(t testing.TB, name, next string, findings ...finding.Finding) {
	t.Helper()
	f.saveCatalogs(t, next)
	f.use(t, "scanner", next, workload("runs web", "web"))
	f.use(t, "scanner", name)
	f.report(t, next, findings...)
}

// testAbsenceOfWhatASourceKnew: a finding that an announced source knew is fixed when the source has reported on each image of the repository. Findings
// that only the engine knew do not wait for a source.
func (on suite) testAbsenceOfWhatASourceKnew(t *testing.T) {
	own, both, theirs := vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "openssl"), vulnerable("CVE-2026-0003", "curl")
	const fixedOwn, fixedBoth, fixedTheirs = "Fixed CVE-2026-0001", "Fixed CVE-2026-0002", "Fixed CVE-2026-0003"
	filter := store.ChangeFilter{Changes: []diff.Change{diff.ChangeNew, diff.ChangeRegressed, diff.ChangeFixed}, AbsentIsFixedIn: []string{"web"}}
	update := func(extent store.UpdateExtent) func(*testing.T, fixture) {
		return func(t *testing.T, f fixture) {
			must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", filter, extent))
		}
	}
	rollout := func(t *testing.T, f fixture) { f.replace(t, "web", "next") }
	for name, test := range map[string]struct {
		update func(*testing.T, fixture) // after the announcement
		change func(*testing.T, fixture)
		route  *store.Route
		want   []string
	}{
		"no report about the new image":      {update(store.UpdateAll), rollout, nil, []string{fixedOwn}},
		"while a summary waits":              {update(store.UpdateKnown), rollout, nil, []string{fixedOwn}},
		"while a message is on its way":      {update(store.UpdateSuppressed), rollout, nil, []string{fixedOwn}},
		"replaced before who knows is noted": {func(*testing.T, fixture) {}, rollout, nil, []string{}},
		"a report about the new image": {update(store.UpdateAll), func(t *testing.T, f fixture) {
			rollout(t, f)
			f.sourceReports(t, "ci", "next")
		}, nil, []string{fixedOwn, fixedBoth, fixedTheirs}},
		"a report about another platform of the new image": {update(store.UpdateAll), func(t *testing.T, f fixture) {
			rollout(t, f)
			f.saveExternal(t, externalReport(store.ExternalKey{Namespace: "shop", Digest: key("next").Digest, Platform: "linux/arm64", Source: "ci"}, f.clock.Now(), "arm"))
		}, nil, []string{fixedOwn}},
		"a late report that has one": {update(store.UpdateAll), func(t *testing.T, f fixture) {
			rollout(t, f)
			equal(t, "before it", f.newInSlack(t, filter), []string{fixedOwn})
			f.sourceReports(t, "ci", "next", theirs)
		}, nil, []string{fixedOwn, fixedBoth}},
		"the engine has one in the new image for some time": {update(store.UpdateAll), func(t *testing.T, f fixture) {
			f.replace(t, "web", "next", own, both)
			equal(t, "meanwhile", f.newInSlack(t, filter), []string{})
			for _, data := range []string{"v2", "v3"} {
				r := report("next")
				r.DataVersion = data
				got[store.Difference](t)(f.SaveReport(t.Context(), r, ""))
			}
		}, nil, []string{fixedOwn}},
		"the source is not announced any more": {update(store.UpdateAll), func(t *testing.T, f fixture) {
			rollout(t, f)
			must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"other"}))
		}, nil, []string{fixedOwn}},
		"no source is announced any more": {update(store.UpdateAll), func(t *testing.T, f fixture) {
			must(t, f.SetAnnouncedSources(t.Context(), "scanner", nil))
			equal(t, "meanwhile", f.newInSlack(t, filter), []string{})
			rollout(t, f)
		}, nil, []string{fixedOwn, fixedBoth}},
		"another source is announced, and then none": {update(store.UpdateAll), func(t *testing.T, f fixture) {
			must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"other"}))
			must(t, f.SetAnnouncedSources(t.Context(), "scanner", nil))
			equal(t, "meanwhile", f.newInSlack(t, filter), []string{})
			rollout(t, f)
		}, nil, []string{fixedOwn, fixedBoth}},
		"a source that knows one joins": {update(store.UpdateAll), func(t *testing.T, f fixture) {
			f.sourceReports(t, "other", "web", own)
			equal(t, "meanwhile", f.newInSlack(t, filter), []string{})
			rollout(t, f)
			f.sourceReports(t, "ci", "next")
		}, nil, []string{fixedBoth, fixedTheirs}},
		"no report about another image": {update(store.UpdateAll), func(t *testing.T, f fixture) {
			f.running(t, "beside", "web")
			rollout(t, f)
			f.sourceReports(t, "ci", "next")
		}, nil, []string{fixedOwn}},
		"no report about an image that concerns others": {update(store.UpdateAll), func(t *testing.T, f fixture) {
			f.runningIn(t, "scanner", "bank", "beside", "web", grype)
			rollout(t, f)
			f.sourceReports(t, "ci", "next")
		}, &store.Route{All: true, Namespaces: map[string]bool{"shop": true}}, []string{fixedOwn, fixedBoth, fixedTheirs}},
	} {
		t.Run(name, func(t *testing.T) {
			f, filter := on.newStore(t), filter
			filter.Route = test.route
			must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"ci", "other"}))
			f.running(t, "web", "web", own, both)
			f.sourceReports(t, "ci", "web", both, theirs)
			equal(t, "new", len(f.newInSlack(t, filter)), 3)
			f.announcePending(t, filter)
			test.update(t, f)
			test.change(t, f)
			for range 2 {
				equal(t, "pending", f.newInSlack(t, filter), test.want)
			}
			filter.Changes = []diff.Change{diff.ChangeRegressed}
			must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", filter, store.UpdateAll))
			equal(t, "recorded as fixed without a message", f.count(t, "announcements WHERE fixed_at IS NOT NULL"), len(test.want))
		})
	}
}

// testSourcesOfAnnouncedAgain: what a message says about a finding does not change who knew it.
func (on suite) testSourcesOfAnnouncedAgain(t *testing.T) {
	own, both := vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "openssl")
	filter := store.ChangeFilter{
		Changes:         []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeEscalated, diff.ChangeRegressed, diff.ChangeFixed},
		AbsentIsFixedIn: []string{"web"},
	}
	snapshot := func(t *testing.T, f fixture) {
		of := filter
		of.Changes = nil
		present := got[store.Present](t)(f.Present(t.Context(), "scanner", "slack", of, 10))
		must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{
			MessageID: "summary", At: f.clock.Now(), Snapshot: &store.FilteredSnapshot{Filter: of, SnapshotID: present.SnapshotID},
		}))
	}
	pending := func(t *testing.T, f fixture) { f.announcePending(t, filter) }
	for name, test := range map[string]struct {
		next     func(*finding.Finding)
		announce func(*testing.T, fixture)
	}{
		"by a message about its fix":    {fixed, pending},
		"by a message that it is worse": {exploited, pending},
		"by a summary":                  {exploited, snapshot},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"ci"}))
			f.running(t, "web", "web", own, both)
			f.sourceReports(t, "ci", "web", both)
			equal(t, "new", len(f.newInSlack(t, filter)), 2)
			f.announcePending(t, filter)
			equal(t, "pending after the announcement", f.newInSlack(t, filter), []string{})

			own, both := own, both
			test.next(&own)
			test.next(&both)
			f.replace(t, "web", "next", own, both)
			equal(t, "pending", len(f.newInSlack(t, filter)), 2)
			test.announce(t, f)
			equal(t, "pending after the second announcement", f.newInSlack(t, filter), []string{})

			f.replace(t, "next", "third")
			for range 2 {
				equal(t, "pending without a report of the source about the third image", f.newInSlack(t, filter), []string{"Fixed CVE-2026-0001"})
			}
			f.sourceReports(t, "ci", "third")
			equal(t, "pending with it", f.newInSlack(t, filter), []string{"Fixed CVE-2026-0001", "Fixed CVE-2026-0002"})
			f.announcePending(t, filter)

			// What is back is known by those that have it now.
			f.replace(t, "third", "fourth", own, both)
			f.sourceReports(t, "ci", "fourth", own)
			equal(t, "pending when both are back", len(f.newInSlack(t, filter)), 2)
			f.announcePending(t, filter)
			equal(t, "pending after that", f.newInSlack(t, filter), []string{})
			f.replace(t, "fourth", "fifth")
			equal(t, "pending without a report about the fifth image", f.newInSlack(t, filter), []string{"Fixed CVE-2026-0002"})
		})
	}
}

// testWorkloadEvidence checks what is known about findings in the images of a workload, for alerts.
func (on suite) testWorkloadEvidence(t *testing.T) {
	own, theirs, unsure := vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0003", "curl"), vulnerable("CVE-2026-0004", "curl")
	f := on.newStore(t)
	must(t, f.SetAnnouncedSources(t.Context(), "scanner", []string{"ci", "other"}))
	f.running(t, "web", "web", own, unsure)
	lacks := report("web", own)
	lacks.DataVersion, lacks.NotCovered = "v2", []string{"npm", "debian 7"}
	got[store.Difference](t)(f.SaveReport(t.Context(), lacks, ""))
	f.sourceReports(t, "ci", "web", theirs, own)
	f.use(t, "scanner", "not scanned", workload("runs not scanned", "web"))
	f.use(t, "scanner", "left", workload("runs left", "web"))
	f.use(t, "scanner", "left")

	subject := func(workload string, of finding.Finding) store.WorkloadSubject {
		return store.WorkloadSubject{Namespace: "shop", Kind: "Deployment", Name: "runs " + workload, Repository: "web", ID: of.ID, Package: of.Package.Name}
	}
	subjects := []store.WorkloadSubject{
		subject("web", own), subject("web", theirs), subject("web", unsure), subject("web", vulnerable("CVE-2026-0001", "curl")), subject("not scanned", own),
		subject("left", own), subject("unknown", own),
	}
	type known struct {
		runs bool
		evidence.Facts
		sources, silent []string
	}
	read := func(engine string, route *store.Route) (all []known) {
		for _, of := range got[[]store.WorkloadFacts](t)(f.WorkloadEvidence(t.Context(), "scanner", engine, route, subjects)) {
			all = append(all, known{of.Runs, of.Facts, of.Sources, of.Silent})
		}
		return all
	}
	compare := func(what string, got, want []known) {
		t.Helper()
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(known{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	ci, other, both := []string{"ci"}, []string{"other"}, []string{"ci", "other"}
	trusted := evidence.Facts{DataTrusted: true}
	compare("the facts", read(grype, nil), []known{
		{true, evidence.Facts{Present: true, Complete: true, DataTrusted: true}, ci, other},
		{true, evidence.Facts{Present: true, Complete: true, DataTrusted: true}, ci, other},
		{true, evidence.Facts{Unconfirmed: true, Complete: true, DataTrusted: true}, nil, other},
		{true, evidence.Facts{Complete: true, DataTrusted: true}, nil, other},
		{true, trusted, nil, both},
		{Facts: trusted},
		{Facts: trusted},
	})
	compare("of another engine, the facts of the first", read(clair, nil)[:1], []known{{true, evidence.Facts{Present: true, DataTrusted: true}, ci, other}})
	compare("of what concerns others, the facts of the first", read(grype, &store.Route{All: true, Namespaces: map[string]bool{"bank": true}})[:1], []known{{Facts: trusted}})

	absent := func(what string, workload string, want evidence.Facts) {
		t.Helper()
		absence := got[store.WorkloadFacts](t)(f.WorkloadAbsence(t.Context(), "scanner", "shop", "Deployment", "runs "+workload))
		compare(what, []known{{absence.Runs, absence.Facts, absence.Sources, absence.Silent}}, []known{{Facts: want, sources: ci, silent: other}})
	}
	unconfirmed := evidence.Facts{Unconfirmed: true, DataTrusted: true}
	absent("the absence of others from a workload", "web", unconfirmed)
	gaps := got[store.WorkloadFacts](t)(f.WorkloadAbsence(t.Context(), "scanner", "shop", "Deployment", "runs web")).Gaps
	equal(t, "what the reports about the workload do not cover", gaps, []string{"debian 7", "npm"})

	f.running(t, "confirmed", "web")
	f.sourceReports(t, "ci", "confirmed", theirs)
	absent("while the source has it", "confirmed", trusted)
	f.sourceReports(t, "ci", "confirmed")
	absent("when one report of the source lacks it", "confirmed", unconfirmed)
	f.sourceReports(t, "ci", "confirmed")
	absent("when two lack it", "confirmed", trusted)
	f.sourceReports(t, "not announced", "confirmed", theirs)
	f.sourceReports(t, "not announced", "confirmed")
	absent("when one report of another source lacks what it had", "confirmed", trusted)
}

// testAbsenceBesideAGap: while the packages of distributions are not known, findings in other packages can be fixed, if no package of a distribution had them.
// What a record has of that follows its finding.
func (on suite) testAbsenceBesideAGap(t *testing.T) {
	ofType := func(kind string) func(*finding.Finding) { return func(f *finding.Finding) { f.Package.Type = kind } }
	npm, deb := vulnerable("CVE-2026-0001", "lodash", ofType("npm")), vulnerable("CVE-2026-0002", "zlib")
	binary := vulnerable("CVE-2026-0003", "openssl", ofType("binary"), func(f *finding.Finding) { f.Package.PURL = "pkg:generic/openssl@1.0" })
	both := vulnerable("CVE-2026-0003", "openssl")
	filter := store.ChangeFilter{Changes: []diff.Change{diff.ChangeNew, diff.ChangeFixed}, AbsentIsFixedIn: []string{"web"}}
	withGap := filter
	withGap.OSPackagesUnknownIn = []string{"web"}
	all := []string{"Fixed CVE-2026-0001", "Fixed CVE-2026-0002", "Fixed CVE-2026-0003"}
	for name, test := range map[string]struct {
		updates []store.ChangeFilter // with more packages that have the finding before each but the first
		after   store.ChangeFilter
		want    []string
	}{
		"no gap":                              {[]store.ChangeFilter{filter}, filter, all},
		"a gap":                               {[]store.ChangeFilter{withGap}, withGap, []string{all[0], all[2]}},
		"a gap, and another package":          {[]store.ChangeFilter{withGap, withGap}, withGap, all[:1]},
		"a gap that ended, and began again":   {[]store.ChangeFilter{withGap, filter}, withGap, []string{}},
		"a gap that began with the rollout":   {[]store.ChangeFilter{filter}, withGap, []string{}},
		"a gap that ended with the rollout":   {[]store.ChangeFilter{withGap}, filter, all},
		"a gap while a message is on its way": {nil, withGap, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			f.saveCatalogs(t, "web")
			f.use(t, "scanner", "web", workload("runs web", "web"))
			f.report(t, "web", npm, deb, binary)
			must(t, f.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{MessageID: "m", Findings: announcedFindings(
				announcementKey("web", npm.ID, "lodash"), announcementKey("web", deb.ID, "zlib"), announcementKey("web", binary.ID, "openssl"),
			)}))
			for i, update := range test.updates {
				if i > 0 {
					f.report(t, "web", npm, deb, binary, both)
				}
				must(t, f.UpdateAnnouncements(t.Context(), "scanner", "slack", update, store.UpdateAll))
			}
			f.replace(t, "web", "next")
			pending, _, err := f.PendingChanges(t.Context(), "scanner", "slack", test.after, 0)
			must(t, err)
			changes := []string{}
			for _, p := range pending {
				changes = append(changes, fmt.Sprint(p.Change, " ", p.Finding.ID))
			}
			equal(t, "changes", changes, test.want)
		})
	}
}
