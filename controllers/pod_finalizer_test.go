package controllers

import (
	"context"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// foreign is the finalizer of another controller.
const foreign = "example.com/another-controller"

func releaseOf(scanner string) string { return scanner + podmark.FinalizerSuffix }

// holdingPods makes a Scanner set finalizers on pods.
func holdingPods(s *v1alpha1.Scanner) { s.Spec.AddPodFinalizer = ptr.To(true) }

func finalizedBy(finalizers ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, finalizers...) }
}

// finalizers returns a function that reads the finalizers of an existing object.
func (p *testEnv) finalizers(o client.Object) func() []string {
	return func() []string { return refresh(p, o.DeepCopyObject().(client.Object)).GetFinalizers() }
}

func (p *testEnv) gone(o client.Object) func() bool {
	return func() bool {
		err := p.client.Get(p.t.Context(), client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object))
		p.must(client.IgnoreNotFound(err))
		return apierrors.IsNotFound(err)
	}
}

// workloads returns a function that reads, as references, which workloads of a Scanner use an image according to the store.
func (p *testEnv) workloads(scanner *v1alpha1.Scanner, reference string) func() []string {
	return func() []string {
		uses, err := p.store.UsedImages(p.t.Context())
		p.must(err)
		for _, use := range uses {
			if use.Scanner == string(scanner.UID) && use.Key == keyOfImage(reference) {
				return use.References
			}
		}
		return nil
	}
}

// unfinalize removes the other controller's finalizer, as that controller would.
func (p *testEnv) unfinalize(pod *corev1.Pod) {
	p.t.Helper()
	p.must(podmark.Patch{RemoveFinalizers: []string{foreign}}.Apply(p.t.Context(), p.client, refresh(p, pod)))
}

// TestPodHeldUntilReleased: a deleted pod is held until the store has recorded that it does not use its images any more. Finalizers of
// other controllers stay.
func TestPodHeldUntilReleased(t *testing.T) {
	p := newTestEnv(t)
	scanner, image := aScanner(p.namespace, "all", holdingPods), p.unique("web")
	held := aPod(p.namespace, "held", running("main", image), finalizedBy(foreign))
	stays := aPod(p.namespace, "stays", running("main", web))
	p.create(scanner, held, stays)
	p.Eventually(p.finalizers(held), eventuallyTimeout).Should(ConsistOf(foreign, releaseOf("all")))
	p.Expect(p.finalizers(scanner)()).To(ConsistOf(v1alpha1.FinalizerPods), "the Scanner can only go after its pods")
	p.waitForPhases(scanner, phasesOf{image: v1alpha1.PhaseScanned, web: v1alpha1.PhaseScanned})
	p.Eventually(p.workloads(scanner, image), eventuallyTimeout).Should(ConsistOf(image))

	p.delete(held)
	p.Eventually(p.finalizers(held), eventuallyTimeout).Should(ConsistOf(foreign))
	p.Expect(p.workloads(scanner, image)()).To(BeEmpty(), "the release was recorded first")
	p.Expect(p.workloads(scanner, web)()).To(ConsistOf(web))
	p.unfinalize(held)
	p.Eventually(p.gone(held), eventuallyTimeout).Should(BeTrue())
	p.Expect(p.finalizers(stays)()).To(ConsistOf(releaseOf("all")))
}

