package controllers

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestImageScanOfVersion01: an ImageScan that has its scanner as a text can be read and changed after the CustomResourceDefinition was updated.
func TestImageScanOfVersion01(t *testing.T) {
	theOperator(t) // skips without an API server
	t.Parallel()
	g := NewWithT(t)
	env := &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{Paths: []string{filepath.Join("..", "config", "crd", "bases")}}}
	config, err := env.Start()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = env.Stop() })
	scheme := newTestScheme()
	g.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(config, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	setScannerSchema := func(schema apiextensionsv1.JSONSchemaProps) (before apiextensionsv1.JSONSchemaProps) {
		var crd apiextensionsv1.CustomResourceDefinition
		g.Expect(c.Get(t.Context(), types.NamespacedName{Name: "imagescans.scanner-operator.io"}, &crd)).To(Succeed())
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		before = spec.Properties["scanner"]
		spec.Properties["scanner"] = schema
		g.Expect(c.Update(t.Context(), &crd)).To(Succeed())
		return before
	}
	now := setScannerSchema(apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: new(int64(63))})
	g.Eventually(func() error {
		return c.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ImageScan", "metadata": map[string]any{"namespace": "default", "name": "web"},
			"spec": map[string]any{"scanner": "all", "digest": "sha256:" + strings.Repeat("0", 64), "platform": "linux/amd64"},
		}})
	}, 30*time.Second).Should(Succeed(), "the API server takes the earlier schema after a moment")
	setScannerSchema(now)
	name := types.NamespacedName{Namespace: "default", Name: "web"}
	// Once the new schema holds, the text form cannot be created any more.
	g.Eventually(func() error {
		return c.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ImageScan", "metadata": map[string]any{"namespace": "default", "generateName": "probe-"},
			"spec": map[string]any{"scanner": "all", "digest": "sha256:" + strings.Repeat("1", 64), "platform": "linux/amd64"},
		}})
	}, 30*time.Second).ShouldNot(Succeed())
	var scan v1alpha1.ImageScan
	g.Expect(c.Get(t.Context(), name, &scan)).To(Succeed())
	g.Expect(scan.Spec.Scanner).To(Equal(v1alpha1.ScannerReference{Kind: v1alpha1.KindScanner, Name: "all"}))
	before := scan.DeepCopy()
	scan.Status.Phase = v1alpha1.PhaseScanned
	g.Expect(c.Status().Patch(t.Context(), &scan, client.MergeFrom(before))).To(Succeed(), "the status")
	before = scan.DeepCopy()
	scan.Spec.References = []string{"docker.io/library/web:1"}
	g.Expect(c.Patch(t.Context(), &scan, client.MergeFrom(before))).To(Succeed(), "the references")
}
