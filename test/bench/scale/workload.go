package scale

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Each namespace has a Deployment of each image, all with the same number of pods.
const (
	namespaces = 10
	images     = 50
	// writers is the number of concurrent workers that create and delete pods.
	writers = 8
)

func namespaceName(i int) string { return fmt.Sprintf("team-%02d", i) }

// imageName selects by its text what the fake backend finds: of ten images two are clean, six have two findings, and two have 200.
func imageName(i int) string {
	return fmt.Sprintf("registry.example.com/company/division/%s-service-%02d:1.14.%d", imageKind(i), i, i)
}

func imageKind(i int) string {
	switch i % 10 {
	case 0, 1:
		return "clean"
	case 2, 3:
		return "riddled"
	}
	return "vulnerable"
}

// findings returns the number of findings that the fake backend has for an image.
func findings(image string) int {
	switch {
	case strings.Contains(image, "clean"):
		return 0
	case strings.Contains(image, "riddled"):
		return 200
	}
	return 2
}

// deployment is a Deployment of one image, with all that its controllers would make of it.
type deployment struct {
	namespace, name, image string
	// index is its position among all. It spreads the pods over the nodes.
	index int
	// revision counts its rollouts, from 1.
	revision int
}

// allDeployments returns the deployments in the order of the rollout: each image in all namespaces.
func allDeployments() []*deployment {
	var all []*deployment
	for image := range images {
		for namespace := range namespaces {
			all = append(all, &deployment{
				namespace: namespaceName(namespace), name: fmt.Sprintf("service-%02d", image), image: imageName(image), index: len(all), revision: 1,
			})
		}
	}
	return all
}

func (d *deployment) labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": d.name, "app.kubernetes.io/part-of": d.namespace}
}

// hash is the label that a Deployment gives the pods of a revision.
func (d *deployment) hash() string { return fmt.Sprintf("%dc9f4b8d%02d", d.revision, d.index%100) }

func (d *deployment) podLabels() map[string]string {
	labels := d.labels()
	labels[appsv1.DefaultDeploymentUniqueLabelKey], labels[revisionLabel] = d.hash(), fmt.Sprint(d.revision)
	return labels
}

// replicaSet returns the name of the present revision's ReplicaSet.
func (d *deployment) replicaSet() string { return d.name + "-" + d.hash() }

// uid returns the UID of the present revision's ReplicaSet where there is no such object.
func (d *deployment) uid() types.UID {
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%04d%08d", d.revision, d.index))
}

// pods returns the replicas of the present revision as a ReplicaSet with the given UID creates them, with the size of a typical web service.
func (d *deployment) pods(replicas int, owner types.UID) []*corev1.Pod {
	pods := make([]*corev1.Pod, replicas)
	for i := range pods {
		pods[i] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: d.namespace, Name: fmt.Sprintf("%s-%05d", d.replicaSet(), i), Labels: d.podLabels(),
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: "ReplicaSet", Name: d.replicaSet(), Controller: ptr.To(true), UID: owner,
				}},
			},
			Spec: d.spec(i),
		}
	}
	return pods
}

// revisionLabel distinguishes the pods before a rollout from those after it.
const revisionLabel = "bench/revision"

func (d *deployment) spec(i int) corev1.PodSpec {
	environment := make([]corev1.EnvVar, 12)
	for n := range environment {
		environment[n] = corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", n), Value: "https://service.example.com/path/of/the/setting"}
	}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}
	return corev1.PodSpec{
		NodeName:                     nodeName(d.index + i),
		AutomountServiceAccountToken: ptr.To(false),
		Containers: []corev1.Container{{
			Name: "service", Image: d.image, Env: environment, ReadinessProbe: probe, LivenessProbe: probe,
			Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			}},
			VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/tmp"}},
		}},
		Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
}

