package controllers

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// twoScanners are two Scanners of one namespace that select the same two pods, with work in progress for both: one image has a result
// without findings, one has findings, one has failed, and one is being cataloged.
type twoScanners struct {
	*testEnv
	changed, other *v1alpha1.Scanner
	front, back    *corev1.Pod
	// front runs clean and busy; back runs vulnerable and broken.
	clean, busy, vulnerable, broken string
	// scansOfOther has the UIDs of the other Scanner's ImageScans.
	scansOfOther []types.UID
}

// initialCounts are the counts of both Scanners before any change.
var initialCounts = v1alpha1.ImageCounts{Total: 4, Scanned: 2, Pending: 1, Failed: 1}

func newTwoScanners(t *testing.T) *twoScanners {
	t.Helper()
	p := newTestEnv(t)
	s := &twoScanners{
		testEnv: p, changed: aScanner(p.namespace, "changed"), other: aScanner(p.namespace, "other"),
		clean: p.unique("clean"), busy: p.unique("slow"), vulnerable: p.unique("vulnerable"), broken: p.unique("failing"),
	}
	s.front = aPod(p.namespace, "front", running("clean", s.clean), running("busy", s.busy), labelled("tier", "front"))
	s.back = aPod(p.namespace, "back", running("vulnerable", s.vulnerable), running("broken", s.broken), labelled("tier", "back"), labelled("skip", "true"))
	p.create(s.changed, s.other, s.front, s.back)
	s.waitForCounts(s.changed, initialCounts)
	s.waitForCounts(s.other, initialCounts)
	s.waitForAnnotations("changed", true, true)
	s.waitForAnnotations("other", true, true)
	s.scansOfOther = s.uids(s.other)
	return s
}

// waitForCounts waits until a Scanner's status is of its current generation and has these counts.
func (s *twoScanners) waitForCounts(scanner *v1alpha1.Scanner, want v1alpha1.ImageCounts) {
	s.t.Helper()
	generation := refresh(s.testEnv, scanner.DeepCopy()).Generation
	s.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.ObservedGeneration).To(Equal(generation))
		g.Expect(status.Images).To(Equal(want), "the images of Scanner %s", scanner.Name)
		g.Expect(status.Images.Total).To(Equal(status.Images.Scanned+status.Images.Pending+status.Images.Failed+status.Images.Excluded), "each image is exactly one of them")
	})
}

// waitForAnnotations waits until front and back have, or do not have, a Scanner's annotation.
func (s *twoScanners) waitForAnnotations(scanner string, front, back bool) {
	s.t.Helper()
	for pod, want := range map[*corev1.Pod]bool{s.front: front, s.back: back} {
		s.Eventually(func() bool {
			_, found := s.annotations(pod)()[scanner+podmark.AnnotationSuffix]
			return found
		}, eventuallyTimeout).Should(Equal(want), "the annotation of Scanner %s on pod %s", scanner, pod.Name)
	}
}

func (s *twoScanners) uids(scanner *v1alpha1.Scanner) (uids []types.UID) {
	for _, scan := range s.scans(scanner) {
		uids = append(uids, scan.UID)
	}
	slices.Sort(uids)
	return uids
}

// unusedImages returns the images of a Scanner's ImageScans that have an UnusedSinceTime, sorted.
func (s *twoScanners) unusedImages(scanner *v1alpha1.Scanner) func() []string {
	return func() (unused []string) {
		for _, scan := range s.scans(scanner) {
			if scan.Status.UnusedSinceTime != nil {
				unused = append(unused, scan.Spec.References[0])
			}
		}
		slices.Sort(unused)
		return unused
	}
}

// expectNoDuplicates asserts that no image has two ImageScans of a Scanner.
func (s *twoScanners) expectNoDuplicates(scanner *v1alpha1.Scanner) {
	s.t.Helper()
	seen := map[string]bool{}
	for _, scan := range s.scans(scanner) {
		key := scan.Spec.Digest + scan.Spec.Platform
		s.Expect(seen[key]).To(BeFalse(), "two ImageScans of Scanner %s for %s", scanner.Name, scan.Spec.References[0])
		seen[key] = true
	}
}

