package restapi

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/sarif"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// The content of the store that BenchmarkExports exports: 1,000 images with 2,000 findings each, and one image with as many as a report can have.
// Each image runs in 50 workloads, and has one more finding with the vulnerability of all.
const (
	benchNamespaces = 10
	benchImages     = 1000
	benchFindings   = 2000
	benchWorkloads  = 50
	benchIDs        = 200_000
	benchCommon     = "CVE-2025-0001"
)

func benchFinding(i int) finding.Finding {
	return vulnerable(fmt.Sprintf("CVE-2026-%06d", i%benchIDs), fmt.Sprintf("package-%d", i%benchFindings), fixed,
		severity(finding.Severity(i%int(finding.Critical+1))), alias(fmt.Sprintf("GHSA-%d", i%benchIDs)))
}

// saveBenchImage stores the result of an image that workloads run. Its findings are the one of all images, and so many from a number on.
func (w *harness) saveBenchImage(scanner *v1alpha1.Scanner, name string, from, findings int) {
	w.t.Helper()
	all := []finding.Finding{vulnerable(benchCommon, "common")}
	for i := range findings {
		all = append(all, benchFinding(from+i))
	}
	var workloads []string
	for i := range benchWorkloads {
		workloads = append(workloads, fmt.Sprintf("%s-%d", name, i))
	}
	w.createScan(scanner, name)
	w.setUsed(scanner, name, store.Cluster, workloads...)
	w.saveSBOM(name, store.Cluster, `{"artifacts":[]}`)
	w.saveReport(name, store.Cluster, all...)
}

// BenchmarkExports downloads each list as CSV, and the largest SARIF log, from a store with 2 million findings. It reports the rows, the size, the
// time, and by how much the heap of the process grows meanwhile. "make bench PART=exports" has the table.
func BenchmarkExports(b *testing.B) {
	w, _ := newFakeHarness(b)
	for i := range benchNamespaces {
		scanner := w.createScanner(fmt.Sprint("team-", i), "main")
		for n := range benchImages / benchNamespaces {
			w.saveBenchImage(scanner, fmt.Sprintf("web-%d-%d", i, n), (i*benchImages/benchNamespaces+n)*benchFindings, benchFindings)
		}
	}
	largest := w.createScanner("largest", "main")
	w.saveBenchImage(largest, "web", 0, workerapi.MaxReportFindings-1)
	limits := config.Default().Limits
	for _, document := range []struct {
		name, path string
		rows       int
		prepare    func()
	}{
		{"findings.csv", "findings.csv", benchImages*(benchFindings+1) + workerapi.MaxReportFindings, nil},
		{"imagescans/NAME/findings.csv", "namespaces/largest/imagescans/web/findings.csv", workerapi.MaxReportFindings, nil},
		{"vulnerabilities.csv", "vulnerabilities.csv", benchIDs + 1, nil},
		{"vulnerabilities/ID/workloads.csv", "vulnerabilities/" + benchCommon + "/workloads.csv", (benchImages + 1) * benchWorkloads, nil},
		{"workloads.csv", "workloads.csv", (benchImages + 1) * benchWorkloads, nil},
		{"imagescans.csv", "namespaces/largest/imagescans.csv", limits.ImageScansPerNamespace, func() { w.cacheScans(largest, limits.ImageScansPerNamespace) }},
	} {
		b.Run(document.name, func(b *testing.B) {
			if document.prepare != nil {
				before := w.api.Reader
				defer func() { w.api.Reader = before }()
				document.prepare()
			}
			var counted sizeCounter
			w.reportDownload(b, "/api/v1/"+document.path, &counted, maxExportHeap)
			b.ReportMetric(maxExportHeap>>20, "max-heap-MiB")
			b.ReportMetric(exportTimeout.Seconds(), "max-s")
			if got := int(counted.lines) - 1; got != document.rows {
				b.Errorf("%d rows, want %d", got, document.rows)
			}
			b.ReportMetric(float64(document.rows), "rows")
		})
	}
	b.Run("sarif", func(b *testing.B) {
		counted := sizeCounter{mark: []byte(`"ruleIndex"`)}
		w.reportDownload(b, "/api/v1/namespaces/largest/imagescans/web/sarif", &counted, math.MaxInt64/2) // it is rendered in memory
		b.ReportMetric(float64(counted.marks), "results")
		b.ReportMetric(sarif.MaxFindings, "max-results")
		b.ReportMetric(documentTimeout.Seconds(), "max-s")
	})
}

// reportDownload downloads a document once, and reports its size, the time, and the growth of the heap, which the collector keeps
// within a bound, and of the process's memory.
func (w *harness) reportDownload(b *testing.B, path string, to *sizeCounter, bound int64) {
	b.Helper()
	var first, took time.Duration
	grown := growths(bound, func() {
		began := time.Now()
		first = w.download(path, to)
		took = time.Since(began)
	}, heap, anonymousMemory)
	b.ReportMetric(float64(to.bytes)/(1<<20), "MiB")
	b.ReportMetric(float64(first.Milliseconds()), "first-byte-ms")
	b.ReportMetric(took.Seconds(), "s")
	b.ReportMetric(float64(grown[0])/(1<<20), "heap-MiB")
	b.ReportMetric(float64(grown[1])/(1<<20), "process-MiB")
}

// anonymousMemory returns how many bytes of the process's resident memory are no file's: the heap, and what the database's library allocates beside it
// (https://man7.org/linux/man-pages/man5/proc_pid_status.5.html). It returns 0 on systems without it.
func anonymousMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status") // an empty text has no such line
	_, rest, _ := bytes.Cut(status, []byte("RssAnon:"))
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	kibibytes, _ := strconv.ParseInt(strings.TrimSpace(string(line)), 10, 64)
	return kibibytes << 10
}

// sizeCounter counts bytes, lines, and how often a text without a line break occurs.
type sizeCounter struct {
	lines        lineCounter
	bytes, marks int
	mark         []byte
	// rest is the end of what was written.
	rest []byte
}

// Write implements io.Writer.
func (c *sizeCounter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	if len(c.mark) > 0 {
		// The end of one write can be the beginning of the text.
		c.rest = append(c.rest, p...)
		c.marks += bytes.Count(c.rest, c.mark)
		c.rest = append(c.rest[:0], c.rest[max(0, len(c.rest)-len(c.mark)+1):]...)
	}
	return c.lines.Write(p)
}
