package grype

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// imageOf returns an image that a Scanner uses.
func imageOf(scanner, name string) backend.Image {
	img := public(name)
	img.Scanner = scanner
	return img
}

// limits bounds the number of catalog Jobs.
func limits(all, perScanner int) func(*Options) {
	return func(o *Options) {
		o.Config.Grype.Catalog.MaxJobs, o.Config.Grype.Catalog.MaxJobsPerNamespace = all, perScanner
	}
}

// catalogingImages returns the names of those images that are being cataloged.
func (e *engine) catalogingImages(images ...backend.Image) (names []string) {
	e.t.Helper()
	jobs, err := e.Store.LiveJobs(e.t.Context())
	e.must(err)
	for _, job := range jobs {
		for _, img := range images {
			if job.Key == img.Key && job.Scope == img.Scope {
				name, _, _ := strings.Cut(strings.TrimPrefix(img.PullReferences[0], "docker.io/library/"), "@")
				names = append(names, name)
			}
		}
	}
	return names
}

// finishJob completes the Job of an image, and runs the Job loop.
func (e *engine) finishJob(img backend.Image) {
	e.t.Helper()
	live, err := e.Store.LiveJobs(e.t.Context())
	e.must(err)
	for _, job := range e.jobs("catalog") {
		for _, record := range live {
			if record.UID == string(job.UID) && record.Key == img.Key {
				e.saveCatalog(img)
				e.setEndCondition(&job, batchv1.JobComplete, "", "")
			}
		}
	}
	e.woken = nil
	e.runJobsOnce()
}

// indexWoken calls Index for the images that were woken, as their ImageScans do.
func (e *engine) indexWoken(images ...backend.Image) {
	e.t.Helper()
	woken := e.woken
	for _, img := range images {
		if contains(woken, img.Key.Digest) {
			e.index(img)
		}
	}
}

// TestQueuedImagesAreWokenInOrder: when a slot becomes free, the image that has waited longest is woken.
func TestQueuedImagesAreWokenInOrder(t *testing.T) {
	e := newEngine(t, limits(1, 1))
	first, second, third := public("first"), public("second"), public("third")
	e.setUsed(first, second, third)
	for _, img := range []backend.Image{first, second, third, second} {
		e.index(img)
	}
	e.woken = nil
	e.runJobsOnce()
	if len(e.woken) != 0 {
		t.Fatalf("%v are woken, want nobody while there is no place", e.woken)
	}
	e.finishJob(first)
	if diff := cmp.Diff([]string{first.Key.Digest, second.Key.Digest}, e.woken); diff != "" {
		t.Errorf("woken: the one that is done and the next in the line (-want +got):\n%s", diff)
	}
}

// TestScannersShareSlotsFairly: a Scanner with hundreds of new images delays others by one turn at most.
func TestScannersShareSlotsFairly(t *testing.T) {
	e := newEngine(t, limits(2, 2))
	var all []backend.Image
	for i := range 50 {
		all = append(all, imageOf("large", fmt.Sprint("large-", i)))
	}
	all = append(all, imageOf("small", "small-0"), imageOf("small", "small-1"), imageOf("other", "other-0"))
	e.setUsed(all...)
	for _, img := range all {
		e.index(img)
	}
	var order []string
	for range 8 {
		oldest := e.catalogingImages(all...)[0]
		order = append(order, oldest)
		for _, img := range all {
			if strings.Contains(img.PullReferences[0], "/"+oldest+"@") {
				e.finishJob(img)
			}
		}
		e.indexWoken(all...)
	}
	want := []string{"large-0", "large-1", "large-2", "small-0", "other-0", "large-3", "small-1", "large-4"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("the order in which images are cataloged (-want +got):\n%s", diff)
	}
}

// imageIn returns an image that a Scanner of a namespace uses and that anybody may pull.
func imageIn(namespace, scanner, name string) backend.Image {
	img := imageOf(scanner, name)
	img.Namespace = namespace
	return img
}

