// Package restapi measures what live updates and reports of other tools cost the REST API, with the benchmarks of the package restapi.
package restapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

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
	command := exec.CommandContext(ctx, filepath.Join(bin, "restapi-bench.test"), "-test.run=^$", "-test.bench=^Benchmark(Events|PutReport)$", "-test.benchtime=50x", "-test.timeout=20m")
	var output bytes.Buffer
	command.Dir, command.Stdout, command.Stderr = filepath.Join(root, "pkg", "restapi"), io.MultiWriter(os.Stdout, &output), os.Stderr
	if err := command.Run(); err != nil {
		return page.Section{}, fmt.Errorf("restapi-bench.test: %w", err)
	}
	return section(parse(output.String()))
}

// figures are the values of benchmarks by "name unit".
type figures map[string]float64

// parse reads the output of benchmarks (https://go.dev/design/14313-benchmark-format). Names lose their number of processors.
func parse(output string) figures {
	found := figures{}
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := fields[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		for pair := fields[2:]; len(pair) >= 2; pair = pair[2:] {
			if value, err := strconv.ParseFloat(pair[0], 64); err == nil {
				found[name+" "+pair[1]] = value
			}
		}
	}
	return found
}

func section(f figures) (s page.Section, err error) {
	value := func(benchmark, unit string) float64 {
		v, found := f[benchmark+" "+unit]
		if !found && err == nil {
			err = fmt.Errorf("%s has no figure in %s", benchmark, unit)
		}
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
