// Package storage measures the store with as much in it as a large cluster has: how fast reports are written, how fast
// "which workloads have CVE-X?" is answered, and how large the file is. The store is the real one, SQLite on disk.
package storage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// What is in the store.
const (
	images     = 10_000
	findings   = 200
	namespaces = 100
	// families of images have nine tenths of their findings in common with the next, as images of one base have.
	families = 200
	// again is how many reports are written a second time, as after a change of the vulnerability data: a tenth of the
	// findings is new.
	again = 1000
	// questions are asked about ids drawn at random, with a fixed seed.
	questions = 1000
	engine    = "grype"
	tableHead = "| | |\n|---|---|\n"
)

// Measure fills a store and asks it.
func Measure(ctx context.Context, progress func(format string, args ...any)) (section page.Section, err error) {
	dir, err := os.MkdirTemp("", "bench-store-")
	if err != nil {
		return section, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "store.db")
	db, err := store.OpenSQLite(ctx, file, time.Now)
	if err != nil {
		return section, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	progress("%d images with %d findings each", images, findings)
	if err := fill(ctx, db); err != nil {
		return section, err
	}
	first, err := write(ctx, db, images, 0)
	if err != nil {
		return section, err
	}
	second, err := write(ctx, db, again, 1)
	if err != nil {
		return section, err
	}
	progress("%d questions", questions)
	asked, affected, err := ask(ctx, db)
	if err != nil {
		return section, err
	}
	size, err := bytesOf(file)
	if err != nil {
		return section, err
	}
	return describe(first, second, asked, affected, size), nil
}

// key of the image with a number.
func key(i int) image.Key {
	return image.Key{Digest: digest(i), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
}

func digest(i int) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, "image %d", i)))
}

// fill notes what runs: each image as a Deployment of one of the namespaces, which have a Scanner each.
func fill(ctx context.Context, db *store.SQLite) error {
	for i := range images {
		namespace, name := fmt.Sprintf("team-%02d", i%namespaces), fmt.Sprintf("service-%05d", i)
		repository := "registry.example.com/" + namespace + "/" + name
		if err := db.SaveCatalogue(ctx, store.Catalogued{Engine: "grype", Key: key(i), PlatformDigest: digest(i), Distro: "debian 12", Packages: 150, Tool: "syft"}, nil); err != nil {
			return err
		}
		if err := db.SetUsed(ctx, store.Used{
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

// firstID is the number of an image's first finding; the others follow. Later versions of the data move on by a tenth.
func firstID(i, version int) int {
	const step = findings / 10
	return (i%families)*step + version*step + i/families%5
}

// found are the findings of an image.
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

// write saves the reports of the first n images and returns how long each took.
func write(ctx context.Context, db *store.SQLite, n, version int) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range took {
		report := store.Report{
			Subject: store.Subject{PlatformDigest: digest(i), Engine: engine}, DataVersion: fmt.Sprint("v", version),
			Distro: "debian 12", MatchedAt: time.Now(), Findings: found(i, version),
		}
		began := time.Now()
		if _, err := db.SaveReport(ctx, report, ""); err != nil {
			return nil, err
		}
		took[i] = time.Since(began)
	}
	return took, nil
}

// pageSize is how many workloads the REST API answers with unless it is asked otherwise.
const pageSize = 100

// ask asks who runs vulnerabilities, and returns how long each first page took and how many workloads there were in all.
func ask(ctx context.Context, db *store.SQLite) (took []time.Duration, affected []int, err error) {
	random := rand.New(rand.NewPCG(1, 2))
	most := firstID(families-1, 0) + findings
	for range questions {
		id := fmt.Sprintf("CVE-2026-%05d", random.IntN(most))
		began := time.Now()
		answer, err := db.RunsPage(ctx, store.RunsQuery{ID: id, All: true}, store.RunMark{}, pageSize)
		if err != nil {
			return nil, nil, err
		}
		took, affected = append(took, time.Since(began)), append(affected, answer.Total)
	}
	return took, affected, nil
}

// bytesOf is the size of the store's files together.
func bytesOf(file string) (int64, error) {
	files, err := filepath.Glob(file + "*")
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}

func describe(first, second, asked []time.Duration, affected []int, size int64) page.Section {
	slices.Sort(affected)
	text := fmt.Sprintf("The store is SQLite on this machine's disk, one writer. %d images with %d findings each run in %d namespaces; %d families of images "+
		"overlap in their findings. Reports are written one after the other, each in a transaction of its own.\n\n", images, findings, namespaces, families)
	text += tableHead
	for _, row := range [][2]string{
		{"reports written per second, all new", perSecond(first)},
		{"time to write one", quantiles(first)},
		{"reports written per second, a tenth of the findings changed", perSecond(second)},
		{"time to write one", quantiles(second)},
		{"time to answer \"which workloads have CVE-X?\": how many, and the first 100", quantiles(asked)},
		{"workloads in an answer, median and most", fmt.Sprintf("%d, %d", affected[len(affected)/2], affected[len(affected)-1])},
		{"size of the files", fmt.Sprintf("%d MiB, %d bytes per finding", size>>20, size/(images*findings))},
	} {
		text += fmt.Sprintf("| %s | %s |\n", row[0], row[1])
	}
	return page.Section{Text: text, Bounds: []page.Bound{{
		What: fmt.Sprintf("answers are there: the median has %d workloads", affected[len(affected)/2]), Kept: affected[len(affected)/2] > 0,
	}}}
}

func perSecond(took []time.Duration) string {
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	return fmt.Sprintf("%.0f", float64(len(took))/sum.Seconds())
}

func quantiles(took []time.Duration) string {
	sorted := slices.Sorted(slices.Values(took))
	return fmt.Sprintf("p50 %s, p95 %s", milliseconds(sorted[len(sorted)/2]), milliseconds(sorted[len(sorted)*95/100]))
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
