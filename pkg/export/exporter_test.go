package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

// dojo stands for the notifier and a DefectDojo: it keeps the findings of each test as a reimport does. It stands for a Dependency-Track, too, and
// keeps the SBOM of each project.
type dojo struct {
	requests []Request
	// tests are the titles of the open findings, by product and test, or the SBOMs by project and version.
	tests map[string][]string
	// answer replaces the outcome of a request; nil for Delivered. accepts is true if the tool imports the report all the same.
	answer  func(Request) *announce.Outcome
	accepts bool
}

func (d *dojo) SendExport(_ context.Context, r Request) announce.Outcome {
	d.requests = append(d.requests, r)
	if d.answer != nil {
		if outcome := d.answer(r); outcome != nil {
			if !d.accepts {
				return *outcome
			}
			d.imports(r)
			return *outcome
		}
	}
	d.imports(r)
	return announce.Outcome{Result: announce.Delivered}
}

func (d *dojo) imports(r Request) {
	if r.Receiver.Type == TypeDependencyTrack {
		sbom := string(r.Document)
		if decoder, err := zstd.NewReader(bytes.NewReader(r.Document)); err == nil {
			if decompressed, err := io.ReadAll(decoder); err == nil {
				sbom = string(decompressed)
			}
		}
		d.tests[r.Project.DependencyTrack.Name+" "+r.Project.DependencyTrack.Version] = []string{sbom}
		return
	}
	var report genericFindings
	if err := json.Unmarshal(r.Document, &report); err != nil {
		panic(err)
	}
	titles := []string{}
	for _, f := range report.Findings {
		titles = append(titles, f.Title)
	}
	name := r.Project.DefectDojo.Product + " " + r.Project.DefectDojo.Test
	if r.KeepOld {
		for _, title := range d.tests[name] {
			if !slices.Contains(titles, title) {
				titles = append(titles, title)
			}
		}
	}
	d.tests[name] = titles
}

