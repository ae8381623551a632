package scale

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/bench/page"
)

// The largest cluster: each namespace has its own images.
const (
	largestNamespaces, largestImages, largestReplicas = 1000, 10, 10
	largestPods                                       = largestNamespaces * largestImages * largestReplicas
)

// LargestFigures are the measurements of one ClusterScanner in the largest cluster, first without annotations.
type LargestFigures struct {
	Figures
	// Annotating is the time from the change of the ClusterScanner to the last request for annotations. AnnotatingRequests counts the requests,
	// AnnotatingCPU is the processor time, and MemoryAnnotated and MemoryAnnotatedPeak are the resident memory after it and at its peak.
	Annotating                           time.Duration
	AnnotatingRequests                   map[string]int
	AnnotatingCPU                        time.Duration
	MemoryAnnotated, MemoryAnnotatedPeak int64
}

// MeasureLargest measures the operator with one ClusterScanner for 100,000 pods in 1,000 namespaces.
func MeasureLargest(ctx context.Context, options Options) (f LargestFigures, err error) {
	c, err := startCluster(ctx, options)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	f.Pods = largestPods
	options.Progress("%d pods in %d namespaces are created", f.Pods, largestNamespaces)
	if err := c.createLargest(ctx); err != nil {
		return f, err
	}
	o := withClusterScanner{}
	began := time.Now()
	p, err := o.start(ctx, c)
	if err != nil {
		return f, err
	}
	f.Operator = o.name()
	for _, step := range []func() error{
		func() error { return measureStart(ctx, p, &f.Figures) },
		func() error { return c.measureCoverage(ctx, o, p, began, largestNamespaces*largestImages, &f.Figures) },
		func() error { return c.measureIdle(ctx, p, &f.Figures) },
		func() (err error) { f.Sizes, err = c.storedSizes(ctx, o.objects()); return err },
		func() error { return c.measureAnnotating(ctx, p, &f) },
	} {
		if err := step(); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (c *cluster) createLargest(ctx context.Context) error {
	all := make([]int, largestNamespaces)
	for i := range all {
		all[i] = i
	}
	if err := each(all, func(team int) error {
		if err := c.server.CreateNamespace(ctx, teamName(team)); err != nil {
			return err
		}
		for i := range largestImages {
			d := &deployment{
				namespace: teamName(team), name: fmt.Sprintf("service-%02d", i), index: team*largestImages + i, revision: 1,
				image: fmt.Sprintf("registry.example.com/%s/%s-service-%02d:1.14", teamName(team), imageKind(i), i),
			}
			for _, pod := range d.pods(largestReplicas, d.uid()) {
				if err := c.server.Create(ctx, pod); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return c.allRun(ctx, largestPods)
}

// withClusterScanner is the operator with one ClusterScanner for all namespaces, which annotates no pod.
type withClusterScanner struct{ withScanners }

func (withClusterScanner) request(ctx context.Context, c *cluster) (began time.Time, err error) {
	scanner := &v1alpha1.ClusterScanner{}
	scanner.Name, scanner.Spec.NamespaceSelector = scannerName, &metav1.LabelSelector{}
	scanner.Spec.Backend.Type, scanner.Spec.AddPodAnnotation = v1alpha1.BackendGrype, ptr.To(false)
	return time.Now(), c.server.Create(ctx, scanner)
}

func (withClusterScanner) covered(ctx context.Context, c *cluster, deployments int) error {
	var scanner v1alpha1.ClusterScanner
	if err := c.server.Get(ctx, client.ObjectKey{Name: scannerName}, &scanner); err != nil {
		return err
	}
	if counts := scanner.Status.Images; int(counts.Total) != deployments || int(counts.Scanned) != deployments {
		return fmt.Errorf("%+v, expected %d images scanned", counts, deployments)
	}
	return nil
}

func (c *cluster) measureAnnotating(ctx context.Context, p program, f *LargestFigures) error {
	c.options.Progress("all is scanned after %s; pods are annotated", seconds(f.Covered))
	if err := p.ResetPeak(); err != nil {
		return err
	}
	began := time.Now()
	scanner := &v1alpha1.ClusterScanner{}
	scanner.Name = scannerName
	if err := c.server.Patch(ctx, scanner, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"addPodAnnotation":true}}`))); err != nil {
		return err
	}
	requests, err := c.waitUntilQuiet(ctx, p, began)
	if err != nil {
		return err
	}
	f.Annotating, f.AnnotatingRequests = last(requests, began).Sub(began), byVerb(requests)
	cpu, err := p.CPU()
	if err != nil {
		return err
	}
	f.AnnotatingCPU = cpu - f.CPU - f.IdleCPU
	if f.MemoryAnnotated, f.MemoryAnnotatedPeak, err = p.Memory(); err != nil {
		return err
	}
	f.AnnotatedAfterRollout, err = c.annotated(ctx)
	return err
}

// Bounds of the largest cluster.
const (
	maxLargestMemory = 400 << 20
	// maxListPeak is the peak of the resident memory until the controllers have started, as a multiple of that when all is scanned.
	maxListPeak = 1.5
)

// LargestSection returns the section of the page for the largest cluster.
func LargestSection(f LargestFigures) page.Section {
	var text strings.Builder
	fmt.Fprintf(&text, "%d pods of %d images in %d namespaces, with one ClusterScanner. kube-apiserver, etcd and the manager are real; kwok plays %d nodes and the pods, "+
		"which run already; the fake backend invents the findings; the store is SQLite. At first the ClusterScanner has `addPodAnnotation: false`; at the end it is changed.\n\n| | |\n|---|---|\n",
		f.Pods, largestNamespaces*largestImages, largestNamespaces, nodes)
	for _, r := range [][2]string{
		{"scans", fmt.Sprint(f.Scans)},
		{"time until every image is scanned", f.covered()},
		{"requests per pod", fmt.Sprintf("%.3f (%s)", per(f.Requests, f.Pods), perPod(f.Requests, f.Pods))},
		{"requests while nothing happens, for " + idle.String(), fmt.Sprint(sum(f.IdleRequests))},
		{"processor time until all is scanned, and while nothing happens", fmt.Sprintf("%s, %.2f s", seconds(f.CPU), f.IdleCPU.Seconds())},
		{"resident memory when the controllers have started, and its peak until then", mebibytes(f.Started) + ", " + mebibytes(f.StartPeak)},
		{"resident memory when all is scanned, when nothing happened, and at its peak", mebibytes(f.MemorySettled) + ", " + mebibytes(f.MemoryIdle) + ", " + mebibytes(f.MemoryPeak)},
		{"ImageScans, bytes of them in etcd together", fmt.Sprintf("%d, %d", len(f.Sizes), f.stored())},
		{"annotating all pods: time, processor time", seconds(f.Annotating) + ", " + seconds(f.AnnotatingCPU)},
		{"annotating all pods: requests per pod", fmt.Sprintf("%.3f", per(f.AnnotatingRequests, f.Pods))},
		{"resident memory after it, and at its peak", mebibytes(f.MemoryAnnotated) + ", " + mebibytes(f.MemoryAnnotatedPeak)},
	} {
		fmt.Fprintf(&text, "| %s | %s |\n", r[0], r[1])
	}
	most := max(f.MemorySettled, f.MemoryIdle, f.MemoryAnnotated)
	peak := float64(f.StartPeak) / float64(f.MemorySettled)
	return page.Section{Text: text.String(), Bounds: []page.Bound{
		{What: fmt.Sprintf("exactly %d scans: %d", largestNamespaces*largestImages, f.Scans), Kept: f.Scans == largestNamespaces*largestImages},
		{What: fmt.Sprintf("at most %s of resident memory: %s", mebibytes(maxLargestMemory), mebibytes(most)), Kept: most <= maxLargestMemory},
		{What: fmt.Sprintf("the first list needs at most %.1f times the memory when all is scanned: %.2f times", maxListPeak, peak), Kept: peak <= maxListPeak},
		{What: fmt.Sprintf("at most %.1f requests per pod without annotations: %.3f", maxUnannotated, per(f.Requests, f.Pods)), Kept: per(f.Requests, f.Pods) <= maxUnannotated},
		{What: fmt.Sprintf("no request while nothing happens: %d", sum(f.IdleRequests)), Kept: sum(f.IdleRequests) == 0},
		{What: fmt.Sprintf("at first no pod is annotated, then all: %d, %d", f.Annotated, f.AnnotatedAfterRollout), Kept: f.Annotated == 0 && f.AnnotatedAfterRollout == f.Pods},
	}}
}
