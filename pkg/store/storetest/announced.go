package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// everything is a filter of all changes.
func everything(f *store.ChangeFilter) {
	f.Changes = []diff.Change{diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeEscalated, diff.ChangeRegressed, diff.ChangeFixed}
}

func only(changes ...diff.Change) func(*store.ChangeFilter) {
	return func(f *store.ChangeFilter) { f.Changes = append([]diff.Change{}, changes...) }
}

// receiver is the receiver "slack", which is notified of high severity or worse.
type receiver struct {
	fixture
	filter   store.ChangeFilter
	messages int
}

func (on suite) newReceiver(t *testing.T, changes ...func(*store.ChangeFilter)) *receiver {
	f := store.ChangeFilter{MinSeverity: finding.High, Unknown: store.UnknownNever, AbsentIsFixedIn: []string{"r"}}
	for _, change := range append([]func(*store.ChangeFilter){everything}, changes...) {
		change(&f)
	}
	return &receiver{fixture: on.newStore(t), filter: f}
}

// changes returns the changes to announce, in short form.
func (r *receiver) changes(t *testing.T) []string {
	t.Helper()
	must(t, r.UpdateAnnouncements(t.Context(), "scanner", "slack", r.filter, store.UpdateAll))
	pending, total, err := r.PendingChanges(t.Context(), "scanner", "slack", r.filter, 0)
	must(t, err)
	equal(t, "total", total, len(pending))
	var all []string
	for _, n := range pending {
		short := fmt.Sprintf("%s %s %s %s", n.Change, n.Repository, n.Finding.ID, n.Finding.Severity)
		if n.SeverityBefore != n.Finding.Severity {
			short += ", was " + n.SeverityBefore.String()
		}
		if n.ExceptionEnded {
			short += ", was excepted"
		}
		all = append(all, short)
	}
	// Changes beyond the limit are only counted. The total must be the same.
	if len(pending) > 0 {
		_, counted, err := r.PendingChanges(t.Context(), "scanner", "slack", r.filter, 1)
		must(t, err)
		equal(t, "counted", counted, total)
	}
	return all
}

// announce announces all changes.
func (r *receiver) announce(t *testing.T) {
	t.Helper()
	pending, _, err := r.PendingChanges(t.Context(), "scanner", "slack", r.filter, 0)
	must(t, err)
	r.messages++
	announcement := store.Announcement{MessageID: fmt.Sprint(r.messages), LogEntry: &store.Message{Body: []byte("{}")}}
	for _, n := range pending {
		announcement.Findings = append(announcement.Findings, announcedFinding(n))
	}
	must(t, r.RecordAnnouncement(t.Context(), "scanner", "slack", announcement))
}

func announcedFinding(n store.FindingChange) store.AnnouncedFinding {
	f := n.Finding
	return store.AnnouncedFinding{
		AnnouncementKey: store.AnnouncementKey{Repository: n.Repository, ID: f.ID, Package: f.Package.Name},
		Change:          n.Change, Severity: f.Severity, Fixable: f.Fixable(), KnownExploited: f.KnownExploited, Aliases: f.Aliases,
	}
}

// expectChanges checks that there are exactly these changes, announces them, and checks that there are none left.
func (r *receiver) expectChanges(t *testing.T, what string, want ...string) {
	t.Helper()
	equal(t, what, r.changes(t), want)
	r.announce(t)
	equal(t, what+", announced", r.changes(t), []string(nil))
	r.requireNothingToUpdate(t)
}

// requireNothingToUpdate fails the test if UpdateAnnouncements has anything to write when it is called again.
func (r *receiver) requireNothingToUpdate(t *testing.T) {
	t.Helper()
	if r.writes(t, func(s *store.Store) error {
		return s.UpdateAnnouncements(t.Context(), "scanner", "slack", r.filter, store.UpdateAll)
	}) {
		t.Error("UpdateAnnouncements writes when there is nothing to update")
	}
}

// except returns an exception of a vulnerability, in some images if any are named.
func except(id string, images ...string) exception.Set {
	return exception.NewSet([]exception.Exception{{UID: "exception of " + id, Vulnerabilities: []string{id}, Images: images}}, newClock().Now())
}

