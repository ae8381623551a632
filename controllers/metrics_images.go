package controllers

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// Gauges of single images. An image has eight time series.
var (
	imageFindingsGauge = newGaugeDesc("scanner_operator_image_findings", "Findings of an image by severity, without those that exceptions suppress. Only with metrics.maxImages.",
		"scanner_namespace", "scanner", "workload_namespace", "image", "digest", "platform", "severity")
	imageFixableGauge = newGaugeDesc("scanner_operator_image_findings_fixable", "Findings of an image that have a fixed version. Only with metrics.maxImages.",
		"scanner_namespace", "scanner", "workload_namespace", "image", "digest", "platform")
	imageExploitedGauge = newGaugeDesc("scanner_operator_image_findings_known_exploited", "Findings of an image that are known to be exploited. Only with metrics.maxImages.",
		"scanner_namespace", "scanner", "workload_namespace", "image", "digest", "platform")
	imagesOmittedGauge = newGaugeDesc("scanner_operator_image_findings_omitted_images", "Scanned images of a Scanner that have no metrics of their own, since there are more than metrics.maxImages. Only with metrics.maxImages.",
		"scanner_namespace", "scanner")
)

// maxLabelBytes bounds the name of an image in a label.
const maxLabelBytes = 256

// imageMetrics selects the images that have metrics of their own. It keeps at most limit images of each Scanner, and exports at most limit
// images of all Scanners together.
//
// The worst image of each namespace comes first, then the second of each, and so on: a namespace that runs many bad images takes no room that
// another one needs for its worst ones. It is not safe for concurrent use.
type imageMetrics struct {
	limit     int
	ofScanner map[types.NamespacedName]scannerImages
	// exported has the metrics of the selected images; nil if they must be selected again.
	exported []prometheus.Metric
}

// scannerImages are the first images of a Scanner, and the number of all its scanned images. An image counts once for each namespace.
type scannerImages struct {
	first []measuredImage
	total int
}

// measuredImage is a scanned image that pods of one namespace run.
type measuredImage struct {
	scanner             types.NamespacedName
	namespace, name, id string
	findings            v1alpha1.FindingCounts
	// rank is the number of images before this one among those of the same Scanner and namespace.
	rank int
}

// set replaces the images of a Scanner. running returns the images that run in one of the namespaces, which the Scanner covers.
func (m *imageMetrics) set(scanner types.NamespacedName, namespaces []string, running func(namespace string) []inventory.CoveredImage) {
	if m.limit == 0 {
		return
	}
	var all scannerImages
	ranks := m.limit // an image with a higher rank does not come first, whatever its findings
	for _, namespace := range namespaces {
		images := running(namespace)
		var scanned []*inventory.CoveredImage
		for i := range images {
			if images[i].State == image.Scanned && images[i].Findings != nil {
				scanned = append(scanned, &images[i])
			}
		}
		all.total += len(scanned)
		slices.SortFunc(scanned, func(a, b *inventory.CoveredImage) int {
			return cmp.Or(compareCounts(a.Findings, b.Findings), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
		for rank, img := range scanned[:min(len(scanned), ranks)] {
			all.first = append(all.first, measuredImage{scanner: scanner, namespace: namespace, name: img.Name, id: img.ID, findings: *img.Findings, rank: rank})
		}
		if len(all.first) > 2*m.limit {
			all.first = m.first(all.first)
			ranks = all.first[m.limit-1].rank + 1
		}
	}
	all.first = slices.Clone(m.first(all.first)) // without the memory of the others
	m.ofScanner[scanner], m.exported = all, nil
}

// remove drops the images of a Scanner.
func (m *imageMetrics) remove(scanner types.NamespacedName) {
	delete(m.ofScanner, scanner)
	m.exported = nil
}

// first returns the images that come first, at most limit. It sorts them in place.
func (m *imageMetrics) first(images []measuredImage) []measuredImage {
	slices.SortFunc(images, func(a, b measuredImage) int {
		return cmp.Or(
			cmp.Compare(a.rank, b.rank), compareCounts(&a.findings, &b.findings), cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id),
			cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.scanner.Namespace, b.scanner.Namespace), cmp.Compare(a.scanner.Name, b.scanner.Name))
	})
	return images[:min(len(images), m.limit)]
}

// compareCounts puts worse counts first.
func compareCounts(a, b *v1alpha1.FindingCounts) int {
	return cmp.Or(
		cmp.Compare(b.KnownExploited, a.KnownExploited), cmp.Compare(b.Critical, a.Critical), cmp.Compare(b.High, a.High), cmp.Compare(b.Medium, a.Medium),
		cmp.Compare(b.Low, a.Low), cmp.Compare(b.Negligible, a.Negligible), cmp.Compare(b.Unknown, a.Unknown),
	)
}

// metrics returns the metrics of the selected images, and how many are omitted of each Scanner. It selects only after a change.
func (m *imageMetrics) metrics() []prometheus.Metric {
	if m.exported != nil || len(m.ofScanner) == 0 {
		return m.exported
	}
	var all []measuredImage
	for _, images := range m.ofScanner {
		all = append(all, images.first...)
	}
	selected := map[types.NamespacedName]int{}
	for _, img := range m.first(all) {
		selected[img.scanner]++
		m.exported = append(m.exported, img.metrics()...)
	}
	for scanner, images := range m.ofScanner {
		m.exported = append(m.exported, gauge(imagesOmittedGauge, float64(images.total-selected[scanner]), scanner.Namespace, scanner.Name))
	}
	return m.exported
}

func (i measuredImage) metrics() (all []prometheus.Metric) {
	digest, platform, _ := strings.Cut(i.id, ";")
	labels := []string{i.scanner.Namespace, i.scanner.Name, i.namespace, truncate(i.name, maxLabelBytes), digest, platform}
	for severity, n := range bySeverity(&i.findings) {
		all = append(all, gauge(imageFindingsGauge, float64(n), append(slices.Clip(labels), severity)...))
	}
	return append(all, gauge(imageFixableGauge, float64(i.findings.Fixable), labels...), gauge(imageExploitedGauge, float64(i.findings.KnownExploited), labels...))
}
