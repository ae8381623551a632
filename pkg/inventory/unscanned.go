package inventory

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// CountUnscanned counts the images without a result that run in some namespaces of a scanner. The namespaces must be covered by the scanner. An
// image counts once, as in the scanner's status, which has the numbers for all namespaces together. ImageScans decide alone: unlike Coverage,
// CountUnscanned knows no image whose pod has no digest yet, and trusts an ImageScan that is scanned while the store has lost the report. It needs
// no pods and no index of the cache, which only the leader has.
func (i *Inventory) CountUnscanned(ctx context.Context, scanner v1alpha1.GenericScanner, namespaces []string) (pending, failed int, err error) {
	byID := coverageByID{running: map[string]CoveredImage{}, recent: map[string]CoveredImage{}}
	for _, namespace := range namespaces {
		images, err := i.scannedImages(ctx, scanner, namespace)
		if err != nil {
			return 0, 0, err
		}
		byID.add(namespace, namespaceImages{running: images})
	}
	for _, img := range byID.running {
		switch img.State {
		case image.Pending:
			pending++
		case image.Failed:
			failed++
		}
	}
	return pending, failed, nil
}

// scannedImages returns the images of a scanner that run in a namespace, by their ImageScans.
func (i *Inventory) scannedImages(ctx context.Context, scanner v1alpha1.GenericScanner, namespace string) (images []CoveredImage, err error) {
	facts := coverageFacts{
		namespace: namespace, scans: map[store.NamespacedImage]*v1alpha1.ImageScan{}, reports: map[store.NamespacedImage]store.ReportAge{},
	}
	var scans v1alpha1.ImageScanList
	if err := i.Client.List(ctx, &scans, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for n := range scans.Items {
		scan := &scans.Items[n]
		key, err := KeyOf(scan)
		if err != nil || scan.Spec.ScannerRef != ReferenceTo(scanner) || !metav1.IsControlledBy(scan, scanner) || scan.Status.UnusedSinceTime != nil {
			continue
		}
		facts.scans[facts.of(key)], facts.reports[facts.of(key)] = scan, store.ReportAge{}
		images = append(images, facts.stateOf(RunningImage{Key: key}))
	}
	return images, nil
}
