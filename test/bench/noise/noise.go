// Package noise counts messages. It replays a year of daily vulnerability data for 300 images with the real planner and store and a
// simulated clock, and counts the messages that other tools would send for the same reports.
package noise

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

const (
	images     = 300
	namespaces = 10
	// daysBetweenBuilds is the interval at which an image is rebuilt with the fixes of that day.
	daysBetweenBuilds = 30
	engine            = "grype"
	seed              = 1
)

// app is an image repository with one workload.
type app struct {
	repository, namespace, distribution string
	packages                            []string
	built                               int
	lastFindings                        map[string]bool // findings of the last report, by finding.Key
	// last is the hash of the last report, repeated the number of consecutive reports equal to it.
	last     [sha256.Size]byte
	repeated int
}

func (a *app) digest() string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, "%s %d", a.repository, a.built)))
}

func (a *app) key() image.Key {
	return image.Key{Digest: a.digest(), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
}

// replay is the state of a year in progress.
type replay struct {
	year  year
	apps  []*app
	store *store.Store
	now   time.Time
	sent  counts
}

// counts are the numbers of messages, by sender.
type counts struct {
	// byDefault counts the operator's messages for a receiver with default settings, everything those for a receiver of all changes.
	// findings is the number of changes in the messages with default settings.
	byDefault, everything, findings int
	// perReport counts one message for each report, perManifest one for each image and data update that changes its findings.
	perReport, perManifest int
	// largest is the highest number of messages with default settings on one day.
	largest int
}

// Measure replays the year and returns the section of the page.
func Measure(ctx context.Context, root string, progress func(format string, args ...any)) (section page.Section, err error) {
	published, err := templates(filepath.Join(root, "test", "fixtures", "advisories"))
	if err != nil {
		return section, err
	}
	// Durations do not matter here, and a store in memory is faster.
	dir, err := os.MkdirTemp("/dev/shm", "bench-noise-")
	if err != nil {
		return section, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	random := rand.New(rand.NewPCG(seed, seed)) // a fixed seed gives the same year each time
	r := &replay{year: newYear(published, random), now: dayTime(0)}
	r.apps = newApps(published, random)
	if r.store, err = store.OpenSQLite(ctx, filepath.Join(dir, "store.db"), func() time.Time { return r.now }); err != nil {
		return section, err
	}
	defer func() { err = errors.Join(err, r.store.Close()) }()
	for day := range days {
		if day%30 == 0 {
			progress("day %d", day)
		}
		if err := r.live(ctx, day); err != nil {
			return section, fmt.Errorf("day %d: %w", day, err)
		}
	}
	return describe(r), nil
}

// newApps distributes the images over distributions and namespaces.
func newApps(published map[string][]template, random *rand.Rand) (apps []*app) {
	shares := []string{"debian-12", "debian-12", "debian-12", "alpine-3.18", "rhel-9"}
	for i := range images {
		a := &app{
			repository: fmt.Sprintf("registry.example.com/app-%03d", i), namespace: fmt.Sprintf("team-%d", i%namespaces),
			distribution: shares[i%len(shares)], built: -random.IntN(daysBetweenBuilds),
		}
		for _, pkg := range packagesOf(published[a.distribution]) {
			if random.Float64() < 0.7 {
				a.packages = append(a.packages, pkg)
			}
		}
		apps = append(apps, a)
	}
	return apps
}

// live replays one day: new data, reports of all images including rebuilt ones, and then the messages.
func (r *replay) live(ctx context.Context, day int) error {
	r.now = dayTime(day)
	version := fmt.Sprintf("day %d", day)
	if err := r.store.SetDataVersion(ctx, engine, store.DataVersion{Version: version, Built: r.now, Tool: "grype 0.110.0"}); err != nil {
		return err
	}
	for _, a := range r.apps {
		if day-a.built >= daysBetweenBuilds {
			if err := r.rollOut(ctx, a, day); err != nil {
				return err
			}
		} else if day == 0 {
			if err := r.run(ctx, a); err != nil {
				return err
			}
		}
		if err := r.report(ctx, a, version, day); err != nil {
			return err
		}
	}
	return r.deliverAll(ctx, day)
}

func (r *replay) rollOut(ctx context.Context, a *app, day int) error {
	if err := r.store.ReleaseImage(ctx, store.ScannerImage{Scanner: a.namespace, Namespace: a.namespace, Key: a.key()}, false); err != nil {
		return err
	}
	a.built, a.lastFindings, a.last, a.repeated = day, nil, [sha256.Size]byte{}, 0
	return r.run(ctx, a)
}

func (r *replay) run(ctx context.Context, a *app) error {
	return r.store.SetUsage(ctx, store.ImageUsage{
		Scanner: a.namespace, Namespace: a.namespace, Key: a.key(), Engine: engine,
		Workloads: []store.Workload{{
			Namespace: a.namespace, Kind: "Deployment", Name: a.repository, Container: "main",
			Repository: a.repository, Reference: fmt.Sprintf("%s:%d", a.repository, a.built),
		}},
	})
}

// report saves the day's report of an image and counts the messages that other tools would send for it.
func (r *replay) report(ctx context.Context, a *app, version string, day int) error {
	findings := r.year.findings(a.distribution, a.packages, a.built, day)
	if a.lastFindings == nil {
		// The store needs the catalog of an image before its reports.
		if err := r.store.SaveCatalog(ctx, store.Catalog{
			Engine: engine, Key: a.key(), PlatformDigest: a.digest(), Tool: "syft 1.42.3", CatalogedAt: r.now,
		}, nil); err != nil {
			return err
		}
	}
	r.sent.perReport++
	if changes(a, findings) {
		r.sent.perManifest++
	}
	// After three equal reports in a row, a further one would change only its date in the store.
	if sum := sha256.Sum256(fmt.Appendf(nil, "%+v", findings)); sum == a.last {
		a.repeated++
	} else {
		a.last, a.repeated = sum, 0
	}
	if a.repeated > 2 {
		return nil
	}
	_, err := r.store.SaveReport(ctx, store.Report{
		Subject: store.Subject{PlatformDigest: a.digest(), Engine: engine}, DataVersion: version, MatchedAt: r.now, Findings: findings,
	}, "")
	return err
}

// changes reports whether the findings differ from the last report of the same image, and stores them as the last.
func changes(a *app, findings []finding.Finding) bool {
	now := make(map[string]bool, len(findings))
	for _, f := range findings {
		now[f.Key()] = true
	}
	changed := false
	if a.lastFindings != nil {
		for key := range now {
			changed = changed || !a.lastFindings[key]
		}
		for key := range a.lastFindings {
			changed = changed || !now[key]
		}
	}
	a.lastFindings = now
	return changed
}

// deliverAll runs each receiver's delivery until the end of the day.
func (r *replay) deliverAll(ctx context.Context, day int) error {
	before := r.sent.byDefault
	for n := range namespaces {
		scanner := fmt.Sprintf("team-%d", n)
		for _, receiver := range []string{byDefault, everything} {
			if err := r.deliver(ctx, scanner, receiver, dayTime(day+1).Add(-time.Hour)); err != nil {
				return err
			}
		}
	}
	r.sent.largest = max(r.sent.largest, r.sent.byDefault-before)
	return nil
}

// Names of the receivers: one with default settings, and one of all changes.
const (
	byDefault  = "default"
	everything = "everything"
)

func (r *replay) deliver(ctx context.Context, scanner, receiver string, until time.Time) error {
	settings := announce.Settings{
		Address:   announce.ReceiverRef{SecretName: receiver},
		Namespace: scanner, Scanner: "main", Receiver: receiver, FirstScan: announce.FirstScanSummary, Tool: "grype 0.110.0",
		Filter:    store.ChangeFilter{MinSeverity: finding.High, Unknown: store.UnknownIfFixable, Engine: engine},
		GroupWait: 30 * time.Second, GroupInterval: 5 * time.Minute, Notices: true,
	}
	if receiver == everything {
		settings.Filter.Changes = []diff.Change{
			diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeEscalated, diff.ChangeRegressed, diff.ChangeFixed, diff.ChangeNewImage,
		}
	}
	morning := r.now
	defer func() { r.now = morning }()
	dispatcher := announce.Dispatcher{Store: r.store, Sender: r, Random: entropy{}, Now: func() time.Time { return r.now }}
	coverage := announce.Coverage{DataSince: dayTime(0)}
	for _, a := range r.apps {
		if a.namespace == scanner {
			coverage.Images = append(coverage.Images, announce.Image{
				Key: a.key().String(), Repositories: []string{a.repository}, State: image.Scanned, Current: true,
			})
		}
	}
	for {
		progress, err := dispatcher.Dispatch(ctx, scanner, settings, coverage)
		if err != nil || progress.Next.IsZero() || progress.Next.After(until) {
			return err
		}
		r.now = progress.Next
	}
}

// Send implements announce.Sender. It counts the message and reports it as delivered.
func (r *replay) Send(_ context.Context, d announce.Delivery) announce.Outcome {
	if d.Receiver.SecretName == everything {
		r.sent.everything++
	} else {
		r.sent.byDefault++
		for _, n := range d.Message.Changes {
			r.sent.findings += n
		}
	}
	return announce.Outcome{Result: announce.Delivered}
}

// entropy provides random message IDs, which need not be secret here.
type entropy struct{}

// Read implements io.Reader.
func (entropy) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(rand.Uint32())
	}
	return len(p), nil
}