// world is a Scanner with one export and a real store.
type world struct {
	t        testing.TB
	now      time.Time
	store    *store.Store
	dojo     *dojo
	settings Settings
	covered  map[string]bool
	// others are the Deployments that run an image which the store does not know of.
	others map[string]bool
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), dojo: &dojo{tests: map[string][]string{}}, covered: map[string]bool{"shop": true}}
	db, err := storetest.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), func() time.Time { return w.now }, store.OpenSQLite)
	w.must(err)
	t.Cleanup(func() { w.must(db.Close()) })
	w.store = db
	w.settings = Settings{
		UID: "uid", Scanner: "shop/default", Name: "dojo", Generation: 1, Engine: "Grype", ProductType: "Kubernetes", Cluster: "prod",
		Receiver:       announce.ReceiverRef{Type: TypeDefectDojo, Namespace: "shop", SecretName: "dojo", SecretKey: "address"},
		HasOtherImages: func(_ context.Context, _, _, name string, _ []image.Key) (bool, error) { return w.others[name], nil },
		IsCovered:      func(namespace string) bool { return w.covered[namespace] },
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func keyOf(name string) image.Key {
	return image.Key{Digest: "sha256:" + sumOf(name), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
}

// runs records that Deployments run an image, and no others.
func (w *world) runs(name string, deployments ...string) {
	w.t.Helper()
	usage := store.ImageUsage{Scanner: "uid", Namespace: "shop", Key: keyOf(name), Engine: "grype"}
	for _, deployment := range deployments {
		usage.Workloads = append(usage.Workloads, store.Workload{
			Namespace: "shop", Kind: "Deployment", Name: deployment, Container: name, Repository: "ghcr.io/shop/" + name, Reference: "ghcr.io/shop/" + name + ":1",
		})
	}
	w.must(w.store.SetUsage(w.t.Context(), usage))
}

// reports saves a report of an image.
func (w *world) reports(name string, findings ...finding.Finding) {
	w.t.Helper()
	w.must(w.store.SaveCatalog(w.t.Context(), store.Catalog{Engine: "grype", Key: keyOf(name), PlatformDigest: "sha256:" + sumOf("platform", name)}, nil))
	w.matches(name, findings...)
}

// matches saves a report of a cataloged image.
func (w *world) matches(name string, findings ...finding.Finding) {
	w.t.Helper()
	report := store.Report{
		Subject:     store.Subject{PlatformDigest: "sha256:" + sumOf("platform", name), Engine: "grype"},
		DataVersion: w.now.String(), MatchedAt: w.now, Findings: findings,
	}
	_, err := w.store.SaveReport(w.t.Context(), report, "")
	w.must(err)
}

func vulnerable(id string, severity finding.Severity) finding.Finding {
	return finding.Finding{ID: id, Severity: severity, FixState: finding.FixStateNotFixed, Package: finding.Package{Name: "openssl", Version: "1", Type: "deb"}}
}

// export runs the export once and returns its result.
func (w *world) export() Result {
	w.t.Helper()
	workloads, err := w.store.WorkloadVersions(w.t.Context(), "uid")
	w.must(err)
	result, err := Exporter{Store: w.store, Sender: w.dojo, Now: func() time.Time { return w.now }}.Run(w.t.Context(), w.settings, workloads)
	w.must(err)
	return result
}

// sent returns the number of requests of an export after some time.
func (w *world) sent(after time.Duration) int {
	w.t.Helper()
	w.now = w.now.Add(after)
	before := len(w.dojo.requests)
	w.export()
	return len(w.dojo.requests) - before
}

// catalogs saves a catalog of an image, with an SBOM as CycloneDX unless that is empty.
func (w *world) catalogs(name, sbom string) {
	w.t.Helper()
	artifacts := map[store.Artifact]io.Reader{store.ArtifactSBOM: strings.NewReader("syft")}
	if sbom != "" {
		artifacts[store.ArtifactCycloneDX] = strings.NewReader(sbom)
	}
	w.must(w.store.SaveCatalog(w.t.Context(), store.Catalog{Engine: "grype", Key: keyOf(name), PlatformDigest: "sha256:" + sumOf("platform", name)}, artifacts))
}

func (w *world) wantTests(what string, want map[string][]string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.dojo.tests); diff != "" {
		w.t.Errorf("%s: open findings (-want +got):\n%s", what, diff)
	}
}

const webTest, apiTest = "shop Deployment/web (Grype)", "shop Deployment/api (Grype)"

// TestExport follows a workload: its findings are sent once, and again when they change.
func TestExport(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "web")
	w.runs("proxy", "web", "api")
	w.reports("web", vulnerable("CVE-2026-0001", finding.High))
	if n := w.sent(0); n != 0 {
		t.Errorf("%d requests while images have no result, want none", n)
	}
	w.reports("proxy")
	if n := w.sent(0); n != 2 {
		t.Errorf("%d requests, want one for each workload", n)
	}
	const first = "CVE-2026-0001 in openssl (deb)"
	w.wantTests("first findings", map[string][]string{webTest: {first}, apiTest: {}})
	w.now = w.now.Add(24 * time.Hour)
	daily := vulnerable("CVE-2026-0001", finding.High)
	daily.EPSS, daily.Description = 0.7, "Words that differ each day."
	w.reports("web", daily)
	if n := w.sent(0); n != 0 {
		t.Errorf("%d requests for the same findings with newer data, want none", n)
	}
	w.reports("web", vulnerable("CVE-2026-0001", finding.High), vulnerable("CVE-2026-0002", finding.Unknown))
	if n := w.sent(time.Hour); n != 1 {
		t.Errorf("%d requests for a new finding of one workload, want 1", n)
	}
	w.wantTests("a new finding", map[string][]string{webTest: {first, "CVE-2026-0002 in openssl (deb)"}, apiTest: {}})

	w.settings.Exceptions = exception.NewSet([]exception.Exception{{UID: "1", Name: "accepted", Namespace: "shop", Vulnerabilities: []string{"CVE-2026-0001"}}}, w.now)
	w.sent(0)
	w.wantTests("a suppressed finding is closed", map[string][]string{webTest: {"CVE-2026-0002 in openssl (deb)"}, apiTest: {}})
	w.settings.Exceptions = exception.Set{}
	w.sent(0)
	w.wantTests("and opened again", map[string][]string{webTest: {first, "CVE-2026-0002 in openssl (deb)"}, apiTest: {}})
	state := w.export().After
	if state.Workloads != 2 || state.Pending != 0 || !state.LastSuccess.Equal(w.now) || state.LastError != nil {
		t.Errorf("state %+v, want two workloads with their findings as of now", state)
	}
}

