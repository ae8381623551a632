package grype

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// workerUser is the unprivileged user that workers run as. The worker images define no other user.
const workerUser = 65532

// workerContainer is the name of the worker's container. Other containers of its pod are not the operator's.
const workerContainer = "worker"

// scratchVolume is the name of the volume at /tmp.
const scratchVolume = "tmp"

// tokenLifetime is the lifetime of the projected token in seconds. The kubelet renews the token at 80 % of it. The API server requires at
// least 10 minutes.
const tokenLifetime = 600

// matchJobTTL is the TTL of finished match workers in seconds, for when the operator is gone: normally it deletes them itself.
// Catalog Jobs have the TTL of the configured history.
const matchJobTTL = 600

// matchScratch bounds what a match worker may write to /tmp.
var matchScratch = resource.MustParse("2Gi")

// catalogJob returns the Job that catalogs an image. The Job has no Kubernetes permissions, and its token is valid only for the ingest API.
func (b *Backend) catalogJob(name string, request catalogRequest, resources corev1.ResourceRequirements) *batchv1.Job {
	img, catalog := request.image, b.Config.Grype.Catalog
	// The worker enforces the limit itself: if the kubelet evicts the pod for it, the reason is less precise.
	scratch := strconv.FormatInt(catalog.ScratchSize.Value(), 10)
	args := []string{"catalog", "--platform", img.Key.Platform.String(), "--scratch-size", scratch}
	for _, ref := range img.PullReferences {
		args = append(args, "--image", ref)
	}
	for _, format := range catalog.AdditionalFormats {
		args = append(args, "--format", format)
	}
	for _, host := range request.registries {
		if request.isAvoided(host) {
			args = append(args, "--spare", host)
		}
	}
	switch {
	case store.IsUpload(request.sbomPolicy):
		args = append(args, "--accept-upload")
	case request.sbomPolicy != "":
		args = append(args, "--prefer-attestation")
	}
	if img.VEXPolicy != "" {
		args = append(args, "--attached-vex")
	}
	pod, shape := b.workerPod(args, resources, catalog.ScratchSize), jobSettings(img)
	if img.Scope == store.Cluster {
		place(&pod, catalog.Placement)
	} else {
		place(&pod, config.Placement{NodeSelector: shape.NodeSelector, Tolerations: shape.Tolerations, PriorityClassName: shape.PriorityClassName})
	}
	mountPullSecrets(&pod, img.PullSecrets)
	job := b.job(b.namespaceOf(img), name, backend.CatalogWorker, pod, ptr.To(int64(catalog.Deadline.Seconds())))
	job.Spec.TTLSecondsAfterFinished = ptr.To(int32(min(catalog.History.TTL.Seconds(), math.MaxInt32)))
	useIdentity(job, b.identityProviders(request))
	return job
}

// identityProviders returns the clouds whose identities the Job of an image may use: those of its registries and of their mirrors. A Job in
// the namespace of a Scanner uses none, unless the Scanner wants that.
func (b *Backend) identityProviders(request catalogRequest) (providers []string) {
	if request.image.Scope != store.Cluster && jobSettings(request.image).Identity != v1alpha1.IdentityNamespace {
		return nil
	}
	for _, host := range request.registries {
		providers = append(providers, b.Config.Providers(host)...)
	}
	return providers
}

// azureLabel makes the webhook of Microsoft Entra Workload ID give a pod the token of its identity. The webhooks of other clouds go by the
// ServiceAccount (https://azure.github.io/azure-workload-identity/docs/topics/service-account-labels-and-annotations.html#pod).
const azureLabel = "azure.workload.identity/use"

// useIdentity lets a Job run under the ServiceAccount with cloud identities if it may use any. The pod still has no token for the Kubernetes API.
func useIdentity(job *batchv1.Job, providers []string) {
	if len(providers) == 0 {
		return
	}
	template := &job.Spec.Template
	template.Spec.ServiceAccountName = workerapi.CatalogServiceAccount
	if slices.Contains(providers, workerapi.ProviderAzure) {
		template.Labels = maps.Clone(template.Labels) // the Job has the same map
		template.Labels[azureLabel] = "true"
	}
}

// namespaceOf returns where an image's Job runs: in the namespace of the pull secrets, or in the operator's namespace if none are used.
func (b *Backend) namespaceOf(img backend.Image) string {
	if img.Scope == store.Cluster {
		return b.Namespace
	}
	return img.Namespace
}

// jobSettings returns the Scanner's settings for Jobs. They apply only to Jobs in the Scanner's own namespace.
func jobSettings(img backend.Image) v1alpha1.CatalogJob {
	if img.Job == nil || img.Scope == store.Cluster {
		return v1alpha1.CatalogJob{}
	}
	return *img.Job
}