// testChangesAreAnnounced checks that each change is announced once, and nothing else is.
func (on suite) testChangesAreAnnounced(t *testing.T) {
	const id = "CVE-2026-0001"
	high := vulnerable(id, "a")
	with := func(changes ...func(*finding.Finding)) finding.Finding { return vulnerable(id, "a", changes...) }
	type step struct {
		what     string
		findings []finding.Finding
		want     []string
	}
	for name, test := range map[string]struct {
		filter func(*store.ChangeFilter)
		steps  []step
	}{
		"a fix": {steps: []step{
			{"first", []finding.Finding{high}, []string{"New r CVE-2026-0001 High"}},
			{"fixed version", []finding.Finding{with(fixed)}, []string{"FixAvailable r CVE-2026-0001 High"}},
			{"withdrawn", []finding.Finding{high}, nil},
			{"and back", []finding.Finding{with(fixed)}, nil},
		}},
		"exploited": {steps: []step{
			{"first", []finding.Finding{high}, []string{"New r CVE-2026-0001 High"}},
			{"exploited", []finding.Finding{with(exploited)}, []string{"Escalated r CVE-2026-0001 High"}},
			{"no longer listed", []finding.Finding{high}, nil},
			{"and back", []finding.Finding{with(exploited)}, nil},
		}},
		"exploited and a fix at once": {steps: []step{
			{"first", []finding.Finding{high}, []string{"New r CVE-2026-0001 High"}},
			{"both", []finding.Finding{with(exploited, fixed)}, []string{"Escalated r CVE-2026-0001 High"}},
		}},
		"severity above the threshold": {steps: []step{
			{"first", []finding.Finding{high}, []string{"New r CVE-2026-0001 High"}},
			{"worse", []finding.Finding{with(severity(finding.Critical))}, nil},
			{"less", []finding.Finding{with(severity(finding.Low))}, nil},
			{"worse again", []finding.Finding{high}, nil},
		}},
		"severity reaches the threshold of what was announced": {steps: []step{
			{"passes since exploited", []finding.Finding{with(exploited, severity(finding.Low))}, []string{"New r CVE-2026-0001 Low"}},
			{"reaches it", []finding.Finding{with(exploited)}, []string{"Escalated r CVE-2026-0001 High, was Low"}},
		}},
		"several images": {steps: []step{
			{"first", []finding.Finding{high}, []string{"New r CVE-2026-0001 High"}},
			{"another version beside it", []finding.Finding{high, with(version("2"))}, nil},
			// The announced finding is the worst one, which has no fix.
			{"a fix of that which is less bad", []finding.Finding{with(severity(finding.Critical)), with(version("2"), fixed)}, nil},
			{"a fix of the worst", []finding.Finding{with(severity(finding.Critical), fixed), with(version("2"), fixed)}, []string{"FixAvailable r CVE-2026-0001 Critical, was High"}},
		}},
		"nothing but new ones": {filter: only(diff.ChangeNew), steps: []step{
			{"first", []finding.Finding{high}, []string{"New r CVE-2026-0001 High"}},
			{"a fix and exploited", []finding.Finding{with(fixed, exploited)}, nil},
		}},
		"nothing but fixes": {filter: only(diff.ChangeFixAvailable), steps: []step{
			{"first", []finding.Finding{high}, nil},
			{"exploited", []finding.Finding{with(exploited)}, nil},
			{"a fix", []finding.Finding{with(exploited, fixed)}, []string{"FixAvailable r CVE-2026-0001 High"}},
		}},
		"fixes, at the same time as an escalation that is not announced": {filter: only(diff.ChangeNew, diff.ChangeFixAvailable), steps: []step{
			{"first", []finding.Finding{high}, []string{"New r CVE-2026-0001 High"}},
			{"both", []finding.Finding{with(exploited, fixed)}, []string{"FixAvailable r CVE-2026-0001 High"}},
		}},
		"by default": {filter: func(f *store.ChangeFilter) { f.Changes = nil }, steps: []step{
			{"first", []finding.Finding{high}, []string{"New r CVE-2026-0001 High"}},
			{"a fix", []finding.Finding{with(fixed)}, []string{"FixAvailable r CVE-2026-0001 High"}},
			{"exploited", []finding.Finding{with(fixed, exploited)}, []string{"Escalated r CVE-2026-0001 High"}},
		}},
		"nothing at all": {filter: only(), steps: []step{
			{"first", []finding.Finding{high}, nil},
			{"a fix and exploited", []finding.Finding{with(fixed, exploited)}, nil},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := on.newReceiver(t)
			if test.filter != nil {
				test.filter(&r.filter)
			}
			r.saveCatalogs(t, "app", "beside")
			r.use(t, "scanner", "app", workload("app", "r"))
			r.use(t, "scanner", "beside", workload("app", "r"))
			for _, step := range test.steps {
				r.report(t, "app", step.findings...)
				r.expectChanges(t, step.what, step.want...)
			}
		})
	}
}

// testFixedByARollout checks that a rollout to an image without the finding fixes it, once all images of the repository have a
// result.
func (on suite) testFixedByARollout(t *testing.T) {
	r := on.newReceiver(t)
	r.running(t, "app:1", "r", vulnerable("CVE-2026-0001", "a", aliases("GHSA-1")), vulnerable("CVE-2026-0002", "a"))
	r.expectChanges(t, "first", "New r CVE-2026-0001 High", "New r CVE-2026-0002 High")

	r.running(t, "app:2", "r", vulnerable("CVE-2026-0002", "a", severity(finding.Low)))
	equal(t, "as long as the image before runs", r.changes(t), []string(nil))
	must(t, r.ReleaseImage(t.Context(), scannerImage("app:1"), false))
	settled := r.filter.AbsentIsFixedIn
	r.filter.AbsentIsFixedIn = nil
	equal(t, "as long as an image has no result", r.changes(t), []string(nil))
	r.filter.AbsentIsFixedIn = settled
	must(t, r.UpdateAnnouncements(t.Context(), "scanner", "slack", r.filter, store.UpdateAll))
	pending, _, err := r.PendingChanges(t.Context(), "scanner", "slack", r.filter, 0)
	must(t, err)
	equal(t, "what is fixed", pending, []store.FindingChange{{
		Change: diff.ChangeFixed, Repository: "r", SeverityBefore: finding.High, Workloads: []store.Workload{workload("runs app:2", "r")},
		Finding: finding.Finding{ID: "CVE-2026-0001", Aliases: []string{"GHSA-1"}, Severity: finding.High, Package: finding.Package{Name: "a"}},
	}})
	r.expectChanges(t, "fixed", "Fixed r CVE-2026-0001 High")

	r.use(t, "scanner", "app:1", workload("runs app:1", "r"))
	r.expectChanges(t, "rolled back", "Regressed r CVE-2026-0001 High")
	must(t, r.ReleaseImage(t.Context(), scannerImage("app:1"), false))
	r.expectChanges(t, "fixed again", "Fixed r CVE-2026-0001 High")
}