// TestSlotsPerNamespace: a namespace never gets more slots than its share, and its waiting images say so. That holds for any number of
// Scanners, even though the Jobs run in the operator's namespace. Other namespaces get the remaining slots.
func TestSlotsPerNamespace(t *testing.T) {
	e := newEngine(t, limits(4, 2))
	for i, want := range []string{v1alpha1.ReasonCataloging, v1alpha1.ReasonCataloging, v1alpha1.ReasonPending} {
		img := imageIn("shop", fmt.Sprint("scanner ", i), fmt.Sprint(i))
		e.setUsed(img)
		if got := e.index(img); got != want {
			t.Errorf("image %d of a namespace with 2 places gets %q, want %q", i, got, want)
		}
	}
	progress, err := e.Index(t.Context(), imageIn("shop", "scanner 2", "2"))
	e.must(err)
	if want := "waiting for one of this namespace's 2 catalog Jobs to end (grype.catalog.maxJobsPerNamespace in the operator's configuration)"; progress.Message != want {
		t.Errorf("it gets %q, want %q", progress.Message, want)
	}
	e.must(e.Store.DeleteScanners(t.Context(), []string{"scanner 0"}))
	e.runJobsOnce() // the Job is removed because no other Scanner wants it
	if got := e.index(imageIn("shop", "scanner 2", "2")); got != v1alpha1.ReasonCataloging {
		t.Errorf("when a Scanner is deleted its namespace's next image's state is %q, want its place", got)
	}
	other := imageIn("blog", "two", "x")
	e.setUsed(other)
	if got := e.index(other); got != v1alpha1.ReasonCataloging {
		t.Errorf("another namespace's image gets %q, want %q", got, v1alpha1.ReasonCataloging)
	}
}

// TestNamespacesShareSlotsFairly: a namespace with many Scanners gets one turn like any other, which its Scanners share round-robin.
func TestNamespacesShareSlotsFairly(t *testing.T) {
	e := newEngine(t, limits(1, 1))
	var all []backend.Image
	for i := range 4 {
		all = append(all, imageIn("shop", fmt.Sprint("shop ", i), fmt.Sprint("shop-", i)), imageIn("shop", fmt.Sprint("shop ", i), fmt.Sprint("shop-again-", i)))
	}
	all = append(all, imageIn("blog", "blog", "blog-0"), imageIn("blog", "blog", "blog-1"), imageIn("blog", "blog", "blog-2"))
	e.setUsed(all...)
	for _, img := range all {
		e.index(img)
	}
	var order []string
	for range 7 {
		current := e.catalogingImages(all...)[0]
		order = append(order, current)
		for _, img := range all {
			if strings.Contains(img.PullReferences[0], "/"+current+"@") {
				e.finishJob(img)
			}
		}
		e.indexWoken(all...)
	}
	// The first image came before any other waited, and its Scanner's second image before the other namespace.
	want := []string{"shop-0", "shop-again-0", "blog-0", "shop-1", "blog-1", "shop-2", "blog-2"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("the order in which images are cataloged (-want +got):\n%s", diff)
	}
}

// TestWokenImageKeepsItsSlot: a free slot goes to the image that was woken for it, and not to one that asks first.
func TestWokenImageKeepsItsSlot(t *testing.T) {
	e := newEngine(t, limits(1, 1))
	first, second, late := imageOf("one", "first"), imageOf("two", "second"), imageOf("three", "late")
	e.setUsed(first, second, late)
	e.index(first)
	e.index(second)
	e.finishJob(first)
	if got := e.index(late); got != v1alpha1.ReasonPending {
		t.Errorf("who comes late gets %q, want %q", got, v1alpha1.ReasonPending)
	}
	if got := e.index(second); got != v1alpha1.ReasonCataloging {
		t.Errorf("who was called gets %q, want %q", got, v1alpha1.ReasonCataloging)
	}
}

