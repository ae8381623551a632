package policy

import (
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	ofJob    = "metadata: a worker's Job and its pod have no finalizers"
	selects  = "spec.manualSelector: a worker's Job selects only its own pods"
	settings = "spec: a worker's Job is not suspended"
	lifetime = "spec: a worker's Job has ttlSecondsAfterFinished"
	nodes    = "spec.template.spec: a worker has no affinity but to nodes"
)

// adopting sets a Job's own selector, and its labels on the Job's pods.
func adopting(job *batchv1.Job, labels map[string]string) {
	job.Spec.ManualSelector, job.Spec.Selector = ptr.To(true), &metav1.LabelSelector{MatchLabels: labels}
	maps.Copy(job.Spec.Template.Labels, labels)
}

// wrongLifetimes are Jobs that select other pods, or whose lifetime differs from that of a worker's Job.
var wrongLifetimes = map[string]deviation{
	"adopting pods of the operator": inJob(private, selects, func(job *batchv1.Job) {
		adopting(job, map[string]string{"app.kubernetes.io/name": "scanner-operator"})
	}),
	"adopting pods of a tenant": inJob(private, selects, func(job *batchv1.Job) {
		adopting(job, map[string]string{"app": "web"})
	}),
	"adopting pods of another Job": inJob(private, selects, func(job *batchv1.Job) {
		adopting(job, map[string]string{"job-name": "backup"})
	}),
	"adopting pods of another Job by its UID": inJob(private, selects, func(job *batchv1.Job) {
		adopting(job, map[string]string{"batch.kubernetes.io/controller-uid": "6f3f6a0e-7b39-4a3b-8a34-0a3f1c1d7a11"})
	}),
	"a label of the Job controller's": inJob(private, "spec.template.metadata.labels: ", func(job *batchv1.Job) {
		job.Spec.Template.Labels["batch.kubernetes.io/job-completion-index"] = "0"
	}),
	"staying for ever":            inJob(private, ofJob, func(job *batchv1.Job) { job.Finalizers = []string{"example.com/keep"} }),
	"with a pod staying for ever": inJob(private, ofJob, func(job *batchv1.Job) { job.Spec.Template.Finalizers = []string{"example.com/keep"} }),
	"owned by another object":     inJob(private, ofJob, func(job *batchv1.Job) { job.OwnerReferences = somePod("any").OwnerReferences }),
	"with a pod of another owner": inJob(private, ofJob, func(job *batchv1.Job) { job.Spec.Template.OwnerReferences = somePod("any").OwnerReferences }),
	"without a deadline":          inJob(private, lifetime, func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = nil }),
	"never removed":               inJob(match, lifetime, func(job *batchv1.Job) { job.Spec.TTLSecondsAfterFinished = nil }),
	"with a pod that goes slowly": inPod(lifetime, func(pod *corev1.PodSpec) { pod.TerminationGracePeriodSeconds = ptr.To[int64](86400) }),
	"suspended":                   inJob(private, settings, func(job *batchv1.Job) { job.Spec.Suspend = ptr.To(true) }),
	"indexed": inJob(private, settings, func(job *batchv1.Job) {
		job.Spec.CompletionMode, job.Spec.Completions, job.Spec.Parallelism = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](1), ptr.To[int32](1)
	}),
	"managed by another controller": inJob(private, settings, func(job *batchv1.Job) { job.Spec.ManagedBy = ptr.To("example.com/any") }),
	"failing as it likes": inJob(private, settings, func(job *batchv1.Job) {
		job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		}}}
	}),
	"trying again": inJob(private, "spec: a worker runs once", func(job *batchv1.Job) { job.Spec.BackoffLimit = ptr.To[int32](100) }),
	"keeping pods off its node": inPod(nodes, func(pod *corev1.PodSpec) {
		pod.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{}},
		}}}
	}),
	"choosing its node": inPod(nodes, func(pod *corev1.PodSpec) {
		pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpExists}}}},
		}}}
	}),
	"spreading": inPod(nodes, func(pod *corev1.PodSpec) {
		pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}},
		}
	}),
	"another scheduler": inPod(nodes, func(pod *corev1.PodSpec) { pod.SchedulerName = "any" }),
	"a pull secret for its own image": inPod("spec.template.spec.imagePullSecrets: ", func(pod *corev1.PodSpec) {
		pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "password"}}
	}),
}
