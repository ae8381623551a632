// Package restapi measures what live updates and reports of other tools cost the REST API, with the benchmarks of the package restapi.
package restapi

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/scanner-operator/scanner-operator/test/bench/benchmark"
	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// Bounds. Times are in milliseconds.
const (
	maxStream           = 64 // KiB of memory in the manager, with TLS
	maxHint             = 1000
	maxReport           = 300
	maxReportPostgreSQL = 600
)

// Measure runs the benchmarks that the test program restapi-bench.test in bin has.
func Measure(ctx context.Context, root, bin string) (page.Section, error) {
	output, err := benchmark.Run(ctx, filepath.Join(root, "pkg", "restapi"), filepath.Join(bin, "restapi-bench.test"), "-test.run=^$",
		"-test.bench=^Benchmark(Events|PutReport)$", "-test.benchtime=50x", "-test.timeout=20m")
	if err != nil {
		return page.Section{}, err
	}
	return section(output)
}

func section(output benchmark.Output) (s page.Section, err error) {
	value := func(name, unit string) float64 {
		v, missing := output.Value(name, unit)
		err = cmp.Or(err, missing)
		return v
	}
	bound := func(what string, figure, most float64, unit string) {
		s.Bounds = append(s.Bounds, page.Bound{What: fmt.Sprintf("%s: at most %.0f %s: %.0f %s", what, most, unit, figure, unit), Kept: figure <= most})
	}
	var text strings.Builder
	text.WriteString(`2,000 streams of [live updates](../integrate/live-updates.md), as many as a manager has, are open over TLS; half of them are never read. Their
memory is that of the heap and the stacks of the API, whose clients are another process. A hint is measured from the commit to its arrival.

| streams | memory of each | hint, 95 % | worst |
|---|---|---|---|
`)
	for _, protocol := range []string{"http/1.1", "h2"} {
		name := "BenchmarkEvents/" + protocol
		memory, p95 := value(name, "KiB/stream"), value(name, "ms-p95")
		fmt.Fprintf(&text, "| %s | %.0f KiB | %.0f ms | %.0f ms |\n", protocol, memory, p95, value(name, "ms-max"))
		bound("memory of a stream, "+protocol, memory, maxStream, "KiB")
		bound("from a commit to its hint, 95 %, "+protocol, p95, maxHint, "ms")
	}
	text.WriteString(`
A [report of another tool](../integrate/external-reports.md) with 5,000 findings is sent with PUT, over HTTPS, to a store that writes to the disk.

| report | database | median | 95 % |
|---|---|---|---|
`)
	for _, kind := range []string{"first", "newer", "unchanged"} {
		for _, in := range []struct {
			database string
			most     float64
		}{{"SQLite", maxReport}, {"PostgreSQL", maxReportPostgreSQL}} {
			name := "BenchmarkPutReport/" + kind + "/" + in.database
			p95 := value(name, "p95-ms")
			fmt.Fprintf(&text, "| %s | %s | %.0f ms | %.0f ms |\n", kind, in.database, value(name, "median-ms"), p95)
			bound(fmt.Sprintf("a %s report, 95 %%, %s", kind, in.database), p95, in.most, "ms")
		}
	}
	s.Text = text.String()
	return s, err
}
