package policy

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Every Job that the Grype backend creates is allowed, including the settings that a Scanner can choose.
func TestManagerMakesItsJobs(t *testing.T) {
	c := sharedCluster(t)
	names, err := filepath.Glob(filepath.Join(goldens, "*.yaml"))
	if err != nil || len(names) < 3 {
		t.Fatalf("golden files of Jobs: %q, %v", names, err)
	}
	for _, name := range names {
		name = filepath.Base(name)
		t.Run(name, func(t *testing.T) {
			if err := c.thief.Create(t.Context(), golden(t, name), client.DryRunAll); err != nil {
				t.Errorf("the manager may not make its own Job: %v", err)
			}
		})
	}
	for name, change := range map[string]func(*batchv1.Job){
		"as a Scanner shapes it": func(job *batchv1.Job) {
			pod := &job.Spec.Template.Spec
			pod.NodeSelector = map[string]string{"pool": "scans"}
			pod.Tolerations = []corev1.Toleration{{Key: "scans", Operator: corev1.TolerationOpExists}}
			pod.PriorityClassName = "low"
			pod.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("7Gi")}
		},
		"behind a proxy": func(job *batchv1.Job) {
			env := &job.Spec.Template.Spec.Containers[0].Env
			for _, proxy := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
				*env = append(*env, corev1.EnvVar{Name: proxy, Value: "http://proxy.example.com:3128"})
			}
		},
		"with Secrets mounted under their names": func(job *batchv1.Job) {
			mount(job, "pull-2", workerapi.PullSecretsDir+"/team.pull", true, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "team.pull"}})
		},
		"with another lifetime": func(job *batchv1.Job) {
			job.Spec.TTLSecondsAfterFinished, job.Spec.ActiveDeadlineSeconds = ptr.To[int32](0), ptr.To[int64](60)
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := golden(t, "catalog-job-private.yaml")
			change(job)
			if err := c.thief.Create(t.Context(), job, client.DryRunAll); err != nil {
				t.Errorf("the manager may not make its own Job: %v", err)
			}
		})
	}
	match := golden(t, "match-job.yaml")
	database(match).VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "any"}}
	if err := c.thief.Create(t.Context(), match, client.DryRunAll); err != nil {
		t.Errorf("a match worker may not have a claim: %v", err)
	}
	match = golden(t, "match-job.yaml") // the API server has completed the other one
	match.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpExists}}}},
	}}}
	if err := c.thief.Create(t.Context(), match, client.DryRunAll); err != nil {
		t.Errorf("a worker in the operator's namespace may not have an affinity to nodes: %v", err)
	}
}

func mount(job *batchv1.Job, name, at string, readOnly bool, source corev1.VolumeSource) {
	pod := &job.Spec.Template.Spec
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: readOnly})
}

func database(job *batchv1.Job) *corev1.Volume {
	volumes := job.Spec.Template.Spec.Volumes
	return &volumes[slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "database" })]
}

// secret returns a volume of a Secret with sensitive content.
func secret() corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password"}}
}

// deviation is a Job that the manager never creates.
type deviation struct {
	golden string
	change func(*batchv1.Job)
	// want is the beginning of a message of the policy.
	want string
}

// inPod and inWorker are deviations of a private catalog Job, which has the most permissions.
func inPod(want string, change func(*corev1.PodSpec)) deviation {
	return deviation{"catalog-job-private.yaml", func(job *batchv1.Job) { change(&job.Spec.Template.Spec) }, want}
}

func inWorker(want string, change func(*corev1.Container)) deviation {
	return inPod(want, func(pod *corev1.PodSpec) { change(&pod.Containers[0]) })
}

func inJob(golden, want string, change func(*batchv1.Job)) deviation {
	return deviation{golden, change, want}
}

const (
	public, private, match, identity = "catalog-job.yaml", "catalog-job-private.yaml", "match-job.yaml", "catalog-job-identity.yaml"

	podSpec   = "spec.template.spec: "
	container = "spec.template.spec.containers[0]: "
	volumes   = "spec.template.spec.volumes: "
	mounts    = "spec.template.spec.containers[0].volumeMounts: "
	env       = "spec.template.spec.containers[0].env: "
)