// TestPendingImage: while an image of a workload has no result, nothing is sent that would close its findings.
func TestPendingImage(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "web")
	w.reports("web", vulnerable("CVE-2026-0001", finding.High))
	w.sent(0)
	w.runs("web")
	w.runs("web2", "web")
	for range 3 {
		if n := w.sent(time.Hour); n != 0 {
			t.Fatalf("%d requests during the rollout, want none", n)
		}
	}
	if state := w.export().After; state.Waiting != 1 || state.Pending != 0 {
		t.Errorf("state %+v, want one workload that waits", state)
	}
	w.reports("web2")
	w.others = map[string]bool{"web": true}
	if n, state := w.sent(time.Hour), w.export().After; n != 0 || state.Waiting != 1 || state.Pending != 0 {
		t.Errorf("%d requests and state %+v while a pod runs an image that the store does not know, want none and one that waits", n, state)
	}
	w.others = nil
	w.sent(time.Minute)
	w.wantTests("after the rollout", map[string][]string{webTest: {}})
}

// TestGone: the findings of a workload that is gone are closed after a while, and those of one that is not covered any more stay.
func TestGone(t *testing.T) {
	for name, covered := range map[string]bool{"the namespace is covered": true, "the namespace has left": false} {
		w := newWorld(t)
		w.runs("web", "web")
		w.reports("web", vulnerable("CVE-2026-0001", finding.High))
		w.sent(0)
		w.must(w.store.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "uid", Namespace: "shop", Key: keyOf("web")}, false))
		w.covered["shop"] = covered
		if n := w.sent(0); n != 0 {
			t.Errorf("%s: %d requests at once, want none", name, n)
		}
		w.sent(goneAfter)
		want := map[string][]string{webTest: {"CVE-2026-0001 in openssl (deb)"}}
		if covered {
			want[webTest] = []string{}
		}
		w.wantTests(name, want)
		states, err := w.store.ExportStates(t.Context(), "uid", "dojo")
		w.must(err)
		if delete(states, ""); len(states) > 0 {
			t.Errorf("%s: %d records are left", name, len(states))
		}
		if n := w.sent(24 * time.Hour); n != 0 {
			t.Errorf("%s: %d requests later, want none", name, n)
		}
	}
}

// TestFailures checks when a failed attempt is repeated, and that another workload comes first then.
func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome announce.Outcome
		waits   []time.Duration
		isError bool
	}{
		"rate limited": {
			announce.Outcome{Result: announce.RateLimited, Reason: announce.ReasonReceiverLimited, RetryAfter: 40 * time.Second}, []time.Duration{40 * time.Second, 40 * time.Second}, false,
		},
		"failed":  {announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed}, []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute}, true},
		"hung":    {announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost}, []time.Duration{time.Minute, 2 * time.Minute}, true},
		"refused": {announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused}, []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute}, true},
	} {
		w := newWorld(t)
		w.runs("web", "web", "api")
		w.reports("web", vulnerable("CVE-2026-0001", finding.High))
		w.dojo.answer = func(Request) *announce.Outcome { return &tt.outcome }
		for i, wait := range tt.waits {
			result := w.export()
			if got := result.Next.Sub(w.now); got != wait || len(result.Outcomes) != 1 {
				t.Errorf("%s: %d attempts, the next one after %s, want 1 and %s", name, len(result.Outcomes), got, wait)
			}
			if reason, _ := result.After.Problem(); (reason != "") != tt.isError {
				t.Errorf("%s: problem %q", name, reason)
			}
			if n := w.sent(wait - time.Second); n != 0 {
				t.Errorf("%s: %d attempts too early", name, n)
			}
			w.now = w.now.Add(time.Second)
			if last := w.dojo.requests; i > 0 && tt.isError && last[i].Project == last[i-1].Project {
				t.Errorf("%s: the attempts %d and %d are of one workload, want that the other one comes first", name, i, i+1)
			}
		}
		w.settings.Generation++
		if n := w.sent(0); n != 1 {
			t.Errorf("%s: %d attempts after a change of the Scanner, want 1 at once", name, n)
		}
		w.dojo.answer = nil
		w.settings.Generation++
		if state := w.export().After; state.Workloads != 2 || state.LastError != nil || state.Failures != 0 {
			t.Errorf("%s: after all: %+v, want two workloads and no error", name, state)
		}
	}
}

