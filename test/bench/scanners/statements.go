package scanners

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	engine = "grype"
	// findings is the number of findings of an image. Groups of ten images share their findings, like images with a common base.
	findings = 60
	// sbomBytes is the size of an SBOM in the store: that of a typical image, compressed.
	sbomBytes = 64 << 10
	// rounds is the number of repetitions of queries about everything, and the number of Scanners in queries about one Scanner.
	rounds = 100
	// leased is the number of matches that are leased at a time, as by a match worker.
	leased = 4
)

// statement is a method of the store, with the time of each call.
type statement struct {
	name      string
	cpu, took []time.Duration
	// several reports whether the call has more than one transaction. Other transactions can run in between, so the bound for one
	// statement does not apply.
	several bool
}

func (s statement) median() time.Duration {
	return slices.Sorted(slices.Values(s.cpu))[len(s.cpu)/2]
}

// stopwatch collects statements in the order of their first calls.
type stopwatch struct {
	statements []statement
	err        error
}

// call measures a call. After an error it does nothing.
func (w *stopwatch) call(name string, do func() error) {
	if w.err != nil {
		return
	}
	i := slices.IndexFunc(w.statements, func(s statement) bool { return s.name == name })
	if i < 0 {
		i = len(w.statements)
		w.statements = append(w.statements, statement{name: name})
	}
	began, before := time.Now(), processorTime()
	if err := do(); err != nil {
		w.err = fmt.Errorf("%s: %w", name, err)
	}
	s := &w.statements[i]
	s.cpu, s.took = append(s.cpu, processorTime()-before), append(s.took, time.Since(began))
}

// processorTime returns the processor time of this process. The process does nothing else meanwhile, and other processes do not affect
// it.
func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // fails only for a wrong argument
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// measureStatements fills a store and runs a rematch on it.
func measureStatements(ctx context.Context, progress func(format string, args ...any)) (_ []statement, err error) {
	dir, err := os.MkdirTemp("", "bench-scanners-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := store.OpenSQLite(ctx, filepath.Join(dir, "store.db"), time.Now)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	progress("a store of %d Scanners with %d images each", scanners, images)
	w := &stopwatch{}
	fill(ctx, db, w)
	announce(ctx, db, w)
	progress("a rematch")
	queryAll(ctx, db, w, "")
	w.call("SetDataVersion", func() error { return db.SetDataVersion(ctx, engine, version(2)) })
	queryAll(ctx, db, w, ", all due")
	rematch(ctx, db, w)
	follow(ctx, db, w)
	queryAll(ctx, db, w, "")
	runSweep(ctx, db, w)
	return w.statements, w.err
}

func version(n int) store.DataVersion {
	return store.DataVersion{Version: fmt.Sprint("v", n), Built: time.Now(), Tool: engine}
}

func scannerUID(i int) string { return fmt.Sprintf("scanner-%04d", i%scanners) }

func digest(i int) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, "image %d", i)))
}

