package ingest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const builtAtNoon = `"database":{"built":"2026-01-01T12:00:00Z"}`

// TestDecodeReport: valid forms of a report, and the limits.
func TestDecodeReport(t *testing.T) {
	built := workerapi.Database{Built: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	list := func(n int, entry string) string { return "[" + strings.Repeat(entry+",", n-1) + entry + "]" }
	for name, tt := range map[string]struct {
		text   string
		want   workerapi.Report
		status int // of the refusal; 0 for none
	}{
		"all fields, findings first": {
			text: `{"findings":[{"id":"A"},{"id":"B","aliases":["C"]}],"tool":"grype","distro":"debian 12","ignored":3,"notCovered":["OS packages (rpm)"],` + builtAtNoon + `} `,
			want: workerapi.Report{
				Database: built, Tool: "grype", Distro: "debian 12", Ignored: 3, NotCovered: []string{"OS packages (rpm)"},
				Findings: []workerapi.Finding{{ID: "A"}, {ID: "B", Aliases: []string{"C"}}},
			},
		},
		"no findings":           {text: `{` + builtAtNoon + `,"findings":null}`, want: workerapi.Report{Database: built}},
		"a newer worker's":      {text: `{"more":{"findings":[1]},` + builtAtNoon + `}`, want: workerapi.Report{Database: built}},
		"a list":                {text: `[]`, status: http.StatusBadRequest},
		"findings of no list":   {text: `{` + builtAtNoon + `,"findings":{}}`, status: http.StatusBadRequest},
		"cut short in findings": {text: `{` + builtAtNoon + `,"findings":[{}`, status: http.StatusBadRequest},
		"another type":          {text: `{` + builtAtNoon + `,"tool":1}`, status: http.StatusBadRequest},
		"too many findings":     {text: `{` + builtAtNoon + `,"findings":` + list(workerapi.MaxReportFindings+1, "{}") + `}`, status: http.StatusRequestEntityTooLarge},
		"too many entries": {
			text: `{"findings":` + list(11, `{"cvss":`+list(100_000, "{}")+`}`) + `,` + builtAtNoon + `}`, status: http.StatusRequestEntityTooLarge,
		},
		"too many gaps": {text: `{` + builtAtNoon + `,"notCovered":` + list(workerapi.MaxNotCovered+1, `"x"`) + `}`, status: http.StatusRequestEntityTooLarge},
		"too long a gap": {
			text: `{` + builtAtNoon + `,"notCovered":["` + strings.Repeat("x", workerapi.MaxNotCoveredBytes+1) + `"]}`, status: http.StatusRequestEntityTooLarge,
		},
		"too large a finding": {
			text:   `{"findings":[{"description":"` + strings.Repeat("x", 2*workerapi.MaxFindingBytes) + `"}],` + builtAtNoon + `}`,
			status: http.StatusRequestEntityTooLarge,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got workerapi.Report
			err := decodeWhole(strings.NewReader(tt.text), &got)
			var refused *refusal
			switch {
			case tt.status == 0 && err != nil:
				t.Errorf("it is refused: %v", err)
			case tt.status == 0:
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("report (-want +got):\n%s", diff)
				}
			case !errors.As(err, &refused) || refused.status != tt.status:
				t.Errorf("it gives %v, want a refusal with %d", err, tt.status)
			}
		})
	}
}

// TestReportOfOtherData: a report made with other data than the current one is not stored. Its image is leased again at once when there is
// newer data.
func TestReportOfOtherData(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w, _, report, _ := a.leased()
	a.must(a.store.SetDataVersion(t.Context(), "grype", store.DataVersion{Version: "v2", Built: noon.Add(time.Hour)}))
	w.want(w.put(report, reportBody(t, aReport)), http.StatusConflict, "the report was made with the vulnerability database of")
	if a.reported() != nil {
		t.Error("the report is stored")
	}
	if leases := w.requestLeasesWith(noon.Add(time.Hour)).Leases; len(leases) != 1 {
		t.Errorf("%d images are lent again, want 1", len(leases))
	}
}

// TestReportsInMemory: while too many reports are in memory, a request waits until a slot is free or its client disconnects.
func TestReportsInMemory(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w, _, report, _ := a.leased()
	releases := a.fill(a.ingest.decoding, maxDecoding)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	whole := reportBody(t, aReport)
	request := httptest.NewRequestWithContext(ctx, http.MethodPut, report, bytes.NewReader(whole))
	request.Header.Set(workerapi.DigestHeader, digest(string(whole)))
	request.SetPathValue("lease", strings.Split(report, "/")[4])
	waiting := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	if err := a.ingest.putReport(waiting, request, store.Job{UID: "uid-of-match"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the answer is %v, want %v", err, context.DeadlineExceeded)
	}
	if len(waiting.read) != 0 || a.reported() != nil {
		t.Error("its body is received without a place for it")
	}
	releases[0]()
	w.want(w.put(report, whole), http.StatusNoContent, "")
	if got := a.ingest.decoding.Used(); got != maxDecoding-1 {
		t.Errorf("%d places are taken, want %d", got, maxDecoding-1)
	}
}

// deadlines records the deadlines that a handler sets.
type deadlines struct {
	*httptest.ResponseRecorder
	read []time.Time
}

// SetReadDeadline implements the method that http.ResponseController calls.
func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.read = append(d.read, at)
	return nil
}

// TestReadDeadlines: there is a deadline for the body, and none after it was received: net/http would cancel a request that waits for work.
func TestReadDeadlines(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	body := newCatalogUpload(t).body(t)
	upload := httptest.NewRequestWithContext(t.Context(), http.MethodPut, workerapi.PathCatalogResult, bytes.NewReader(body))
	upload.Header.Set(workerapi.DigestHeader, digest(string(body)))
	lease := httptest.NewRequestWithContext(t.Context(), http.MethodPost, workerapi.PathLeases, strings.NewReader(`{"max":1}`))
	for _, tt := range []struct {
		request *http.Request
		purpose store.JobPurpose
		limits  []time.Duration // 0 means no deadline
	}{
		{upload, store.JobCatalog, []time.Duration{smallBodyTime, uploadTime, 0}},
		{lease, store.JobMatch, []time.Duration{smallBodyTime, 0}},
	} {
		w := a.job(tt.purpose, string(tt.purpose))
		tt.request.Header.Set("Authorization", "Bearer "+w.token)
		handler, err := a.ingest.Handler()
		a.must(err)
		got := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		start := time.Now()
		handler.ServeHTTP(got, tt.request)
		if len(got.read) != len(tt.limits) {
			t.Fatalf("%s: %s sets the deadlines %v, want %v from %s", tt.request.URL.Path, got.Result().Status, got.read, tt.limits, start)
		}
		for i, limit := range tt.limits {
			after := got.read[i].Sub(start).Round(time.Minute / 4)
			if limit == 0 && !got.read[i].IsZero() || limit != 0 && after != limit {
				t.Errorf("%s: deadline %d is %s (after %s), want after %s", tt.request.URL.Path, i, got.read[i], after, limit)
			}
		}
	}
}
