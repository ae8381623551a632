// Package storage measures the store with the content of a large cluster: the rate of writing reports, the time to answer "which
// workloads have CVE-X?", and the size of the database. The store is the real one: SQLite on disk, or a server on this machine.
package storage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// Content of the store.
const (
	images     = 10_000
	findings   = 200
	namespaces = 100
	// families is the number of groups of images. A group shares nine tenths of its findings with the next one, like images with similar
	// bases.
	families = 200
	// rewritten is the number of reports that are written a second time, as after an update of the vulnerability data: a tenth of the
	// findings is new.
	rewritten = 1000
	// queries is the number of queries for random vulnerability IDs, drawn with a fixed seed.
	queries   = 1000
	engine    = "grype"
	tableHead = "| | |\n|---|---|\n"
)

// Measure fills a store in a database and queries it.
func Measure(ctx context.Context, in Database, progress func(format string, args ...any)) (section page.Section, err error) {
	opened, err := in.open(ctx)
	if err != nil {
		return section, err
	}
	defer func() { err = errors.Join(err, opened.close()) }()
	db := opened.store
	progress("%d images with %d findings each", images, findings)
	if err := fill(ctx, db); err != nil {
		return section, err
	}
	first, err := write(ctx, db, images, 0)
	if err != nil {
		return section, err
	}
	second, err := write(ctx, db, rewritten, 1)
	if err != nil {
		return section, err
	}
	progress("%d questions", queries)
	asked, affected, err := queryAffected(ctx, db)
	if err != nil {
		return section, err
	}
	progress("lists of vulnerabilities and actions")
	lists, err := queryLists(ctx, in, db)
	if err != nil {
		return section, err
	}
	size, err := opened.size()
	if err != nil {
		return section, err
	}
	distant, err := opened.writeFromAfar(ctx)
	if err != nil {
		return section, err
	}
	return in.describe(first, second, distant, asked, lists, affected, size), nil
}

// key returns the key of the image with the given number.
func key(i int) image.Key {
	return image.Key{Digest: digest(i), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
}

func digest(i int) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, "image %d", i)))
}

// fill records the workloads: each image runs as a Deployment in one of the namespaces, which have a Scanner each.
func fill(ctx context.Context, db *store.Store) error {
	for i := range images {
		namespace, name := fmt.Sprintf("team-%02d", i%namespaces), fmt.Sprintf("service-%05d", i)
		repository := "registry.example.com/" + namespace + "/" + name
		if err := saveCatalog(ctx, db, i); err != nil {
			return err
		}
		if err := db.SetUsage(ctx, store.ImageUsage{
			Scanner: "scanner-of-" + namespace, Namespace: namespace, Key: key(i), Engine: engine,
			Workloads: []store.Workload{{
				Namespace: namespace, Kind: "Deployment", Name: name, Container: "main", Repository: repository, Reference: repository + ":1",
			}},
		}); err != nil {
			return err
		}
	}
	return nil
}

func saveCatalog(ctx context.Context, db *store.Store, i int) error {
	return db.SaveCatalog(ctx, store.Catalog{Engine: engine, Key: key(i), PlatformDigest: digest(i), Distro: "debian 12", Packages: 150, Tool: "syft"}, nil)
}

// firstID returns the number of an image's first finding. The other numbers follow it. Each version of the data shifts them by a tenth.
func firstID(i, version int) int {
	const step = findings / 10
	return (i%families)*step + version*step + i/families%5
}

// found returns the findings of an image.
func found(i, version int) []finding.Finding {
	severities := []finding.Severity{finding.Critical, finding.High, finding.Medium, finding.Low, finding.Negligible}
	all := make([]finding.Finding, findings)
	for n := range all {
		id := firstID(i, version) + n
		name := fmt.Sprintf("library-%d", id/3)
		all[n] = finding.Finding{
			ID: fmt.Sprintf("CVE-2026-%05d", id), Severity: severities[id%len(severities)], FixState: finding.FixStateFixed, FixVersions: []string{"1.2.3-4+deb12u1"},
			Description: "A flaw was found in the way that the library reads its input, which lets a remote attacker do what it should not.",
			URL:         fmt.Sprintf("https://security-tracker.debian.org/tracker/CVE-2026-%05d", id),
			EPSS:        float64(id%1000) / 1000, KnownExploited: id%100 == 99,
			Package: finding.Package{Name: name, Version: "1.2.3-1", Type: "deb", PURL: "pkg:deb/debian/" + name + "@1.2.3-1?arch=amd64&distro=debian-12"},
		}
	}
	return all
}

