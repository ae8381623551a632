package ingest

import (
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestAuthentication: each reason for which a request can be refused, and the answer.
func TestAuthentication(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(a *ingestAPI, w *worker)
		status int
		text   string
	}{
		"the pod of a catalog Job": {func(*ingestAPI, *worker) {}, http.StatusBadRequest, "was announced"}, // the request is refused only for its body
		"no token":                 {func(_ *ingestAPI, w *worker) { w.token = "" }, http.StatusUnauthorized, "a bearer token is needed"},
		"an unknown token":         {func(_ *ingestAPI, w *worker) { w.token = "forged" }, http.StatusUnauthorized, "the token is not valid here"},
		"a token for somebody else": {func(a *ingestAPI, w *worker) {
			w.changeReview(func(s *authenticationv1.TokenReviewStatus) { s.Audiences = []string{"vault"} })
		}, http.StatusUnauthorized, "the token is not valid here"},
		"a token for anybody": {func(a *ingestAPI, w *worker) {
			w.changeReview(func(s *authenticationv1.TokenReviewStatus) { s.Audiences = nil })
		}, http.StatusUnauthorized, "the token is not valid here"},
		"a token for others too": {func(a *ingestAPI, w *worker) {
			w.changeReview(func(s *authenticationv1.TokenReviewStatus) { s.Audiences = append(s.Audiences, "vault") })
		}, http.StatusUnauthorized, "the token is not valid here"},
		"a token without a pod": {func(a *ingestAPI, w *worker) {
			w.changeReview(func(s *authenticationv1.TokenReviewStatus) { s.User.Extra = nil })
		}, http.StatusForbidden, "bound to no pod"},
		"a token of two pods": {func(a *ingestAPI, w *worker) {
			w.changeReview(func(s *authenticationv1.TokenReviewStatus) { s.User.Extra[extraPodUID] = []string{"a", "b"} })
		}, http.StatusForbidden, "bound to no pod"},
		"a user, no service account": {func(a *ingestAPI, w *worker) {
			w.changeReview(func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "admin" })
		}, http.StatusForbidden, "bound to no pod"},
		"a pod that has gone": {func(a *ingestAPI, w *worker) { a.must(a.cluster.Delete(a.t.Context(), w.pod)) }, http.StatusForbidden, "does not exist any more"},
		"a pod that was replaced": {func(a *ingestAPI, w *worker) {
			w.changeReview(func(s *authenticationv1.TokenReviewStatus) { s.User.Extra[extraPodUID] = []string{"former"} })
		}, http.StatusForbidden, "does not exist any more"},
		"a pod of the same name elsewhere": {func(a *ingestAPI, w *worker) {
			w.changeReview(func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:shop:default" })
		}, http.StatusForbidden, "does not exist any more"},
		"a pod of no Job": {func(a *ingestAPI, w *worker) {
			w.changePod(func(pod *corev1.Pod) { pod.OwnerReferences = nil })
		}, http.StatusForbidden, "belongs to no Job"},
		"a pod that a Job owns but does not control": {func(a *ingestAPI, w *worker) {
			w.changePod(func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = ptr.To(false) })
		}, http.StatusForbidden, "belongs to no Job"},
		"a pod of a ReplicaSet": {func(a *ingestAPI, w *worker) {
			w.changePod(func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "ReplicaSet" })
		}, http.StatusForbidden, "belongs to no Job"},
		"a pod of somebody's own Job": {func(a *ingestAPI, w *worker) {
			w.changePod(func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "somebody's" })
		}, http.StatusForbidden, "not one that the operator made"},
		"a Job that has ended": {func(a *ingestAPI, _ *worker) {
			a.must(a.store.DeleteJob(a.t.Context(), operatorNamespace, "catalog"))
		}, http.StatusForbidden, "or has ended"},
		"a Job of another version of the operator": {func(a *ingestAPI, _ *worker) {
			a.ingest.auth.worker = "registry.example.com/scanner-grype:v2"
		}, http.StatusServiceUnavailable, "made by another version of the operator"},
		"an API server in trouble": {func(a *ingestAPI, _ *worker) { a.reviewErr = errUnavailable }, http.StatusServiceUnavailable, "see its log"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{})
			w := a.job(store.JobCatalog, "catalog")
			tt.change(a, w)
			got := w.send(http.MethodPut, workerapi.PathCatalogResult, http.NoBody)
			w.want(got, tt.status, tt.text)
			if tt.text == "see its log" && got.body != "the manager cannot do that now, see its log\n" {
				t.Errorf("the answer %q says more than it should", got.body)
			}
		})
	}
}

