package clair

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// maxOverhead is the highest allowed ratio of the backend's time to that of clairctl.
const maxOverhead = 1.2

// section returns the section of the page.
func (f figures) section() page.Section {
	var text strings.Builder
	fmt.Fprintf(&text, "Clair 4.9, PostgreSQL, API server, etcd and the manager are real and all on this machine, as is the registry. "+
		"%d images are on %d bases of two layers, with a layer of their own each; an image has %d packages of Debian and %d findings. "+
		"Each runs in %d of %d namespaces, which have a Scanner and pull secrets of their own, so that there are %d reports in the store. "+
		"Requests are counted on the way from the manager to Clair; every 5 s it asks for index_state once and for update_operation twice, whatever there is to do, and its DELETE is of no image: by that it learns that the databases work.\n\n",
		imageCount, baseCount, packageCount, f.indexed.findings, teamsEach, namespaces, reports)
	fmt.Fprintf(&text, "| %d images, scanned for the first time | |\n|---|---|\n", imageCount)
	writeRows(&text, [][2]string{
		{"time until all are scanned", seconds(f.indexed.took)},
		{"requests to Clair, per image", perImage(f.indexed.requests)},
		{"shared layers: fetched, of these", fmt.Sprintf("%d times, %d", f.indexed.shared.times, 2*baseCount)},
		{"layers of one image: fetched, of these", fmt.Sprintf("%d times, %d", f.indexed.own.times, imageCount)},
		{"manager's resident memory before any Scanner, after all, at its peak", fmt.Sprintf("%s, %s", mebibytes(f.indexed.before), f.indexed.memory)},
	})
	fmt.Fprintf(&text, "\nThen %d findings are added to each image by other advisories of Debian, which come into Clair at once. The manager is started anew before each.\n\n", addedFindings)
	fmt.Fprintf(&text, "| %d reports, read again | %d a second (the default) | %d a second (the highest) |\n|---|---|---|\n", reports, f.bounded.rate, f.unbounded.rate)
	for _, row := range []struct {
		name  string
		value func(reread) string
	}{
		{"time from the first report's request to the last one's answer", func(m reread) string { return seconds(m.reading) }},
		{"time until every ImageScan shows it", func(m reread) string { return seconds(m.shown) }},
		{"requests to Clair", func(m reread) string { return counted(m.requests) }},
		{"layers fetched", func(m reread) string { return fmt.Sprint(m.layers) }},
		{"manager's resident memory after all, at its peak", func(m reread) string { return m.memory.String() }},
	} {
		fmt.Fprintf(&text, "| %s | %s | %s |\n", row.name, row.value(f.bounded), row.value(f.unbounded))
	}
	fmt.Fprintf(&text, "\nClair's own resident memory was %s at its peak.\n\n", mebibytes(f.clairPeak))
	fmt.Fprintf(&text, "`clairctl report` beside the backend, without a cluster, in turns, %d times: each from an image that is in the registry, and of which "+
		"Clair knows no layer, to its report; the backend also stores that. The command's time has the start of its process in it. Figures are the median "+
		"with the smallest and the largest.\n\n| image | findings | `clairctl` | backend | times |\n|---|---|---|---|---|\n", rounds)
	for _, o := range f.overheads {
		fmt.Fprintf(&text, "| `%s` | %d | %s | %s | %.2f |\n", o.image, o.findings, spread(o.command), spread(o.backend), o.ratio())
	}
	return page.Section{Text: text.String(), Bounds: f.bounds()}
}

func writeRows(text *strings.Builder, rows [][2]string) {
	for _, row := range rows {
		fmt.Fprintf(text, "| %s | %s |\n", row[0], row[1])
	}
}

func (f figures) bounds() []page.Bound {
	x := f.indexed
	all := []page.Bound{
		{What: fmt.Sprintf("Clair is given each of %d images once: %d times", imageCount, x.requests[postIndex]), Kept: x.requests[postIndex] == imageCount},
		{
			What: fmt.Sprintf("every layer is fetched, and none twice: %d shared ones %d times, %d others %d times", x.shared.blobs, x.shared.times, x.own.blobs, x.own.times),
			Kept: x.shared == fetched{blobs: 2 * baseCount, times: 2 * baseCount, most: 1} && x.own == fetched{blobs: imageCount, times: imageCount, most: 1},
		},
	}
	for _, m := range []reread{f.bounded, f.unbounded} {
		all = append(all, page.Bound{
			What: fmt.Sprintf("%d a second: each of %d reports is read once, and nothing is indexed: %s, %d layers fetched", m.rate, reports, counted(m.requests), m.layers),
			Kept: m.requests[readReport] == reports && m.requests[postIndex] == 0 && m.layers == 0,
		})
	}
	// At the beginning, a burst of one second's rate is allowed.
	all = append(all, page.Bound{
		What: fmt.Sprintf("%d a second: not faster: %.1f a second", f.bounded.rate, float64(reports-f.bounded.rate)/f.bounded.reading.Seconds()),
		Kept: float64(reports-f.bounded.rate) <= 1.01*float64(f.bounded.rate)*f.bounded.reading.Seconds(),
	})
	for _, o := range f.overheads {
		all = append(all, page.Bound{
			What: fmt.Sprintf("`%s`: at most %.1f times the time of clairctl: %.2f", o.image, maxOverhead, o.ratio()), Kept: o.ratio() <= maxOverhead,
		})
	}
	return all
}

// String returns both values in MiB.
func (m memory) String() string { return mebibytes(m.after) + ", " + mebibytes(m.peak) }

func counted(requests map[string]int) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(requests)) {
		all = append(all, fmt.Sprintf("%s %d", kind, requests[kind]))
	}
	return strings.Join(all, ", ")
}

func perImage(requests map[string]int) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(requests)) {
		all = append(all, fmt.Sprintf("%s %.2f", kind, float64(requests[kind])/imageCount))
	}
	return strings.Join(all, ", ")
}

func spread(took []time.Duration) string {
	return fmt.Sprintf("%s (%s to %s)", milliseconds(median(took)), milliseconds(slices.Min(took)), milliseconds(slices.Max(took)))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

func mebibytes(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }
