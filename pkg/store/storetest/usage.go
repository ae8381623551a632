package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// whoRuns returns the workloads of a Scanner's changes, which show the recorded use.
func (f fixture) whoRuns(t *testing.T, scanner string) []string {
	t.Helper()
	changes, _, err := f.PendingChanges(t.Context(), scanner, "slack", store.ChangeFilter{}, 0)
	must(t, err)
	var names []string
	for _, n := range changes {
		for _, w := range n.Workloads {
			names = append(names, w.Repository+" "+w.Name)
		}
	}
	return names
}

// testUseIsKnownInAnyOrder checks that an image may be used, cataloged and matched in any order.
func (on suite) testUseIsKnownInAnyOrder(t *testing.T) {
	steps := map[string]func(t *testing.T, f fixture){
		"used":      func(t *testing.T, f fixture) { f.use(t, "scanner", "app", workload("api", "r")) },
		"cataloged": func(t *testing.T, f fixture) { f.saveCatalogs(t, "app") },
		"matched":   func(t *testing.T, f fixture) { f.report(t, "app", vulnerable("CVE-2026-0001", "a")) },
	}
	for _, order := range [][3]string{
		{"used", "cataloged", "matched"}, {"used", "matched", "cataloged"}, {"cataloged", "used", "matched"},
		{"cataloged", "matched", "used"}, {"matched", "used", "cataloged"}, {"matched", "cataloged", "used"},
	} {
		f := on.newStore(t)
		for _, step := range order {
			steps[step](t, f)
		}
		if diff := cmp.Diff([]string{"r api"}, f.whoRuns(t, "scanner")); diff != "" {
			t.Errorf("%v: workloads (-want +got):\n%s", order, diff)
		}
	}
}

// testUseByThePlatformDigest checks that pods may report the platform manifest itself, which needs no catalog to be resolved.
func (on suite) testUseByThePlatformDigest(t *testing.T) {
	f := on.newStore(t)
	u := used("scanner", "app", workload("api", "r"))
	u.Key.Digest = digest("app")
	must(t, f.SetUsage(t.Context(), u))
	f.report(t, "app", vulnerable("CVE-2026-0001", "a"))
	equal(t, "who runs it", f.whoRuns(t, "scanner"), []string{"r api"})
}

func (on suite) testSetUsageReplacesWorkloads(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app")
	f.report(t, "app", vulnerable("CVE-2026-0001", "a"))
	api, web, elsewhere := workload("api", "r"), workload("web", "r"), workload("api", "mirror")
	for _, step := range []struct {
		what      string
		workloads []store.Workload
		want      []string
	}{
		{"one", []store.Workload{api}, []string{"r api"}},
		{"several, one given twice", []store.Workload{web, api, web}, []string{"r api", "r web"}},
		{"another repository", []store.Workload{web, elsewhere}, []string{"mirror api", "r web"}},
		{"none", nil, nil},
		{"one again", []store.Workload{api}, []string{"r api"}},
	} {
		f.use(t, "scanner", "app", step.workloads...)
		equal(t, step.what, f.whoRuns(t, "scanner"), step.want)
	}
	must(t, f.ReleaseImage(t.Context(), scannerImage("app"), false))
	equal(t, "released", f.whoRuns(t, "scanner"), []string(nil))
}

// testSetUsageWritesOnlyChanges checks that an unchanged use needs no write transaction, since every reconcile of an image calls
// SetUsage.
func (on suite) testSetUsageWritesOnlyChanges(t *testing.T) {
	f := on.newStore(t)
	f.use(t, "scanner", "app", workload("api", "r"), workload("web", "r"))
	again := used("scanner", "app", workload("web", "r"), workload("api", "r"))
	equal(t, "written of the same use", f.writes(t, func(s *store.Store) error { return s.SetUsage(t.Context(), again) }), false)
	for what, changed := range map[string]func(*store.ImageUsage){
		"a workload":  func(u *store.ImageUsage) { u.Workloads[0].Reference = "r:2" },
		"none":        func(u *store.ImageUsage) { u.Workloads = nil },
		"the scope":   func(u *store.ImageUsage) { u.Scope = "shop" },
		"the engine":  func(u *store.ImageUsage) { u.Engine = "fake" },
		"the scanner": func(u *store.ImageUsage) { u.Scanner = "other" },
	} {
		u := used("scanner", "app", workload("api", "r"), workload("web", "r"))
		changed(&u)
		equal(t, "written when "+what+" is different", f.writes(t, func(s *store.Store) error { return s.SetUsage(t.Context(), u) }), true)
	}
}