// TestPodsThatAreNotHeld: pods get no finalizer from Scanners that do not set one, after they ended, or if they belong to the operator's
// own Jobs.
func TestPodsThatAreNotHeld(t *testing.T) {
	p := newTestEnv(t)
	own := store.Job{Namespace: p.namespace, Name: "scan-catalog-x", UID: "own-" + p.namespace, Purpose: store.JobCatalog, Key: keyOfImage(web)}
	p.must(p.store.SaveJob(t.Context(), own))
	t.Cleanup(func() { _ = p.store.DeleteJob(context.Background(), own.Namespace, own.Name) })
	others := []*corev1.Pod{
		aPod(p.namespace, "ended", running("main", web), inPhase(corev1.PodSucceeded), finalizedBy(releaseOf("all"))),
		aPod(p.namespace, "failed", running("main", web), inPhase(corev1.PodFailed)),
		aPod(p.namespace, "ignored", running("main", web), labelled("scanner-operator.io/ignore", "true")),
		aPod(p.namespace, "own", running("main", web), ownedBy("batch/v1", "Job", own.Name, own.UID)),
		aPod(p.namespace, "of-an-unknown-scanner", running("main", web), labelled("scanner-operator.io/ignore", "true"), finalizedBy(releaseOf("nobody"))),
	}
	last := aPod(p.namespace, "last", running("main", web), labelled("tier", "front"))
	p.create(aScanner(p.namespace, "all", holdingPods), aScanner(p.namespace, "off"), aScanner(p.namespace, "back", holdingPods, selecting("tier", "back")))
	for _, pod := range others {
		p.create(pod)
	}
	p.create(last)
	p.Eventually(p.finalizers(last), eventuallyTimeout).Should(ConsistOf(releaseOf("all")), "neither the Scanner that does not ask nor the one that does not select it")
	for _, pod := range others {
		p.Eventually(p.finalizers(pod), eventuallyTimeout).Should(BeEmpty(), "pod %s", pod.Name)
	}
}

// TestPodFinalizerIsRemoved: when a Scanner is not responsible for a pod any more, its finalizer is removed, and no other.
func TestPodFinalizerIsRemoved(t *testing.T) {
	for name, end := range map[string]func(p *testEnv, scanner *v1alpha1.Scanner, pod *corev1.Pod){
		"switched off": func(p *testEnv, s *v1alpha1.Scanner, _ *corev1.Pod) {
			p.patchScanner(s, func(s *v1alpha1.Scanner) { s.Spec.AddPodFinalizer = ptr.To(false) })
			p.Eventually(p.finalizers(s), eventuallyTimeout).Should(BeEmpty(), "the Scanner needs none either")
		},
		"switched off while suspended": func(p *testEnv, s *v1alpha1.Scanner, _ *corev1.Pod) {
			p.patchScanner(s, func(s *v1alpha1.Scanner) { s.Spec.Suspend, s.Spec.AddPodFinalizer = ptr.To(true), ptr.To(false) })
		},
		"another selector": func(p *testEnv, s *v1alpha1.Scanner, _ *corev1.Pod) { p.patchScanner(s, selecting("tier", "other")) },
		"another ignoreLabel": func(p *testEnv, s *v1alpha1.Scanner, pod *corev1.Pod) {
			p.patchScanner(s, func(s *v1alpha1.Scanner) { s.Spec.IgnoreLabel = "tier" })
		},
		"the pod's label": func(p *testEnv, _ *v1alpha1.Scanner, pod *corev1.Pod) {
			before := refresh(p, pod).DeepCopy()
			labelled("scanner-operator.io/ignore", "true")(pod)
			p.must(p.client.Patch(p.t.Context(), pod, client.MergeFrom(before))) // the operator changes the pod concurrently
		},
		"the pod succeeds": func(p *testEnv, _ *v1alpha1.Scanner, pod *corev1.Pod) {
			status := refresh(p, pod).Status
			status.Phase = corev1.PodSucceeded
			p.setPodStatus(pod, status)
		},
		"the Scanner is deleted": func(p *testEnv, s *v1alpha1.Scanner, _ *corev1.Pod) {
			p.delete(s)
			p.Eventually(p.gone(s), eventuallyTimeout).Should(BeTrue())
		},
		"the Scanner is recreated, without": func(p *testEnv, s *v1alpha1.Scanner, _ *corev1.Pod) {
			p.delete(s)
			p.Eventually(p.gone(s), eventuallyTimeout).Should(BeTrue())
			p.create(aScanner(p.namespace, s.Name))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestEnv(t)
			scanner := aScanner(p.namespace, "all", holdingPods)
			pod := aPod(p.namespace, "a", running("main", web), finalizedBy(foreign), labelled("tier", "true"))
			t.Cleanup(func() {
				p.t = t
				_ = client.IgnoreNotFound(podmark.Patch{RemoveFinalizers: []string{foreign}}.Apply(context.Background(), p.client, pod))
			})
			p.create(scanner, aScanner(p.namespace, "other", holdingPods, selecting("tier", "true")), pod)
			p.Eventually(p.finalizers(pod), eventuallyTimeout).Should(ConsistOf(foreign, releaseOf("all"), releaseOf("other")))
			end(p, scanner, pod)
			p.Eventually(p.finalizers(pod), eventuallyTimeout).Should(And(ContainElement(foreign), Not(ContainElement(releaseOf("all")))))
			if refresh(p, pod).Status.Phase == corev1.PodRunning && pod.Labels["scanner-operator.io/ignore"] == "" {
				p.Expect(pod.Finalizers).To(ContainElement(releaseOf("other")), "the other Scanner holds it as before")
			}
		})
	}
}

