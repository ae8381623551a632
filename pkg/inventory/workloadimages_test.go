package inventory_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

const (
	webDigest   = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	proxyDigest = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

// TestHasOtherImages: what a pod runs, or is about to run, counts before the store knows of it.
func TestHasOtherImages(t *testing.T) {
	key := func(digest string) image.Key {
		return image.Key{Digest: digest, Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
	}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "web", Image: "web:1"}, {Name: "proxy", Image: "proxy:1"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "web", ImageID: "docker.io/library/web@" + webDigest, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				{Name: "proxy", ImageID: "docker.io/library/proxy@" + proxyDigest, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			}},
		}
		change(p)
		return p
	}
	unchanged := func(*corev1.Pod) {}
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		exclude []string
		known   []image.Key
		want    bool
	}{
		"all known":             {pod(unchanged), nil, []image.Key{key(webDigest), key(proxyDigest)}, false},
		"one not known":         {pod(unchanged), nil, []image.Key{key(webDigest)}, true},
		"that one is excluded":  {pod(unchanged), []string{"*/proxy:*"}, []image.Key{key(webDigest)}, false},
		"one has not started":   {pod(func(p *corev1.Pod) { p.Status.ContainerStatuses = p.Status.ContainerStatuses[:1] }), nil, []image.Key{key(webDigest)}, true},
		"another workload":      {pod(func(p *corev1.Pod) { p.Name = "api" }), nil, nil, false},
		"the pod has ended":     {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), nil, nil, false},
		"the node is not known": {pod(func(p *corev1.Pod) { p.Spec.NodeName = "other" }), nil, []image.Key{key(webDigest), key(proxyDigest)}, true},
	} {
		scheme := runtime.NewScheme()
		_, _ = clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64"}},
		}
		i := inventory.Inventory{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(tt.pod, node).Build()}
		scanner := &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"}}
		scanner.Spec.Images.Exclude = tt.exclude
		got, err := i.HasOtherImages(t.Context(), scanner, "shop", "Pod", "web", tt.known)
		if err != nil || got != tt.want {
			t.Errorf("%s: %t, %v; want %t", name, got, err, tt.want)
		}
	}
}
