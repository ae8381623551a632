// Package latency measures the time from a running pod to the message in Slack, on a real cluster with the released configuration of the
// operator: catalog Job, upload, match, notification, notifier, webhook.
//
// Everything is warm: the worker's image is on the node, and a match worker has the vulnerability database open. Nothing delays a
// message: groupWait is zero, and groupInterval has its minimum, which is shorter than a round. Each pod runs an image that the cluster
// has never seen, so the image is cataloged.
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
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

const (
	// rounds is the number of counted rounds. One more round before them warms everything up.
	rounds    = 5
	namespace = "bench-latency"
	// messageTimeout bounds the wait for a message, including the first download of the database.
	messageTimeout = 5 * time.Minute
	// cleanUpTime bounds the removal of everything, including the removal after an interruption.
	cleanUpTime = 4 * time.Minute
	// minimumDuration is the shortest duration that package scenario does not treat as unset.
	minimumDuration = time.Nanosecond
)

// Measure installs the operator in the cluster that KUBECONFIG names, measures, and removes everything.
func Measure(ctx context.Context) (section page.Section, err error) {
	options, err := scenario.OptionsFromEnvironment(os.Stdout)
	if err != nil {
		return section, err
	}
	environment, err := scenario.Connect(ctx, options)
	if err != nil {
		return section, err
	}
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
		defer cancel()
		_, removing := environment.Remove(cleaning)
		err = errors.Join(err, removing)
	}()
	if err := scenario.RunSteps(ctx, os.Stdout, time.Now, environment.SetUp()); err != nil {
		return section, err
	}
	if err := environment.MakeNamespace(ctx, namespace); err != nil {
		return section, err
	}
	settings := scenario.ScannerSettings{FirstScan: "All", GroupWait: minimumDuration, GroupInterval: time.Second}
	if err := environment.MakeScanner(ctx, namespace, settings); err != nil {
		return section, err
	}
	var all []time.Duration
	for i := range rounds + 1 {
		took, err := run(ctx, environment, i)
		if err != nil {
			environment.Diagnose(ctx)
			return section, fmt.Errorf("pod %d: %w", i, err)
		}
		fmt.Printf("  pod %d: message after %.1f s\n", i, took.Seconds())
		if i > 0 {
			all = append(all, took)
		}
	}
	return describe(all), nil
}

// run starts a pod with a new image. It returns the time from the moment when the container was first observed running until the message
// about the image.
func run(ctx context.Context, e *scenario.Environment, i int) (took time.Duration, err error) {
	name := fmt.Sprintf("%s/web-%d", namespace, i)
	reference, err := e.PushVariant(ctx, images.Web, name)
	if err != nil {
		return 0, err
	}
	repository, _, _ := strings.Cut(reference, "@")
	pod := fmt.Sprintf("web-%d", i)
	running := make(chan time.Time, 1)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if err := watch(watching, e, pod, running); err != nil {
		return 0, err
	}
	if err := e.RunPods(ctx, namespace, scenario.Pod{Name: pod, Image: reference}); err != nil {
		return 0, err
	}
	var began time.Time
	select {
	case began = <-running:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	err = wait.Eventually(ctx, messageTimeout, wait.Normally, func(ctx context.Context) error {
		messages, err := e.Messages(ctx, namespace)
		if err != nil {
			return err
		}
		for _, m := range messages {
			// The stand-in for Slack runs on this machine, so both times are from the same clock.
			if strings.Contains(m.Text, repository) {
				took = m.Time.Sub(began)
				return nil
			}
		}
		return fmt.Errorf("no message about %s among %d", repository, len(messages))
	})
	return took, err
}

// watch sends the time when the pod's container was first observed running. It watches pods as the operator does.
func watch(ctx context.Context, e *scenario.Environment, pod string, running chan<- time.Time) error {
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

func describe(all []time.Duration) page.Section {
	each := make([]string, len(all))
	for i, took := range all {
		each[i] = fmt.Sprintf("%.1f s", took.Seconds())
	}
	sorted := slices.Sorted(slices.Values(all))
	median := sorted[len(sorted)/2]
	return page.Section{
		Text: fmt.Sprintf("On the local cluster, groupWait zero, all warm: a pod runs an image that the cluster has never seen. From the moment "+
			"at which a watch shows its container running to the arrival of the message at the stand-in for Slack: median %.1f s of %d (%s). "+
			"In that time the image is cataloged by a Job, uploaded, matched, and announced.\n", median.Seconds(), len(all), strings.Join(each, ", ")),
		Bounds: []page.Bound{{What: fmt.Sprintf("each of %d pods had its message", len(all)), Kept: len(all) == rounds && sorted[0] > 0}},
	}
}
