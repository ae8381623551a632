package controllers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// usageRecorder is a store that records the images whose uses it is given, and fails with err.
type usageRecorder struct {
	inventory.Store
	err      error
	recorded []string
	// timeout is the time that the last call had until its deadline; negative without a deadline.
	timeout time.Duration
}

func (r *usageRecorder) SetUsage(ctx context.Context, usage store.ImageUsage) error {
	r.recorded, r.timeout = append(r.recorded, usage.Key.Digest), -1
	if deadline, bounded := ctx.Deadline(); bounded {
		r.timeout = time.Until(deadline)
	}
	return r.err
}

// deletedPod returns a unit with a pod whose grace period ends now. The pod is held for a Scanner that has an ImageScan of its image.
func deletedPod(t *testing.T) (*unit, *corev1.Pod, *v1alpha1.ImageScan) {
	t.Helper()
	scanner := theScanner(holdingPods, func(s *v1alpha1.Scanner) { s.Finalizers = []string{v1alpha1.FinalizerPods} })
	going := metav1.NewTime(noon)
	pod := aPod(fixtureNamespace, "a", running("main", web), finalizedBy(foreign, releaseOf("all")))
	pod.DeletionTimestamp = &going
	scan := scanOf(scanner, web, scanned)
	return newUnit(t, scanner, scan, pod), pod, scan
}

// TestReleaseWithoutStore: a failing store holds a pod for releaseTimeout after its grace period, and not longer.
func TestReleaseWithoutStore(t *testing.T) {
	u, pod, scan := deletedPod(t)
	broken := &usageRecorder{Store: u.store, err: errors.New("the disk is full")}
	u.inventory.Store = broken
	look := func() (time.Duration, []string) {
		t.Helper()
		result, err := u.pods.Release(t.Context(), requestFor(pod))
		u.must(err)
		u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		return result.RequeueAfter, pod.Finalizers
	}
	if again, finalizers := look(); again != releaseRetry || len(finalizers) != 2 {
		t.Errorf("looked at again after %s, with %q; want %s, and the pod held", again, finalizers, releaseRetry)
	}
	if !slices.Contains(broken.recorded, scan.Spec.Digest) {
		t.Errorf("recorded: %q, want its image", broken.recorded)
	}
	u.advanceClock(releaseTimeout)
	if again, finalizers := look(); again != 0 || !slices.Equal(finalizers, []string{foreign}) {
		t.Errorf("after %s it is looked at again after %s, with %q; want it to be free", releaseTimeout, again, finalizers)
	}
}

// TestReleaseWithSilentStore: a store that never answers holds a pod no longer than one that fails.
func TestReleaseWithSilentStore(t *testing.T) {
	u, pod, _ := deletedPod(t)
	silent := &usageRecorder{Store: u.store, err: context.DeadlineExceeded}
	u.inventory.Store = silent
	for _, step := range []struct{ late, want time.Duration }{
		{-time.Hour, releaseTimeout}, // the grace period has only begun
		{0, releaseTimeout},
		{10 * time.Second, releaseTimeout - 10*time.Second},
		{time.Hour, releaseRetry}, // no manager ran
	} {
		u.clock.SetTime(noon.Add(step.late))
		_, err := u.pods.Release(t.Context(), requestFor(pod))
		u.must(err)
		if silent.timeout > step.want || silent.timeout < step.want-time.Second {
			t.Errorf("%s after its grace period the store has %s to answer, want %s", step.late, silent.timeout, step.want)
		}
	}
}

// TestReleaseIsSeparateFromReconcile: Reconcile ignores pods that are being deleted, and Release ignores all others.
func TestReleaseIsSeparateFromReconcile(t *testing.T) {
	u, deleted, _ := deletedPod(t)
	runs := aPod(fixtureNamespace, "b", running("main", web), finalizedBy(releaseOf("all")))
	u.must(u.client.Create(t.Context(), runs))
	recorder := &usageRecorder{Store: u.store}
	u.inventory.Store = recorder
	_, err := u.pods.Reconcile(t.Context(), requestFor(deleted))
	u.must(err)
	_, err = u.pods.Release(t.Context(), requestFor(runs))
	u.must(err)
	for _, pod := range []*corev1.Pod{deleted, runs} {
		u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		if !slices.Contains(pod.Finalizers, releaseOf("all")) || len(recorder.recorded) > 0 {
			t.Errorf("pod %s has %q, and %q was recorded; want it held, and nothing recorded", pod.Name, pod.Finalizers, recorder.recorded)
		}
	}
}

// hangingStore is a store that never answers whether the Job "endless" is recorded.
type hangingStore struct {
	*store.Store
	asked chan struct{}
}

func (s *hangingStore) IsRecorded(ctx context.Context, namespace, name, uid string) (bool, error) {
	if name != "endless" {
		return s.Store.IsRecorded(ctx, namespace, name, uid)
	}
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return false, ctx.Err()
}

// TestReleaseDoesNotQueue: pods are released while reconciliations of other pods hang.
func TestReleaseDoesNotQueue(t *testing.T) {
	p := newTestEnv(t)
	p.namespace = busy
	next := &operatorUnderTest{config: p.config, client: p.client, wakeups: &Wakeups{}, slack: &recordingSender{}}
	p.must(next.openStore())
	endless := &hangingStore{next.store, make(chan struct{}, 2)}
	next.reconciled = endless
	scanner := aScanner(busy, "all", holdingPods, func(s *v1alpha1.Scanner) { s.Finalizers = []string{v1alpha1.FinalizerPods} })
	going := aPod(busy, "going", running("main", web), finalizedBy(releaseOf("all")))
	p.create(scanner, going, aPod(busy, "slow", running("main", slow), ownedBy("batch/v1", "Job", "endless", "endless-uid")))
	t.Cleanup(p.empty)
	stop, err := next.startManager(fields.OneTermEqualSelector("metadata.namespace", busy))
	p.must(err)
	t.Cleanup(func() { p.must(stop()) })
	for range 2 { // one by the ScannerReconciler, one by the PodReconciler
		p.Eventually(endless.asked, eventuallyTimeout).Should(Receive(), "the other pod is being looked at")
	}
	p.delete(going)
	p.Eventually(p.gone(going), eventuallyTimeout).Should(BeTrue())
}