// testFixedByData checks that a finding is fixed when a second version of the data lacks it too, but never during an anomaly.
func (on suite) testFixedByData(t *testing.T) {
	r := on.newReceiver(t)
	cve := vulnerable("CVE-2026-0001", "a")
	r.saveCatalogs(t, "app")
	r.use(t, "scanner", "app", workload("app", "r"))
	for _, step := range []struct {
		data     string
		findings []finding.Finding
		want     []string
	}{
		{"v1", []finding.Finding{cve}, []string{"New r CVE-2026-0001 High"}},
		{"v2", nil, nil},
		{"v3", []finding.Finding{cve}, nil},
		{"v4", nil, nil},
		{"v4", nil, nil},
		{"v5", nil, []string{"Fixed r CVE-2026-0001 High"}},
		{"v6", []finding.Finding{cve}, []string{"Regressed r CVE-2026-0001 High"}},
	} {
		r.reportBy(t, step.data, "app", step.findings...)
		r.expectChanges(t, "with "+step.data, step.want...)
	}
	many := manyFindings(100, 0)
	for i := range many {
		many[i].Severity, many[i].KnownExploited = finding.Low, false
	}
	r.reportBy(t, "v7", "app", append(many, cve)...)
	r.expectChanges(t, "many more, of low severity")
	r.reportBy(t, "v8", "app")
	r.reportBy(t, "v9", "app")
	if got[*store.DataAnomaly](t)(r.DataAnomaly(t.Context(), "scanner", grype)) == nil {
		t.Fatal("the data has no anomaly")
	}
	r.expectChanges(t, "all is gone at once")
	r.filter.Changes = []diff.Change{diff.ChangeRegressed}
	r.expectChanges(t, "without a word")
	everything(&r.filter)
	r.clock.pass(quarantine + time.Hour)
	r.expectChanges(t, "it did not come back", "Fixed r CVE-2026-0001 High")
}

func (on suite) testARepositoryThatDoesNotRunIsNotFixed(t *testing.T) {
	r := on.newReceiver(t)
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	r.expectChanges(t, "first", "New r CVE-2026-0001 High")
	r.use(t, "scanner", "app")
	r.expectChanges(t, "scaled to nothing")
	r.use(t, "scanner", "app", workload("runs app", "r"))
	r.expectChanges(t, "and back")
}

// testIdleImagesFixNothing checks that an image that nothing runs for a while fixes nothing, unless its workloads run another one.
func (on suite) testIdleImagesFixNothing(t *testing.T) {
	const id = "CVE-2026-0001"
	job := workload("nightly", "r")
	for name, changes := range map[string][]diff.Change{"a receiver of all changes": nil, "a receiver of the default": {diff.ChangeNew, diff.ChangeRegressed}} {
		t.Run(name, func(t *testing.T) {
			r := on.newReceiver(t)
			if changes != nil {
				r.filter.Changes = changes
			}
			r.running(t, "server", "r")
			r.saveCatalogs(t, "job")
			r.use(t, "scanner", "job", job)
			r.report(t, "job", vulnerable(id, "a"))
			r.expectChanges(t, "first", "New r CVE-2026-0001 High")
			for range 3 {
				r.use(t, "scanner", "job")
				r.expectChanges(t, "between two runs")
				r.use(t, "scanner", "job", job)
				r.expectChanges(t, "another run")
			}
			r.use(t, "scanner", "job")
			r.running(t, "job:2", "r")
			r.expectChanges(t, "others run a new one")
			r.use(t, "scanner", "job:2", job)
			want := []string{"Fixed r CVE-2026-0001 High"}
			if changes != nil {
				want = nil
			}
			r.expectChanges(t, "it runs the new one", want...)
			r.use(t, "scanner", "job", job)
			r.expectChanges(t, "and the one before", "Regressed r CVE-2026-0001 High")
		})
	}
	t.Run("for good", func(t *testing.T) {
		r := on.newReceiver(t)
		r.running(t, "server", "r")
		r.running(t, "job", "r", vulnerable(id, "a"))
		r.expectChanges(t, "first", "New r CVE-2026-0001 High")
		r.use(t, "scanner", "job")
		r.expectChanges(t, "it may come back")
		must(t, r.ReleaseImage(t.Context(), scannerImage("job"), false))
		r.expectChanges(t, "it is kept no longer", "Fixed r CVE-2026-0001 High")
	})
}

// testWorkloadsThatGoToAnotherReceiverFixNothing checks that a finding is not fixed when its workloads move to another receiver.
func (on suite) testWorkloadsThatGoToAnotherReceiverFixNothing(t *testing.T) {
	r := on.newReceiver(t)
	r.filter.Route = &store.Route{Receiver: "slack", Known: []string{"slack", "mail"}, Unassigned: true}
	r.running(t, "app:1", "r")
	r.running(t, "app:2", "r", vulnerable("CVE-2026-0001", "a"))
	r.expectChanges(t, "first", "New r CVE-2026-0001 High")
	moved := workload("runs app:2", "r")
	moved.Receivers = "mail"
	r.use(t, "scanner", "app:2", moved)
	r.expectChanges(t, "moved")
	r.use(t, "scanner", "app:2", workload("runs app:2", "r"))
	r.expectChanges(t, "and back")
	r.use(t, "scanner", "app:2", moved)
	r.report(t, "app:2")
	r.expectChanges(t, "missing once")
	r.reportBy(t, "v2", "app:2")
	r.expectChanges(t, "fixed there", "Fixed r CVE-2026-0001 High")
}

