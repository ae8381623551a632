package clair

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

// TestFixedByTheSameUpdaterADayLater: a missing finding is fixed if its own updater completes a day later and still lacks it. Another
// updater, or the same one earlier, proves nothing.
func TestFixedByTheSameUpdaterADayLater(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Config.Clair.Instances[0].Updaters = []string{"debian/updater"} }) // no pattern, so the data is complete at once
	w.clair.update("alpine/updater", noon.Add(-time.Hour))
	shop := w.scanner("shop")
	img := w.run(shop, "web", w.push("web", registrytest.Image(t, files("base"))))
	w.scan(shop, img)
	w.clair.change(func() { w.clair.advisories = nil }) // all of them are from debian/updater
	for n, step := range []struct {
		later   time.Duration
		updater string
		restart bool
		want    bool
	}{
		{0, "debian/updater", false, false},
		{time.Minute, "alpine/updater", false, false},
		{time.Hour, "debian/updater", false, false},
		{24 * time.Hour, "alpine/updater", false, false},
		{time.Hour, "alpine/updater", true, false},
		{time.Hour, "debian/updater", false, true},
	} {
		w.advance(step.later)
		if step.restart {
			w.start()
		}
		before := len(w.clair.read())
		w.clair.update(step.updater, w.clock.Now())
		w.requestPoll(shop)
		w.Expect(len(w.clair.read())).To(BeNumerically(">", before))
		w.scan(shop, img)
		cataloged, err := w.store.Catalog(t.Context(), w.For(shop).Engine(), img.Key, img.Scope)
		w.must(err)
		page, err := w.store.FindingsPage(t.Context(), store.Subject{PlatformDigest: cataloged.PlatformDigest, Scope: img.Scope, Engine: cataloged.Engine},
			store.FindingFilter{Gone: true}, store.FindingCursor{}, 10)
		w.must(err)
		w.Expect(page.Findings).To(HaveLen(1))
		if fixed := !page.Findings[0].FixedAt.IsZero(); fixed != step.want {
			t.Errorf("step %d, %s after noon, when %s has come to an end: fixed is %t, want %t", n, w.clock.Since(noon), step.updater, fixed, step.want)
		}
	}
}

// TestCompletionTimes: an updater's completion time is Clair's time or the time at which it was observed, whichever is earlier.
func TestCompletionTimes(t *testing.T) {
	w := newWorld(t)
	i := w.instances[w.clair.server.URL]
	ended := func() time.Time {
		i.mu.Lock()
		defer i.mu.Unlock()
		return i.data.completed["debian/updater"]
	}
	shop := w.scanner("shop")
	w.requestPoll(shop)
	w.Expect(ended()).To(BeTemporally("==", noon.Add(-time.Hour)))
	w.clair.update("debian/updater", noon.Add(1000*time.Hour))
	w.requestPoll(shop)
	seen := ended()
	w.Expect(seen).To(BeTemporally("==", w.clock.Now()))
	w.advance(time.Hour)
	w.requestPoll(shop)
	w.Expect(ended()).To(BeTemporally("==", seen))
}
