package grype

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

func storageClass(isDefault string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{defaultClassAnnotation: isDefault}}, Provisioner: "x"}
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: DatabasePVC}}
}

// refuses has a match worker report that it could not install a build. It returns the build that the worker should have.
func (e *engine) refuses(database workerapi.Database) time.Time {
	e.t.Helper()
	wanted, err := e.RecordDatabase(e.t.Context(), workerapi.DatabaseStatus{Tool: tool, Refused: &database, Error: "bad checksum"})
	e.must(err)
	return wanted
}

// crashes has this many match workers fail in a row.
func (e *engine) crashes(times int) {
	for range times {
		e.data.recordWorkerEnd(e.clock.Now(), &backend.Failure{Reason: backend.ReasonWorkerCrashed, Message: "no"})
	}
}

// hours returns how many hours after noon a build was made; -1 for none.
func hours(built time.Time) int {
	if built.IsZero() {
		return -1
	}
	return int(built.Sub(noon) / time.Hour)
}

// TestIsNeeded: which build a match worker should have, and whether it may match with the one that it has.
func TestIsNeeded(t *testing.T) {
	type answer struct {
		Wanted int
		May    bool
	}
	for name, tt := range map[string]struct {
		arrange func(e *engine)
		has     int // the worker's build
		want    answer
	}{
		"nothing is known":              {func(*engine) {}, 0, answer{-1, false}},
		"it has what all have":          {func(e *engine) { e.reportInstalled(build(0)) }, 0, answer{0, true}},
		"it has an older one":           {func(e *engine) { e.reportInstalled(build(2)) }, 0, answer{2, false}},
		"the listing names a newer one": {func(e *engine) { e.reportInstalled(build(0)); e.setListed(build(1)) }, 0, answer{1, false}},
		"the newer one was refused":     {func(e *engine) { e.reportInstalled(build(0)); e.setListed(build(1)); e.refuses(build(1)) }, 0, answer{0, true}},
		"another one was refused":       {func(e *engine) { e.reportInstalled(build(0)); e.setListed(build(2)); e.refuses(build(1)) }, 0, answer{2, false}},
		"it was refused ten minutes ago": {func(e *engine) {
			e.reportInstalled(build(0))
			e.setListed(build(1))
			e.refuses(build(1))
			e.advance(refusalLifetime)
		}, 0, answer{1, false}},
		"the listing went back":            {func(e *engine) { e.reportInstalled(build(3)); e.setListed(build(1)) }, 3, answer{1, true}},
		"refused, and it has an older one": {func(e *engine) { e.reportInstalled(build(1)); e.setListed(build(2)); e.refuses(build(2)) }, 0, answer{1, false}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			tt.arrange(e)
			wanted, may, err := e.WantedDatabase(t.Context(), build(tt.has).Built)
			e.must(err)
			if got := (answer{hours(wanted), may}); got != tt.want {
				t.Errorf("wanted build %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestInstalled: which build becomes the current data.
func TestInstalled(t *testing.T) {
	for name, tt := range map[string]struct {
		arrange func(e *engine)
		reports int
		want    int
	}{
		"the first":                           {func(*engine) {}, 0, 0},
		"a newer one":                         {func(e *engine) { e.reportInstalled(build(0)) }, 1, 1},
		"an older one, of a late worker":      {func(e *engine) { e.reportInstalled(build(2)); e.setListed(build(2)) }, 1, 2},
		"an older one that the listing names": {func(e *engine) { e.reportInstalled(build(2)); e.setListed(build(1)) }, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			tt.arrange(e)
			e.reportInstalled(build(tt.reports))
			version, err := e.DataVersion(t.Context())
			e.must(err)
			if got := hours(version.Built); got != tt.want {
				t.Errorf("reports are made with build %d, want %d", got, tt.want)
			}
			if version.Tool != tool {
				t.Errorf("the tool is %q, want %q", version.Tool, tool)
			}
		})
	}
}

// TestVersionsDiffer: another database build or another Grype version makes every report outdated, and nothing else does.
func TestVersionsDiffer(t *testing.T) {
	one := versionOf(build(0), tool)
	if versionOf(build(0), tool) != one {
		t.Error("the same is not the same")
	}
	local := build(0)
	local.Built = local.Built.In(time.FixedZone("elsewhere", 3600))
	if versionOf(local, tool).Version != one.Version {
		t.Error("another time zone is another version")
	}
	for name, other := range map[string]string{
		"another build": versionOf(build(1), tool).Version, "another Grype": versionOf(build(0), "grype 0.111.0").Version,
	} {
		if other == one.Version {
			t.Errorf("%s is the same version", name)
		}
	}
}

// TestTwoArchivesOfOneBuild: workers with different archives of one build make the same reports. Nothing is matched again for that.
func TestTwoArchivesOfOneBuild(t *testing.T) {
	e := newEngine(t)
	packed := build(0)
	packed.Checksum = digest("packed again")
	e.reportInstalled(build(0))
	before, err := e.Store.DataVersion(t.Context(), Engine)
	if err != nil {
		t.Fatal(err)
	}
	e.reportInstalled(packed)
	if after, err := e.Store.DataVersion(t.Context(), Engine); err != nil || after != before {
		t.Errorf("the data version changes from %+v to %+v, %v", before, after, err)
	}
}

// TestDataProblem: the one thing to say about the data, and when it is over.
func TestDataProblem(t *testing.T) {
	e := newEngine(t)
	want := func(text string) {
		t.Helper()
		if got := e.DataProblem(store.DataVersion{}); (text == "") != (got == "") || !strings.Contains(got, text) {
			t.Errorf("the data's problem is %q, want %q", got, text)
		}
	}
	want("")
	e.crashes(1)
	want("the last match worker failed")
	e.refuses(build(1))
	want("could not be installed: bad checksum")
	e.reportInstalled(build(1)) // a worker that reports no error has installed the newest build
	want("the last match worker failed")
	e.data.recordWorkerEnd(e.clock.Now(), &backend.Failure{Reason: backend.ReasonUploadMissing})
	want("")
	for ahead, future := range map[time.Duration]bool{time.Hour: false, 25 * time.Hour: true, 10000 * time.Hour: true} {
		got := e.DataProblem(store.DataVersion{Built: e.clock.Now().Add(ahead)})
		if strings.Contains(got, "set the node's clock") != future {
			t.Errorf("data that is built %s from now: the problem is %q", ahead, got)
		}
	}
}

// TestNoDataYet: without data, DataVersion returns a Failure for users, which includes the reason if one is known.
func TestNoDataYet(t *testing.T) {
	e := newEngine(t)
	_, err := e.DataVersion(t.Context())
	var failure *backend.Failure
	if !errors.As(err, &failure) || failure.Reason != v1alpha1.ReasonNoVulnerabilityData {
		t.Fatalf("without data the version is %v, want a failure %s", err, v1alpha1.ReasonNoVulnerabilityData)
	}
	e.refuses(build(0))
	if _, err = e.DataVersion(t.Context()); !strings.Contains(err.Error(), "bad checksum") {
		t.Errorf("the failure %v does not say why there is none", err)
	}
}

// TestCrashes: the more match workers fail in a row, the longer the delay until the next one, up to ten minutes.
func TestCrashes(t *testing.T) {
	for crashes, wait := range map[int]time.Duration{
		0: 0, 1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 6: 320 * time.Second, 7: refusalLifetime, 8: refusalLifetime, 1000: refusalLifetime,
	} {
		t.Run(fmt.Sprint(crashes), func(t *testing.T) {
			e := newEngine(t)
			e.crashes(crashes)
			if wait > 0 && e.data.mayStartWorker(noon.Add(wait-time.Second)) {
				t.Errorf("the next may start before %s", wait)
			}
			if !e.data.mayStartWorker(noon.Add(wait)) {
				t.Errorf("the next may not start after %s", wait)
			}
			e.data.recordWorkerEnd(noon, &backend.Failure{Reason: backend.ReasonUploadMissing})
			if !e.data.mayStartWorker(noon) {
				t.Error("after one that ended well the next may not start at once")
			}
		})
	}
}

// serves has the database server give one answer after the other, and repeat the last one.
func (e *engine) serves(answers ...http.HandlerFunc) {
	e.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/databases/v6/latest.json" {
			e.t.Errorf("the listing is asked for at %s", r.URL.Path)
		}
		answer := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		answer(w, r)
	}))
	e.t.Cleanup(server.Close)
	e.Config.Grype.Database.URL = server.URL + "/databases/"
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func latest(database workerapi.Database) http.HandlerFunc {
	return answer(http.StatusOK, fmt.Sprintf(`{"status":"active","schemaVersion":%q,"built":%q,"path":"x.tar.zst","checksum":%q}`,
		database.SchemaVersion, database.Built.Format(time.RFC3339), database.Checksum))
}

// TestListing: which listings are accepted, and what is recorded.
func TestListing(t *testing.T) {
	for name, tt := range map[string]struct {
		answer  http.HandlerFunc
		want    int // the listed build; -1 for none
		problem string
	}{
		"a build":        {latest(build(1)), 1, ""},
		"broken JSON":    {answer(http.StatusOK, `{"built":`), -1, "unexpected EOF"},
		"a page":         {answer(http.StatusOK, "<html>"), -1, "invalid character"},
		"no time":        {answer(http.StatusOK, `{"status":"active"}`), -1, "names no build time"},
		"a strange time": {answer(http.StatusOK, `{"built":"yesterday"}`), -1, "yesterday"},
		"500":            {answer(http.StatusInternalServerError, "oops"), -1, "500 Internal Server Error"},
		"404":            {answer(http.StatusNotFound, ""), -1, "404 Not Found"},
		"a huge body": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"x":"`))
			junk := []byte(strings.Repeat("a", 64<<10))
			for range 64 { // 4 MiB
				if _, err := w.Write(junk); err != nil {
					return
				}
			}
			_, _ = w.Write([]byte(`","built":"2026-03-01T12:00:00Z"}`))
		}, -1, "unexpected EOF"},
		"garbage":                    {answer(http.StatusOK, strings.Repeat("\x00\xff{[", 1000)), -1, "invalid character"},
		"another kind of document":   {answer(http.StatusOK, `["built"]`), -1, "cannot unmarshal array"},
		"a listing of another shape": {answer(http.StatusOK, `{"built":17}`), -1, "sends no listing"},
		"a redirect to no URL": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://user:hunter2@example.org:port/?t=hunter2")
			w.WriteHeader(http.StatusFound)
		}, -1, "failed to parse Location header"},
		"a broken connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, -1, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.serves(tt.answer)
			e.pollListing(t.Context())
			if got := hours(e.data.listed.Built); got != tt.want {
				t.Errorf("build %d is listed, want %d", got, tt.want)
			}
			problem := e.DataProblem(store.DataVersion{})
			if (problem == "") != (tt.problem == "") || !strings.Contains(problem, tt.problem) {
				t.Errorf("the problem is %q, want %q", problem, tt.problem)
			}
			if strings.Contains(problem, "hunter2") {
				t.Errorf("the problem %q contains a secret", problem)
			}
			if problem != "" && !strings.HasPrefix(problem, "the listing of vulnerability databases cannot be read: ") {
				t.Errorf("the problem %q does not say what it is about", problem)
			}
		})
	}
}

