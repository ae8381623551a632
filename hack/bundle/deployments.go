package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The configuration. A bundle carries the defaults; what a user says stands in a ConfigMap of the user's own, which
// OLM neither makes nor overwrites.
const (
	configurationMap = "scanner-operator-config"
	defaultsMap      = "scanner-operator-defaults"
)

// relatedImage begins the names of environment variables that hold images.
const relatedImage = "RELATED_IMAGE_"

// strategies are the Deployments as they stand in a ClusterServiceVersion, and the images that they name.
func (p parts) strategies(from release) ([]v1alpha1.StrategyDeploymentSpec, []v1alpha1.RelatedImage, error) {
	used := map[string]string{}
	var specs []v1alpha1.StrategyDeploymentSpec
	for _, deployment := range p.deployments {
		pod := &deployment.Spec.Template.Spec
		if err := pinImages(pod, from, used); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", deployment.Name, err)
		}
		for i := range pod.Volumes {
			adaptVolume(&pod.Volumes[i])
		}
		pod.Affinity = onOneNode(deployment)
		specs = append(specs, v1alpha1.StrategyDeploymentSpec{Name: deployment.Name, Label: deployment.Labels, Spec: deployment.Spec})
	}
	var related []v1alpha1.RelatedImage
	for name, image := range used {
		related = append(related, v1alpha1.RelatedImage{Name: name, Image: image})
	}
	slices.SortFunc(related, func(a, b v1alpha1.RelatedImage) int { return strings.Compare(a.Name, b.Name) })
	return specs, related, nil
}

// pinImages replaces the names of images, in containers and in RELATED_IMAGE_ variables, by references by digest.
func pinImages(pod *corev1.PodSpec, from release, used map[string]string) error {
	for i := range pod.Containers {
		container := &pod.Containers[i]
		values := []*string{&container.Image}
		for j := range container.Env {
			if strings.HasPrefix(container.Env[j].Name, relatedImage) {
				values = append(values, &container.Env[j].Value)
			}
		}
		for _, value := range values {
			reference, err := from.image(*value)
			if err != nil {
				return err
			}
			used[*value], *value = reference, reference
		}
	}
	return nil
}

// adaptVolume makes a volume of what OLM can install. A claim becomes an emptyDir under the same name: a volume of that
// name in Subscription.spec.config.volumes takes its place, and the mount stays as it is.
func adaptVolume(volume *corev1.Volume) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		volume.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	case volume.ConfigMap != nil && isConfiguration(volume.ConfigMap.Name):
		// Of two sources with the same file the later one's is there.
		user := true
		volume.VolumeSource = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: defaultsMap}}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: configurationMap}, Optional: &user}},
		}}}
	}
}

func isConfiguration(name string) bool {
	return name == configurationMap || isGenerated(name, configurationMap)
}

// isGenerated tells whether kustomize has made a name of this one, by a hash at its end.
func isGenerated(name, base string) bool {
	hash, found := strings.CutPrefix(name, base+"-")
	return found && len(hash) == 10 && !strings.Contains(hash, "-")
}

// defaults is the ConfigMap of config/default under the name that the Deployments of a bundle expect.
func (p parts) defaults() ([]*unstructured.Unstructured, error) {
	var renamed []*unstructured.Unstructured
	for _, configMap := range p.configMaps {
		if !isConfiguration(configMap.GetName()) {
			return nil, fmt.Errorf("ConfigMap %s: a bundle would overwrite the user's changes with each version", configMap.GetName())
		}
		configMap = configMap.DeepCopy()
		configMap.SetName(defaultsMap)
		renamed = append(renamed, configMap)
	}
	return renamed, nil
}

// onOneNode keeps the operator's pods together. Volumes of a Subscription are added to each Deployment, also to those that
// do not mount them, and Kubernetes attaches a volume to the node of every pod that lists it: a ReadWriteOnce volume that is
// attached to the notifier's node could not be attached to the manager's.
func onOneNode(deployment appsv1.Deployment) *corev1.Affinity {
	const name, component = "app.kubernetes.io/name", "app.kubernetes.io/component"
	return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname,
		LabelSelector: &metav1.LabelSelector{
			MatchLabels:      map[string]string{name: deployment.Spec.Template.Labels[name]},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: component, Operator: metav1.LabelSelectorOpIn, Values: []string{"manager", "notifier"}}},
		},
	}}}}
}
