package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// TestReferencesAreInOneOrder: in whichever order the cache lists pods, an image is pulled by the same references in the same order.
func TestReferencesAreInOneOrder(t *testing.T) {
	d := digest("x")
	named := func(name, repository, reported string) use {
		pod := aPod(shop, name, containerWith("main", repository+":1", corev1.ContainerStatus{ImageID: reported + "@" + d}))
		resolved, _ := imagesOf(pod)
		return use{pod: pod, img: runningImage{podImage: resolved[0], Key: image.Key{Digest: d, Platform: amd64}}}
	}
	a, b := named("a", "mirror-a.example.com/x", "cache-b.example.com/x"), named("b", "mirror-b.example.com/x", "cache-a.example.com/x")
	references := func(uses ...use) []string {
		s := &imageScanScope{scan: scanOf(theScanner(), web), scanner: theScanner(), key: image.Key{Digest: d, Platform: amd64}, uses: uses}
		return s.describe().PullReferences
	}
	want := image.PullReferences(d, "mirror-a.example.com/x", "mirror-b.example.com/x", "registry.example.com/shop/web", "cache-a.example.com/x", "cache-b.example.com/x")
	for _, uses := range [][]use{{a, b}, {b, a}, {a, b, a}} {
		if diff := cmp.Diff(want, references(uses...)); diff != "" {
			t.Errorf("references by the order of pods (-want +got):\n%s", diff)
		}
	}
}