func describe(r *replay) page.Section {
	row := func(who string, messages int) string {
		return fmt.Sprintf("| %s | %d | %.1f |\n", who, messages, float64(messages)/days)
	}
	text := fmt.Sprintf("%d images in %d namespaces, each namespace with a Scanner, for %d days with a build of the vulnerability data each; an image is built again every %d days, with the fixes "+
		"of that day. The advisories are made after those of the fixtures: %d for each package in the year and as many before it, of which %.0f %% are rated again, %.0f %% become known to be exploited and "+
		"%.0f %% are missing on one day; on %d days the data lacks a whole distribution. Dispatcher and store are the real ones, with a clock that runs ahead.\n\n",
		images, namespaces, days, daysBetweenBuilds, perPackage, ratedAgain*100, exploited*100, missing*100, badBuilds)
	text += "| | messages in the year | a day |\n|---|---|---|\n" +
		row("Scanner Operator, a receiver as it is made in each namespace", r.sent.byDefault) +
		row("Scanner Operator, all changes announced (`announce` with `Fixed` and `NewImage`)", r.sent.everything) +
		row("one message per report per reconcile, as trivy-operator's webhook sends them", r.sent.perReport) +
		row("one per image and update that changes it, as Clair's notifier sends them in summary mode", r.sent.perManifest)
	text += fmt.Sprintf("\nThe messages to receivers with the default settings announced %d changes; the most on one day were %d for all namespaces together.\n", r.sent.findings, r.sent.largest)
	return page.Section{Text: text, Bounds: []page.Bound{
		{What: fmt.Sprintf("at most one message for each namespace and day of data: %.2f", float64(r.sent.byDefault)/(days*namespaces)), Kept: r.sent.byDefault <= days*namespaces},
		{What: fmt.Sprintf("at least 50 times fewer than one for each report: %.0f times", float64(r.sent.perReport)/float64(max(1, r.sent.byDefault))), Kept: r.sent.byDefault*50 <= r.sent.perReport},
	}}
}
