package inventory

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	. "github.com/scanner-operator/scanner-operator/pkg/inventory/inventorytest"
)

// TestEachImageHasOnePlace: whatever is true of a namespace, each image that runs there is covered by exactly one scanner, or its namespace is
// in exactly one of the lists that say why it is not. There are 64 namespaces, one for each combination, for each policy about own Scanners.
func TestEachImageHasOnePlace(t *testing.T) {
	const hasScanner, excludesImage, excludesNamespace, terminates, isNotWatched, suspends = 1, 2, 4, 8, 16, 32
	clusterScanner := &v1alpha1.ClusterScanner{
		ObjectMeta: metav1.ObjectMeta{Name: "platform", UID: "platform-uid"},
		Spec: v1alpha1.ClusterScannerSpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"scanned": "yes"}},
			ScanSettings:      v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}, Images: v1alpha1.ImageFilter{Exclude: []string{"*/excluded"}}},
		},
	}
	objects := []client.Object{clusterScanner}
	watched := []string{"operator"}
	for combination := range 64 {
		is := func(flag int) bool { return combination&flag != 0 }
		name := fmt.Sprintf("namespace-%02d", combination)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"scanned": "yes"}}}
		if is(terminates) {
			namespace.Finalizers, namespace.DeletionTimestamp = []string{"kubernetes"}, &metav1.Time{Time: Noon}
		}
		repository := "app"
		if is(excludesImage) {
			repository = "excluded"
		}
		objects = append(objects, namespace, Pod(name, "pod", Running("c", fmt.Sprintf("registry.example.com/%s/%s:1", name, repository))))
		if is(hasScanner) {
			objects = append(objects, Scanner(name, "own", Excluding("*/excluded"), func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(is(suspends)) }))
		}
		if is(excludesNamespace) {
			clusterScanner.Spec.ExcludeNamespaces = append(clusterScanner.Spec.ExcludeNamespaces, name)
		}
		if !is(isNotWatched) {
			watched = append(watched, name)
		}
	}
	cluster := clusterOf(t, objects...)
	i := &Inventory{Client: cluster, Store: reportedIn(objects...), Watched: watched, Clock: clock.RealClock{}}
	for _, policy := range []v1alpha1.OwnScannerPolicy{v1alpha1.OwnScannersRespect, v1alpha1.OwnScannersIgnore} {
		clusterScanner.Spec.OwnScanners = policy
		coverage, err := i.Coverage(t.Context(), clusterScanner, "grype")
		if err != nil {
			t.Fatal(err)
		}
		places := map[string][]string{}
		all := coverage.Namespaces
		for reason, names := range map[string][]string{"excluded": all.Excluded, "terminating": all.Terminating, "not watched": all.NotWatched, "own": all.Own} {
			for _, name := range names {
				places[name] = append(places[name], reason)
			}
		}
		for _, img := range coverage.Running {
			for _, name := range img.Namespaces {
				places[name] = append(places[name], "covered "+string(img.State))
			}
		}
		if len(places) != 64 {
			t.Errorf("%d namespaces have a place, want 64", len(places))
		}
		for combination := range 64 {
			is := func(flag int) bool { return combination&flag != 0 }
			want := "covered " + string(image.Pending)
			switch {
			case is(excludesNamespace):
				want = "excluded"
			case is(terminates):
				want = "terminating"
			case is(isNotWatched):
				want = "not watched"
			case is(hasScanner) && policy == v1alpha1.OwnScannersRespect:
				want = "own" // suspended or not: a suspended Scanner does not hand its namespace over
			case is(excludesImage):
				want = "covered " + string(image.Excluded)
			}
			name := fmt.Sprintf("namespace-%02d", combination)
			if got := places[name]; !slices.Equal(got, []string{want}) {
				t.Errorf("%s, combination %06b: %q, want %q", policy, combination, got, want)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(places)) {
			covered, err := i.Covers(t.Context(), clusterScanner, name)
			if err != nil || covered != slices.Contains(all.Covered, name) {
				t.Errorf("%s, %s: Covers returns %t (%v), Namespaces %t", policy, name, covered, err, slices.Contains(all.Covered, name))
			}
		}
	}
}