// TestOneRefusedWorkload: a workload that the tool always refuses delays no other, and stays the error of the export.
func TestOneRefusedWorkload(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "a", "b", "c", "d")
	w.reports("web", vulnerable("CVE-2026-0001", finding.High))
	w.dojo.answer = func(r Request) *announce.Outcome {
		if r.Project.DefectDojo.Test == "Deployment/b (Grype)" {
			return &announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "413"}
		}
		return nil
	}
	w.sent(0)
	w.sent(time.Minute)
	state := w.export().After
	if reason, _ := state.Problem(); state.Workloads != 3 || state.Pending != 1 || reason != announce.ReasonReceiverRefused {
		t.Errorf("%+v, want three workloads and the refusal of the fourth", state)
	}
}

// TestRestart: what was sent and not recorded is sent again, with the same request and the same effect. Nothing is sent by a manager that is deposed.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "web")
	w.reports("web", vulnerable("CVE-2026-0001", finding.High))
	w.dojo.accepts, w.dojo.answer = true, func(Request) *announce.Outcome { panic("killed after the request") }
	func() {
		defer func() { _ = recover() }()
		w.export()
	}()
	w.dojo.answer = nil
	if n := w.sent(0); n != 1 {
		t.Errorf("%d requests after the restart, want 1", n)
	}
	if diff := cmp.Diff(w.dojo.requests[0], w.dojo.requests[1]); diff != "" {
		t.Errorf("the request after the restart differs (-before +after):\n%s", diff)
	}
	if n := w.sent(time.Hour); n != 0 {
		t.Errorf("%d requests later, want none", n)
	}
}

// TestSlowImport: an import that takes long is no failure, and waited for. Its request has for how long an import may still run, also after a crash or a
// lost answer, and no longer than the tool's timeout.
func TestSlowImport(t *testing.T) {
	for name, outcome := range map[string]announce.Outcome{
		"in progress": {Result: announce.UnknownOutcome, Reason: announce.ReasonInProgress, RetryAfter: 15 * time.Second},
		"lost":        {Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.runs("web", "web")
			w.reports("web", vulnerable("CVE-2026-0001", finding.High))
			w.dojo.answer = func(Request) *announce.Outcome { return &outcome }
			result := w.export()
			if isFailure := result.After.Failures > 0; isFailure != (name == "lost") || result.Next.IsZero() {
				t.Errorf("state %+v, next at %s", result.After, result.Next)
			}
			importing := ""
			if name == "in progress" {
				importing = "Deployment web in the namespace shop"
			}
			if got := result.After.Importing; got != importing {
				t.Errorf("the state says that the tool imports %q, want %q", got, importing)
			}
			mayRunFor := func() time.Duration { return w.dojo.requests[len(w.dojo.requests)-1].MayRunFor }
			if got := mayRunFor(); got != 0 {
				t.Errorf("an import may run for %s before the first one", got)
			}
			w.sent(4 * time.Minute)
			if got := mayRunFor(); got != 6*time.Minute {
				t.Errorf("after 4 minutes it may run for %s, want 6m", got)
			}
			w.sent(2 * time.Hour)
			if got := mayRunFor(); got != 0 {
				t.Errorf("after 2 hours it may run for %s, want that another one begins", got)
			}
			w.sent(9 * time.Minute)
			if got := mayRunFor(); got != time.Minute {
				t.Errorf("after another 9 minutes it may run for %s, want 1m of the second one", got)
			}
			w.dojo.answer = nil
			if n := w.sent(time.Hour); n != 1 || w.sent(time.Hour) != 0 {
				t.Errorf("%d requests until it is imported, want 1 and no more", n)
			}
			if got := w.export().After.Importing; got != "" {
				t.Errorf("the state says that the tool imports %q after the import", got)
			}
		})
	}
}