// testFixedWithoutNotification checks that a receiver that does not want diff.ChangeFixed is notified when the finding regresses.
func (on suite) testFixedWithoutNotification(t *testing.T) {
	r := on.newReceiver(t, only(diff.ChangeNew, diff.ChangeRegressed))
	r.running(t, "app:1", "r", vulnerable("CVE-2026-0001", "a"))
	r.expectChanges(t, "first", "New r CVE-2026-0001 High")
	must(t, r.ReleaseImage(t.Context(), scannerImage("app:1"), false))
	r.running(t, "app:2", "r")
	r.expectChanges(t, "fixed")
	r.use(t, "scanner", "app:1", workload("runs app:1", "r"))
	r.expectChanges(t, "back", "Regressed r CVE-2026-0001 High")

	r.filter.Changes = []diff.Change{diff.ChangeNew}
	must(t, r.ReleaseImage(t.Context(), scannerImage("app:1"), false))
	r.expectChanges(t, "fixed once more")
	r.use(t, "scanner", "app:1", workload("runs app:1", "r"))
	r.expectChanges(t, "back without a word")
}

// testAnotherIDIsNoChange checks that an announcement still holds under another ID, whichever way the ID changes.
func (on suite) testAnotherIDIsNoChange(t *testing.T) {
	cve, ghsa := "CVE-2026-0001", "GHSA-aaaa"
	for name, test := range map[string]struct{ before, after finding.Finding }{
		"the new one has the old one as an alias": {vulnerable(ghsa, "a"), vulnerable(cve, "a", aliases(ghsa))},
		"the old one had the new one as an alias": {vulnerable(cve, "a", aliases(ghsa)), vulnerable(ghsa, "a")},
		"both":                    {vulnerable(ghsa, "a", aliases(cve)), vulnerable(cve, "a", aliases(ghsa))},
		"below the threshold now": {vulnerable(ghsa, "a"), vulnerable(cve, "a", aliases(ghsa), severity(finding.Low))},
	} {
		t.Run(name, func(t *testing.T) {
			r := on.newReceiver(t)
			r.running(t, "app", "r", test.before)
			r.running(t, "app:2", "r", test.before)
			r.expectChanges(t, "first", "New r "+test.before.ID+" High")
			r.report(t, "app", test.after)
			r.expectChanges(t, "one image has the other id")
			r.report(t, "app:2", test.after)
			r.expectChanges(t, "both have it")
			r.report(t, "app", test.before)
			r.expectChanges(t, "back in one")
			r.report(t, "app:2", test.before)
			r.expectChanges(t, "back in both")
			// There is one record, by the ID that is present.
			equal(t, "known repositories", got[[]string](t)(r.KnownRepositories(t.Context(), "scanner", "slack")), []string{"r"})
			equal(t, "records", r.count(t, "announcements"), 1)
		})
	}
}

// testAnotherIDWithAFix checks that a fix that comes with another ID is a change of the announced finding.
func (on suite) testAnotherIDWithAFix(t *testing.T) {
	r := on.newReceiver(t)
	r.running(t, "app", "r", vulnerable("GHSA-aaaa", "a"))
	r.expectChanges(t, "first", "New r GHSA-aaaa High")
	r.report(t, "app", vulnerable("CVE-2026-0001", "a", aliases("GHSA-aaaa"), fixed))
	r.expectChanges(t, "another id and a fix", "FixAvailable r CVE-2026-0001 High")
}

// testAnAdvisoryInCommonLinksNothing checks that a common advisory does not link two vulnerabilities, since it covers several.
// Neither does an alias in another package.
func (on suite) testAnAdvisoryInCommonLinksNothing(t *testing.T) {
	r := on.newReceiver(t)
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a", aliases("RHSA-2026:1")))
	r.expectChanges(t, "first", "New r CVE-2026-0001 High")
	r.report(t, "app", vulnerable("CVE-2026-0001", "a", aliases("RHSA-2026:1")), vulnerable("CVE-2026-0002", "a", aliases("RHSA-2026:1")),
		vulnerable("CVE-2026-0003", "b", aliases("CVE-2026-0001")))
	r.expectChanges(t, "others", "New r CVE-2026-0002 High", "New r CVE-2026-0003 High")
}