// TestGoneImagesAreSkipped: an image that is not wanted any more, or not now, is skipped at once. An image that does not react to being
// woken is skipped after claimTimeout. The next image gets the slot.
func TestGoneImagesAreSkipped(t *testing.T) {
	for name, tt := range map[string]struct {
		goes func(e *engine, gone backend.Image)
		wait time.Duration
	}{
		"released": {func(e *engine, gone backend.Image) {
			e.must(e.Store.ReleaseImage(e.t.Context(), store.ScannerImage{Scanner: gone.Scanner, Namespace: "shop", Key: gone.Key}, false))
		}, 0},
		"its Scanner is deleted": {func(e *engine, gone backend.Image) {
			e.must(e.Store.DeleteScanners(e.t.Context(), []string{gone.Scanner}))
		}, 0},
		"its Scanner is suspended": {func(e *engine, gone backend.Image) {
			e.must(e.Store.SetUsage(e.t.Context(), store.ImageUsage{
				Scanner: gone.Scanner, Namespace: gone.Namespace, Key: gone.Key, Scope: gone.Scope, Engine: Engine, Suspended: true,
				Workloads: []store.Workload{{Namespace: gone.Namespace, Kind: "Deployment", Name: "web"}},
			}))
		}, 0},
		"its pods have ended": {func(e *engine, gone backend.Image) {
			e.must(e.Store.SetUsage(e.t.Context(), store.ImageUsage{Scanner: gone.Scanner, Namespace: gone.Namespace, Key: gone.Key}))
		}, 0},
		"it does not come":            {func(*engine, backend.Image) {}, claimTimeout},
		"another brought its catalog": {func(e *engine, gone backend.Image) { e.saveCatalog(gone); e.index(gone) }, 0},
		"another found that it is wrong": {func(e *engine, gone backend.Image) {
			e.rememberFailure(gone, podDeleted)
			e.index(gone)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, limits(1, 1))
			first, gone, last := imageOf("one", "first"), imageOf("two", "gone"), imageOf("three", "last")
			e.setUsed(first, gone, last)
			for _, img := range []backend.Image{first, gone, last} {
				e.index(img)
			}
			tt.goes(e, gone)
			e.finishJob(first)
			e.advance(tt.wait)
			e.runJobsOnce()
			if !contains(e.woken, last.Key.Digest) {
				t.Fatalf("who waits behind it is not woken")
			}
			if got := e.index(last); got != v1alpha1.ReasonCataloging {
				t.Errorf("who waits behind it gets %q, want %q", got, v1alpha1.ReasonCataloging)
			}
		})
	}
}

// TestOthersKeepQueuePosition: a problem with one Scanner's references does not change the queue position of other Scanners that wait for the
// same image.
func TestOthersKeepQueuePosition(t *testing.T) {
	for name, keep := range map[string]func(*engine, backend.Image){
		"it has failed": func(e *engine, img backend.Image) { e.rememberFailure(img, podDeleted) },
		"its registry throttles": func(e *engine, img backend.Image) {
			e.throttles.Record(e.clock.Now(), img.Scope, &backend.Failure{Reason: workerapi.ReasonRegistryThrottled, Registry: "busy.example.com", RetryAfter: time.Hour})
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, limits(1, 1))
			first, mine, theirs, last := imageOf("one", "first"), imageOf("two", "shared"), imageOf("three", "shared"), imageOf("four", "last")
			theirs.PullReferences = []string{"busy.example.com/shared@" + theirs.Key.Digest}
			e.setUsed(first, mine, theirs, last)
			for _, img := range []backend.Image{first, mine, theirs, last} {
				e.index(img)
			}
			keep(e, theirs)
			if got := e.index(theirs); got == v1alpha1.ReasonPending || got == v1alpha1.ReasonCataloging {
				t.Fatalf("the Scanner that cannot have the image's state is %q", got)
			}
			e.finishJob(first)
			if got := e.index(last); got != v1alpha1.ReasonPending {
				t.Errorf("who came later gets %q, want that it waits", got)
			}
			if got := e.index(mine); got != v1alpha1.ReasonCataloging {
				t.Errorf("the other Scanner of the image's state is %q, want its place", got)
			}
		})
	}
}

