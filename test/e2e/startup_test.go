package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// A manager that cannot start reports the reason in its termination message, which "kubectl describe pod" shows. The test pods are
// broken copies of the real one, which keeps running.
func TestManagerReportsStartupError(t *testing.T) {
	for name, tt := range map[string]struct {
		volume, file, content string
		want                  []string
	}{
		"store-damaged": {"store", "store.db", "this is no store", []string{"store.db", "cannot be written"}}, // a ConfigMap is read-only
		"config-wrong":  {"config", "config.yaml", "grype: {match: {idleTimeout: often}}", []string{"grype.match.idleTimeout", `invalid duration "often"`}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := brokenManager(t, "broken-"+name, tt.volume, tt.file, tt.content)
			waitFor(t, "the reason in the pod's status", func(ctx context.Context) error {
				if err := env.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
					return err
				}
				for _, status := range pod.Status.ContainerStatuses {
					for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
						if ended := state.Terminated; ended != nil && containsAll(ended.Message, tt.want) {
							return nil
						}
					}
				}
				return fmt.Errorf("want %q in a termination message, have %+v", tt.want, pod.Status.ContainerStatuses)
			})
		})
	}
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// brokenManager creates a copy of the manager's pod with a file in place of one of its volumes. No Service selects the copy.
func brokenManager(t *testing.T, name, volume, file, content string) *corev1.Pod {
	t.Helper()
	var deployments appsv1.DeploymentList
	must(t, env.Client.List(t.Context(), &deployments, client.InNamespace(scenario.SystemNamespace), managerPods))
	if len(deployments.Items) != 1 {
		t.Fatalf("%d Deployments of the manager, want 1", len(deployments.Items))
	}
	named := metav1.ObjectMeta{Namespace: scenario.SystemNamespace, Name: name}
	given := &corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{file: content}}
	pod := &corev1.Pod{ObjectMeta: named, Spec: deployments.Items[0].Spec.Template.Spec}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == volume {
			v.VolumeSource = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
		} else if v.PersistentVolumeClaim != nil {
			v.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}
	}
	for _, o := range []client.Object{given, pod} {
		must(t, env.Client.Create(t.Context(), o))
		t.Cleanup(func() {
			if err := env.Client.Delete(context.WithoutCancel(t.Context()), o, client.GracePeriodSeconds(0)); err != nil {
				t.Errorf("removing %s: %v", o.GetName(), err)
			}
		})
	}
	return pod
}
