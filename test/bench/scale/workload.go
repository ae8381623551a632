package scale

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Each namespace has a Deployment of each image, all with the same number of pods.
const (
	namespaces = 10
	images     = 50
	// writers is the number of concurrent workers that create and delete pods.
	writers = 8
	// scannerName is the name of the Scanner in each namespace.
	scannerName = "scanner"
)

func namespaceName(i int) string { return fmt.Sprintf("team-%02d", i) }

// imageName selects by its text what the fake backend finds: of ten images two are clean, six have two findings, and two have 200.
func imageName(i int) string {
	kind := "vulnerable"
	switch i % 10 {
	case 0, 1:
		kind = "clean"
	case 2, 3:
		kind = "riddled"
	}
	return fmt.Sprintf("registry.example.com/company/division/%s-service-%02d:1.14.%d", kind, i, i)
}

// deployment is one image in one namespace.
type deployment struct{ namespace, image int }

func (d deployment) name() string { return fmt.Sprintf("service-%02d", d.image) }

// allDeployments returns the deployments in the order of the rollout.
func allDeployments() []deployment {
	var all []deployment
	for image := range images {
		for namespace := range namespaces {
			all = append(all, deployment{namespace, image})
		}
	}
	return all
}

// pods returns the replicas of a revision as a ReplicaSet creates them, with the size of a typical web service.
func (d deployment) pods(replicas, revision int) []*corev1.Pod {
	hash := fmt.Sprintf("%dc9f4b8d%02d", revision, d.image)
	pods := make([]*corev1.Pod, replicas)
	for i := range pods {
		pods[i] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespaceName(d.namespace), Name: fmt.Sprintf("%s-%s-%05d", d.name(), hash, i),
				Labels: map[string]string{
					"app.kubernetes.io/name": d.name(), "app.kubernetes.io/part-of": namespaceName(d.namespace),
					"pod-template-hash": hash, revisionLabel: fmt.Sprint(revision),
				},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: "ReplicaSet", Name: d.name() + "-" + hash, Controller: ptr.To(true),
					UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%02d%02d%08d", d.namespace, d.image, revision)),
				}},
			},
			Spec: d.spec(i),
		}
	}
	return pods
}

// revisionLabel distinguishes the pods before a rollout from those after it.
const revisionLabel = "bench/revision"

func (d deployment) spec(i int) corev1.PodSpec {
	environment := make([]corev1.EnvVar, 12)
	for n := range environment {
		environment[n] = corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", n), Value: "https://service.example.com/path/of/the/setting"}
	}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}
	return corev1.PodSpec{
		NodeName:                     nodeName(d.namespace + d.image + i),
		AutomountServiceAccountToken: ptr.To(false),
		Containers: []corev1.Container{{
			Name: "service", Image: imageName(d.image), Env: environment, ReadinessProbe: probe, LivenessProbe: probe,
			Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			}},
			VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/tmp"}},
		}},
		Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
}

// createPods creates the pods of deployments concurrently.
func (c *cluster) createPods(ctx context.Context, deployments []deployment, replicas, revision int) error {
	var pods []*corev1.Pod
	for _, d := range deployments {
		pods = append(pods, d.pods(replicas, revision)...)
	}
	return each(pods, func(pod *corev1.Pod) error { return c.server.Create(ctx, pod) })
}

// deletePods deletes the pods of deployments as a ReplicaSet does. They disappear when their node confirms the end.
func (c *cluster) deletePods(ctx context.Context, deployments []deployment, replicas, revision int) error {
	var pods []*corev1.Pod
	for _, d := range deployments {
		pods = append(pods, d.pods(replicas, revision)...)
	}
	return each(pods, func(pod *corev1.Pod) error { return c.server.Delete(ctx, pod) })
}

// each calls do for all elements concurrently and returns the first error.
func each[T any](all []T, do func(T) error) error {
	queue := make(chan T)
	failed := make(chan error, writers)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			var first error
			for one := range queue {
				if first == nil {
					first = do(one)
				}
			}
			failed <- first
		})
	}
	for _, one := range all {
		queue <- one
	}
	close(queue)
	group.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// allRun waits until exactly the given number of pods run and none is being deleted.
func (c *cluster) allRun(ctx context.Context, pods int) error {
	return wait.Eventually(ctx, waitTimeout, wait.Rarely, func(ctx context.Context) error {
		if err := c.kwok.Alive(); err != nil {
			return err
		}
		var running metav1.PartialObjectMetadataList
		running.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := c.server.List(ctx, &running, client.MatchingFields{"status.phase": string(corev1.PodRunning)}); err != nil {
			return err
		}
		there := 0
		for _, pod := range running.Items {
			if pod.DeletionTimestamp.IsZero() {
				there++
			}
		}
		if there != pods || len(running.Items) != pods {
			return fmt.Errorf("%d pods run, %d of them to go; expected %d", len(running.Items), len(running.Items)-there, pods)
		}
		return nil
	})
}

// annotated returns the number of pods with the annotation of the scanned images.
func (c *cluster) annotated(ctx context.Context) (int, error) {
	var pods metav1.PartialObjectMetadataList
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := c.server.List(ctx, &pods); err != nil {
		return 0, err
	}
	n := 0
	for _, pod := range pods.Items {
		if pod.Annotations[scannerName+".scanner-operator.io/image-hashes"] != "" {
			n++
		}
	}
	return n, nil
}

// createScanners creates a Scanner in each namespace, which starts the scans.
func (c *cluster) createScanners(ctx context.Context) error {
	for i := range namespaces {
		scanner := &v1alpha1.Scanner{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName(i), Name: scannerName},
			Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}},
		}
		if err := c.server.Create(ctx, scanner); err != nil {
			return err
		}
	}
	return nil
}

// covered returns an error unless every Scanner has scanned every image.
func (c *cluster) covered(ctx context.Context) error {
	if err := c.manager.Alive(); err != nil {
		return err
	}
	var scanners v1alpha1.ScannerList
	if err := c.server.List(ctx, &scanners); err != nil {
		return err
	}
	for _, s := range scanners.Items {
		if counts := s.Status.Images; counts.Total != images || counts.Scanned != images {
			return fmt.Errorf("%s: %+v, expected %d images scanned", s.Namespace, counts, images)
		}
	}
	return nil
}
