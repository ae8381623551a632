package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	restclient "github.com/scanner-operator/scanner-operator/api/rest/v1/client"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// shortLease lets another replica take over after three seconds.
var shortLease = []string{"SCANNER_LEADER_ELECT_LEASE_DURATION=3s", "SCANNER_LEADER_ELECT_RENEW_DEADLINE=2s", "SCANNER_LEADER_ELECT_RETRY_PERIOD=500ms"}

// replicas are managers with one store on a server.
type replicas struct {
	*cluster
	environment []string
	token       string
}

// replica is one of them, with the address of its REST API.
type replica struct {
	*managerProcess
	api *restclient.ClientWithResponses
	// events sends a request for the stream of live updates.
	events func(ctx context.Context) (*http.Response, error)
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	c := newCluster(t)
	postgres := server.StartPostgreSQL(t, server.Options{})
	postgres.Exec(t, `CREATE ROLE app LOGIN PASSWORD 'secret'`, `CREATE DATABASE app OWNER app`)
	settings := newServerStore(t, postgres)
	settings.writeDSN("secret")
	return &replicas{cluster: c, environment: append(settings.environment, shortLease...), token: c.administratorToken()}
}

// administratorToken returns the token of an account that may do everything.
func (c *cluster) administratorToken() string {
	c.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.system, Name: "reader"}}
	c.create(account, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: c.system + "-reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.system, Name: account.Name}},
	})
	request := &authenticationv1.TokenRequest{}
	c.Expect(c.client.SubResource("token").Create(c.t.Context(), account, request)).To(Succeed())
	return request.Status.Token
}

func (r *replicas) start(name string) *replica {
	r.t.Helper()
	address := r.freeAddress()
	p := r.startWith(append(r.environment, "SCANNER_API_BIND_ADDRESS="+address), name, r.t.TempDir())
	// Each request has a connection of its own, as those of a Service's clients.
	insecure := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true,
	}}
	api, err := restclient.NewClientWithResponses("https://"+address, restclient.WithHTTPClient(insecure), restclient.WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+r.token)
			return nil
		}))
	r.Expect(err).NotTo(HaveOccurred())
	events := func(ctx context.Context) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/api/v1/events", nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+r.token)
		return (&http.Client{Transport: insecure.Transport}).Do(request)
	}
	return &replica{p, api, events}
}

// hints counts the hints about changes that a replica sends, until the test ends.
func (r *replicas) hints(p *replica) *atomic.Int64 {
	r.t.Helper()
	var count atomic.Int64
	response, err := p.events(r.t.Context())
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(response.StatusCode).To(Equal(http.StatusOK))
	go func() {
		defer response.Body.Close()
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			if strings.Contains(lines.Text(), `"type":"changed"`) {
				count.Add(1)
			}
		}
	}()
	return &count
}

func (p *replica) leads() bool { return strings.Contains(p.log.String(), `"msg":"Leading"`) }

// expectMasterStatus checks the metric that the alert ScannerOperatorWithoutLeader uses. A replica that follows has it, too.
func (r *replicas) expectMasterStatus(p *replica, want int) {
	r.t.Helper()
	_, text := scrape(r.t, p.managerProcess, r.token)
	r.Expect(text).To(ContainSubstring("\nleader_election_master_status{name=\"scanner-operator-manager\"} %d\n", want))
}

// read reads the ImageScans of a namespace by the REST API.
func (p *replica) read(ctx context.Context, namespace string) error {
	answer, err := p.api.ListImageScansWithResponse(ctx, namespace, nil)
	if err == nil && answer.StatusCode() != http.StatusOK {
		err = fmt.Errorf("%d %s", answer.StatusCode(), answer.Body)
	}
	return err
}

// readAlways reads until stop is called, which returns how many reads there were, and the first error.
func (r *replicas) readAlways(p *replica) (stop func() (int, error)) {
	ended := make(chan error, 1)
	var stopped atomic.Bool
	reads := 0
	go func() {
		var first error
		for !stopped.Load() {
			if err := p.read(r.t.Context(), r.shop); err != nil && first == nil {
				first = fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err)
			}
			reads++
			time.Sleep(10 * time.Millisecond)
		}
		ended <- first
	}()
	return func() (int, error) { stopped.Store(true); err := <-ended; return reads, err }
}

// scanTime returns when the only image of the Scanner was scanned last.
func (r *replicas) scanTime() time.Time {
	r.t.Helper()
	var scans v1alpha1.ImageScanList
	r.Expect(r.client.List(r.t.Context(), &scans, client.InNamespace(r.shop))).To(Succeed())
	if len(scans.Items) != 1 || scans.Items[0].Status.ScanTime == nil {
		return time.Time{}
	}
	return scans.Items[0].Status.ScanTime.Time
}

