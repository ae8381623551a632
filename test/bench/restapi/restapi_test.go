package restapi

import (
	"testing"

	"github.com/scanner-operator/scanner-operator/test/bench/benchmark"
)

const output = `goos: linux
BenchmarkEvents/http/1.1-2  	      50	 262107034 ns/op	        43.00 KiB/stream	       300.0 ms-max	       262.0 ms-p95
BenchmarkEvents/h2-2        	      50	 362107034 ns/op	        54.00 KiB/stream	       400.0 ms-max	       363.0 ms-p95
BenchmarkPutReport/first/SQLite-2         	      50	 101 ns/op	 90.5 median-ms	 120.0 p95-ms
BenchmarkPutReport/first/PostgreSQL-2     	      50	 101 ns/op	 90.5 median-ms	 120.0 p95-ms
BenchmarkPutReport/newer/SQLite-2         	      50	 101 ns/op	 90.5 median-ms	 120.0 p95-ms
BenchmarkPutReport/newer/PostgreSQL-2     	      50	 101 ns/op	 90.5 median-ms	 599.0 p95-ms
BenchmarkPutReport/unchanged/SQLite-2     	      50	 101 ns/op	 90.5 median-ms	 120.0 p95-ms
BenchmarkPutReport/unchanged/PostgreSQL-2 	      50	 101 ns/op	 90.5 median-ms	 120.0 p95-ms
PASS
`

// TestSection: figures are read from the output of benchmarks, each bound is broken by its own figure, and a figure that is missing is an error.
func TestSection(t *testing.T) {
	s, err := section(benchmark.Parse(output))
	if err != nil || !s.Kept() || len(s.Bounds) != 10 {
		t.Fatalf("bounds %+v (%v), want 10, all kept", s.Bounds, err)
	}
	for _, tt := range []struct {
		benchmark, unit string
		value           float64
	}{
		{"BenchmarkEvents/http/1.1", "KiB/stream", 65}, {"BenchmarkEvents/h2", "ms-p95", 1001},
		{"BenchmarkPutReport/first/SQLite", "p95-ms", 301}, {"BenchmarkPutReport/newer/PostgreSQL", "p95-ms", 601},
	} {
		o := benchmark.Parse(output)
		if _, err := o.Value(tt.benchmark, tt.unit); err != nil {
			t.Fatal(err)
		}
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
		delete(o.Figures[tt.benchmark], tt.unit)
		if _, err := section(o); err == nil {
			t.Errorf("%s %s is missing without an error", tt.benchmark, tt.unit)
		}
	}
}
