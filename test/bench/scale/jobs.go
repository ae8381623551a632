package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/test/wait"
)

// jobPlayer plays the Job controller, the scheduler and the kubelet for the Jobs of a namespace: each Job succeeds at once.
type jobPlayer struct {
	c         *cluster
	namespace string
	cancel    context.CancelFunc
	running   sync.WaitGroup

	mu     sync.Mutex
	played map[types.UID]bool
	failed error
}

// playJobs starts a player.
func playJobs(c *cluster, namespace string) *jobPlayer {
	p := &jobPlayer{c: c, namespace: namespace, played: map[types.UID]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.running.Go(func() {
		for ctx.Err() == nil {
			p.remember(p.playNew(ctx))
			_ = sleep(ctx, wait.Often)
		}
	})
	return p
}

// stop stops the player and returns its first error.
func (p *jobPlayer) stop() error {
	p.cancel()
	p.running.Wait()
	return p.firstError()
}

// count returns the number of played Jobs.
func (p *jobPlayer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.played)
}

func (p *jobPlayer) firstError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// remember keeps the first error. A Job may be deleted while it is played.
func (p *jobPlayer) remember(err error) {
	if client.IgnoreNotFound(err) == nil || errors.Is(err, context.Canceled) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
}

// playNew plays the Jobs that are new, and deletes the pods of deleted Jobs, as the garbage collector does.
func (p *jobPlayer) playNew(ctx context.Context) error {
	var jobs batchv1.JobList
	var pods corev1.PodList
	// Pods come first: the Job of each of them exists or is deleted.
	if err := errors.Join(p.c.server.List(ctx, &pods, client.InNamespace(p.namespace)), p.c.server.List(ctx, &jobs, client.InNamespace(p.namespace))); err != nil {
		return err
	}
	exists := map[types.UID]bool{}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		exists[job.UID] = true
		if p.isNew(job.UID) {
			p.running.Go(func() { p.remember(p.play(ctx, job)) })
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if owner := metav1.GetControllerOf(pod); owner != nil && !exists[owner.UID] {
			p.remember(p.c.server.Delete(ctx, pod, client.GracePeriodSeconds(0)))
		}
	}
	return nil
}

func (p *jobPlayer) isNew(job types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.played[job] {
		return false
	}
	p.played[job] = true
	return true
}

// play creates the pod of a Job and lets both succeed.
func (p *jobPlayer) play(ctx context.Context, job *batchv1.Job) error {
	template := job.Spec.Template
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name + "-xxxxx", Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = nodeName(0)
	if err := p.c.server.Create(ctx, pod); err != nil {
		return fmt.Errorf("pod of a Job: %w", err)
	}
	now := metav1.Now()
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodSucceeded, StartTime: &now,
		InitContainerStatuses: ended(pod.Spec.InitContainers, done), ContainerStatuses: ended(pod.Spec.Containers, done),
	}
	if err := p.c.server.Status().Update(ctx, pod); err != nil {
		return fmt.Errorf("status of a Job's pod: %w", err)
	}
	job.Status = batchv1.JobStatus{
		StartTime: &now, CompletionTime: &now, Succeeded: 1, Ready: ptr.To(int32(0)), Terminating: ptr.To(int32(0)),
		UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{},
	}
	for _, condition := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: condition, Status: corev1.ConditionTrue, LastProbeTime: now, LastTransitionTime: now, Reason: "CompletionsReached",
		})
	}
	if err := p.c.server.Status().Update(ctx, job); err != nil {
		return fmt.Errorf("status of a Job: %w", err)
	}
	return nil
}

func ended(containers []corev1.Container, state corev1.ContainerState) (statuses []corev1.ContainerStatus) {
	for _, container := range containers {
		statuses = append(statuses, corev1.ContainerStatus{Name: container.Name, Image: container.Image, ImageID: container.Image, State: state})
	}
	return statuses
}

// kubelet serves the logs of Jobs' pods to the API server.
type kubelet struct {
	c      *cluster
	server *httptest.Server
}

func newKubelet(c *cluster) *kubelet {
	k := &kubelet{c: c}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLog)
	k.server = httptest.NewTLSServer(routes)
	return k
}

func (k *kubelet) port() string {
	address, err := url.Parse(k.server.URL)
	if err != nil {
		panic(err) // httptest makes valid addresses
	}
	return address.Port()
}

// scanned finds the image in the arguments of a scan's container.
var scanned = regexp.MustCompile(`registry\.example\.com/[a-z0-9./:-]+`)

// serveLog serves what Trivy prints about the image that a pod scans.
func (k *kubelet) serveLog(w http.ResponseWriter, r *http.Request) {
	var pod corev1.Pod
	if err := k.c.server.Get(r.Context(), client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}, &pod); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	for _, container := range pod.Spec.Containers {
		if image := scanned.FindString(strings.Join(append(container.Command, container.Args...), " ")); container.Name == r.PathValue("container") && image != "" {
			_ = json.NewEncoder(w).Encode(trivyReport(image)) // the API server sees a connection that ends
			return
		}
	}
	http.Error(w, "no such container scans an image", http.StatusNotFound)
}

// trivyReport is what "trivy image --format json" prints about an image (https://trivy.dev/docs/latest/configuration/reporting/#json), with
// as many findings as the fake backend has for it.
func trivyReport(image string) map[string]any {
	name, _, _ := strings.Cut(image, ":")
	severities := []string{"LOW", "MEDIUM", "HIGH", "CRITICAL"}
	vulnerabilities := make([]map[string]any, findings(image))
	for i := range vulnerabilities {
		library := fmt.Sprintf("library-%d", i%40)
		vulnerabilities[i] = map[string]any{
			"VulnerabilityID": fmt.Sprintf("CVE-2025-%05d", i), "PkgID": library + "@1.2.3-4+deb12u1", "PkgName": library,
			"PkgIdentifier": map[string]any{
				"PURL": "pkg:deb/debian/" + library + "@1.2.3-4%2Bdeb12u1?arch=amd64&distro=debian-12.5", "UID": fmt.Sprintf("%016x", i),
			},
			"InstalledVersion": "1.2.3-4+deb12u1", "FixedVersion": "1.2.3-4+deb12u2", "Status": "fixed", "SeveritySource": "nvd",
			"PrimaryURL": fmt.Sprintf("https://avd.aquasec.com/nvd/cve-2025-%05d", i), "Title": library + ": heap-based buffer overflow in the parser of headers",
			"Description": strings.Repeat("A flaw in the library lets a remote attacker do something. ", 5), "Severity": severities[i%len(severities)],
			"CVSS":          map[string]any{"nvd": map[string]any{"V3Vector": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N", "V3Score": 7.5}},
			"References":    []string{fmt.Sprintf("https://nvd.nist.gov/vuln/detail/CVE-2025-%05d", i), "https://example.com/advisory"},
			"PublishedDate": time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC), "LastModifiedDate": time.Date(2025, 2, 2, 3, 4, 5, 0, time.UTC),
		}
	}
	return map[string]any{
		"SchemaVersion": 2, "ArtifactName": image, "ArtifactType": "container_image",
		"Metadata": map[string]any{
			"OS": map[string]any{"Family": "debian", "Name": "12.5"}, "RepoTags": []string{image},
			"RepoDigests": []string{fmt.Sprintf("%s@sha256:%064x", name, len(image))},
		},
		"Results": []any{map[string]any{"Target": image + " (debian 12.5)", "Class": "os-pkgs", "Type": "debian", "Vulnerabilities": vulnerabilities}},
	}
}
