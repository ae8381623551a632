package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// madeAt returns a Scanner with a name and a creation time.
func madeAt(name string, at time.Time, changes ...func(*v1alpha1.Scanner)) *v1alpha1.Scanner {
	return theScanner(append(changes, func(s *v1alpha1.Scanner) {
		s.Name, s.UID, s.CreationTimestamp = name, types.UID("uid-"+name), metav1.NewTime(at)
	})...)
}

func deletedScanner(s *v1alpha1.Scanner) {
	s.Finalizers, s.DeletionTimestamp = []string{v1alpha1.FinalizerPods}, &metav1.Time{Time: noon}
}

// TestAdmittedScanners: the oldest Scanners are admitted, by name if they are equally old. Admits and ScannersIn agree.
func TestAdmittedScanners(t *testing.T) {
	early, late := noon.Add(-time.Hour), noon
	for name, tt := range map[string]struct {
		limit    int
		scanners []*v1alpha1.Scanner
		want     []string
	}{
		"within the limit":     {2, []*v1alpha1.Scanner{madeAt("b", late), madeAt("a", early)}, []string{"a", "b"}},
		"the oldest":           {2, []*v1alpha1.Scanner{madeAt("a", late), madeAt("b", early), madeAt("c", early)}, []string{"b", "c"}},
		"equally old":          {2, []*v1alpha1.Scanner{madeAt("c", late), madeAt("b", late), madeAt("a", late)}, []string{"a", "b"}},
		"one is being deleted": {2, []*v1alpha1.Scanner{madeAt("a", early, deletedScanner), madeAt("b", late), madeAt("c", late)}, []string{"a", "b", "c"}},
		"the youngest is":      {1, []*v1alpha1.Scanner{madeAt("a", early), madeAt("b", late), madeAt("c", late, deletedScanner)}, []string{"a"}},
		"no limit":             {0, []*v1alpha1.Scanner{madeAt("a", early), madeAt("b", late)}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			var all []v1alpha1.Scanner
			for _, s := range tt.scanners {
				objects, all = append(objects, s), append(all, *s)
			}
			objects = append(objects, aScanner("blog", "elsewhere"))
			u := newUnit(t, objects...)
			u.inventory.Limits.Scanners = tt.limit
			var admitted, among []string
			for i := range all {
				ok, err := u.inventory.Admits(t.Context(), &all[i])
				u.must(err)
				if ok {
					admitted = append(admitted, all[i].Name)
				}
			}
			atOnce, err := u.inventory.ScannersIn(t.Context(), fixtureNamespace)
			u.must(err)
			for _, s := range atOnce {
				if s.GetDeletionTimestamp() == nil || slices.Contains(tt.want, s.GetName()) {
					among = append(among, s.GetName())
				}
			}
			slices.Sort(admitted)
			slices.Sort(among)
			if !slices.Equal(admitted, tt.want) || !slices.Equal(among, tt.want) {
				t.Errorf("worked for are %v, and of all at once %v; want %v", admitted, among, tt.want)
			}
		})
	}
}

