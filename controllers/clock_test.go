package controllers

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestClockSetBackRetry: a failed image is retried after at most an hour, however far the clock was set back.
func TestClockSetBackRetry(t *testing.T) {
	scan := scanOf(theScanner(), web)
	u := newUnit(t, theScanner(), aPod(fixtureNamespace, "a", running("main", web)), scan)
	u.engine.index = fixedResult(backend.Progress{}, &backend.Failure{Reason: "Broken", Message: "it does not work"})
	if _, wait := u.reconcile(scan); wait != time.Minute {
		t.Fatalf("tried again after %s, want %s", wait, time.Minute)
	}
	u.advanceClock(-7 * time.Hour)
	_, wait := u.reconcile(scan)
	if wait > time.Hour {
		t.Errorf("after the clock went back it is tried again in %s, want at most %s", wait, time.Hour)
	}
	u.advanceClock(7*time.Hour + time.Minute)
	asked := len(u.engine.indexCalls)
	if u.reconcile(scan); len(u.engine.indexCalls) != asked+1 {
		t.Errorf("asked %d times when its time came, want once", len(u.engine.indexCalls)-asked)
	}
}

// TestClockSetBackRetention: if the clock is set back, an unused image is requeued after at most its retention. If the clock is set
// forward, the retention ends sooner.
func TestClockSetBackRetention(t *testing.T) {
	scan := scanOf(theScanner(), web)
	pod := aPod(fixtureNamespace, "a", running("main", web))
	u := newUnit(t, theScanner(), scan, pod)
	u.saveReport(web, vulnerability("CVE-2026-0001", finding.High))
	u.reconcile(scan)
	u.must(u.client.Delete(t.Context(), pod))
	u.reconcile(scan)
	u.advanceClock(-7 * time.Hour)
	if _, wait := u.reconcile(scan); wait > 24*time.Hour {
		t.Errorf("after the clock went back it is looked at again in %s, want at most 24h", wait)
	}
	u.advanceClock(7*time.Hour + 24*time.Hour)
	if after, _ := u.reconcile(scan); after != nil {
		t.Error("after its retention the image is still there")
	}
}
