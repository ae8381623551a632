package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// nightly is a workload whose pods are meant to end.
func nightly(name, repository string) store.Workload {
	w := workload(name, repository)
	w.Kind, w.Completes = "CronJob", true
	return w
}

// testRecentUse checks what is announced of an image whose pods have ended, and until when.
func (on suite) testRecentUse(t *testing.T) {
	job, web := nightly("job", "r"), workload("web", "r")
	day := 24 * time.Hour
	ended := func(w store.Workload, ago time.Duration) func(*store.ImageUsage, time.Time) {
		return func(u *store.ImageUsage, now time.Time) {
			u.Ended = append(u.Ended, store.EndedWorkload{Workload: w, At: now.Add(-ago)})
		}
	}
	runs := func(workloads ...store.Workload) func(*store.ImageUsage, time.Time) {
		return func(u *store.ImageUsage, _ time.Time) { u.Workloads = workloads }
	}
	gone := func(*store.ImageUsage, time.Time) {}
	dropped := func(w store.Workload) func(*store.ImageUsage, time.Time) {
		return func(u *store.ImageUsage, _ time.Time) { u.Dropped = []store.Workload{w} }
	}
	both := func(a, b func(*store.ImageUsage, time.Time)) func(*store.ImageUsage, time.Time) {
		return func(u *store.ImageUsage, now time.Time) { a(u, now); b(u, now) }
	}
	type step struct {
		image string
		use   func(*store.ImageUsage, time.Time)
		pass  time.Duration
	}
	for name, tt := range map[string]struct {
		steps []step
		// announced are the workloads of the changes. recent means that the first image is one of RecentImages.
		announced []string
		recent    bool
	}{
		"a pod that has ended is there":         {[]step{{"old", runs(job), 0}, {"old", ended(job, time.Minute), 0}}, []string{"r job"}, true},
		"its pods are gone":                     {[]step{{"old", runs(job), 0}, {"old", gone, 0}}, []string{"r job"}, true},
		"it ended before it was seen":           {[]step{{"old", ended(job, time.Hour), 0}}, []string{"r job"}, true},
		"it ended too long ago":                 {[]step{{"old", ended(job, day+time.Second), 0}}, nil, false},
		"it ended, and time has passed":         {[]step{{"old", runs(job), 0}, {"old", gone, day + time.Second}, {"old", gone, 0}}, nil, false},
		"pods of a Deployment are gone":         {[]step{{"old", runs(web), 0}, {"old", gone, 0}}, nil, false},
		"a pod of a Deployment was evicted":     {[]step{{"old", ended(web, time.Hour), 0}}, []string{"r web"}, true},
		"the workload runs another image":       {[]step{{"old", runs(job), 0}, {"old", gone, 0}, {"new", runs(job), 0}}, nil, false},
		"it ran another image, in other order":  {[]step{{"old", runs(job), 0}, {"new", runs(job), 0}, {"old", gone, 0}}, nil, false},
		"that one has ended, too":               {[]step{{"old", runs(job), 0}, {"old", gone, 0}, {"new", runs(job), time.Hour}, {"new", gone, 0}}, nil, false},
		"both ended before they were seen":      {[]step{{"old", ended(job, 2*time.Hour), 0}, {"new", ended(job, time.Hour), 0}}, nil, false},
		"the same, in other order":              {[]step{{"new", ended(job, time.Hour), 0}, {"old", ended(job, 2*time.Hour), 0}}, nil, false},
		"ended pods of before the rollout stay": {[]step{{"old", runs(job), 0}, {"old", ended(job, 0), time.Hour}, {"new", runs(job), 0}, {"old", ended(job, time.Hour), 0}, {"new", gone, 0}, {"old", ended(job, time.Hour), 0}}, nil, false},
		"rolled back":                           {[]step{{"old", runs(job), 0}, {"new", runs(job), time.Hour}, {"old", runs(job), 0}, {"new", gone, time.Hour}, {"old", gone, 0}}, []string{"r job"}, true},
		"another of its workloads is rolled out": {
			[]step{{"old", runs(web, nightly("migrate", "r")), 0}, {"old", ended(nightly("migrate", "r"), 0), 0}, {"new", runs(web), 0}}, nil, false,
		},
		"another workload runs another image":                   {[]step{{"old", runs(job), 0}, {"old", gone, 0}, {"new", runs(nightly("other", "r")), 0}}, []string{"r job"}, true},
		"its pods are there and are not the Scanner's any more": {[]step{{"old", runs(job), 0}, {"old", dropped(job), time.Minute}, {"old", gone, 0}}, nil, false},
		"its ended pods are not the Scanner's any more":         {[]step{{"old", ended(job, 0), 0}, {"old", dropped(job), 0}}, nil, false},
		"only its later pods are not the Scanner's":             {[]step{{"old", ended(job, 0), time.Hour}, {"old", both(ended(job, time.Hour), dropped(job)), 0}}, []string{"r job"}, true},
		"the Scanner is about them again": {
			[]step{{"old", runs(job), 0}, {"old", dropped(job), 0}, {"old", runs(job), 0}, {"old", gone, 0}}, []string{"r job"}, true,
		},
		"pods of another workload are not the Scanner's": {
			[]step{{"old", runs(job, nightly("other", "r")), 0}, {"old", dropped(nightly("other", "r")), 0}}, []string{"r job"}, true,
		},
		"an older pod ended long before the one that ran until now": {
			[]step{{"old", both(runs(job), ended(job, 23*time.Hour)), time.Minute}, {"old", ended(job, 23*time.Hour), 2 * time.Hour}, {"old", gone, 0}}, []string{"r job"}, true,
		},
		"a pod ended beside the one that ran until now": {
			[]step{{"old", runs(job), time.Hour}, {"old", both(runs(job), ended(job, time.Minute)), 23 * time.Hour}, {"old", ended(job, 23*time.Hour+time.Minute), 2 * time.Hour}, {"old", gone, 0}},
			[]string{"r job"}, true,
		},
		"an older pod ended, and the one that ran is not the Scanner's any more": {
			[]step{{"old", both(runs(job), ended(job, 23*time.Hour)), time.Minute}, {"old", both(ended(job, 23*time.Hour), dropped(job)), 2 * time.Hour}, {"old", gone, 0}}, nil, false,
		},
		"an older pod of a Deployment was evicted, and now it is deleted": {
			[]step{{"old", both(runs(web), ended(web, 23*time.Hour)), time.Minute}, {"old", ended(web, 23*time.Hour), 2 * time.Hour}, {"old", gone, 0}}, nil, false,
		},
		"both images ended while no manager ran": {
			[]step{{"old", runs(job), 2 * time.Hour}, {"new", ended(job, time.Hour), 0}, {"old", ended(job, 90*time.Minute), 0}}, nil, false,
		},
		"it runs by another workload": {[]step{{"old", runs(job, web), 0}, {"old", runs(web), 0}}, []string{"r job", "r web"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			f.saveCatalogs(t, "old")
			f.report(t, "old", vulnerable("CVE-2026-0001", "a"))
			for _, step := range tt.steps {
				u := used("scanner", step.image)
				step.use(&u, f.clock.Now())
				u.EndedSince = f.clock.Now().Add(-day)
				must(t, f.SetUsage(t.Context(), u))
				f.clock.pass(step.pass)
			}
			equal(t, "announced", f.whoRuns(t, "scanner"), tt.announced)
			recent := false
			for _, img := range got[[]store.RecentImage](t)(f.RecentImages(t.Context(), "scanner", grype)) {
				recent = recent || img.Key == key("old")
			}
			equal(t, "recently used", recent, tt.recent)
			wanted := got[bool](t)(f.IsNeeded(t.Context(), grype, key("old"), store.Cluster))
			equal(t, "wanted", wanted, tt.recent || name == "it runs by another workload")
			if last := tt.steps[len(tt.steps)-1]; last.image == "old" {
				totals, err := f.ScannerTotals(t.Context(), "scanner", store.ChangeFilter{}.Exceptions)
				must(t, err)
				equal(t, "counted as running", totals.Counts.High > 0, name == "it runs by another workload")
			}
		})
	}
}

