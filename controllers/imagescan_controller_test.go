package controllers

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/scan"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestImageScanPhases: the phases and conditions of an ImageScan from its creation to its result.
func TestImageScanPhases(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web, func(s *v1alpha1.ImageScan) { s.Generation = 3 })
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	step := func(name string, phase v1alpha1.ImageScanPhase, wait time.Duration, message string, conditions ...string) {
		t.Helper()
		after, got := u.reconcile(scan)
		if after.Status.Phase != phase {
			t.Errorf("%s: phase %s, want %s", name, after.Status.Phase, phase)
		}
		if got != wait {
			t.Errorf("%s: it is looked at again after %s, want %s", name, got, wait)
		}
		if diff := cmp.Diff(conditions, conditionsOf(after.Status.Conditions)); diff != "" {
			t.Errorf("%s: conditions (-want +got):\n%s", name, diff)
		}
		if got := after.Status.Conditions[0].Message; got != message {
			t.Errorf("%s: Ready says %q, want %q", name, got, message)
		}
		for _, c := range after.Status.Conditions {
			if c.ObservedGeneration != 3 {
				t.Errorf("%s: %s is about generation %d, want 3", name, c.Type, c.ObservedGeneration)
			}
		}
	}
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonPending, "waiting for one of 4", 10*time.Second), nil)
	step("in the queue", v1alpha1.PhasePending, 10*time.Second, "waiting for one of 4", "Ready=False Pending", "Reconciling=True Pending")
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "Job x/y", 30*time.Second), nil)
	step("cataloging", v1alpha1.PhaseCataloging, 30*time.Second, "Job x/y", "Ready=False Cataloging", "Reconciling=True Cataloging")
	u.saveCatalog(web, store.Cluster)
	u.engine.match = fixedResult(backend.Waiting(v1alpha1.ReasonMatching, "waiting for a match worker", time.Minute), nil)
	step("matching", v1alpha1.PhaseMatching, time.Minute, "waiting for a match worker", "Ready=False Matching", "Reconciling=True Matching")
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical))
	step("scanned", v1alpha1.PhaseScanned, 0, "1 finding: 1 critical, 0 high; 1 fixable, 0 known exploited", "Ready=True Scanned")

	after := u.read(scan)
	want := v1alpha1.ImageScanStatus{
		Phase: v1alpha1.PhaseScanned, PlatformDigest: subjectOf(web, store.Cluster).PlatformDigest, Engine: v1alpha1.BackendGrype,
		Packages: ptr.To(int32(7)), ScanTime: &metav1.Time{Time: noon}, Findings: &v1alpha1.FindingCounts{Critical: 1, Fixable: 1}, Workloads: []string{"Pod/web-1"}, WorkloadCount: 1,
		TopFindings: []v1alpha1.TopFinding{{ID: "CVE-2024-0001", Severity: "Critical", Package: "openssl 3.0.1", FixedIn: "3.0.2"}},
		Image:       "shop/web:1", WorstFinding: "CVE-2024-0001 Critical openssl 3.0.1 → 3.0.2",
	}
	if diff := cmp.Diff(want, after.Status, cmpopts.IgnoreFields(v1alpha1.ImageScanStatus{}, "Conditions", "EngineInstance", "Columns")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if events := u.takeEvents(); len(events) != 0 {
		t.Errorf("events %q of an image that never failed, want none", events)
	}
}

// TestUnchangedStatusIsNotWritten: neither another reconciliation nor newer data with the same findings causes a write.
func TestUnchangedStatusIsNotWritten(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical))
	first, _ := u.reconcile(scan)
	writes := u.writes
	same := func(what string) {
		t.Helper()
		u.advanceClock(time.Hour)
		after, _ := u.reconcile(scan)
		if after.ResourceVersion != first.ResourceVersion || u.writes != writes {
			t.Errorf("%s is written to etcd:\n%s", what, cmp.Diff(first.Status, after.Status))
		}
	}
	same("another look")
	u.engine.version.Version = "v2"
	same("that newer data is there")
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical))
	same("the same findings in newer data")
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical), vulnerability("CVE-2024-0002", finding.High))
	after, _ := u.reconcile(scan)
	if !after.Status.ScanTime.Time.Equal(u.clock.Now()) || after.Status.Findings.High != 1 {
		t.Errorf("another finding: status %+v at %s", after.Status, u.clock.Now())
	}
}