// TestSuspendedScannerReleases: a suspended Scanner releases the pods that it holds, and holds no new ones until it is resumed.
func TestSuspendedScannerReleases(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all", holdingPods)
	before, later := aPod(p.namespace, "before", running("main", web)), aPod(p.namespace, "later", running("main", web))
	p.create(scanner, before)
	p.Eventually(p.finalizers(before), eventuallyTimeout).Should(ConsistOf(releaseOf("all")))
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) })
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.ObservedGeneration).To(Equal(scanner.Generation))
	})
	p.create(later)
	p.Consistently(p.finalizers(later), consistentlyDuration).Should(BeEmpty())
	p.Expect(p.finalizers(before)()).To(ConsistOf(releaseOf("all")), "what was begun stays")
	p.delete(before)
	p.Eventually(p.gone(before), eventuallyTimeout).Should(BeTrue())
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(false) })
	p.Eventually(p.finalizers(later), eventuallyTimeout).Should(ConsistOf(releaseOf("all")))
}

// TestScannerDeletedWhilePodsTerminate: the Scanner and its pods do not wait for each other, whatever else holds the pods.
func TestScannerDeletedWhilePodsTerminate(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, repeatToLength("scanner-", 62)+"s", holdingPods) // the maximum length of a name
	terminating := aPod(p.namespace, "terminating", running("main", web), finalizedBy(foreign))
	runningOn := aPod(p.namespace, "running", running("main", web))
	p.create(scanner, terminating, runningOn)
	for _, pod := range []*corev1.Pod{terminating, runningOn} {
		p.Eventually(p.finalizers(pod), eventuallyTimeout).Should(ContainElement(releaseOf(scanner.Name)))
	}
	p.must(p.client.Delete(t.Context(), terminating)) // with a grace period, during which nothing ends the pod
	p.delete(scanner)
	p.Eventually(p.gone(scanner), eventuallyTimeout).Should(BeTrue())
	p.Expect(p.finalizers(terminating)()).To(ConsistOf(foreign))
	p.Expect(p.finalizers(runningOn)()).To(BeEmpty())
	p.Eventually(func() int { return len(p.scans(scanner)) }, eventuallyTimeout).Should(BeZero())
	p.unfinalize(terminating)
	p.delete(runningOn)
}

// TestNamespaceDeleted: the objects of a namespace are deleted in any order, and none remains.
func TestNamespaceDeleted(t *testing.T) {
	for name, podsFirst := range map[string]bool{"pods first": true, "Scanners first": false} {
		t.Run(name, func(t *testing.T) {
			p := newTestEnv(t)
			objects := []client.Object{
				aScanner(p.namespace, "one", holdingPods), aScanner(p.namespace, "two", holdingPods),
				aPod(p.namespace, "a", running("main", web)), aPod(p.namespace, "b", running("main", vulnerable)),
			}
			p.create(objects...)
			for _, pod := range objects[2:] {
				p.Eventually(p.finalizers(pod), eventuallyTimeout).Should(ConsistOf(releaseOf("one"), releaseOf("two")))
			}
			if podsFirst {
				slices.Reverse(objects)
			}
			p.delete(objects...)
			for _, o := range objects {
				p.Eventually(p.gone(o), eventuallyTimeout).Should(BeTrue(), o.GetName())
			}
		})
	}
}

