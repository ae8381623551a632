package clair

import (
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

func queuedImage(namespace, scanner, digest string) backend.Image {
	return backend.Image{Key: image.Key{Digest: digest, Platform: amd64}, Namespace: namespace, Scanner: scanner}
}

// TestSlots: which images get a slot.
func TestSlots(t *testing.T) {
	var l indexQueue
	ready := func(*task) bool { return true }
	for _, img := range []backend.Image{queuedImage("shop", "one", "a"), queuedImage("shop", "two", "a"), queuedImage("shop", "one", "b"), queuedImage("shop", "one", "c")} {
		l.enqueue(img, nil)
	}
	a := l.dequeue(2, ready)
	b := l.dequeue(2, ready)
	if a.img.Key.Digest != "a" || b.img.Key.Digest != "b" {
		t.Fatalf("places went to %s and %s: one image must not be indexed twice at a time", a.img.Key, b.img.Key)
	}
	if more := l.dequeue(2, ready); more != nil {
		t.Errorf("%s got a place beyond what a namespace may have", more.img.Key)
	}
	if !l.enqueue(queuedImage("shop", "one", "a"), nil) {
		t.Error("an image that is being indexed waits in the line")
	}
	l.release(a, true)
	if next := l.dequeue(2, ready); next.img.Scanner != "two" {
		t.Errorf("%s of %s came next: whoever is tried again comes last", next.img.Key, next.img.Scanner)
	}
	l.release(b, false)
	if next := l.dequeue(2, func(t *task) bool { return t.img.Key.Digest == "c" }); next == nil || next.img.Key.Digest != "c" {
		t.Errorf("%v came next: who is not ready keeps nobody waiting", next)
	}
}

// TestKeepScanners: images of deleted Scanners leave the queue.
func TestKeepScanners(t *testing.T) {
	var l indexQueue
	ready := func(*task) bool { return true }
	for _, img := range []backend.Image{queuedImage("shop", "gone", "a"), queuedImage("shop", "gone", "b"), queuedImage("shop", "stays", "c"), queuedImage("blog", "gone", "d")} {
		l.enqueue(img, nil)
	}
	running := l.dequeue(2, ready)
	l.keepScanners([]string{"stays"})
	if len(l.tasks) != 2 || l.length() != 1 {
		t.Errorf("there are %d tasks, %d of them waiting, want one that runs and one that waits", len(l.tasks), l.length())
	}
	if next := l.dequeue(2, ready); next == nil || next.img.Scanner != "stays" {
		t.Errorf("%v came next, want that of the Scanner that stays", next)
	}
	l.release(running, true)
	if l.keepScanners(nil); len(l.tasks) != 1 {
		t.Errorf("there are %d tasks, want the one that runs", len(l.tasks))
	}
}

// TestUpdaterPatterns: "*" stands for any characters, and nothing else is special.
func TestUpdaterPatterns(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"debian/updater", "debian/updater", true},
		{"debian/updater", "debian/updater2", false},
		{"debian/*", "debian/updater", true},
		{"*", "osv/go", true},
		{"osv/*", "osv/", true},
		{"*/go", "osv/go", true},
		{"*/go", "osv/gopher", false},
		{"alpine-*-v3.*-updater", "alpine-main-v3.19-updater", true},
		{"alpine-*-v3.*-updater", "alpine-main-v2.19-updater", false},
		{"a*a", "a", false},
		{"a*b*a", "aba", true},
		{"osv?go", "osv/go", false},
		{"[o]sv/go", "osv/go", false},
	} {
		if got := matches(tt.pattern, tt.name); got != tt.want {
			t.Errorf("pattern %q fits %q: %v", tt.pattern, tt.name, got)
		}
	}
}
