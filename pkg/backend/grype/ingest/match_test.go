package ingest

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestMatchLifecycle: a worker reports its database, leases an image, reads the match input and delivers one report.
func TestMatchLifecycle(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w, input, report, failure := a.leased()
	var order workerapi.DatabaseOrder
	w.want(w.post(workerapi.PathDatabase, workerapi.DatabaseStatus{Tool: tool, Installed: &workerapi.Database{Built: noon}}, &order), http.StatusOK, "")
	if !order.Wanted.Equal(noon) {
		t.Errorf("the worker is asked to have %s, want the current database", order.Wanted)
	}
	if got := w.send(http.MethodGet, input, http.NoBody); got.status != http.StatusOK || got.body != string(newMatchInput(t)) {
		t.Errorf("the input is %s", got)
	}
	w.want(w.put(report, reportBody(t, aReport)), http.StatusNoContent, "")
	if diff := cmp.Diff([]string{"CVE-2024-0001"}, a.reported()); diff != "" {
		t.Errorf("stored findings (-want +got):\n%s", diff)
	}
	if leases := w.requestLeases().Leases; len(leases) != 0 {
		t.Errorf("what is matched is lent again: %+v", leases)
	}
	for _, got := range []answer{
		w.put(report, reportBody(t, aReport)), w.send(http.MethodGet, input, http.NoBody), w.post(failure, workerapi.Failure{Reason: "X"}, nil),
	} {
		w.want(got, http.StatusConflict, "the lease has ended")
	}
}

// TestLeasesOfOthers: a lease is valid only for its holder, and only until it ends.
func TestLeasesOfOthers(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w, input, report, failure := a.leased()
	other := a.job(store.JobMatch, "other")
	all := func(w *worker) []answer {
		return []answer{
			w.send(http.MethodGet, input, http.NoBody), w.put(report, reportBody(t, aReport)), w.post(failure, workerapi.Failure{Reason: "X"}, nil),
		}
	}
	for _, got := range all(other) {
		other.want(got, http.StatusConflict, "the lease has ended")
	}
	if leases := other.requestLeases().Leases; len(leases) != 0 {
		t.Errorf("the image is lent twice: %+v", leases)
	}
	a.clock.Step(10 * time.Minute)
	for _, got := range all(w) {
		w.want(got, http.StatusConflict, "the lease has ended")
	}
	if a.reported() != nil || a.matchFailure().Reason != "" {
		t.Error("reports or failures of leases that have ended are stored")
	}
	if leases := other.requestLeases().Leases; len(leases) != 1 {
		t.Errorf("%d images are lent after the first worker's time, want 1", len(leases))
	}
}

// TestLostAnswer: a lease whose answer did not reach the worker returns to the queue with the worker's next request.
func TestLostAnswer(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	a.leasable()
	w := a.job(store.JobMatch, "match")
	lost := w.requestLeases().Leases
	again := w.requestLeases().Leases
	if len(lost) != 1 || len(again) != 1 || lost[0].ID == again[0].ID || lost[0].Image != again[0].Image {
		t.Fatalf("leased %+v and then %+v, want the same image again", lost, again)
	}
	if more := w.requestLeases(again[0].ID).Leases; len(more) != 0 {
		t.Errorf("the image is lent again although the worker holds its lease: %+v", more)
	}
	w.want(w.post(workerapi.PathLeases, workerapi.LeaseRequest{Built: noon, Held: make([]string, maxLeases+1)}, nil), http.StatusUnprocessableEntity, "held")
}

