package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// goldens is the directory of the Grype backend's golden files, which contain the objects that it creates.
var goldens = filepath.Join("..", "..", "pkg", "backend", "grype", "testdata")

// golden reads a Job from a golden file.
func golden(t *testing.T, name string) *batchv1.Job {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(goldens, name))
	if err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{}
	if err := yaml.UnmarshalStrict(text, job); err != nil {
		t.Fatal(err)
	}
	return job
}

// somePod returns a tenant's pod with all fields that the policy protects.
func somePod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop, Name: name, Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"team": "shop", "old.scanner-operator.io/image-hashes": "{}"},
			Finalizers:  []string{"example.com/keep", "old.scanner-operator.io/release"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "6f3f6a0e-7b39-4a3b-8a34-0a3f1c1d7a11"},
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1"}}},
	}
}

// aScanner returns a tenant's Scanner.
func aScanner(name string) *unstructured.Unstructured {
	scanner := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"backend": map[string]any{"type": "Grype"}}}}
	scanner.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Scanner"))
	scanner.SetNamespace(shop)
	scanner.SetName(name)
	scanner.SetFinalizers([]string{"example.com/keep"})
	return scanner
}

// aClusterScanner returns an administrator's ClusterScanner.
func aClusterScanner(name string) *unstructured.Unstructured {
	scanner := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"namespaceSelector": map[string]any{}}}}
	scanner.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ClusterScanner"))
	scanner.SetName(name)
	scanner.SetFinalizers([]string{"example.com/keep"})
	return scanner
}

// anImageScan returns an ImageScan with all fields that the policy protects.
func anImageScan(name string) *unstructured.Unstructured {
	scan := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"digest": "sha256:" + strings.Repeat("0", 64), "platform": "linux/amd64", "scannerRef": map[string]any{"kind": "Scanner", "name": "default"}, "references": []any{"registry.example.com/web:1"},
	}}}
	scan.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ImageScan"))
	scan.SetNamespace(shop)
	scan.SetName(name)
	scan.SetLabels(map[string]string{"team": "shop"})
	scan.SetAnnotations(map[string]string{"team": "shop"})
	scan.SetFinalizers([]string{"example.com/keep"})
	scan.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "6f3f6a0e-7b39-4a3b-8a34-0a3f1c1d7a11"}})
	return scan
}

// anException returns an exception of a namespace, or of the cluster if namespace is empty.
func anException(namespace, name string) *unstructured.Unstructured {
	e := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"status": "fixed", "reason": "patched", "vulnerabilities": []any{"CVE-2026-0001"},
	}}}
	e.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VulnerabilityException"))
	if namespace == "" {
		e.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ClusterVulnerabilityException"))
	}
	e.SetNamespace(namespace)
	e.SetName(name)
	return e
}

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// denied checks that a policy for the manager has denied the request with the given message.
func denied(t *testing.T, err error, policy, message string) {
	t.Helper()
	deniedBy(t, err, manager+"-"+policy, message)
}

// deniedBy checks that the named policy has denied the request with the given message.
func deniedBy(t *testing.T, err error, policy, message string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("the token may do it, want: %s", message)
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
		t.Errorf("want it to be forbidden, got: %v", err)
	case !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'") || !strings.Contains(err.Error(), message):
		t.Errorf("want the policy %s to say %q, got: %v", policy, message, err)
	}
}

// deniedByRBAC checks that RBAC has denied the request.
func deniedByRBAC(t *testing.T, err error) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot") {
		t.Errorf("the token may do it, want RBAC to forbid it; got: %v", fmt.Sprint(err))
	}
}
