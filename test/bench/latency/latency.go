// Package latency measures how long it takes from a running pod to the message in Slack, on a real cluster with the
// operator as it is shipped: catalog Job, upload, match, digest, notifier, webhook.
//
// Everything is warm: the worker's image is on the node, a match worker has the vulnerability database open, and nothing
// is in the way of a message (groupWait and groupInterval are zero). Each pod runs an image that the cluster has never
// seen, so it is catalogued.
package latency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/test/bench/page"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/story"
)

const (
	// rounds that count. One more before them warms everything up.
	rounds    = 5
	namespace = "bench-latency"
	// patience for a message, the first database included.
	patience = 5 * time.Minute
	// cleanUpTime is how long removing everything may take, after an interruption too.
	cleanUpTime = 4 * time.Minute
	// atOnce is the shortest time that the story's settings know as one.
	atOnce = time.Nanosecond
)

// Measure sets the operator up in the cluster that KUBECONFIG names, measures, and removes everything.
func Measure(ctx context.Context) (section page.Section, err error) {
	options, err := story.OptionsFromEnvironment(os.Stdout)
	if err != nil {
		return section, err
	}
	environment, err := story.Connect(ctx, options)
	if err != nil {
		return section, err
	}
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
		defer cancel()
		_, removing := environment.Remove(cleaning)
		err = errors.Join(err, removing)
	}()
	if err := story.Tell(ctx, os.Stdout, time.Now, environment.SetUp()); err != nil {
		return section, err
	}
	if err := environment.MakeNamespace(ctx, namespace); err != nil {
		return section, err
	}
	settings := story.ScannerSettings{FirstScan: "All", GroupWait: atOnce, GroupInterval: atOnce}
	if err := environment.MakeScanner(ctx, namespace, settings); err != nil {
		return section, err
	}
	var all []round
	for i := range rounds + 1 {
		r, err := run(ctx, environment, i)
		if err != nil {
			environment.Diagnose(ctx)
			return section, fmt.Errorf("pod %d: %w", i, err)
		}
		fmt.Printf("  pod %d: catalogued after %.1f s, message after %.1f s\n", i, r.scanned.Seconds(), r.told.Seconds())
		if i > 0 {
			all = append(all, r)
		}
	}
	return describe(all), nil
}

// round is what one pod took, from the moment at which its container was seen to run.
type round struct{ scanned, told time.Duration }

// run starts a pod with a new image and waits for the message about it.
func run(ctx context.Context, e *story.Environment, i int) (round, error) {
	name := fmt.Sprintf("%s/web-%d", namespace, i)
	reference, err := e.PushVariant(ctx, images.Web, name)
	if err != nil {
		return round{}, err
	}
	repository, _, _ := strings.Cut(reference, "@")
	pod := fmt.Sprintf("web-%d", i)
	running := make(chan time.Time, 1)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if err := watch(watching, e, pod, running); err != nil {
		return round{}, err
	}
	if err := e.RunPods(ctx, namespace, story.Pod{Name: pod, Image: reference}); err != nil {
		return round{}, err
	}
	var began time.Time
	select {
	case began = <-running:
	case <-ctx.Done():
		return round{}, ctx.Err()
	}
	r := round{}
	return r, story.Eventually(ctx, patience, func(ctx context.Context) error {
		if scan, err := e.ImageScanOf(ctx, namespace, repository); err == nil && r.scanned == 0 && scan.Status.Findings != nil {
			r.scanned = time.Since(began)
		}
		messages, err := e.Messages(ctx, namespace)
		if err != nil {
			return err
		}
		for _, m := range messages {
			// The stand-in runs on this machine: its clock is the same.
			if strings.Contains(m.Text, repository) {
				r.told = m.Time.Sub(began)
				return nil
			}
		}
		return fmt.Errorf("no message about %s among %d", repository, len(messages))
	})
}

// watch tells when the pod's container was first seen to run, by a client that watches as the operator does.
func watch(ctx context.Context, e *story.Environment, pod string, running chan<- time.Time) error {
	watcher, err := e.Clientset.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pod})
	if err != nil {
		return err
	}
	go func() {
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			p, ok := event.Object.(*corev1.Pod)
			if ok && slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil }) {
				running <- time.Now()
				return
			}
		}
	}()
	return nil
}

func describe(all []round) page.Section {
	told := make([]time.Duration, len(all))
	each := make([]string, len(all))
	for i, r := range all {
		told[i] = r.told
		each[i] = fmt.Sprintf("%.1f s", r.told.Seconds())
	}
	slices.Sort(told)
	median := told[len(told)/2]
	return page.Section{
		Text: fmt.Sprintf("On the local cluster, groupWait and groupInterval zero, all warm: a pod runs an image that the cluster has never seen. From the moment "+
			"at which a watch shows its container running to the arrival of the message at the stand-in for Slack: median %.1f s of %d (%s). "+
			"In that time the image is catalogued by a Job, uploaded, matched, and told.\n", median.Seconds(), len(all), strings.Join(each, ", ")),
		Bounds: []page.Bound{{What: fmt.Sprintf("each of %d pods had its message", len(all)), Kept: len(all) == rounds && told[0] > 0}},
	}
}
