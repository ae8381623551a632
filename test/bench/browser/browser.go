// Package browser measures what the web UI costs a browser: Chromium shows the page of an image with 20,000 findings, from the real manager on
// an API server with etcd. The program test/ui prepares them, and ui/test/measure.mjs measures.
package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// Bounds. Times are in milliseconds, sizes in bytes.
const (
	maxFirstPaint = 1000
	maxKey        = 100
	maxHeap       = 40 << 20
	// maxGrowth is how much larger the heap may be after all updates than after the first fifth of them.
	maxGrowth   = 2 << 20
	maxNodes    = 1500
	maxRequests = 4
)

// figures are the result of ui/test/measure.mjs.
type figures struct {
	Browser string `json:"browser"`
	// Throttling is the factor by which the browser's processor is slowed down, except for the heap.
	Throttling int `json:"throttling"`
	// Paints are the times from navigation to the first contentful paint, and Shown those to the findings, one of each visit.
	Paints []float64 `json:"paints"`
	Shown  []float64 `json:"shown"`
	// Keys are the times from key presses to the frames after them.
	Keys     []float64 `json:"keys"`
	Nodes    int       `json:"nodes"`
	Requests []string  `json:"requests"`
	Updates  int       `json:"updates"`
	// Heap has the sizes of the heap after garbage collection, after each fifth of the updates.
	Heap []float64 `json:"heap"`
}

// Measure runs the measurement with the programs in bin.
func Measure(ctx context.Context, root, bin string) (section page.Section, err error) {
	dir, err := os.MkdirTemp("", "bench-ui-")
	if err != nil {
		return section, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	result := filepath.Join(dir, "result.json")
	command := exec.CommandContext(ctx, filepath.Join(bin, "ui-test"), "-root="+root, "-output="+dir, "-measure="+result)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return section, fmt.Errorf("ui-test: %w", err)
	}
	text, err := os.ReadFile(result)
	if err != nil {
		return section, err
	}
	var f figures
	if err := json.Unmarshal(text, &f); err != nil {
		return section, err
	}
	return f.section()
}

func (f figures) section() (section page.Section, err error) {
	if len(f.Paints) == 0 || len(f.Shown) == 0 || len(f.Keys) == 0 || len(f.Heap) == 0 || len(f.Requests) == 0 {
		return section, fmt.Errorf("a figure is missing: %+v", f)
	}
	paint, keys, first, heap := quantile(f.Paints, 0.5), quantile(f.Keys, 0.95), f.Heap[0], slices.Max(f.Heap)
	last := f.Heap[len(f.Heap)-1]
	section.Text = fmt.Sprintf(`The page of an image with 20,000 findings, 50 of them at once, in Chromium %s without a window, from the real manager on the same machine.
Except for the heap, the browser's processor is slowed down %d times. Each of %d visits has an empty cache. A key lasts from the press to the next frame
(Event Timing); the keys are letters in the filter, while lists arrive, and j and k. For the heap, the page is updated %d times, as in 30 minutes with a change
each six seconds: the browser's clock runs ahead, a stream names a change and ends, the page loads its findings and opens the next stream. Every tenth time
a filter changes. The heap is what is left after garbage collection.

| | median | 95 %% | worst |
|---|---|---|---|
| first contentful paint | %.0f ms | | %.0f ms |
| findings shown | %.0f ms | | %.0f ms |
| key press to frame, %d keys | %.0f ms | %.0f ms | %.0f ms |

Heap after each fifth of the updates: %s.
`, f.Browser, f.Throttling, len(f.Paints), f.Updates, paint, slices.Max(f.Paints), quantile(f.Shown, 0.5), slices.Max(f.Shown),
		len(f.Keys), quantile(f.Keys, 0.5), keys, slices.Max(f.Keys), megabytes(f.Heap))
	loads := slices.DeleteFunc(slices.Clone(f.Requests), func(request string) bool { return strings.Contains(request, "/api/v1/events") })
	distinct := slices.Compact(slices.Sorted(slices.Values(loads)))
	section.Bounds = []page.Bound{
		{What: fmt.Sprintf("first contentful paint, median: at most %d ms: %.0f ms", maxFirstPaint, paint), Kept: paint <= maxFirstPaint},
		{What: fmt.Sprintf("key press to frame, 95 %%: at most %d ms: %.0f ms", maxKey, keys), Kept: keys <= maxKey},
		{What: fmt.Sprintf("heap after %d updates: at most %d MiB: %.1f MiB", f.Updates, maxHeap>>20, heap/(1<<20)), Kept: heap <= maxHeap},
		{What: fmt.Sprintf("heap: at most %d MiB more than after the first fifth: %.1f MiB", maxGrowth>>20, (last-first)/(1<<20)), Kept: last-first <= maxGrowth},
		{What: fmt.Sprintf("at most %d elements: %d", maxNodes, f.Nodes), Kept: f.Nodes <= maxNodes},
		{
			What: fmt.Sprintf("at most %d requests besides the stream of live updates, none twice: %d, %d different", maxRequests, len(loads), len(distinct)),
			Kept: len(loads) <= maxRequests && len(distinct) == len(loads),
		},
	}
	return section, nil
}

// quantile returns the smallest of the values that at least this share of them does not exceed.
func quantile(values []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(float64(len(sorted))*share), len(sorted)-1)]
}

func megabytes(sizes []float64) string {
	texts := make([]string, len(sizes))
	for i, size := range sizes {
		texts[i] = fmt.Sprintf("%.1f MiB", size/(1<<20))
	}
	return strings.Join(texts, ", ")
}
