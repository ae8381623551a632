package grype

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestJobsKnowRegistries: every worker gets the complete registry configuration.
func TestJobsKnowRegistries(t *testing.T) {
	e := newEngine(t, func(o *Options) {
		o.Config.Registries = []config.Registry{
			{Host: "docker.io", Mirrors: []string{"mirror.example.com/hub"}},
			{Host: "mirror.example.com", CABundle: "-----BEGIN CERTIFICATE-----", PlainHTTP: true},
		}
	})
	want := []workerapi.Registry{
		{Host: "docker.io", Mirrors: []string{"mirror.example.com/hub"}},
		{Host: "mirror.example.com", CABundle: "-----BEGIN CERTIFICATE-----", PlainHTTP: true},
	}
	for name, job := range e.allJobs() {
		var got []workerapi.Registry
		if err := json.Unmarshal([]byte(variables(job.Spec.Template.Spec)[workerapi.EnvRegistries]), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("registries of the Job %s (-want +got):\n%s", name, diff)
		}
	}
}

// TestJobsKnowTheProxy: workers get the proxy environment variables of the manager.
func TestJobsKnowTheProxy(t *testing.T) {
	proxy := []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy.example.com:3128"}, {Name: "no_proxy", Value: ".svc"}}
	e := newEngine(t, func(o *Options) { o.Proxy = proxy })
	for name, job := range e.allJobs() {
		got := variables(job.Spec.Template.Spec)
		for _, variable := range proxy {
			if got[variable.Name] != variable.Value {
				t.Errorf("%s of the Job %s is %q, want %q", variable.Name, name, got[variable.Name], variable.Value)
			}
		}
	}
}

// variables returns the environment of a worker's container.
func variables(pod corev1.PodSpec) map[string]string {
	values := map[string]string{}
	for _, variable := range pod.Containers[0].Env {
		values[variable.Name] = variable.Value
	}
	return values
}

// TestPullSecretsKeepTheirNames: pull secrets are mounted under their own names, which workers use in messages. The API server accepts
// names in a pod that no Secret can have: these must not lead to other directories.
func TestPullSecretsKeepTheirNames(t *testing.T) {
	job := newEngine(t).catalogJob("a", private("web", "team.example.com", "../../var/run/secrets/scanner-operator", "..", "A_B", "regcred"), 0)
	got := map[string]string{}
	pod := job.Spec.Template.Spec
	for _, volume := range pod.Volumes {
		for _, mount := range pod.Containers[0].VolumeMounts {
			if volume.Secret != nil && mount.Name == volume.Name {
				got[volume.Secret.SecretName] = mount.MountPath
			}
			if strings.Contains(volume.Name, ".") {
				t.Errorf("volume %s: the API server takes no dots in it", volume.Name)
			}
		}
	}
	want := map[string]string{"team.example.com": workerapi.PullSecretsDir + "/team.example.com", "regcred": workerapi.PullSecretsDir + "/regcred"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("where Secrets are mounted (-want +got):\n%s", diff)
	}
}
