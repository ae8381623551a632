package grype

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The Jobs of the operator run where its configuration places them, whatever a Scanner wants, and all Jobs run on nodes with Linux.
func TestPlacement(t *testing.T) {
	placement := func(name string) config.Placement {
		return config.Placement{
			NodeSelector: map[string]string{"pool": name}, PriorityClassName: name,
			Tolerations:  []corev1.Toleration{{Key: name, Operator: corev1.TolerationOpExists}},
			NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}},
		}
	}
	e := newEngine(t, func(o *Options) {
		o.Config.Grype.Catalog.Placement, o.Config.Grype.Match.Placement = placement("catalog"), placement("match")
	})
	own := private("web", "secret")
	own.Job = &v1alpha1.CatalogJob{NodeSelector: map[string]string{"pool": "own"}, PriorityClassName: "own", Tolerations: placement("own").Tolerations}
	shared := public("web")
	shared.Job = own.Job
	for want, job := range map[string]*batchv1.Job{
		"own":     e.catalogJob("c", own, 0),
		"catalog": e.catalogJob("c", shared, 0),
		"match":   e.matchJob("m", emptyDir()),
	} {
		pod := job.Spec.Template.Spec
		if diff := cmp.Diff(map[string]string{"pool": want, "kubernetes.io/os": "linux"}, pod.NodeSelector); diff != "" {
			t.Errorf("%s: nodeSelector (-want +got):\n%s", want, diff)
		}
		if len(pod.Tolerations) != 1 || pod.Tolerations[0].Key != want || pod.PriorityClassName != want {
			t.Errorf("%s: tolerations %v, priorityClassName %q", want, pod.Tolerations, pod.PriorityClassName)
		}
		if hasAffinity := pod.Affinity != nil && pod.Affinity.NodeAffinity != nil; hasAffinity != (want != "own") {
			t.Errorf("%s: affinity %v", want, pod.Affinity)
		}
	}
}

// golden compares a Job with a golden file; "go test ./pkg/backend/grype -update" writes the file.
func golden(t *testing.T, name string, job *batchv1.Job) {
	t.Helper()
	got, err := yaml.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), see it with -update:\n%s", path, diff)
	}
}

func emptyDir() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
}

// TestJobsGolden: the complete manifests of the Jobs.
func TestJobsGolden(t *testing.T) {
	e := newEngine(t, func(o *Options) {
		o.Config.Registries = []config.Registry{{Host: "198.51.100.10:5000", PlainHTTP: true}}
	})
	golden(t, "catalog-job.yaml", e.catalogJob("scan-catalog-1", public("web"), 0))
	golden(t, "catalog-job-private.yaml", e.catalogJob("scan-catalog-2", private("web", "pull-a", "pull-b"), 0))
	golden(t, "match-job.yaml", e.matchJob("scan-match-1", emptyDir()))
	e.Config.Registries = []config.Registry{{Host: "company.azurecr.io", Provider: "azure"}}
	golden(t, "catalog-job-identity.yaml", e.catalogJob("scan-catalog-3", pulledFrom(public("web"), "company.azurecr.io"), 0))
}

// TestAdditionalFormats: a catalog Job uploads the SBOM in the formats that the configuration names.
func TestAdditionalFormats(t *testing.T) {
	for _, formats := range [][]string{nil, {"spdx-json"}, {"cyclonedx-json", "spdx-json"}} {
		e := newEngine(t, func(o *Options) { o.Config.Grype.Catalog.AdditionalFormats = formats })
		var got []string
		args := e.catalogJob("c", public("web"), 0).Spec.Template.Spec.Containers[0].Args
		for i, arg := range args {
			if arg == "--format" {
				got = append(got, args[i+1])
			}
		}
		if diff := cmp.Diff(formats, got); diff != "" {
			t.Errorf("formats (-want +got):\n%s", diff)
		}
	}
}

// pulledFrom returns the image with references to these registries only.
func pulledFrom(img backend.Image, hosts ...string) backend.Image {
	img.PullReferences = nil
	for _, host := range hosts {
		img.PullReferences = append(img.PullReferences, host+"/web@"+img.Key.Digest)
	}
	return img
}

