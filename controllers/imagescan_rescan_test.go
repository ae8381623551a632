package controllers

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// requestRescan sets a rescan request on the unit's Scanner.
func (u *unit) requestRescan(value string) {
	u.t.Helper()
	scanner := u.reconcileScanner()
	scanner.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: value}
	u.update(scanner)
}

// queueLength returns how many images are queued for a match.
func (u *unit) queueLength() int {
	u.t.Helper()
	due, err := u.store.QueueLength(u.t.Context(), u.engine.Engine())
	u.must(err)
	return due
}

// TestRequestedRescan: each request retries a failed image at once and matches a scanned one again, once. The Scanner's status has the
// request when all ImageScans have handled it.
func TestRequestedRescan(t *testing.T) {
	scanner := theScanner()
	broken, scanned := scanOf(scanner, vulnerable), scanOf(scanner, web)
	u := newUnit(t, scanner, broken, scanned, aPod(fixtureNamespace, "a", running("main", web), running("other", vulnerable)))
	u.must(u.store.SetDataVersion(t.Context(), u.engine.Engine(), u.engine.version))
	u.saveReport(web, vulnerability("CVE-2026-0001", finding.Critical))
	u.reconcile(scanned)
	u.engine.index = fixedResult(backend.Progress{}, &backend.Failure{Reason: "ImageNotFound", RetryAfter: 6 * time.Hour})
	u.reconcile(broken)
	if u.queueLength() != 0 {
		t.Fatal("an image is due before anything was requested")
	}

	for _, request := range []string{"2026-03-01T12:00:00Z", strings.Repeat("again ", 100)} {
		u.requestRescan(request)
		if handled := u.reconcileScanner().Status.LastHandledRequestedAt; handled == truncate(request, v1alpha1.MaxRequestBytes) {
			t.Error("the request counts as handled before the images were looked at")
		}
		asked := len(u.engine.calls())
		u.reconcile(broken)
		after, _ := u.reconcile(scanned)
		if got := len(u.engine.calls()) - asked; got != 2 || u.queueLength() != 1 {
			t.Errorf("%d images were tried and %d are due to be matched, want 2 and 1", got, u.queueLength())
		}
		if handled := u.reconcileScanner().Status.LastHandledRequestedAt; handled != truncate(request, v1alpha1.MaxRequestBytes) {
			t.Errorf("the Scanner has handled %q once the rescan of each image was started, want %q", handled, request)
		}
		if after.Status.Phase != v1alpha1.PhaseScanned || after.Status.Findings.Critical != 1 {
			t.Errorf("until the next result it is %s with %+v, want what was found", after.Status.Phase, after.Status.Findings)
		}
		u.saveReport(web, vulnerability("CVE-2026-0001", finding.Critical))
		asked = len(u.engine.calls())
		u.reconcile(broken)
		u.reconcile(scanned)
		if got := len(u.engine.calls()) - asked; got != 0 || u.queueLength() != 0 {
			t.Errorf("the same request had %d images tried and %d matched again, want it to count once", got, u.queueLength())
		}
		if handled := u.reconcileScanner().Status.LastHandledRequestedAt; handled != truncate(request, v1alpha1.MaxRequestBytes) {
			t.Errorf("the Scanner has handled %q, want %q", handled, request)
		}
	}
}

// TestRequestOfSuspendedScanner: a request waits until the Scanner is resumed.
func TestRequestOfSuspendedScanner(t *testing.T) {
	scanner := theScanner(func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) })
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web)))
	u.reconcile(scan)
	u.requestRescan("now")
	after, _ := u.reconcile(scan)
	if after.Status.HandledRequest != "" || u.reconcileScanner().Status.LastHandledRequestedAt != "" {
		t.Error("a suspended Scanner has handled a request")
	}
	suspended := u.reconcileScanner()
	suspended.Spec.Suspend = nil
	u.update(suspended)
	u.saveReport(web)
	u.reconcile(scan)
	if handled := u.reconcileScanner().Status.LastHandledRequestedAt; handled != "now" {
		t.Errorf("afterwards it has handled %q, want the request", handled)
	}
}

// TestRequestIsAnEvent: only a new value of the request annotation triggers the ImageScans.
func TestRequestIsAnEvent(t *testing.T) {
	annotated := func(key, value string) *v1alpha1.Scanner {
		return theScanner(func(s *v1alpha1.Scanner) { s.Annotations = map[string]string{key: value} })
	}
	const key = v1alpha1.AnnotationRequestedAt
	for name, tt := range map[string]struct {
		before, after *v1alpha1.Scanner
		want          bool
	}{
		"the first":         {theScanner(), annotated(key, "1"), true},
		"another":           {annotated(key, "1"), annotated(key, "2"), true},
		"the same":          {annotated(key, "1"), annotated(key, "1"), false},
		"taken away":        {annotated(key, "1"), theScanner(), false},
		"something else of": {theScanner(), annotated("example.com/note", "1"), false},
	} {
		if got := rescanRequested.Update(event.UpdateEvent{ObjectOld: tt.before, ObjectNew: tt.after}); got != tt.want {
			t.Errorf("%s wakes: %t, want %t", name, got, tt.want)
		}
	}
}