// deploy creates Deployments with their ReplicaSets and pods, as the controllers do that this cluster does not have.
func (c *cluster) deploy(ctx context.Context, all []*deployment, replicas int) error {
	return each(all, func(d *deployment) error {
		object := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: d.name, Labels: d.labels(), Annotations: d.revisionAnnotation()},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: d.labels()}, Template: d.template(),
			},
		}
		if err := c.server.Create(ctx, object); err != nil {
			return err
		}
		return c.createRevision(ctx, d, replicas)
	})
}

func (d *deployment) template() corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: d.podLabels()}, Spec: d.spec(0)}
	template.Spec.NodeName = ""
	return template
}

// revisionAnnotation is what a Deployment and the ReplicaSet of its present revision have in common.
func (d *deployment) revisionAnnotation() map[string]string {
	return map[string]string{"deployment.kubernetes.io/revision": fmt.Sprint(d.revision)}
}

// createRevision creates the ReplicaSet of the present revision, with its pods.
func (c *cluster) createRevision(ctx context.Context, d *deployment, replicas int) error {
	var owner appsv1.Deployment
	if err := c.server.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: d.name}, &owner); err != nil {
		return err
	}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.namespace, Name: d.replicaSet(), Labels: d.podLabels(), Annotations: d.revisionAnnotation(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&owner, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: d.podLabels()}, Template: d.template()},
	}
	if err := c.server.Create(ctx, set); err != nil {
		return err
	}
	for _, pod := range d.pods(replicas, set.UID) {
		if err := c.server.Create(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// rollOut gives each Deployment a new revision with the same image, waits until the new pods run, and deletes the old ones. running is the
// number of all pods.
func (c *cluster) rollOut(ctx context.Context, some []*deployment, replicas, running int) error {
	err := each(some, func(d *deployment) error {
		d.revision++
		object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: d.name}}
		change := fmt.Appendf(nil, `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"%d"}}}`, d.revision)
		if err := c.server.Patch(ctx, object, client.RawPatch(types.MergePatchType, change)); err != nil {
			return err
		}
		return c.createRevision(ctx, d, replicas)
	})
	if err != nil {
		return err
	}
	if err := c.allRun(ctx, running+len(some)*replicas); err != nil {
		return err
	}
	err = each(some, func(d *deployment) error {
		old := *d
		old.revision--
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: old.namespace, Name: old.replicaSet()}}
		if err := c.server.Patch(ctx, set, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))); err != nil {
			return err
		}
		if err := errors.Join(c.reportReplicas(ctx, d, replicas), c.reportReplicas(ctx, &old, 0)); err != nil {
			return err
		}
		for _, pod := range old.pods(replicas, "") {
			if err := c.server.Delete(ctx, pod); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.allRun(ctx, running)
}

// reportReplicas writes the status of the present revision's ReplicaSet, all of whose pods run.
func (c *cluster) reportReplicas(ctx context.Context, d *deployment, replicas int) error {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: d.replicaSet()}}
	return c.server.Status().Patch(ctx, set, client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"replicas":%[1]d,"readyReplicas":%[1]d,"availableReplicas":%[1]d}}`, replicas)))
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

// allRun waits until there are exactly the given number of pods, and all of them run.
func (c *cluster) allRun(ctx context.Context, pods int) error {
	return wait.Eventually(ctx, podsTimeout, wait.Often, func(ctx context.Context) error {
		if err := c.kwok.Alive(); err != nil {
			return err
		}
		there, err := c.count(ctx, "/registry/pods/team-")
		if err != nil {
			return err
		}
		var pending metav1.PartialObjectMetadataList
		pending.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := c.server.List(ctx, &pending, client.MatchingFields{"status.phase": string(corev1.PodPending)}, client.Limit(1)); err != nil {
			return err
		}
		if there != pods || len(pending.Items) > 0 {
			return fmt.Errorf("there are %d pods, of which some may not run; expected %d", there, pods)
		}
		return nil
	})
}