// TestReportsThatAreRefused: after a refused report the lease continues, so that the worker can send a correct one.
func TestReportsThatAreRefused(t *testing.T) {
	whole := reportBody(t, aReport)
	text, err := json.Marshal(aReport)
	if err != nil {
		t.Fatal(err)
	}
	many := aReport
	for range 20000 {
		many.Findings = append(many.Findings, workerapi.Finding{ID: "CVE-2024-0001", Description: strings.Repeat("x", 100)})
	}
	noise := make([]byte, 200<<10)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	noisy := workerapi.Report{Database: aReport.Database, Distro: hex.EncodeToString(noise)}
	for name, tt := range map[string]struct {
		body   []byte
		digest string
		status int
		text   string
	}{
		"cut short":            {whole[:len(whole)-3], digest(string(whole)), http.StatusBadRequest, "not a whole report"},
		"JSON, cut short":      {compressed(t, text[:len(text)-1]), "", http.StatusBadRequest, "not a whole report"},
		"two reports":          {compressed(t, append(bytes.Clone(text), text...)), "", http.StatusBadRequest, "not a whole report"},
		"junk after it":        {append(bytes.Clone(whole), "junk"...), "", http.StatusBadRequest, "not a whole report"},
		"another digest":       {whole, digest("another"), http.StatusBadRequest, "was announced"},
		"no digest":            {whole, "-", http.StatusBadRequest, "was announced"},
		"not zstd":             {text, "", http.StatusBadRequest, "not a whole report"},
		"nothing":              {nil, "", http.StatusBadRequest, "not a whole report"},
		"no JSON":              {compressed(t, []byte("<xml>")), "", http.StatusBadRequest, "not a whole report"},
		"without its database": {compressed(t, []byte("{}")), "", http.StatusUnprocessableEntity, "database.built"},
		"too large":            {reportBody(t, noisy), "", http.StatusRequestEntityTooLarge, "too large"},
		"too large unpacked":   {reportBody(t, many), "", http.StatusRequestEntityTooLarge, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{Catalog: 1 << 20, SBOMContent: 1 << 20, MatchInputContent: 1 << 20, Report: 64 << 10, ReportContent: 1 << 20, JSON: 1 << 20})
			w, _, report, _ := a.leased()
			announced := tt.digest
			if announced == "" {
				announced = digest(string(tt.body))
			}
			w.want(w.send(http.MethodPut, report, bytes.NewReader(tt.body), workerapi.DigestHeader, announced), tt.status, tt.text)
			if a.reported() != nil {
				t.Error("the report is stored")
			}
			w.want(w.put(report, whole), http.StatusNoContent, "")
		})
	}
}

// TestFailures: a worker that cannot match an image reports the reason, whose size is bounded.
func TestFailures(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w, _, _, failure := a.leased()
	w.want(w.post(failure, workerapi.Failure{Message: "no"}, nil), http.StatusUnprocessableEntity, "reason: must be set")
	w.want(w.send(http.MethodPost, failure, strings.NewReader("no")), http.StatusBadRequest, "not the JSON")
	w.want(w.post(failure, workerapi.Failure{Reason: "a" + strings.Repeat("ü", 500), Message: "a" + strings.Repeat("ü", 5000)}, nil), http.StatusNoContent, "")
	got := a.matchFailure()
	if got.Reason != "a"+strings.Repeat("ü", (maxText-1)/2) || got.Message != "a"+strings.Repeat("ü", (4*maxText-1)/2) {
		t.Errorf("the failure has %d and %d bytes, want at most %d and %d of whole characters", len(got.Reason), len(got.Message), maxText, 4*maxText)
	}
	if leases := w.requestLeases().Leases; len(leases) != 0 {
		t.Errorf("what failed is lent at once again: %+v", leases)
	}
}

// TestReportOfAnotherTool: a report of another engine version than the current one is refused.
func TestReportOfAnotherTool(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w, _, report, _ := a.leased()
	a.must(a.store.SetDataVersion(t.Context(), "grype", store.DataVersion{Version: "v1", Built: noon, Tool: "grype 0.121.0"}))
	w.want(w.put(report, reportBody(t, aReport)), http.StatusConflict, `by "grype 0.110.0"; the current one is of`)
	if a.reported() != nil {
		t.Error("the report is stored")
	}
}

// TestWorkerThatWasReplaced: a replaced worker is refused for good, so that it ends. The answer says what to do.
func TestWorkerThatWasReplaced(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	a.install(noon, "grype 0.121.0")
	w := a.job(store.JobMatch, "match")
	w.want(w.post(workerapi.PathDatabase, workerapi.DatabaseStatus{Tool: tool}, nil), http.StatusForbidden, "name the image by its digest")
}

