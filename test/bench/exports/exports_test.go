package exports

import (
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/test/bench/benchmark"
)

const output = `goos: linux
pkg: example.com/restapi
BenchmarkExports/findings.csv-2 	1	19738 ns/op	665.0 MiB	1212 first-byte-ms	5.331 heap-MiB	30.2 process-MiB	16.00 max-heap-MiB	2100000 rows	197.4 s	300 max-s
BenchmarkExports/sarif-2        	1	11776 ns/op	26.92 MiB	11490 first-byte-ms	81.69 heap-MiB	25000 max-results	25000 results	11.76 s	120 max-s
BenchmarkReports-2              	1	1 ns/op	1000 reports	1000 max-reports	300 largest-KiB	512 max-largest-KiB	9.1 s	1000 first-writes	0 unchanged-writes	0 max-unchanged-writes
BenchmarkImageMetrics-2         	1	1 ns/op	80001 series	80001 max-series	20.1 MiB	300 first-ms	200 next-ms
BenchmarkTools/defectDojo-2     	1	1 ns/op	1000 first-requests	90 first-MiB	100 largest-KiB	4096 max-largest-KiB	0 unchanged-requests	0 max-unchanged-requests	0 unchanged-MiB	4 s
BenchmarkMessages/teams-2       	1	1 ns/op	900 delivery-KiB	26.9 message-KiB	27.34 max-message-KiB
PASS
`

// TestSection: each figure has its cell, each bound is broken by its own figure, and a bound or a table without figures is an error.
func TestSection(t *testing.T) {
	s, err := section(benchmark.Parse(output))
	if err != nil || !s.Kept() || len(s.Bounds) != 11 {
		t.Fatalf("bounds %+v (%v), want 11, all kept", s.Bounds, err)
	}
	for _, want := range []string{
		"| findings.csv | 2100000 |  | 665.0 MiB | 197.4 s | 1212 ms | 5.3 MiB | 30.2 MiB |\n", "| sarif |  | 25000 | 26.9 MiB |", "\n| 1000 | 300 KiB | 9.1 s | 1000 | 0 |\n",
	} {
		if !strings.Contains(s.Text, want) {
			t.Errorf("the text lacks %q:\n%s", want, s.Text)
		}
	}
	for _, tt := range []struct {
		benchmark, unit string
		value           float64
	}{
		{"BenchmarkExports/findings.csv", "heap-MiB", 16.1}, {"BenchmarkExports/findings.csv", "s", 301}, {"BenchmarkExports/sarif", "results", 25001}, {"BenchmarkReports", "unchanged-writes", 1},
		{"BenchmarkImageMetrics", "series", 80002}, {"BenchmarkTools/defectDojo", "unchanged-requests", 1}, {"BenchmarkMessages/teams", "message-KiB", 27.4},
	} {
		o := benchmark.Parse(output)
		o.Figures[tt.benchmark][tt.unit] = tt.value
		s, err := section(o)
		broken := 0
		for _, b := range s.Bounds {
			if !b.Kept {
				broken++
			}
		}
		if err != nil || broken != 1 {
			t.Errorf("%s %s: %d bounds are broken (%v), want one", tt.benchmark, tt.unit, broken, err)
		}
		delete(o.Figures[tt.benchmark], maxPrefix+tt.unit)
		if _, err := section(o); err == nil {
			t.Errorf("the bound of %s %s is missing without an error", tt.benchmark, tt.unit)
		}
	}
	if _, err := section(benchmark.Parse(strings.ReplaceAll(output, "BenchmarkTools", "BenchmarkOthers"))); err == nil {
		t.Error("a table without figures is no error")
	}
}
