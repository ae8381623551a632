package controllers

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// phasesOf maps references to phases.
type phasesOf = map[string]v1alpha1.ImageScanPhase

const (
	failing = "registry.example.com/shop/failing:1"
	slow    = "registry.example.com/shop/slow:1"
)

// TestPodsBecomeImageScans: each image of all kinds of containers gets one ImageScan.
func TestPodsBecomeImageScans(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	p.create(scanner,
		aPod(p.namespace, "one", initialised("migrate", "migrate:1"), running("main", web), running("sidecar", "envoy:1"), debugged("debug", "busybox:1")),
		aPod(p.namespace, "two", running("main", web), creating("later", "later:1")),
	)
	p.waitForPhases(scanner, phasesOf{
		"docker.io/library/migrate:1": v1alpha1.PhaseScanned, web: v1alpha1.PhaseScanned,
		"docker.io/library/envoy:1": v1alpha1.PhaseScanned, "docker.io/library/busybox:1": v1alpha1.PhaseScanned,
	})
	scan := p.scan(scanner, web)
	want := v1alpha1.ImageScanSpec{
		Digest: keyOfImage(web).Digest, DigestType: v1alpha1.DigestManifest, Platform: "linux/amd64", ScannerRef: v1alpha1.ScannerReference{Kind: v1alpha1.KindScanner, Name: "all"}, References: []string{web},
	}
	p.Expect(scan.Spec).To(Equal(want))
	p.Expect(scan.Name).To(MatchRegexp(`^web-[0-9a-f]{16}$`))
	p.Expect(metav1.IsControlledBy(scan, scanner)).To(BeTrue(), "the Scanner owns it, so that it goes with the Scanner")
	p.Eventually(func() []string { return p.scan(scanner, web).Status.Workloads }, eventuallyTimeout).Should(Equal([]string{"Pod/one", "Pod/two"}))
}

// TestPlatforms: the same digest on two platforms is two images. A pod on an unknown node waits.
func TestPlatforms(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	p.create(scanner, aPod(p.namespace, "a", running("main", web)), aPod(p.namespace, "b", running("main", web), onNode(nodeARM)))
	late := "node-of-" + p.namespace
	p.create(aPod(p.namespace, "c", running("main", "late:1"), onNode(late)))
	platforms := func() (all []string) {
		for _, scan := range p.scans(scanner) {
			all = append(all, scan.Spec.Platform)
		}
		slices.Sort(all)
		return all
	}
	p.Eventually(platforms, eventuallyTimeout).Should(Equal([]string{"linux/amd64", "linux/arm64"}))
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{Total: 3, Scanned: 2, Pending: 1}))
	})
	p.must(p.createNode(node(late, "s390x")))
	p.Eventually(platforms, eventuallyTimeout).Should(Equal([]string{"linux/amd64", "linux/arm64", "linux/s390x"}))
}

// TestIndependentScanners: Scanners of one namespace have their own pods, results and annotations.
func TestIndependentScanners(t *testing.T) {
	p := newTestEnv(t)
	front, back := aScanner(p.namespace, "front", selecting("tier", "front")), aScanner(p.namespace, "back", selecting("tier", "back"))
	everything := aScanner(p.namespace, "everything")
	a := aPod(p.namespace, "a", running("main", web), labelled("tier", "front"))
	b := aPod(p.namespace, "b", running("main", vulnerable), labelled("tier", "back"))
	p.create(front, back, everything, a, b)
	p.waitForPhases(front, phasesOf{web: v1alpha1.PhaseScanned})
	p.waitForPhases(back, phasesOf{vulnerable: v1alpha1.PhaseScanned})
	p.waitForPhases(everything, phasesOf{web: v1alpha1.PhaseScanned, vulnerable: v1alpha1.PhaseScanned})
	keys := func(pod *corev1.Pod) func() []string {
		return func() []string { return slices.Sorted(maps.Keys(p.annotations(pod)())) }
	}
	p.Eventually(keys(a), eventuallyTimeout).Should(Equal([]string{"everything" + podmark.AnnotationSuffix, "front" + podmark.AnnotationSuffix}))
	p.Eventually(keys(b), eventuallyTimeout).Should(Equal([]string{"back" + podmark.AnnotationSuffix, "everything" + podmark.AnnotationSuffix}))
	p.delete(front)
	p.Eventually(func() int { return len(p.scans(front)) }, eventuallyTimeout).Should(BeZero(), "ImageScans of a Scanner that has gone delete themselves")
	p.Eventually(keys(a), eventuallyTimeout).Should(Equal([]string{"everything" + podmark.AnnotationSuffix}))
	p.Expect(p.phases(back)()).To(Equal(phasesOf{vulnerable: v1alpha1.PhaseScanned}), "the other Scanner goes on")
}

