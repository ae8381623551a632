package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testConcurrentReaders checks that readers see a report as it was before or after a change, never in between, whatever is
// written concurrently.
func (on suite) testConcurrentReaders(t *testing.T) {
	const writers, rounds, size = 3, 20, 40
	f := on.newStore(t)
	f.use(t, "scanner", "shared", workload("api", "docker.io/library/api"))
	f.saveCatalogs(t, "shared")
	var group sync.WaitGroup
	stop := make(chan struct{})
	for w := range writers {
		group.Go(func() {
			for round := range rounds {
				// All findings of a report are in packages of the same name, so a mix of two reports is detected.
				findings := make([]finding.Finding, size)
				for i := range findings {
					findings[i] = vulnerable(fmt.Sprintf("CVE-2026-%04d", i), fmt.Sprintf("writer-%d-round-%d", w, round))
				}
				if _, err := f.SaveReport(t.Context(), report("shared", findings...), ""); err != nil {
					t.Error(err)
				}
				if err := f.SetUsage(t.Context(), used("scanner", fmt.Sprint(w, round), workload(fmt.Sprint(w), "r"))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var readersDone sync.WaitGroup
	for range 3 {
		readersDone.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					checkWhole(t, f, size)
				}
			}
		})
	}
	group.Wait()
	close(stop)
	readersDone.Wait()
}

func checkWhole(t *testing.T, f fixture, size int) {
	findings, err := f.Findings(t.Context(), subject("shared"))
	if errors.Is(err, store.ErrNotFound) {
		return // nothing is saved yet
	}
	if err != nil || len(findings) != size {
		t.Errorf("got %d findings (%v), want the %d of one report", len(findings), err, size)
		return
	}
	for _, one := range findings {
		if one.Package.Name != findings[0].Package.Name {
			t.Errorf("a report has findings of %s and of %s, want those of one", findings[0].Package.Name, one.Package.Name)
		}
	}
	_, total, err := f.PendingChanges(t.Context(), "scanner", "slack", store.ChangeFilter{}, 1)
	if err != nil || total != size {
		t.Errorf("got %d news (%v), want the %d of one report", total, err, size)
	}
}

// testSnapshot checks that all reads of a snapshot see the same state, whatever is written meanwhile, and that later reads do not.
func (on suite) testSnapshot(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web")
	save := func(findings ...finding.Finding) {
		t.Helper()
		if _, err := f.SaveReport(t.Context(), report("web", findings...), ""); err != nil {
			t.Fatal(err)
		}
	}
	// In one transaction, in another one, and in a single statement.
	state := func(ctx context.Context) string {
		t.Helper()
		page, err := f.FindingsPage(ctx, subject("web"), store.FindingFilter{}, store.FindingCursor{}, 10)
		findings, listErr := f.Findings(ctx, subject("web"))
		revision, revisionErr := f.Revision(ctx)
		if err := errors.Join(err, listErr, revisionErr); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(page.Total, len(findings), revision)
	}
	save(vulnerable("CVE-2026-0001", "zlib"))
	before := state(t.Context())
	failure := errors.New("the error of the work")
	err := f.InSnapshot(t.Context(), func(ctx context.Context) error {
		first := state(ctx)
		save(vulnerable("CVE-2026-0001", "zlib"), vulnerable("CVE-2026-0002", "zlib"))
		if again := state(ctx); first != before || again != first {
			t.Errorf("the snapshot is %q and then %q, want %q", first, again, before)
		}
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("the error is %v, want that of the work", err)
	}
	if after := state(t.Context()); after == before {
		t.Errorf("after the snapshot the state is %q, want what was written meanwhile", after)
	}
}

func (on suite) testConcurrentLeases(t *testing.T) {
	const images, workers = 60, 4
	f := on.newStore(t)
	for i := range images {
		f.saveCatalogs(t, fmt.Sprint(i))
		f.use(t, "scanner", fmt.Sprint(i))
	}
	var mutex sync.Mutex
	lent := make(map[string]int)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for {
				leases, err := f.LeaseMatches(t.Context(), grype, fmt.Sprint("job ", w), 7, f.clock.Now(), f.clock.Now().Add(1e9))
				if err != nil {
					t.Error(err)
				}
				if len(leases) == 0 {
					return
				}
				mutex.Lock()
				for _, lease := range leases {
					lent[lease.PlatformDigest]++
				}
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	if len(lent) != images {
		t.Errorf("%d images were lent, want %d", len(lent), images)
	}
	for digest, n := range lent {
		if n != 1 {
			t.Errorf("image %s was lent %d times at once", digest, n)
		}
	}
}

func (on suite) testSlowReaderBlocksNobody(t *testing.T) {
	f := on.newStore(t)
	content := func() map[store.Artifact]io.Reader {
		return map[store.Artifact]io.Reader{store.ArtifactSBOM: bytes.NewReader(make([]byte, 3*chunkBytes))}
	}
	must(t, f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), content()))
	reader, _, err := f.OpenArtifact(t.Context(), digest("app"), store.Cluster, store.ArtifactSBOM)
	must(t, err)
	defer reader.Close()
	got[int](t)(reader.Read(make([]byte, 10)))
	// There are more open readers than a store has connections.
	for range 8 {
		other, _, err := f.OpenArtifact(t.Context(), digest("app"), store.Cluster, store.ArtifactSBOM)
		must(t, err)
		defer other.Close()
	}
	must(t, f.SaveCatalog(t.Context(), catalogOf("other", f.clock.Now()), content()))
	if n := got[int64](t)(io.Copy(io.Discard, reader)); n != 3*chunkBytes-10 {
		t.Errorf("the rest of the artifact has %d bytes, want %d", n, 3*chunkBytes-10)
	}
}

func zeros(n int64) io.Reader {
	return io.LimitReader(readerFunc(func(p []byte) (int, error) {
		clear(p)
		return len(p), nil
	}), n)
}

// testTheWriterIsShared checks that large reports of one namespace, or of the cluster, leave most of the time to others who write meanwhile: these get
// many turns for each report.
func (on suite) testTheWriterIsShared(t *testing.T) {
	const size, rounds, turns = 1000, 3, 4
	versions := make([][]finding.Finding, 2)
	for v := range versions {
		for i := range size {
			versions[v] = append(versions[v], vulnerable(fmt.Sprintf("CVE-2026-%04d", i), fmt.Sprintf("package-%d", v)))
		}
	}
	for name, save := range map[string]func(fixture, int) error{
		"of a namespace": func(f fixture, round int) error {
			r := report("app", versions[round%2]...)
			r.Scope = "shop"
			_, err := f.SaveReport(t.Context(), r, "")
			return err
		},
		"of the cluster": func(f fixture, round int) error {
			_, err := f.SaveReport(t.Context(), report("app", versions[round%2]...), "")
			return err
		},
		"of another tool": func(f fixture, round int) error {
			r := externalReport(externalKey("shop"), f.clock.Now(), fmt.Sprint(round), versions[round%2]...)
			_, err := f.SaveExternalReport(t.Context(), r, func(*store.ExternalState) error { return nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := on.newStore(t)
			ctx, stop := context.WithCancel(t.Context())
			var others, reports sync.WaitGroup
			written := 0
			others.Go(func() {
				for ; ctx.Err() == nil; written++ {
					if err := f.SetUsage(t.Context(), used("scanner", "app", workload(fmt.Sprint(written%2), "r"))); err != nil {
						t.Error(err)
						return
					}
				}
			})
			for w := range 2 {
				reports.Go(func() {
					for round := range rounds {
						if err := save(f, round+w); err != nil {
							t.Error(err)
						}
					}
				})
			}
			reports.Wait()
			stop()
			others.Wait()
			if saved := 2 * rounds; written < turns*saved {
				t.Errorf("others wrote %d times during %d reports, want %d times or more", written, saved, turns*saved)
			}
		})
	}
}
