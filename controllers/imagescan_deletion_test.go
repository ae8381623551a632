package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// recreate deletes an ImageScan as a user would, recreates it for a pod, and reconciles it once.
func (u *unit) recreate(scan *v1alpha1.ImageScan, pod *corev1.Pod) *v1alpha1.ImageScan {
	u.t.Helper()
	former := u.read(scan)
	u.must(u.client.Delete(u.t.Context(), former))
	u.scans.rememberDeletion(former)
	u.reconcile(former)
	_, err := u.pods.Reconcile(u.t.Context(), requestFor(pod))
	u.must(err)
	var scans v1alpha1.ImageScanList
	u.must(u.client.List(u.t.Context(), &scans))
	if len(scans.Items) != 1 {
		u.t.Fatalf("%d ImageScans, want the one that was made anew", len(scans.Items))
	}
	after, _ := u.reconcile(&scans.Items[0])
	return after
}

// TestDeletionTriesAFailedImageAtOnce: after its ImageScan is deleted, a failed image is retried at once, however far away the next attempt
// was.
func TestDeletionTriesAFailedImageAtOnce(t *testing.T) {
	scanner := theScanner()
	scan, pod := scanOf(scanner, web), aPod(fixtureNamespace, "a", running("main", web))
	u := newUnit(t, scanner, scan, pod)
	u.engine.index = fixedResult(backend.Progress{}, &backend.Failure{Reason: "ImageNotFound", RetryAfter: 6 * time.Hour})
	for range 3 {
		u.reconcile(scan)
	}
	if len(u.engine.indexCalls) != 1 {
		t.Fatalf("the engine was asked %d times before its next attempt was due, want once", len(u.engine.indexCalls))
	}
	if after := u.recreate(scan, pod); len(u.engine.indexCalls) != 2 || after.Status.Attempts != 1 {
		t.Errorf("the engine was asked %d times, with %d attempts of the new ImageScan; want 2 and 1", len(u.engine.indexCalls), after.Status.Attempts)
	}
}

// TestDeletionHasAnImageMatchedAgain: a deletion requests one match, both for an image with a result, which stays until the next one, and
// for an image whose failed match is not due.
func TestDeletionHasAnImageMatchedAgain(t *testing.T) {
	for name, failed := range map[string]bool{"scanned": false, "failed": true} {
		t.Run(name, func(t *testing.T) {
			scanner := theScanner()
			scan, pod := scanOf(scanner, web), aPod(fixtureNamespace, "a", running("main", web))
			u := newUnit(t, scanner, scan, pod)
			u.engine.match = fixedResult(backend.Waiting(v1alpha1.ReasonMatching, "", time.Minute), nil)
			u.must(u.store.SetDataVersion(t.Context(), u.engine.Engine(), u.engine.version))
			if failed {
				u.saveCatalog(web, store.Cluster)
				u.reconcile(scan)
				leases, err := u.store.LeaseMatches(t.Context(), u.engine.Engine(), "job", 1, noon, noon.Add(time.Minute))
				u.must(err)
				u.must(u.store.FailMatch(t.Context(), leases[0].ID, "job", store.MatchFailure{Reason: "X", FailedAt: noon, RetryAt: noon.Add(6 * time.Hour)}))
			} else {
				u.saveReport(web, vulnerability("CVE-2026-0001", finding.Critical))
				u.reconcile(scan)
			}
			if leases, err := u.store.LeaseMatches(t.Context(), u.engine.Engine(), "job", 1, noon, noon.Add(time.Minute)); err != nil || len(leases) != 0 {
				t.Fatalf("%d images are due (%v) before the ImageScan was deleted, want none", len(leases), err)
			}
			after := u.recreate(scan, pod)
			if !failed && (after.Status.Phase != v1alpha1.PhaseScanned || after.Status.Findings.Critical != 1) {
				t.Errorf("until the next result it is %s with %+v, want what was found", after.Status.Phase, after.Status.Findings)
			}
			leases, err := u.store.LeaseMatches(t.Context(), u.engine.Engine(), "job", 1, noon, noon.Add(time.Minute))
			u.must(err)
			if len(leases) != 1 {
				t.Fatalf("%d images are due after the ImageScan was deleted, want 1", len(leases))
			}
			u.saveReport(web)
			u.reconcile(after)
			if u.queueLength() != 0 {
				t.Error("one deletion has the image matched twice")
			}
		})
	}
}

// deletingStore has the ImageScan deleted once more during the first request for a match.
type deletingStore struct {
	*store.Store
	delete   func()
	requests int
}

func (s *deletingStore) RequestMatch(ctx context.Context, subject store.Subject) error {
	if s.requests++; s.requests == 1 {
		s.delete()
	}
	return s.Store.RequestMatch(ctx, subject)
}

// TestDeletedTwice: a second deletion while the first one's match is requested is a request of its own.
func TestDeletedTwice(t *testing.T) {
	scanner := theScanner()
	image := scanOf(scanner, web)
	u := newUnit(t, scanner, image, aPod(fixtureNamespace, "web", running("main", web)))
	u.saveReport(web)
	u.reconcile(image)
	deleting := &deletingStore{Store: u.store, delete: func() { u.scans.rememberDeletion(image) }}
	u.scans.Store = deleting
	u.scans.rememberDeletion(image)
	u.reconcile(image)
	if deleting.requests != 2 {
		t.Errorf("%d matches are requested after two deletions", deleting.requests)
	}
}

// TestRetiredImagesAreNotRequested: the deletion of an unused image's ImageScan is the operator's own and requests nothing.
func TestRetiredImagesAreNotRequested(t *testing.T) {
	scanner := theScanner()
	u := newUnit(t, scanner)
	scan := scanOf(scanner, web)
	img := store.ScannerImage{Scanner: string(scanner.UID), Namespace: scan.Namespace, Key: keyOfImage(web)}
	u.scans.rememberDeletion(scan)
	if !u.scans.deleted.has(img, noon) {
		t.Error("the deletion of an ImageScan is not remembered")
	}
	u.scans.deleted.remove(img)
	scan.Status.UnusedSinceTime = &metav1.Time{Time: noon}
	u.scans.rememberDeletion(scan)
	if u.scans.deleted.has(img, noon) {
		t.Error("the operator's own deletion counts as a request")
	}
}

// TestDeletedScansAreBounded: any number of deletions takes little memory, and old deletions make room for new ones.
func TestDeletedScansAreBounded(t *testing.T) {
	var deleted deletedScans
	imageNumber := func(i int) store.ScannerImage {
		return store.ScannerImage{Scanner: fmt.Sprint(i), Key: keyOfImage(web)}
	}
	for i := range maxDeletedScans + 1 {
		deleted.add(imageNumber(i), noon)
	}
	if len(deleted.at) != maxDeletedScans {
		t.Errorf("%d deletions are remembered, want %d", len(deleted.at), maxDeletedScans)
	}
	later := noon.Add(deletedScanTime)
	deleted.add(imageNumber(-1), later)
	if len(deleted.at) != 1 || deleted.has(imageNumber(0), later) || !deleted.has(imageNumber(-1), later) {
		t.Errorf("%d deletions are remembered, want only the last", len(deleted.at))
	}
}
