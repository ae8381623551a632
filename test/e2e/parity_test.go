package e2e

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/parity"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// atLeast is the minimum number of matches in each image, so that empty results do not count as equal.
var atLeast = map[string]int{images.Web: 40, images.API: 10, images.Migrate: 3, images.Cache: 8, images.Rocky: 6, images.Bastion: 6, images.Static: 0}

// The store has the same matches as the grype command prints for the same image and database.
func TestParity(t *testing.T) {
	t.Parallel()
	grype, err := parity.NewGrype(env.Database.Cache, t.TempDir())
	must(t, err)
	ns := namespace(t, "parity")
	must(t, env.RunPods(t.Context(), ns, scannedImages()...))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, int32(len(atLeast)), 0))
	stored, err := env.Findings(t.Context(), ns)
	must(t, err)
	for _, name := range images.Scanned() {
		t.Run(path.Base(name), func(t *testing.T) {
			img := imageNamed(t, stored, name)
			want, err := grype.Matches(t.Context(), strings.TrimSuffix(img.References[0], ":1.0")+"@"+img.Digest, platform(t))
			must(t, err)
			t.Logf("grype prints %d matches", len(want))
			if len(want) < atLeast[name] {
				t.Errorf("grype prints %d matches, expected at least %d", len(want), atLeast[name])
			}
			if diff := cmp.Diff(want, parity.Expand(img.Findings)); diff != "" {
				t.Errorf("matches (-grype +operator):\n%s", diff)
			}
		})
	}
}

// scannedImages returns pods that run every image with known content.
func scannedImages() []scenario.Pod {
	return []scenario.Pod{
		{Name: "web", Image: env.Reference(images.Web)},
		{Name: "api", Image: env.Reference(images.API), Init: env.Reference(images.Migrate)},
		{Name: "cache", Image: env.Reference(images.Cache)},
		{Name: "rocky", Image: env.Reference(images.Rocky)},
		{Name: "bastion", Image: env.Reference(images.Bastion)},
		{Name: "static", Image: env.Reference(images.Static)},
	}
}

// imageNamed returns the stored image with a reference.
func imageNamed(t *testing.T, stored []scenario.ImageFindings, name string) scenario.ImageFindings {
	t.Helper()
	for _, img := range stored {
		if slices.Contains(img.References, env.Reference(name)) {
			if img.DataVersion == "" {
				t.Fatalf("the store has no report of %s", name)
			}
			return img
		}
	}
	t.Fatalf("the store does not know %s", name)
	return scenario.ImageFindings{}
}

// platform returns the platform of the cluster's node, os/architecture.
func platform(t *testing.T) string {
	t.Helper()
	text, err := env.Kubectl(t.Context(), "get", "nodes", "--output", "jsonpath={.items[0].status.nodeInfo.operatingSystem}/{.items[0].status.nodeInfo.architecture}")
	must(t, err)
	return text
}