func (on suite) testExceptions(t *testing.T) {
	const id = "CVE-2026-0001"
	start := func(t *testing.T) *receiver {
		r := on.newReceiver(t)
		r.running(t, "app", "r", vulnerable(id, "a"), vulnerable("CVE-2026-0002", "a"))
		r.expectChanges(t, "first", "New r CVE-2026-0001 High", "New r CVE-2026-0002 High")
		r.filter.Exceptions = except(id)
		r.expectChanges(t, "excepted")
		return r
	}
	t.Run("it ends", func(t *testing.T) {
		r := start(t)
		r.report(t, "app", vulnerable(id, "a", exploited, fixed), vulnerable("CVE-2026-0002", "a"))
		r.expectChanges(t, "worse, but excepted")
		r.filter.Exceptions = exception.Set{}
		r.expectChanges(t, "ended", "New r CVE-2026-0001 High, was excepted")
	})
	t.Run("it ends, for a receiver of no new ones", func(t *testing.T) {
		r := start(t)
		r.filter.Changes = []diff.Change{diff.ChangeFixAvailable}
		r.filter.Exceptions = exception.Set{}
		r.expectChanges(t, "ended")
		r.report(t, "app", vulnerable(id, "a", fixed), vulnerable("CVE-2026-0002", "a"))
		r.expectChanges(t, "a fix", "FixAvailable r CVE-2026-0001 High")
	})
	t.Run("what is fixed under an exception is fixed without a word", func(t *testing.T) {
		r := start(t)
		must(t, r.ReleaseImage(t.Context(), scannerImage("app"), false))
		r.running(t, "app:2", "r", vulnerable("CVE-2026-0002", "a"))
		r.expectChanges(t, "fixed")
		r.use(t, "scanner", "app", workload("runs app", "r"))
		r.expectChanges(t, "back under the exception")
		r.filter.Exceptions = exception.Set{}
		r.expectChanges(t, "ended", "New r CVE-2026-0001 High, was excepted")
	})
	t.Run("back after the exception", func(t *testing.T) {
		r := start(t)
		must(t, r.ReleaseImage(t.Context(), scannerImage("app"), false))
		r.running(t, "app:2", "r", vulnerable("CVE-2026-0002", "a"))
		r.expectChanges(t, "fixed")
		r.filter.Exceptions = exception.Set{}
		r.use(t, "scanner", "app", workload("runs app", "r"))
		r.expectChanges(t, "back", "Regressed r CVE-2026-0001 High")
	})
	t.Run("it was fixed, and is back under an exception", func(t *testing.T) {
		r := on.newReceiver(t)
		r.running(t, "app", "r", vulnerable(id, "a"))
		r.expectChanges(t, "first", "New r CVE-2026-0001 High")
		must(t, r.ReleaseImage(t.Context(), scannerImage("app"), false))
		r.running(t, "app:2", "r")
		r.expectChanges(t, "fixed", "Fixed r CVE-2026-0001 High")
		r.filter.Exceptions = except(id)
		r.use(t, "scanner", "app", workload("runs app", "r"))
		r.expectChanges(t, "back")
		must(t, r.ReleaseImage(t.Context(), scannerImage("app"), false))
		r.expectChanges(t, "fixed once more")
		r.filter.Exceptions = exception.Set{}
		r.use(t, "scanner", "app", workload("runs app", "r"))
		r.expectChanges(t, "back without the exception", "Regressed r CVE-2026-0001 High")
	})
	t.Run("never announced", func(t *testing.T) {
		r := on.newReceiver(t)
		r.filter.Exceptions = except(id)
		r.running(t, "app", "r", vulnerable(id, "a"))
		r.expectChanges(t, "excepted from the beginning")
		r.filter.Exceptions = exception.Set{}
		r.expectChanges(t, "ended", "New r CVE-2026-0001 High")
	})
	t.Run("of one image only", func(t *testing.T) {
		r := on.newReceiver(t)
		r.running(t, "app:1", "r", vulnerable(id, "a"))
		other := workload("other", "r")
		other.Reference = "r:2"
		r.saveCatalogs(t, "app:2")
		r.use(t, "scanner", "app:2", other)
		r.report(t, "app:2", vulnerable(id, "a", severity(finding.Critical)))
		r.filter.Exceptions = except(id, "r:2")
		r.expectChanges(t, "the one that is not excepted", "New r CVE-2026-0001 High")
		must(t, r.ReleaseImage(t.Context(), scannerImage("app:1"), false))
		r.expectChanges(t, "the excepted one runs alone")
		r.use(t, "scanner", "app:2", other, workload("another name", "r"))
		r.expectChanges(t, "by another name as well", "New r CVE-2026-0001 Critical, was High, was excepted")
	})
}

