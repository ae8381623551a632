package e2e

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// Two Scanners of one namespace, with different engines, scan the same pods. The store has the content of Clair's own report. The
// results of both engines differ only as documented in docs/understand/engines-measured.md. The REST API lists each workload once.
func TestTwoEngines(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "engines")
	clair := usingClair()
	must(t, env.RunPods(t.Context(), ns, scannedImages()...))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, clair.MakeScanner(t.Context(), ns, scenario.ScannerSettings{Name: "clair"}))
	number := int32(len(images.Scanned()))
	must(t, env.WaitForCoverage(t.Context(), ns, number, 0))
	must(t, clair.WaitForCoverageBy(t.Context(), ns, "clair", number, 0))
	found := foundByEngine(t, ns)

	t.Run("Clair's reports", func(t *testing.T) { checkClairReports(t, found.of(v1alpha1.BackendClair)) })
	t.Run("differences", func(t *testing.T) {
		checkDifferences(t, found.of(v1alpha1.BackendGrype), found.of(v1alpha1.BackendClair))
	})
	t.Run("who runs it", func(t *testing.T) { checkWorkloads(t, ns, found) })
	t.Run("ImageScans", func(t *testing.T) {
		scans, err := env.ImageScans(t.Context(), ns)
		must(t, err)
		if len(scans) != 2*int(number) {
			t.Errorf("%d ImageScans, want one of each of %d images for each of 2 Scanners", len(scans), number)
		}
	})
}

// byEngine holds the stored results of a namespace's images by engine. The engine name of a Clair instance includes its address.
type byEngine map[string][]scenario.ImageFindings

func foundByEngine(t *testing.T, ns string) byEngine {
	t.Helper()
	stored, err := env.Findings(t.Context(), ns)
	must(t, err)
	found := byEngine{}
	for _, img := range stored {
		found[img.Engine] = append(found[img.Engine], img)
	}
	if len(found) != 2 {
		t.Fatalf("the store has results of %q, want two engines", slices.Sorted(maps.Keys(found)))
	}
	return found
}

// of returns the results of one engine.
func (b byEngine) of(backend v1alpha1.BackendType) []scenario.ImageFindings {
	for engine, found := range b {
		if name, _, _ := strings.Cut(engine, " "); strings.EqualFold(name, string(backend)) {
			return found
		}
	}
	return nil
}

// checkDifferences compares the differences between the engines with the documented ones.
func checkDifferences(t *testing.T, grype, clair []scenario.ImageFindings) {
	documented, err := scenario.DocumentedDifferences(env.Root)
	must(t, err)
	for _, name := range images.Scanned() {
		t.Run(path.Base(name), func(t *testing.T) {
			is := scenario.Compare(advised(t, grype, name), advised(t, clair, name))
			if diff := cmp.Diff(documented[name], is, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("differences of %s: say why in docs/understand/engines-measured.md, or put it right (-documented +found):\n%s", name, diff)
			}
		})
	}
}

// advised returns the findings of an image without the vulnerability that a scenario may have added.
func advised(t *testing.T, found []scenario.ImageFindings, name string) []finding.Finding {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(imageNamed(t, found, name).Findings), func(f finding.Finding) bool { return f.ID == scenario.NewVulnerability })
}

// checkWorkloads queries the REST API for each vulnerability. Each container and package is listed once, with all engines that found the
// vulnerability in it.
func checkWorkloads(t *testing.T, ns string, found byEngine) {
	engines := map[string][]string{} // by vulnerability, image and package
	ids := map[string]bool{}
	for engine, stored := range found {
		for _, name := range images.Scanned() {
			for _, f := range imageNamed(t, stored, name).Findings {
				row := strings.Join([]string{f.ID, env.Reference(name), f.Package.Name, f.Package.Version}, " ")
				engines[row] = append(engines[row], engine)
				ids[f.ID] = true
			}
		}
	}
	want := []string{}
	for row, by := range engines {
		slices.Sort(by)
		want = append(want, row+" by "+strings.Join(by, ", "))
	}
	address, client := forwarded(t)
	api := restAPI(t, address, client, viewerOf(t, ns))
	got := []string{}
	for id := range ids {
		answer, err := api.ListWorkloadsWithResponse(t.Context(), id, nil)
		must(t, err)
		if answer.JSON200 == nil || answer.JSON200.Total != len(answer.JSON200.Items) {
			t.Fatalf("who runs %s: %s", id, answer.Body)
		}
		for _, w := range answer.JSON200.Items {
			got = append(got, strings.Join([]string{w.Vulnerability, w.Image, w.Package.Name, w.Package.Version}, " ")+" by "+strings.Join(w.Engines, ", "))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("who runs what (-store +REST API):\n%s", diff)
	}
}