// TestManagerRestart: without a manager, a deleted pod and its Scanner stay. The next manager releases both.
func TestManagerRestart(t *testing.T) {
	p := newTestEnv(t)
	p.namespace = restarting
	deleted, gone := aScanner(restarting, "deleted"), releaseOf("gone-meanwhile")
	deleted.Finalizers = []string{v1alpha1.FinalizerPods}
	terminating := aPod(restarting, "terminating", running("main", web), finalizedBy(releaseOf("deleted"), gone))
	runningOn := aPod(restarting, "running", running("main", web), finalizedBy(releaseOf("deleted"), gone))
	p.create(deleted, terminating, runningOn)
	p.delete(deleted, terminating)
	p.Consistently(func() bool { return p.gone(terminating)() || p.gone(deleted)() }, consistentlyDuration).Should(BeFalse())

	next := &operatorUnderTest{config: p.config, client: p.client, wakeups: &Wakeups{}, slack: &recordingSender{}}
	p.must(next.openStore())
	stop, err := next.startManager(fields.OneTermEqualSelector("metadata.namespace", restarting))
	p.must(err)
	t.Cleanup(func() { p.must(stop()) })
	p.Eventually(p.gone(terminating), eventuallyTimeout).Should(BeTrue())
	p.Eventually(p.gone(deleted), eventuallyTimeout).Should(BeTrue())
	p.Eventually(p.finalizers(runningOn), eventuallyTimeout).Should(BeEmpty())
	p.delete(runningOn)
}

// TestPodPatchInARace: finalizers that others add or remove between the read and the patch of a pod are preserved, and another pod of the
// same name is not changed.
func TestPodPatchInARace(t *testing.T) {
	p := newTestEnv(t)
	p.namespace = unattended
	pod := aPod(p.namespace, "race", running("main", web), finalizedBy(foreign, releaseOf("a")))
	p.create(pod)
	seen := pod.DeepCopy()
	t.Cleanup(func() { _ = p.client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	pod.Finalizers = []string{"example.com/newer", releaseOf("a")}
	p.must(p.client.Update(t.Context(), pod))
	p.must(podmark.Patch{AddFinalizers: []string{releaseOf("b")}, RemoveFinalizers: []string{releaseOf("a")}}.Apply(t.Context(), p.client, seen))
	p.Expect(p.finalizers(pod)()).To(ConsistOf("example.com/newer", releaseOf("b")))
	p.must(podmark.Patch{AddFinalizers: []string{releaseOf("b")}, RemoveFinalizers: []string{releaseOf("a")}}.Apply(t.Context(), p.client, seen))
	p.Expect(p.finalizers(pod)()).To(ConsistOf("example.com/newer", releaseOf("b")), "said twice, done once")
	seen.UID = "00000000-0000-0000-0000-000000000000"
	err := podmark.Patch{RemoveFinalizers: []string{releaseOf("b")}}.Apply(t.Context(), p.client, seen)
	p.Expect(err).To(MatchError(ContainSubstring("metadata.uid")))
	p.must(podmark.Patch{RemoveFinalizers: []string{"example.com/newer", releaseOf("b")}}.Apply(t.Context(), p.client, pod))
}

// TestScannerIsHeldFirst: no pod gets a finalizer before the Scanner has its own, since nothing would remove it after a deletion of the
// Scanner.
func TestScannerIsHeldFirst(t *testing.T) {
	pod := aPod(fixtureNamespace, "a", running("main", web))
	u := newUnit(t, theScanner(holdingPods), pod)
	finalizers := func() []string {
		t.Helper()
		_, err := u.pods.Reconcile(t.Context(), requestFor(pod))
		u.must(err)
		u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		return pod.Finalizers
	}
	if got := finalizers(); len(got) > 0 {
		t.Errorf("before the Scanner has its own, the pod has %q", got)
	}
	if got := u.reconcileScanner().Finalizers; !slices.Equal(got, []string{v1alpha1.FinalizerPods}) {
		t.Errorf("the Scanner has %q", got)
	}
	if got := finalizers(); !slices.Equal(got, []string{releaseOf("all")}) {
		t.Errorf("then the pod has %q", got)
	}
}