// TestUnreadableListing: the listed build stays known while the listing cannot be read. The problem is cleared by the next success.
func TestUnreadableListing(t *testing.T) {
	e := newEngine(t)
	e.serves(latest(build(1)), answer(http.StatusBadGateway, ""), latest(build(1)))
	e.pollListing(t.Context())
	e.pollListing(t.Context())
	if got := hours(e.data.listed.Built); got != 1 || e.DataProblem(store.DataVersion{}) == "" {
		t.Errorf("build %d is listed and the problem is %q, want build 1 and a problem", got, e.DataProblem(store.DataVersion{}))
	}
	e.pollListing(t.Context())
	if problem := e.DataProblem(store.DataVersion{}); problem != "" {
		t.Errorf("the problem is still %q", problem)
	}
}

// TestListingRetry: a database server that is down is polled every minute, and a working one at the configured interval.
func TestListingRetry(t *testing.T) {
	e := newEngine(t)
	e.serves(answer(http.StatusBadGateway, ""), latest(build(1)))
	e.pollListing(t.Context())
	if got := e.nextPoll(); got != time.Minute {
		t.Errorf("after a failure the listing is read again in %s, want 1m", got)
	}
	e.pollListing(t.Context())
	if got := e.nextPoll(); got != time.Hour {
		t.Errorf("the listing is read again in %s, want 1h", got)
	}
}