// TestUnchangedShrunkStatusIsNotWritten: the same holds for an object that is cut to fit into etcd.
func TestUnchangedShrunkStatusIsNotWritten(t *testing.T) {
	scanner := theScanner(func(s *v1alpha1.Scanner) { s.Name = repeatToLength("s", 63) })
	reference := "registry.example.com/" + repeatToLength("r", 200) + ":1"
	scan := scanOf(scanner, reference)
	objects := []client.Object{scanner, scan}
	for range 12 {
		objects = append(objects, aPod(fixtureNamespace, repeatToLength("pod", 90)+string(rune('a'+len(objects))), running("main", reference)))
	}
	u := newUnit(t, objects...)
	var findings []finding.Finding
	for i := range 5 {
		f := vulnerability(repeatToLength("GHSA-", 39)+string(rune('a'+i)), finding.High)
		f.Package.Name = repeatToLength("package", 200)
		findings = append(findings, f)
	}
	u.saveReport(reference, findings...)
	first, _ := u.reconcile(scan)
	if len(first.Status.Workloads) == v1alpha1.MaxWorkloads {
		t.Fatal("nothing was cut: the test tests nothing")
	}
	u.advanceClock(time.Hour)
	u.saveReport(reference, findings...)
	if after, _ := u.reconcile(scan); after.ResourceVersion != first.ResourceVersion {
		t.Errorf("another look is written to etcd:\n%s", cmp.Diff(first.Status, after.Status))
	}
}

// TestFailures: the attempts, the delay until the next one, the condition and the events.
func TestFailures(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.engine.index = fixedResult(backend.Progress{}, &backend.Failure{Reason: workerapi.ReasonImageNotFound, Message: "the registry does not have it"})
	for attempt, wait := range []time.Duration{
		time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour, time.Hour,
	} {
		after, got := u.reconcile(scan)
		status := after.Status
		if got != wait || !status.NextAttemptTime.Time.Equal(u.clock.Now().Add(wait)) {
			t.Errorf("after attempt %d the next is in %s, at %s; want in %s", attempt+1, got, status.NextAttemptTime, wait)
		}
		if status.Phase != v1alpha1.PhaseFailed || int(status.Attempts) != attempt+1 || !status.FailedSinceTime.Time.Equal(noon) {
			t.Errorf("phase %s after %d attempts since %s, want Failed after %d since %s", status.Phase, status.Attempts, status.FailedSinceTime, attempt+1, noon)
		}
		if diff := cmp.Diff([]string{"Ready=False ImageNotFound"}, conditionsOf(status.Conditions)); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"Warning ImageNotFound the registry does not have it"}, u.takeEvents()); diff != "" {
			t.Errorf("events of attempt %d (-want +got):\n%s", attempt+1, diff)
		}
		// A reconciliation before the next attempt is due tries nothing and writes nothing.
		asked, writes := len(u.engine.indexCalls), u.writes
		u.advanceClock(wait / 2)
		if _, got = u.reconcile(scan); got != wait-wait/2 || len(u.engine.indexCalls) != asked || u.writes != writes {
			t.Errorf("half-way it is tried: %v, written: %v, next in %s", len(u.engine.indexCalls) != asked, u.writes != writes, got)
		}
		u.advanceClock(wait - wait/2)
	}
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "Job x/y", 30*time.Second), nil)
	u.reconcile(scan)
	if events := u.takeEvents(); len(events) != 0 {
		t.Errorf("events %q while it is tried again, want none", events)
	}
	u.saveReport(web)
	after, _ := u.reconcile(scan)
	if diff := cmp.Diff([]string{"Normal Scanned no known vulnerabilities"}, u.takeEvents()); diff != "" {
		t.Errorf("events of the success (-want +got):\n%s", diff)
	}
	if after.Status.Attempts != 0 || after.Status.NextAttemptTime != nil || after.Status.FailedSinceTime != nil || after.Status.Phase != v1alpha1.PhaseScanned {
		t.Errorf("after a success: %+v", after.Status)
	}
}

