package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestDeletedImageScanIsReleased: an image whose ImageScan was deleted while no pod runs the image is neither matched, counted nor
// announced.
func TestDeletedImageScanIsReleased(t *testing.T) {
	for name, tt := range map[string]struct{ seen, away bool }{
		"after its pod, whose end was seen": {seen: true},
		"together with its pod":             {},
		"while no manager ran":              {away: true},
	} {
		t.Run(name, func(t *testing.T) {
			scanner := theScanner()
			scan, pod := scanOf(scanner, web), aPod(fixtureNamespace, "web-1", running("main", web))
			u := newUnit(t, scanner, scan, pod)
			u.saveReport(web, vulnerability("CVE-2026-0001", finding.Critical))
			u.reconcile(scan)
			u.must(u.client.Delete(t.Context(), pod))
			if tt.seen {
				u.reconcile(scan)
			}
			u.must(u.client.Delete(t.Context(), u.read(scan)))
			if tt.away {
				u.must(u.scans.SweepUses(t.Context()))
			} else {
				u.reconcile(scan)
			}
			after := u.reconcileScanner().Status
			_, news, err := u.store.PendingChanges(t.Context(), string(scanner.UID), "team", store.ChangeFilter{MinSeverity: finding.High}, 0)
			u.must(err)
			used, err := u.store.ImagesInUse(t.Context(), "scripted")
			u.must(err)
			if used+int(after.Findings.Critical)+news+int(after.Images.RecentlyUsed) != 0 {
				t.Errorf("%d images are matched, and of %d images of pods %d critical findings are counted and %d announced; want none",
					used, after.Images.Total, after.Findings.Critical, news)
			}
		})
	}
}

// TestSweepChecksTheAPI: an image is released only if the API server has no ImageScan for it, whatever the cache has. All pages are read.
func TestSweepChecksTheAPI(t *testing.T) {
	scanner := theScanner()
	u := newUnit(t, scanner, scanOf(scanner, web))
	u.saveUsedImage(web)
	u.saveUsedImage(vulnerable)
	pages := 0
	inner := u.client
	u.scans.Reader = interceptor.NewClient(inner, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		pages++
		options := (&client.ListOptions{}).ApplyOptions(opts)
		if options.Limit != sweepPage || options.Namespace != fixtureNamespace {
			t.Errorf("listed with %+v, want pages of the namespace", options)
		}
		if options.Continue == "" { // the first page is empty, and a second one follows
			list.SetContinue("next")
			return nil
		}
		return c.List(ctx, list, client.InNamespace(fixtureNamespace))
	}})
	lagging := interceptor.NewClient(inner, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if (&client.ListOptions{}).ApplyOptions(opts).Continue != "" {
			return errors.New("continue list option is not supported by the cache")
		}
		list.SetContinue("continue-not-supported") // as controller-runtime's cache does, which is still empty here
		return nil
	}})
	u.scans.Client = lagging
	u.must(u.scans.SweepUses(t.Context()))
	images, err := u.store.ScannerImages(t.Context(), fixtureNamespace)
	u.must(err)
	if len(images) != 1 || images[0].Key != keyOfImage(web) || pages != 2 {
		t.Errorf("after %d pages the store has %v, want only the image with an ImageScan after 2", pages, images)
	}
	u.scans.Client = inner
	u.must(u.scans.SweepUses(t.Context()))
	if pages != 2 {
		t.Error("the API server is read although the cache has an ImageScan for each image")
	}
}

// TestRemadeImageScanIsKept: an ImageScan that is deleted while its image runs is recreated, and the image is not released.
func TestRemadeImageScanIsKept(t *testing.T) {
	scanner := theScanner()
	scan, pod := scanOf(scanner, web), aPod(fixtureNamespace, "web-1", running("main", web))
	u := newUnit(t, scanner, scan, pod)
	u.saveReport(web, vulnerability("CVE-2026-0001", finding.Critical))
	u.reconcile(scan)
	u.must(u.client.Delete(t.Context(), u.read(scan)))
	u.reconcile(scan)
	_, err := u.pods.Reconcile(t.Context(), requestFor(pod))
	u.must(err)
	var scans v1alpha1.ImageScanList
	u.must(u.client.List(t.Context(), &scans))
	u.reconcile(&scans.Items[0])
	u.advanceClock(time.Minute)
	u.must(u.scans.SweepUses(t.Context()))
	if got := u.reconcileScanner().Status.Findings.Critical; got != 1 {
		t.Errorf("%d critical findings are counted, want that of the image that runs", got)
	}
}

// TestManyDeletedImageScans: ImageScans that are deleted together cause one sweep. SweepUses finds those that were deleted after it.
func TestManyDeletedImageScans(t *testing.T) {
	scanner := theScanner()
	u := newUnit(t, scanner)
	lists := 0
	u.scans.Reader = interceptor.NewClient(u.client, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		lists++
		return c.List(ctx, list, opts...)
	}})
	inStore := func() int {
		images, err := u.store.ScannerImages(t.Context(), fixtureNamespace)
		u.must(err)
		return len(images)
	}
	u.saveUsedImage(web)
	u.reconcile(scanOf(scanner, web))
	u.saveUsedImage(vulnerable)
	u.reconcile(scanOf(scanner, vulnerable))
	if lists != 1 || inStore() != 1 {
		t.Errorf("after the second deletion the API server was read %d times and %d images are there, want once and one", lists, inStore())
	}
	u.must(u.scans.SweepUses(t.Context()))
	if inStore() != 0 {
		t.Error("the sweep of all namespaces left an image")
	}
	u.saveUsedImage(web)
	u.advanceClock(sweepInterval)
	if u.reconcile(scanOf(scanner, web)); inStore() != 0 {
		t.Error("after a pause a deletion is not swept at once")
	}
}