// matchJob returns a match worker, which always runs in the operator's namespace. The Job has no deadline, only each image has one: the
// worker ends when it is idle.
func (b *Backend) matchJob(name string, volume corev1.VolumeSource) *batchv1.Job {
	args := []string{
		"match", "--database-url", b.Config.Grype.Database.URL, "--database-dir", workerapi.DatabaseDir,
		"--idle-timeout", b.Config.Grype.Match.IdleTimeout.Duration.String(),
		"--deadline", b.Config.Grype.Match.Deadline.Duration.String(),
	}
	if authorities := b.Config.Grype.Database.CABundle; authorities != "" {
		args = append(args, "--database-ca", authorities)
	}
	pod := b.workerPod(args, b.Config.Grype.Match.Resources, matchScratch)
	place(&pod, b.Config.Grype.Match.Placement)
	mount(&pod, "database", volume, workerapi.DatabaseDir, false)
	return b.job(b.Namespace, name, backend.MatchWorker, pod, nil)
}

func (b *Backend) job(namespace, name, component string, pod corev1.PodSpec, deadline *int64) *batchv1.Job {
	labels := backend.WorkerLabels(component)
	// A service mesh would keep the Job's pod running and intercept its connection to the ingest API.
	labels["sidecar.istio.io/inject"] = "false"
	annotations := map[string]string{"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: batchv1.JobSpec{
			// The operator decides about retries because it knows the reason of the failure.
			BackoffLimit:            ptr.To[int32](0),
			ActiveDeadlineSeconds:   deadline,
			TTLSecondsAfterFinished: ptr.To[int32](matchJobTTL),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec:       pod,
			},
		},
	}
}

// workerPod returns a pod that satisfies the restricted pod security standard.
func (b *Backend) workerPod(args []string, resources corev1.ResourceRequirements, scratch resource.Quantity) corev1.PodSpec {
	pod := corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever,
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](workerUser), RunAsGroup: ptr.To[int64](workerUser),
			FSGroup:        ptr.To[int64](workerUser),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: workerContainer, Image: b.WorkerImage, Args: args, Env: b.workerEnv(resources), Resources: resources,
			TerminationMessagePath:   workerapi.TerminationFile,
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
	mount(&pod, scratchVolume, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &scratch}}, "/tmp", false)
	mount(&pod, "token", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Audience: workerapi.Audience, ExpirationSeconds: ptr.To[int64](tokenLifetime), Path: path.Base(workerapi.TokenFile),
		}}},
	}}, path.Dir(workerapi.TokenFile), true)
	return pod
}

// place sets which nodes may run a pod. The worker's image is for Linux.
func place(pod *corev1.PodSpec, p config.Placement) {
	pod.NodeSelector = map[string]string{corev1.LabelOSStable: string(corev1.Linux)}
	maps.Copy(pod.NodeSelector, p.NodeSelector)
	pod.Tolerations, pod.PriorityClassName = p.Tolerations, p.PriorityClassName
	if p.NodeAffinity != nil {
		pod.Affinity = &corev1.Affinity{NodeAffinity: p.NodeAffinity}
	}
}

func (b *Backend) workerEnv(resources corev1.ResourceRequirements) []corev1.EnvVar {
	text, err := json.Marshal(b.Config.RegistrySettings())
	if err != nil {
		panic(fmt.Sprintf("marshalling registries: %v", err)) // strings, slices and booleans always marshal
	}
	env := []corev1.EnvVar{
		{Name: workerapi.EnvServer, Value: b.ServerURL},
		{Name: workerapi.EnvServerCA, Value: string(b.ServerCA())},
		{Name: workerapi.EnvRegistries, Value: string(text)},
	}
	// The worker uses no proxy for the ingest API, whatever NO_PROXY contains.
	env = append(env, b.Proxy...)
	// Go collects garbage more often near this limit, which avoids an OOM kill at the container's limit.
	if limit, found := resources.Limits[corev1.ResourceMemory]; found {
		env = append(env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: strconv.FormatInt(limit.Value()/10*9, 10)})
	}
	return env
}

// mountPullSecrets lets the kubelet pass the pull secrets to the worker, so that the operator reads none of them. A missing Secret becomes
// an empty directory. Each Secret is mounted under its own name, which the worker uses in messages.
func mountPullSecrets(pod *corev1.PodSpec, names []string) {
	for i, name := range names {
		// The API server accepts any text as a pod's pull secret. Text that is no valid Secret name must not become a path.
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			continue
		}
		source := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Optional: ptr.To(true)}}
		mount(pod, "pull-"+strconv.Itoa(i), source, path.Join(workerapi.PullSecretsDir, name), true)
	}
}

func mount(pod *corev1.PodSpec, name string, source corev1.VolumeSource, at string, readOnly bool) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: readOnly})
}