func key(i int) image.Key {
	return image.Key{Digest: digest(i), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
}

func used(i int) store.ImageUsage {
	namespace, name := fmt.Sprintf("team-%04d", i%scanners), fmt.Sprintf("service-%d", i/scanners)
	repository := "registry.example.com/" + namespace + "/" + name
	return store.ImageUsage{
		Scanner: scannerUID(i), Namespace: namespace, Key: key(i), Engine: engine, Workloads: []store.Workload{{
			Namespace: namespace, Kind: "Deployment", Name: name, Container: "main", Repository: repository, Reference: repository + ":1",
		}},
	}
}

// report returns the report of an image with a version of the data. The second version lacks a tenth of the findings.
func report(i, n int) store.Report {
	all := make([]finding.Finding, 0, findings)
	for f := (n - 1) * findings / 10; f < findings; f++ {
		id := i/10*findings + f
		name := fmt.Sprintf("library-%d", f/3)
		all = append(all, finding.Finding{
			ID: fmt.Sprintf("CVE-2026-%05d", id%20_000), Severity: finding.Severity(f % 5), FixState: finding.FixStateFixed, FixVersions: []string{"1.2.3"},
			Package: finding.Package{Name: name, Version: "1.2.2", Type: "deb", PURL: "pkg:deb/debian/" + name + "@1.2.2"},
		})
	}
	return store.Report{
		Subject: store.Subject{PlatformDigest: digest(i), Engine: engine}, DataVersion: version(n).Version, MatchedAt: time.Now(), Findings: all,
	}
}

// fill catalogs every image by a Job in its Scanner's namespace, and matches it.
func fill(ctx context.Context, db *store.Store, w *stopwatch) {
	w.call("SetDataVersion", func() error { return db.SetDataVersion(ctx, engine, version(1)) })
	for i := range scanners * images {
		result := jobResult(i)
		w.call("SetUsed", func() error { return db.SetUsage(ctx, used(i)) })
		w.call("SaveJob", func() error {
			return db.SaveJob(ctx, store.Job{
				Namespace: result.Namespace, Name: result.JobUID, UID: result.JobUID, Purpose: store.JobCatalog, Key: key(i), CreatedAt: time.Now(), Scanner: scannerUID(i),
			})
		})
		w.call("StoredBytes", func() error { _, err := db.StoredBytes(ctx, result.Namespace); return err })
		w.call("SaveJobResult", func() error { _, err := db.SaveJobResult(ctx, result); return err })
		w.call("SaveManifest", func() error {
			return db.SaveManifest(ctx, store.Manifest{Engine: engine, PlatformDigest: digest(i), AddedByOperator: true})
		})
		w.call("SaveReport, the first", func() error { _, err := db.SaveReport(ctx, report(i, 1), ""); return err })
	}
}

// jobResult is the result that a catalog Job uploads for an image.
func jobResult(i int) store.JobResult {
	return store.JobResult{
		Catalog: store.Catalog{Engine: engine, Key: key(i), PlatformDigest: digest(i), Packages: 150, Tool: "syft", Namespace: used(i).Namespace},
		JobUID:  fmt.Sprintf("catalog-%05d", i), Digest: digest(i), Budget: 1 << 30, Size: sbomBytes,
		Artifacts: map[store.Artifact]io.Reader{store.ArtifactSBOM: io.LimitReader(rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}), sbomBytes)},
	}
}

// queryAll runs the queries of an idle operator, for all and for some Scanners.
func queryAll(ctx context.Context, db *store.Store, w *stopwatch, when string) {
	for i := range rounds {
		scanner := scannerUID(i * scanners / rounds)
		w.call("QueueLength"+when, func() error { _, err := db.QueueLength(ctx, engine); return err })
		w.call("StoredByNamespace", func() error { _, err := db.StoredByNamespace(ctx); return err })
		w.call("ScannerImages", func() error { _, err := db.ScannerImages(ctx, ""); return err })
		w.call("ImagesInUse", func() error { _, err := db.ImagesInUse(ctx, engine); return err })
		w.call("Scanners", func() error { _, err := db.Scanners(ctx); return err })
		queryScanner(ctx, db, w, scanner)
		w.call("SetUsed, as before", func() error { return db.SetUsage(ctx, used(i)) })
		w.call("Summary", func() error { _, err := db.Summary(ctx, report(i, 1).Subject, store.ImageExceptions{}); return err })
	}
}

// filter is the filter of every receiver.
var filter = store.ChangeFilter{MinSeverity: finding.High, Unknown: store.UnknownIfFixable, Engine: engine}

func queryScanner(ctx context.Context, db *store.Store, w *stopwatch, scanner string) {
	w.call("Reported", func() error { _, err := db.ReportAges(ctx, scanner, engine); return err })
	w.call("RecentImages", func() error { _, err := db.RecentImages(ctx, scanner, engine); return err })
	w.call("ScannerTotals", func() error { _, err := db.ScannerTotals(ctx, scanner, exception.Set{}); return err })
	w.call("DataAnomaly", func() error { _, err := db.DataAnomaly(ctx, scanner, engine); return err })
	w.call("HoldsManifests", func() error { _, err := db.HoldsManifests(ctx, engine, scanner); return err })
	w.call("FollowUp", func() error { return db.UpdateAnnouncements(ctx, scanner, "team", filter, store.UpdateAll) })
	w.call("News", func() error { _, _, err := db.PendingChanges(ctx, scanner, "team", filter, 100); return err })
	w.call("KeepReceivers", func() error { return db.RetainReceivers(ctx, scanner, []string{"team"}) })
}