// TestWhoseIdentityJobsUse: a Job runs under the ServiceAccount with cloud identities only if a registry of its image, or a mirror, has a
// provider. In the namespace of a Scanner, the Scanner has to want that, too.
func TestWhoseIdentityJobsUse(t *testing.T) {
	const ecr, acr = "123456789012.dkr.ecr.eu-central-1.amazonaws.com", "company.azurecr.io"
	e := newEngine(t, func(o *Options) {
		o.Config.Registries = []config.Registry{
			{Host: ecr, Provider: "aws"}, {Host: acr, Provider: "azure"}, {Host: "registry.example.com"}, {Host: "docker.io", Mirrors: []string{ecr + "/hub"}},
		}
	})
	namespaced := func(img backend.Image) backend.Image {
		img.Job = &v1alpha1.CatalogJob{Identity: v1alpha1.IdentityNamespace}
		return img
	}
	for name, tt := range map[string]struct {
		img     backend.Image
		account string
		azure   bool
	}{
		"no provider":                   {pulledFrom(public("web"), "registry.example.com"), "", false},
		"AWS":                           {pulledFrom(public("web"), ecr), workerapi.CatalogServiceAccount, false},
		"Azure":                         {pulledFrom(public("web"), acr), workerapi.CatalogServiceAccount, true},
		"one of two registries":         {pulledFrom(public("web"), "registry.example.com", acr), workerapi.CatalogServiceAccount, true},
		"a mirror":                      {pulledFrom(public("web"), "docker.io"), workerapi.CatalogServiceAccount, false},
		"a namespace":                   {pulledFrom(private("web", "regcred"), ecr, acr), "", false},
		"a namespace with its identity": {namespaced(pulledFrom(private("web", "regcred"), acr)), workerapi.CatalogServiceAccount, true},
		"a namespace's identity, and no provider": {namespaced(pulledFrom(private("web", "regcred"), "registry.example.com")), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			job := e.catalogJob("c", tt.img, 0)
			template := job.Spec.Template
			if template.Spec.ServiceAccountName != tt.account || *template.Spec.AutomountServiceAccountToken {
				t.Errorf("it runs as %q (with a token for the API: %t), want %q without", template.Spec.ServiceAccountName, *template.Spec.AutomountServiceAccountToken, tt.account)
			}
			if _, labelled := template.Labels[azureLabel]; labelled != tt.azure {
				t.Errorf("the pod has the label for Azure: %t, want %t", labelled, tt.azure)
			}
			if _, labelled := job.Labels[azureLabel]; labelled {
				t.Error("the Job has a label that is for its pod")
			}
		})
	}
}

// allJobs returns one Job of every kind.
func (e *engine) allJobs() map[string]*batchv1.Job {
	shaped := private("web", "pull")
	shaped.Job = &v1alpha1.CatalogJob{NodeSelector: map[string]string{"a": "b"}}
	return map[string]*batchv1.Job{
		"catalog":         e.catalogJob("c", public("web"), 0),
		"private catalog": e.catalogJob("p", private("web", "pull"), 0),
		"shaped catalog":  e.catalogJob("s", shaped, 0),
		"match":           e.matchJob("m", emptyDir()),
	}
}

// TestMatchWorkersKnowTheMirror: match workers get the CA of a private database mirror.
func TestMatchWorkersKnowTheMirror(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.Config.Grype.Database.CABundle = "PEM" })
	if args := e.matchJob("m", emptyDir()).Spec.Template.Spec.Containers[0].Args; !slices.Equal(args[len(args)-2:], []string{"--database-ca", "PEM"}) {
		t.Errorf("the match worker gets %q, want the mirror's authority at the end", args)
	}
}

// TestJobsAreRestricted: every Job passes the restricted pod security standard
// (https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted), field by field.
func TestJobsAreRestricted(t *testing.T) {
	for name, job := range newEngine(t).allJobs() {
		t.Run(name, func(t *testing.T) {
			pod := job.Spec.Template.Spec
			if pod.HostNetwork || pod.HostPID || pod.HostIPC {
				t.Error("it shares something with its node")
			}
			for _, volume := range pod.Volumes {
				if volume.EmptyDir == nil && volume.Projected == nil && volume.Secret == nil && volume.PersistentVolumeClaim == nil {
					t.Errorf("volume %s is of a kind that is not allowed", volume.Name)
				}
			}
			if s := pod.SecurityContext; s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Error("the seccomp profile is not RuntimeDefault")
			} else if s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 {
				t.Error("it may run as root")
			}
			if len(pod.InitContainers)+len(pod.EphemeralContainers) > 0 {
				t.Error("it has containers that this test does not look at")
			}
			for _, container := range pod.Containers {
				s := container.SecurityContext
				switch {
				case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
					t.Error("it may gain privileges")
				case s.Privileged != nil && *s.Privileged:
					t.Error("it is privileged")
				case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0:
					t.Error("it does not drop all capabilities")
				case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
					t.Error("it may write to its image")
				case len(container.Ports) > 0:
					t.Error("it opens ports")
				}
			}
		})
	}
}

