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
	"github.com/scanner-operator/scanner-operator/test/story"
)

// Two Scanners of one namespace, with an engine each, look at the same pods. What the store has of Clair's is what Clair's
// own report contains; what it has of both differs as docs/engines.md says, and nowhere else; who asks is told of it once.
func TestTwoEngines(t *testing.T) {
	ns := namespace(t, "engines")
	clair := usingClair()
	must(t, env.RunPods(t.Context(), ns, scannedImages()...))
	must(t, env.MakeScanner(t.Context(), ns, story.ScannerSettings{}))
	must(t, clair.MakeScanner(t.Context(), ns, story.ScannerSettings{Name: "clair"}))
	number := int32(len(images.Scanned()))
	must(t, env.Covered(t.Context(), ns, number, 0))
	must(t, clair.CoveredBy(t.Context(), ns, "clair", number, 0))
	found := foundByEngine(t, ns)

	t.Run("Clair's reports", func(t *testing.T) { checkClairReports(t, found.of(v1alpha1.BackendClair)) })
	t.Run("differences", func(t *testing.T) {
		checkDifferences(t, found.of(v1alpha1.BackendGrype), found.of(v1alpha1.BackendClair))
	})
	t.Run("who runs it", func(t *testing.T) { checkWhoRuns(t, ns, found) })
	t.Run("ImageScans", func(t *testing.T) {
		scans, err := env.ImageScans(t.Context(), ns)
		must(t, err)
		if len(scans) != 2*int(number) {
			t.Errorf("%d ImageScans, want one of each of %d images for each of 2 Scanners", len(scans), number)
		}
	})
}

// byEngine is what the store has of a namespace's images, by engine. The name of an instance of Clair holds its address.
type byEngine map[string][]story.ImageFindings

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

// of is what one of the engines found.
func (b byEngine) of(backend v1alpha1.BackendType) []story.ImageFindings {
	for engine, found := range b {
		if name, _, _ := strings.Cut(engine, " "); strings.EqualFold(name, string(backend)) {
			return found
		}
	}
	return nil
}

// checkDifferences holds what one engine found, and the other did not, against the documents.
func checkDifferences(t *testing.T, grype, clair []story.ImageFindings) {
	documented, err := story.DocumentedDifferences(env.Root)
	must(t, err)
	for _, name := range images.Scanned() {
		t.Run(path.Base(name), func(t *testing.T) {
			is := story.Compare(advised(t, grype, name), advised(t, clair, name))
			if diff := cmp.Diff(documented[name], is, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("differences of %s: say why in docs/engines.md, or put it right (-documented +found):\n%s", name, diff)
			}
		})
	}
}

// advised are the findings of an image, but for the one that a story may have added by now.
func advised(t *testing.T, found []story.ImageFindings, name string) []finding.Finding {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(imageNamed(t, found, name).Findings), func(f finding.Finding) bool { return f.ID == story.NewVulnerability })
}

// checkWhoRuns asks the REST API of each vulnerability: every container and package is told of once, with all the engines
// that found it there.
func checkWhoRuns(t *testing.T, ns string, found byEngine) {
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
