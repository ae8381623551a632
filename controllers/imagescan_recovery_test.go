package controllers

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/scan"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestFailedMatchStaysFailed: an image that cannot be matched with newer data is not shown as ready by its old report during each retry,
// and its retries become less frequent.
func TestFailedMatchStaysFailed(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web)))
	u.saveReport(web, vulnerability("CVE-2026-0001", finding.Critical))
	u.reconcile(scan)
	u.engine.version.Version = "v2"
	broken := fixedResult(backend.Progress{}, &backend.Failure{Reason: "MatchFailed", Message: "the matcher does not like it"})
	waits := fixedResult(backend.Waiting(v1alpha1.ReasonMatching, "", time.Minute), nil)
	for attempt := int32(1); attempt <= 3; attempt++ {
		u.engine.match = broken
		after, again := u.reconcile(scan)
		if after.Status.Phase != v1alpha1.PhaseFailed || after.Status.Attempts != attempt {
			t.Fatalf("after failure %d it is %s with %d attempts", attempt, after.Status.Phase, after.Status.Attempts)
		}
		u.advanceClock(again)
		u.engine.match = waits
		if after, _ = u.reconcile(scan); after.Status.Phase != v1alpha1.PhaseFailed || after.Status.Findings.Critical != 1 {
			t.Fatalf("while it is tried again it is %s, want Failed beside what was found before", after.Status.Phase)
		}
	}
	u.saveReport(web, vulnerability("CVE-2026-0001", finding.Critical))
	if after, _ := u.reconcile(scan); after.Status.Phase != v1alpha1.PhaseScanned || after.Status.Attempts != 0 {
		t.Errorf("in the end it is %s with %d attempts, want Scanned with none", after.Status.Phase, after.Status.Attempts)
	}
}

// TestFailureIsOvertaken: a failed image does not wait for its next attempt if another Scanner's attempt cataloged it, or if a report with
// the current data exists.
func TestFailureIsOvertaken(t *testing.T) {
	scanner := theScanner()
	for name, tt := range map[string]struct {
		happens func(*unit)
		want    v1alpha1.ImageScanPhase
	}{
		"nothing has changed":                  {func(*unit) {}, v1alpha1.PhaseFailed},
		"it was cataloged for another Scanner": {func(u *unit) { u.saveCatalog(web, store.Cluster) }, v1alpha1.PhaseMatching},
		"its report is there": {func(u *unit) {
			u.must(u.store.SetDataVersion(u.t.Context(), "scripted", u.engine.version))
			u.saveReport(web)
		}, v1alpha1.PhaseScanned},
	} {
		t.Run(name, func(t *testing.T) {
			scan := scanOf(scanner, web)
			u := newUnit(t, scanner.DeepCopy(), scan, aPod(fixtureNamespace, "a", running("main", web)))
			u.engine.index = fixedResult(backend.Progress{}, &backend.Failure{Reason: "ImageNotFound", Message: "404"})
			u.reconcile(scan)
			u.engine.match = fixedResult(backend.Waiting(v1alpha1.ReasonMatching, "", time.Minute), nil)
			tt.happens(u)
			if after, _ := u.reconcile(scan); after.Status.Phase != tt.want {
				t.Errorf("it is %s, want %s", after.Status.Phase, tt.want)
			}
		})
	}
}

// TestAnotherEngineStartsOver: the result of one engine is not shown as that of another.
func TestAnotherEngineStartsOver(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web, func(s *v1alpha1.ImageScan) {
		s.Status = v1alpha1.ImageScanStatus{
			Phase: v1alpha1.PhaseScanned, Engine: v1alpha1.BackendClair, Findings: &v1alpha1.FindingCounts{Critical: 7},
		}
	})
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web)))
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "", time.Minute), nil)
	after, _ := u.reconcile(scan)
	if after.Status.Findings != nil || after.Status.Phase != v1alpha1.PhaseCataloging || after.Status.Engine != v1alpha1.BackendGrype {
		t.Errorf("it is %s by %s with findings %v, want Cataloging by Grype without", after.Status.Phase, after.Status.Engine, after.Status.Findings)
	}
}

