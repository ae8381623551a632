package store

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// manyFindings returns n findings, three per package: a fifth of them have high severity, and a hundredth are known exploited.
func manyFindings(n, offset int) []finding.Finding {
	severities := []finding.Severity{finding.High, finding.Medium, finding.Low, finding.Negligible, finding.Unknown}
	findings := make([]finding.Finding, n)
	for i := range findings {
		f := vulnerable(fmt.Sprintf("CVE-2026-%05d", i+offset), fmt.Sprintf("package-%d", (i+offset)/3), severity(severities[i%len(severities)]))
		f.Description = "A flaw was found in the way that the library reads its input, which lets a remote attacker do what it should not."
		f.URL = "https://security-tracker.debian.org/tracker/" + f.ID
		f.EPSS = float64(i%1000) / 1000
		f.KnownExploited = i%100 == 99
		f.Advisories = []finding.Advisory{{ID: f.ID, Source: "debian:12", Severity: f.Severity.String(), FixState: f.FixState}}
		findings[i] = f
	}
	return findings
}

// manyImages is a Scanner with images that share nine tenths of their findings with the next image.
func manyImages(b *testing.B, images, findings int) fixture {
	f := newStore(b)
	for i := range images {
		name := fmt.Sprint("image ", i)
		f.saveCatalogs(b, name)
		f.use(b, "scanner", name, workload(fmt.Sprint("app-", i), fmt.Sprint("registry.example.com/team/app-", i)))
		f.report(b, name, manyFindings(findings, i*findings/10)...)
	}
	b.ResetTimer()
	return f
}

func BenchmarkPendingChanges(b *testing.B) {
	filter := ChangeFilter{MinSeverity: finding.High, Unknown: UnknownIfFixable}
	f := manyImages(b, 1000, 500)
	b.Run("nothing announced, a page of 100", func(b *testing.B) {
		for b.Loop() {
			got[any](b)(pendingTotal(b, f, filter, 100))
		}
	})
	b.Run("nothing announced, all severities, a page of 100", func(b *testing.B) {
		for b.Loop() {
			got[any](b)(pendingTotal(b, f, ChangeFilter{Unknown: UnknownAlways}, 100))
		}
	})
	b.Run("nothing announced, all", func(b *testing.B) {
		for b.Loop() {
			got[any](b)(pendingTotal(b, f, filter, 0))
		}
	})
	b.Run("scanner counts", func(b *testing.B) {
		for b.Loop() {
			got[Totals](b)(f.ScannerTotals(b.Context(), "scanner", exception.Set{}))
		}
	})
	changes, _, err := f.PendingChanges(b.Context(), "scanner", "slack", filter, 0)
	must(b, err)
	var keys []AnnouncementKey
	for _, n := range changes {
		keys = append(keys, AnnouncementKey{Repository: n.Repository, ID: n.Finding.ID, Package: n.Finding.Package.Name})
	}
	b.Run("announce", func(b *testing.B) {
		for b.Loop() {
			must(b, f.RecordAnnouncement(b.Context(), "scanner", "slack", Announcement{Findings: announcedFindings(keys...)}))
		}
	})
	b.Run("all announced", func(b *testing.B) {
		for b.Loop() {
			got[any](b)(pendingTotal(b, f, filter, 100))
		}
	})
	b.Run("all announced, after another was", func(b *testing.B) {
		for b.Loop() {
			must(b, f.RecordAnnouncement(b.Context(), "scanner", "slack", Announcement{MessageID: "1"}))
			must(b, f.UpdateAnnouncements(b.Context(), "scanner", "slack", filter, UpdateAll))
			got[any](b)(pendingTotal(b, f, filter, 100))
		}
	})
	b.Run("summary", func(b *testing.B) {
		for b.Loop() {
			got[Summary](b)(f.Summary(b.Context(), subject("image 7"), ImageExceptions{}))
		}
	})
	b.Run("queue", func(b *testing.B) {
		must(b, f.SetDataVersion(b.Context(), grype, DataVersion{Version: "v2"}))
		for b.Loop() {
			leases := got[[]Lease](b)(f.LeaseMatches(b.Context(), grype, "job", 10, f.clock.Now(), f.clock.Now().Add(1)))
			if len(leases) != 10 {
				b.Fatalf("got %d leases, want 10", len(leases))
			}
		}
	})
}

