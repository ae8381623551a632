package controllers

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// unique returns a reference that no other test uses.
func (p *testEnv) unique(name string) string {
	return "registry.example.com/" + p.namespace + "/" + name + ":1"
}

// inUse returns a function that reports whether a Scanner has the image in the store.
func (p *testEnv) inUse(reference string) func() bool {
	return func() bool {
		used, err := p.store.InUse(p.t.Context(), "fake", keyOfImage(reference), store.Cluster)
		p.must(err)
		return used
	}
}

// TestEveryKindOfImage: one Scanner with images in all states has counts that add up.
func TestEveryKindOfImage(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all", excluding("*/excluded"))
	p.create(scanner,
		aPod(p.namespace, "a", running("main", web), running("bad", vulnerable), running("broken", failing)),
		aPod(p.namespace, "b", running("main", slow), running("excluded", "excluded:1"), loaded("local", "built-here:1")),
		aPod(p.namespace, "c", waiting("main", "no-such-image:1", "ImagePullBackOff"), creating("soon", "soon:1"), inPhase(corev1.PodPending)),
	)
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{Total: 8, Scanned: 2, Pending: 2, Failed: 3, Excluded: 1}))
		g.Expect(status.Findings).To(Equal(v1alpha1.FindingCounts{Critical: 1, High: 1, Fixable: 1}))
		g.Expect(conditionsOf(status.Conditions)).To(ConsistOf("BackendAvailable=True Available", "NotificationsDelivered=True NoReceivers",
			"StoreDurable=False EphemeralVolume", "Ready=False Scanning", "Reconciling=True Scanning"))
		g.Expect(status.StoreID).To(Equal(p.store.ID()))
		g.Expect(status.VulnerabilityData.Tool).To(Equal(fake.Engine))
	})
	p.waitForPhases(scanner, phasesOf{
		web: v1alpha1.PhaseScanned, vulnerable: v1alpha1.PhaseScanned, failing: v1alpha1.PhaseFailed, slow: v1alpha1.PhaseCataloging,
		"docker.io/library/built-here:1": v1alpha1.PhaseFailed,
	})
	for _, scan := range p.scans(scanner) {
		ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady)
		reconciling := meta.IsStatusConditionTrue(scan.Status.Conditions, v1alpha1.ConditionReconciling)
		p.Expect(ready.ObservedGeneration).To(Equal(scan.Generation))
		p.Expect(ready.Status == metav1.ConditionTrue).To(Equal(scan.Status.Phase == v1alpha1.PhaseScanned), "%s is %s and Ready is %s", scan.Name, scan.Status.Phase, ready.Status)
		p.Expect(reconciling).To(Equal(scan.Status.Phase == v1alpha1.PhaseCataloging), "%s is %s", scan.Name, scan.Status.Phase)
		switch scan.Spec.References[0] {
		case failing:
			p.Expect(ready.Reason).To(Equal("ImageNotFound"))
			p.Expect(scan.Status.Attempts).To(BeEquivalentTo(1))
			p.Expect(scan.Status.NextAttemptTime.Time).To(BeTemporally("~", time.Now().Add(time.Minute), 45*time.Second))
			p.Expect(scan.Status.Findings).To(BeNil(), "a failed image is not shown as clean")
		case "docker.io/library/built-here:1":
			p.Expect(ready.Reason).To(Equal(v1alpha1.ReasonBareImageID))
			p.Expect(scan.Spec.DigestType).To(Equal(v1alpha1.DigestImageID))
		}
	}
}

// TestEvents: events explain why an image has no result.
func TestEvents(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	p.create(scanner, aPod(p.namespace, "a", running("main", failing)))
	p.Eventually(func() (reasons []string) {
		var all eventsv1.EventList
		p.must(p.client.List(t.Context(), &all, client.InNamespace(p.namespace)))
		for _, event := range all.Items {
			reasons = append(reasons, event.Regarding.Kind+" "+event.Type+" "+event.Reason)
		}
		return reasons
	}, eventuallyTimeout).Should(ContainElements("ImageScan Warning ImageNotFound", "Scanner Warning SomeImagesFailed"))
}