// TestImportThatMayRun: an import may run until the notifier has tried the next one. It does that only when no import runs.
func TestImportThatMayRun(t *testing.T) {
	for _, tt := range []struct {
		result announce.Result
		reason string
		want   time.Duration
	}{
		{announce.Temporary, announce.ReasonNotifierUnavail, 6 * time.Minute},
		{announce.Temporary, announce.ReasonDeposed, 6 * time.Minute},
		{announce.RateLimited, ReasonBusy, 6 * time.Minute},
		{announce.RateLimited, announce.ReasonReceiverLimited, 0},
		{announce.Temporary, announce.ReasonReceiverFailed, 0},
		{announce.Temporary, announce.ReasonNetwork, 0},
		{announce.Permanent, announce.ReasonSecretNotFound, 0},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			w := newWorld(t)
			w.runs("web", "web")
			w.reports("web", vulnerable("CVE-2026-0001", finding.High))
			outcome := announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonInProgress}
			w.dojo.answer = func(Request) *announce.Outcome { return &outcome }
			w.sent(0)
			outcome = announce.Outcome{Result: tt.result, Reason: tt.reason}
			w.sent(2 * time.Minute)
			w.sent(2 * time.Minute)
			if n := len(w.dojo.requests); n != 3 || w.dojo.requests[2].MayRunFor != tt.want {
				t.Errorf("%d requests, in the last one the import may run for %s, want 3 and %s", n, w.dojo.requests[n-1].MayRunFor, tt.want)
			}
		})
	}
}

// TestUnknownImport: of an import whose outcome is not known, the tool may have the findings. They are sent again, also if the workload returns to what the
// tool had before, and are closed when it is gone. A refusal ends the import.
func TestUnknownImport(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "web")
	w.reports("web")
	w.sent(0)
	lost := &announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost}
	w.dojo.answer, w.dojo.accepts = func(Request) *announce.Outcome { return lost }, true
	w.runs("next", "web")
	w.runs("web")
	w.reports("next", vulnerable("CVE-2026-0001", finding.High))
	w.sent(time.Hour)
	w.wantTests("an import whose answer is lost", map[string][]string{webTest: {"CVE-2026-0001 in openssl (deb)"}})
	w.dojo.answer = func(Request) *announce.Outcome {
		return &announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused}
	}
	w.dojo.accepts = false
	w.sent(time.Hour)
	if w.sent(time.Hour); w.dojo.requests[len(w.dojo.requests)-1].MayRunFor != 0 {
		t.Error("after a refusal, the import may still run")
	}
	w.dojo.answer = nil
	w.runs("web", "web")
	w.runs("next")
	w.sent(time.Hour)
	w.wantTests("the image of before", map[string][]string{webTest: {}})
	w.dojo.answer, w.dojo.accepts = func(Request) *announce.Outcome { return lost }, true
	w.runs("next", "other")
	w.sent(time.Hour)
	w.dojo.answer = nil
	w.must(w.store.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "uid", Namespace: "shop", Key: keyOf("next")}, false))
	for range 3 {
		w.sent(2 * time.Hour)
	}
	for test, findings := range w.dojo.tests {
		if len(findings) > 0 {
			t.Errorf("%s has %v after its workload is gone", test, findings)
		}
	}
}

