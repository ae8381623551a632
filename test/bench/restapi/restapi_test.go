package restapi

import "testing"

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
	s, err := section(parse(output))
	if err != nil || !s.Kept() || len(s.Bounds) != 10 {
		t.Fatalf("bounds %+v (%v), want 10, all kept", s.Bounds, err)
	}
	for figure, value := range map[string]float64{
		"BenchmarkEvents/http/1.1 KiB/stream": 65, "BenchmarkEvents/h2 ms-p95": 1001,
		"BenchmarkPutReport/first/SQLite p95-ms": 301, "BenchmarkPutReport/newer/PostgreSQL p95-ms": 601,
	} {
		f := parse(output)
		if f[figure] == 0 {
			t.Fatalf("%s was not read", figure)
		}
		f[figure] = value
		s, err := section(f)
		broken := 0
		for _, b := range s.Bounds {
			if !b.Kept {
				broken++
			}
		}
		if err != nil || broken != 1 {
			t.Errorf("%s: %d bounds are broken (%v), want one", figure, broken, err)
		}
		delete(f, figure)
		if _, err := section(f); err == nil {
			t.Errorf("%s is missing without an error", figure)
		}
	}
}