// testRolloutWhileNoManagerRan checks that a workload whose pods are gone has left its image when it was last seen, not when the
// manager is back. An image that ran after that has superseded it.
func (on suite) testRolloutWhileNoManagerRan(t *testing.T) {
	job := nightly("job", "r")
	for name, tt := range map[string]struct {
		away time.Duration
		// found means that the manager finds the image still running when it is back, and that its pods go later.
		found, want bool
	}{
		"its pods are gone":             {2 * time.Hour, false, false},
		"its pods are gone a while ago": {20 * time.Hour, false, false},
		"it ran on":                     {2 * time.Hour, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			clock := f.clock
			set := func(image string, workloads []store.Workload, ended ...store.EndedWorkload) {
				u := used("scanner", image)
				u.Workloads, u.Ended, u.EndedSince = workloads, ended, clock.Now().Add(-24*time.Hour)
				must(t, f.SetUsage(t.Context(), u))
			}
			set("old", []store.Workload{job})
			clock.pass(time.Hour)
			must(t, f.CheckHealth(t.Context()))
			must(t, f.Close())

			clock.pass(tt.away)
			f.restart(t)
			if tt.found {
				set("old", []store.Workload{job})
			}
			clock.pass(time.Minute)
			set("old", nil)
			set("new", nil, store.EndedWorkload{Workload: job, At: clock.Now().Add(-tt.away / 2)})
			recent := false
			for _, img := range got[[]store.RecentImage](t)(f.RecentImages(t.Context(), "scanner", grype)) {
				recent = recent || img.Key == key("old")
			}
			equal(t, "recently used", recent, tt.want)
		})
	}
}