// TestOldData: old data is reported with its age and a remedy, and images are still matched with it.
func TestOldData(t *testing.T) {
	for name, tt := range map[string]struct {
		arrange func(e *engine)
		age     time.Duration
		want    []string // parts of the problem; nil for no problem
	}{
		"as old as is allowed": {func(*engine) {}, 120 * time.Hour, nil},
		"an ancient database": {func(*engine) {}, 2000 * time.Hour,
			[]string{"2000 hours old, built at 2026-03-01T12:00:00Z", "grype.database.maxAge is 120h0m0s", "No newer one is published at grype.database.url"}},
		"an ancient database, and a newer one that is broken": {func(e *engine) { e.setListed(build(1)); e.refuses(build(1)) }, 200 * time.Hour,
			[]string{"200 hours old", "the newest vulnerability database could not be installed: bad checksum"}},
		"an ancient database, and the server is down": {func(e *engine) { e.serves(answer(http.StatusBadGateway, "")); e.pollListing(e.t.Context()) }, 200 * time.Hour,
			[]string{"200 hours old", "the listing of vulnerability databases cannot be read", "502 Bad Gateway"}},
		"built tomorrow, by this clock": {func(*engine) {}, -24 * time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.reportInstalled(build(0))
			e.advance(tt.age)
			tt.arrange(e)
			current, err := e.DataVersion(t.Context())
			e.must(err)
			problem := e.DataProblem(current)
			for _, want := range tt.want {
				if !strings.Contains(problem, want) {
					t.Errorf("the problem is %q, want %q in it", problem, want)
				}
			}
			if len(tt.want) == 0 && problem != "" {
				t.Errorf("the problem is %q, want none", problem)
			}
			if _, may, err := e.WantedDatabase(t.Context(), build(0).Built); err != nil || !may {
				t.Errorf("a worker may match with it: %v (%v), want that findings go on being made", may, err)
			}
		})
	}
}

