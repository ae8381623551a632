package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestCoverageHasReceivers: an image has the receivers that each of its pods, or else their namespace, names.
func TestCoverageHasReceivers(t *testing.T) {
	names := func(receivers string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationReceiver: receivers} }
	}
	u := newUnit(t, theScanner(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fixtureNamespace, Annotations: map[string]string{v1alpha1.AnnotationReceiver: "team"}}},
		aPod(fixtureNamespace, "a", running("c", web)), aPod(fixtureNamespace, "b", running("c", web), names("two, one, No Name")), aPod(fixtureNamespace, "c", running("c", web), names("")),
	)
	covered, err := u.inventory.Coverage(t.Context(), theScanner(), u.engine.Engine())
	u.must(err)
	images := describeCoverage(covered, nil).Images
	if len(images) != 1 {
		t.Fatalf("%d images, want one", len(images))
	}
	if diff := cmp.Diff([]string{"", "one,two", "team"}, images[0].Receivers); diff != "" {
		t.Errorf("receivers (-want +got):\n%s", diff)
	}
}

// TestCoverageOfUnknownImages: nothing counts as fixed in the repository of an image that runs and whose content is not known.
func TestCoverageOfUnknownImages(t *testing.T) {
	scanner := theScanner(excluding("*/web"))
	for name, pod := range map[string]*corev1.Pod{
		"excluded":            aPod(fixtureNamespace, "a", running("c", web)),
		"excluded, no digest": aPod(fixtureNamespace, "a", creating("c", web)),
		"an unknown node":     aPod(fixtureNamespace, "a", running("c", vulnerable), onNode("unknown")),
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, scanner, pod)
			covered, err := u.inventory.Coverage(t.Context(), scanner, u.engine.Engine())
			u.must(err)
			if coverage := describeCoverage(covered, nil); len(coverage.UnknownRepositories) != 1 {
				t.Errorf("the repositories %q are unknown, want one", coverage.UnknownRepositories)
			}
		})
	}
}