// TestFailureWithRetryAfter: the delay that a registry asks for is respected.
func TestFailureWithRetryAfter(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.engine.index = fixedResult(backend.Progress{}, &backend.Failure{Reason: workerapi.ReasonRegistryThrottled, Message: "429", RetryAfter: 3 * time.Hour})
	if after, wait := u.reconcile(scan); wait != 3*time.Hour || !after.Status.NextAttemptTime.Time.Equal(noon.Add(3*time.Hour)) {
		t.Errorf("the next attempt is in %s, at %s; want in 3h", wait, after.Status.NextAttemptTime)
	}
}

// TestRetriesAreSpread: retries are spread: each comes up to a quarter earlier than planned, and never earlier than a registry asks for.
func TestRetriesAreSpread(t *testing.T) {
	for name, tt := range map[string]struct {
		random            float64
		advice            time.Duration
		earliest, longest time.Duration
	}{
		"by chance the first":             {0.999, 0, 45 * time.Second, 46 * time.Second},
		"by chance the last":              {0, 0, time.Minute, time.Minute},
		"a registry asks for three hours": {0.999, 3 * time.Hour, 3*time.Hour + 44*time.Minute, 3*time.Hour + 45*time.Minute},
	} {
		scan := scanOf(theScanner(), web)
		u := newUnit(t, theScanner(), scan, aPod(fixtureNamespace, "web-1", running("main", web)))
		u.scans.Random = func() float64 { return tt.random }
		u.engine.index = fixedResult(backend.Progress{}, &backend.Failure{Reason: workerapi.ReasonRegistryThrottled, Message: "429", RetryAfter: tt.advice})
		if _, wait := u.reconcile(scan); wait < tt.earliest || wait > tt.longest {
			t.Errorf("%s: tried again in %s, want between %s and %s", name, wait, tt.earliest, tt.longest)
		}
	}
}

// TestFailureTextsAreSanitized: reasons and messages come from pods in tenants' namespaces. For any content, the status is valid and readable.
func TestFailureTextsAreSanitized(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	for reason, want := range map[string]string{
		"ImageNotFound": "ImageNotFound", "x": "x", "": v1alpha1.ReasonBackendError, "two words": v1alpha1.ReasonBackendError,
		"1st": v1alpha1.ReasonBackendError, "Umläut": v1alpha1.ReasonBackendError, repeatToLength("R", 64): repeatToLength("R", 64), repeatToLength("R", 65): v1alpha1.ReasonBackendError,
		"line\nbreak": v1alpha1.ReasonBackendError, "ends_": v1alpha1.ReasonBackendError, "a,b": v1alpha1.ReasonBackendError,
	} {
		u := newUnit(t, scanner.DeepCopy(), scan.DeepCopy(), aPod(fixtureNamespace, "web-1", running("main", web)))
		u.engine.index = fixedResult(backend.Progress{}, &backend.Failure{Reason: reason, Message: "one\x1b[31m\ntwo \xff" + repeatToLength("ü", 2000)})
		after, _ := u.reconcile(scan)
		ready := after.Status.Conditions[0]
		if ready.Reason != want {
			t.Errorf("the reason %q becomes %q, want %q", reason, ready.Reason, want)
		}
		if len(ready.Message) > v1alpha1.MaxMessageBytes || !strings.HasPrefix(ready.Message, "one [31m two ") || !strings.HasSuffix(ready.Message, "ü…") {
			t.Errorf("the message is %q, want one line, cut at %d bytes", ready.Message, v1alpha1.MaxMessageBytes)
		}
	}
}

// TestFailedAfterScanned: a failed image is not shown as ready, and its last result stays.
func TestFailedAfterScanned(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical))
	u.reconcile(scan)
	u.engine.version.Version = "v2"
	u.engine.match = fixedResult(backend.Progress{}, &backend.Failure{Reason: workerapi.ReasonMatchFailed, Message: "no"})
	after, _ := u.reconcile(scan)
	if after.Status.Phase != v1alpha1.PhaseFailed || after.Status.Findings == nil || after.Status.Findings.Critical != 1 {
		t.Errorf("phase %s with findings %+v, want Failed with the last ones", after.Status.Phase, after.Status.Findings)
	}
	if diff := cmp.Diff([]string{"Ready=False MatchFailed"}, conditionsOf(after.Status.Conditions)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// TestInternalErrorKeepsStatus: an error that is not a failure of the image leaves the status unchanged and is returned for a retry.
func TestInternalErrorKeepsStatus(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical))
	before, _ := u.reconcile(scan)
	fault := errors.New("the database is locked")
	u.engine.versionErr = fault
	if _, err := u.scans.Reconcile(t.Context(), requestFor(scan)); !errors.Is(err, fault) {
		t.Errorf("the error is %v, want %v", err, fault)
	}
	if diff := cmp.Diff(before.Status, u.read(scan).Status); diff != "" {
		t.Errorf("the status changes:\n%s", diff)
	}
}

