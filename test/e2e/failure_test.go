package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/hack/images/build"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// An image that was deleted from its registry while a pod runs it fails, and is never reported as clean. The scan is retried, and
// succeeds when the image exists again.
func TestImageFails(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "failing")
	pods := variants(t, ns, 1)
	must(t, env.RunPods(t.Context(), ns, pods...))
	reference, err := build.ParseReference(pods[0].Image)
	must(t, err)
	if err := remote.Delete(reference, remote.WithContext(t.Context())); err != nil {
		t.Skipf("this registry does not let images be deleted: %v", err)
	}
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))

	waitFor(t, "the image to have failed", func(ctx context.Context) error {
		scan, err := env.ImageScanOf(ctx, ns, repository("test/"+pods[0].Name))
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case scan.Status.Findings != nil:
			return wait.Final(fmt.Errorf("an image that is not there has findings: %+v", scan.Status.Findings))
		case scan.Status.Phase == v1alpha1.PhaseScanned:
			return wait.Final(fmt.Errorf("an image that is not there is reported as scanned"))
		case scan.Status.Phase != v1alpha1.PhaseFailed || ready == nil || ready.Reason != "ImageNotFound":
			return fmt.Errorf("expected phase Failed with reason ImageNotFound; phase %s, Ready %+v", scan.Status.Phase, ready)
		case scan.Status.NextAttemptTime == nil || scan.Status.Attempts == 0:
			return fmt.Errorf("expected another attempt to be planned; status %+v", scan.Status)
		}
		return nil
	})
	must(t, env.WaitForCoverage(t.Context(), ns, 0, 1))

	_, err = env.PushVariant(t.Context(), images.API, "test/"+pods[0].Name)
	must(t, err)
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
}