// TestManyWorkloads: an export has a bound. What is above it is counted and named as a problem.
func TestManyWorkloads(t *testing.T) {
	w := newWorld(t)
	workloads := make([]store.WorkloadVersion, MaxWorkloads+500)
	for i := range workloads {
		workloads[i] = store.WorkloadVersion{Namespace: "shop", Kind: "Deployment", Name: fmt.Sprintf("web-%05d", i), Version: "1"}
	}
	w.dojo.answer = func(Request) *announce.Outcome { return &announce.Outcome{Result: announce.Temporary} }
	result, err := Exporter{Store: w.store, Sender: w.dojo, Now: func() time.Time { return w.now }}.Run(t.Context(), w.settings, workloads)
	w.must(err)
	// The store has none of them, so each waits after it was looked up.
	if state := result.After; state.Waiting != MaxWorkloads || state.Omitted != 500 {
		t.Errorf("%d waiting and %d omitted, want %d and 500", state.Waiting, state.Omitted, MaxWorkloads)
	}
	reason, message := result.After.Problem()
	if reason != ReasonTooManyWorkloads || !strings.Contains(message, "500 workloads") {
		t.Errorf("problem %s: %s; want %s and the number", reason, message, ReasonTooManyWorkloads)
	}
}

// TestLongRun: a run ends after a while, and the next one continues.
func TestLongRun(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "a", "b", "c", "d")
	w.reports("web")
	w.dojo.answer = func(Request) *announce.Outcome { w.now = w.now.Add(maxRun / 2); return nil }
	if result := w.export(); len(result.Outcomes) != 2 || result.After.Pending != 2 || !result.Next.Equal(w.now) {
		t.Errorf("%d requests, %d pending, next %s; want 2, 2 and at once", len(result.Outcomes), result.After.Pending, result.Next)
	}
	if result := w.export(); len(result.Outcomes) != 2 || result.After.Pending != 0 {
		t.Errorf("%d requests, %d pending; want 2 and none", len(result.Outcomes), result.After.Pending)
	}
}

// TestProject: another engagement or Secret gets everything, and names of any length stay within DefectDojo's columns and apart.
func TestProject(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 252) // with one more, as long as a name can be
	w.runs("web", long+"a", long+"b")
	w.reports("web")
	if n := w.sent(0); n != 2 {
		t.Fatalf("%d requests, want 2", n)
	}
	var titles []string
	for _, r := range w.dojo.requests {
		if titles = append(titles, r.Project.DefectDojo.Test); len(r.Project.DefectDojo.Test) > maxNameBytes {
			t.Errorf("a test's title has %d bytes, want at most %d", len(r.Project.DefectDojo.Test), maxNameBytes)
		}
	}
	if len(slices.Compact(titles)) != 2 {
		t.Errorf("titles %q, want different ones", titles)
	}
	w.settings.Cluster = "staging"
	if n := w.sent(0); n != 2 {
		t.Errorf("%d requests for another engagement, want 2", n)
	}
	w.settings.Receiver.SecretName = "another"
	if n := w.sent(0); n != 2 {
		t.Errorf("%d requests for another Secret, want 2", n)
	}
}

// TestExportInADataAnomaly: nothing closes while the data has an anomaly.
func TestExportInADataAnomaly(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "web")
	var all []finding.Finding
	for i := range 60 {
		all = append(all, vulnerable(fmt.Sprintf("CVE-2026-%04d", i+1), finding.High))
	}
	w.reports("web", all...)
	w.sent(0)
	w.now = w.now.Add(24 * time.Hour)
	w.matches("web")
	anomaly, err := w.store.DataAnomaly(t.Context(), "uid", "grype")
	w.must(err)
	if anomaly == nil {
		t.Fatal("no anomaly")
	}
	w.sent(0)
	for range 3 {
		w.sent(10 * time.Minute)
	}
	if open := len(w.dojo.tests[webTest]); open != 60 {
		t.Errorf("%d findings are open in DefectDojo during a data anomaly (%d of %d are missing), want 60: nothing is fixed", open, anomaly.Missing, anomaly.Total)
	}
}