// TestTwoNamespaces: an image that runs in two namespaces has an ImageScan in each, and is cataloged once.
func TestTwoNamespaces(t *testing.T) {
	operator := theOperator(t)
	shared := "registry.example.com/shared/vulnerable:" + t.Name()
	here, there := newTestEnv(t), &testEnv{operatorUnderTest: operator, Gomega: NewWithT(t), t: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	here.create(namespace)
	there.namespace = namespace.Name
	t.Cleanup(there.empty)
	for _, p := range []*testEnv{here, there} {
		scanner := aScanner(p.namespace, "all")
		p.create(scanner, aPod(p.namespace, "a", running("main", shared)))
		p.waitForPhases(scanner, phasesOf{shared: v1alpha1.PhaseScanned})
		p.Expect(p.scan(scanner, shared).Status.Findings.Critical).To(BeEquivalentTo(1))
	}
	cataloged, err := operator.store.Catalog(t.Context(), "fake", keyOfImage(shared), store.Cluster)
	here.must(err)
	first := cataloged.CatalogedAt
	here.Expect(there.scans(aScannerOf(there))[0].CreationTimestamp.Time).To(BeTemporally(">=", first.Truncate(1e9)),
		"it was cataloged for the first namespace, before the second one had an ImageScan")
}

// aScannerOf reads the Scanner "all" of a place.
func aScannerOf(p *testEnv) *v1alpha1.Scanner { return refresh(p, aScanner(p.namespace, "all")) }

// TestAnnotations: a pod's annotation has the images with a result, as JSON. Other annotations stay.
func TestAnnotations(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	pod := aPod(p.namespace, "a", running("main", web), running("broken", failing), running("waiting", slow))
	pod.Annotations = map[string]string{"example.com/mine": "stays"}
	p.create(scanner, pod)
	hashes := func(want map[string]string) map[string]string {
		text, err := json.Marshal(want)
		p.must(err)
		return map[string]string{"example.com/mine": "stays", "all" + podmark.AnnotationSuffix: string(text)}
	}
	main := map[string]string{"main": keyOfImage(web).Digest}
	p.Eventually(p.annotations(pod), eventuallyTimeout).Should(Equal(hashes(main)), "neither what failed nor what is being cataloged was handled")

	refresh(p, pod)
	status := pod.Status
	const updated = "registry.example.com/shop/web:2"
	status.ContainerStatuses[0].ImageID = imageID(updated)
	p.setPodStatus(pod, status)
	main["main"] = keyOfImage(updated).Digest
	p.Eventually(p.annotations(pod), eventuallyTimeout).Should(Equal(hashes(main)), "the annotation follows what the pod runs")

	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.AddPodAnnotation = ptr.To(false) })
	p.Eventually(p.annotations(pod), eventuallyTimeout).Should(Equal(map[string]string{"example.com/mine": "stays"}), "switched off")
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.AddPodAnnotation = ptr.To(true) })
	p.Eventually(p.annotations(pod), eventuallyTimeout).Should(Equal(hashes(main)), "switched on again")
	p.patchScanner(scanner, selecting("tier", "other"))
	p.Eventually(p.annotations(pod), eventuallyTimeout).Should(Equal(map[string]string{"example.com/mine": "stays"}), "no longer selected")
}

// TestAnnotationsGoWithTheScanner: the annotation of a deleted Scanner is removed, and no other.
func TestAnnotationsGoWithTheScanner(t *testing.T) {
	p := newTestEnv(t)
	one, two := aScanner(p.namespace, "one"), aScanner(p.namespace, "two")
	pod := aPod(p.namespace, "a", running("main", web))
	p.create(one, two, pod)
	p.Eventually(p.annotations(pod), eventuallyTimeout).Should(HaveLen(2))
	p.delete(one)
	p.Eventually(p.annotations(pod), eventuallyTimeout).Should(And(HaveLen(1), HaveKey("two"+podmark.AnnotationSuffix)))
}