// TestInternalErrorWhileCataloging: the same holds for an image that is being cataloged.
func TestInternalErrorWhileCataloging(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "Job x/y", time.Minute), nil)
	before, _ := u.reconcile(scan)
	u.engine.index = fixedResult(backend.Progress{}, errors.New("the database is locked"))
	if _, err := u.scans.Reconcile(t.Context(), requestFor(scan)); err == nil {
		t.Error("the fault is not reported")
	}
	if diff := cmp.Diff(before.Status, u.read(scan).Status); diff != "" {
		t.Errorf("the status changes:\n%s", diff)
	}
}

// TestUnknownNode: while the platform of one of an image's pods is unknown, the recorded workloads stay.
func TestUnknownNode(t *testing.T) {
	scanner := theScanner()
	image := scanOf(scanner, web)
	u := newUnit(t, scanner, image, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.saveReport(web)
	before, _ := u.reconcile(image)
	u.must(u.client.Create(t.Context(), aPod(fixtureNamespace, "aaa-new", running("main", web), onNode("not-in-the-cache"))))
	after, wait := u.reconcile(image)
	if wait != scan.NodeRetry {
		t.Errorf("it is reconciled again after %s, want %s", wait, scan.NodeRetry)
	}
	if diff := cmp.Diff(before.Status, after.Status); diff != "" {
		t.Errorf("the status changes:\n%s", diff)
	}
}

// TestRetirement: an image that no pod runs is kept for the retention, and then its ImageScan and its use in the store are deleted.
func TestRetirement(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	pod := aPod(fixtureNamespace, "web-1", running("main", web))
	u := newUnit(t, scanner, scan, pod)
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical))
	u.reconcile(scan)
	u.must(u.client.Delete(t.Context(), pod))
	u.advanceClock(time.Hour)
	after, wait := u.reconcile(scan)
	if wait != 24*time.Hour || !after.Status.UnusedSinceTime.Time.Equal(u.clock.Now()) || after.Status.WorkloadCount != 0 || after.Status.Workloads != nil {
		t.Errorf("unused since %s by %d workloads, looked at again after %s", after.Status.UnusedSinceTime, after.Status.WorkloadCount, wait)
	}
	if ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady); !strings.HasPrefix(ready.Message, "no pod uses the image any more") {
		t.Errorf("expected the condition Ready to say that no pod uses the image, it says %q", ready.Message)
	}
	if after.Status.Phase != v1alpha1.PhaseScanned || after.Status.Findings.Critical != 1 {
		t.Errorf("the result does not stay: %+v", after.Status)
	}
	if counts, err := u.store.ScannerTotals(t.Context(), "scanner-uid", exception.Set{}); err != nil || counts.Counts.Total() != 0 {
		t.Errorf("an unused image is counted: %+v, %v", counts, err)
	}
	u.advanceClock(23 * time.Hour)
	if after, wait = u.reconcile(scan); after == nil || wait != time.Hour {
		t.Fatalf("after 23 hours it is %v, looked at again after %s", after, wait)
	}
	if used, err := u.store.InUse(t.Context(), "scripted", keyOfImage(web), store.Cluster); err != nil || !used {
		t.Errorf("the image is still matched: %v, %v, want it is", used, err)
	}
	u.advanceClock(time.Hour)
	if after, _ = u.reconcile(scan); after != nil {
		t.Errorf("after 24 hours it is still there: %+v", after.Status)
	}
	if used, err := u.store.InUse(t.Context(), "scripted", keyOfImage(web), store.Cluster); err != nil || used {
		t.Errorf("the image is still matched: %v, %v, want it is not", used, err)
	}
}

