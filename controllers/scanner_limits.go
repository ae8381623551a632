package controllers

import (
	"fmt"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// scannerLimitMessage returns the message for a Scanner that is not admitted.
func scannerLimitMessage(l inventory.Limits) string {
	return fmt.Sprintf("nothing is done for this Scanner: the operator works for the %d oldest Scanners of a namespace. "+
		"Delete another one, or have limits.scannersPerNamespace raised in the operator's configuration", l.Scanners)
}

// storeBudgetMessage returns the message about images that exceed the namespace's budget in the store; empty if there are none.
func storeBudgetMessage(images []inventory.CoveredImage) string {
	n := countReason(images, v1alpha1.ReasonStoreBudgetExceeded)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d images are not scanned: the SBOMs and findings of the namespace's images have used up their room in the operator's store. "+
		"Exclude images, or have ingest.storeSizePerNamespace raised in the operator's configuration", n, len(images))
}

// imageLimitMessage returns the message about images for which no ImageScan is created; empty if there are none.
func imageLimitMessage(l inventory.Limits, images []inventory.CoveredImage) string {
	n := countReason(images, v1alpha1.ReasonTooManyImages)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d images are not scanned: the namespace has %d ImageScans, and no more are made. Have a shorter "+
		"spec.unusedImageRetention, or limits.imageScansPerNamespace raised in the operator's configuration", n, len(images), l.ImageScans)
}

// countReason returns how many images have a reason.
func countReason(images []inventory.CoveredImage, reason string) (n int) {
	for _, img := range images {
		if img.Reason == reason {
			n++
		}
	}
	return n
}
