package restapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authorizationv1 "k8s.io/api/authorization/v1"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// TestGetOperator: who may list scanners in all namespaces sees the store, the queue and the data. Nobody else does.
func TestGetOperator(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createNamespaces("infra")
	w.createScanner("shop", "main", func(s *v1alpha1.Scanner) {
		s.Status.Images = v1alpha1.ImageCounts{Total: 3, Scanned: 1, Pending: 1, Failed: 1}
	})
	w.createClusterScanner("platform", func(s *v1alpha1.ClusterScanner) {
		s.Status.Images = v1alpha1.ImageCounts{Total: 2, Scanned: 1, Excluded: 1}
	})
	w.must(w.store.SetDataVersion(t.Context(), engine, store.DataVersion{Version: "v2", Built: noon.Add(-6 * time.Hour), Tool: "grype 1"}))
	get := func() *restv1.Operator {
		t.Helper()
		answer, err := w.clientFor(anyone).GetOperatorWithResponse(t.Context())
		w.must(err)
		if answer.JSON200 == nil {
			t.Fatalf("operator: %d %s", answer.StatusCode(), answer.Body)
		}
		return answer.JSON200
	}
	w.api.ClusterName = "prod-eu"
	want := &restv1.Operator{
		Version: version.Version, Cluster: "prod-eu", Scanners: 2, Images: restv1.ImageCounts{Total: 5, Scanned: 2, Pending: 1, Failed: 1, Excluded: 1},
		Store:    restv1.OperatorStore{Database: "SQLite", Healthy: true},
		Engines:  []restv1.Engine{{Engine: "grype", Tool: "grype 1", DataVersion: "v2", BuildTime: noon.Add(-6 * time.Hour), AgeSeconds: 6 * 3600, SinceTime: noon}},
		Replicas: []restv1.Replica{{Name: "manager-1", Node: "a", Ready: true, Leads: true, LeadsSince: noon, StartTime: noon}, {Name: "manager-2", StartTime: noon}},
	}
	w.api.Replicas = func(context.Context) ([]restv1.Replica, error) { return want.Replicas, nil }
	found := get()
	if diff := cmp.Diff(want, found, cmpopts.IgnoreFields(restv1.OperatorStore{}, "SizeBytes", "Schema", "Revision")); diff != "" {
		t.Errorf("operator (-want +got):\n%s", diff)
	}
	if found.Store.SizeBytes == 0 || found.Store.Schema == 0 || found.Store.Revision == 0 {
		t.Errorf("store: %+v, want a size, a schema and a revision", found.Store)
	}
	w.api.Store = fullStore{w.store}
	if found := get().Store; found.Healthy || !strings.Contains(found.Message, "enlarge it") {
		t.Errorf("a store on a full volume: %+v, want the way out", found)
	}
	api.allowed = func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.ResourceAttributes.Namespace != "" }
	w.clock.Step(2 * decisionTTL)
	if response, body := w.get("/api/v1/operator", anyone); response.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "ClusterRoleBinding") {
		t.Errorf("a caller who sees namespaces one by one: %d %s, want 403 with the role that is needed", response.StatusCode, body)
	}
}

// fullStore is a store on a full volume.
type fullStore struct{ *store.Store }

func (s fullStore) Status(ctx context.Context) (store.Status, error) {
	status, err := s.Store.Status(ctx)
	status.Fault = store.ErrVolumeFull
	return status, err
}
