package pods

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// replica returns a stripped pod as a cluster has many: one of 200 replicas of a Deployment with a sidecar, on one of 250 nodes.
func replica(n int) *corev1.Pod {
	deployment := n / 200
	name := fmt.Sprintf("checkout-%d", deployment)
	images := []string{fmt.Sprintf("registry.example.com/shop/checkout-%d:1.0", deployment%50), "registry.example.com/mesh/sidecar:2.3"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-6b8f7d9c5d-%05x", name, n), Namespace: fmt.Sprintf("team-%d", deployment%10),
		UID: types.UID(fmt.Sprintf("%08x-81a7-4c0e-9f7b-%012x", n, n)), ResourceVersion: fmt.Sprint(1_000_000 + n),
		CreationTimestamp: metav1.NewTime(time.Unix(1_800_000_000+int64(n), 0)),
		Labels:            map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop", "pod-template-hash": "6b8f7d9c5d"},
		Annotations:       map[string]string{"default" + podmark.AnnotationSuffix: fmt.Sprintf(`{"main":"sha256:%064x","sidecar":"sha256:%064x"}`, deployment%50, 99)},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name + "-6b8f7d9c5d", UID: types.UID(fmt.Sprintf("%08x-aaaa-4c0e-9f7b-%012x", deployment, deployment)),
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}},
	}}
	pod.Spec = corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", n%250), ServiceAccountName: "checkout", RestartPolicy: corev1.RestartPolicyAlways}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	for i, container := range []string{"main", "sidecar"} {
		digest := []int{deployment % 50, 99}[i]
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container, Image: images[i]})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container, ImageID: fmt.Sprintf("registry.example.com/any@sha256:%064x", digest),
		})
	}
	return inventory.StripPod(pod)
}

// member is a pod of a StatefulSet, which has labels of its own.
func member(n int) *corev1.Pod {
	pod := replica(n)
	pod.Labels["statefulset.kubernetes.io/pod-name"], pod.Labels["apps.kubernetes.io/pod-index"] = pod.Name, fmt.Sprint(n)
	return pod
}

// The most bytes of live heap that a pod may take in the cache, with the indexes of the manager.
const (
	maxReplicaBytes = 512
	maxMemberBytes  = 2048
)

// TestHeapPerPod: the cache of a large cluster fits into the manager's memory.
func TestHeapPerPod(t *testing.T) {
	for name, tt := range map[string]struct {
		pod func(int) *corev1.Pod
		max float64
	}{
		"of Deployments":  {replica, maxReplicaBytes},
		"of StatefulSets": {member, maxMemberBytes},
	} {
		t.Run(name, func(t *testing.T) {
			if got := heapPerPod(t, 20_000, tt.pod); got > tt.max {
				t.Errorf("a pod takes %.0f bytes, want at most %.0f", got, tt.max)
			}
		})
	}
}

// BenchmarkHeapPerPod reports the live heap of one pod in the cache.
func BenchmarkHeapPerPod(b *testing.B) {
	for name, pod := range map[string]func(int) *corev1.Pod{"Deployment": replica, "StatefulSet": member} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(heapPerPod(b, 100_000, pod), "heap-B/pod")
			}
		})
	}
}

// heapPerPod fills an informer's store with pods and measures the heap that they take.
func heapPerPod(t testing.TB, count int, pod func(int) *corev1.Pod) float64 {
	t.Helper()
	var d decoder
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
		indexName(inventory.PodsByDigest): fieldIndex(&d, func(pod *corev1.Pod) (digests []string) {
			resolved, _ := inventory.ImagesOf(pod)
			for _, img := range resolved {
				digests = append(digests, img.ID.Digest)
			}
			return digests
		}),
	})
	before := liveHeap()
	for n := range count {
		if err := indexer.Add(compactOf(t, pod(n))); err != nil {
			t.Fatal(err)
		}
	}
	after := liveHeap()
	runtime.KeepAlive(indexer)
	return float64(after-before) / float64(count)
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
