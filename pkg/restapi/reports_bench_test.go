package restapi

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// BenchmarkPutReport saves reports of 5,000 findings over HTTPS: new ones, ones of which a tenth differs from the one before, and the same one again.
// It reports the 95th percentile.
func BenchmarkPutReport(b *testing.B) {
	const findings = 5000
	for name, next := range map[string]func(i int) (path, text string, status int){
		"new": func(i int) (string, string, int) {
			return reportPath("shop", fmt.Sprint("web", i), "ci"), manyFindings(findings, "CVE-2026", noon), http.StatusCreated
		},
		"all-findings-differ": func(i int) (string, string, int) {
			return reportPath("shop", "web", "ci"), manyFindings(findings, fmt.Sprint("CVE-", 2000+i), noon.Add(time.Duration(i-100_000)*time.Second)), http.StatusOK
		},
		"newer-with-the-same-findings": func(i int) (string, string, int) {
			return reportPath("shop", "web", "ci"), manyFindings(findings, "CVE-2026", noon.Add(time.Duration(i-100_000)*time.Second)), http.StatusOK
		},
		"unchanged": func(int) (string, string, int) {
			return reportPath("shop", "web", "ci"), manyFindings(findings, "CVE-2026", noon), http.StatusNoContent
		},
	} {
		b.Run(name, func(b *testing.B) {
			w, _ := newFakeHarness(b)
			if path, text, status := next(0); status != http.StatusCreated {
				w.requireStatus(w.put(path, anyone, text), http.StatusCreated)
			}
			var took []time.Duration
			for i := 1; b.Loop(); i++ {
				path, text, status := next(i)
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
