package health

import (
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// TestDescribePending: pending images with a reason are named by it.
func TestDescribePending(t *testing.T) {
	images := []inventory.CoveredImage{
		{State: image.Pending, Name: "a:1"}, {State: image.Failed, Reason: "NotPulled", Name: "x:1"}, {State: image.Pending, Reason: "PodUnschedulable", Name: "b:1"},
		{State: image.Pending, Reason: "NodeUnknown", Name: "c:1"}, {State: image.Pending, Reason: "PodUnschedulable", Name: "d:1"},
	}
	for _, tt := range []struct {
		images []inventory.CoveredImage
		want   string
	}{
		{images, "4 of 5 images have no result yet (NodeUnknown: c:1; PodUnschedulable: b:1 and 1 more)"},
		{images[:2], "1 of 2 images have no result yet"},
	} {
		if got := DescribePending(tt.images); got != tt.want {
			t.Errorf("it is described as %q, want %q", got, tt.want)
		}
	}
}

// TestDescribeFailures: failed images are grouped by reason, each with an example, in a stable order.
func TestDescribeFailures(t *testing.T) {
	images := []inventory.CoveredImage{
		{State: image.Failed, Reason: "ImageNotFound", Name: "b:1"}, {State: image.Scanned, Name: "x:1"},
		{State: image.Failed, Reason: "Unauthorized", Name: "a:1"}, {State: image.Failed, Reason: "ImageNotFound", Name: "c:1"}, {State: image.Failed, Name: "d:1"},
	}
	want := "4 of 5 images could not be scanned (unknown: d:1; ImageNotFound: b:1 and 1 more; Unauthorized: a:1)"
	for range 10 {
		if got := DescribeFailures(images); got != want {
			t.Fatalf("it is described as %q, want %q", got, want)
		}
	}
}
