package scale

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// ScannerFigures are the measurements with many Scanners, each with images of its own.
type ScannerFigures struct {
	Scanners, Images int
	// Covered is the time from the creation of the first Scanner until all have scanned their images.
	Covered time.Duration
	// IdleCPU is the manager's processor time during Idle, the observed idle period.
	IdleCPU, Idle time.Duration
	// RematchCPU is the manager's processor time during Rematch, which begins with its start. All images are read and matched with newer
	// data.
	RematchCPU, Rematch time.Duration
	// IdleRequests counts the requests during Idle, by verb and resource. Memory is the peak resident memory in bytes.
	IdleRequests map[string]int
	Memory       int64
}

// Bounds of observing many Scanners.
const (
	// scannersIdle is long enough for each Scanner to be reconciled at its interval.
	scannersIdle = 5 * time.Minute
	// scannersTimeout bounds waits, for a machine with few processors that the API server uses too.
	scannersTimeout = 30 * time.Minute
	// calm is how long the manager must use less than a twentieth of a processor before its work counts as done.
	calm = 10 * time.Second
)

// MeasureScanners runs the manager with many Scanners, each in a namespace with pods of its own images. kwok is not used: pods get their
// status when they are created and stay.
func MeasureScanners(ctx context.Context, options Options, scanners, images int) (f ScannerFigures, err error) {
	f.Scanners, f.Images = scanners, images
	c, err := newCluster(options, func(c *cluster) error { return c.createOwnNode(ctx) })
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	options.Progress("%d namespaces with %d pods each are created", scanners, images)
	if err := c.createTeams(ctx, scanners, images); err != nil {
		return f, err
	}
	if err := c.startManager(ctx); err != nil {
		return f, err
	}
	for _, step := range []func(context.Context, *ScannerFigures) error{c.coverTeams, c.idleTeams, c.rematchTeams} {
		if err := step(ctx, &f); err != nil {
			return f, err
		}
	}
	_, f.Memory, err = c.manager.Memory()
	return f, err
}

const teamsNode = "node"

func (c *cluster) createOwnNode(ctx context.Context) error {
	if err := c.server.CreateNode(ctx, teamsNode); err != nil {
		return err
	}
	return c.server.CreateNamespace(ctx, systemNamespace)
}

func teamName(i int) string { return fmt.Sprintf("team-%04d", i) }

// createTeams creates the namespaces and their running pods.
func (c *cluster) createTeams(ctx context.Context, teams, images int) error {
	all := make([]int, teams)
	for i := range all {
		all[i] = i
	}
	return each(all, func(team int) error {
		if err := c.server.CreateNamespace(ctx, teamName(team)); err != nil {
			return err
		}
		for i := range images {
			if err := c.createRunning(ctx, team, i); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *cluster) createRunning(ctx context.Context, team, i int) error {
	repository := fmt.Sprintf("registry.example.com/%s/vulnerable-service-%d", teamName(team), i)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: teamName(team), Name: fmt.Sprintf("service-%d", i)},
		Spec:       corev1.PodSpec{NodeName: teamsNode, Containers: []corev1.Container{{Name: "service", Image: repository + ":1"}}},
	}
	if err := c.server.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "service", Image: repository + ":1", ImageID: fmt.Sprintf("%s@sha256:%x", repository, sha256.Sum256([]byte(repository))),
	}}
	return c.server.Status().Update(ctx, pod)
}

func (c *cluster) coverTeams(ctx context.Context, f *ScannerFigures) error {
	c.options.Progress("the manager runs; Scanners are created")
	began := time.Now()
	for i := range f.Scanners {
		if err := c.createScanner(ctx, teamName(i)); err != nil {
			return err
		}
	}
	err := wait.Eventually(ctx, scannersTimeout, wait.Rarely, func(ctx context.Context) error {
		if err := c.manager.Alive(); err != nil {
			return err
		}
		var scanners v1alpha1.ScannerList
		if err := c.server.List(ctx, &scanners); err != nil {
			return err
		}
		for _, s := range scanners.Items {
			if int(s.Status.Images.Scanned) != f.Images {
				return fmt.Errorf("%s: %+v, expected %d images scanned", s.Namespace, s.Status.Images, f.Images)
			}
		}
		return nil
	})
	f.Covered = time.Since(began)
	return err
}

// waitUntilIdle waits until the manager is idle. It returns the time and the processor time until then, without the time of the observation.
func (c *cluster) waitUntilIdle(ctx context.Context) (took time.Duration, used time.Duration, err error) {
	began := time.Now()
	type sample struct {
		at  time.Time
		cpu time.Duration
	}
	var looks []sample
	err = wait.Eventually(ctx, scannersTimeout, wait.Rarely, func(context.Context) error {
		if err := c.manager.Alive(); err != nil {
			return err
		}
		cpu, err := c.manager.CPU()
		if err != nil {
			return err
		}
		now := time.Now()
		looks = append(looks, sample{now, cpu})
		for i := len(looks) - 1; i >= 0; i-- {
			if past := now.Sub(looks[i].at); past >= calm {
				if cpu-looks[i].cpu >= past/20 {
					return fmt.Errorf("the manager works: %s in %s", cpu-looks[i].cpu, past)
				}
				took, used = looks[i].at.Sub(began), looks[i].cpu
				return nil
			}
		}
		return errors.New("not watched for long enough")
	})
	return took, used, err
}

func (c *cluster) idleTeams(ctx context.Context, f *ScannerFigures) error {
	if _, _, err := c.waitUntilIdle(ctx); err != nil {
		return err
	}
	// On a busy machine, little processor time does not imply that the work is done.
	if _, err := c.waitUntilQuiet(ctx, c.manager, time.Now().Add(-2*quiet)); err != nil {
		return err
	}
	c.options.Progress("all covered after %s; now nothing happens for %s", f.Covered.Round(time.Second), scannersIdle)
	began := time.Now()
	before, err := c.manager.CPU()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(scannersIdle):
	}
	after, err := c.manager.CPU()
	if err != nil {
		return err
	}
	f.Idle, f.IdleCPU = time.Since(began), after-before
	requests, err := c.requests(c.manager, began, time.Now())
	f.IdleRequests = byVerb(requests)
	return err
}

// rematchTeams restarts the manager. The fake backend's data is as old as the process, so all images are matched again.
func (c *cluster) rematchTeams(ctx context.Context, f *ScannerFigures) error {
	c.options.Progress("the manager took %s; it is started anew, with newer data", f.IdleCPU)
	if err := c.manager.Stop(); err != nil {
		return err
	}
	if err := c.startManager(ctx); err != nil {
		return err
	}
	var err error
	f.Rematch, f.RematchCPU, err = c.waitUntilIdle(ctx)
	return err
}