// TestSelection: which pods a Scanner covers, while labels and the Scanner change.
func TestSelection(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	p.create(scanner,
		aPod(p.namespace, "plain", running("main", web)),
		aPod(p.namespace, "ignored", running("main", "ignored:1"), labelled("scanner-operator.io/ignore", "true")),
		aPod(p.namespace, "not-ignored", running("main", "not-ignored:1"), labelled("scanner-operator.io/ignore", "false")),
		aPod(p.namespace, "ended", running("main", "ended:1"), inPhase(corev1.PodSucceeded)),
		aPod(p.namespace, "failed", running("main", "failed:1"), inPhase(corev1.PodFailed)),
	)
	phases := phasesOf{
		web: v1alpha1.PhaseScanned, "docker.io/library/not-ignored:1": v1alpha1.PhaseScanned,
		"docker.io/library/ended:1": v1alpha1.PhaseScanned, "docker.io/library/failed:1": v1alpha1.PhaseScanned, // recently
	}
	p.waitForPhases(scanner, phases)
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{Total: 2, Scanned: 2, RecentlyUsed: 2}))
	})
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.IgnoreLabel = "example.com/skip" })
	phases["docker.io/library/ignored:1"] = v1alpha1.PhaseScanned
	p.waitForPhases(scanner, phases)
	p.patchScanner(scanner, selecting("tier", "none"))
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{}), "no pod is selected any more")
		g.Expect(status.Findings).To(Equal(v1alpha1.FindingCounts{}), "what nobody runs is not counted")
	})
	p.Eventually(func() *metav1.Time { return p.scan(scanner, web).Status.UnusedSinceTime }, eventuallyTimeout).ShouldNot(BeNil())
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.PodSelector = nil })
	p.Eventually(func() *metav1.Time { return p.scan(scanner, web).Status.UnusedSinceTime }, eventuallyTimeout).Should(BeNil())
}

// TestExclusion: excluded images have no ImageScan and are counted. They are scanned when the glob is removed.
func TestExclusion(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all", excluding("registry.example.com/shop/*"))
	p.create(scanner, aPod(p.namespace, "a", running("main", web), running("other", "other:1")))
	p.waitForPhases(scanner, phasesOf{"docker.io/library/other:1": v1alpha1.PhaseScanned})
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{Total: 2, Scanned: 1, Excluded: 1}))
	})
	p.patchScanner(scanner, excluding("*:dev-*"))
	p.waitForPhases(scanner, phasesOf{"docker.io/library/other:1": v1alpha1.PhaseScanned, web: v1alpha1.PhaseScanned})
	p.patchScanner(scanner, excluding("*/web"))
	p.Eventually(func() *metav1.Time { return p.scan(scanner, web).Status.UnusedSinceTime }, eventuallyTimeout).ShouldNot(BeNil(), "it is kept for a while, and not counted")
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{Total: 2, Scanned: 1, Excluded: 1}))
	})
}

// TestOwnJobs: a pod of a Job that the operator recorded is not scanned, whatever its labels. A Job that only looks like one is scanned.
func TestOwnJobs(t *testing.T) {
	p := newTestEnv(t)
	p.must(p.store.SaveJob(t.Context(), store.Job{
		Namespace: p.namespace, Name: "scan-catalog-x", UID: "own-" + p.namespace, Purpose: store.JobCatalog, Key: keyOfImage(web),
	}))
	p.must(p.store.SaveJob(t.Context(), store.Job{Namespace: p.namespace, Name: "scan-catalog-y", Purpose: store.JobCatalog, Key: keyOfImage(web)}))
	p.must(p.store.SaveJob(t.Context(), store.Job{Namespace: p.namespace, Name: "scan-catalog-z", UID: "ended-" + p.namespace, Purpose: store.JobCatalog, Key: keyOfImage(web)}))
	p.must(p.store.EndJob(t.Context(), p.namespace, "scan-catalog-z", time.Now(), true))
	t.Cleanup(func() {
		_ = p.store.DeleteJob(t.Context(), p.namespace, "scan-catalog-x")
		_ = p.store.DeleteJob(t.Context(), p.namespace, "scan-catalog-y")
		_ = p.store.DeleteJob(t.Context(), p.namespace, "scan-catalog-z")
	})
	scanner := aScanner(p.namespace, "all")
	lookalike := labelled("app.kubernetes.io/managed-by", "scanner-operator")
	p.create(scanner,
		aPod(p.namespace, "own", running("worker", "worker:1"), ownedBy("batch/v1", "Job", "scan-catalog-x", "own-"+p.namespace)),
		aPod(p.namespace, "intent", running("worker", "worker:2"), ownedBy("batch/v1", "Job", "scan-catalog-y", "not-known-yet")),
		aPod(p.namespace, "ended", running("worker", "worker:5"), ownedBy("batch/v1", "Job", "scan-catalog-z", "ended-"+p.namespace)),
		aPod(p.namespace, "lookalike", running("worker", "worker:3"), lookalike, ownedBy("batch/v1", "Job", "scan-catalog-x", "another-uid")),
		aPod(p.namespace, "cron", running("worker", "worker:4"), ownedBy("batch/v1", "Job", "nightly-29000000", "yet-another")),
	)
	p.waitForPhases(scanner, phasesOf{"docker.io/library/worker:3": v1alpha1.PhaseScanned, "docker.io/library/worker:4": v1alpha1.PhaseScanned})
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{Total: 2, Scanned: 2}), "own Jobs are not counted either")
	})
	p.Consistently(p.phases(scanner), consistentlyDuration).Should(HaveLen(2))
	p.Expect(p.scan(scanner, "worker:4").Status.Workloads).To(Equal([]string{"CronJob/nightly"}))
}

