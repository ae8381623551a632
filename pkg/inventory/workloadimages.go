package inventory

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

var errOtherImage = errors.New("the workload has another image")

// HasOtherImages reports whether a running pod of a workload has an image that is none of the known ones and that the scanner does not exclude. An
// image without a known digest counts as another one. The store may not know yet that a pod runs an image.
func (i *Inventory) HasOtherImages(
	ctx context.Context, scanner v1alpha1.GenericScanner, namespace, kind, name string, known []image.Key,
) (bool, error) {
	err := i.visitPodsOf(ctx, scanner, namespace, IsActive, func(pod *corev1.Pod) error {
		if podKind, podName := workloadOf(pod); podKind != kind || podName != name {
			return nil
		}
		running, unresolved, _, err := i.RunningImages(ctx, scanner, pod)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(unresolved, func(img UnresolvedImage) bool { return !img.Excluded }) ||
			slices.ContainsFunc(running, func(img RunningImage) bool { return !img.Excluded && !slices.Contains(known, img.Key) }) {
			return errOtherImage
		}
		return nil
	})
	if errors.Is(err, errOtherImage) {
		return true, nil
	}
	return false, err
}
