package storetest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testExportStates checks that states are kept by Scanner, export and item, and that they end with the export and with the Scanner.
func (on suite) testExportStates(t *testing.T) {
	f := on.newStore(t)
	ctx := t.Context()
	states := func(scanner, name string) map[string]string {
		t.Helper()
		texts := map[string]string{}
		for item, state := range got[map[string][]byte](t)(f.ExportStates(ctx, scanner, name)) {
			texts[item] = string(state)
		}
		return texts
	}
	equal(t, "the state before the first", got[[]byte](t)(f.ExportState(ctx, "scanner", "dojo")), []byte(nil))
	must(t, f.SaveExportStates(ctx, "scanner", "dojo", map[string][]byte{"": []byte("own"), "web": []byte("1"), "api": []byte("1")}))
	must(t, f.SaveExportStates(ctx, "scanner", "other", map[string][]byte{"web": []byte("2")}))
	must(t, f.SaveExportStates(ctx, "another", "dojo", map[string][]byte{"web": []byte("3")}))
	must(t, f.SaveExportStates(ctx, "scanner", "dojo", map[string][]byte{"web": []byte("4"), "api": nil, "unknown": nil}))
	equal(t, "states", states("scanner", "dojo"), map[string]string{"": "own", "web": "4"})
	equal(t, "the export's own state", string(got[[]byte](t)(f.ExportState(ctx, "scanner", "dojo"))), "own")
	equal(t, "Scanners", got[[]string](t)(f.Scanners(ctx)), []string{"another", "scanner"})
	if err := f.SaveExportStates(ctx, "", "dojo", nil); err == nil {
		t.Error("a state of no Scanner was saved")
	}
	must(t, f.RetainExports(ctx, "scanner", []string{"dojo"}))
	equal(t, "number of states of an export that is not listed any more", len(states("scanner", "other")), 0)
	if f.writes(t, func(s *store.Store) error { return s.RetainExports(ctx, "scanner", []string{"dojo"}) }) {
		t.Error("RetainExports writes although there is nothing to delete")
	}
	must(t, f.DeleteScanners(ctx, []string{"scanner"}))
	equal(t, "number of states of a deleted Scanner", len(states("scanner", "dojo")), 0)
	equal(t, "states of another Scanner", states("another", "dojo"), map[string]string{"web": "3"})
}

// testWorkloadVersions checks that a workload's version changes with its images and their reports and with nothing else.
func (on suite) testWorkloadVersions(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web", "proxy", "job")
	sidecar, job := workload("web", "ghcr.io/shop/proxy"), workload("job", "ghcr.io/shop/job")
	sidecar.Container, job.Kind = "proxy", "Job"
	f.use(t, "scanner", "web", workload("web", "ghcr.io/shop/web"))
	f.use(t, "scanner", "proxy", sidecar)
	f.use(t, "another", "web", workload("web", "ghcr.io/shop/web"))
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl"))
	versions := func() (lines []string, version string) {
		t.Helper()
		for _, w := range got[[]store.WorkloadVersion](t)(f.WorkloadVersions(t.Context(), "scanner")) {
			lines = append(lines, fmt.Sprint(w.Namespace, " ", w.Kind, " ", w.Name, " pending ", w.Pending, " ended ", w.Ended))
			if w.Name == "web" {
				version = w.Version
			}
		}
		return lines, version
	}
	var known []string
	changes := func(what string, changed bool, want ...string) {
		t.Helper()
		lines, version := versions()
		equal(t, what, lines, want)
		if before := slices.Contains(known, version); before == changed {
			t.Errorf("%s: the version is new: %t, want %t", what, !before, changed)
		}
		known = append(known, version)
	}
	changes("one image without a result", true, "shop Deployment web pending 1 ended false")
	f.report(t, "proxy", vulnerable("CVE-2026-0002", "zlib"))
	const complete = "shop Deployment web pending 0 ended false"
	changes("both images with a result", true, complete)
	changes("nothing", false, complete)
	f.report(t, "proxy", vulnerable("CVE-2026-0002", "zlib", severity(finding.Critical)))
	changes("another report", true, complete)
	f.report(t, "job")
	f.use(t, "scanner", "job", job)
	changes("another workload", false, complete, "shop Job job pending 0 ended false")
	ended := used("scanner", "job")
	ended.Ended = []store.EndedWorkload{{Workload: job, At: f.clock.Now()}}
	must(t, f.SetUsage(t.Context(), ended))
	changes("the other workload has ended", false, complete, "shop Job job pending 0 ended true")
	retagged := workload("web", "ghcr.io/shop/web")
	retagged.Reference += "2"
	f.use(t, "scanner", "web", retagged)
	changes("another tag", true, complete, "shop Job job pending 0 ended true")
	for _, w := range got[[]store.WorkloadVersion](t)(f.WorkloadVersions(t.Context(), "scanner")) {
		if images := map[string][]image.Key{"web": {key("web"), key("proxy")}}[w.Name]; w.Name == "web" || len(w.Images) > 0 {
			equal(t, "images of "+w.Name, w.Images, images)
		}
		equal(t, w.Name+" alone", got[store.WorkloadVersion](t)(f.WorkloadVersion(t.Context(), "scanner", w.Namespace, w.Kind, w.Name)), w)
	}
	if w, err := f.WorkloadVersion(t.Context(), "scanner", "shop", "Job", "web"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a workload that the Scanner has no image of: %+v, %v", w, err)
	}
}

