package fake

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/backendtest"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newFake(t *testing.T) (*Backend, *clocktesting.FakePassiveClock) {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(noon)
	db, err := storetest.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), clock.Now, store.OpenSQLite)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &Backend{Store: db, Clock: clock}, clock
}

var digest = "sha256:" + strings.Repeat("a", 64)

func img(repository string) backend.Image {
	return backend.Image{
		Key:            image.Key{Digest: digest, Platform: image.Platform{OS: "linux", Architecture: "amd64"}},
		PullReferences: []string{repository + "@" + digest},
	}
}

func counts(t *testing.T, b *Backend) finding.Counts {
	t.Helper()
	summary, err := b.Store.Summary(t.Context(), store.Subject{PlatformDigest: digest, Engine: Engine}, store.ImageExceptions{})
	if err != nil {
		t.Fatal(err)
	}
	return summary.Counts
}

// TestNames: the last path element of the repository selects the findings, as documented in the package comment.
func TestNames(t *testing.T) {
	for repository, want := range map[string]struct {
		says     string
		findings finding.Counts
	}{
		"docker.io/library/nginx":            {"done", finding.Counts{}},
		"registry.example.com/vulnerable":    {"done", finding.Counts{Critical: 1, High: 1, Fixable: 1}},
		"registry.example.com/a-vulnerable":  {"done", finding.Counts{Critical: 1, High: 1, Fixable: 1}},
		"registry.example.com/vulnerable/ok": {"done", finding.Counts{}}, // not the last path element
		"registry.example.com/riddled":       {"done", finding.Counts{Critical: 34, High: 34, Medium: 33, Low: 33, Negligible: 33, Unknown: 33, Fixable: 200}},
		"registry.example.com/riddled-6":     {"done", finding.Counts{Critical: 1, High: 1, Medium: 1, Low: 1, Negligible: 1, Unknown: 1, Fixable: 6}},
		"registry.example.com/riddled-6e9":   {"done", finding.Counts{Critical: 34, High: 34, Medium: 33, Low: 33, Negligible: 33, Unknown: 33, Fixable: 200}},
		"registry.example.com/listed":        {"done", finding.Counts{}},
		"registry.example.com/failing":       {"failure ImageNotFound", finding.Counts{}},
		"registry.example.com/slow":          {v1alpha1.ReasonCataloging, finding.Counts{}},
		"registry.example.com:5000/nginx":    {"done", finding.Counts{}},
	} {
		t.Run(repository, func(t *testing.T) {
			b, _ := newFake(t)
			got, err := catalog(t, b, img(repository))
			var failure *backend.Failure
			says := got.Reason
			switch {
			case errors.As(err, &failure):
				says = "failure " + failure.Reason
			case err != nil:
				t.Fatal(err)
			case got.Done:
				says = "done"
			}
			if says != want.says {
				t.Fatalf("index says %q, want %q", says, want.says)
			}
			if says != "done" {
				return
			}
			if got, err := match(t, b, img(repository)); err != nil || !got.Done {
				t.Fatalf("match says %+v, %v, want done", got, err)
			}
			if diff := cmp.Diff(want.findings, counts(t, b)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func catalog(t *testing.T, b *Backend, img backend.Image) (backend.Progress, error) {
	return backendtest.Caller{Store: b.Store, Now: b.Clock.Now}.Catalog(t.Context(), b, img)
}

func match(t *testing.T, b *Backend, img backend.Image) (backend.Progress, error) {
	return backendtest.Caller{Store: b.Store, Now: b.Clock.Now}.Match(t.Context(), b, img)
}

// TestLevelTriggered: repeated calls write nothing.
func TestLevelTriggered(t *testing.T) {
	b, clock := newFake(t)
	look := func() store.Summary {
		t.Helper()
		if _, err := catalog(t, b, img("vulnerable")); err != nil {
			t.Fatal(err)
		}
		if _, err := match(t, b, img("vulnerable")); err != nil {
			t.Fatal(err)
		}
		summary, err := b.Store.Summary(t.Context(), store.Subject{PlatformDigest: digest, Engine: Engine}, store.ImageExceptions{})
		if err != nil {
			t.Fatal(err)
		}
		return summary
	}
	first := look()
	clock.SetTime(noon.Add(time.Hour))
	if diff := cmp.Diff(first, look()); diff != "" {
		t.Errorf("the second look changes the report:\n%s", diff)
	}
}

// TestPublish: published findings appear in vulnerable images once these are matched again.
func TestPublish(t *testing.T) {
	b, clock := newFake(t)
	if _, err := catalog(t, b, img("vulnerable")); err != nil {
		t.Fatal(err)
	}
	before, err := b.DataVersion(t.Context())
	if err != nil || !before.Built.Equal(noon) || before.Tool != Engine {
		t.Fatalf("data version %+v, %v", before, err)
	}
	if _, err := match(t, b, img("vulnerable")); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(noon.Add(time.Hour))
	b.Publish(Finding("CVE-2026-0001", finding.Critical, "curl", "8.1"))
	after, err := b.DataVersion(t.Context())
	if err != nil || after.Version == before.Version || !after.Built.After(before.Built) {
		t.Errorf("the data version is %+v after %+v, %v", after, before, err)
	}
	if _, err := match(t, b, img("vulnerable")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(finding.Counts{Critical: 2, High: 1, Fixable: 2}, counts(t, b)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestNoReference: an image without pull references is matched by its digest, and is clean.
func TestNoReference(t *testing.T) {
	b, _ := newFake(t)
	nameless := img("x")
	nameless.PullReferences = nil
	if got, err := catalog(t, b, nameless); err != nil || !got.Done {
		t.Errorf("index says %+v, %v, want done", got, err)
	}
}

// TestIndexedOnce: when Scanners of many namespaces request an image at once, it is indexed and logged once.
func TestIndexedOnce(t *testing.T) {
	b, _ := newFake(t)
	var reported atomic.Int32
	b.Log = funcr.New(func(_, args string) {
		if strings.Contains(args, IndexedMessage) {
			reported.Add(1)
		}
	}, funcr.Options{})
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if progress, err := catalog(t, b, img("registry.example.com/vulnerable")); err != nil || !progress.Done {
				t.Errorf("index says %+v, %v, want done", progress, err)
			}
		})
	}
	group.Wait()
	if reported.Load() != 1 {
		t.Errorf("the image was indexed %d times, want once", reported.Load())
	}
}
