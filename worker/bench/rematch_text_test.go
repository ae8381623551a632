package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/worker/internal/testdb"
)

// describe returns the text of the section.
func describe(sboms []sbom, findings int, database *testdb.Result, installed run, stock run, compact, full []run) string {
	var text strings.Builder
	packages, fullBytes, compactBytes, fullSent, compactSent := 0, 0, 0, 0, 0
	for _, s := range sboms {
		packages += s.packages
		fullBytes, compactBytes = fullBytes+s.fullBytes, compactBytes+s.compactBytes
		fullSent, compactSent = fullSent+len(s.fullSent), compactSent+len(s.compactSent)
	}
	n := len(sboms)
	records := 0
	for _, count := range database.Records {
		records += count
	}
	fmt.Fprintf(&text, "%d SBOMs of different images on 8 bases, each with a program of its own: %d packages and %d findings on average. "+
		"The vulnerability database has %d records; copies under other names bring its file to the size of a published one. "+
		"%d of the records are about packages of the images and were fixed long ago, so that most look-ups find something that does not match. "+
		"Worker and command run on the same single processor. There are %d rounds, in each of which the worker matches all SBOMs and the command "+
		"a share of them; figures are the median of the rounds with the smallest and the largest.\n\n",
		n, packages/n, findings/n, records, 3*fullDebs*oldAdvisories+allModules, rounds)
	row := func(name string, runs []run) []string {
		wall := spreadOf(walls(runs))
		return []string{
			name, seconds(wall), fmt.Sprintf("%.0f ms", float64(wall.median.Milliseconds())/float64(n)),
			seconds(spreadOf(cpus(runs))), mebibytes(spreadOf(peaks(runs))), fmt.Sprintf("%.1f", ratio([]run{stock}, runs)), fmt.Sprintf("%.1f", float64(stock.CPU)/float64(spreadOf(cpus(runs)).median)),
		}
	}
	text.WriteString(table(
		[]string{fmt.Sprintf("%d SBOMs", n), "time", "each", "processor time", "peak memory", "times faster", "by processor time"},
		row("`grype sbom:FILE -o json`, a process for each", []run{stock}),
		row("match worker, compact inputs", compact),
		row("match worker, given the full SBOMs", full),
	))
	fmt.Fprintf(&text, "\nThe worker's time is from the start of its process to the arrival of the last report: it opens the database, fetches "+
		"each input over TLS, unpacks, decodes and matches it, and uploads a compressed report. "+
		"The compact input by itself makes the worker %.1f times faster; an input has %d KB instead of %d KB (%.1f KB instead of %.1f KB as sent). "+
		"Installing the database, once for each version (download from this machine, unpack, index, verify): %.1f s, peak memory %d MiB.\n",
		ratio(full, compact), compactBytes/n/1000, fullBytes/n/1000, float64(compactSent)/float64(n)/1000, float64(fullSent)/float64(n)/1000,
		installed.wall.Seconds(), installed.PeakRSS>>20)
	return text.String()
}

// ratio returns the ratio of the median times of two kinds of runs.
func ratio(slow, fast []run) float64 {
	return float64(spreadOf(walls(slow)).median) / float64(spreadOf(walls(fast)).median)
}

func walls(runs []run) []time.Duration {
	return valuesOf(runs, func(r run) time.Duration { return r.wall })
}

func cpus(runs []run) []time.Duration {
	return valuesOf(runs, func(r run) time.Duration { return r.CPU })
}

func peaks(runs []run) []int64 {
	return valuesOf(runs, func(r run) int64 { return r.PeakRSS })
}

func valuesOf[T any](runs []run, value func(run) T) []T {
	values := make([]T, len(runs))
	for i, r := range runs {
		values[i] = value(r)
	}
	return values
}

func fileSize(t *testing.T, database *testdb.Result) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(database.Cache, "6", "vulnerability.db"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func distinct(sboms []sbom) int {
	digests := map[string]bool{}
	for _, s := range sboms {
		digests[s.digest] = true
	}
	return len(digests)
}
