package grype

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var (
	startServer sync.Once
	server      *envtest.Environment
	apiServer   client.Client
	serverErr   error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if server != nil {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}
	os.Exit(code)
}

// newEngineInCluster returns an engine with a real API server and its real admission. There is no Job controller: controlsJobs replaces it.
func newEngineInCluster(t *testing.T, name string, labels map[string]string) (*engine, backend.Image) {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip(`needs an API server: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	startServer.Do(func() {
		server = &envtest.Environment{}
		config, err := server.Start()
		if err == nil {
			config.QPS = -1
			apiServer, err = client.New(config, client.Options{})
		}
		serverErr = err
	})
	if serverErr != nil {
		t.Fatalf("starting the API server: %v", serverErr)
	}
	e := newEngine(t, func(o *Options) { o.Client, o.Reader = apiServer, apiServer })
	e.cluster = apiServer
	for _, namespace := range []string{operatorNamespace, name} {
		err := apiServer.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}})
		if client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	img := private("web", "pull")
	img.Namespace, img.Scope = name, store.Scope(name)
	e.setUsed(img)
	return e, img
}

// has creates objects in the API server.
func (e *engine) has(objects ...client.Object) {
	e.t.Helper()
	for _, o := range objects {
		e.must(apiServer.Create(e.t.Context(), o))
	}
}

// controlsJobs does what the Job controller does for the Jobs of a namespace: it creates a pod, or an event that says why it cannot.
func (e *engine) controlsJobs(namespace string, change func(*corev1.Pod)) {
	e.t.Helper()
	var jobs batchv1.JobList
	e.must(apiServer.List(e.t.Context(), &jobs, client.InNamespace(namespace)))
	for i := range jobs.Items {
		job := &jobs.Items[i]
		pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.GenerateName = namespace, job.Name+"-"
		pod.Spec.ServiceAccountName = "default" // normally set by an admission plugin that envtest disables
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		change(pod)
		if err := apiServer.Create(e.t.Context(), pod); err != nil {
			e.event(job, "Error creating: "+err.Error())
		}
	}
}

// eventually waits until look returns a text that begins with want. The API server's admission notices new objects with a delay.
func (e *engine) eventually(want string, look func() string) {
	e.t.Helper()
	got := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if got = look(); strings.HasPrefix(got, want) {
			return
		}
		select { // the API server's caches have no event to wait for
		case <-e.t.Context().Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	e.t.Errorf("the image's state is %q, want %q", got, want)
}

// indexMessage returns the reason and message that Index gives for an image.
func (e *engine) indexMessage(img backend.Image) string {
	progress, err := e.Index(e.t.Context(), img)
	var failure *backend.Failure
	switch {
	case errors.As(err, &failure):
		return failure.Error()
	case err != nil:
		return "error: " + err.Error()
	}
	return progress.Reason + ": " + progress.Message
}

func quota(namespace string, hard corev1.ResourceList) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
}

func limitRange(namespace string) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"}, Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: memory("1Gi")}},
	}}
}

// denyingPolicy returns a policy that denies one kind of object in a namespace.
func denyingPolicy(namespace, group, objects string) []client.Object {
	meta := metav1.ObjectMeta{Name: namespace}
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{objects}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "only images of the house"}},
		}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}},
		}},
	}
}

// unavailableWebhook returns a webhook for one kind of object in a namespace whose server is down.
func unavailableWebhook(namespace, group, objects string) []client.Object {
	return []client.Object{&admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "policy.example.com", AdmissionReviewVersions: []string{"v1"},
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionv1.Fail),
			ClientConfig:      admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")}, // nobody listens there
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{objects}},
			}},
		}},
	}}
}

// TestRejectingNamespaces: whatever rejects a Job or its pod in a namespace is named in the API server's own words, with the setting that
// helps. The reason is shown while the Job still waits.
func TestRejectingNamespaces(t *testing.T) {
	injected := func(pod *corev1.Pod) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: "proxy", Image: "mesh.example.com/proxy", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
		})
	}
	asItIs := func(*corev1.Pod) {}
	const setting = "spec.backend.grype.job.resources of the Scanner (or grype.catalog.resources in the operator's configuration): "
	for name, tt := range map[string]struct {
		labels map[string]string
		has    func(namespace string) []client.Object
		change func(*corev1.Pod)
		want   string
		holds  string
	}{
		"quota-of-memory": {
			nil, func(ns string) []client.Object {
				return []client.Object{quota(ns, corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("256Mi")})}
			},
			asItIs, "ResourceQuota: the namespace's ResourceQuota has no room: raise it, or lower " + setting, "requested: requests.memory=512Mi",
		},
		"quota-that-wants-cpu-limits": {
			nil, func(ns string) []client.Object {
				return []client.Object{quota(ns, corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("1")})}
			},
			asItIs, "ResourceQuota: ", "must specify limits.cpu",
		},
		"quota-of-jobs": {
			nil, func(ns string) []client.Object {
				return []client.Object{quota(ns, corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")})}
			},
			asItIs, "ResourceQuota: ", "requested: count/jobs.batch=1",
		},
		"limitrange-below-the-ladder": {
			nil, func(ns string) []client.Object { return []client.Object{limitRange(ns)} },
			asItIs, "LimitRange: the namespace's LimitRange does not allow the Job's resources: change it, or " + setting, "maximum memory usage per Container is 1Gi, but limit is 2Gi",
		},
		"policy-against-jobs": {
			nil, func(ns string) []client.Object { return denyingPolicy(ns, "batch", "jobs") },
			asItIs, "PolicyDenied: a policy does not allow the Job: ", "only images of the house",
		},
		"policy-against-pods": {
			nil, func(ns string) []client.Object { return denyingPolicy(ns, "", "pods") },
			asItIs, "PolicyDenied: a policy does not allow the Job: ", "only images of the house",
		},
		"webhook-for-jobs-that-is-down": {
			nil, func(ns string) []client.Object { return unavailableWebhook(ns, "batch", "jobs") },
			asItIs, "PolicyUnavailable: an admission webhook of the cluster does not answer", `failed calling webhook "policy.example.com"`,
		},
		"webhook-for-pods-that-is-down": {
			nil, func(ns string) []client.Object { return unavailableWebhook(ns, "", "pods") },
			asItIs, "PolicyUnavailable: an admission webhook of the cluster does not answer", `failed calling webhook "policy.example.com"`,
		},
		"scanner-operator-manager-jobs": { // the operator's own policy, from another installation than the manager
			nil, func(ns string) []client.Object { return denyingPolicy(ns, "batch", "jobs") },
			asItIs, "JobRejected: the operator's own policy does not know the Job", "docs/understand/security-policies.md): only images of the house",
		},
		"priority-class-that-is-missing": {
			nil, func(string) []client.Object { return nil },
			func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "nowhere" },
			"NoPod: the PriorityClass of the Job does not exist: create it, or change priorityClassName", "no PriorityClass with name nowhere was found",
		},
		"pod-security-and-injection": {
			map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}, func(string) []client.Object { return nil },
			injected, "PodSecurity: the namespace's pod security level does not allow the worker's pod", `violates PodSecurity "restricted:latest": privileged`,
		},
		"pod-security": { // the worker's pod satisfies the restricted level, so nothing rejects it
			map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}, func(string) []client.Object { return nil },
			asItIs, "Cataloging: ", "catalogs the image",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, img := newEngineInCluster(t, name, tt.labels)
			for _, o := range tt.has(name) {
				e.has(o)
				if q, isQuota := o.(*corev1.ResourceQuota); isQuota { // as the quota controller does
					q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{}
					for resourceName := range q.Spec.Hard {
						q.Status.Used[resourceName] = resource.MustParse("0")
					}
					e.must(apiServer.Status().Update(t.Context(), q))
				}
			}
			e.eventually(tt.want, func() string {
				e.advance(time.Minute) // the remembered failure has expired
				e.index(img)
				e.controlsJobs(name, tt.change)
				e.advance(firstCheckAge)
				e.runJobsOnce()
				got := e.indexMessage(img)
				if strings.HasPrefix(got, tt.want) && !strings.Contains(got, tt.holds) {
					t.Errorf("the image's state is %q, without the API server's words %q", got, tt.holds)
				}
				if len(got) > 2*maxQuoted {
					t.Errorf("the text has %d bytes", len(got))
				}
				return got
			})
		})
	}
}

// TestOwnPolicyIsReadable: a denial by the operator's own policy is reported as a fault of the installation. However long the names before
// it are, the quoted text keeps the part that helps.
func TestOwnPolicyIsReadable(t *testing.T) {
	name := "scan-catalog-" + strings.Repeat("a", 100)
	why := "spec.template.spec.containers[0].image: is not the worker's image, " + strings.Repeat("registry.example.com/", 8) + " (variable workerImage)"
	text := `jobs.batch "` + name + `" is forbidden: ValidatingAdmissionPolicy 'scanner-operator-manager-jobs' with binding ` +
		`'scanner-operator-manager-jobs' denied request: ` + why
	failure := newEngine(t).rejectionFailure(store.Job{Namespace: "shop"}, backend.ReasonJobRejected, "no Job", text)
	if failure.Reason != backend.ReasonJobRejected || !strings.HasSuffix(failure.Message, ": "+why) {
		t.Errorf("%s: %q, want JobRejected and the policy's words to their end: %q", failure.Reason, failure.Message, why)
	}
	for _, word := range []string{"exception", name} {
		if strings.Contains(failure.Message, word) {
			t.Errorf("message %q speaks of %s", failure.Message, word)
		}
	}
}

// TestNamespaceBeingDeleted: a Job rejected by a namespace that is being deleted is no failure, and takes no slot.
func TestNamespaceBeingDeleted(t *testing.T) {
	e, img := newEngineInCluster(t, "namespace-being-deleted", nil)
	e.must(apiServer.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: img.Namespace}}))
	e.eventually("Pending: the namespace is being deleted", func() string { return e.indexMessage(img) })
	if records := e.records(); len(records) != 0 {
		t.Errorf("records %q, want none", records)
	}
	if e.queue.length() != 0 {
		t.Error("it is queued")
	}
}

// TestPolicyErrors: error texts of webhooks and policies that a test cannot get from a real API server.
func TestPolicyErrors(t *testing.T) {
	for text, want := range map[string]string{
		`admission webhook "validate.kyverno.svc-fail" denied the request: no`:  backend.ReasonPolicyDenied,
		`admission webhook "validation.gatekeeper.sh" denied the request: no`:   backend.ReasonPolicyDenied,
		`Internal error occurred: failed calling webhook "a.b": failed to call`: backend.ReasonPolicyUnavailable,
		"Internal error occurred: etcd":                                         backend.ReasonNoPod,
		strings.Repeat("long ", 1000):                                           backend.ReasonNoPod,
		"\x00\xff\n\n":                                                          backend.ReasonNoPod,
	} {
		failure := newEngine(t).rejectionFailure(store.Job{Namespace: "shop"}, backend.ReasonNoPod, "no pod", text)
		if failure.Reason != want || len(failure.Message) > 2*maxQuoted || strings.Contains(failure.Message, "\n") {
			t.Errorf("%.40q gives %s with %d bytes: %.40q, want %s", text, failure.Reason, len(failure.Message), failure.Message, want)
		}
	}
}
