package storetest

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testStatus checks that the status has what the other methods return one by one.
func (on suite) testStatus(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web")
	f.use(t, "scanner", "web", workload("web", "ghcr.io/shop/web"))
	built := f.clock.Now().Add(-time.Hour)
	must(t, f.SetDataVersion(t.Context(), grype, store.DataVersion{Version: "v2", Built: built, Tool: "grype 1"}))
	must(t, f.SetDataVersion(t.Context(), clair, store.DataVersion{Version: "v1", Built: built}))
	must(t, f.CheckHealth(t.Context()))
	status := got[store.Status](t)(f.Status(t.Context()))
	equal(t, "revision", status.Revision, got[int64](t)(f.Revision(t.Context())))
	if status.Size <= 0 || status.Schema <= 0 || status.Fault != nil || status.Database == "" {
		t.Errorf("status: %+v, want a database with a size and a schema, and without a fault", status)
	}
	equal(t, "engines", status.Engines, []store.EngineStatus{
		{Engine: clair, Data: got[store.DataVersion](t)(f.DataVersion(t.Context(), clair))},
		{Engine: grype, Data: got[store.DataVersion](t)(f.DataVersion(t.Context(), grype)), Queue: 1},
	})
	f.report(t, "web")
	if again := got[store.Status](t)(f.Status(t.Context())); again.Revision <= status.Revision {
		t.Errorf("revision after a report: %d, want one above %d", again.Revision, status.Revision)
	}
}
