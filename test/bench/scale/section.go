package scale

import (
	"fmt"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// Bounds of the operator, beside trivy-operator where they are relative.
const (
	// maxObject is the maximum size of an ImageScan in etcd, in bytes.
	maxObject = 4 << 10
	// maxMemoryShare is the share of trivy-operator's resident memory.
	maxMemoryShare = 0.40
	// maxPodMemory is the resident memory of a pod, in bytes. maxBase is the resident memory with the fewest pods before any Scanner.
	maxPodMemory, maxBase = 2560, 50 << 20
	// maxRequests is the maximum of requests per pod where there are many pods for an image, maxUnannotated that without annotations.
	maxRequests, maxUnannotated = 1.05, 0.1
	maxCoverage, maxRollout     = 20 * time.Second, 40 * time.Second
)

// Section returns the section of the page for clusters of several sizes, each with the figures of all operators.
func Section(clusters [][]Figures) page.Section {
	var s page.Section
	var text strings.Builder
	fmt.Fprintf(&text, "kube-apiserver, etcd, PostgreSQL and the operators are real, and all share this machine. kwok plays %d nodes and the pods on them. "+
		"%d images run in each of %d namespaces, each as a Deployment, whose pods run already when an operator starts. The operators run one after the other in the same "+
		"cluster, alone: first %s, then ours with a Scanner in each namespace. When all is scanned and no request came for %s, nothing happens for %s; then "+
		"a twentieth of all pods is replaced by pods with the same images, and in the cluster of %d pods, with ours on SQLite, all of them once more, in %d waves. Requests are those of the API server's audit "+
		"log, without leases. Time begins with the first Scanner, and for trivy-operator when its controllers have started. Processor time begins with the process.\n\n"+
		"What is not equal: nothing is really scanned. Our fake backend invents findings (six images of ten have 2, two have 200) in the manager's process; "+
		"trivy-operator's Jobs are played: each succeeds at once, and its log, which is not compressed, has as many findings. trivy-operator has only its vulnerability scans switched on, "+
		"10 Jobs at once as by default, and it tries again after 1 s instead of 30 s when it must wait for them. It keeps a report with every finding for each workload in etcd; "+
		"ours keeps findings in a database and counts for each image in etcd. Ours annotates every pod; trivy-operator changes no pod. Resident memory includes the used pages of the "+
		"program's file.\n", nodes, images, namespaces, clusters[0][0].Operator, quiet, idle, fullRolloutPods, waves)
	for _, all := range clusters {
		fmt.Fprintf(&text, "\n**%d pods**\n\n", all[0].Pods)
		text.WriteString(table(all))
		s.Bounds = append(s.Bounds, bounds(all)...)
	}
	fewest, most := clusters[0], clusters[len(clusters)-1]
	for i := 1; i < len(most) && len(clusters) > 1; i++ {
		each := (most[i].MemorySettled - fewest[i].MemorySettled) / int64(most[i].Pods-fewest[i].Pods)
		s.Bounds = append(s.Bounds, page.Bound{
			What: fmt.Sprintf("%s: at most %d bytes of resident memory for each pod more: %d", most[i].Operator, maxPodMemory, each),
			Kept: each <= maxPodMemory,
		})
	}
	s.Text = text.String()
	return s
}

// table returns a table with a column for each operator.
func table(all []Figures) string {
	var text strings.Builder
	text.WriteString(row("", all, func(f Figures) string { return f.Operator }))
	text.WriteString("|---" + strings.Repeat("|---", len(all)) + "|\n")
	for _, r := range []struct {
		name  string
		value func(Figures) string
	}{
		{"scans", func(f Figures) string { return fmt.Sprint(f.Scans) }},
		{"time until every image is scanned", Figures.covered},
		{"time until the last request", func(f Figures) string { return seconds(f.Settled) }},
		{"requests per pod", func(f Figures) string { return fmt.Sprintf("%.3f", per(f.Requests, f.Pods)) }},
		{"of these", func(f Figures) string { return perPod(f.Requests, f.Pods) }},
		{"requests of the start", func(f Figures) string { return fmt.Sprint(sum(f.StartRequests)) }},
		{"requests while nothing happens", func(f Figures) string { return fmt.Sprint(sum(f.IdleRequests)) }},
		{"processor time until all is scanned", func(f Figures) string { return seconds(f.CPU) }},
		{"processor time while nothing happens", func(f Figures) string { return fmt.Sprintf("%.2f s", f.IdleCPU.Seconds()) }},
		{"resident memory when the controllers have started", func(f Figures) string { return mebibytes(f.Started) }},
		{"of this, without pages of the program's file", func(f Figures) string { return mebibytes(f.Anonymous) }},
		{"resident memory when all is scanned", func(f Figures) string { return mebibytes(f.MemorySettled) }},
		{"resident memory when nothing happened", func(f Figures) string { return mebibytes(f.MemoryIdle) }},
		{"resident memory at its peak", func(f Figures) string { return mebibytes(f.MemoryPeak) }},
		{"objects in etcd", func(f Figures) string { return fmt.Sprint(len(f.Sizes)) }},
		{"bytes of them, together", func(f Figures) string { return fmt.Sprint(f.stored()) }},
		{"bytes of the median and of the largest", func(f Figures) string { return fmt.Sprintf("%d, %d", f.size(0.5), f.size(1)) }},
		{"rollout of a twentieth: scans", func(f Figures) string { return fmt.Sprint(f.RolloutScans) }},
		{"rollout of a twentieth: time until the last request", func(f Figures) string { return seconds(f.Rollout) }},
		{"rollout of a twentieth: requests per replaced pod", func(f Figures) string { return fmt.Sprintf("%.2f", per(f.RolloutRequests, f.RolloutPods)) }},
	} {
		text.WriteString(row(r.name, all, r.value))
	}
	for _, f := range all {
		if f.FullRolloutRequests != nil {
			fmt.Fprintf(&text, "\nAll pods replaced, %s: %s from the first new pod to the last request, of which %s after the last old pod was gone; %d scans, %.2f requests per replaced pod (%s).\n",
				f.Operator, seconds(f.FullRollout), seconds(f.FullRolloutLag), f.FullRolloutScans, per(f.FullRolloutRequests, f.Pods), perPod(f.FullRolloutRequests, f.Pods))
		}
	}
	return text.String()
}

func (f Figures) covered() string {
	if f.Covered == 0 {
		return fmt.Sprintf("not within %s", coverTimeout)
	}
	return seconds(f.Covered)
}

// size returns the size of an object in etcd: 0.5 for the median, 1 for the largest one; 0 if there is none.
func (f Figures) size(quantile float64) int {
	if len(f.Sizes) == 0 {
		return 0
	}
	return f.Sizes[int(quantile*float64(len(f.Sizes)-1))]
}

func (f Figures) stored() (bytes int) {
	for _, size := range f.Sizes {
		bytes += size
	}
	return bytes
}

// bounds returns the bounds of a cluster. The first operator is the one that the others are compared with.
func bounds(all []Figures) (bounds []page.Bound) {
	peer := all[0]
	for _, f := range all[1:] {
		add := func(kept bool, format string, args ...any) {
			bounds = append(bounds, page.Bound{What: fmt.Sprintf("%d pods, %s: ", f.Pods, f.Operator) + fmt.Sprintf(format, args...), Kept: kept})
		}
		add(f.Scans == images && f.RolloutScans+f.FullRolloutScans == 0, "exactly %d scans, and none of the rollouts: %d, %d", images, f.Scans, f.RolloutScans+f.FullRolloutScans)
		add(f.Annotated == f.Pods && f.AnnotatedAfterRollout == f.Pods, "all are annotated: %d, and %d after the rollout", f.Annotated, f.AnnotatedAfterRollout)
		largest := f.size(1)
		add(largest <= maxObject && len(f.Sizes) == images*namespaces, "the largest ImageScan has at most %d bytes in etcd: %d", maxObject, largest)
		for _, at := range []struct {
			when       string
			ours, peer int64
		}{{"when all is scanned", f.MemorySettled, peer.MemorySettled}, {"when nothing happened", f.MemoryIdle, peer.MemoryIdle}} {
			share := float64(at.ours) / float64(at.peer)
			add(share <= maxMemoryShare, "%s, at most %.0f %% of trivy-operator's resident memory: %.0f %%", at.when, 100*maxMemoryShare, 100*share)
		}
		add(f.CPU <= peer.CPU, "at most trivy-operator's processor time until all is scanned: %s, %s", seconds(f.CPU), seconds(peer.CPU))
		add(f.IdleCPU <= peer.IdleCPU, "at most trivy-operator's processor time while nothing happens: %s, %s", f.IdleCPU, peer.IdleCPU)
		add(sum(f.IdleRequests) == 0, "no request while nothing happens: %d", sum(f.IdleRequests))
		switch f.Pods {
		case Sizes[0]:
			add(f.Started <= maxBase, "at most %s of resident memory before any Scanner: %s", mebibytes(maxBase), mebibytes(f.Started))
		case fullRolloutPods:
			add(f.Covered <= maxCoverage, "every image is scanned within %s: %s", maxCoverage, seconds(f.Covered))
			if f.FullRolloutRequests != nil {
				add(f.FullRollout <= maxRollout, "a rollout of all pods takes at most %s: %s", maxRollout, seconds(f.FullRollout))
			}
		case Sizes[len(Sizes)-1]:
			add(per(f.Requests, f.Pods) <= maxRequests, "at most %.2f requests per pod: %.3f", maxRequests, per(f.Requests, f.Pods))
		}
	}
	return bounds
}

// row returns a row of a Markdown table with a column for each operator.
func row(name string, all []Figures, value func(Figures) string) string {
	cells := []string{name}
	for _, f := range all {
		cells = append(cells, value(f))
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func mebibytes(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// per returns the number of requests per pod.
func per(counts map[string]int, pods int) float64 { return float64(sum(counts)) / float64(pods) }

func sum(counts map[string]int) (all int) {
	for _, n := range counts {
		all += n
	}
	return all
}
