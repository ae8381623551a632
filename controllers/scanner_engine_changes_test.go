package controllers

import (
	"errors"
	"testing"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestDetectEngineChanges: the Scanners of an engine are woken when its state changes, and not otherwise.
func TestDetectEngineChanges(t *testing.T) {
	u := newUnit(t, theScanner(), aScanner("blog", "default"))
	woken := u.scanners.Wakeups.SubscribeScanners()
	for _, step := range []struct {
		name   string
		change func()
		want   int
	}{
		{"the first look", func() {}, 0},
		{"nothing", func() {}, 0},
		{"a problem with the data", func() { u.engine.problem = "the listing cannot be read" }, 2},
		{"the same problem", func() {}, 0},
		{"newer data", func() { u.engine.version.Version = "v2" }, 2},
		{"an error", func() { u.engine.versionErr = errors.New("no answer") }, 2},
		{"no error any more", func() { u.engine.versionErr, u.engine.problem = nil, "" }, 2},
	} {
		step.change()
		u.must(u.scanners.DetectEngineChanges(t.Context()))
		got := map[string]bool{}
		for len(woken) > 0 {
			event := <-woken
			got[event.Object.(*v1alpha1.Scanner).Namespace] = true
		}
		if len(got) != step.want {
			t.Errorf("%s: %d Scanners are woken up, want %d", step.name, len(got), step.want)
		}
	}
}