// TestUnclaimedSlotKeepsScannersQueue: an image that does not react to being woken leaves the other images of its Scanner in their
// position.
func TestUnclaimedSlotKeepsScannersQueue(t *testing.T) {
	e := newEngine(t, limits(1, 1))
	first, absent, behind := imageOf("one", "first"), imageOf("two", "absent"), imageOf("two", "behind")
	e.setUsed(first, absent, behind)
	for _, img := range []backend.Image{first, absent, behind} {
		e.index(img)
	}
	e.finishJob(first)
	e.advance(claimTimeout)
	e.runJobsOnce()
	if !contains(e.woken, behind.Key.Digest) {
		t.Error("the Scanner's next image is not called")
	}
}

// TestOneJobServesAllScanners: an image that two Scanners wait for takes one slot and leaves the queue for both.
func TestOneJobServesAllScanners(t *testing.T) {
	e := newEngine(t, limits(1, 1))
	first, shared, last := imageOf("one", "first"), imageOf("two", "shared"), imageOf("three", "last")
	also := shared
	also.Scanner = "four"
	e.setUsed(first, shared, also, last)
	for _, img := range []backend.Image{first, shared, also, last} {
		e.index(img)
	}
	e.finishJob(first)
	e.indexWoken(shared, also)
	e.finishJob(shared)
	if e.indexWoken(last); len(e.catalogingImages(last)) != 1 {
		t.Error("the next image waits for a place that nobody needs")
	}
}

// TestEndedJobsTakeNoSlot: ended Jobs that are kept as history occupy no slot.
func TestEndedJobsTakeNoSlot(t *testing.T) {
	e := newEngine(t, limits(1, 1))
	e.setUsed(public("a"), public("b"))
	e.index(public("a"))
	job := e.job("catalog")
	e.pod(job, terminated(1, "Error", `{"reason":"ImageNotFound","message":"no"}`))
	e.setEndCondition(job, batchv1.JobFailed, "BackoffLimitExceeded", "")
	e.runJobsOnce()
	if got := e.index(public("b")); got != v1alpha1.ReasonCataloging || len(e.jobs("catalog")) != 2 {
		t.Errorf("beside an ended Job the next image's state is %q, want %q", got, v1alpha1.ReasonCataloging)
	}
}

// TestQueueAfterStoreError: an image keeps its position, for each Scanner that waits for it, when the store cannot be read.
func TestQueueAfterStoreError(t *testing.T) {
	e := newEngine(t, limits(1, 1))
	first, waiting := public("first"), public("waiting")
	theirs := waiting
	theirs.Scanner = "theirs"
	e.setUsed(first, waiting, theirs)
	for _, img := range []backend.Image{first, waiting, theirs} {
		e.index(img)
	}
	e.changeStore(`ALTER TABLE catalogues RENAME TO hidden`)
	if _, err := e.StartCatalog(t.Context(), waiting); err == nil {
		t.Error("StartCatalog reports no error of the store")
	}
	e.changeStore(`ALTER TABLE hidden RENAME TO catalogues`)
	if got := e.queue.length(); got != 2 {
		t.Errorf("%d images are queued, want the one of both Scanners", got)
	}
}

// changeStore runs an SQL statement on the store's file.
func (e *engine) changeStore(statement string) {
	e.t.Helper()
	db, err := sql.Open("sqlite", e.storePath)
	e.must(err)
	_, err = db.ExecContext(e.t.Context(), statement)
	e.must(errors.Join(err, db.Close()))
}
