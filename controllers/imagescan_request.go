package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// requestOf is the rescan that a Scanner's annotation requests; empty if it requests none.
func requestOf(scanner *v1alpha1.Scanner) string {
	return truncate(scanner.Annotations[v1alpha1.AnnotationRequestedAt], v1alpha1.MaxRequestBytes)
}

// digestOfRequest is 16 hexadecimal digits, since an ImageScan has no room for any text; empty if nothing is requested.
func digestOfRequest(request string) string {
	if request == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(request))
	return hex.EncodeToString(sum[:8])
}

// followRequest rescans the image once for each request on its Scanner. A failed image is tried again now and not at its time, one
// that was matched is matched again, and the engine looks for newer data. A new image needs nothing of it: it is scanned anyway.
func (r *ImageScanReconciler) followRequest(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	status, request := &s.scan.Status, digestOfRequest(requestOf(s.scanner))
	if request == "" || request == status.HandledRequest || s.backend == nil || s.refused || isSuspended(s.scanner) {
		return 0, nil
	}
	if status.Phase != "" {
		if err := r.Store.RequestMatch(ctx, s.subject()); err != nil {
			return 0, err
		}
		if err := promptEngine(ctx, s.backend); err != nil {
			return 0, err
		}
	}
	status.NextAttemptTime, status.HandledRequest = nil, request
	return 0, nil
}

// setRequest takes a request over into the Scanner's status once it was followed for each image that runs.
func (r *ScannerReconciler) setRequest(ctx context.Context, scanner *v1alpha1.Scanner) error {
	request := requestOf(scanner)
	if request == "" || request == scanner.Status.LastHandledRequestedAt {
		return nil
	}
	var scans v1alpha1.ImageScanList
	err := r.Client.List(ctx, &scans, client.InNamespace(scanner.Namespace), client.UnsafeDisableDeepCopy, // they are only read
		client.MatchingFields{imageScansByScanner: scanner.Name})
	if err != nil {
		return err
	}
	for i := range scans.Items {
		if status := &scans.Items[i].Status; status.UnusedSinceTime == nil && status.HandledRequest != digestOfRequest(request) {
			return nil // its next change leads here again
		}
	}
	scanner.Status.LastHandledRequestedAt = request
	return nil
}