// testWorkloadSBOMs checks that the documents of a workload are those of its containers' images, and that their version changes with them only.
func (on suite) testWorkloadSBOMs(t *testing.T) {
	f := on.newStore(t)
	sidecar := workload("web", "ghcr.io/shop/proxy")
	sidecar.Container = "proxy"
	f.use(t, "scanner", "web", workload("web", "ghcr.io/shop/web"))
	f.use(t, "scanner", "proxy", sidecar)
	f.use(t, "scanner", "job", workload("job", "ghcr.io/shop/job"))
	catalog := func(name string, documents map[store.Artifact]string) {
		t.Helper()
		must(t, f.SaveCatalog(t.Context(), catalogOf(name, f.clock.Now()), artifacts(documents)))
	}
	var known []string
	changes := func(what string, changed bool, without int, want ...string) {
		t.Helper()
		w := got[store.WorkloadVersion](t)(f.WorkloadVersion(t.Context(), "scanner", "shop", "Deployment", "web"))
		if before := slices.Contains(known, w.SBOMs); before == changed {
			t.Errorf("%s: the version is new: %t, want %t", what, !before, changed)
		}
		known = append(known, w.SBOMs)
		equal(t, what+": images with a result and no SBOM as CycloneDX", w.WithoutSBOM, without)
		var documents []string
		for _, sbom := range got[[]store.WorkloadSBOM](t)(f.WorkloadSBOMs(t.Context(), "scanner", "shop", "Deployment", "web")) {
			content := ""
			if sbom.ID != 0 {
				reader, _, err := f.OpenArtifact(t.Context(), sbom.PlatformDigest, sbom.Scope, store.ArtifactCycloneDX)
				must(t, err)
				content = string(got[[]byte](t)(io.ReadAll(reader)))
			}
			documents = append(documents, sbom.Container+" "+content)
		}
		equal(t, what, documents, want)
	}
	changes("nothing is cataloged", true, 0, "main ", "proxy ")
	catalog("web", map[store.Artifact]string{store.ArtifactSBOM: "s", store.ArtifactCycloneDX: "1"})
	catalog("proxy", map[store.Artifact]string{store.ArtifactSBOM: "s"})
	changes("one document", true, 0, "main 1", "proxy ")
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl"))
	f.report(t, "proxy")
	changes("results", false, 1, "main 1", "proxy ")
	catalog("proxy", map[store.Artifact]string{store.ArtifactSBOM: "s", store.ArtifactCycloneDX: "2"})
	changes("another document", true, 0, "main 1", "proxy 2")
	catalog("job", map[store.Artifact]string{store.ArtifactSBOM: "s", store.ArtifactCycloneDX: "3"})
	changes("a document of another workload", false, 0, "main 1", "proxy 2")
	f.use(t, "another", "job", workload("web", "ghcr.io/shop/job"))
	changes("an image of another Scanner", false, 0, "main 1", "proxy 2")
	catalog("web", map[store.Artifact]string{store.ArtifactSBOM: "s", store.ArtifactCycloneDX: "1"})
	changes("cataloged again", true, 0, "main 1", "proxy 2")
}
