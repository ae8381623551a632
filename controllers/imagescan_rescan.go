package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// rescanRequestOf returns the rescan request in a Scanner's annotation; empty if there is none.
func rescanRequestOf(scanner v1alpha1.GenericScanner) string {
	return truncate(scanner.GetAnnotations()[v1alpha1.AnnotationRequestedAt], v1alpha1.MaxRequestBytes)
}

// digestOfRequest returns 16 hexadecimal digits that identify a request, since an ImageScan's size does not allow the full text. Empty
// without a request.
func digestOfRequest(request string) string {
	if request == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(request))
	return hex.EncodeToString(sum[:8])
}

// handleRescanRequest rescans the image once for each rescan request on its Scanner. It retries a failed image now, requests another match of an
// indexed one, and makes the engine check for newer data. A new image needs only its request recorded, since it is scanned anyway.
func (r *ImageScanReconciler) handleRescanRequest(ctx context.Context, s *imageScanScope) error {
	status := &s.scan.Status
	if status.Phase != "" {
		if err := r.Store.RequestMatch(ctx, s.subject()); err != nil {
			return err
		}
		if err := promptEngine(ctx, s.backend); err != nil {
			return err
		}
	}
	status.NextAttemptTime, status.HandledRequest = nil, digestOfRequest(rescanRequestOf(s.scanner))
	return nil
}

// handledRequest returns the last rescan request that all ImageScans of a Scanner's images in use have handled; with an error, the one in the
// Scanner's status.
func (r *ScannerReconciler) handledRequest(ctx context.Context, scanner v1alpha1.GenericScanner) (string, error) {
	request, before := rescanRequestOf(scanner), scanner.ScannerStatus().LastHandledRequestedAt
	if request == "" || request == before {
		return before, nil
	}
	var scans v1alpha1.ImageScanList
	err := r.Client.List(ctx, &scans, client.InNamespace(scanner.GetNamespace()), client.UnsafeDisableDeepCopy, // only read
		client.MatchingFields{inventory.ImageScansByScanner: inventory.ScannerValue(inventory.ReferenceTo(scanner))})
	if err != nil {
		return before, err
	}
	for i := range scans.Items {
		if status := &scans.Items[i].Status; status.UnusedSinceTime == nil && status.HandledRequest != digestOfRequest(request) {
			return before, nil // the next change of this ImageScan triggers another reconciliation
		}
	}
	return request, nil
}