// byURL gives a unit two Clairs. A Scanner uses the one that its URL names.
func byURL(u *unit, first, second *scriptedEngine) {
	first.name, second.name = "clair https://a.example.com", "clair https://b.example.com"
	u.scans.Backends = backend.Choosers{v1alpha1.BackendClair: func(s v1alpha1.GenericScanner) backend.Backend {
		if s.Settings().Backend.Clair.URL == "https://b.example.com" {
			return second
		}
		return first
	}}
	u.scanners.Backends = u.scans.Backends
}

func withClair(url string) func(*v1alpha1.Scanner) {
	return func(s *v1alpha1.Scanner) {
		s.Spec.Backend = v1alpha1.Backend{Type: v1alpha1.BackendClair, Clair: &v1alpha1.ClairBackend{URL: url}}
	}
}

// TestAnotherInstanceStartsOver: the result of one Clair is never shown as that of another, and the status lists what is not covered.
func TestAnotherInstanceStartsOver(t *testing.T) {
	scanner := theScanner(withClair("https://a.example.com"))
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web)))
	first, second := u.engine, *u.engine
	byURL(u, first, &second)
	gaps := []string{"debian 12", "npm"}
	u.saveCatalog(web, store.Cluster)
	subject := subjectOf(web, store.Cluster)
	subject.Engine = first.name
	_, err := u.store.SaveReport(t.Context(), store.Report{Subject: subject, DataVersion: "v1", MatchedAt: noon, NotCovered: gaps, Findings: []finding.Finding{vulnerability("CVE-2026-0001", finding.Critical)}}, "")
	u.must(err)
	before, _ := u.reconcile(scan)
	if before.Status.Findings == nil || before.Status.Findings.Critical != 1 || !slices.Equal(before.Status.NotCovered, gaps) {
		t.Fatalf("by the first Clair: %+v", before.Status)
	}
	if again, _ := u.reconcile(scan); again.ResourceVersion != before.ResourceVersion {
		t.Error("another look is written to etcd")
	}

	u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(scanner), scanner))
	scanner.Spec.Backend.Clair.URL = "https://b.example.com"
	u.update(scanner)
	second.index = fixedResult(backend.Progress{}, errors.New("the store is busy"))
	if _, err := u.scans.Reconcile(t.Context(), requestFor(scan)); err == nil {
		t.Error("the fault is not reported")
	}
	after := u.read(scan)
	if s := after.Status; s.Findings != nil || s.NotCovered != nil || s.Packages != nil || s.PlatformDigest != "" || s.EngineInstance == before.Status.EngineInstance {
		t.Errorf("by the second Clair, before it said anything: %+v", s)
	}
	if ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady); ready.Status == metav1.ConditionTrue {
		t.Errorf("it is ready by the first Clair's result: %+v", ready)
	}
	second.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "", time.Minute), nil)
	if after, _ = u.reconcile(scan); after.Status.Phase != v1alpha1.PhaseCataloging || after.Status.Findings != nil {
		t.Errorf("it is %s with findings %v, want Cataloging without", after.Status.Phase, after.Status.Findings)
	}
}