// testRecentImage checks the fields of a recently used image.
func (on suite) testRecentImage(t *testing.T) {
	f := on.newStore(t)
	u := used("scanner", "app")
	a, b := nightly("a", "r"), nightly("b", "mirror")
	a.Receivers = "team"
	u.Ended = []store.EndedWorkload{{Workload: a, At: f.clock.Now()}, {Workload: b, At: f.clock.Now()}}
	must(t, f.SetUsage(t.Context(), u))
	equal(t, "recent images", got[[]store.RecentImage](t)(f.RecentImages(t.Context(), "scanner", grype)), []store.RecentImage{{
		NamespacedImage: store.NamespacedImage{Namespace: "shop", Key: key("app")}, Reference: "mirror:1", Repositories: []string{"mirror", "r"}, Receivers: []string{"", "team"},
	}})
	equal(t, "of another engine", got[[]store.RecentImage](t)(f.RecentImages(t.Context(), "scanner", "clair")), []store.RecentImage(nil))
	equal(t, "wanted", got[bool](t)(f.IsNeeded(t.Context(), grype, key("app"), store.Cluster)), true)
	u.Ended, u.EndedSince = nil, f.clock.Now().Add(time.Second)
	must(t, f.SetUsage(t.Context(), u))
	equal(t, "wanted later", got[bool](t)(f.IsNeeded(t.Context(), grype, key("app"), store.Cluster)), false)
}

// testRolloutToAnotherPlatform checks that the same image on a node of another platform is not a rollout.
func (on suite) testRolloutToAnotherPlatform(t *testing.T) {
	f := on.newStore(t)
	arm := used("scanner", "app", nightly("job", "r"))
	arm.Key.Platform = image.Platform{OS: "linux", Architecture: "arm64"}
	must(t, f.SetUsage(t.Context(), used("scanner", "app", nightly("job", "r"))))
	must(t, f.SetUsage(t.Context(), used("scanner", "app")))
	must(t, f.SetUsage(t.Context(), arm))
	equal(t, "recent images", len(got[[]store.RecentImage](t)(f.RecentImages(t.Context(), "scanner", grype))), 1)
}