func (on suite) testAnUnusedImageKeepsItsScopeAndEngine(t *testing.T) {
	f := on.newStore(t)
	private := catalogOf("app", f.clock.Now())
	private.Scope = "shop"
	must(t, f.SaveCatalog(t.Context(), private, nil))
	u := used("scanner", "app", workload("api", "r"))
	u.Scope = "shop"
	must(t, f.SetUsage(t.Context(), u))
	must(t, f.SetUsage(t.Context(), store.ImageUsage{Scanner: "scanner", Namespace: "shop", Key: key("app"), Engine: "fake"}))
	leases := f.lease(t, "job")
	if len(leases) != 1 || leases[0].Scope != "shop" {
		t.Errorf("lent are %+v, want the image in the scope that it was used in", leases)
	}
	// A new image without workloads gets the given scope and engine.
	must(t, f.SetUsage(t.Context(), store.ImageUsage{Scanner: "scanner", Key: key("other"), Scope: "bank", Engine: "fake"}))
	equal(t, "the other image is used in its scope", got[bool](t)(f.InUse(t.Context(), "fake", key("other"), "bank")), true)
}

func (on suite) testInUse(t *testing.T) {
	f := on.newStore(t)
	for _, scanner := range []string{"a", "b"} {
		f.use(t, scanner, "app", workload("api", "r"))
	}
	private := used("c", "app", workload("api", "r"))
	private.Scope = "shop"
	must(t, f.SetUsage(t.Context(), private))
	f.use(t, "a", "retained")
	equal(t, "images in use, each once per scope", got[int](t)(f.ImagesInUse(t.Context(), grype)), 3)
	equal(t, "images in use with another engine", got[int](t)(f.ImagesInUse(t.Context(), "fake")), 0)
	for _, test := range []struct {
		name  string
		scope store.Scope
		want  bool
	}{{"app", store.Cluster, true}, {"app", "shop", true}, {"app", "bank", false}, {"retained", store.Cluster, true}, {"other", store.Cluster, false}} {
		if used := got[bool](t)(f.InUse(t.Context(), grype, key(test.name), test.scope)); used != test.want {
			t.Errorf("image %q in scope %q is in use: %t, want %t", test.name, test.scope, used, test.want)
		}
	}
	for _, scanner := range []string{"a", "b"} {
		must(t, f.ReleaseImage(t.Context(), store.ScannerImage{Scanner: scanner, Namespace: "shop", Key: key("app")}, false))
	}
	equal(t, "in use once all scanners have released it", got[bool](t)(f.InUse(t.Context(), grype, key("app"), store.Cluster)), false)
}

// testReportAges checks that the report counts that is of the scope and engine that the Scanner has the image with now.
func (on suite) testReportAges(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app", "waiting", "elsewhere")
	for _, name := range []string{"app", "waiting", "not cataloged"} {
		f.use(t, "scanner", name, workload("runs "+name, "r"))
	}
	f.use(t, "other scanner", "elsewhere", workload("web", "r"))
	f.report(t, "app", vulnerable("CVE-2026-0001", "a"))
	f.report(t, "elsewhere")
	current := true
	check := func(what string, want ...string) {
		t.Helper()
		reported := make(map[store.NamespacedImage]store.ReportAge)
		for _, name := range want {
			reported[store.NamespacedImage{Namespace: "shop", Key: key(name)}] = store.ReportAge{MatchedAt: f.clock.Now(), Current: current}
		}
		equal(t, what, got[map[store.NamespacedImage]store.ReportAge](t)(f.ReportAges(t.Context(), "scanner", grype)), reported)
	}
	check("one has a report", "app")
	r := report("app", vulnerable("CVE-2026-0001", "a"))
	r.NotCovered = []string{"debian 7"}
	got[store.Difference](t)(f.SaveReport(t.Context(), r, ""))
	equal(t, "what it does not cover", got[map[store.NamespacedImage][]string](t)(f.ReportGaps(t.Context(), "scanner", grype)),
		map[store.NamespacedImage][]string{{Namespace: "shop", Key: key("app")}: r.NotCovered})
	f.report(t, "waiting")
	check("a report without findings counts", "app", "waiting")
	f.data(t, "v2")
	current = false
	check("an old report counts", "app", "waiting")
	u := used("scanner", "waiting", workload("runs waiting", "r"))
	u.Engine = "fake"
	must(t, f.SetUsage(t.Context(), u))
	check("another engine is to look at it", "app")
	u = used("scanner", "app", workload("runs app", "r"))
	u.Scope = "shop"
	must(t, f.SetUsage(t.Context(), u))
	check("it counts in another scope")
	f.use(t, "scanner", "app", workload("runs app", "r"))
	check("it counts in its scope again", "app")
	must(t, f.ReleaseImage(t.Context(), scannerImage("app"), false))
	check("it is not the Scanner's any more")
}