// TestExportAfterARolloutWithoutAReportOfTheSource: what only a source had found stays open until the source has reported on the new image.
func TestExportAfterARolloutWithoutAReportOfTheSource(t *testing.T) {
	w := newWorld(t)
	w.must(w.store.SetAnnouncedSources(t.Context(), "uid", []string{"trivy-ci"}))
	w.runs("web", "web")
	w.reports("web")
	_, err := w.store.SaveExternalReport(t.Context(), store.ExternalReport{
		ExternalKey: store.ExternalKey{Namespace: "shop", Digest: keyOf("web").Digest, Source: "trivy-ci"}, Version: 1, Time: w.now, Tool: "trivy",
		Findings: []finding.Finding{vulnerable("CVE-2026-0500", finding.High)}, Text: strings.NewReader("{}"),
	}, func(*store.ExternalState) error { return nil })
	w.must(err)
	w.sent(0)
	if open := len(w.dojo.tests[webTest]); open != 1 {
		t.Fatalf("%d findings", open)
	}
	w.now = w.now.Add(time.Hour)
	w.runs("next", "web")
	w.runs("web")
	w.reports("next")
	w.sent(0)
	for range 3 {
		w.sent(10 * time.Minute)
	}
	if open := len(w.dojo.tests[webTest]); open != 1 {
		t.Errorf("%d findings are open in DefectDojo, want 1: no report of trivy-ci is about the new image", open)
	}
	_, err = w.store.SaveExternalReport(t.Context(), store.ExternalReport{
		ExternalKey: store.ExternalKey{Namespace: "shop", Digest: keyOf("next").Digest, Source: "trivy-ci"}, Version: 1, Time: w.now, Tool: "trivy",
		Text: strings.NewReader("{}"),
	}, func(*store.ExternalState) error { return nil })
	w.must(err)
	w.sent(0)
	if open := len(w.dojo.tests[webTest]); open != 0 {
		t.Errorf("%d findings are open after the report of trivy-ci about the new image, want none", open)
	}
}

// TestExportOfAVersionThatLacksAFinding: what one version of the data lacks stays open until another version confirms it.
func TestExportOfAVersionThatLacksAFinding(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "web")
	w.reports("web", vulnerable("CVE-2026-0001", finding.High))
	w.sent(0)
	for i, want := range []int{1, 0} {
		w.now = w.now.Add(24 * time.Hour)
		w.matches("web")
		w.sent(0)
		if open := len(w.dojo.tests[webTest]); open != want {
			t.Errorf("%d findings are open after %d versions without it, want %d", open, i+1, want)
		}
	}
}

// TestExportOfAPartlyCoveredImage: nothing closes while a result does not cover what an image contains. What the engine covers in no image makes no
// difference.
func TestExportOfAPartlyCoveredImage(t *testing.T) {
	for name, test := range map[string]struct {
		gaps []string
		open int
	}{
		"covered":                          {nil, 0},
		"not covered by the engine at all": {[]string{"npm"}, 0},
		"a distribution without data":      {[]string{"OS packages (deb) of debian 7"}, 1},
		"both":                             {[]string{"OS packages (deb) of debian 7", "npm"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settings.EngineGaps = []string{"npm"}
			w.runs("web", "web")
			w.reports("web", vulnerable("CVE-2026-0001", finding.High))
			w.sent(0)
			w.runs("next", "web")
			w.runs("proxy", "web")
			w.runs("web")
			w.reports("proxy")
			w.reports("next")
			partly := store.Report{
				Subject: store.Subject{PlatformDigest: "sha256:" + sumOf("platform", "next"), Engine: "grype"}, DataVersion: "v1", MatchedAt: w.now, NotCovered: test.gaps,
			}
			_, err := w.store.SaveReport(t.Context(), partly, "")
			w.must(err)
			w.sent(time.Hour)
			if open := len(w.dojo.tests[webTest]); open != test.open {
				t.Errorf("%d findings are open after the rollout, want %d", open, test.open)
			}
			w.matches("next")
			w.sent(time.Hour)
			if open := len(w.dojo.tests[webTest]); open != 0 {
				t.Errorf("%d findings are open after a result that covers the image, want none", open)
			}
		})
	}
}

// TestExportThatIsCut: a document without all findings closes none.
func TestExportThatIsCut(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "web")
	var all []finding.Finding
	for i := range maxFindings + 1 {
		all = append(all, vulnerable(fmt.Sprintf("CVE-2026-%05d", i+1), finding.High))
	}
	w.reports("web", all...)
	w.sent(0)
	if last := w.dojo.requests[len(w.dojo.requests)-1]; !last.KeepOld {
		t.Error("a document that was cut closes the findings that it lacks")
	}
}