// announce sends the first summaries to the receivers of some Scanners. As in the notification loop, one transaction reads and records
// the present findings.
func announce(ctx context.Context, db *store.Store, w *stopwatch) {
	for i := range rounds {
		scanner := scannerUID(i * scanners / rounds)
		w.call("Present", func() error { _, err := db.Present(ctx, scanner, "team", filter, 10); return err })
		w.call("DecideAndMark, a summary", func() error {
			return db.DecideAndRecord(ctx, scanner, "team", func(ctx context.Context) (store.Announcement, error) {
				present, err := db.Present(ctx, scanner, "team", filter, 10)
				all := &store.FilteredSnapshot{Filter: filter, SnapshotID: present.SnapshotID}
				return store.Announcement{MessageID: "summary", At: time.Now(), Snapshot: all, Repositories: present.Repositories}, err
			})
		})
		w.call("BeginDelivery", func() error { _, err := db.BeginDelivery(ctx, scanner, "team", []byte("{}")); return err })
	}
}

// follow sends the same receivers a message about one image with ten new findings.
func follow(ctx context.Context, db *store.Store, w *stopwatch) {
	for i := range rounds {
		image := i * scanners / rounds
		scanner := scannerUID(image)
		w.call("RequestMatch", func() error { return db.RequestMatch(ctx, report(image, 2).Subject) })
		newer := report(image, 2)
		for n := range 10 {
			added := newer.Findings[0]
			added.ID, added.Severity = fmt.Sprintf("CVE-2027-%05d", n), finding.Critical
			newer.Findings = append(newer.Findings, added)
		}
		w.call("SaveReport, with new findings", func() error { _, err := db.SaveReport(ctx, newer, ""); return err })
		var announced []store.AnnouncedFinding
		w.call("News, of ten", func() error {
			news, _, err := db.PendingChanges(ctx, scanner, "team", filter, 100)
			for _, n := range news {
				key := store.AnnouncementKey{Repository: n.Repository, ID: n.Finding.ID, Package: n.Finding.Package.Name}
				announced = append(announced, store.AnnouncedFinding{AnnouncementKey: key, Change: n.Change, Severity: n.Finding.Severity})
			}
			return err
		})
		if len(announced) < 10 && w.err == nil {
			w.err = fmt.Errorf("%s has %d new findings to announce, want 10", scanner, len(announced))
		}
		w.call("MarkAnnounced", func() error {
			return db.RecordAnnouncement(ctx, scanner, "team", store.Announcement{MessageID: "message", At: time.Now(), Findings: announced})
		})
	}
}

// rematch processes the queue as match workers do, and checks for anomalies after each report as Scanners do.
func rematch(ctx context.Context, db *store.Store, w *stopwatch) {
	byDigest := make(map[string]int, scanners*images)
	for i := range scanners * images {
		byDigest[digest(i)] = i
	}
	for done := 0; done < scanners*images && w.err == nil; {
		var leases []store.Lease
		w.call("LeaseMatches", func() (err error) {
			leases, err = db.LeaseMatches(ctx, engine, "job", leased, time.Now(), time.Now().Add(10*time.Minute))
			return err
		})
		if len(leases) == 0 && w.err == nil {
			w.err = fmt.Errorf("the queue is empty after %d of %d images", done, scanners*images)
		}
		for _, lease := range leases {
			i := byDigest[lease.PlatformDigest]
			w.call("SaveReport", func() error { _, err := db.SaveReport(ctx, report(i, 2), lease.ID); return err })
			w.call("DataAnomaly, after a report", func() error { _, err := db.DataAnomaly(ctx, scannerUID(i), engine); return err })
			done++
		}
	}
}

// runSweep runs the sweep, with nothing and with something to delete.
func runSweep(ctx context.Context, db *store.Store, w *stopwatch) {
	w.call("Sweep, nothing to delete", func() error { _, err := db.Sweep(ctx, time.Now()); return err })
	w.call("ForgetScanners", func() error { return db.DeleteScanners(ctx, []string{scannerUID(0)}) })
	const sweep = "Sweep of ten images"
	w.call(sweep, func() error { _, err := db.Sweep(ctx, time.Now()); return err })
	if i := slices.IndexFunc(w.statements, func(s statement) bool { return s.name == sweep }); i >= 0 {
		w.statements[i].several = true
	}
}