func (on suite) testDeleteScannersKeepsOthers(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app")
	f.report(t, "app", vulnerable("CVE-2026-0001", "a"))
	for _, scanner := range []string{"kept", "deleted"} {
		f.use(t, scanner, "app", workload("api", "r"))
		must(t, f.RecordAnnouncement(t.Context(), scanner, "slack", store.Announcement{
			Findings: announcedFindings(store.AnnouncementKey{Repository: "r", ID: "CVE-2026-0001", Package: "a"}), State: []byte("state"),
		}))
	}
	equal(t, "scanners", got[[]string](t)(f.Scanners(t.Context())), []string{"deleted", "kept"})
	must(t, f.DeleteScanners(t.Context(), []string{"deleted", "never known"}))
	equal(t, "scanners after one is forgotten", got[[]string](t)(f.Scanners(t.Context())), []string{"kept"})
	f.use(t, "deleted", "app", workload("api", "r")) // a new Scanner
	for scanner, want := range map[string]struct {
		changes      []string
		state        string
		repositories []string
	}{
		"kept":    {nil, "state", []string{"r"}},
		"deleted": {[]string{"r api"}, "", nil},
	} {
		equal(t, scanner+": news", f.whoRuns(t, scanner), want.changes)
		equal(t, scanner+": state", string(got[[]byte](t)(f.ReceiverState(t.Context(), scanner, "slack"))), want.state)
		equal(t, scanner+": repositories", got[[]string](t)(f.KnownRepositories(t.Context(), scanner, "slack")), want.repositories)
	}
	must(t, f.DeleteScanners(t.Context(), nil))
	equal(t, "scanners after none is forgotten", got[[]string](t)(f.Scanners(t.Context())), []string{"deleted", "kept"})
	must(t, f.DeleteScanners(t.Context(), []string{"kept", "deleted"}))
	equal(t, "images in use once no scanner is kept", got[int](t)(f.ImagesInUse(t.Context(), grype)), 0)
}

// testIsNeeded checks that an image that no workload runs, or only for suspended Scanners, is not wanted although it stays in use.
func (on suite) testIsNeeded(t *testing.T) {
	f := on.newStore(t)
	for _, step := range []struct {
		what      string
		scanner   string
		suspended bool
		workloads []store.Workload
		want      bool
	}{
		{"no workload", "first", false, nil, false},
		{"a workload", "first", false, []store.Workload{workload("api", "r")}, true},
		{"suspended", "first", true, []store.Workload{workload("api", "r")}, false},
		{"another Scanner without a workload", "second", false, nil, false},
		{"another Scanner with one", "second", false, []store.Workload{workload("api", "r")}, true},
	} {
		u := used(step.scanner, "app", step.workloads...)
		u.Suspended = step.suspended
		must(t, f.SetUsage(t.Context(), u))
		equal(t, step.what+": wanted", got[bool](t)(f.IsNeeded(t.Context(), grype, u.Key, u.Scope)), step.want)
		equal(t, step.what+": wanted in another scope", got[bool](t)(f.IsNeeded(t.Context(), grype, u.Key, "another")), false)
		equal(t, step.what+": in use", got[bool](t)(f.InUse(t.Context(), grype, u.Key, u.Scope)), true)
	}
}