// TestRefusedBuildWithoutNewerOne: a failed installation is no problem any more once no newer build is listed, even if no worker reports success.
func TestRefusedBuildWithoutNewerOne(t *testing.T) {
	e := newEngine(t)
	e.reportInstalled(build(1))
	e.serves(latest(build(2)), latest(build(1)))
	e.pollListing(t.Context())
	e.refuses(build(2))
	current, err := e.DataVersion(t.Context())
	e.must(err)
	if problem := e.DataProblem(current); !strings.Contains(problem, "bad checksum") {
		t.Errorf("the problem is %q, want that a newer build was refused", problem)
	}
	e.pollListing(t.Context())
	if problem := e.DataProblem(current); problem != "" {
		t.Errorf("the problem is still %q, and the listing has nothing newer", problem)
	}
}

// TestNewListingClearsRefusal: a newly listed build is tried at once, even if the previous one failed.
func TestNewListingClearsRefusal(t *testing.T) {
	e := newEngine(t)
	e.serves(latest(build(1)), latest(build(2)))
	e.pollListing(t.Context())
	e.refuses(build(1))
	e.crashes(5)
	<-e.wakeJobs
	e.pollListing(t.Context())
	if e.DataProblem(store.DataVersion{}) != "" || !e.data.mayStartWorker(noon) {
		t.Errorf("the problem is %q, a worker may start: %v", e.DataProblem(store.DataVersion{}), e.data.mayStartWorker(noon))
	}
	select {
	case <-e.wakeJobs:
	default:
		t.Error("the Job loop is not announced of the new build")
	}
}

// TestListingURL: a directory is completed as Grype does, and the URL of a file is used unchanged.
func TestListingURL(t *testing.T) {
	for base, want := range map[string]string{
		"https://grype.anchore.io/databases":  "https://grype.anchore.io/databases/v6/latest.json",
		"https://grype.anchore.io/databases/": "https://grype.anchore.io/databases/v6/latest.json",
		"http://mirror/db/latest.json":        "http://mirror/db/latest.json",
		"https://mirror/db?token=a":           "https://mirror/db/v6/latest.json?token=a",
		"https://mirror/a%2Fdb/":              "https://mirror/a%2Fdb/v6/latest.json",
		"https://mirror/latest.json?token=a":  "https://mirror/latest.json?token=a",
	} {
		if got, err := listingURL(base); got != want || err != nil {
			t.Errorf("the listing of %s is at %s (%v), want %s", base, got, err, want)
		}
	}
}

// TestLoopsEndWithContext: both end with the context, without an error.
func TestLoopsEndWithContext(t *testing.T) {
	e := newEngine(t)
	e.serves(latest(build(1)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, loop := range map[string]func(context.Context) error{"the listing polls": e.RunListingPolls, "the Job loop": e.RunJobs} {
		if err := loop(ctx); err != nil {
			t.Errorf("%s ends with %v", name, err)
		}
	}
}