// wrongPrograms are Jobs that run something other than the worker.
var wrongPrograms = map[string]deviation{
	"another image":          inWorker("spec.template.spec.containers[0].image: is not the worker's image", func(c *corev1.Container) { c.Image = "evil" }),
	"another tag":            inWorker("spec.template.spec.containers[0].image: is not the worker's image", func(c *corev1.Container) { c.Image = workerImage + "2" }),
	"a command":              inWorker(container+"a worker has no command", func(c *corev1.Container) { c.Command = []string{"sh"} }),
	"another first argument": inWorker(container+"a worker has no command", func(c *corev1.Container) { c.Args[0] = "version" }),
	"no argument":            inWorker(container+"a worker has no command", func(c *corev1.Container) { c.Args = nil }),
	"another name":           inJob(private, "metadata.name: a worker's Job is called", func(job *batchv1.Job) { job.Name = "backup" }),
	"a name that lies":       inJob(public, "metadata.name: does not fit the worker's command", func(job *batchv1.Job) { job.Name = "scan-match-1" }),
	"no label":               inJob(private, "metadata.labels: a worker's Job has", func(job *batchv1.Job) { job.Labels = map[string]string{"app": "web"} }),
	"two containers": inPod(podSpec+"a worker has one container", func(pod *corev1.PodSpec) {
		pod.Containers = append(pod.Containers, corev1.Container{Name: "evil", Image: workerImage})
	}),
	"a container's name": inWorker(podSpec+"a worker has one container", func(c *corev1.Container) { c.Name = "evil" }),
	"an init container": inPod(podSpec+"a worker has one container", func(pod *corev1.PodSpec) {
		pod.InitContainers = []corev1.Container{{Name: "evil", Image: "evil"}}
	}),
	"a probe": inWorker(container+"a worker has no lifecycle hooks", func(c *corev1.Container) {
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "198.51.100.1", Port: intstr.FromInt32(80)}}}
	}),
	"a hook": inWorker(container+"a worker has no lifecycle hooks", func(c *corev1.Container) {
		c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/scanner-grype"}}}}
	}),
	"a host port": inWorker(container+"a worker has no lifecycle hooks", func(c *corev1.Container) {
		c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}),
	"many at once": inJob(private, "spec: a worker runs once", func(job *batchv1.Job) { job.Spec.Parallelism = ptr.To[int32](100) }),
	"many in all":  inJob(private, "spec: a worker runs once", func(job *batchv1.Job) { job.Spec.Completions = ptr.To[int32](100) }),
	"again":        inJob(private, "spec: a worker runs once", func(job *batchv1.Job) { job.Spec.BackoffLimit = nil }),
	"on and on":    inPod("spec: a worker runs once", func(pod *corev1.PodSpec) { pod.RestartPolicy = corev1.RestartPolicyOnFailure }),
	"a match worker elsewhere": inJob(match, "metadata.namespace: match workers run in the operator's namespace only", func(job *batchv1.Job) {
		job.Namespace = shop
	}),
	"a Service's label": inJob(private, "spec.template.metadata.labels: ", func(job *batchv1.Job) { job.Spec.Template.Labels["app"] = "web" }),
	"the manager's label": inJob(public, "spec.template.metadata.labels: ", func(job *batchv1.Job) {
		job.Spec.Template.Labels["app.kubernetes.io/component"] = "manager"
	}),
	"a cloud's label without the ServiceAccount": inJob(private, "spec.template.metadata.labels: azure.workload.identity/use is for", func(job *batchv1.Job) {
		job.Spec.Template.Labels["azure.workload.identity/use"] = "true"
	}),
	"an injector's label":      inJob(private, "spec.template.metadata.labels: ", func(job *batchv1.Job) { job.Spec.Template.Labels["sidecar.istio.io/inject"] = "true" }),
	"an injector's annotation": inJob(private, "spec.template.metadata.annotations: ", func(job *batchv1.Job) { job.Spec.Template.Annotations["linkerd.io/inject"] = "enabled" }),
	"an injector's settings": inJob(private, "spec.template.metadata.annotations: ", func(job *batchv1.Job) {
		job.Spec.Template.Annotations["sidecar.istio.io/proxyImage"] = "evil"
	}),
}

