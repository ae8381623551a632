package controllers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// publishers are the ways in which a database server may answer.
var publishers = map[string]http.HandlerFunc{
	"works": func(w http.ResponseWriter, _ *http.Request) { lists(w, noon.Add(-time.Hour)) },
	"newer": func(w http.ResponseWriter, _ *http.Request) { lists(w, noon) },
	"down": func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "maintenance", http.StatusServiceUnavailable)
	},
	"garbage": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>welcome")) },
	"endless": func(w http.ResponseWriter, _ *http.Request) {
		for err := error(nil); err == nil; {
			_, err = w.Write([]byte(strings.Repeat(" ", 4096)))
		}
	},
	"cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
}

func lists(w http.ResponseWriter, built time.Time) {
	_, _ = fmt.Fprintf(w, `{"status":"active","schemaVersion":"v6.1.4","built":%q,"path":"db.tar.zst","checksum":"sha256:1"}`, built.Format(time.RFC3339))
}

// TestVulnerabilityDataConditions: each problem is in the Scanner's condition, with a reason and the remedy. Matching
// continues with the existing data. The condition recovers by itself.
func TestVulnerabilityDataConditions(t *testing.T) {
	good := workerapi.Database{Built: noon.Add(-time.Hour), SchemaVersion: "v6.1.4", Checksum: "sha256:1"}
	ancient := workerapi.Database{Built: noon.Add(-200 * time.Hour), SchemaVersion: "v6.1.4", Checksum: "sha256:0"}
	refused := func(problem string) *workerapi.DatabaseStatus {
		return &workerapi.DatabaseStatus{Tool: "grype 0.110.0", Installed: &good, Refused: &workerapi.Database{Built: noon}, Error: problem}
	}
	for name, tt := range map[string]struct {
		publisher string
		installed *workerapi.Database
		reports   *workerapi.DatabaseStatus
		want      string
		message   string
	}{
		"no fault":                            {"works", &good, nil, "True Available", ""},
		"an ancient database":                 {"works", &ancient, nil, "True VulnerabilityDataOutdated", "200 hours old"},
		"the database server is down":         {"down", &good, nil, "True VulnerabilityDataOutdated", "503 Service Unavailable"},
		"the database server never was there": {"down", nil, nil, "False NoVulnerabilityData", "503 Service Unavailable"},
		"the listing is garbage":              {"garbage", &good, nil, "True VulnerabilityDataOutdated", "sends no listing"},
		"the listing is endless":              {"endless", &good, nil, "True VulnerabilityDataOutdated", "sends no listing"},
		"the connection is cut":               {"cut", &good, nil, "True VulnerabilityDataOutdated", "cannot be read"},
		"a broken database":                   {"newer", &good, refused("the archive's checksum is not the listing's"), "True VulnerabilityDataOutdated", "checksum"},
		"a half-downloaded database":          {"newer", &good, refused("downloading the database, after 10 bytes: unexpected EOF"), "True VulnerabilityDataOutdated", "after 10 bytes"},
		"a database volume that is full":      {"newer", &good, refused("no space left on device: raise grype.database.volume.size"), "True VulnerabilityDataOutdated", "grype.database.volume.size"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			u := newUnit(t, theScanner(), aPod(fixtureNamespace, "a", running("c", web)))
			var publisher atomic.Pointer[http.HandlerFunc]
			publish := func(name string) { answer := publishers[name]; publisher.Store(&answer) }
			publish(tt.publisher)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*publisher.Load())(w, r) }))
			t.Cleanup(server.Close)
			settings := config.Default()
			settings.Grype.Database.URL, settings.Grype.Database.PollInterval = server.URL, metav1.Duration{Duration: 10 * time.Millisecond}
			engine := grype.New(grype.Options{
				Client: u.client, Reader: u.client, Store: u.store, Config: settings, Clock: u.clock, Log: logr.Discard(), HTTP: server.Client(),
				Wake: func(context.Context, string) {}, DataChanged: func(context.Context) {},
			})
			u.scanners.Backends = backend.Choosers{v1alpha1.BackendGrype: backend.Always(engine)}
			if tt.installed != nil {
				_, err := engine.RecordDatabase(t.Context(), workerapi.DatabaseStatus{Tool: "grype 0.110.0", Installed: tt.installed})
				u.must(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- engine.RunListingPolls(ctx) }()
			defer func() { stop(); <-ended }()
			reported := func() string {
				condition := meta.FindStatusCondition(u.reconcileScanner().Status.Conditions, v1alpha1.ConditionBackendAvailable)
				return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
			}
			if tt.reports != nil {
				// Once the listing is read, a worker is asked to install the newer build, and reports that it cannot.
				g.Eventually(func() (time.Time, error) {
					return engine.RecordDatabase(t.Context(), workerapi.DatabaseStatus{Tool: "grype 0.110.0", Installed: &good})
				}).Should(BeTemporally("==", noon), "the listing is read")
				_, err := engine.RecordDatabase(t.Context(), *tt.reports)
				u.must(err)
			}
			g.Eventually(reported).Should(And(HavePrefix(tt.want), ContainSubstring(tt.message)), "the fault is shown")
			if data := u.reconcileScanner().Status.VulnerabilityData; (data != nil) != (tt.installed != nil) {
				t.Errorf("the data in use is %v, want what is installed", data)
			}
			// The server works again, and a worker installs its data.
			publish("works")
			_, err := engine.RecordDatabase(t.Context(), workerapi.DatabaseStatus{Tool: "grype 0.110.0", Installed: &good})
			u.must(err)
			g.Eventually(reported).Should(HavePrefix("True Available"), "the fault is over")
		})
	}
}
