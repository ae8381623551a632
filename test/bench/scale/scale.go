// Package scale measures the operator in a cluster with many pods: how often images are indexed, the requests to the API server, the
// size of the stored objects, and the memory of the manager.
//
// API server, etcd and manager are real. kwok simulates nodes and pods. The engine is the fake backend, which needs no registry and no
// vulnerability database. The package does not know the page that the figures are written to.
package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Options holds the directories that the measurement needs.
type Options struct {
	// Root is the project's directory, Bin that of the project's programs, Assets that of etcd and kube-apiserver.
	Root, Bin, Assets string
	// Progress prints a line about the current step.
	Progress func(format string, args ...any)
}

// Bounds of waits and observations.
const (
	waitTimeout = 10 * time.Minute
	// quiet is how long the manager must send no request before its work counts as done.
	quiet = 10 * time.Second
	// idle is how long the idle manager is observed.
	idle = 30 * time.Second
	// waves is the number of waves of a rollout. Each wave starts new pods, waits until they run, and deletes the old ones.
	waves = 10
)

// Figures are the measurements for one size of a cluster.
type Figures struct {
	Pods int
	// Indexed is the number of indexed images after full coverage, IndexedAfterRollout that after the rollout.
	Indexed, IndexedAfterRollout int
	// Covered is the time from the creation of the first Scanner until all images of all Scanners are scanned. Annotated is the time
	// until the last pod is annotated.
	Covered, Annotated time.Duration
	// Rollout is the time from the first new pod to the manager's last request for it.
	Rollout time.Duration
	// Requests counts the manager's requests by verb and resource: for coverage, for the rollout, and while idle.
	Requests, RolloutRequests, IdleRequests map[string]int
	// PodsAnnotated and PodsAnnotatedAfterRollout equal Pods if everything works.
	PodsAnnotated, PodsAnnotatedAfterRollout int
	// Memory is the resident memory in bytes: before any Scanner, at the end, and its peak.
	MemoryBefore, MemorySteady, MemoryPeak int64
	// ImageScans is their number, Largest and Median their sizes in etcd, in bytes.
	ImageScans, Largest, Median int
}

// Measure runs a cluster with the given number of pods through coverage, an idle period, and a rollout.
func Measure(ctx context.Context, options Options, pods int) (f Figures, err error) {
	f.Pods = pods
	c, err := startCluster(ctx, options)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	for i := range namespaces {
		if err := c.server.CreateNamespace(ctx, namespaceName(i)); err != nil {
			return f, err
		}
	}
	options.Progress("%d pods are created", pods)
	replicas := pods / (namespaces * images)
	if err := c.createPods(ctx, allDeployments(), replicas, 1); err != nil {
		return f, err
	}
	if err := c.allRun(ctx, pods); err != nil {
		return f, err
	}
	for _, step := range []func(context.Context, *Figures) error{c.measureCoverage, c.measureIdle, c.measureObjects, c.measureRollout} {
		if err := step(ctx, &f); err != nil {
			return f, err
		}
	}
	f.MemorySteady, f.MemoryPeak, err = c.manager.Memory()
	return f, err
}

func (c *cluster) measureCoverage(ctx context.Context, f *Figures) (err error) {
	if err := c.startManager(ctx); err != nil {
		return err
	}
	if f.MemoryBefore, _, err = c.manager.Memory(); err != nil {
		return err
	}
	c.options.Progress("the manager runs; Scanners are created")
	began := time.Now()
	if err := c.createScanners(ctx); err != nil {
		return err
	}
	if err := wait.Eventually(ctx, waitTimeout, wait.Often, c.covered); err != nil {
		return err
	}
	f.Covered = time.Since(began)
	requests, err := c.waitUntilQuiet(ctx, began)
	if err != nil {
		return err
	}
	f.Annotated, f.Requests = last(requests).Sub(began), byVerb(requests)
	f.Indexed = c.manager.Logged(indexed)
	f.PodsAnnotated, err = c.annotated(ctx)
	return err
}

// indexed is the log line for each image that the fake backend indexes.
const indexed = `"msg":"` + fake.IndexedMessage + `"`

// waitUntilQuiet waits until the manager sends no more requests, and returns its requests since the given time.
func (c *cluster) waitUntilQuiet(ctx context.Context, since time.Time) (requests []request, err error) {
	err = wait.Eventually(ctx, waitTimeout, wait.Rarely, func(context.Context) error {
		if err := c.manager.Alive(); err != nil {
			return err
		}
		if requests, err = c.audit.between(since, time.Now()); err != nil {
			return err
		}
		if lately := time.Since(last(requests)); lately < quiet {
			return fmt.Errorf("the manager asked something %s ago", lately.Round(time.Second))
		}
		return nil
	})
	return requests, err
}

func (c *cluster) measureIdle(ctx context.Context, f *Figures) error {
	began := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(idle):
	}
	requests, err := c.audit.between(began, time.Now())
	f.IdleRequests = byVerb(requests)
	return err
}

func (c *cluster) measureObjects(ctx context.Context, f *Figures) error {
	sizes, err := c.storedSizes(ctx, "/registry/scanner-operator.io/imagescans/")
	if err != nil {
		return err
	}
	if len(sizes) == 0 {
		return errors.New("etcd has no ImageScan")
	}
	f.ImageScans, f.Largest, f.Median = len(sizes), sizes[len(sizes)-1], sizes[len(sizes)/2]
	return nil
}

// measureRollout replaces every pod by one with the same image.
func (c *cluster) measureRollout(ctx context.Context, f *Figures) error {
	c.options.Progress("all covered after %s; every pod is replaced", f.Covered.Round(time.Millisecond))
	began := time.Now()
	all := allDeployments()
	replicas := f.Pods / len(all)
	for wave := range waves {
		part := all[wave*len(all)/waves : (wave+1)*len(all)/waves]
		if err := c.createPods(ctx, part, replicas, 2); err != nil {
			return err
		}
		if err := c.allRun(ctx, f.Pods+len(part)*replicas); err != nil {
			return err
		}
		if err := c.deletePods(ctx, part, replicas, 1); err != nil {
			return err
		}
		if err := c.allRun(ctx, f.Pods); err != nil {
			return err
		}
	}
	requests, err := c.waitUntilQuiet(ctx, began)
	if err != nil {
		return err
	}
	if err := wait.Eventually(ctx, time.Minute, wait.Often, c.covered); err != nil {
		return err
	}
	f.Rollout, f.RolloutRequests = last(requests).Sub(began), byVerb(requests)
	f.IndexedAfterRollout = c.manager.Logged(indexed)
	f.PodsAnnotatedAfterRollout, err = c.annotated(ctx)
	return err
}
