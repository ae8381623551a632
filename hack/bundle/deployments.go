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

// A bundle carries the default configuration. The user's configuration is in a separate ConfigMap, which OLM neither creates nor
// overwrites.
const (
	configurationMap = "scanner-operator-config"
	defaultsMap      = "scanner-operator-defaults"
)

// storeSecret is the user's Secret for a store on a server.
const storeSecret = "scanner-operator-store"

// relatedImage is the prefix of environment variables that hold an image reference.
const relatedImage = "RELATED_IMAGE_"

// strategies returns the Deployments in the form of a ClusterServiceVersion, and the images that they use.
func (p parts) strategies(from release) ([]v1alpha1.StrategyDeploymentSpec, []v1alpha1.RelatedImage, error) {
	used := map[string]string{}
	var specs []v1alpha1.StrategyDeploymentSpec
	for _, deployment := range p.deployments {
		pod := &deployment.Spec.Template.Spec
		if err := pinImages(pod, from, used); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", deployment.Name, err)
		}
		mountStoreServer(pod)
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

// pinImages replaces image names, in containers and in RELATED_IMAGE_ variables, with references by digest.
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

// adaptVolume changes a volume to one that OLM can install. A PersistentVolumeClaim becomes an emptyDir of the same name. A volume of
// that name in Subscription.spec.config.volumes replaces the emptyDir, and the mount stays the same.
func adaptVolume(volume *corev1.Volume) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		volume.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	case volume.ConfigMap != nil && isConfiguration(volume.ConfigMap.Name):
		// If two sources have the same file, the later source wins.
		user := true
		volume.VolumeSource = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: defaultsMap}}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: configurationMap}, Optional: &user}},
		}}}
	}
}

// mountStoreServer has the pod with the store mount the Secret for a store on a server, if there is one. Mounts of a Subscription would be in
// all pods, and the notifier must not have the database's password. A volume of the same name in Subscription.spec.config.volumes replaces
// this one.
func mountStoreServer(pod *corev1.PodSpec) {
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil }) {
		return
	}
	optional := true
	var sources []corev1.VolumeProjection
	for _, file := range []corev1.KeyToPath{{Key: "uri", Path: "dsn"}, {Key: "ca.crt", Path: "ca.crt"}} {
		sources = append(sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: storeSecret}, Items: []corev1.KeyToPath{file}, Optional: &optional,
		}})
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{
		Name: "store-server", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}},
	})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{
		Name: "store-server", MountPath: "/etc/scanner-operator/store", ReadOnly: true,
	})
}

func isConfiguration(name string) bool {
	return name == configurationMap || hasHashSuffix(name, configurationMap)
}

// hasHashSuffix reports whether name is base with a hash suffix that kustomize has appended.
func hasHashSuffix(name, base string) bool {
	hash, found := strings.CutPrefix(name, base+"-")
	return found && len(hash) == 10 && !strings.Contains(hash, "-")
}

// defaults returns the ConfigMap of config/default under the name that the Deployments of a bundle expect.
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

// onOneNode keeps the manager and the notifier on one node. OLM adds the volumes of a Subscription to every Deployment, even to those
// that do not mount them, and Kubernetes attaches a volume to the node of every pod that lists it. A ReadWriteOnce volume that is
// attached to the notifier's node could not be attached to the manager's node.
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