// changeReview changes the API server's review of a worker's token.
func (w *worker) changeReview(change func(*authenticationv1.TokenReviewStatus)) {
	status := w.review()
	change(&status)
	w.api.tokens.set(w.token, status)
}

// changePod changes a worker's pod.
func (w *worker) changePod(change func(*corev1.Pod)) {
	w.api.t.Helper()
	change(w.pod)
	w.api.must(w.api.cluster.Update(w.api.t.Context(), w.pod))
}

// TestForgedOwner: a second pod with a forged owner reference to a Job is refused, in the Job's namespace and elsewhere. The first pod
// continues.
func TestForgedOwner(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	first := a.job(store.JobCatalog, "catalog")
	broken := newCatalogUpload(t, func(p *catalogUpload) { p.sbom = []byte("plain text") })
	first.want(first.uploadResult(broken), http.StatusBadRequest, "not whole zstd")
	second := a.worker(operatorNamespace, "forged", "uid-of-catalog")
	second.want(second.uploadResult(newCatalogUpload(t)), http.StatusForbidden, "another pod speaks for this Job")
	elsewhere := a.worker("shop", "forged", "uid-of-catalog")
	elsewhere.want(elsewhere.uploadResult(newCatalogUpload(t)), http.StatusForbidden, "this Job may not do that")
	first.uploadValidResult()
}

// TestForeignNamespaceClaimsNothing: a pod of another namespace that makes the first request does not take the Job from its own pod.
func TestForeignNamespaceClaimsNothing(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	own := a.job(store.JobCatalog, "catalog")
	forged := a.worker("shop", "forged", "uid-of-catalog")
	forged.want(forged.uploadResult(newCatalogUpload(t)), http.StatusForbidden, "this Job may not do that")
	own.uploadValidResult()
}

// TestPurpose: a catalog Job may not match and a match worker may not catalog, on any path.
func TestPurpose(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	catalog, match := a.job(store.JobCatalog, "catalog"), a.job(store.JobMatch, "match")
	match.want(match.uploadResult(newCatalogUpload(t)), http.StatusForbidden, "this Job may not do that")
	for _, request := range [][2]string{
		{http.MethodPost, workerapi.PathDatabase}, {http.MethodPost, workerapi.PathLeases}, {http.MethodGet, "/v1/match/leases/x/input"},
		{http.MethodPut, "/v1/match/leases/x/report"}, {http.MethodPut, vulnerabilityIDsPath(noon)}, {http.MethodPost, "/v1/match/leases/x/failure"},
	} {
		catalog.want(catalog.send(request[0], request[1], http.NoBody), http.StatusForbidden, "this Job may not do that")
	}
	catalog.uploadValidResult()
}

// TestOtherPaths: unknown paths and methods are refused.
func TestOtherPaths(t *testing.T) {
	w := newIngestAPI(t, Limits{}).job(store.JobCatalog, "catalog")
	w.want(w.send(http.MethodGet, "/", http.NoBody), http.StatusNotFound, "")
	w.want(w.send(http.MethodGet, workerapi.PathCatalogResult, http.NoBody), http.StatusMethodNotAllowed, "")
	w.want(w.send(http.MethodPut, "/v1/catalog/../match/database", http.NoBody), http.StatusMethodNotAllowed, "")
}
