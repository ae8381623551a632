package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// deletionTimeout is the maximum time until all traces of a deleted Scanner are removed.
const deletionTimeout = time.Minute

// A Scanner that is deleted while its Jobs run leaves no finalizer, Job, ImageScan or annotation behind, neither on scanned nor on other
// pods.
func TestScannerDeletion(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "deletion")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "static", Image: env.Reference(images.Static)}))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	waitFor(t, "the annotation", func(ctx context.Context) error {
		if err := noAnnotations(ctx, ns); err == nil {
			return errors.New("no pod has one")
		}
		return nil
	})
	must(t, env.RunPods(t.Context(), ns, variants(t, ns, 6)...))
	waitFor(t, "a catalog Job", func(ctx context.Context) error {
		if noJobs(ctx, ns) == nil {
			return errors.New("there is none")
		}
		return nil
	})
	scanner, err := env.Scanner(t.Context(), ns)
	must(t, err)
	must(t, env.Client.Delete(t.Context(), scanner))

	must(t, wait.Eventually(t.Context(), deletionTimeout, wait.Normally, func(ctx context.Context) error {
		return errors.Join(noScanner(ctx, ns), noImageScans(ctx, ns), noAnnotations(ctx, ns), noFinalizers(ctx, ns), noJobs(ctx, ns))
	}))
	// A Job that was about to be created or a late upload must not create objects again.
	must(t, wait.Consistently(t.Context(), 5*time.Second, wait.Normally, func(ctx context.Context) error {
		return errors.Join(noImageScans(ctx, ns), noAnnotations(ctx, ns), noJobs(ctx, ns))
	}))
}

func repository(name string) string { return strings.TrimSuffix(env.Reference(name), ":1.0") }

func noScanner(ctx context.Context, ns string) error {
	if _, err := env.Scanner(ctx, ns); err == nil {
		return errors.New("the Scanner is still there")
	} else if client.IgnoreNotFound(err) != nil {
		return err
	}
	return nil
}

func noImageScans(ctx context.Context, ns string) error {
	var scans v1alpha1.ImageScanList
	if err := env.Client.List(ctx, &scans, client.InNamespace(ns)); err != nil {
		return err
	}
	if len(scans.Items) > 0 {
		return fmt.Errorf("%d ImageScans are left", len(scans.Items))
	}
	return nil
}

func noAnnotations(ctx context.Context, ns string) error {
	return noPod(ctx, ns, "the annotation "+scenario.Annotation, func(pod *corev1.Pod) bool {
		_, found := pod.Annotations[scenario.Annotation]
		return found
	})
}

func noFinalizers(ctx context.Context, ns string) error {
	return noPod(ctx, ns, "a finalizer of the operator", func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Finalizers, func(f string) bool { return strings.Contains(f, "scanner-operator.io") })
	})
}

func noPod(ctx context.Context, ns, what string, has func(*corev1.Pod) bool) error {
	var pods corev1.PodList
	if err := env.Client.List(ctx, &pods, client.InNamespace(ns)); err != nil {
		return err
	}
	for i := range pods.Items {
		if has(&pods.Items[i]) {
			return fmt.Errorf("pod %s has %s", pods.Items[i].Name, what)
		}
	}
	return nil
}

// noJobs returns an error if a catalog Job exists, in any namespace, for one of the images that variants created for a namespace.
func noJobs(ctx context.Context, ns string) error {
	var jobs batchv1.JobList
	if err := env.Client.List(ctx, &jobs, client.MatchingLabels{"app.kubernetes.io/component": "catalog"}); err != nil {
		return err
	}
	for _, job := range jobs.Items {
		if slices.ContainsFunc(job.Spec.Template.Spec.Containers[0].Args, func(arg string) bool {
			return strings.HasPrefix(arg, repository("test/"+ns))
		}) {
			return fmt.Errorf("the Job %s/%s is left", job.Namespace, job.Name)
		}
	}
	return nil
}