// TestEachRequestIsAContact: a match worker whose requests go on is kept, even if they do nothing else. A silent worker is ended.
func TestEachRequestIsAContact(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	a.leasable()
	active, silent := a.job(store.JobMatch, "active"), a.job(store.JobMatch, "silent")
	for _, w := range []*worker{active, silent} {
		w.run()
		w.requestLeases()
	}
	a.clock.Step(leaseTime)
	active.want(active.post(workerapi.PathAlive, struct{}{}, nil), http.StatusNoContent, "")
	a.clock.Step(time.Second)
	// The Job loop reconciles the Jobs of a namespace in the order of their names.
	a.runJobs(func() bool { return !slices.Contains(a.liveJobs(), "silent") })
	if got := a.liveJobs(); !slices.Contains(got, "active") {
		t.Errorf("the Jobs are %q, want that the active worker is kept", got)
	}
}

// run creates the worker's Job in the cluster, and has its pod run.
func (w *worker) run() {
	w.api.t.Helper()
	name := strings.TrimSuffix(w.pod.Name, "-pod")
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.pod.Namespace, Name: name, UID: w.pod.OwnerReferences[0].UID}}
	w.api.must(w.api.cluster.Create(w.api.t.Context(), job))
	w.setPodStatus(name, corev1.PodStatus{Phase: corev1.PodRunning})
}

// setPodStatus labels the worker's pod as one of the Job, and sets its status.
func (w *worker) setPodStatus(job string, status corev1.PodStatus) {
	w.api.t.Helper()
	w.pod.Labels = map[string]string{batchv1.JobNameLabel: job}
	w.api.must(w.api.cluster.Update(w.api.t.Context(), w.pod))
	w.pod.Status = status
	w.api.must(w.api.cluster.Status().Update(w.api.t.Context(), w.pod))
}

// TestSweptImage: the match input of an image that was swept is gone, and the worker continues with other images.
func TestSweptImage(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w, input, _, _ := a.leased()
	a.must(a.store.DeleteScanners(t.Context(), []string{"scanner"}))
	if _, err := a.store.Sweep(t.Context(), noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	got := w.send(http.MethodGet, input, http.NoBody)
	if got.status != http.StatusGone && got.status != http.StatusConflict {
		t.Errorf("the answer is %s, want that the image or the lease has gone", got)
	}
}

// TestWorkerWithOtherDatabase: a worker with another database gets no image, but the build to install.
func TestWorkerWithOtherDatabase(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	a.leasable()
	w := a.job(store.JobMatch, "match")
	newer := noon.Add(time.Hour)
	a.install(newer, tool)
	if got := w.requestLeases(); len(got.Leases) != 0 || !got.Wanted.Equal(newer) {
		t.Errorf("the worker gets %d images and is asked to have %s, want none and the newer build", len(got.Leases), got.Wanted)
	}
	if got := w.requestLeasesWith(newer); len(got.Leases) != 1 || !got.Wanted.IsZero() {
		t.Errorf("the worker gets %d images and is asked to have %s, want one and nothing", len(got.Leases), got.Wanted)
	}
	a.must(a.store.Close())
	w.want(w.post(workerapi.PathLeases, workerapi.LeaseRequest{Built: noon}, nil), http.StatusServiceUnavailable, "see its log")
}

// leasable adds one image that can be leased.
func (a *ingestAPI) leasable() {
	a.t.Helper()
	a.setUsed()
	a.job(store.JobCatalog, "catalog").uploadValidResult()
}

// requestLeaseAsync sends a lease request that waits for work. It returns the channel of the answer.
func (w *worker) requestLeaseAsync(ctx context.Context, seconds int) <-chan answer {
	w.api.t.Helper()
	answers := make(chan answer, 1)
	body, err := json.Marshal(workerapi.LeaseRequest{Built: noon, Max: 1, WaitSeconds: seconds})
	w.api.must(err)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.api.url+workerapi.PathLeases, bytes.NewReader(body))
	w.api.must(err)
	request.Header.Set("Authorization", "Bearer "+w.token)
	go func() {
		response, err := w.api.http.Do(request)
		if err != nil {
			answers <- answer{body: err.Error()}
			return
		}
		defer response.Body.Close()
		var text bytes.Buffer
		_, err = text.ReadFrom(response.Body)
		answers <- answer{status: response.StatusCode, body: errors.Join(err, errors.New(text.String())).Error()}
	}()
	return answers
}