func (on suite) testTotalsExcludeSuppressed(t *testing.T) {
	f := on.newStore(t)
	other := workload("other", "r")
	other.Reference = "r:2"
	f.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0001", "a", version("2")), vulnerable("CVE-2026-0002", "a"))
	f.saveCatalogs(t, "app:2")
	f.use(t, "scanner", "app:2", other)
	f.report(t, "app:2", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0003", "a", fixed))
	for what, test := range map[string]struct {
		set  exception.Set
		want store.Totals
	}{
		"nothing":         {exception.Set{}, store.Totals{Counts: finding.Counts{High: 3, Fixable: 1}, ToActOn: 1}},
		"everywhere":      {except("CVE-2026-0001"), store.Totals{Counts: finding.Counts{High: 2, Fixable: 1}, ToActOn: 1, Suppressed: 1, ByException: map[string]int{"exception of CVE-2026-0001": 1}}},
		"in one image":    {except("CVE-2026-0001", "r:1"), store.Totals{Counts: finding.Counts{High: 3, Fixable: 1}, ToActOn: 1}},
		"the fixable one": {except("CVE-2026-0003", "r:2"), store.Totals{Counts: finding.Counts{High: 2}, Suppressed: 1, ByException: map[string]int{"exception of CVE-2026-0003": 1}}},
	} {
		for range 2 {
			equal(t, what, got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", test.set)), test.want)
		}
		present := got[store.Present](t)(f.Present(t.Context(), "scanner", "slack", store.ChangeFilter{Exceptions: test.set}, 5))
		equal(t, what+": present", store.Totals{Counts: present.Counts, Suppressed: present.Suppressed}, store.Totals{Counts: test.want.Counts, Suppressed: test.want.Suppressed})
		equal(t, what+": news", present.NotAnnounced, test.want.Counts.Total())
	}
	names := workload("mirrored", "r")
	names.Reference = "r:3"
	before := got[store.Present](t)(f.Present(t.Context(), "scanner", "slack", store.ChangeFilter{Exceptions: except("CVE-2026-0003", "r:2")}, 5))
	f.use(t, "scanner", "app:2", other, names)
	after := got[store.Present](t)(f.Present(t.Context(), "scanner", "slack", store.ChangeFilter{Exceptions: except("CVE-2026-0003", "r:2")}, 5))
	equal(t, "excepted by one of two names only", after.Suppressed, 0)
	if before.SnapshotID == after.SnapshotID {
		t.Error("it is the same moment though something is not covered any more")
	}
}

func (on suite) testPendingChangesByRoute(t *testing.T) {
	r := on.newReceiver(t)
	ours, theirs := workload("ours", "r"), workload("theirs", "r")
	ours.Receivers, theirs.Receivers = "slack", "mail"
	r.saveCatalogs(t, "app:1", "app:2")
	r.use(t, "scanner", "app:1", ours, theirs)
	r.use(t, "scanner", "app:2", theirs)
	r.report(t, "app:1", vulnerable("CVE-2026-0001", "a"))
	r.report(t, "app:2", vulnerable("CVE-2026-0002", "a"))
	r.filter.Route = &store.Route{Receiver: "slack", Known: []string{"mail", "slack"}}
	present := got[store.Present](t)(r.Present(t.Context(), "scanner", "slack", r.filter, 5))
	equal(t, "counts", present.Counts, finding.Counts{High: 1})
	pending, _, err := r.PendingChanges(t.Context(), "scanner", "slack", r.filter, 0)
	must(t, err)
	if len(pending) != 1 || !slices.Equal(pending[0].Workloads, []store.Workload{ours}) {
		t.Errorf("got %+v, want what ours runs, of ours alone", pending)
	}
	r.expectChanges(t, "by the route", "New r CVE-2026-0001 High")
	r.use(t, "scanner", "app:1", theirs)
	r.expectChanges(t, "nothing of it runs for the receiver")
	r.filter.Route = nil
	r.expectChanges(t, "without a route", "New r CVE-2026-0002 High")
}

// testReceiversOfWorkloads checks that a workload names all receivers that any of its pods name, and that a changed list of
// receivers is recorded.
func (on suite) testReceiversOfWorkloads(t *testing.T) {
	f := on.newStore(t)
	one, two := workload("api", "r"), workload("api", "r")
	one.Receivers, two.Receivers = "mail", "audit,slack"
	f.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"))
	for what, workloads := range map[string][]store.Workload{"audit,mail,slack": {one, two}, "mail": {one}, "": {workload("api", "r")}} {
		f.use(t, "scanner", "app", workloads...)
		pending, _, err := f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 0)
		must(t, err)
		equal(t, "receivers", pending[0].Workloads[0].Receivers, what)
	}
}

// testRecordsOfOlderStores checks records of older stores, which lack the facts at the time of the announcement: no change is
// announced until these are recorded.
func (on suite) testRecordsOfOlderStores(t *testing.T) {
	r := on.newReceiver(t)
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a", aliases("GHSA-1")), vulnerable("CVE-2026-0002", "a", severity(finding.Low)))
	r.expectChanges(t, "first", "New r CVE-2026-0001 High")
	r.exec(t, `
		INSERT INTO announcements (receiver_id, repository, canonical_id, package, digest_id, announced_at) SELECT id, 'r', 'CVE-2026-0002', 'a', '1', 1 FROM receivers`)
	r.exec(t, `UPDATE announcements SET severity = -1, fixable = -1, known_exploited = -1, aliases = ''`)
	r.restart(t)
	r.expectChanges(t, "nothing is claimed")
	r.report(t, "app", vulnerable("CVE-2026-0001", "a", fixed), vulnerable("CVE-2026-0002", "a"))
	r.expectChanges(t, "what changed from then on", "FixAvailable r CVE-2026-0001 High", "Escalated r CVE-2026-0002 High, was Low")
}

// testSummaryIncludesChanges checks that a summary includes changes of announced findings. When the summary is retracted, earlier
// announcements without a change stay.
func (on suite) testSummaryIncludesChanges(t *testing.T) {
	r := on.newReceiver(t)
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	r.expectChanges(t, "first", "New r CVE-2026-0001 High", "New r CVE-2026-0002 High")
	r.report(t, "app", vulnerable("CVE-2026-0001", "a", fixed), vulnerable("CVE-2026-0002", "a"), vulnerable("CVE-2026-0003", "a"))
	present := got[store.Present](t)(r.Present(t.Context(), "scanner", "slack", r.filter, 5))
	equal(t, "news of the summary", present.NotAnnounced, 2)
	must(t, r.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{MessageID: "summary", Snapshot: &store.FilteredSnapshot{Filter: r.filter, SnapshotID: present.SnapshotID}}))
	r.expectChanges(t, "after the summary")
	must(t, r.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{Retract: "summary"}))
	r.expectChanges(t, "taken back", "New r CVE-2026-0001 High", "New r CVE-2026-0003 High")
}

