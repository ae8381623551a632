package restapi

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// onServer moves the harness to a store on a server of the benchmark's own, which commits to the disk.
func (w *harness) onServer(name string, open func(context.Context, store.Server, func() time.Time) (*store.Store, error), settings map[string]string) {
	w.t.Helper()
	started, err := server.New(name, server.Options{Settings: settings})
	w.must(err)
	w.t.Cleanup(func() { w.must(started.Close()) })
	dsn, err := started.Create("bench")
	w.must(err)
	db, err := open(w.t.Context(), store.Server{DSN: func() (string, error) { return dsn, nil }, MaxConnections: 10}, w.clock.Now)
	w.must(err)
	w.t.Cleanup(func() { w.must(db.Close()) })
	w.store, w.api.Store = db, db
}

// BenchmarkPutReport saves reports of 5,000 findings over HTTPS. It reports the median and the 95th percentile.
func BenchmarkPutReport(b *testing.B) {
	const findings = 5000
	for _, kind := range []struct {
		name string
		next func(i int) (path, text string, status int)
	}{
		{"first", func(i int) (string, string, int) {
			return reportPath("shop", fmt.Sprint("web", i), "ci"), manyFindings(findings, "CVE-2026", noon), http.StatusCreated
		}},
		{"newer", func(i int) (string, string, int) {
			return reportPath("shop", "web", "ci"), manyFindings(findings, "CVE-2026", noon.Add(time.Duration(i-100_000)*time.Second)), http.StatusOK
		}},
		{"unchanged", func(int) (string, string, int) {
			return reportPath("shop", "web", "ci"), manyFindings(findings, "CVE-2026", noon), http.StatusNoContent
		}},
	} {
		for _, database := range []string{"SQLite", "PostgreSQL"} {
			b.Run(kind.name+"/"+database, func(b *testing.B) {
				w, _ := newFakeHarness(b)
				if database == "PostgreSQL" {
					w.onServer(database, store.OpenPostgreSQL, map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "512MB"})
				}
				if path, text, status := kind.next(0); status != http.StatusCreated {
					w.requireStatus(w.put(path, anyone, text), http.StatusCreated)
				}
				var took []time.Duration
				for i := 1; b.Loop(); i++ {
					path, text, status := kind.next(i)
					w.clock.Step(time.Second) // of the rate limit
					began := time.Now()
					answer := w.put(path, anyone, text)
					took = append(took, time.Since(began))
					w.requireStatus(answer, status)
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
			})
		}
	}
}

// TestMemoryOfALargeReport: the largest body takes a bounded part of the process's memory, which the collector keeps to a limit as in the manager.
func TestMemoryOfALargeReport(t *testing.T) {
	if testing.Short() {
		t.Skip("the memory is not that of a program under the race detector, which takes minutes for so many rows")
	}
	w, _ := newFakeHarness(t)
	text := manyFindings(31_000, "CVE-2026", noon)
	text += strings.Repeat(" ", maxReportBody-len(text))
	requireHeapWithin(t, 100<<20, func() { w.requireStatus(w.put(reportPath("shop", "web", "ci"), anyone, text), http.StatusCreated) })
}

// requireHeapWithin runs something, and fails the test if the heap grows by more than a bound meanwhile.
func requireHeapWithin(t *testing.T, bound int64, run func()) {
	t.Helper()
	grown := heapGrowth(bound, run)
	t.Logf("the heap grew by %d MiB", grown>>20)
	if grown > bound {
		t.Errorf("the heap grew by %d MiB, want at most %d MiB", grown>>20, bound>>20)
	}
}

// heapGrowth runs something, and returns by how many bytes the heap grew at most meanwhile. The collector keeps it to a limit below the bound.
func heapGrowth(bound int64, run func()) int64 { return growths(bound, run, heap)[0] }

// growths does what heapGrowth does, for several kinds of memory.
func growths(bound int64, run func(), kinds ...func() int64) []int64 {
	debug.FreeOSMemory()
	before := make([]int64, len(kinds))
	for i, kind := range kinds {
		before[i] = kind()
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(heap() + bound/10*9))
	stop, peaks := make(chan struct{}), make(chan []int64)
	go func() {
		highest := slices.Clone(before)
		for {
			select {
			case <-time.After(2 * time.Millisecond):
				for i, kind := range kinds {
					highest[i] = max(highest[i], kind())
				}
			case <-stop:
				peaks <- highest
				return
			}
		}
	}()
	run()
	close(stop)
	grown := <-peaks
	for i := range grown {
		grown[i] -= before[i]
	}
	return grown
}

// heap returns the bytes of live and dead objects.
func heap() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
