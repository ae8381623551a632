// Package scale measures the operator in a cluster of many pods: how often images are indexed, what the API server is
// asked for, what is stored in it, and how much memory the manager takes.
//
// API server, etcd and manager are real; nodes and pods are played by kwok; the engine is the fake backend, which needs no
// registry and no vulnerability database. It does not know the page that the figures are written to.
package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/test/bench/process"
)

// Options say where things are.
type Options struct {
	// Root is the project's directory, Bin the programs of ours, Assets etcd and kube-apiserver.
	Root, Bin, Assets string
	// Progress is told what goes on.
	Progress func(format string, args ...any)
}

// Bounds of waiting and of watching.
const (
	patience = 10 * time.Minute
	// quiet is how long the manager must ask nothing before all is thought to be done.
	quiet = 10 * time.Second
	// idle is how long the manager is watched when nothing happens.
	idle = 30 * time.Second
	// waves of a rollout: each starts new pods, waits until they run, and ends the old ones.
	waves = 10
)

// Figures of one size of a cluster.
type Figures struct {
	Pods int
	// Indexed is how often an image was indexed, once all was covered and after the rollout.
	Indexed, IndexedAfterRollout int
	// Covered is the time from the first Scanner's creation until all images of all Scanners are scanned, Annotated
	// until the last pod says so.
	Covered, Annotated time.Duration
	// Rollout is the time from the first new pod to the manager's last request about it.
	Rollout time.Duration
	// Requests of the manager by verb and resource: for coverage, for the rollout, and while nothing happens.
	Requests, RolloutRequests, IdleRequests map[string]int
	// PodsAnnotated and PodsAnnotatedAfterRollout are all pods, if all is well.
	PodsAnnotated, PodsAnnotatedAfterRollout int
	// Memory is resident in bytes: before any Scanner, then steady and at its peak after all.
	MemoryBefore, MemorySteady, MemoryPeak int64
	// ImageScans is their number, Largest and Median their bytes in etcd.
	ImageScans, Largest, Median int
}

// Measure runs a cluster of a size through coverage, quiet, and a rollout.
func Measure(ctx context.Context, options Options, pods int) (f Figures, err error) {
	f.Pods = pods
	c, err := startCluster(ctx, options)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	for i := range namespaces {
		if err := c.createNamespace(ctx, namespaceName(i)); err != nil {
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
	if err := process.Eventually(ctx, patience, process.Often, c.covered); err != nil {
		return err
	}
	f.Covered = time.Since(began)
	requests, err := c.settled(ctx, began)
	if err != nil {
		return err
	}
	f.Annotated, f.Requests = last(requests).Sub(began), byVerb(requests)
	f.Indexed = c.manager.Logged(indexed)
	f.PodsAnnotated, err = c.annotated(ctx)
	return err
}

// indexed is in the log for each image that the fake backend indexes.
const indexed = `"msg":"` + fake.IndexedMessage + `"`

// settled waits until the manager has no more to ask, and returns what it asked since.
func (c *cluster) settled(ctx context.Context, since time.Time) (requests []request, err error) {
	err = process.Eventually(ctx, patience, process.Rarely, func(context.Context) error {
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
	requests, err := c.settled(ctx, began)
	if err != nil {
		return err
	}
	if err := process.Eventually(ctx, time.Minute, process.Often, c.covered); err != nil {
		return err
	}
	f.Rollout, f.RolloutRequests = last(requests).Sub(began), byVerb(requests)
	f.IndexedAfterRollout = c.manager.Logged(indexed)
	f.PodsAnnotatedAfterRollout, err = c.annotated(ctx)
	return err
}