// wrongIdentities are Jobs with identities, privileges and shared namespaces that a worker does not have.
var wrongIdentities = map[string]deviation{
	"a ServiceAccount": inPod(podSpec+"a worker has no ServiceAccount", func(pod *corev1.PodSpec) { pod.ServiceAccountName = "powerful" }),
	"a match worker with an identity": inJob(match, podSpec+"a worker has no ServiceAccount", func(job *batchv1.Job) {
		job.Spec.Template.Spec.ServiceAccountName = workerapi.CatalogServiceAccount
	}),
	"an identity with a token": inJob(identity, podSpec+"a worker has no ServiceAccount", func(job *batchv1.Job) {
		job.Spec.Template.Spec.AutomountServiceAccountToken = nil
	}),
	"a token":              inPod(podSpec+"a worker has no ServiceAccount", func(pod *corev1.PodSpec) { pod.AutomountServiceAccountToken = nil }),
	"the node's network":   inPod(podSpec+"a worker shares nothing", func(pod *corev1.PodSpec) { pod.HostNetwork = true }),
	"the node's processes": inPod(podSpec+"a worker shares nothing", func(pod *corev1.PodSpec) { pod.HostPID = true }),
	"the node's IPC":       inPod(podSpec+"a worker shares nothing", func(pod *corev1.PodSpec) { pod.HostIPC = true }),
	"a certain node":       inPod(podSpec+"a worker shares nothing", func(pod *corev1.PodSpec) { pod.NodeName = "control-plane" }),
	"a runtime":            inPod(podSpec+"a worker shares nothing", func(pod *corev1.PodSpec) { pod.RuntimeClassName = ptr.To("any") }),
	"names of its own": inPod(podSpec+"a worker resolves names", func(pod *corev1.PodSpec) {
		pod.HostAliases = []corev1.HostAlias{{IP: "198.51.100.1", Hostnames: []string{"registry.example.com"}}}
	}),
	"a name server":          inPod(podSpec+"a worker resolves names", func(pod *corev1.PodSpec) { pod.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"198.51.100.1"}} }),
	"the node's name server": inPod(podSpec+"a worker resolves names", func(pod *corev1.PodSpec) { pod.DNSPolicy = corev1.DNSDefault }),
	"no security context":    inPod("spec.template.spec.securityContext: ", func(pod *corev1.PodSpec) { pod.SecurityContext = nil }),
	"as root":                inPod("spec.template.spec.securityContext: ", func(pod *corev1.PodSpec) { pod.SecurityContext.RunAsNonRoot = nil }),
	"as user 0":              inPod("spec.template.spec.securityContext: ", func(pod *corev1.PodSpec) { pod.SecurityContext.RunAsUser = ptr.To[int64](0) }),
	"unconfined":             inPod("spec.template.spec.securityContext: ", func(pod *corev1.PodSpec) { pod.SecurityContext.SeccompProfile = nil }),
	"with sysctls": inPod("spec.template.spec.securityContext: ", func(pod *corev1.PodSpec) {
		pod.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}
	}),
	"privileged":           inContext(func(s *corev1.SecurityContext) { s.AllowPrivilegeEscalation, s.Privileged = nil, ptr.To(true) }),
	"gaining privileges":   inContext(func(s *corev1.SecurityContext) { s.AllowPrivilegeEscalation = nil }),
	"with capabilities":    inContext(func(s *corev1.SecurityContext) { s.Capabilities.Drop = nil }),
	"with a capability":    inContext(func(s *corev1.SecurityContext) { s.Capabilities.Add = []corev1.Capability{"NET_ADMIN"} }),
	"writing to its image": inContext(func(s *corev1.SecurityContext) { s.ReadOnlyRootFilesystem = nil }),
	"as root after all":    inContext(func(s *corev1.SecurityContext) { s.RunAsNonRoot = ptr.To(false) }),
	"as user 0 after all":  inContext(func(s *corev1.SecurityContext) { s.RunAsUser = ptr.To[int64](0) }),
	"unconfined after all": inContext(func(s *corev1.SecurityContext) {
		s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	}),
	"no container's context": inWorker("spec.template.spec.containers[0].securityContext: ", func(c *corev1.Container) { c.SecurityContext = nil }),
	"environment of a Secret": inWorker(env+"a worker's environment variables have literal values only", func(c *corev1.Container) {
		c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "password"}}}}
	}),
	"variable of a Secret": inWorker(env+"a worker's environment variables have literal values only", func(c *corev1.Container) {
		key := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "password"}, Key: "password"}
		c.Env = append(c.Env, corev1.EnvVar{Name: "SCANNER_SERVER", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: key}})
	}),
	"another variable": inWorker(env+"only a worker's variables are allowed", func(c *corev1.Container) {
		c.Env = append(c.Env, corev1.EnvVar{Name: "SSL_CERT_FILE", Value: "/tmp/evil"})
	}),
}

func inContext(change func(*corev1.SecurityContext)) deviation {
	return inWorker("spec.template.spec.containers[0].securityContext: ", func(c *corev1.Container) { change(c.SecurityContext) })
}

