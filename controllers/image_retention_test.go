package controllers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestPodThatHasEndedIsScanned: the image of a pod that ended before the operator saw it run is scanned if the pod ended within the
// Scanner's retention.
func TestPodThatHasEndedIsScanned(t *testing.T) {
	finished := func(ago time.Duration) func(*corev1.Pod) { return finishedAt(noon.Add(-ago)) }
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		scanner *v1alpha1.Scanner
		want    int
	}{
		"running":           {aPod(fixtureNamespace, "a", running("c", web)), theScanner(), 1},
		"succeeded":         {aPod(fixtureNamespace, "a", running("c", web), inPhase(corev1.PodSucceeded), finished(time.Hour)), theScanner(), 1},
		"failed":            {aPod(fixtureNamespace, "a", running("c", web), inPhase(corev1.PodFailed), finished(23*time.Hour)), theScanner(), 1},
		"long ago":          {aPod(fixtureNamespace, "a", running("c", web), inPhase(corev1.PodSucceeded), finished(24*time.Hour)), theScanner(), 0},
		"nobody knows when": {aPod(fixtureNamespace, "a", running("c", web), inPhase(corev1.PodFailed)), theScanner(), 1},
		"not ready for long": {
			aPod(fixtureNamespace, "a", running("c", web), inPhase(corev1.PodFailed), func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, LastTransitionTime: metav1.NewTime(noon.Add(-25 * time.Hour))}}
			}), theScanner(), 0,
		},
		"nothing is kept": {
			aPod(fixtureNamespace, "a", running("c", web), inPhase(corev1.PodSucceeded), finished(time.Second)),
			theScanner(func(s *v1alpha1.Scanner) { s.Spec.UnusedImageRetention = &metav1.Duration{} }), 0,
		},
		"its node is gone": {aPod(fixtureNamespace, "a", running("c", web), inPhase(corev1.PodSucceeded), finished(time.Second), onNode("gone")), theScanner(), 0},
		"ignored": {
			aPod(fixtureNamespace, "a", running("c", web), inPhase(corev1.PodSucceeded), finished(time.Second), labelled("scanner-operator.io/ignore", "true")), theScanner(), 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, tt.scanner, tt.pod)
			result, err := u.pods.Reconcile(t.Context(), requestFor(tt.pod))
			u.must(err)
			if result.RequeueAfter != 0 {
				t.Errorf("it is looked at again in %s, want never without an event", result.RequeueAfter)
			}
			var scans v1alpha1.ImageScanList
			u.must(u.client.List(t.Context(), &scans))
			if len(scans.Items) != tt.want {
				t.Errorf("%d ImageScans, want %d", len(scans.Items), tt.want)
			}
			var pod corev1.Pod
			u.must(u.client.Get(t.Context(), requestFor(tt.pod).NamespacedName, &pod))
			if len(pod.Finalizers)+len(pod.Annotations) > 0 {
				t.Errorf("the pod has finalizers %v and annotations %v, want none", pod.Finalizers, pod.Annotations)
			}
		})
	}
}