// TestDeletedByUser: a deleted ImageScan of a running image is recreated, and the image is matched again.
func TestDeletedByUser(t *testing.T) {
	p := newTestEnv(t)
	scanner, image := aScanner(p.namespace, "all"), p.unique("web")
	matchedAt := func() time.Time {
		subject := store.Subject{PlatformDigest: keyOfImage(image).Digest, Scope: store.Cluster, Engine: "fake"}
		summary, err := p.store.Summary(t.Context(), subject, store.ImageExceptions{})
		p.must(err)
		return summary.MatchedAt
	}
	p.create(scanner, aPod(p.namespace, "a", running("main", image)))
	p.waitForPhases(scanner, phasesOf{image: v1alpha1.PhaseScanned})
	former, before := p.scan(scanner, image), matchedAt()
	p.delete(former)
	p.waitForPhases(scanner, phasesOf{image: v1alpha1.PhaseScanned})
	p.Expect(p.scan(scanner, image).UID).NotTo(Equal(former.UID))
	p.Eventually(matchedAt, eventuallyTimeout).Should(BeTemporally(">", before))
}

// TestRetentionInTheCluster: the ImageScan of an unused image is deleted when its retention is over, and so is its use in the store. A
// longer retention of another Scanner keeps the image.
func TestRetentionInTheCluster(t *testing.T) {
	p := newTestEnv(t)
	brief := aScanner(p.namespace, "brief", func(s *v1alpha1.Scanner) { s.Spec.UnusedImageRetention = &metav1.Duration{Duration: time.Second} })
	lasting := aScanner(p.namespace, "lasting")
	image := p.unique("web")
	pod := aPod(p.namespace, "a", running("main", image))
	p.create(brief, lasting, pod)
	p.waitForPhases(brief, phasesOf{image: v1alpha1.PhaseScanned})
	p.waitForPhases(lasting, phasesOf{image: v1alpha1.PhaseScanned})
	p.delete(pod)
	p.Eventually(func() int { return len(p.scans(brief)) }, eventuallyTimeout).Should(BeZero())
	p.Eventually(func() *metav1.Time { return p.scan(lasting, image).Status.UnusedSinceTime }, eventuallyTimeout).ShouldNot(BeNil())
	p.Expect(p.inUse(image)()).To(BeTrue(), "the other Scanner keeps it")
	p.waitForStatus(lasting, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{}))
	})
	p.patchScanner(lasting, func(s *v1alpha1.Scanner) { s.Spec.UnusedImageRetention = &metav1.Duration{} })
	p.Eventually(func() int { return len(p.scans(lasting)) }, eventuallyTimeout).Should(BeZero())
	p.Eventually(p.inUse(image), eventuallyTimeout).Should(BeFalse())
}

// TestStaleStatusIsCorrected: a wrong field in an ImageScan's status is corrected without any other event: a reconciliation that started from an
// older status may have left it.
func TestStaleStatusIsCorrected(t *testing.T) {
	p := newTestEnv(t)
	scanner, image := aScanner(p.namespace, "all"), p.unique("web")
	p.create(scanner, aPod(p.namespace, "a", running("main", image)))
	p.waitForPhases(scanner, phasesOf{image: v1alpha1.PhaseScanned})
	// Wait for the events of the creation to pass: each of them would correct the status as well.
	p.Eventually(func() bool {
		before := p.scan(scanner, image).ResourceVersion
		time.Sleep(consistentlyDuration)
		return p.scan(scanner, image).ResourceVersion == before
	}, eventuallyTimeout).Should(BeTrue())
	scan := p.scan(scanner, image)
	before := scan.DeepCopy()
	scan.Status.UnusedSinceTime = &metav1.Time{Time: time.Now()}
	p.must(p.client.Status().Patch(t.Context(), scan, client.MergeFrom(before)))
	p.Eventually(func() *metav1.Time { return p.scan(scanner, image).Status.UnusedSinceTime }, eventuallyTimeout).Should(BeNil())
}

// TestRetiredByOlderStatus: an ImageScan is not deleted if it has changed since the status on which the decision is based.
func TestRetiredByOlderStatus(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	p.create(scanner)
	scan := scanOf(refresh(p, scanner), web)
	p.must(p.client.Create(t.Context(), scan))
	old := scan.DeepCopy()
	old.Status.UnusedSinceTime = &metav1.Time{Time: time.Now().Add(-48 * time.Hour)}
	before := scan.DeepCopy()
	scan.Labels = map[string]string{"changed": "since"}
	p.must(p.client.Patch(t.Context(), scan, client.MergeFrom(before)))
	r := &ImageScanReconciler{Client: p.client, Store: p.store, Clock: clock.RealClock{}}
	wait, err := r.retire(t.Context(), &imageScanScope{scan: old, scanner: scanner, key: keyOfImage(web)})
	p.must(err)
	p.Expect(wait).To(BeNumerically(">", 0), "it is looked at again")
	p.must(p.client.Get(t.Context(), client.ObjectKeyFromObject(scan), scan))
}