// TestTooManyScanners: Scanners beyond the limit have a condition that says so and cause no work. The next one is admitted when one is
// deleted.
func TestTooManyScanners(t *testing.T) {
	first, second := theScanner(), madeAt("second", noon.Add(time.Hour))
	pod := aPod(fixtureNamespace, "web-1", running("main", web))
	u := newUnit(t, first, second, pod)
	u.inventory.Limits = inventory.Limits{Scanners: 1}
	imageScans := func() (owners []string) {
		_, err := u.pods.Reconcile(t.Context(), requestFor(pod))
		u.must(err)
		var scans v1alpha1.ImageScanList
		u.must(u.client.List(t.Context(), &scans))
		for _, scan := range scans.Items {
			owners = append(owners, scan.Spec.ScannerRef.Name)
		}
		return owners
	}
	refused := func() (v1alpha1.Scanner, time.Duration) {
		result, err := u.scanners.Reconcile(t.Context(), requestFor(second))
		u.must(err)
		var after v1alpha1.Scanner
		u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(second), &after))
		return after, result.RequeueAfter
	}
	after, again := refused()
	if got, want := conditionsOf(after.Status.Conditions), []string{"Ready=False TooManyScanners", "Stalled=True TooManyScanners"}; !slices.Equal(got, want) || again != 0 {
		t.Errorf("the second Scanner says %v, and is looked at again after %s; want %v, and no such look", got, again, want)
	}
	if message := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.Contains(message, "limits.scannersPerNamespace") {
		t.Errorf("the message does not say what to do: %s", message)
	}
	if got := imageScans(); !slices.Equal(got, []string{"all"}) {
		t.Errorf("there are ImageScans of %v, want those of the first Scanner alone", got)
	}
	if got := u.pods.podsOfScanner(t.Context(), second); len(got) != 0 {
		t.Errorf("a Scanner too many has %d pods looked at", len(got))
	}
	if got := u.scanners.scannersInNamespace(t.Context(), pod); len(got) != 1 {
		t.Errorf("a pod has %d Scanners looked at, want 1", len(got))
	}
	u.must(u.client.Delete(t.Context(), first))
	if after, _ := refused(); meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionStalled) {
		t.Errorf("after the first Scanner has gone the second says %v", conditionsOf(after.Status.Conditions))
	}
	if got := imageScans(); !slices.Contains(got, "second") {
		t.Errorf("then there are ImageScans of %v, want the second's", got)
	}
}

// TestImagesOfScannersTooMany: after the limit is lowered, the images of a Scanner beyond it keep their results and are not scanned any
// more.
func TestImagesOfScannersTooMany(t *testing.T) {
	first, second := theScanner(), madeAt("second", noon.Add(time.Hour))
	scan := scanOf(second, web)
	u := newUnit(t, first, second, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.inventory.Limits = inventory.Limits{Scanners: 1}
	after, _ := u.reconcile(scan)
	if got := conditionsOf(after.Status.Conditions); !slices.Equal(got, []string{"Ready=False TooManyScanners"}) || len(u.engine.indexCalls) != 0 {
		t.Errorf("the ImageScan says %v and the engine was asked %d times", got, len(u.engine.indexCalls))
	}
	if wanted, err := u.store.IsNeeded(t.Context(), u.engine.Engine(), keyOfImage(web), ""); err != nil || wanted {
		t.Errorf("the image is wanted: %t (%v)", wanted, err)
	}
}

// TestTooManyImages: beyond the limit no ImageScan is created. The condition has the number of images and the remedy. ImageScans are
// created again when there is room.
func TestTooManyImages(t *testing.T) {
	scanner := theScanner()
	var objects []client.Object
	for i := range 3 {
		objects = append(objects, aPod(fixtureNamespace, fmt.Sprint("web-", i), running("main", fmt.Sprintf("registry.example.com/shop/web:%d", i))))
	}
	u := newUnit(t, append(objects, scanner)...)
	u.inventory.Limits = inventory.Limits{Scanners: 20, ImageScans: 2}
	reconcile := func() (made int, again []time.Duration) {
		for _, pod := range objects {
			result, err := u.pods.Reconcile(t.Context(), requestFor(pod))
			u.must(err)
			again = append(again, result.RequeueAfter)
		}
		var scans v1alpha1.ImageScanList
		u.must(u.client.List(t.Context(), &scans))
		return len(scans.Items), again
	}
	made, again := reconcile()
	if want := []time.Duration{0, 0, fullRetryDelay}; made != 2 || !slices.Equal(again, want) {
		t.Errorf("%d ImageScans were made, the pods are looked at again after %v; want 2 and %v", made, again, want)
	}
	after := u.reconcileScanner()
	ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
	if got := ready.Reason + " " + ready.Message; !strings.HasPrefix(got, "TooManyImages 1 of 3 images are not scanned: the namespace has 2 ImageScans") || after.Status.Images.Failed != 1 {
		t.Errorf("the Scanner is Ready=%s %s, with %d failed images", ready.Status, got, after.Status.Images.Failed)
	}
	u.inventory.Limits = inventory.Limits{Scanners: 20, ImageScans: 3}
	u.advanceClock(fullRetryDelay)
	if made, again := reconcile(); made != 3 || slices.Max(again) != 0 {
		t.Errorf("with room for one more there are %d ImageScans, and the pods are looked at again after %v", made, again)
	}
}

// TestFullNamespaceIsCountedSeldom: the ImageScans of a full namespace are not counted again for each image without room, since each count
// blocks the creation of ImageScans in all namespaces.
func TestFullNamespaceIsCountedSeldom(t *testing.T) {
	var objects []client.Object
	for i := range 20 {
		objects = append(objects, aPod(fixtureNamespace, fmt.Sprint("web-", i), running("main", fmt.Sprintf("registry.example.com/shop/web:%d", i))))
	}
	u := newUnit(t, append(objects, theScanner())...)
	u.inventory.Limits = inventory.Limits{Scanners: 20, ImageScans: 1}
	counted := 0
	u.inventory.Client = interceptor.NewClient(u.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if _, lists := list.(*v1alpha1.ImageScanList); lists && o.FieldSelector == nil {
				counted++
			}
			return c.List(ctx, list, opts...)
		},
	})
	for _, pod := range objects {
		_, err := u.pods.Reconcile(t.Context(), requestFor(pod))
		u.must(err)
	}
	// One count for the image that found room, and one for all others.
	if counted != 2 {
		t.Errorf("the ImageScans were counted %d times for %d images, want 2", counted, len(objects))
	}
}

