package scale

import (
	"fmt"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// maxObject is the maximum size of an ImageScan in etcd, in bytes.
const maxObject = 4 << 10

// Section returns the section of the page for clusters of several sizes.
func Section(all []Figures) page.Section {
	var s page.Section
	var text strings.Builder
	fmt.Fprintf(&text, "kube-apiserver, etcd and the manager are real. kwok plays %d nodes and the pods on them, which run %d images in each of "+
		"%d namespaces, each with a Scanner; the fake backend invents the findings (six images of ten have 2, two have 200). "+
		"The pods run already when the Scanners are created. Then nothing happens for %s; then every pod is replaced by one with the same image, "+
		"in %d waves. Requests are those that the API server's audit log has of the manager, without the lease by which it leads.\n\n",
		nodes, images, namespaces, idle, waves)
	text.WriteString(row("", all, func(f Figures) string { return fmt.Sprintf("%d pods", f.Pods) }))
	text.WriteString("|---" + strings.Repeat("|---", len(all)) + "|\n")
	for _, r := range []struct {
		name  string
		value func(Figures) string
	}{
		{"index calls", func(f Figures) string { return fmt.Sprint(f.Indexed) }},
		{"index calls of the rollout", func(f Figures) string { return fmt.Sprint(f.IndexedAfterRollout - f.Indexed) }},
		{"time until every image is scanned", func(f Figures) string { return seconds(f.Covered) }},
		{"time until every pod is annotated", func(f Figures) string { return seconds(f.Annotated) }},
		{"requests per pod", func(f Figures) string { return total(f.Requests, f.Pods) }},
		{"of these", func(f Figures) string { return perPod(f.Requests, f.Pods) }},
		{"requests per minute while nothing happens", func(f Figures) string { return perMinute(f.IdleRequests) }},
		{"rollout, from the first new pod to the last request", func(f Figures) string { return seconds(f.Rollout) }},
		{"requests per replaced pod", func(f Figures) string { return total(f.RolloutRequests, f.Pods) }},
		{"of these", func(f Figures) string { return perPod(f.RolloutRequests, f.Pods) }},
		{"resident memory before any Scanner", func(f Figures) string { return mebibytes(f.MemoryBefore) }},
		{"resident memory after all", func(f Figures) string { return mebibytes(f.MemorySteady) }},
		{"resident memory at its peak", func(f Figures) string { return mebibytes(f.MemoryPeak) }},
		{"ImageScans", func(f Figures) string { return fmt.Sprint(f.ImageScans) }},
		{"bytes of an ImageScan in etcd, median", func(f Figures) string { return fmt.Sprint(f.Median) }},
		{"bytes of an ImageScan in etcd, largest", func(f Figures) string { return fmt.Sprint(f.Largest) }},
	} {
		text.WriteString(row(r.name, all, r.value))
	}
	s.Text = text.String()
	for _, f := range all {
		s.Bounds = append(s.Bounds, f.bounds()...)
	}
	return s
}

func (f Figures) bounds() []page.Bound {
	return []page.Bound{
		{What: fmt.Sprintf("%d pods: exactly %d index calls: %d", f.Pods, images, f.Indexed), Kept: f.Indexed == images},
		{What: fmt.Sprintf("%d pods: no index call when all are replaced: %d", f.Pods, f.IndexedAfterRollout-f.Indexed), Kept: f.IndexedAfterRollout == f.Indexed},
		{
			What: fmt.Sprintf("%d pods: the largest ImageScan has at most %d bytes in etcd: %d", f.Pods, maxObject, f.Largest),
			Kept: f.Largest <= maxObject && f.ImageScans == images*namespaces,
		},
		{
			What: fmt.Sprintf("%d pods: all are annotated: %d, and %d after the rollout", f.Pods, f.PodsAnnotated, f.PodsAnnotatedAfterRollout),
			Kept: f.PodsAnnotated == f.Pods && f.PodsAnnotatedAfterRollout == f.Pods,
		},
	}
}

// row returns a row of a Markdown table with a column for each size.
func row(name string, all []Figures, value func(Figures) string) string {
	cells := []string{name}
	for _, f := range all {
		cells = append(cells, value(f))
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func mebibytes(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// total returns the number of requests per pod.
func total(counts map[string]int, pods int) string {
	return fmt.Sprintf("%.2f", float64(sum(counts))/float64(pods))
}

// perMinute converts the requests of the idle period to requests per minute.
func perMinute(counts map[string]int) string {
	return fmt.Sprintf("%.0f", float64(sum(counts))*float64(time.Minute)/float64(idle))
}

func sum(counts map[string]int) (all int) {
	for _, n := range counts {
		all += n
	}
	return all
}