// TestReferences: references of an image are recorded in full, up to the bound.
func TestReferences(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	p.create(scanner)
	for _, tag := range []string{"a", "b", "c", "d"} {
		pod := aPod(p.namespace, tag, running("main", "registry.example.com/app:"+tag))
		pod.Status.ContainerStatuses[0].ImageID = imageID(web)
		p.create(pod)
	}
	p.Eventually(func() []string {
		if scan := p.scan(scanner, web); scan != nil {
			return scan.Spec.References
		}
		return nil
	}, eventuallyTimeout).Should(And(HaveLen(v1alpha1.MaxReferences), HaveEach(HavePrefix("registry.example.com/app:"))))
}

// TestLongReferences: an image whose name exceeds the API's bound is scanned like any other.
func TestLongReferences(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	repository := "registry.example.com/" + repeatToLength("a/", 241) + "b"
	tag := repeatToLength("t", 128)
	host := repeatToLength("h", 60) + "." + repeatToLength("i", 60) + "." + repeatToLength("j", 60) + ".example.com:5000/"
	p.create(scanner,
		aPod(p.namespace, "tag", running("main", repository+":"+tag)),
		aPod(p.namespace, "host", running("main", host+repeatToLength("a/", 201)+"vulnerable:"+tag)),
		aPod(p.namespace, "short", running("main", web)),
	)
	p.Eventually(func() int { return len(p.scans(scanner)) }, eventuallyTimeout).Should(Equal(3))
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{Total: 3, Scanned: 3}))
	})
}

// TestLaterScanner: a later Scanner gets its own ImageScans, whatever other Scanners have.
func TestLaterScanner(t *testing.T) {
	first := theScanner()
	later := theScanner(func(s *v1alpha1.Scanner) { s.Name, s.UID = "later", "later-uid" })
	pod := aPod(fixtureNamespace, "a", running("main", web))
	u := newUnit(t, first, later, pod, scanOf(first, web, scanned))
	_, err := u.pods.Reconcile(t.Context(), requestFor(pod))
	u.must(err)
	if own := u.read(scanOf(later, web)); own == nil || own.Spec.ScannerRef.Name != "later" {
		t.Errorf("the later Scanner's ImageScan is %+v", own)
	}
	u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	want := map[string]string{"all" + podmark.AnnotationSuffix: encodeHashes(map[string]string{"main": keyOfImage(web).Digest})}
	if diff := cmp.Diff(want, pod.Annotations); diff != "" {
		t.Errorf("only the first has a result: annotations (-want +got):\n%s", diff)
	}
}

// TestPodReplaced: the annotation of one pod is not written to another pod of the same name.
func TestPodReplaced(t *testing.T) {
	p := newTestEnv(t)
	r := &PodReconciler{Client: p.client}
	pod := aPod(p.namespace, "a", running("main", web))
	p.create(pod)
	former := pod.DeepCopy()
	former.UID = types.UID("00000000-0000-0000-0000-000000000000")
	p.must(r.annotate(t.Context(), former, map[string]string{"x" + podmark.AnnotationSuffix: "{}"}))
	p.Expect(p.annotations(pod)()).To(BeEmpty())
}