// TestImageOfEndedPods: an image is scanned after its pods ended, kept until the retention is over, and then deleted. It is not counted
// among the images that run.
func TestImageOfEndedPods(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	pod := aPod(fixtureNamespace, "job-1", running("main", web), inPhase(corev1.PodSucceeded), finishedAt(noon.Add(-time.Hour)), ofCronJob("job"), pulledWith("registry"))
	u := newUnit(t, scanner, scan, pod)
	u.engine.index = fixedResult(backend.Progress{Reason: v1alpha1.ReasonCataloging, RequeueAfter: time.Minute}, nil)
	after, _ := u.reconcile(scan)
	if after.Status.Phase != v1alpha1.PhaseCataloging || !after.Status.UnusedSinceTime.Time.Equal(noon.Add(-time.Hour)) {
		t.Errorf("phase %s, unused since %s; want it cataloged, and unused since its pod ended", after.Status.Phase, after.Status.UnusedSinceTime)
	}
	if diff := cmp.Diff([]string{"registry"}, u.engine.indexCalls[0].PullSecrets); diff != "" {
		t.Errorf("pull secrets (-want +got):\n%s", diff)
	}
	u.saveCatalog(web, fixtureNamespace)
	_, err := u.store.SaveReport(t.Context(), store.Report{
		Subject: subjectOf(web, fixtureNamespace), DataVersion: "v1", MatchedAt: noon, Findings: []finding.Finding{vulnerability("CVE-2026-0001", finding.Critical)},
	}, "")
	u.must(err)
	after, wait := u.reconcile(scan)
	if after.Status.Phase != v1alpha1.PhaseScanned || after.Status.WorkloadCount != 0 || wait != 23*time.Hour {
		t.Errorf("phase %s, %d workloads, next in %s; want it scanned, run by none, for 23h", after.Status.Phase, after.Status.WorkloadCount, wait)
	}
	registry := prometheus.NewRegistry()
	u.scanners.Metrics = NewMetrics(registry)
	status := u.reconcileScanner().Status
	if n := measured(t, registry)["images_recently_used"]; n != 1 {
		t.Errorf("%v images are measured as recently used, want 1", n)
	}
	if want := (v1alpha1.ImageCounts{RecentlyUsed: 1}); status.Images != want || status.Findings.Critical != 0 {
		t.Errorf("images %+v with %d critical findings, want one that was used recently and is counted nowhere else", status.Images, status.Findings.Critical)
	}
	// The pod is deleted, as old pods of a CronJob are, and with it the reference to its pull secrets.
	u.must(u.client.Delete(t.Context(), pod))
	if after, wait = u.reconcile(scan); after.Status.Phase != v1alpha1.PhaseScanned || wait != 23*time.Hour {
		t.Errorf("without its pod: phase %s, next in %s", after.Status.Phase, wait)
	}
	u.advanceClock(23 * time.Hour)
	if after, _ = u.reconcile(scan); after != nil {
		t.Error("a day after its pod ended the ImageScan is still there")
	}
	if got := u.reconcileScanner().Status.Images.RecentlyUsed; got != 0 {
		t.Errorf("a day after its pod ended %d images were used recently, want none", got)
	}
}

// TestEndedPodsAreGone: what happens to an image whose pods are deleted before it was scanned.
func TestEndedPodsAreGone(t *testing.T) {
	for name, tt := range map[string]struct {
		changes []func(*corev1.Pod)
		want    string
	}{
		"of a CronJob, without credentials": {[]func(*corev1.Pod){ofCronJob("job")}, v1alpha1.ReasonCataloging},
		"of a CronJob, with credentials":    {[]func(*corev1.Pod){ofCronJob("job"), pulledWith("registry")}, v1alpha1.ReasonUnused},
		"of a Deployment":                   {nil, v1alpha1.ReasonUnused},
	} {
		scanner := theScanner()
		scan, pod := scanOf(scanner, web), aPod(fixtureNamespace, "a", append(tt.changes, running("main", web))...)
		u := newUnit(t, scanner, scan, pod)
		u.engine.index = fixedResult(backend.Progress{Reason: v1alpha1.ReasonCataloging, RequeueAfter: time.Minute}, nil)
		u.reconcile(scan)
		u.must(u.client.Delete(t.Context(), pod))
		after, _ := u.reconcile(scan)
		if got := inventory.ReadyReason(after); got != tt.want {
			t.Errorf("%s: it is %s, want %s", name, got, tt.want)
		}
	}
}

// TestExcludedImageIsNotInUse: a newly excluded image is not in use any more. It would be, for the retention, if its pods had ended.
func TestExcludedImageIsNotInUse(t *testing.T) {
	for name, gone := range map[string]bool{"its pod runs": false, "its pod is gone": true} {
		for _, glob := range []string{"", "*web*"} {
			t.Run(name+" "+glob, func(t *testing.T) {
				scanner := theScanner()
				scan, pod := scanOf(scanner, web), aPod(fixtureNamespace, "job-1", running("main", web), ofCronJob("job"))
				u := newUnit(t, scanner, scan, pod)
				u.engine.index = fixedResult(backend.Progress{Reason: v1alpha1.ReasonCataloging, RequeueAfter: time.Minute}, nil)
				u.reconcile(scan)
				if gone {
					u.must(u.client.Delete(t.Context(), pod))
					u.reconcile(scan)
				}
				if glob != "" {
					u.must(u.client.Get(t.Context(), requestFor(scanner).NamespacedName, scanner))
					scanner.Spec.Images.Exclude = []string{glob}
					u.must(u.client.Update(t.Context(), scanner))
					u.reconcile(scan)
				}
				recent, err := u.store.RecentImages(t.Context(), string(scanner.UID), u.engine.Engine())
				u.must(err)
				if want := gone && glob == ""; (len(recent) > 0) != want {
					t.Errorf("in use are %v, want it there: %t", recent, want)
				}
			})
		}
	}
}