// write saves the reports of the first n images and returns the duration of each.
func write(ctx context.Context, db *store.Store, n, version int) ([]time.Duration, error) {
	return writeFrom(ctx, db, 0, n, version)
}

// writeFrom saves the reports of n images, beginning with one.
func writeFrom(ctx context.Context, db *store.Store, begin, n, version int) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	for k := range took {
		i := begin + k
		report := store.Report{
			Subject: store.Subject{PlatformDigest: digest(i), Engine: engine}, DataVersion: fmt.Sprint("v", version),
			Distro: "debian 12", MatchedAt: time.Now(), Findings: found(i, version),
		}
		began := time.Now()
		if _, err := db.SaveReport(ctx, report, ""); err != nil {
			return nil, err
		}
		took[k] = time.Since(began)
	}
	return took, nil
}

// pageSize is the default page size of the REST API.
const pageSize = 100

// queryAffected queries the workloads with a vulnerability. It returns the duration of each first page and the total number of workloads in each
// answer.
func queryAffected(ctx context.Context, db *store.Store) (took []time.Duration, affected []int, err error) {
	random := rand.New(rand.NewPCG(1, 2))
	most := firstID(families-1, 0) + findings
	for range queries {
		id := fmt.Sprintf("CVE-2026-%05d", random.IntN(most))
		began := time.Now()
		answer, err := db.RunsPage(ctx, store.RunsQuery{ID: id, All: true}, store.RunCursor{}, pageSize)
		if err != nil {
			return nil, nil, err
		}
		took, affected = append(took, time.Since(began)), append(affected, answer.Total)
	}
	return took, affected, nil
}

func (in Database) describe(first, second, distant, asked []time.Duration, lists []listTimes, affected []int, size int64) page.Section {
	slices.Sort(affected)
	text := fmt.Sprintf(in.text+" %d images with %d findings each run in %d namespaces; %d families of images "+
		"overlap in their findings. Reports are written one after the other, each in a transaction of its own.\n\n", images, findings, namespaces, families)
	text += tableHead
	rows := [][2]string{
		{"reports written per second, all new", perSecond(first)},
		{"time to write one", quantiles(first)},
		{"reports written per second, a tenth of the findings changed", perSecond(second)},
		{"time to write one", quantiles(second)},
		{"time to answer \"which workloads have CVE-X?\": how many, and the first 100", quantiles(asked)},
		{"workloads in an answer, median and most", fmt.Sprintf("%d, %d", affected[len(affected)/2], affected[len(affected)-1])},
		{"size of the database", fmt.Sprintf("%d MiB, %d bytes per finding", size>>20, size/(images*findings))},
	}
	if len(distant) > 0 {
		rows = append(rows, [2]string{fmt.Sprintf("time to write one over a link whose round trip takes %s", roundTrip), quantiles(distant)})
	}
	for _, list := range lists {
		rows = append(rows, [2]string{"time to answer " + list.what, quantiles(list.took)})
	}
	for _, row := range rows {
		text += fmt.Sprintf("| %s | %s |\n", row[0], row[1])
	}
	bounds := []page.Bound{
		{What: fmt.Sprintf("answers are there: the median has %d workloads", affected[len(affected)/2]), Kept: affected[len(affected)/2] > 0},
		atMost("\"which workloads have CVE-X?\", p95", quantile(asked, 95), in.answer),
		atMost("a report of 200 findings, all new, p50", quantile(first, 50), in.report),
	}
	for _, list := range lists {
		bounds = append(bounds, atMost(list.what+", p95", quantile(list.took, 95), list.most))
	}
	if len(distant) > 0 {
		bounds = append(bounds, atMost("the same over that link, p50", quantile(distant, 50), in.distantReport))
	}
	return page.Section{Text: text, Bounds: bounds}
}

func atMost(what string, took, most time.Duration) page.Bound {
	return page.Bound{What: fmt.Sprintf("%s: %s, at most %s", what, milliseconds(took), milliseconds(most)), Kept: took <= most}
}

func quantile(took []time.Duration, percent int) time.Duration {
	return slices.Sorted(slices.Values(took))[len(took)*percent/100]
}

func perSecond(took []time.Duration) string {
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	return fmt.Sprintf("%.0f", float64(len(took))/sum.Seconds())
}

func quantiles(took []time.Duration) string {
	return fmt.Sprintf("p50 %s, p95 %s", milliseconds(quantile(took, 50)), milliseconds(quantile(took, 95)))
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