// TestNoRetention: with a retention of 0, the ImageScan is deleted at once, without another write.
func TestNoRetention(t *testing.T) {
	scanner := theScanner(func(s *v1alpha1.Scanner) { s.Spec.UnusedImageRetention = &metav1.Duration{} })
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan)
	if after, _ := u.reconcile(scan); after != nil || u.writes != 0 {
		t.Errorf("it is %+v, written %d times; want it gone", after, u.writes)
	}
}

// TestImageInUseAgain: an image that is run again within its retention keeps its result and is in use again.
func TestImageInUseAgain(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	pod := aPod(fixtureNamespace, "nightly-29000000-x", running("main", web), ownedBy("batch/v1", "Job", "nightly-29000000", "job-uid"))
	u := newUnit(t, scanner, scan, pod)
	u.saveReport(web)
	u.reconcile(scan)
	pod.Status.Phase = corev1.PodSucceeded
	u.must(u.client.Status().Update(t.Context(), pod))
	if after, _ := u.reconcile(scan); after.Status.UnusedSinceTime == nil {
		t.Error("a pod that has ended still runs the image")
	}
	u.advanceClock(23 * time.Hour)
	u.must(u.client.Create(t.Context(), aPod(fixtureNamespace, "nightly-29001440-x", running("main", web), ownedBy("batch/v1", "Job", "nightly-29001440", "job-2"))))
	after, _ := u.reconcile(scan)
	if after.Status.UnusedSinceTime != nil || after.Status.WorkloadCount != 1 || after.Status.Phase != v1alpha1.PhaseScanned {
		t.Errorf("after its return: %+v", after.Status)
	}
	if diff := cmp.Diff([]string{"CronJob/nightly"}, after.Status.Workloads); diff != "" {
		t.Errorf("workloads (-want +got):\n%s", diff)
	}
}

// TestUnusedBeforeScanned: an image that no pod runs is not scanned, and its condition says so.
func TestUnusedBeforeScanned(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan)
	after, wait := u.reconcile(scan)
	if diff := cmp.Diff([]string{"Ready=False Unused"}, conditionsOf(after.Status.Conditions)); diff != "" || wait != 24*time.Hour {
		t.Errorf("looked at again after %s, conditions (-want +got):\n%s", wait, diff)
	}
	if len(u.engine.indexCalls) != 0 {
		t.Error("the engine is asked for an image that nobody runs")
	}
}

// TestSuspended: a suspended Scanner starts nothing new, its results stay, and it continues afterwards.
func TestSuspended(t *testing.T) {
	scanner := theScanner(func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) })
	scan, known := scanOf(scanner, web), scanOf(scanner, vulnerable)
	known.Status.Phase, known.Status.Findings = v1alpha1.PhaseScanned, &v1alpha1.FindingCounts{High: 7}
	u := newUnit(t, scanner, scan, known, aPod(fixtureNamespace, "a", running("main", web), running("other", vulnerable)))
	after, _ := u.reconcile(scan)
	if diff := cmp.Diff([]string{"Ready=False Suspended"}, conditionsOf(after.Status.Conditions)); diff != "" || after.Status.Phase != v1alpha1.PhasePending {
		t.Errorf("phase %s, conditions (-want +got):\n%s", after.Status.Phase, diff)
	}
	after, _ = u.reconcile(known)
	if after.Status.Phase != v1alpha1.PhaseScanned || after.Status.Findings.High != 7 {
		t.Errorf("what was found is gone: %+v", after.Status)
	}
	if len(u.engine.indexCalls) != 0 {
		t.Error("a suspended Scanner makes work")
	}
	u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(scanner), scanner))
	scanner.Spec.Suspend = ptr.To(false)
	u.update(scanner)
	u.saveReport(web)
	if after, _ = u.reconcile(scan); after.Status.Phase != v1alpha1.PhaseScanned {
		t.Errorf("afterwards the phase is %s, want Scanned", after.Status.Phase)
	}
}