// TestJobsHaveNoAPIToken: pods mount no service account token except one that is valid only for the ingest API.
func TestJobsHaveNoAPIToken(t *testing.T) {
	for name, job := range newEngine(t).allJobs() {
		t.Run(name, func(t *testing.T) {
			pod := job.Spec.Template.Spec
			if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
				t.Error("a token for the Kubernetes API is mounted")
			}
			if pod.ServiceAccountName != "" {
				t.Errorf("it runs as %q, an identity that somebody gave permissions to", pod.ServiceAccountName)
			}
			for _, volume := range pod.Volumes {
				if volume.Projected == nil {
					continue
				}
				for _, source := range volume.Projected.Sources {
					if token := source.ServiceAccountToken; token == nil || token.Audience != workerapi.Audience {
						t.Errorf("the token is for %+v, want %s", token, workerapi.Audience)
					}
				}
			}
			for _, env := range pod.Containers[0].Env {
				if env.ValueFrom != nil {
					t.Errorf("%s comes from elsewhere", env.Name)
				}
			}
		})
	}
}

// TestJobsAreBounded: each Job ends by itself, is attempted once, and is removed even without the operator. Everything that it writes is
// bounded.
func TestJobsAreBounded(t *testing.T) {
	e := newEngine(t)
	for name, job := range e.allJobs() {
		t.Run(name, func(t *testing.T) {
			if job.Spec.BackoffLimit == nil || *job.Spec.BackoffLimit != 0 || job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
				t.Error("Kubernetes tries again by itself")
			}
			if job.Spec.TTLSecondsAfterFinished == nil {
				t.Error("it stays when the operator has gone")
			}
			if hasDeadline := job.Spec.ActiveDeadlineSeconds != nil; hasDeadline != (name != "match") {
				t.Errorf("it has a deadline: %v; catalog Jobs have one, match workers end when they are idle", hasDeadline)
			}
			if job.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().IsZero() {
				t.Error("its memory has no limit")
			}
			for _, volume := range job.Spec.Template.Spec.Volumes {
				if volume.Name == "tmp" && volume.EmptyDir.SizeLimit == nil {
					t.Error("its scratch space has no limit")
				}
			}
		})
	}
}

// TestWhereJobsRun: a Job that needs a namespace's Secrets runs there, with the settings of its Scanner. All other Jobs run in the
// operator's namespace, without settings of a Scanner.
func TestWhereJobsRun(t *testing.T) {
	e := newEngine(t)
	shape := &v1alpha1.CatalogJob{
		NodeSelector:      map[string]string{"pool": "scans"},
		Tolerations:       []corev1.Toleration{{Key: "scans", Operator: corev1.TolerationOpExists}},
		PriorityClassName: "low",
		Resources:         &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("7Gi")}},
	}
	own, shared := private("web", "pull"), public("web")
	own.Job, shared.Job = shape, shape

	job := e.catalogJob("a", own, 0)
	pod := job.Spec.Template.Spec
	if job.Namespace != "shop" || pod.NodeSelector["pool"] != "scans" || len(pod.Tolerations) != 1 || pod.PriorityClassName != "low" ||
		pod.Containers[0].Resources.Limits.Memory().String() != "7Gi" {
		t.Errorf("the Job in %s does not look as its Scanner wants it: %+v", job.Namespace, pod)
	}
	job = e.catalogJob("b", shared, 0)
	pod = job.Spec.Template.Spec
	if job.Namespace != operatorNamespace || len(pod.NodeSelector) != 1 || pod.Tolerations != nil || pod.PriorityClassName != "" ||
		pod.Containers[0].Resources.Limits.Memory().String() != "2Gi" {
		t.Errorf("a Scanner shapes the Job in %s: %+v", job.Namespace, pod)
	}
	for _, volume := range pod.Volumes {
		if volume.Secret != nil {
			t.Errorf("a Job in the operator's namespace mounts the Secret %s", volume.Secret.SecretName)
		}
	}
}

// TestPullSecretsAreOptional: a missing pull secret does not prevent the Job from starting.
func TestPullSecretsAreOptional(t *testing.T) {
	job := newEngine(t).catalogJob("a", private("web", "one", "two"), 0)
	var mounted []string
	for _, volume := range job.Spec.Template.Spec.Volumes {
		if volume.Secret == nil {
			continue
		}
		mounted = append(mounted, volume.Secret.SecretName)
		if volume.Secret.Optional == nil || !*volume.Secret.Optional {
			t.Errorf("the Secret %s is not optional", volume.Secret.SecretName)
		}
	}
	if diff := cmp.Diff([]string{"one", "two"}, mounted); diff != "" {
		t.Errorf("Secrets (-want +got):\n%s", diff)
	}
	for _, mount := range job.Spec.Template.Spec.Containers[0].VolumeMounts {
		if strings.HasPrefix(mount.Name, "pull-") && (!mount.ReadOnly || !strings.HasPrefix(mount.MountPath, workerapi.PullSecretsDir+"/")) {
			t.Errorf("%s is mounted at %s, read-only: %v", mount.Name, mount.MountPath, mount.ReadOnly)
		}
	}
}
