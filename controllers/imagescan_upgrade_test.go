package controllers

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestImageScanOfEarlierBuild: an ImageScan that has its scanner as a text can be read and changed. The schema accepts it, since OLM refuses
// an upgrade whose CustomResourceDefinitions do not accept the objects that are there.
func TestImageScanOfEarlierBuild(t *testing.T) {
	p := newUnattendedEnv(t)
	p.must(p.client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ImageScan", "metadata": map[string]any{"namespace": p.namespace, "name": "earlier"},
		"spec": map[string]any{"scanner": "all", "digest": "sha256:" + strings.Repeat("0", 64), "platform": "linux/amd64"},
	}}))
	var scan v1alpha1.ImageScan
	p.must(p.client.Get(t.Context(), keyFor(p, "earlier"), &scan))
	p.Expect(scan.Spec.ScannerRef).To(Equal(v1alpha1.ScannerReference{Kind: v1alpha1.KindScanner, Name: "all"}))
	before := scan.DeepCopy()
	scan.Status.Phase = v1alpha1.PhaseScanned
	p.Expect(p.client.Status().Patch(t.Context(), &scan, client.MergeFrom(before))).To(Succeed(), "the status")
	before = scan.DeepCopy()
	scan.Spec.References = []string{"docker.io/library/web:1"}
	p.Expect(p.client.Patch(t.Context(), &scan, client.MergeFrom(before))).To(Succeed(), "the references")
}