// testResetRepositoriesDropsAbsentFindings checks that what another engine does not find is not fixed, and is
// new when it is found again.
func (on suite) testResetRepositoriesDropsAbsentFindings(t *testing.T) {
	r := on.newReceiver(t)
	r.filter.AbsentIsFixedIn = []string{"r", "gone"}
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	r.running(t, "gone", "gone", vulnerable("CVE-2026-0003", "a"))
	r.expectChanges(t, "first", "New gone CVE-2026-0003 High", "New r CVE-2026-0001 High", "New r CVE-2026-0002 High")
	u := used("scanner", "app", workload("runs app", "r"))
	u.Engine = "fake"
	must(t, r.SetUsage(t.Context(), u))
	r.use(t, "scanner", "gone")
	other := report("app", vulnerable("CVE-2026-0002", "a", severity(finding.Low)))
	other.Engine = "fake"
	got[store.Difference](t)(r.SaveReport(t.Context(), other, ""))
	r.filter.Engine = "fake"
	present := got[store.Present](t)(r.Present(t.Context(), "scanner", "slack", r.filter, 5))
	must(t, r.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{MessageID: "2", Snapshot: &store.FilteredSnapshot{Filter: r.filter, SnapshotID: present.SnapshotID}, ResetRepositories: true}))
	r.expectChanges(t, "after the summary")
	r.use(t, "scanner", "gone", workload("runs gone", "gone"))
	r.filter.Engine = ""
	r.expectChanges(t, "what was forgotten", "New gone CVE-2026-0003 High")
}

// testDeleteAbsent checks that in the named repositories only what the other engine does not find is forgotten. A repository without a result by
// that engine keeps its records.
func (on suite) testDeleteAbsent(t *testing.T) {
	r := on.newReceiver(t)
	r.filter.AbsentIsFixedIn = []string{"r"}
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	r.running(t, "gone", "gone", vulnerable("CVE-2026-0004", "a"))
	r.expectChanges(t, "first", "New gone CVE-2026-0004 High", "New r CVE-2026-0001 High", "New r CVE-2026-0002 High")
	u := used("scanner", "app", workload("runs app", "r"))
	u.Engine = "fake"
	must(t, r.SetUsage(t.Context(), u))
	r.use(t, "scanner", "gone")
	other := report("app", vulnerable("CVE-2026-0002", "a"), vulnerable("CVE-2026-0003", "a"))
	other.Engine = "fake"
	got[store.Difference](t)(r.SaveReport(t.Context(), other, ""))
	r.filter.Engine = "fake"
	forget := func(repositories ...string) {
		t.Helper()
		must(t, r.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{DeleteAbsent: &store.AbsentFindings{Filter: r.filter, Repositories: repositories, Until: r.clock.Now()}}))
	}
	records := func() int {
		t.Helper()
		return r.count(t, "announcements")
	}
	forget()
	equal(t, "records, no repository being named", records(), 3)
	forget("gone", "r")
	equal(t, "records", records(), 2)
	equal(t, "recorded repositories", got[[]string](t)(r.RecordedRepositories(t.Context(), "scanner", "slack")), []string{"gone", "r"})
	equal(t, "those of another receiver", got[[]string](t)(r.RecordedRepositories(t.Context(), "scanner", "mail")), []string(nil))
	equal(t, "the latest record of another receiver", got[time.Time](t)(r.LatestRecord(t.Context(), "scanner", "mail")), time.Time{})
	equal(t, "known repositories", got[[]string](t)(r.KnownRepositories(t.Context(), "scanner", "slack")), []string{"gone", "r"})
	r.expectChanges(t, "after the change", "New r CVE-2026-0003 High")
	r.use(t, "scanner", "gone", workload("runs gone", "gone"))
	r.filter.Engine = ""
	r.expectChanges(t, "what was kept")
}

