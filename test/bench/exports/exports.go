// Package exports measures what leaves the operator: lists, reports, metrics, documents for other tools, and messages. It runs the benchmarks of the
// packages that make them.
package exports

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/test/bench/benchmark"
	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// maxPrefix begins the unit of a bound. A benchmark reports its figure in the unit that follows, and the bound itself, which its package knows.
const maxPrefix = "max-"

// table is a table of the page.
type table struct {
	introduction string
	// benchmark is the benchmark of the rows: one for each benchmark in it, or one for itself.
	benchmark string
	// bounds is how many bounds a row has.
	bounds  int
	columns []column
}

// column is a column with the figures of a unit.
type column struct {
	title, unit string
	// format is of the figure and its unit in the table.
	format string
}

var tables = []table{
	{
		introduction: `Each list [as CSV](../integrate/exports.md) over HTTPS, from a store on SQLite with 2,000 findings in each of 1,000 images and 100,000 in one more, as
many as a report can have; each image runs in 50 workloads. ImageScans are as many as a namespace has by default. SARIF is of the image with
100,000 findings. The heap is that of the API's process, by how much it grows meanwhile. All memory is the growth of what the process has beside
files: the heap with its unused parts, and SQLite's page caches and sorted rows.`,
		benchmark: "BenchmarkExports", bounds: 2,
		columns: []column{
			{"rows", "rows", "%.0f"}, {"results", "results", "%.0f"}, {"size", "MiB", "%.1f MiB"}, {"time", "s", "%.1f s"}, {"first byte", "first-byte-ms", "%.0f ms"},
			{"heap", "heap-MiB", "%.1f MiB"}, {"all memory", "process-MiB", "%.1f MiB"},
		},
	},
	{
		introduction: `[Reports of OpenReports](../integrate/openreports.md), as many as a namespace can have and with as many findings as can be configured, are written to
a real API server. Then nothing changes, and all are compared again.`,
		benchmark: "BenchmarkReports", bounds: 3,
		columns: []column{
			{"Reports", "reports", "%.0f"}, {"largest Report", "largest-KiB", "%.0f KiB"}, {"first round", "s", "%.1f s"}, {"writes", "first-writes", "%.0f"},
			{"writes when nothing has changed", "unchanged-writes", "%.0f"},
		},
	},
	{
		introduction: "[Metrics of images](../integrate/metrics.md) with the largest `metrics.maxImages`, of 100,000 images in 500 namespaces. The first scrape selects the images.",
		benchmark:    "BenchmarkImageMetrics", bounds: 1,
		columns: []column{
			{"time series", "series", "%.0f"}, {"size of a scrape", "MiB", "%.1f MiB"}, {"first scrape", "first-ms", "%.0f ms"}, {"next scrape", "next-ms", "%.0f ms"},
		},
	},
	{
		introduction: `[Exports to other tools](../integrate/exports-tools.md) of 1,000 workloads, whose images have 200 findings and 500 packages each. Then nothing changes, and
the export runs again.`,
		benchmark: "BenchmarkTools", bounds: 2,
		columns: []column{
			{"requests", "first-requests", "%.0f"}, {"sent", "first-MiB", "%.1f MiB"}, {"largest document", "largest-KiB", "%.0f KiB"}, {"time", "s", "%.1f s"},
			{"requests when nothing has changed", "unchanged-requests", "%.0f"}, {"sent when nothing has changed", "unchanged-MiB", "%.1f MiB"},
		},
	},
	{
		introduction: `The largest message of each type of receiver: from what the manager gives the notifier at most, with short names, and with long ones that must be
escaped. Stand-ins check the receivers' documented limits. Where a receiver documents none for the size, the bound is what we ask administrators to
accept.`,
		benchmark: "BenchmarkMessages", bounds: 1,
		columns: []column{{"given to the notifier", "delivery-KiB", "%.0f KiB"}, {"sent", "message-KiB", "%.1f KiB"}, {"limit", "max-message-KiB", "%.0f KiB"}},
	},
}

// Measure runs the benchmarks in the project's directory.
func Measure(ctx context.Context, root string) (page.Section, error) {
	var names []string
	for _, t := range tables {
		names = append(names, t.benchmark)
	}
	output, err := benchmark.Run(ctx, root, "go", "test", "-p=1", "-run=^$", "-bench=^("+strings.Join(names, "|")+")$", "-benchtime=1x", "-timeout=1h",
		"./pkg/restapi", "./pkg/openreports", "./controllers", "./pkg/export", "./notifier")
	if err != nil {
		return page.Section{}, err
	}
	return section(output)
}

func section(output benchmark.Output) (s page.Section, err error) {
	var text strings.Builder
	for _, t := range tables {
		rows := slices.DeleteFunc(slices.Clone(output.Names), func(name string) bool { return name != t.benchmark && !strings.HasPrefix(name, t.benchmark+"/") })
		if len(rows) == 0 {
			return s, fmt.Errorf("%s has no figures", t.benchmark)
		}
		slices.Sort(rows)
		bounds, err := t.write(&text, output, rows)
		if err != nil {
			return s, err
		}
		s.Bounds = append(s.Bounds, bounds...)
	}
	s.Text = text.String()
	return s, nil
}

// write writes the table with one row for each benchmark, and returns the bounds of all.
func (t table) write(to *strings.Builder, output benchmark.Output, rows []string) (bounds []page.Bound, err error) {
	var titles []string
	if rows[0] != t.benchmark {
		titles = append(titles, "")
	}
	for _, c := range t.columns {
		titles = append(titles, c.title)
	}
	fmt.Fprintf(to, "%s\n\n| %s |\n%s|\n", t.introduction, strings.Join(titles, " | "), strings.Repeat("|---", len(titles)))
	for _, row := range rows {
		what, figures, count := strings.TrimPrefix(strings.TrimPrefix(row, t.benchmark), "/"), output.Figures[row], 0
		var cells []string
		if what != "" {
			cells = append(cells, what)
		}
		for _, c := range t.columns {
			cell := ""
			if figure, found := figures[c.unit]; found {
				cell = fmt.Sprintf(c.format, figure)
			}
			cells = append(cells, cell)
			most, bounded := figures[maxPrefix+c.unit]
			if !bounded {
				continue
			}
			figure, err := output.Value(row, c.unit)
			if err != nil {
				return nil, err
			}
			count++
			bounds = append(bounds, page.Bound{
				What: fmt.Sprintf("%s: at most "+c.format+": "+c.format, strings.TrimPrefix(what+": ", ": ")+c.title, most, figure), Kept: figure <= most,
			})
		}
		if count != t.bounds {
			return nil, fmt.Errorf("%s has %d bounds, want %d", row, count, t.bounds)
		}
		fmt.Fprintf(to, "| %s |\n", strings.Join(cells, " | "))
	}
	to.WriteString("\n")
	return bounds, nil
}