// TestReplicas: every replica serves, and one leads. A request to a replica that follows reaches the leader. When the leader is killed, another one
// takes over while the reads of the other replica go on. A replica that is asked to end gives the lease back at once and answers all requests that
// still come.
func TestReplicas(t *testing.T) {
	r := newReplicas(t)
	first := r.start("first")
	r.Eventually(first.leads, waitTimeout, "100ms").Should(BeTrue())
	second := r.start("second")
	for _, p := range []*replica{first, second} {
		r.waitReady(p.managerProcess)
	}
	r.createPod("a")
	r.waitScanned(1)
	for _, p := range []*replica{first, second} {
		r.Eventually(func() error { return p.read(t.Context(), r.shop) }, waitTimeout, "100ms").Should(Succeed())
	}
	r.Expect(second.leads()).To(BeFalse())
	r.expectMasterStatus(first, 1)
	r.expectMasterStatus(second, 0)

	hints := []*atomic.Int64{r.hints(first), r.hints(second)}
	before := r.scanTime()
	time.Sleep(time.Second) // the time of a scan has whole seconds
	list, err := second.api.ListImageScansWithResponse(t.Context(), r.shop, nil)
	r.Expect(err).NotTo(HaveOccurred())
	answer, err := second.api.RescanImageWithResponse(t.Context(), r.shop, list.JSON200.Items[0].Name)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(answer.StatusCode()).To(BeNumerically("<", 300), string(answer.Body))
	seen := []int64{hints[0].Load(), hints[1].Load()}
	r.Eventually(r.scanTime, "20s", "100ms").Should(BeTemporally(">", before), "what is asked of a replica that follows")
	for i, count := range hints {
		r.Eventually(count.Load, "2s", "50ms").Should(BeNumerically(">", seen[i]), "a hint reaches the clients of each replica")
	}

	code, err := second.api.CreateSessionCodeWithResponse(t.Context())
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(code.JSON200).NotTo(BeNil(), string(code.Body))
	session, err := first.api.CreateSessionWithResponse(t.Context(), restv1.SignIn{Code: code.JSON200.Code})
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(session.StatusCode()).To(Equal(http.StatusOK), "a code of another replica: %s", session.Body)

	stop := r.readAlways(second)
	r.signal(first.managerProcess, syscall.SIGKILL)
	killed := time.Now()
	r.Eventually(second.leads, "45s", "50ms").Should(BeTrue(), "30 s of the lease, and twice the time between two attempts")
	r.createPod("b")
	r.waitScanned(2)
	t.Logf("the next leader has scanned %s after the kill", time.Since(killed).Round(time.Millisecond))
	r.expectMasterStatus(second, 1)
	reads, err := stop()
	r.Expect(err).NotTo(HaveOccurred(), "of %d reads during the takeover", reads)
	r.Expect(reads).To(BeNumerically(">", 10))

	third := r.start("third")
	r.waitReady(third.managerProcess)
	stop = r.readAlways(second)
	time.Sleep(200 * time.Millisecond)
	r.signal(second.managerProcess, syscall.SIGTERM)
	ended := time.Now()
	r.Eventually(third.leads, "20s", "50ms").Should(BeTrue())
	r.Expect(time.Since(ended)).To(BeNumerically("<", 5*time.Second), "the lease is given back at once")
	time.Sleep(time.Until(ended.Add(drainDelay - time.Second)))
	reads, err = stop()
	r.Expect(err).NotTo(HaveOccurred(), "of %d reads of a replica that ends", reads)
	r.waitEnded(second.managerProcess)
	r.Expect(second.command.ProcessState.ExitCode()).To(Equal(0), second.log.String())
}

func TestReplicaOf(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pod := func(name string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon)}, Spec: corev1.PodSpec{NodeName: "a"},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	ending := pod("manager-1", corev1.ConditionTrue)
	ending.DeletionTimestamp = ptr.To(metav1.NewTime(noon.Add(time.Hour)))
	held := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("manager-1_5a0d"), AcquireTime: ptr.To(metav1.NewMicroTime(noon))}}
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		lease *coordinationv1.Lease
		want  restv1.Replica
	}{
		"leads with a store in a file": {pod("manager-0", corev1.ConditionTrue), &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("store_5a0d"), AcquireTime: ptr.To(metav1.NewMicroTime(noon.Add(-time.Hour))), // of a pod before
		}}, restv1.Replica{Name: "manager-0", Ready: true, Leads: true, LeadsSince: noon}},
		"leads":     {pod("manager-1", corev1.ConditionTrue), held, restv1.Replica{Name: "manager-1", Ready: true, Leads: true, LeadsSince: noon}},
		"follows":   {pod("manager-10", corev1.ConditionTrue), held, restv1.Replica{Name: "manager-10", Ready: true}},
		"not ready": {pod("manager-2", corev1.ConditionFalse), held, restv1.Replica{Name: "manager-2"}},
		"ends":      {ending, &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("")}}, restv1.Replica{Name: "manager-1", Ready: true, Ending: true}},
		"no lease":  {pod("manager-1", corev1.ConditionTrue), &coordinationv1.Lease{}, restv1.Replica{Name: "manager-1", Ready: true}},
	} {
		test.want.Node, test.want.StartTime = "a", noon
		op := &operator{identity: "store_5a0d", options: options{PodName: "manager-0"}}
		if diff := cmp.Diff(test.want, replicaOf(test.pod, test.lease, op.leaderOf(test.lease))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSuspendedLeader: a leader that was suspended for longer than its lease ends when it goes on, and another one has taken over.
func TestSuspendedLeader(t *testing.T) {
	r := newReplicas(t)
	first := r.start("first")
	r.Eventually(first.leads, waitTimeout, "100ms").Should(BeTrue())
	second := r.start("second")
	r.waitReady(second.managerProcess)
	r.createPod("a")
	r.waitScanned(1)
	r.signal(first.managerProcess, syscall.SIGSTOP)
	r.Eventually(second.leads, "45s", "50ms").Should(BeTrue())
	r.createPod("b")
	r.signal(first.managerProcess, syscall.SIGCONT)
	r.waitScanned(2)
	r.waitEnded(first.managerProcess)
	r.Expect(second.readiness()).To(Equal(http.StatusOK))
}
