package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Scanner returns the Scanner of a namespace.
func (e *Environment) Scanner(ctx context.Context, namespace string) (*v1alpha1.Scanner, error) {
	return e.scannerNamed(ctx, namespace, ScannerName)
}

func (e *Environment) scannerNamed(ctx context.Context, namespace, name string) (*v1alpha1.Scanner, error) {
	var scanner v1alpha1.Scanner
	if err := e.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &scanner); err != nil {
		return nil, err
	}
	return &scanner, nil
}

// ImageScans returns the ImageScans of a namespace.
func (e *Environment) ImageScans(ctx context.Context, namespace string) ([]v1alpha1.ImageScan, error) {
	var scans v1alpha1.ImageScanList
	err := e.Client.List(ctx, &scans, client.InNamespace(namespace))
	return scans.Items, err
}

// ImageScanOf returns the ImageScan of an image in a repository; an error unless there is exactly one.
func (e *Environment) ImageScanOf(ctx context.Context, namespace, repository string) (*v1alpha1.ImageScan, error) {
	scans, err := e.ImageScans(ctx, namespace)
	if err != nil {
		return nil, err
	}
	scans = slices.DeleteFunc(scans, func(scan v1alpha1.ImageScan) bool {
		return !slices.ContainsFunc(scan.Spec.References, func(reference string) bool { return strings.HasPrefix(reference, repository) })
	})
	if len(scans) != 1 {
		return nil, fmt.Errorf("namespace %s: expected one ImageScan of %s, there are %d", namespace, repository, len(scans))
	}
	return &scans[0], nil
}

// WaitForCoverage waits until a namespace's Scanner has the given numbers of scanned and failed images and is ready.
func (e *Environment) WaitForCoverage(ctx context.Context, namespace string, scanned, failed int32) error {
	return e.WaitForCoverageBy(ctx, namespace, ScannerName, scanned, failed)
}

// WaitForCoverageBy is Covered for a Scanner with another name.
func (e *Environment) WaitForCoverageBy(ctx context.Context, namespace, name string, scanned, failed int32) error {
	return wait.Eventually(ctx, e.scanTimeout(), wait.Normally, func(ctx context.Context) error {
		scanner, err := e.scannerNamed(ctx, namespace, name)
		if err != nil {
			return err
		}
		want := v1alpha1.ImageCounts{Total: scanned + failed, Scanned: scanned, Failed: failed}
		if got := scanner.Status.Images; got != want {
			return fmt.Errorf("namespace %s: expected images %+v, the Scanner says %+v%s", namespace, want, got, e.unfinished(ctx, namespace))
		}
		ready := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != "True" {
			return fmt.Errorf("namespace %s: all images are handled, but the Scanner's condition Ready is %+v", namespace, ready)
		}
		return nil
	})
}

// unfinished describes the state of each image without a result.
func (e *Environment) unfinished(ctx context.Context, namespace string) string {
	scans, err := e.ImageScans(ctx, namespace)
	if err != nil {
		return "; " + err.Error()
	}
	text := ""
	for _, scan := range scans {
		if scan.Status.Phase != v1alpha1.PhaseScanned {
			text += fmt.Sprintf("; %s is %s", scan.Name, describePhase(&scan))
		}
	}
	return text
}

func describePhase(scan *v1alpha1.ImageScan) string {
	phase := string(scan.Status.Phase)
	if phase == "" {
		phase = "without a phase"
	}
	if ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		phase += fmt.Sprintf(" (%s: %s)", ready.Reason, ready.Message)
	}
	return phase
}

// running maps the started containers of a pod to the image digests that its node reports.
func running(pod *corev1.Pod) map[string]string {
	digests := map[string]string{}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if _, digest, found := strings.Cut(status.ImageID, "@"); found {
			digests[status.Name] = digest
		}
	}
	return digests
}