// TestWaitsSinceItWasResumed: the time in which the Scanner was suspended is no time in which the image waited for a result.
func TestWaitsSinceItWasResumed(t *testing.T) {
	scanner := theScanner(func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) })
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web)))
	u.reconcile(scan)
	u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(scanner), scanner))
	scanner.Spec.Suspend = ptr.To(false)
	u.update(scanner)
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "Job x/y", time.Minute), nil)
	u.clock.SetTime(u.clock.Now().Add(8 * time.Hour))
	after, _ := u.reconcile(scan)
	ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
	if ready.Reason == v1alpha1.ReasonSuspended || !ready.LastTransitionTime.Time.Equal(u.clock.Now()) {
		t.Errorf("Ready is %+v, want another reason since %s", ready, u.clock.Now())
	}
}

// TestBackendDisabled: if the operator runs without the engine, the image fails with that reason.
func TestBackendDisabled(t *testing.T) {
	scanner := theScanner(withClair("https://clair.example.com"))
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web)))
	after, _ := u.reconcile(scan)
	if diff := cmp.Diff([]string{"Ready=False BackendDisabled"}, conditionsOf(after.Status.Conditions)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// TestBareImageID: an image that only its node knows fails, and the message has the remedy.
func TestBareImageID(t *testing.T) {
	scanner := theScanner()
	u := newUnit(t, scanner, aPod(fixtureNamespace, "a", loaded("main", "built-here:1")))
	_, err := u.pods.Reconcile(t.Context(), requestFor(aPod(fixtureNamespace, "a")))
	u.must(err)
	var scans v1alpha1.ImageScanList
	u.must(u.client.List(t.Context(), &scans))
	if len(scans.Items) != 1 || scans.Items[0].Spec.DigestType != v1alpha1.DigestImageID {
		t.Fatalf("ImageScans %+v, want one with an image id", scans.Items)
	}
	after, wait := u.reconcile(&scans.Items[0])
	ready := after.Status.Conditions[0]
	if ready.Reason != v1alpha1.ReasonBareImageID || !strings.Contains(ready.Message, "Push it to a registry") || wait != time.Hour {
		t.Errorf("Ready says %s: %s; tried again after %s", ready.Reason, ready.Message, wait)
	}
	if len(u.engine.indexCalls) != 0 {
		t.Error("the engine is asked for an image that no registry has")
	}
	if status := u.reconcileScanner().Status; status.Images != (v1alpha1.ImageCounts{Total: 1, Failed: 1}) {
		t.Errorf("images %+v, want one that failed", status.Images)
	}
}

// TestObsoleteImageScans: ImageScans left behind by garbage collection, a lagging cache or a user are deleted.
func TestObsoleteImageScans(t *testing.T) {
	scanner := theScanner()
	other := theScanner(func(s *v1alpha1.Scanner) { s.Name, s.UID = "other", "other-uid" })
	former := theScanner(func(s *v1alpha1.Scanner) { s.UID = "former-uid" })
	for name, tt := range map[string]struct {
		scan *v1alpha1.ImageScan
		gone bool
	}{
		"its Scanner is there":                  {scanOf(scanner, web), false},
		"its Scanner has gone":                  {scanOf(theScanner(func(s *v1alpha1.Scanner) { s.Name, s.UID = "gone", "gone-uid" }), web), true},
		"its Scanner was made anew":             {scanOf(former, web), true},
		"nobody owns it":                        {scanOf(scanner, web, func(s *v1alpha1.ImageScan) { s.OwnerReferences = nil }), true},
		"another Scanner owns it":               {scanOf(other, web, func(s *v1alpha1.ImageScan) { s.Spec.ScannerRef.Name = "all" }), true},
		"a second one, with a later name":       {scanOf(scanner, vulnerable, func(s *v1alpha1.ImageScan) { s.Name = "zzz" }), true},
		"a second one, with an earlier name":    {scanOf(scanner, vulnerable, func(s *v1alpha1.ImageScan) { s.Name = "aaa" }), false},
		"a platform that nobody can make of it": {scanOf(scanner, web, func(s *v1alpha1.ImageScan) { s.Spec.Platform = "linux" }), true},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, scanner.DeepCopy(), other.DeepCopy(), scanOf(scanner, vulnerable), aPod(fixtureNamespace, "a", running("main", web), running("b", vulnerable)))
			u.must(u.client.Create(t.Context(), tt.scan.DeepCopy()))
			u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "", time.Minute), nil)
			after, _ := u.reconcile(tt.scan)
			if gone := after == nil; gone != tt.gone {
				t.Errorf("it is deleted: %v, want %v", gone, tt.gone)
			}
		})
	}
}