func pendingTotal(b *testing.B, f fixture, filter ChangeFilter, limit int) (any, error) {
	changes, total, err := f.PendingChanges(b.Context(), "scanner", "slack", filter, limit)
	b.ReportMetric(float64(total), "news")
	return changes, err
}

func BenchmarkSaveReport(b *testing.B) {
	for _, n := range []int{500, 50_000} {
		first, second := manyFindings(n, 0), manyFindings(n, n/10)
		b.Run(fmt.Sprintf("%d findings, first", n), func(b *testing.B) {
			f := newStore(b)
			for i := 0; b.Loop(); i++ {
				f.report(b, fmt.Sprint(i), first...)
			}
		})
		b.Run(fmt.Sprintf("%d findings, unchanged", n), func(b *testing.B) {
			f := newStore(b)
			f.report(b, "a", first...)
			for b.Loop() {
				f.report(b, "a", first...)
			}
		})
		b.Run(fmt.Sprintf("%d findings, a tenth changed", n), func(b *testing.B) {
			f := newStore(b)
			for i := 0; b.Loop(); i++ {
				f.report(b, "a", [][]finding.Finding{first, second}[i%2]...)
			}
		})
	}
}

// BenchmarkLongestStep measures the longest time for which a report of 50,000 findings has others wait that write. Run it with -benchtime 1x.
func BenchmarkLongestStep(b *testing.B) {
	const n = 50_000
	first, second, third := manyFindings(n, 0), manyFindings(n, n/10), manyFindings(n, n/10)
	for i := range third {
		fixed(&third[i])
	}
	for _, database := range Databases {
		f := openIn(b, database.New(b))
		f.saveCatalogs(b, "a")
		f.use(b, "scanner", "a", workload("app", "registry.example.com/app"))
		for _, report := range []struct {
			name     string
			findings []finding.Finding
		}{{"first", first}, {"unchanged", first}, {"a tenth changed", second}, {"all changed", third}, {"all gone", nil}, {"all back", third}} {
			b.Run(database.Name+", "+report.name, func(b *testing.B) {
				ctx, stop := context.WithCancel(b.Context())
				longest := make(chan time.Duration)
				go func() {
					var most time.Duration
					for ctx.Err() == nil {
						began := time.Now()
						if release, err := f.turns.Acquire(ctx, ""); err == nil {
							most = max(most, time.Since(began))
							release()
						}
						time.Sleep(time.Millisecond) // others have turns of their own
					}
					longest <- most
				}()
				for b.Loop() {
					f.report(b, "a", report.findings...)
				}
				stop()
				b.ReportMetric(float64((<-longest).Milliseconds()), "ms/longest-wait")
			})
		}
	}
}

// BenchmarkDataAnomaly has a million findings, a quarter of which disappears with one version of the data.
func BenchmarkDataAnomaly(b *testing.B) {
	f := manyImages(b, 1000, 1000)
	b.Run("nothing has gone", func(b *testing.B) {
		for b.Loop() {
			got[*DataAnomaly](b)(f.DataAnomaly(b.Context(), "scanner", grype))
		}
	})
	for i := range 1000 {
		f.reportBy(b, "v2", fmt.Sprint("image ", i), manyFindings(1000, i*100)[250:]...)
	}
	b.Run("a quarter has gone", func(b *testing.B) {
		for b.Loop() {
			if got[*DataAnomaly](b)(f.DataAnomaly(b.Context(), "scanner", grype)) == nil {
				b.Fatal("no anomaly is noticed")
			}
		}
	})
}

