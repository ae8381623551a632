// Package scanners measures the operator with many Scanners. In a cluster, it measures the manager's processor time while idle and
// during a rematch. In a separate store, it measures each statement. It does not know the page that the figures are written to.
package scanners

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/test/bench/page"
	"github.com/scanner-operator/scanner-operator/test/bench/scale"
)

// Numbers of objects.
const (
	scanners = 1000
	images   = 10 // of each Scanner
)

const (
	mostIdle      = 0.02 // of a processor
	mostStatement = 50 * time.Millisecond
)

// Measure measures the store and the manager.
func Measure(ctx context.Context, options scale.Options) (page.Section, error) {
	statements, err := measureStatements(ctx, options.Progress)
	if err != nil {
		return page.Section{}, err
	}
	figures, err := scale.MeasureScanners(ctx, options, scanners, images)
	if err != nil {
		return page.Section{}, err
	}
	return describe(figures, statements), nil
}

func describe(f scale.ScannerFigures, statements []statement) page.Section {
	var text strings.Builder
	fmt.Fprintf(&text, "%d Scanners, each in a namespace of its own with %d images that nobody else runs, and without receivers. kube-apiserver, etcd and the "+
		"manager are real; the fake backend invents two findings for each image. When all are scanned, nothing happens for %s. Then the "+
		"manager is started anew, which gives the fake backend newer data: all images are read, recorded and matched again.\n\n",
		f.Scanners, f.Images, f.Idle.Round(time.Second))
	requests := 0
	for n := range maps.Values(f.IdleRequests) {
		requests += n
	}
	share := f.IdleCPU.Seconds() / f.Idle.Seconds()
	text.WriteString("| | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"time until every image is scanned", seconds(f.Covered)},
		{"processor time of the manager while nothing happens", fmt.Sprintf("%s, %.2f %% of a processor", seconds(f.IdleCPU), 100*share)},
		{"requests per minute while nothing happens", fmt.Sprintf("%.0f", float64(requests)/f.Idle.Minutes())},
		{"processor time of the manager from its start until all is matched again", fmt.Sprintf("%s in %s", seconds(f.RematchCPU), seconds(f.Rematch))},
		{"resident memory at its peak", fmt.Sprintf("%d MiB", f.Memory>>20)},
	} {
		fmt.Fprintf(&text, "| %s | %s |\n", row[0], row[1])
	}
	fmt.Fprintf(&text, "\nEach call of the store is a transaction of some statements. In a store with as many Scanners and images, and %d findings for each image, "+
		"(but for the sweep, which is several); they take, when newer data comes and a tenth of the findings goes:\n\n| call | times | processor time, median | at most | time, at most |\n|---|---|---|---|---|\n", findings)
	for _, s := range statements {
		fmt.Fprintf(&text, "| %s | %d | %s | %s | %s |\n", s.name, len(s.cpu), millis(s.median()), millis(slices.Max(s.cpu)), millis(slices.Max(s.took)))
	}
	single := slices.DeleteFunc(slices.Clone(statements), func(s statement) bool { return s.several })
	slowest := slices.MaxFunc(single, func(a, b statement) int { return int(slices.Max(a.cpu) - slices.Max(b.cpu)) })
	return page.Section{Text: text.String(), Bounds: []page.Bound{
		{
			What: fmt.Sprintf("while nothing happens, the manager takes at most %.0f %% of a processor: %.2f %%", 100*mostIdle, 100*share),
			Kept: share <= mostIdle,
		},
		{
			What: fmt.Sprintf("no statement of the store takes more than %s of processor time: %s, %s", millis(mostStatement), slowest.name, millis(slices.Max(slowest.cpu))),
			Kept: slices.Max(slowest.cpu) <= mostStatement,
		},
	}}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