// wrongVolumes are Jobs with volumes that a worker does not have.
var wrongVolumes = map[string]deviation{
	"the node's files": inPod(volumes+"a worker has only", func(pod *corev1.PodSpec) {
		pod.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
	}),
	"a ConfigMap": inPod(volumes+"a worker has only", func(pod *corev1.PodSpec) {
		pod.Volumes[0].VolumeSource = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "any"}}}
	}),
	"a token for others": inPod(volumes+"a worker's token is for the audience", func(pod *corev1.PodSpec) {
		pod.Volumes[1].Projected.Sources[0].ServiceAccountToken.Audience = "scanner-operator-notifier"
	}),
	"a token for the API server": inPod(volumes+"a worker's token is for the audience", func(pod *corev1.PodSpec) {
		pod.Volumes[1].Projected.Sources[0].ServiceAccountToken.Audience = ""
	}),
	"a projected Secret": inPod(volumes+"a worker's token is for the audience", func(pod *corev1.PodSpec) {
		pod.Volumes[1].Projected.Sources = append(pod.Volumes[1].Projected.Sources, corev1.VolumeProjection{
			Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "password"}},
		})
	}),
	"a Secret": inJob(private, volumes+"a worker's Secrets are whole volumes called pull-", func(job *batchv1.Job) {
		mount(job, "password", "/password", true, secret())
	}),
	"a part of a Secret": inPod(volumes+"a worker's Secrets are whole volumes called pull-", func(pod *corev1.PodSpec) {
		pod.Volumes[2].Secret.Items = []corev1.KeyToPath{{Key: "password", Path: ".dockerconfigjson"}}
	}),
	"a Secret in the operator's namespace": inJob(public, volumes+"only catalog workers outside the operator's namespace mount Secrets", func(job *batchv1.Job) {
		mount(job, "pull-0", workerapi.PullSecretsDir+"/0", true, secret())
	}),
	"a Secret for a match worker": inJob(match, volumes+"only catalog workers outside the operator's namespace mount Secrets", func(job *batchv1.Job) {
		mount(job, "pull-0", workerapi.PullSecretsDir+"/0", true, secret())
	}),
	"a claim of a tenant": inPod(volumes+"only match workers mount a PersistentVolumeClaim", func(pod *corev1.PodSpec) {
		pod.Volumes[0].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	}),
	"the store": inJob(match, volumes+"only match workers mount a PersistentVolumeClaim", func(job *batchv1.Job) {
		database(job).VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "scanner-operator-store"}}
	}),
	"a pull secret elsewhere": inWorker(mounts, func(c *corev1.Container) { c.VolumeMounts[2].MountPath = "/tmp/secret" }),
	"a writable pull secret":  inWorker(mounts, func(c *corev1.Container) { c.VolumeMounts[2].ReadOnly = false }),
	"a file of a pull secret": inWorker(mounts, func(c *corev1.Container) {
		c.VolumeMounts[2].SubPath, c.VolumeMounts[2].MountPath = "password", c.VolumeMounts[2].MountPath+"/.dockerconfigjson"
	}),
	"credentials of its own": inWorker(mounts, func(c *corev1.Container) { c.VolumeMounts[0].MountPath = workerapi.PullSecretsDir + "/own" }),
	"a way out": inWorker(mounts, func(c *corev1.Container) {
		c.VolumeMounts[2].MountPath = workerapi.PullSecretsDir + "/../scanner-operator-pull"
	}),
	"the database elsewhere": inJob(match, mounts, func(job *batchv1.Job) {
		mounts := job.Spec.Template.Spec.Containers[0].VolumeMounts
		mounts[slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == "database" })].MountPath = "/database"
	}),
}

// A stolen token cannot create Jobs that the manager never creates. Each rule of the policy is needed by at least one case.
func TestStolenTokenCannotMakeOtherJobs(t *testing.T) {
	c := sharedCluster(t)
	untested := c.messages(t, "scanner-operator-manager-jobs")
	all := maps.Clone(wrongPrograms)
	maps.Copy(all, wrongIdentities)
	maps.Copy(all, wrongVolumes)
	maps.Copy(all, wrongLifetimes)
	if len(all) != len(wrongPrograms)+len(wrongIdentities)+len(wrongVolumes)+len(wrongLifetimes) {
		t.Fatal("two deviations have the same name")
	}
	for name, d := range all {
		t.Run(name, func(t *testing.T) {
			job := golden(t, d.golden)
			d.change(job)
			err := c.thief.Create(t.Context(), job, client.DryRunAll)
			denied(t, err, "jobs", d.want)
			untested = slices.DeleteFunc(untested, func(message string) bool {
				return err != nil && strings.Contains(err.Error(), message)
			})
		})
	}
	if len(untested) > 0 {
		t.Errorf("no test shows what these rules are for: %q", untested)
	}
}

// messages returns the messages of a policy's rules.
func (c *cluster) messages(t *testing.T, name string) []string {
	t.Helper()
	var policy admissionv1.ValidatingAdmissionPolicy
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: name}, &policy); err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, rule := range policy.Spec.Validations {
		messages = append(messages, rule.Message)
	}
	return messages
}

// The policy allows the image that the manager is configured to use.
func TestRefusedImageNamesTheOneToUse(t *testing.T) {
	c := sharedCluster(t)
	job := golden(t, public)
	job.Spec.Template.Spec.Containers[0].Image = "evil"
	denied(t, c.thief.Create(t.Context(), job, client.DryRunAll), "jobs", "the worker's image, "+workerImage+" (variable workerImage")
}