// expectOtherUnchanged asserts that the results of the other Scanner did not change.
func (s *twoScanners) expectOtherUnchanged() {
	s.t.Helper()
	s.waitForCounts(s.other, initialCounts)
	s.waitForAnnotations("other", true, true)
	s.Expect(s.uids(s.other)).To(Equal(s.scansOfOther), "the other Scanner's ImageScans are those that it had")
	s.Expect(s.unusedImages(s.other)()).To(BeEmpty())
	s.waitForStatus(s.other, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Findings).To(Equal(v1alpha1.FindingCounts{Critical: 1, High: 1, Fixable: 1}))
	})
}

// TestScannerChangedDuringScans: after each kind of change, a Scanner covers the pods and images of its new spec. After the change is
// reverted, it covers what it did at first. Another Scanner that selects the same pods is not affected.
func TestScannerChangedDuringScans(t *testing.T) {
	type spec = v1alpha1.ScannerSpec
	for name, tt := range map[string]struct {
		change func(*twoScanners, *spec)
		want   v1alpha1.ImageCounts
		// front and back are true if the pod is annotated after the change; unused are the images that are then kept without being counted.
		front, back bool
		unused      func(*twoScanners) []string
	}{
		"podSelector": {
			func(_ *twoScanners, s *spec) {
				s.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}}
			},
			v1alpha1.ImageCounts{Total: 2, Scanned: 1, Pending: 1}, true, false,
			func(s *twoScanners) []string { return []string{s.broken, s.vulnerable} },
		},
		"podSelector that selects nothing": {
			func(_ *twoScanners, s *spec) {
				s.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "none"}}
			},
			v1alpha1.ImageCounts{}, false, false,
			func(s *twoScanners) []string { return []string{s.clean, s.broken, s.busy, s.vulnerable} },
		},
		"ignoreLabel": {
			func(_ *twoScanners, s *spec) { s.IgnoreLabel = "skip" },
			v1alpha1.ImageCounts{Total: 2, Scanned: 1, Pending: 1}, true, false,
			func(s *twoScanners) []string { return []string{s.broken, s.vulnerable} },
		},
		"images.exclude": {
			func(_ *twoScanners, s *spec) { s.Images.Exclude = []string{"*/vulnerable", "*/failing"} },
			v1alpha1.ImageCounts{Total: 4, Scanned: 1, Pending: 1, Excluded: 2}, true, false,
			func(s *twoScanners) []string { return []string{s.broken, s.vulnerable} },
		},
		"images.exclude of what is being cataloged": {
			func(_ *twoScanners, s *spec) { s.Images.Exclude = []string{"*/slow"} },
			v1alpha1.ImageCounts{Total: 4, Scanned: 2, Failed: 1, Excluded: 1}, true, true,
			func(s *twoScanners) []string { return []string{s.busy} },
		},
		"backend.type": {
			func(_ *twoScanners, s *spec) { // the operator under test runs without Clair
				s.Backend = v1alpha1.Backend{Type: v1alpha1.BackendClair, Clair: &v1alpha1.ClairBackend{URL: "https://clair.example.com"}}
			},
			v1alpha1.ImageCounts{Total: 4, Failed: 4}, false, false, nil,
		},
		"suspend": {
			func(_ *twoScanners, s *spec) { s.Suspend = ptr.To(true) }, initialCounts, true, true, nil,
		},
		"suspend and podSelector": {
			func(_ *twoScanners, s *spec) {
				s.Suspend, s.PodSelector = ptr.To(true), &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "back"}}
			},
			v1alpha1.ImageCounts{Total: 2, Scanned: 1, Failed: 1}, false, true,
			func(s *twoScanners) []string { return []string{s.clean, s.busy} },
		},
		"addPodAnnotation": {
			func(_ *twoScanners, s *spec) { s.AddPodAnnotation = ptr.To(false) }, initialCounts, false, false, nil,
		},
		"unusedImageRetention": {
			func(_ *twoScanners, s *spec) { s.UnusedImageRetention = &metav1.Duration{} }, initialCounts, true, true, nil,
		},
		"notifications": {
			func(_ *twoScanners, s *spec) { s.Notifications = []v1alpha1.Receiver{receiverNamed("team")} }, initialCounts, true, true, nil,
		},
		"addPodFinalizer": {
			func(_ *twoScanners, s *spec) { s.AddPodFinalizer = ptr.To(true) }, initialCounts, true, true, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTwoScanners(t)
			before, scansBefore := refresh(s.testEnv, s.changed).Spec.DeepCopy(), s.uids(s.changed)
			s.patchScanner(s.changed, func(scanner *v1alpha1.Scanner) { tt.change(s, &scanner.Spec) })
			s.waitForCounts(s.changed, tt.want)
			s.waitForAnnotations("changed", tt.front, tt.back)
			var unused []string
			if tt.unused != nil {
				unused = tt.unused(s)
				slices.Sort(unused)
			}
			s.Eventually(s.unusedImages(s.changed), eventuallyTimeout).Should(Equal(unused), "kept for a while, though not counted")
			s.expectOtherUnchanged()

			s.patchScanner(refresh(s.testEnv, s.changed), func(scanner *v1alpha1.Scanner) { scanner.Spec = *before })
			s.waitForCounts(s.changed, initialCounts)
			s.waitForAnnotations("changed", true, true)
			s.Eventually(s.unusedImages(s.changed), eventuallyTimeout).Should(BeEmpty())
			s.Expect(s.uids(s.changed)).To(Equal(scansBefore), "no ImageScan was made anew or twice")
			s.expectNoDuplicates(s.changed)
			s.expectOtherUnchanged()
		})
	}
}