// BenchmarkDataAnomalyOfNamespaces has 200 namespaces that upload their own reports and lose findings with each of 14 versions.
func BenchmarkDataAnomalyOfNamespaces(b *testing.B) {
	f := newStore(b)
	for n := range 200 {
		namespace := fmt.Sprint("namespace-", n)
		got[sql.Result](b)(f.writer.ExecContext(b.Context(), `INSERT INTO present_counts (engine, scope, present) VALUES (?, ?, 5000)`, grype, namespace))
		for day := range 14 {
			got[sql.Result](b)(f.writer.ExecContext(b.Context(),
				`INSERT INTO loss_counts (engine, scope, data_version, day, missing, since) VALUES (?, ?, ?, ?, 20, ?)`,
				grype, namespace, fmt.Sprint("v", day), day, millis{f.clock.Now()}))
		}
	}
	for b.Loop() {
		got[*DataAnomaly](b)(f.DataAnomaly(b.Context(), "scanner", grype))
	}
}

// BenchmarkMatchQueue has a thousand Scanners in as many namespaces with ten images each, all of which are due.
func BenchmarkMatchQueue(b *testing.B) {
	const namespaces, images = 1000, 10_000
	f := newStore(b)
	must(b, f.SetDataVersion(b.Context(), grype, DataVersion{Version: "v1"}))
	for i := range images {
		name := fmt.Sprint("image ", i)
		f.saveCatalogs(b, name)
		f.useIn(b, fmt.Sprintf("namespace-%04d", i%namespaces), name)
		f.report(b, name)
	}
	length := func(b *testing.B, want int) {
		for b.Loop() {
			if n := got[int](b)(f.QueueLength(b.Context(), grype)); n != want {
				b.Fatalf("the queue has %d images, want %d", n, want)
			}
		}
	}
	lease := func(b *testing.B, want int) {
		for b.Loop() {
			leases := got[[]Lease](b)(f.LeaseMatches(b.Context(), grype, "job", 2, f.clock.Now(), f.clock.Now().Add(time.Nanosecond)))
			if len(leases) != want {
				b.Fatalf("got %d leases, want %d", len(leases), want)
			}
			f.clock.pass(time.Millisecond)
		}
	}
	b.Run("length, nothing is due", func(b *testing.B) { length(b, 0) })
	b.Run("lease, nothing is due", func(b *testing.B) { lease(b, 0) })
	b.Run("new data", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			must(b, f.SetDataVersion(b.Context(), grype, DataVersion{Version: fmt.Sprint("v1.", i)}))
		}
	})
	b.Run("length, all are due", func(b *testing.B) { length(b, images) })
	b.Run("lease two, all are due", func(b *testing.B) { lease(b, 2) })
	b.Run("lease two, all have failed and are due again", func(b *testing.B) {
		got[sql.Result](b)(f.writer.ExecContext(b.Context(), `UPDATE matchable SET retry_at = 1, failed_at = 1`))
		lease(b, 2)
	})
	b.Run("lease two, of one namespace", func(b *testing.B) {
		got[sql.Result](b)(f.writer.ExecContext(b.Context(), `UPDATE scanner_images SET namespace = 'one'`))
		lease(b, 2)
	})
}

// BenchmarkLeftWorkloads has a Scanner with 100 images, each of which 250 workloads ran last that have ended.
func BenchmarkLeftWorkloads(b *testing.B) {
	f := newStore(b)
	for i := range 100 {
		name, repository := fmt.Sprint("image ", i), fmt.Sprint("registry.example.com/team/app-", i)
		f.saveCatalogs(b, name)
		f.report(b, name, manyFindings(10, i)...)
		usage := used("scanner", name, workload("app", repository))
		for j := range maxLeft {
			usage.Ended = append(usage.Ended, EndedWorkload{Workload: nightly(fmt.Sprint("job-", j), repository), At: f.clock.Now()})
		}
		must(b, f.SetUsage(b.Context(), usage))
	}
	for name, within := range map[string]reach{"running": reachRunning, "in use": reachInUse, "kept": reachKept} {
		b.Run("repositories, "+name, func(b *testing.B) {
			for b.Loop() {
				if found := got[[]runningRepository](b)(loadRunning(b.Context(), f.reading(), "scanner", grype, nil, within)); len(found) != 100 {
					b.Fatalf("%d repositories are found, want 100", len(found))
				}
			}
		})
	}
	b.Run("scanner counts", func(b *testing.B) {
		for b.Loop() {
			got[Totals](b)(f.ScannerTotals(b.Context(), "scanner", exception.Set{}))
		}
	})
}