// TestScopeFollowsCatalog: an existing catalog is used, whichever pods came first.
func TestScopeFollowsCatalog(t *testing.T) {
	scanner := theScanner()
	public, private := aPod(fixtureNamespace, "a", running("main", web)), aPod(fixtureNamespace, "a", running("main", web), pulledWith("s"))
	for name, tt := range map[string]struct {
		pod   *corev1.Pod
		has   []store.Scope
		share bool // --share-namespace-sboms
		want  store.Scope
	}{
		"nothing is there, no secrets":                  {public, nil, false, store.Cluster},
		"nothing is there, secrets":                     {private, nil, false, fixtureNamespace},
		"the cluster's, secrets":                        {private, []store.Scope{store.Cluster}, false, store.Cluster},
		"the namespace's, no secrets":                   {public, []store.Scope{fixtureNamespace}, false, fixtureNamespace},
		"both":                                          {private, []store.Scope{fixtureNamespace, store.Cluster}, false, store.Cluster},
		"another namespace's is never taken":            {private, []store.Scope{"elsewhere"}, false, fixtureNamespace},
		"another namespace's is never taken, no secret": {public, []store.Scope{"elsewhere"}, false, store.Cluster},
		"shared: another namespace's":                   {private, []store.Scope{"elsewhere"}, true, "elsewhere"},
		"shared: another namespace's, no secrets":       {public, []store.Scope{"elsewhere"}, true, "elsewhere"},
		"shared: always the same of several":            {private, []store.Scope{"zoo", "elsewhere"}, true, "elsewhere"},
		"shared: the own one first":                     {private, []store.Scope{"elsewhere", fixtureNamespace}, true, fixtureNamespace},
		"shared: the cluster's first":                   {private, []store.Scope{"elsewhere", fixtureNamespace, store.Cluster}, true, store.Cluster},
		"shared: nothing is there":                      {private, nil, true, fixtureNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			scan := scanOf(scanner, web)
			u := newUnit(t, scanner.DeepCopy(), scan, tt.pod.DeepCopy())
			u.inventory.ShareSBOMs = tt.share
			for _, scope := range tt.has {
				u.saveCatalog(web, scope)
			}
			u.reconcile(scan)
			if got := u.engine.calls()[0].Scope; got != tt.want {
				t.Errorf("the scope is %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSharingIsTakenBack: after ShareSBOMs is disabled, the catalog of another namespace does not count any more, and the image is
// cataloged again.
func TestSharingIsTakenBack(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web), pulledWith("s")))
	u.saveCatalog(web, "elsewhere")
	for _, tt := range []struct {
		share bool
		want  store.Scope
	}{{false, fixtureNamespace}, {true, "elsewhere"}, {false, fixtureNamespace}} {
		u.inventory.ShareSBOMs, u.engine.indexCalls, u.engine.matchCalls = tt.share, nil, nil
		u.reconcile(scan)
		if got := u.engine.calls()[0].Scope; got != tt.want {
			t.Errorf("with --share-namespace-sboms=%v the scope is %q, want %q", tt.share, got, tt.want)
		}
		if used, err := u.store.InUse(t.Context(), "scripted", keyOfImage(web), tt.want); err != nil || !used {
			t.Errorf("the store has the image in use in the scope %q: %v, %v", tt.want, used, err)
		}
	}
}

// TestUnknownNodeDoesNotStopOthers: a pod whose node is unknown does not delay the result for other pods.
func TestUnknownNodeDoesNotStopOthers(t *testing.T) {
	scanner := theScanner()
	image := scanOf(scanner, web)
	u := newUnit(t, scanner, image, aPod(fixtureNamespace, "a", running("main", web)), aPod(fixtureNamespace, "b", running("main", web), onNode("unknown")))
	u.saveReport(web)
	after, again := u.reconcile(image)
	if after.Status.Phase != v1alpha1.PhaseScanned || again != scan.NodeRetry {
		t.Errorf("it is %s and reconciled again after %s, want Scanned and %s", after.Status.Phase, again, scan.NodeRetry)
	}
}

// TestMissingEngineIsOneFailure: events of pods do not count as attempts, and an unused image is deleted without the engine as well.
func TestMissingEngineIsOneFailure(t *testing.T) {
	scanner := theScanner(withClair("https://clair.example.com"))
	scan := scanOf(scanner, web)
	pod := aPod(fixtureNamespace, "a", running("main", web))
	u := newUnit(t, scanner, scan, pod)
	for range 3 {
		after, _ := u.reconcile(scan)
		if after.Status.Attempts != 1 || inventory.ReadyReason(after) != v1alpha1.ReasonBackendDisabled {
			t.Fatalf("it has %d attempts and says %s, want 1 and BackendDisabled", after.Status.Attempts, inventory.ReadyReason(after))
		}
	}
	u.must(u.client.Delete(t.Context(), pod))
	u.reconcile(scan)
	u.advanceClock(25 * time.Hour)
	if after, _ := u.reconcile(scan); after != nil {
		t.Error("the ImageScan of an image that nothing uses is still there")
	}
}

// TestTerminatingPodsDoNotCount: the image of a pod that hangs on a lost node is not counted.
func TestTerminatingPodsDoNotCount(t *testing.T) {
	now := metav1.NewTime(noon)
	pod := aPod(fixtureNamespace, "a", running("main", web))
	pod.DeletionTimestamp, pod.Finalizers = &now, []string{"example.com/hangs"}
	u := newUnit(t, theScanner(), pod)
	if got := u.reconcileScanner().Status.Images; got.Total != 0 {
		t.Errorf("images %+v, want none", got)
	}
}
