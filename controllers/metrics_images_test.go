package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// ofImages returns those of the measured values that are about single images.
func ofImages(values map[string]float64) map[string]float64 {
	maps.DeleteFunc(values, func(name string, _ float64) bool { return !strings.HasPrefix(name, "image_findings") })
	return values
}

// TestImageMetrics: a scanned image has metrics of its own if they are enabled, with the counts of its ImageScan, until it has gone. An image
// without a result has none.
func TestImageMetrics(t *testing.T) {
	scanner, counts := theScanner(), v1alpha1.FindingCounts{Critical: 2, High: 3, Unknown: 1, Fixable: 4, KnownExploited: 1, Suppressed: 9}
	scan := scanOf(scanner, web, scanned, func(s *v1alpha1.ImageScan) { s.Status.Findings = &counts })
	pod := aPod(fixtureNamespace, "a", running("a", web), running("b", vulnerable))
	u := newUnit(t, scanner, scan, scanOf(scanner, vulnerable), pod)
	u.saveUsedImage(web)
	registry := prometheus.NewRegistry()
	u.scanners.Metrics = NewMetrics(registry)
	u.reconcileScanner()
	if got := ofImages(measured(t, registry)); len(got) > 0 {
		t.Errorf("without metrics.maxImages there are %v, want none", got)
	}

	registry = prometheus.NewRegistry()
	u.scanners.Metrics = NewMetrics(registry)
	u.scanners.Metrics.LimitImages(10)
	u.reconcileScanner()
	// Labels are in the order of their names: digest, image, platform, severity, workload_namespace.
	key := keyOfImage(web)
	labels := fmt.Sprintf(" %s %s %s", key.Digest, web, key.Platform)
	want := map[string]float64{
		"image_findings" + labels + " critical " + fixtureNamespace: 2, "image_findings" + labels + " high " + fixtureNamespace: 3,
		"image_findings" + labels + " medium " + fixtureNamespace: 0, "image_findings" + labels + " low " + fixtureNamespace: 0,
		"image_findings" + labels + " negligible " + fixtureNamespace: 0, "image_findings" + labels + " unknown " + fixtureNamespace: 1,
		"image_findings_fixable" + labels + " " + fixtureNamespace: 4, "image_findings_known_exploited" + labels + " " + fixtureNamespace: 1,
		"image_findings_omitted_images": 0,
	}
	if diff := cmp.Diff(want, ofImages(measured(t, registry))); diff != "" {
		t.Errorf("metrics of images (-want +got):\n%s", diff)
	}
	u.must(u.client.Delete(t.Context(), pod))
	u.reconcileScanner()
	if diff := cmp.Diff(map[string]float64{"image_findings_omitted_images": 0}, ofImages(measured(t, registry))); diff != "" {
		t.Errorf("after its pod has gone (-want +got):\n%s", diff)
	}
	u.must(u.client.Delete(t.Context(), scanner))
	_, err := u.scanners.Reconcile(t.Context(), requestFor(scanner))
	u.must(client.IgnoreNotFound(err))
	if got := ofImages(measured(t, registry)); len(got) > 0 {
		t.Errorf("after its Scanner has gone there are %v, want none", got)
	}
}

// coveredImages returns n scanned images. The image named i has i critical findings.
func coveredImages(namespace string, n int) (images []inventory.CoveredImage) {
	for i := range n {
		images = append(images, inventory.CoveredImage{
			ID: image.Key{Digest: digest(fmt.Sprint(namespace, i)), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}.String(), Name: fmt.Sprintf("%s/%d", namespace, i),
			State: image.Scanned, Findings: &v1alpha1.FindingCounts{Critical: int32(i)},
		})
	}
	return images
}