// receives returns the answer, with a timeout.
func (a *ingestAPI) receives(answers <-chan answer) answer {
	a.t.Helper()
	select {
	case got := <-answers:
		return got
	case <-time.After(10 * time.Second):
		a.t.Fatal("there is no answer, though its time is over")
		return answer{}
	}
}

// steps advances the clock once the server waits for it.
func (a *ingestAPI) steps(d time.Duration) {
	a.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !a.clock.HasWaiters(); {
		if time.Now().After(deadline) {
			a.t.Fatal("nobody waits")
		}
	}
	a.clock.Step(d)
}

// TestWaitingForWork: the answer comes with the first image, or without one when the wait is over.
func TestWaitingForWork(t *testing.T) {
	t.Run("work comes", func(t *testing.T) {
		a := newIngestAPI(t, Limits{})
		answers := a.job(store.JobMatch, "match").requestLeaseAsync(t.Context(), 30)
		a.steps(time.Second)
		a.leasable()
		a.clock.Step(time.Second)
		if got := a.receives(answers); got.status != http.StatusOK || !strings.Contains(got.body, webPlatform) {
			t.Errorf("the answer is %s, want the image", got)
		}
	})
	t.Run("no work comes", func(t *testing.T) {
		a := newIngestAPI(t, Limits{})
		answers := a.job(store.JobMatch, "match").requestLeaseAsync(t.Context(), 30)
		a.steps(30 * time.Second)
		if got := a.receives(answers); got.status != http.StatusOK || !strings.Contains(got.body, `{"leases":[]}`) {
			t.Errorf("the answer is %s, want an empty list", got)
		}
	})
	t.Run("asking for years", func(t *testing.T) {
		a := newIngestAPI(t, Limits{})
		answers := a.job(store.JobMatch, "match").requestLeaseAsync(t.Context(), 1<<30)
		a.steps(maxWait)
		if got := a.receives(answers); got.status != http.StatusOK {
			t.Errorf("the answer is %s, want an empty list after %s", got, maxWait)
		}
	})
	t.Run("the worker goes", func(t *testing.T) {
		a := newIngestAPI(t, Limits{})
		ctx, cancel := context.WithCancel(t.Context())
		answers := a.job(store.JobMatch, "match").requestLeaseAsync(ctx, 30)
		a.steps(time.Second)
		cancel()
		if got := a.receives(answers); !strings.Contains(got.body, "canceled") {
			t.Errorf("the answer is %s, want none", got)
		}
	})
}

// TestNumbersOfLeases: requests for too many leases, for less than one, and with numbers that overflow.
func TestNumbersOfLeases(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	a.leasable()
	w := a.job(store.JobMatch, "match")
	for _, body := range []string{`{"max":-5,"built":"` + noon.Format(time.RFC3339) + `"}`, `{"max":1000000,"waitSeconds":-1,"built":"` + noon.Format(time.RFC3339) + `"}`} {
		got := w.send(http.MethodPost, workerapi.PathLeases, strings.NewReader(body))
		if got.status != http.StatusOK {
			t.Errorf("%s is answered by %s", body, got)
		}
	}
	w.want(w.send(http.MethodPost, workerapi.PathLeases, strings.NewReader(`{"max":1e30}`)), http.StatusBadRequest, "not the JSON")
	w.want(w.send(http.MethodPost, workerapi.PathLeases, strings.NewReader(`{"pad":"`+strings.Repeat("x", 2<<20)+`"}`)), http.StatusRequestEntityTooLarge, "too large")
}
