package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// TestReferencesAreInOneOrder: the order of pull references does not depend on the order in which the cache lists pods.
func TestReferencesAreInOneOrder(t *testing.T) {
	d := digest("x")
	named := func(name, repository, reported string) inventory.Use {
		pod := aPod(fixtureNamespace, name, containerWith("main", repository+":1", corev1.ContainerStatus{ImageID: reported + "@" + d}))
		resolved, _ := inventory.ImagesOf(pod)
		return inventory.Use{Pod: pod, Image: inventory.RunningImage{PodImage: resolved[0], Key: image.Key{Digest: d, Platform: amd64}}}
	}
	a, b := named("a", "mirror-a.example.com/x", "cache-b.example.com/x"), named("b", "mirror-b.example.com/x", "cache-a.example.com/x")
	references := func(uses ...inventory.Use) []string {
		s := &imageScanScope{scan: scanOf(theScanner(), web), scanner: theScanner(), key: image.Key{Digest: d, Platform: amd64}, uses: inventory.Uses{Running: uses}}
		return s.backendImage().PullReferences
	}
	want := image.PullReferences(d, "mirror-a.example.com/x", "mirror-b.example.com/x", "registry.example.com/shop/web", "cache-a.example.com/x", "cache-b.example.com/x")
	for _, uses := range [][]inventory.Use{{a, b}, {b, a}, {a, b, a}} {
		if diff := cmp.Diff(want, references(uses...)); diff != "" {
			t.Errorf("references by the order of pods (-want +got):\n%s", diff)
		}
	}
}