// exportedImages returns the names of the images that have metrics, sorted, and the number of omitted ones by scanner.
func exportedImages(t *testing.T, m *imageMetrics) (names []string, omitted map[string]float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(&Metrics{images: *m, failures: prometheus.NewCounterVec(prometheus.CounterOpts{}, nil)})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	omitted = map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			switch family.GetName() {
			case "scanner_operator_image_findings_fixable":
				names = append(names, labels["image"])
			case "scanner_operator_image_findings_omitted_images":
				omitted[labels["scanner_namespace"]+"/"+labels["scanner"]] = metric.GetGauge().GetValue()
			}
		}
	}
	slices.Sort(names)
	return names, omitted
}

// TestImageMetricsAreBounded: of all Scanners together, the worst images are kept, those of each namespace in turn: one namespace cannot take the
// room of another. The others are counted. What is kept follows changes, and goes with its Scanner.
func TestImageMetricsAreBounded(t *testing.T) {
	m := &imageMetrics{limit: 4, ofScanner: map[types.NamespacedName]scannerImages{}}
	running := map[string][]inventory.CoveredImage{"big": coveredImages("big", 9), "small": coveredImages("small", 1), "own": coveredImages("own", 2)}
	in := func(namespace string) []inventory.CoveredImage { return running[namespace] }
	cluster, own := types.NamespacedName{Name: "all"}, types.NamespacedName{Namespace: "own", Name: "scanner"}
	m.set(cluster, []string{"big", "small"}, in)
	m.set(own, []string{"own"}, in)
	check := func(when string, want []string, wantOmitted map[string]float64) {
		t.Helper()
		names, omitted := exportedImages(t, m)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s, images (-want +got):\n%s", when, diff)
		}
		if diff := cmp.Diff(wantOmitted, omitted); diff != "" {
			t.Errorf("%s, omitted images (-want +got):\n%s", when, diff)
		}
	}
	check("at first", []string{"big/7", "big/8", "own/1", "small/0"}, map[string]float64{"/all": 7, "own/scanner": 1})
	running["big"] = coveredImages("big", 1)
	m.set(cluster, []string{"big", "small"}, in)
	check("with fewer images", []string{"big/0", "own/0", "own/1", "small/0"}, map[string]float64{"/all": 0, "own/scanner": 0})
	m.remove(cluster)
	check("without the ClusterScanner", []string{"own/0", "own/1"}, map[string]float64{"own/scanner": 0})
}

// TestManyImageMetrics: of 100,000 images in 500 namespaces, no more are kept in memory than have metrics.
func TestManyImageMetrics(t *testing.T) {
	const namespaces, images, limit = 500, 200, 1000
	var names []string
	running := map[string][]inventory.CoveredImage{}
	for i := range namespaces {
		name := fmt.Sprintf("team-%d", i)
		names, running[name] = append(names, name), coveredImages(name, images)
	}
	m := &imageMetrics{limit: limit, ofScanner: map[types.NamespacedName]scannerImages{}}
	m.set(types.NamespacedName{Name: "all"}, names, func(namespace string) []inventory.CoveredImage { return running[namespace] })
	if kept := m.ofScanner[types.NamespacedName{Name: "all"}].first; len(kept) != limit || cap(kept) > 2*limit {
		t.Errorf("%d images are kept, with memory for %d, want %d", len(kept), cap(kept), limit)
	}
	if got, want := len(m.metrics()), limit*8+1; got != want {
		t.Errorf("there are %d time series, want %d", got, want)
	}
	exported, omitted := exportedImages(t, m)
	for _, name := range names { // 1,000 of 500 namespaces: the two worst ones of each
		for _, worst := range []int{images - 1, images - 2} {
			if want := fmt.Sprintf("%s/%d", name, worst); !slices.Contains(exported, want) {
				t.Fatalf("%s has no metrics", want)
			}
		}
	}
	if diff := cmp.Diff(map[string]float64{"/all": namespaces*images - limit}, omitted); diff != "" {
		t.Errorf("omitted images (-want +got):\n%s", diff)
	}
}
