package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// TestReferencesAreInOneOrder: the order of pull references does not depend on the order in which the cache lists pods.
func TestReferencesAreInOneOrder(t *testing.T) {
	d := digest("x")
	named := func(name, repository, reported string) use {
		pod := aPod(fixtureNamespace, name, containerWith("main", repository+":1", corev1.ContainerStatus{ImageID: reported + "@" + d}))
		resolved, _ := imagesOf(pod)
		return use{pod: pod, img: runningImage{podImage: resolved[0], Key: image.Key{Digest: d, Platform: amd64}}}
	}
	a, b := named("a", "mirror-a.example.com/x", "cache-b.example.com/x"), named("b", "mirror-b.example.com/x", "cache-a.example.com/x")
	references := func(uses ...use) []string {
		s := &imageScanScope{scan: scanOf(theScanner(), web), scanner: theScanner(), key: image.Key{Digest: d, Platform: amd64}, uses: uses}
		return s.backendImage().PullReferences
	}
	want := image.PullReferences(d, "mirror-a.example.com/x", "mirror-b.example.com/x", "registry.example.com/shop/web", "cache-a.example.com/x", "cache-b.example.com/x")
	for _, uses := range [][]use{{a, b}, {b, a}, {a, b, a}} {
		if diff := cmp.Diff(want, references(uses...)); diff != "" {
			t.Errorf("references by the order of pods (-want +got):\n%s", diff)
		}
	}
}

// TestEndedPodsAreHandledOnce: the end of a workload is that of its last pod, and the work grows linearly with the number of ended Jobs.
func TestEndedPodsAreHandledOnce(t *testing.T) {
	began, controls := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), true
	ended := func(jobs int) (uses []use) {
		for i := range 2 * jobs {
			pod := aPod(fixtureNamespace, fmt.Sprint("pod-", i))
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: fmt.Sprint("job-", i/2), Controller: &controls}}
			uses = append(uses, use{pod: pod, img: runningImage{podImage: podImage{Container: "main"}}, endedAt: began.Add(time.Duration(i) * time.Second)})
		}
		return uses
	}
	for i, e := range endedWorkloads(ended(2)) {
		if last := began.Add(time.Duration(2*i+1) * time.Second); e.Name != fmt.Sprint("job-", i) || !e.At.Equal(last) {
			t.Errorf("%s ended at %s, want job-%d at %s", e.Name, e.At, i, last)
		}
	}
	few, many := ended(50), ended(500)
	work := testing.AllocsPerRun(1, func() { endedWorkloads(few) })
	if more := testing.AllocsPerRun(1, func() { endedWorkloads(many) }); more > 20*work {
		t.Errorf("%.0f allocations for 500 Jobs and %.0f for 50", more, work)
	}
}