// TestDeselectedWithoutRetention: with a retention of 0, the ImageScans of deselected images are deleted at once, and only those.
func TestDeselectedWithoutRetention(t *testing.T) {
	s := newTwoScanners(t)
	kept := []types.UID{s.scan(s.changed, s.clean).UID, s.scan(s.changed, s.busy).UID}
	slices.Sort(kept)
	s.patchScanner(s.changed, func(scanner *v1alpha1.Scanner) {
		selecting("tier", "front")(scanner)
		scanner.Spec.UnusedImageRetention = &metav1.Duration{}
	})
	s.waitForCounts(s.changed, v1alpha1.ImageCounts{Total: 2, Scanned: 1, Pending: 1})
	s.Eventually(func() []types.UID { return s.uids(s.changed) }, eventuallyTimeout).Should(Equal(kept))
	s.expectOtherUnchanged()
	s.Expect(s.inUse(s.vulnerable)()).To(BeTrue(), "the other Scanner has it")
}

// TestOneOfTwoScannersDeleted: everything of the deleted Scanner is removed, and nothing of the other.
func TestOneOfTwoScannersDeleted(t *testing.T) {
	s := newTwoScanners(t)
	s.delete(s.changed)
	s.Eventually(func() int { return len(s.scans(s.changed)) }, eventuallyTimeout).Should(BeZero())
	s.waitForAnnotations("changed", false, false)
	s.expectOtherUnchanged()
	known, err := s.store.Scanners(t.Context())
	s.must(err)
	s.Expect(known).To(And(ContainElement(string(s.other.UID)), Not(ContainElement(string(s.changed.UID)))))
}

// TestRenamedScanner: a Scanner under another name is another Scanner and creates its own ImageScans, one per image.
func TestRenamedScanner(t *testing.T) {
	s := newTwoScanners(t)
	renamed := aScanner(s.namespace, "renamed")
	s.create(renamed)
	s.delete(s.changed)
	s.waitForCounts(renamed, initialCounts)
	s.waitForAnnotations("renamed", true, true)
	s.waitForAnnotations("changed", false, false)
	s.Eventually(func() int { return len(s.scans(s.changed)) }, eventuallyTimeout).Should(BeZero())
	s.Expect(s.scans(renamed)).To(HaveLen(4))
	s.expectNoDuplicates(renamed)
	s.expectOtherUnchanged()
}

// TestScannerChangedRepeatedly: after several changes, each made before the last one was reconciled, the final spec takes effect.
func TestScannerChangedRepeatedly(t *testing.T) {
	s := newTwoScanners(t)
	for range 5 {
		for _, change := range []func(*v1alpha1.Scanner){
			selecting("tier", "none"), excluding("*"), func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) },
			func(s *v1alpha1.Scanner) {
				s.Spec.PodSelector, s.Spec.Images.Exclude, s.Spec.Suspend = nil, nil, ptr.To(false)
			},
		} {
			s.patchScanner(s.changed, change)
		}
	}
	s.waitForCounts(s.changed, initialCounts)
	s.waitForAnnotations("changed", true, true)
	s.Eventually(s.unusedImages(s.changed), eventuallyTimeout).Should(BeEmpty())
	s.expectNoDuplicates(s.changed)
	s.Eventually(func() string {
		if ready := meta.FindStatusCondition(refresh(s.testEnv, s.changed).Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			return ready.Reason
		}
		return "no status yet"
	}, eventuallyTimeout).Should(Equal(v1alpha1.ReasonScanning))
	s.expectOtherUnchanged()
}