// TestDeletedScanner: the ImageScans of a deleted Scanner are deleted, and the store has no use for its images any more.
func TestDeletedScanner(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	image := p.unique("web")
	p.create(scanner, aPod(p.namespace, "a", running("main", image)))
	p.waitForPhases(scanner, phasesOf{image: v1alpha1.PhaseScanned})
	p.Expect(p.inUse(image)()).To(BeTrue())
	p.delete(scanner)
	p.Eventually(func() int { return len(p.scans(scanner)) }, eventuallyTimeout).Should(BeZero())
	p.Eventually(p.inUse(image), eventuallyTimeout).Should(BeFalse())
	p.Consistently(p.inUse(image), consistentlyDuration).Should(BeFalse(), "nobody brings it back")
}

// TestRecreatedScanner: another Scanner of the same name starts from the beginning and takes over no ImageScan.
func TestRecreatedScanner(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	p.create(scanner, aPod(p.namespace, "a", running("main", web)))
	p.waitForPhases(scanner, phasesOf{web: v1alpha1.PhaseScanned})
	p.delete(scanner)
	again := aScanner(p.namespace, "all")
	p.create(again)
	p.waitForPhases(again, phasesOf{web: v1alpha1.PhaseScanned})
	p.Eventually(func() int { return len(p.scans(scanner)) }, eventuallyTimeout).Should(BeZero())
}

// TestSuspendedScanner: a suspended Scanner starts nothing new, and its ImageScans stay until it is resumed.
func TestSuspendedScanner(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	p.create(scanner, aPod(p.namespace, "a", running("main", web)))
	p.waitForPhases(scanner, phasesOf{web: v1alpha1.PhaseScanned})
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) })
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		g.Expect(ready).NotTo(BeNil(), "no status yet")
		g.Expect(ready.Reason).To(Equal(v1alpha1.ReasonSuspended))
		g.Expect(status.ObservedGeneration).To(Equal(scanner.Generation))
	})
	p.create(aPod(p.namespace, "b", running("main", vulnerable)))
	p.Consistently(p.phases(scanner), consistentlyDuration).Should(Equal(phasesOf{web: v1alpha1.PhaseScanned}))
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(false) })
	p.waitForPhases(scanner, phasesOf{web: v1alpha1.PhaseScanned, vulnerable: v1alpha1.PhaseScanned})
}

// TestNewDataInTheCluster: newer data causes new reports for all images, and no write to etcd if the findings are the same.
func TestNewDataInTheCluster(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	image := p.unique("vulnerable")
	p.create(scanner, aPod(p.namespace, "a", running("main", image)))
	p.waitForPhases(scanner, phasesOf{image: v1alpha1.PhaseScanned})
	p.Eventually(func() int32 { return p.scan(scanner, image).Status.WorkloadCount }, eventuallyTimeout).Should(BeEquivalentTo(1))
	before := p.scan(scanner, image)
	p.engine.Publish() // another build without new findings
	version, err := p.engine.DataVersion(t.Context())
	p.must(err)
	matchedWith := func() string {
		p.wakeups.Image(t.Context(), keyOfImage(image).Digest)
		summary, err := p.store.Summary(t.Context(), store.Subject{PlatformDigest: keyOfImage(image).Digest, Engine: fake.Engine}, store.ImageExceptions{})
		p.must(err)
		return summary.DataVersion
	}
	p.Eventually(matchedWith, eventuallyTimeout, "200ms").Should(Satisfy(func(used string) bool { return used >= version.Version }), "other tests may publish newer data")
	p.Consistently(func() string {
		p.wakeups.Image(t.Context(), keyOfImage(image).Digest)
		return p.scan(scanner, image).ResourceVersion
	}, consistentlyDuration, "200ms").Should(Equal(before.ResourceVersion))
}

// TestChangedEngine: a Scanner whose engine this operator does not have is stalled, and continues when its engine is changed.
func TestChangedEngine(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all", withClair("https://clair.example.com"))
	p.create(scanner, aPod(p.namespace, "a", running("main", web)))
	p.waitForPhases(scanner, phasesOf{web: v1alpha1.PhaseFailed})
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled)).To(BeTrue())
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		g.Expect(ready).NotTo(BeNil(), "no status yet")
		g.Expect(ready.Message).To(ContainSubstring("spec.backend.type"))
	})
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.Backend = v1alpha1.Backend{Type: v1alpha1.BackendGrype} })
	p.waitForPhases(scanner, phasesOf{web: v1alpha1.PhaseScanned})
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionStalled)).To(BeNil())
	})
}