// TestPodThatIsLeftOutHasNotEnded: if a Scanner stops covering a CronJob's pod, the pod's image is not in use any more, although the pod
// was meant to end. The image of a pod that is being deleted stays in use.
func TestPodThatIsLeftOutHasNotEnded(t *testing.T) {
	mirrored := scanOf(theScanner(), web).Spec.References
	mirrored = append(mirrored, "mirror.example/other:1")
	for name, tt := range map[string]struct {
		pod     func(*corev1.Pod)
		scanner func(*v1alpha1.Scanner)
		want    bool
	}{
		"it gets the label to be ignored": {pod: labelled("scanner-operator.io/ignore", "true")},
		"it has ended and gets the label": {pod: func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
			labelled("scanner-operator.io/ignore", "true")(p)
		}},
		"the selector narrows":                 {scanner: func(s *v1alpha1.Scanner) { s.Spec.PodSelector = labelledWith("stage", "production") }},
		"one of the image's names is excluded": {scanner: func(s *v1alpha1.Scanner) { s.Spec.Images.Exclude = []string{"*web*"} }},
		"it is being deleted":                  {pod: func(p *corev1.Pod) { p.Finalizers = []string{"example.com/wait"} }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			scanner := theScanner()
			scan, pod := scanOf(scanner, web), aPod(fixtureNamespace, "job-1", running("main", web), ofCronJob("job"))
			scan.Spec.References = mirrored
			u := newUnit(t, scanner, scan, pod)
			u.engine.index = fixedResult(backend.Progress{Reason: v1alpha1.ReasonCataloging, RequeueAfter: time.Minute}, nil)
			u.reconcile(scan)
			if tt.pod != nil {
				tt.pod(pod)
				phase := pod.Status
				u.must(u.client.Update(t.Context(), pod))
				pod.Status = phase
				u.must(u.client.Status().Update(t.Context(), pod))
			}
			if tt.scanner != nil {
				u.must(u.client.Get(t.Context(), requestFor(scanner).NamespacedName, scanner))
				tt.scanner(scanner)
				u.must(u.client.Update(t.Context(), scanner))
			}
			if tt.want {
				u.must(u.client.Delete(t.Context(), pod))
			}
			u.reconcile(scan)
			recent, err := u.store.RecentImages(t.Context(), string(scanner.UID), u.engine.Engine())
			u.must(err)
			if len(recent) > 0 != tt.want {
				t.Errorf("in use are %v, want it there: %t", recent, tt.want)
			}
		})
	}
}

// TestRetentionBeginsWithTheLastPod: a failed pod that still exists does not shorten the retention of an image that another pod, deleted
// meanwhile, ran until now.
func TestRetentionBeginsWithTheLastPod(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	failed := aPod(fixtureNamespace, "job-1", running("main", web), inPhase(corev1.PodFailed), finishedAt(noon.Add(-23*time.Hour)), ofCronJob("job"))
	pod := aPod(fixtureNamespace, "job-2", running("main", web), ofCronJob("job"))
	u := newUnit(t, scanner, scan, failed, pod)
	u.saveReport(web)
	u.reconcile(scan)
	u.must(u.client.Delete(t.Context(), pod))
	for _, want := range []time.Duration{24 * time.Hour, 22 * time.Hour} {
		after, wait := u.reconcile(scan)
		if after == nil || !after.Status.UnusedSinceTime.Time.Equal(noon) || wait != want {
			t.Fatalf("it is %+v, looked at again in %s; want it unused since noon and kept for %s", after, wait, want)
		}
		u.advanceClock(2 * time.Hour)
	}
}