// TestStoreBudget: a Scanner whose images exceed the store budget has a condition with their number and the remedy.
func TestStoreBudget(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.engine.index = fixedResult(backend.Progress{}, &backend.Failure{Reason: v1alpha1.ReasonStoreBudgetExceeded, Message: "no room"})
	u.reconcile(scan)
	after := u.reconcileScanner()
	if got, want := conditionsOf(after.Status.Conditions), "Stalled=True StoreBudgetExceeded"; !slices.Contains(got, want) {
		t.Errorf("the Scanner says %v, want %s", got, want)
	}
	ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
	if !strings.HasPrefix(ready.Message, "1 of 1 images are not scanned") || !strings.Contains(ready.Message, "ingest.storeSizePerNamespace") {
		t.Errorf("the message does not say how many and what to do: %s", ready.Message)
	}
}

// TestHangingRequestDelaysOtherPods: a create request that the API server never answers delays other pods by seconds, not for ever.
func TestHangingRequestDelaysOtherPods(t *testing.T) {
	scanner := theScanner()
	u := newUnit(t, scanner)
	img := inventory.RunningImage{PodImage: inventory.PodImage{Container: "c", Reference: image.Reference{Repository: "example.com/web", Tag: "1"}}, Key: keyOfImage(web)}
	working := u.pods.Client
	u.pods.Client = interceptor.NewClient(u.client, interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := u.pods.ensureImageScan(t.Context(), scanner, scanner.Namespace, img)
		if waited := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || waited != ensureTimeout {
			t.Errorf("it waited %s for the API server, error %v; want %s and a timeout", waited, err, ensureTimeout)
		}
	})
	u.pods.Client = working
	u.must(u.pods.ensureImageScan(t.Context(), scanner, scanner.Namespace, img))
	if scan, err := u.inventory.ImageScan(t.Context(), scanner, scanner.Namespace, img.Key); err != nil || scan == nil {
		t.Errorf("ImageScan %v, error %v; want it made by the next pod", scan, err)
	}
}
