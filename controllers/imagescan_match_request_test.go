package controllers

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// prompted is an engine that implements backend.DataPoller.
type prompted struct {
	*scriptedEngine
	// prompts counts the calls of Prompt; with is the error that Prompt returns.
	prompts int
	with    error
}

func (p *prompted) RequestDataPoll(context.Context) error {
	p.prompts++
	return p.with
}

// requested annotates an ImageScan as the notifier does.
func requested(value string) func(*v1alpha1.ImageScan) {
	return func(s *v1alpha1.ImageScan) {
		s.Annotations = map[string]string{v1alpha1.AnnotationMatchRequested: value}
	}
}

// newPromptedUnit returns a unit whose engine can be prompted.
func newPromptedUnit(t *testing.T, objects ...client.Object) (*unit, *prompted) {
	t.Helper()
	u := newUnit(t, objects...)
	engine := &prompted{scriptedEngine: u.engine}
	u.scans.Backends = backend.Choosers{v1alpha1.BackendGrype: backend.Always(engine)}
	return u, engine
}

// request returns the match request of an ImageScan.
func request(scan *v1alpha1.ImageScan) string {
	return scan.Annotations[v1alpha1.AnnotationMatchRequested]
}

// TestMatchRequested: a request prompts the engine once and is removed. The status of the same reconciliation is still written.
func TestMatchRequested(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web, requested("n1"))
	u, engine := newPromptedUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical))
	after, _ := u.reconcile(scan)
	if request(after) != "" || after.Status.Phase != v1alpha1.PhaseScanned || after.Status.Findings.Critical != 1 {
		t.Errorf("afterwards: request %q, status %+v; want no request, and the findings", request(after), after.Status)
	}
	u.reconcile(scan)
	if engine.prompts != 1 {
		t.Errorf("the engine was prompted %d times, want once", engine.prompts)
	}
}

// TestMatchRequestedWithoutEffect: a request is removed as well if the engine cannot be prompted.
func TestMatchRequestedWithoutEffect(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web, requested("n1"))
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
	u.saveReport(web)
	if after, _ := u.reconcile(scan); request(after) != "" || after.Status.Phase != v1alpha1.PhaseScanned {
		t.Errorf("afterwards: request %q, phase %s", request(after), after.Status.Phase)
	}
}

// TestMatchRequestStays: a request is kept until the engine can be prompted.
func TestMatchRequestStays(t *testing.T) {
	for name, tt := range map[string]struct {
		arrange func(u *unit, engine *prompted, scanner *v1alpha1.Scanner)
		mend    func(u *unit, engine *prompted, scanner *v1alpha1.Scanner)
		err     bool
	}{
		"while the Scanner is suspended": {
			arrange: func(u *unit, _ *prompted, s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true); u.update(s) },
			mend:    func(u *unit, _ *prompted, s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(false); u.update(s) },
		},
		"while the image is listed": {
			arrange: func(u *unit, e *prompted, _ *v1alpha1.Scanner) {
				u.must(u.store.DeleteCatalog(u.t.Context(), e.Engine(), subjectOf(web, store.Cluster).PlatformDigest))
			},
			mend: func(u *unit, _ *prompted, _ *v1alpha1.Scanner) { u.saveReport(web) },
		},
		"while the engine fails": {
			arrange: func(_ *unit, e *prompted, _ *v1alpha1.Scanner) { e.with = errors.New("no answer") },
			mend:    func(_ *unit, e *prompted, _ *v1alpha1.Scanner) { e.with = nil },
			err:     true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			scanner := theScanner()
			scan := scanOf(scanner, web, requested("n1"))
			u, engine := newPromptedUnit(t, scanner, scan, aPod(fixtureNamespace, "web-1", running("main", web)))
			u.saveReport(web)
			u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(scanner), scanner))
			tt.arrange(u, engine, scanner)
			if _, err := u.scans.Reconcile(t.Context(), requestFor(scan)); (err != nil) != tt.err {
				t.Fatalf("error %v, want one: %t", err, tt.err)
			}
			if after := u.read(scan); request(after) != "n1" {
				t.Errorf("the request is %q, want it to stay", request(after))
			}
			engine.prompts = 0
			tt.mend(u, engine, scanner)
			if after, _ := u.reconcile(scan); request(after) != "" || engine.prompts != 1 {
				t.Errorf("afterwards: request %q, prompts %d; want one prompt and no request", request(after), engine.prompts)
			}
		})
	}
}

// TestNewerMatchRequestStays: a request that was made while the engine was prompted for an earlier one is not removed.
func TestNewerMatchRequestStays(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(absent, "requests")
	p.create(scanner)
	scan := scanOf(scanner, web, requested("n2"))
	p.create(scan)
	scans := &ImageScanReconciler{Client: p.client}
	p.must(scans.removeMatchRequest(t.Context(), scan, "n1"))
	read := func() string {
		var after v1alpha1.ImageScan
		p.must(p.client.Get(t.Context(), client.ObjectKeyFromObject(scan), &after))
		return request(&after)
	}
	if got := read(); got != "n2" {
		t.Errorf("the request is %q, want n2", got)
	}
	p.must(scans.removeMatchRequest(t.Context(), scan, "n2"))
	if got := read(); got != "" {
		t.Errorf("the request is %q, want none", got)
	}
	p.must(scans.removeMatchRequest(t.Context(), scan, "n2"))
	p.delete(scan, scanner)
	p.must(scans.removeMatchRequest(t.Context(), scan, "n2"))
}

// TestMatchRequestWakes: setting or changing the request annotation triggers a reconciliation; removing it does not.
func TestMatchRequestWakes(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after string
		want          bool
	}{
		"asked for": {"", "n1", true}, "asked for again": {"n1", "n2", true},
		"still asked for": {"n1", "n1", false}, "taken away": {"n1", "", false}, "never asked for": {"", "", false},
	} {
		with := func(value string) *v1alpha1.ImageScan {
			scan := &v1alpha1.ImageScan{}
			if value != "" {
				requested(value)(scan)
			}
			return scan
		}
		if got := matchRequested.Update(event.UpdateEvent{ObjectOld: with(tt.before), ObjectNew: with(tt.after)}); got != tt.want {
			t.Errorf("%s: wakes the controller: %t, want %t", name, got, tt.want)
		}
	}
}

// TestMatchRequestIsSeen: on a real API server, the annotation alone triggers a reconciliation, which removes it.
func TestMatchRequestIsSeen(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	p.create(scanner, aPod(p.namespace, "a", running("main", web)))
	p.waitForPhases(scanner, phasesOf{web: v1alpha1.PhaseScanned})
	scan := p.scans(scanner)[0]
	p.must(p.client.Patch(t.Context(), &scan, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationMatchRequested+`":"n1"}}}`))))
	p.Eventually(func() string { return request(&p.scans(scanner)[0]) }, eventuallyTimeout).Should(BeEmpty())
}
