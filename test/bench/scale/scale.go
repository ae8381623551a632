// Package scale measures the operator in a cluster with many pods, beside trivy-operator: how often images are scanned, the requests to the
// API server, memory and processor time, and the size of the stored objects.
//
// API server, etcd and the operators are real. kwok simulates nodes and pods. Our engine is the fake backend, and trivy-operator's Jobs are
// played: no figure has a registry, a vulnerability database or the work of a scan. The package does not know the page that the figures are
// written to.
package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
	"github.com/scanner-operator/scanner-operator/test/process"
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
	// podsTimeout bounds the wait for pods that kwok plays.
	podsTimeout = 30 * time.Minute
	// coverTimeout is how long an operator has until every image is scanned.
	coverTimeout = 20 * time.Minute
	// quiet is how long an operator must send no request before its work counts as done.
	quiet = 10 * time.Second
	// settle is the time from the start of the controllers to the measurement of the memory without scans.
	settle = 5 * time.Second
	// idle is how long an idle operator is observed.
	idle = 2 * time.Minute
	// rolloutShare is the share of the pods that a rollout replaces: one of so many.
	rolloutShare = 20
	// fullRolloutPods is the size of the cluster in which all pods are replaced, too, in so many waves. Each wave starts new pods, waits until
	// they run, and deletes the old ones.
	fullRolloutPods, waves = 5000, 10
)

// Sizes are the measured numbers of pods, smallest first.
var Sizes = []int{1000, fullRolloutPods, 20000}

// operator is one of the compared operators.
type operator interface {
	// name is the operator's name on the page, once it has started.
	name() string
	// start starts the operator and waits until its controllers have started.
	start(context.Context, *cluster) (program, error)
	// request requests the scans of all pods, and returns when it began. An operator that scans without a request began with its start.
	request(context.Context, *cluster) (began time.Time, err error)
	// covered returns an error unless all images of the Deployments are scanned.
	covered(ctx context.Context, c *cluster, deployments int) error
	// scans returns the number of scans that the operator has started.
	scans(program) int
	// objects is the prefix in etcd of the operator's objects.
	objects() string
	// remove undoes request.
	remove(context.Context, *cluster, program) error
}

// program is a running operator, and the user of its requests.
type program struct {
	*process.Process
	user string
}

// Figures are the measurements of one operator in a cluster of one size.
type Figures struct {
	Operator string
	Pods     int
	// Scans is the number of started scans until full coverage, RolloutScans the number of those of the rollout.
	Scans, RolloutScans int
	// Covered is the time until all images are scanned, Settled that until the last request. They begin with the request of the scans. If
	// Covered is 0, not all images were scanned within 20 minutes.
	Covered, Settled time.Duration
	// StartRequests counts the requests from the start of the operator to the request of the scans, Requests those until it was settled, and
	// IdleRequests those of the idle time after that. All are by verb and resource.
	StartRequests, Requests, IdleRequests map[string]int
	// Started is the resident memory in bytes when the controllers have started, and StartPeak its peak until then. MemorySettled, MemoryIdle
	// and MemoryPeak are those after full coverage, after the idle time, and the peak until then.
	// Anonymous is the part of Started that is no part of the program's file.
	Started, StartPeak, Anonymous, MemorySettled, MemoryIdle, MemoryPeak int64
	// CPU is the processor time from the start until the operator was settled, IdleCPU that of the idle time.
	CPU, IdleCPU time.Duration
	// Annotated is the number of annotated pods, AnnotatedAfterRollout that after the rollout.
	Annotated, AnnotatedAfterRollout int
	// RolloutPods is the number of replaced pods, Rollout the time from the first new pod to the last request for them.
	RolloutPods     int
	Rollout         time.Duration
	RolloutRequests map[string]int
	// FullRollout, FullRolloutScans and FullRolloutRequests are the same of a rollout that replaces all pods; nil where it is not measured.
	// FullRolloutLag is the part of FullRollout after the last pod was replaced.
	FullRollout         time.Duration
	FullRolloutLag      time.Duration
	FullRolloutScans    int
	FullRolloutRequests map[string]int
	// Sizes are the sizes in bytes of the operator's objects in etcd, smallest first, before the rollout.
	Sizes []int
}