// testIncludeIdle checks what is not announced while nothing runs an image, and will be with its next run.
func (on suite) testIncludeIdle(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "app")
	f.report(t, "app", vulnerable("CVE-2026-0001", "a"))
	f.use(t, "scanner", "app", workload("web", "r"))
	f.use(t, "scanner", "app")
	count := func(filter store.ChangeFilter) int {
		_, total, err := f.PendingChanges(t.Context(), "scanner", "slack", filter, 1)
		must(t, err)
		return total
	}
	equal(t, "announced", count(store.ChangeFilter{}), 0)
	equal(t, "kept", count(store.ChangeFilter{IncludeIdle: true}), 1)
	f.use(t, "scanner", "other", workload("web", "r"))
	equal(t, "kept after a rollout", count(store.ChangeFilter{IncludeIdle: true}), 0)
}

// testScannerImages checks which images Scanners have, by namespace.
func (on suite) testScannerImages(t *testing.T) {
	f := on.newStore(t)
	elsewhere := used("other", "app", workload("web", "r"))
	elsewhere.Namespace = "elsewhere"
	must(t, f.SetUsage(t.Context(), elsewhere))
	f.use(t, "scanner", "app")
	in := func(namespace string) string {
		var names []string
		for _, img := range got[[]store.ScannerImage](t)(f.ScannerImages(t.Context(), namespace)) {
			names = append(names, img.Scanner+" in "+img.Namespace)
		}
		return strings.Join(names, ", ")
	}
	equal(t, "of a namespace", in("shop"), "scanner in shop")
	equal(t, "of all", len(got[[]store.ScannerImage](t)(f.ScannerImages(t.Context(), ""))), 2)
}

// testShortLivedPodsAreBounded checks that of workloads with a new name each time, the latest ones are kept, and that listing all
// of them again writes nothing. A superseded image stays so, however many of them there are.
func (on suite) testShortLivedPodsAreBounded(t *testing.T) {
	f := on.newStore(t)
	app, rolledOut := used("scanner", "app"), nightly("nightly", "r")
	for i := range maxLeft + 50 {
		app.Ended = append(app.Ended, store.EndedWorkload{Workload: nightly(fmt.Sprintf("job-%03d", i), "r"), At: f.clock.Now().Add(-time.Duration(i) * time.Second)})
	}
	const names = `SELECT name FROM left_workloads WHERE image_id = (SELECT id FROM scanner_images ORDER BY id LIMIT 1) ORDER BY name`
	must(t, f.SetUsage(t.Context(), app))
	var latest []string
	for i := range maxLeft {
		latest = append(latest, fmt.Sprintf("job-%03d", i))
	}
	equal(t, "kept", linesOf(t, f, names), latest)
	equal(t, "images in use", len(got[[]store.RecentImage](t)(f.RecentImages(t.Context(), "scanner", grype))), 1)
	before := linesOf(t, f, `SELECT recorded_at FROM scanner_images`)
	f.clock.pass(time.Hour)
	must(t, f.SetUsage(t.Context(), app))
	equal(t, "written", linesOf(t, f, `SELECT recorded_at FROM scanner_images`), before)

	withNightly := app
	withNightly.Workloads = []store.Workload{rolledOut}
	must(t, f.SetUsage(t.Context(), withNightly))
	must(t, f.SetUsage(t.Context(), app))
	must(t, f.SetUsage(t.Context(), used("scanner", "other", rolledOut)))
	f.clock.pass(time.Hour)
	for i := range app.Ended {
		app.Ended[i].At = f.clock.Now()
	}
	must(t, f.SetUsage(t.Context(), app))
	equal(t, "kept with one that was rolled out", linesOf(t, f, names), append(latest[:maxLeft-1:maxLeft-1], "nightly"))
	equal(t, "images in use after the rollout", len(got[[]store.RecentImage](t)(f.RecentImages(t.Context(), "scanner", grype))), 0)
}