// What another engine finds by another id stays announced, also below the filter, and what it does not find is not fixed by that.
func (on suite) testUpdateKnown(t *testing.T) {
	r := on.newReceiver(t)
	r.running(t, "app", "r", vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	r.expectChanges(t, "first", "New r CVE-2026-0001 High", "New r CVE-2026-0002 High")
	u := used("scanner", "app", workload("runs app", "r"))
	u.Engine = "fake"
	must(t, r.SetUsage(t.Context(), u))
	byOther := func(data string, findings ...finding.Finding) {
		other := report("app", findings...)
		other.Engine, other.DataVersion = "fake", data
		got[store.Difference](t)(r.SaveReport(t.Context(), other, ""))
	}
	byOther("v1", vulnerable("GHSA-aaaa", "a", aliases("CVE-2026-0001"), severity(finding.Low)))
	r.filter.Engine = "fake"
	must(t, r.UpdateAnnouncements(t.Context(), "scanner", "slack", r.filter, store.UpdateKnown))
	present := got[store.Present](t)(r.Present(t.Context(), "scanner", "slack", r.filter, 5))
	must(t, r.RecordAnnouncement(t.Context(), "scanner", "slack", store.Announcement{MessageID: "2", Snapshot: &store.FilteredSnapshot{Filter: r.filter, SnapshotID: present.SnapshotID}, ResetRepositories: true}))
	r.expectChanges(t, "after the summary")
	byOther("v2")
	byOther("v3")
	r.expectChanges(t, "what is fixed", "Fixed r GHSA-aaaa High")
}

func (on suite) testMessages(t *testing.T) {
	f := on.newStore(t)
	say := func(receiver string, n int) {
		must(t, f.RecordAnnouncement(t.Context(), "scanner", receiver, store.Announcement{
			MessageID: fmt.Sprint(n), LogEntry: &store.Message{Kind: "News", Title: fmt.Sprint("message ", n), Findings: n, Unconfirmed: n == 4, Body: []byte(`{"text":"` + fmt.Sprint(n) + `"}`)},
		}))
		f.clock.pass(time.Minute)
	}
	start := f.clock.Now()
	for n := range 5 {
		say([]string{"slack", "mail"}[n%2], n)
	}
	say("slack", 4) // a second time
	titles := func(receiver string, before int64, limit int) (titles []string) {
		for _, m := range got[[]store.Message](t)(f.Messages(t.Context(), "scanner", receiver, before, limit)) {
			titles = append(titles, m.Title)
		}
		return titles
	}
	all := got[[]store.Message](t)(f.Messages(t.Context(), "scanner", "", 0, 2))
	equal(t, "the latest", all, []store.Message{
		{ID: 5, Scanner: "scanner", Receiver: "slack", MessageID: "4", Kind: "News", Title: "message 4", Findings: 4, At: start.Add(4 * time.Minute), Unconfirmed: true, Body: []byte(`{"text":"4"}`)},
		{ID: 4, Scanner: "scanner", Receiver: "mail", MessageID: "3", Kind: "News", Title: "message 3", Findings: 3, At: start.Add(3 * time.Minute), Unconfirmed: false, Body: []byte(`{"text":"3"}`)},
	})
	equal(t, "those before", titles("", all[1].ID, 10), []string{"message 2", "message 1", "message 0"})
	equal(t, "those to one receiver", titles("mail", 0, 10), []string{"message 3", "message 1"})
	must(t, f.RetainReceivers(t.Context(), "scanner", []string{"mail"}))
	equal(t, "those to a receiver that is gone", titles("slack", 0, 10), []string{"message 4", "message 2", "message 0"})
	equal(t, "swept", got[int](t)(f.SweepMessages(t.Context(), start.Add(2*time.Minute))), 2)
	equal(t, "what is left", titles("", 0, 10), []string{"message 4", "message 3", "message 2"})
	must(t, f.DeleteScanners(t.Context(), []string{"scanner"}))
	equal(t, "those of a scanner that is gone", titles("", 0, 10), []string(nil))
}

func (on suite) testTheLogOfAReceiverIsBounded(t *testing.T) {
	f := on.newStore(t)
	for n := range store.MaxMessages + 3 {
		must(t, f.RecordAnnouncement(t.Context(), "scanner", []string{"slack", "mail"}[number(n == 0)], store.Announcement{MessageID: fmt.Sprint(n), LogEntry: &store.Message{Title: fmt.Sprint(n)}}))
	}
	messages := got[[]store.Message](t)(f.Messages(t.Context(), "scanner", "slack", 0, 2*store.MaxMessages))
	equal(t, "messages", len(messages), store.MaxMessages)
	equal(t, "the oldest", messages[len(messages)-1].Title, "3")
	equal(t, "those to another", len(got[[]store.Message](t)(f.Messages(t.Context(), "scanner", "mail", 0, 10))), 1)
}

// testReturnedNamespaceRunsKnownImages checks that a finding is fixed when the namespace that left with it is back without it, even if another
// namespace ran the namespace's new image all the time. The finding regresses when it comes back later.
func (on suite) testReturnedNamespaceRunsKnownImages(t *testing.T) {
	r := on.newReceiver(t)
	runs := func(namespace, name string) {
		t.Helper()
		w := workload("web", "r")
		w.Namespace = namespace
		must(t, r.SetUsage(t.Context(), store.ImageUsage{Scanner: "scanner", Namespace: namespace, Key: key(name), Engine: grype, Workloads: []store.Workload{w}}))
	}
	r.saveCatalogs(t, "app:1", "app:2")
	r.report(t, "app:1", vulnerable("CVE-2026-0001", "a"))
	r.report(t, "app:2")
	runs("shop", "app:1")
	runs("blog", "app:2")
	r.expectChanges(t, "first", "New r CVE-2026-0001 High")
	must(t, r.ReleaseImage(t.Context(), scannerImage("app:1"), true))
	r.expectChanges(t, "the namespace left")
	r.changes(t) // the repository is quiet
	runs("shop", "app:2")
	equal(t, "the namespace is back", r.changes(t), []string(nil))
	r.report(t, "app:2", vulnerable("CVE-2026-0001", "a"))
	r.expectChanges(t, "the finding is back", "Regressed r CVE-2026-0001 High")
}

// testNamespaceLeavesDuringRollout checks that what an image had is not fixed when a rollout has replaced it, the new image has no report, and the
// namespace leaves.
func (on suite) testNamespaceLeavesDuringRollout(t *testing.T) {
	r := on.newReceiver(t)
	runs := func(namespace, name string, is bool) {
		t.Helper()
		usage := store.ImageUsage{Scanner: "scanner", Namespace: namespace, Key: key(name), Engine: grype}
		if is {
			w := workload("web", "r")
			w.Namespace = namespace
			usage.Workloads = []store.Workload{w}
		}
		must(t, r.SetUsage(t.Context(), usage))
	}
	r.saveCatalogs(t, "app:1", "app:3")
	r.report(t, "app:1", vulnerable("CVE-2026-0001", "a"))
	r.report(t, "app:3")
	runs("shop", "app:1", true)
	runs("blog", "app:3", true)
	r.expectChanges(t, "first", "New r CVE-2026-0001 High")
	runs("shop", "app:2", true)
	runs("shop", "app:1", false)
	must(t, r.ReleaseImage(t.Context(), scannerImage("app:2"), true))
	must(t, r.ReleaseImage(t.Context(), scannerImage("app:1"), true))
	r.expectChanges(t, "the namespace left")
}