// Measure measures trivy-operator and the operator in the same cluster, the latter with each kind of store: until all images are scanned,
// while nothing happens, and during a rollout of a twentieth of all pods.
func Measure(ctx context.Context, options Options, pods int) (all []Figures, err error) {
	c, err := startCluster(ctx, options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	for i := range namespaces {
		if err := c.server.CreateNamespace(ctx, namespaceName(i)); err != nil {
			return nil, err
		}
		// trivy-operator looks for pull Secrets there.
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName(i), Name: "default"}}
		if err := c.server.Create(ctx, account); err != nil {
			return nil, err
		}
	}
	options.Progress("%d pods are created", pods)
	workloads := workloads{all: allDeployments(), replicas: pods / (namespaces * images)}
	if err := c.deploy(ctx, workloads.all, workloads.replicas); err != nil {
		return nil, err
	}
	if err := c.allRun(ctx, pods); err != nil {
		return nil, err
	}
	database, err := server.New("PostgreSQL", server.Options{Settings: map[string]string{
		"autovacuum": "on", "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	dsn, err := database.Create("bench")
	if err != nil {
		return nil, err
	}
	for _, o := range []operator{&trivyOperator{}, withScanners{}, withScanners{dsn: dsn}} {
		figures, err := c.measure(ctx, o, &workloads)
		if err != nil {
			return nil, fmt.Errorf("%T: %w", o, err)
		}
		all = append(all, figures)
	}
	return all, nil
}

// workloads are the Deployments of a cluster.
type workloads struct {
	all      []*deployment
	replicas int
	// rolledOut is the number of rollouts. Each has other Deployments.
	rolledOut int
}

// next returns the Deployments of the next rollout.
func (w *workloads) next() []*deployment {
	size := len(w.all) / rolloutShare
	begin := w.rolledOut * size
	w.rolledOut++
	return w.all[begin : begin+size]
}

func (c *cluster) measure(ctx context.Context, o operator, w *workloads) (f Figures, err error) {
	began := time.Now()
	p, err := o.start(ctx, c)
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err != nil {
		return f, err
	}
	f.Operator, f.Pods = o.name(), len(w.all)*w.replicas
	c.options.Progress("%s has started", f.Operator)
	for _, step := range []func() error{
		func() error { return measureStart(ctx, p, &f) },
		func() error { return c.measureCoverage(ctx, o, p, began, len(w.all), &f) },
		func() error { return c.measureIdle(ctx, p, &f) },
		func() (err error) { f.Sizes, err = c.storedSizes(ctx, o.objects()); return err },
		func() error { return c.measureRollout(ctx, o, p, w, &f) },
	} {
		if err := step(); err != nil {
			return f, err
		}
	}
	// The whole takes long. This line is what remains if it is interrupted.
	c.options.Progress("%s: covered %s, settled %s, %.2f requests per pod (%s), processor time %s, idle %s and %d requests, memory %s, %s, %s, at its peak %s, "+
		"rollout %s with %d scans and %.2f requests per pod (%s)",
		f.Operator, seconds(f.Covered), seconds(f.Settled), per(f.Requests, f.Pods), perPod(f.Requests, f.Pods), seconds(f.CPU), f.IdleCPU, sum(f.IdleRequests),
		mebibytes(f.Started), mebibytes(f.MemorySettled), mebibytes(f.MemoryIdle), mebibytes(f.MemoryPeak), seconds(f.Rollout), f.RolloutScans, per(f.RolloutRequests, f.RolloutPods), perPod(f.RolloutRequests, f.RolloutPods))
	return f, o.remove(ctx, c, p)
}

func measureStart(ctx context.Context, p program, f *Figures) (err error) {
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	if f.Started, f.StartPeak, err = p.Memory(); err != nil {
		return err
	}
	f.Anonymous, err = p.AnonymousMemory()
	return err
}

func (c *cluster) measureCoverage(ctx context.Context, o operator, p program, started time.Time, deployments int, f *Figures) error {
	began, err := o.request(ctx, c)
	if err != nil {
		return err
	}
	err = wait.Eventually(ctx, coverTimeout, wait.Often, func(ctx context.Context) error {
		if err := p.Alive(); err != nil {
			return err
		}
		return o.covered(ctx, c, deployments)
	})
	switch {
	case ctx.Err() != nil || p.Alive() != nil:
		return err
	case err != nil:
		c.options.Progress("%s has not scanned every image: %v", f.Operator, err)
	default:
		f.Covered = time.Since(began)
	}
	requests, err := c.waitUntilQuiet(ctx, p, began)
	if err != nil {
		return err
	}
	f.Settled, f.Requests, f.Scans = last(requests, began).Sub(began), byVerb(requests), o.scans(p)
	if requests, err = c.requests(p, started, began); err != nil {
		return err
	}
	f.StartRequests = byVerb(requests)
	if f.CPU, err = p.CPU(); err != nil {
		return err
	}
	if f.MemorySettled, _, err = p.Memory(); err != nil {
		return err
	}
	f.Annotated, err = c.annotated(ctx)
	return err
}

// requests returns the requests of an operator in a period, without routine requests.
func (c *cluster) requests(p program, from, to time.Time) ([]request, error) {
	return c.audit.between(p.user, from, to)
}

// waitUntilQuiet waits until an operator sends no more requests, and returns its requests since the given time.
func (c *cluster) waitUntilQuiet(ctx context.Context, p program, since time.Time) (requests []request, err error) {
	err = wait.Eventually(ctx, waitTimeout, wait.Rarely, func(context.Context) error {
		if err := p.Alive(); err != nil {
			return err
		}
		if requests, err = c.requests(p, since, time.Now()); err != nil {
			return err
		}
		if lately := time.Since(last(requests, since)); lately < quiet {
			return fmt.Errorf("it asked something %s ago", lately.Round(time.Second))
		}
		return nil
	})
	return requests, err
}

func (c *cluster) measureIdle(ctx context.Context, p program, f *Figures) error {
	began := time.Now()
	before, err := p.CPU()
	if err != nil {
		return err
	}
	if err := sleep(ctx, idle); err != nil {
		return err
	}
	after, err := p.CPU()
	if err != nil {
		return err
	}
	f.IdleCPU = after - before
	if f.MemoryIdle, f.MemoryPeak, err = p.Memory(); err != nil {
		return err
	}
	requests, err := c.requests(p, began, time.Now())
	f.IdleRequests = byVerb(requests)
	return err
}

// measureRollout replaces a share of the pods by pods with the same images. Once, it replaces all of them.
func (c *cluster) measureRollout(ctx context.Context, o operator, p program, w *workloads, f *Figures) (err error) {
	some := w.next()
	f.RolloutPods = len(some) * w.replicas
	if f.Rollout, _, f.RolloutRequests, err = c.rollOutInWaves(ctx, p, [][]*deployment{some}, w.replicas, f.Pods); err != nil {
		return err
	}
	f.RolloutScans = o.scans(p) - f.Scans
	if f.Pods == fullRolloutPods && o.name() == onSQLite {
		c.options.Progress("every pod is replaced")
		parts := slices.Collect(slices.Chunk(w.all, len(w.all)/waves))
		if f.FullRollout, f.FullRolloutLag, f.FullRolloutRequests, err = c.rollOutInWaves(ctx, p, parts, w.replicas, f.Pods); err != nil {
			return err
		}
		f.FullRolloutScans = o.scans(p) - f.Scans - f.RolloutScans
	}
	f.AnnotatedAfterRollout, err = c.annotated(ctx)
	return err
}

// rollOutInWaves rolls Deployments out, one part after the other, and waits until the operator is quiet. It returns the time until its last
// request, and the part of it after the last pod was replaced.
func (c *cluster) rollOutInWaves(ctx context.Context, p program, parts [][]*deployment, replicas, pods int) (took, lag time.Duration, counts map[string]int, err error) {
	began := time.Now()
	for _, part := range parts {
		if err := c.rollOut(ctx, part, replicas, pods); err != nil {
			return 0, 0, nil, err
		}
	}
	replaced := time.Now()
	requests, err := c.waitUntilQuiet(ctx, p, began)
	return last(requests, began).Sub(began), last(requests, replaced).Sub(replaced), byVerb(requests), err
}
