package ingest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// upload saves an SBOM that ci uploads for the image in a namespace.
func (a *ingestAPI) upload(namespace, content string) store.UploadedSBOM {
	a.t.Helper()
	saved, err := a.store.SaveUploadedSBOM(a.t.Context(), store.UploadedSBOM{
		Namespace: namespace, Digest: web.Digest, PlatformDigest: webPlatform, Sum: content, User: "ci",
	}, strings.NewReader(content), 0)
	a.must(err)
	return saved.UploadedSBOM
}

// jobWith returns the worker of a catalog Job in a namespace, to which the manager has given a policy.
func (a *ingestAPI) jobWith(namespace, policy string) *worker {
	a.t.Helper()
	uid := "uid-of-" + namespace + policy
	a.must(a.store.SaveJob(a.t.Context(), store.Job{
		Namespace: namespace, Name: "catalog" + policy, UID: uid, Purpose: store.JobCatalog, Key: web, Scope: store.Scope(namespace), CreatedAt: noon,
		Worker: workerImage, SBOMPolicy: policy,
	}))
	return a.worker(namespace, "pod-of-"+uid, uid)
}

// TestUploadedSBOM: a Job gets the upload that the manager has named for it, and its result says who uploaded it, and when. No Job gets that of
// another namespace, or a former one.
func TestUploadedSBOM(t *testing.T) {
	usesUpload := func(p *catalogUpload) { p.result.UploadedSBOM, p.result.SBOMProblem = true, "not\npulled" }
	for name, tt := range map[string]struct {
		policy func(*ingestAPI) string
		status int
		text   string
		// result is the status of a result that uses the upload.
		result int
	}{
		"the latest upload": {func(a *ingestAPI) string { return a.upload("shop", "SBOM").Policy }, http.StatusOK, "SBOM", http.StatusNoContent},
		"a former upload": {func(a *ingestAPI) string {
			former := a.upload("shop", "SBOM")
			a.upload("shop", "another")
			return former.Policy
		}, http.StatusGone, "replaced or withdrawn", http.StatusGone},
		"a withdrawn upload": {func(a *ingestAPI) string {
			former := a.upload("shop", "SBOM")
			a.must(a.store.DeleteUploadedSBOMs(t.Context(), "shop", web.Digest))
			return former.Policy
		}, http.StatusGone, "replaced or withdrawn", http.StatusGone},
		"that of another namespace": {func(a *ingestAPI) string { return a.upload("bank", "SBOM").Policy }, http.StatusGone, "replaced or withdrawn", http.StatusGone},
		"no upload":                 {func(a *ingestAPI) string { a.upload("shop", "SBOM"); return "" }, http.StatusForbidden, "may not use an uploaded SBOM", http.StatusUnprocessableEntity},
		"the policy of a registry":  {func(*ingestAPI) string { return "policy" }, http.StatusForbidden, "may not use an uploaded SBOM", http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{})
			policy := tt.policy(a)
			w := a.jobWith("shop", policy)
			w.want(w.send(http.MethodGet, workerapi.PathUploadedSBOM, nil), tt.status, tt.text)
			w.want(w.uploadResult(newCatalogUpload(t, usesUpload)), tt.result, "")
			if tt.result != http.StatusNoContent {
				return
			}
			got, err := a.store.Catalog(t.Context(), "grype", web, "shop")
			a.must(err)
			if diff := cmp.Diff(store.Origin{Policy: policy, Uploader: "ci", UploadedAt: noon.UTC(), Problem: "not pulled"}, got.Origin); diff != "" {
				t.Errorf("the origin (-want +got):\n%s", diff)
			}
		})
	}
}

// TestContentBesideAnUpload: content that a Job with an upload has cataloged counts without it. A signature does not count for such a Job.
func TestContentBesideAnUpload(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.jobWith("shop", a.upload("shop", "SBOM").Policy)
	w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) { p.result.SBOMSigner = "somebody" })), http.StatusUnprocessableEntity, "sbomSigner")
	w.want(w.uploadResult(newCatalogUpload(t)), http.StatusNoContent, "")
	got, err := a.store.Catalog(t.Context(), "grype", web, "shop")
	a.must(err)
	if got.Origin != (store.Origin{}) {
		t.Errorf("the origin is %+v, want content", got.Origin)
	}
}

// TestStatementsBesideAnUpload: a Job that used an upload has read no OpenVEX documents, so those that an earlier Job has read stay.
func TestStatementsBesideAnUpload(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	read := func(name, policy string, change func(*catalogUpload)) {
		t.Helper()
		a.must(a.store.SaveJob(t.Context(), store.Job{
			Namespace: "shop", Name: name, UID: name, Purpose: store.JobCatalog, Key: web, Scope: "shop", CreatedAt: noon, Worker: workerImage,
			SBOMPolicy: policy, VEXPolicy: "vex",
		}))
		w := a.worker("shop", "pod-of-"+name, name)
		w.want(w.uploadResult(newCatalogUpload(t, change)), http.StatusNoContent, "")
	}
	of := store.Subject{PlatformDigest: webPlatform, Scope: "shop", Engine: "grype"}
	read("pulled", "", func(p *catalogUpload) {
		p.vex = [][]byte{[]byte(`{"@context": "https://openvex.dev/ns/v0.2.0", "@id": "doc", "author": "jane", "timestamp": "2026-01-01T00:00:00Z",
			"statements": [{"vulnerability": {"name": "CVE-1"}, "status": "fixed"}]}`)}
	})
	a.must(a.store.DeleteCatalog(t.Context(), of.Engine, of.PlatformDigest))
	read("uploaded", a.upload("shop", "SBOM").Policy, func(p *catalogUpload) { p.result.UploadedSBOM = true })
	got, err := a.store.VEXSummary(t.Context(), of, "vex")
	a.must(err)
	if got != (store.VEXSummary{Statements: 1}) {
		t.Errorf("the statements are %+v, want the one that was read", got)
	}
}