// TestBeingDeleted: an ImageScan that is being deleted is not changed.
func TestBeingDeleted(t *testing.T) {
	scanner := theScanner()
	now := metav1.NewTime(noon)
	scan := scanOf(scanner, web, func(s *v1alpha1.ImageScan) { s.DeletionTimestamp, s.Finalizers = &now, []string{"example.com/x"} })
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web)))
	if after, _ := u.reconcile(scan); after.Status.Phase != "" || len(u.engine.indexCalls) != 0 {
		t.Errorf("its phase becomes %q", after.Status.Phase)
	}
}

// TestBackendImage: the pull references, pull secrets, ServiceAccounts and credential scope that are passed to the engine.
func TestBackendImage(t *testing.T) {
	job := v1alpha1.CatalogJob{PriorityClassName: "low"}
	at := func(repository string) string { return repository + "@" + keyOfImage(web).Digest }
	elsewhere := func(reference string) func(*corev1.Pod) {
		return containerWith("main", reference, corev1.ContainerStatus{ImageID: at("mirror.example.com/web")})
	}
	for name, tt := range map[string]struct {
		pods []client.Object
		want backend.Image
	}{
		"anybody may pull it": {
			[]client.Object{aPod(fixtureNamespace, "a", running("main", web))},
			backend.Image{Scope: store.Cluster, PullReferences: []string{at("registry.example.com/shop/web")}},
		},
		"with pull secrets": {
			[]client.Object{aPod(fixtureNamespace, "a", running("main", web), pulledWith("b", "a"))},
			backend.Image{Scope: fixtureNamespace, PullSecrets: []string{"a", "b"}, PullReferences: []string{at("registry.example.com/shop/web")}},
		},
		"two pods with their own secrets": {
			[]client.Object{aPod(fixtureNamespace, "a", running("main", web), pulledWith("b", "a")), aPod(fixtureNamespace, "b", running("main", web), pulledWith("c", "a"))},
			backend.Image{Scope: fixtureNamespace, PullSecrets: []string{"a", "b", "c"}, PullReferences: []string{at("registry.example.com/shop/web")}},
		},
		"one of two pods has a secret": {
			[]client.Object{aPod(fixtureNamespace, "a", running("main", web), pulledWith("a")), aPod(fixtureNamespace, "b", running("main", web))},
			backend.Image{Scope: fixtureNamespace, PullSecrets: []string{"a"}, PullReferences: []string{at("registry.example.com/shop/web")}},
		},
		"two pods with their own ServiceAccounts": {
			[]client.Object{aPod(fixtureNamespace, "a", running("main", web), runAs("web")), aPod(fixtureNamespace, "b", running("main", web), runAs("default")), aPod(fixtureNamespace, "c", running("main", web), runAs("web"))},
			backend.Image{Scope: store.Cluster, ServiceAccounts: []string{"default", "web"}, PullReferences: []string{at("registry.example.com/shop/web")}},
		},
		"the runtime names another repository": {
			[]client.Object{aPod(fixtureNamespace, "a", elsewhere(web))},
			backend.Image{Scope: store.Cluster, PullReferences: []string{at("registry.example.com/shop/web"), at("mirror.example.com/web")}},
		},
		"two names": {
			[]client.Object{aPod(fixtureNamespace, "a", elsewhere("a.example.com/web:1")), aPod(fixtureNamespace, "b", elsewhere("b.example.com/web:1"))},
			backend.Image{Scope: store.Cluster, PullReferences: []string{
				at("a.example.com/web"), at("b.example.com/web"), at("registry.example.com/shop/web"), at("mirror.example.com/web"),
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			scanner := theScanner(func(s *v1alpha1.Scanner) { s.Spec.Backend.Grype = &v1alpha1.GrypeBackend{Job: job} })
			scan := scanOf(scanner, web)
			u := newUnit(t, append(tt.pods, scanner, scan)...)
			u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "", time.Minute), nil)
			u.reconcile(scan)
			want := tt.want
			want.Key, want.Namespace, want.Scanner, want.Job = keyOfImage(web), fixtureNamespace, string(scanner.UID), &job
			if diff := cmp.Diff([]backend.Image{want}, u.engine.indexCalls); diff != "" {
				t.Errorf("the engine is asked for (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPullSecretsStayInTheirNamespace: a Job in the operator's namespace, which pulls by an identity, gets no names of a namespace's Secrets.
func TestPullSecretsStayInTheirNamespace(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web), pulledWith("a")))
	u.inventory.Provider = func(string) string { return "aws" }
	u.reconcile(scan)
	if call := u.engine.calls()[0]; call.Scope != store.Cluster || len(call.PullSecrets) > 0 {
		t.Errorf("the scope is %q with pull secrets %q, want the cluster without any", call.Scope, call.PullSecrets)
	}
}

// TestJobProgressConditions: the condition has the reason that delays a Job, and the reason of a refused upload. A waiting image has not
// failed.
func TestJobProgressConditions(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	for reason, tt := range map[string]struct {
		progress   backend.Progress
		err        error
		phase      v1alpha1.ImageScanPhase
		conditions []string
	}{
		"Unschedulable": {
			backend.Waiting("Unschedulable", "no node takes the worker's pod", 30*time.Second), nil,
			v1alpha1.PhasePending, []string{"Ready=False Unschedulable", "Reconciling=True Unschedulable"},
		},
		"ResourceQuota": {
			backend.Waiting("ResourceQuota", "exceeded quota", 30*time.Second), nil,
			v1alpha1.PhasePending, []string{"Ready=False ResourceQuota", "Reconciling=True ResourceQuota"},
		},
		"UploadRefused": {
			backend.Progress{}, &backend.Failure{Reason: workerapi.ReasonUploadRefused, Message: "the ingest API answered 413"},
			v1alpha1.PhaseFailed, []string{"Ready=False UploadRefused"},
		},
	} {
		t.Run(reason, func(t *testing.T) {
			u := newUnit(t, scanner.DeepCopy(), scan.DeepCopy(), aPod(fixtureNamespace, "a", running("main", web)))
			u.engine.index = fixedResult(tt.progress, tt.err)
			after, _ := u.reconcile(scan)
			if after.Status.Phase != tt.phase {
				t.Errorf("phase %s, want %s", after.Status.Phase, tt.phase)
			}
			if diff := cmp.Diff(tt.conditions, conditionsOf(after.Status.Conditions)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if failed := after.Status.Attempts > 0; failed != (tt.err != nil) {
				t.Errorf("%d failed attempts are counted", after.Status.Attempts)
			}
		})
	}
}

// TestPullSecretsAreBounded: a namespace with very many pull secrets gets a Job that the API server accepts. ServiceAccounts are bounded as
// well, since each of them has to be read.
func TestPullSecretsAreBounded(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	var secrets []string
	for i := range 100 {
		secrets = append(secrets, "secret-"+string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web), pulledWith(secrets...)))
	for _, account := range secrets {
		u.must(u.client.Create(t.Context(), aPod(fixtureNamespace, account, running("main", web), runAs(account))))
	}
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "", time.Minute), nil)
	u.reconcile(scan)
	if got := len(u.engine.indexCalls[0].PullSecrets); got != maxPullSecrets {
		t.Errorf("%d pull secrets are used, want %d", got, maxPullSecrets)
	}
	if got := len(u.engine.indexCalls[0].ServiceAccounts); got != maxServiceAccounts {
		t.Errorf("%d ServiceAccounts are used, want %d", got, maxServiceAccounts)
	}
}

// TestScopeAfterTheLastPod: when the last pod is gone, the image keeps its credential scope.
func TestScopeAfterTheLastPod(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	pod := aPod(fixtureNamespace, "a", running("main", web), pulledWith("pull"))
	u := newUnit(t, scanner, scan, pod)
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "", time.Minute), nil)
	u.reconcile(scan)
	u.must(u.client.Delete(t.Context(), pod))
	u.reconcile(scan)
	inNamespace, err := u.store.InUse(t.Context(), "scripted", keyOfImage(web), fixtureNamespace)
	u.must(err)
	inCluster, err := u.store.InUse(t.Context(), "scripted", keyOfImage(web), store.Cluster)
	u.must(err)
	if !inNamespace || inCluster {
		t.Errorf("it counts in the namespace: %v, in the cluster: %v; want in the namespace only", inNamespace, inCluster)
	}
}
