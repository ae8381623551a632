package notifier_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/notifier"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/client"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
	"github.com/scanner-operator/scanner-operator/pkg/election"
)

// shortTimes make a takeover short enough for a test.
var shortTimes = election.Times{LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 250 * time.Millisecond}

const leaseTestTimeout = 30 * time.Second

// environment is the API server that all tests of Leases share. Each test has a namespace of its own.
var environment envtest.Environment

var startEnvironment = sync.OnceValues(environment.Start)

func TestMain(m *testing.M) {
	code := m.Run()
	if environment.Config != nil {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}
	os.Exit(code)
}

// apiServer is a namespace of a real API server.
type apiServer struct {
	config    *rest.Config
	namespace string
}

// newAPIServer returns a new namespace of the API server.
func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip(`needs an API server: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	config, err := startEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // no client-side rate limit
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "lease-"}}
	namespace, err = must(coreclient.NewForConfig(config)).Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &apiServer{config: config, namespace: namespace.Name}
}

// leases is the client of somebody else.
func (a *apiServer) leases() coordinationclient.LeaseInterface {
	return must(coordinationclient.NewForConfig(a.config)).Leases(a.namespace)
}

// lease returns the notifiers' Lease.
func (a *apiServer) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	return must(a.leases().Get(t.Context(), notifier.LeaseName, metav1.GetOptions{}))
}

// replica is one of several notifiers, with its own memory and its own connection to the API server.
type replica struct {
	*notifier.Lease
	server *httptest.Server
	posts  *countingReceiver
	// cut makes all requests to the API server fail.
	cut atomic.Bool
	// clock is that by which the notifier knows how long it may send.
	clock *shiftedClock
	stop  func()
}

// shiftedClock is the real clock, plus a time for which the process was paused.
type shiftedClock struct {
	clock.RealClock
	by atomic.Int64
}

func (s *shiftedClock) Now() time.Time { return time.Now().Add(time.Duration(s.by.Load())) }

func (s *shiftedClock) pause(d time.Duration) { s.by.Add(int64(d)) }

// startReplica starts a notifier that competes for the Lease, like the one of a pod.
func startReplica(t *testing.T, w *world, api *apiServer, pod string) *replica {
	t.Helper()
	r := &replica{posts: newCountingReceiver(), clock: &shiftedClock{}}
	close(r.posts.open)
	config := rest.CopyConfig(api.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if r.cut.Load() {
				return nil, errors.New("the network is cut")
			}
			return next.RoundTrip(request)
		})
	})
	mux := http.NewServeMux()
	r.server = httptest.NewTLSServer(mux)
	t.Cleanup(r.server.Close)
	r.Lease = notifier.NewLease(notifier.LeaseConfig{
		Client: must(coordinationclient.NewForConfig(config)), Namespace: api.namespace,
		Pod: pod, Address: strings.TrimPrefix(r.server.URL, "https://"), Times: shortTimes, Clock: r.clock, Log: slog.New(slog.DiscardHandler),
	})
	mux.Handle("/", notifier.New(notifier.Config{
		Callers: allowAll{}, Addresses: notifier.NewSecretAddresses(w.core, "scanner-operator-system", "scanner-operator-notifier", must(egress.NewPolicy([]string{w.slackHost}))),
		Receivers: map[string]notifier.Receiver{announce.ReceiverTypeSlack: r.posts}, Budget: notifier.NewBudget(clock.RealClock{}, notifier.Sleep, func() float64 { return 0 }),
		Lease: r.Lease, Metrics: notifier.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
	}).Handler())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(r.stop)
	return r
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// allowAll is an Authenticator for tests of something else.
type allowAll struct{}

func (allowAll) Allow(context.Context, string) error { return nil }

// leader returns the client of a manager with the given epoch whose Service connects to this replica.
func (r *replica) leader(t *testing.T, epoch int64) *client.Client {
	t.Helper()
	return client.New(client.Config{
		URL: r.server.URL, TokenFile: tokenFile(t), CA: func() (*x509.CertPool, error) { return poolOf(r.server), nil },
		Epoch: func() int64 { return epoch },
	})
}

func tokenFile(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/token"
	if err := os.WriteFile(path, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOneOfTwoSends: whichever notifier the Service connects to, the holder of the Lease sends. When the holder ends, the other one takes over,
// refuses the same epochs, and sends.
func TestOneOfTwoSends(t *testing.T) {
	w, api, g := newWorld(t, nil), newAPIServer(t), gomega.NewWithT(t)
	first := startReplica(t, w, api, "first")
	g.Eventually(first.Sends, leaseTestTimeout, "50ms").Should(gomega.BeTrue())
	second := startReplica(t, w, api, "second")
	g.Eventually(func() string { why, _ := second.Standby(); return why }, leaseTestTimeout, "50ms").Should(gomega.Equal("stands by: first sends"))

	// The standby names the holder, and the client repeats the request there.
	for i, r := range []*replica{first, second} {
		if got := r.leader(t, 4).Send(t.Context(), delivery(fmt.Sprint(i))); got.Result != announce.Delivered {
			t.Errorf("outcome by way of replica %d: %+v, want Delivered", i, got)
		}
	}
	if err := second.leader(t, 5).BeginEpoch(t.Context(), 5); err != nil {
		t.Error(err)
	}
	if a, b := first.posts.posts.Load(), second.posts.posts.Load(); a != 2 || b != 0 {
		t.Errorf("the holder sent %d messages and the standby %d, want 2 and 0", a, b)
	}

	first.stop()
	if first.Sends() {
		t.Error("the first one may still send after it released the Lease")
	}
	first.server.Close()
	g.Eventually(second.Sends, leaseTestTimeout, "50ms").Should(gomega.BeTrue())
	if got := second.leader(t, 4).Send(t.Context(), delivery("a")); got.Reason != announce.ReasonDeposed {
		t.Errorf("outcome for epoch 4 after the takeover: %+v, want Deposed: epoch 5 was announced to the notifier before", got)
	}
	if got := second.leader(t, 5).Send(t.Context(), delivery("a")); got.Result != announce.Delivered {
		t.Errorf("outcome for epoch 5 after the takeover: %+v, want Delivered", got)
	}
}

// TestEpochSurvivesRestart: a notifier that is started again, alone, refuses the epochs that it refused before.
func TestEpochSurvivesRestart(t *testing.T) {
	w, api, g := newWorld(t, nil), newAPIServer(t), gomega.NewWithT(t)
	before := startReplica(t, w, api, "pod")
	g.Eventually(before.Sends, leaseTestTimeout, "50ms").Should(gomega.BeTrue())
	if err := before.leader(t, 8).BeginEpoch(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	// The renewals in between must not lose the annotation.
	renewed := api.lease(t).Spec.RenewTime
	g.Eventually(func() bool { return api.lease(t).Spec.RenewTime.After(renewed.Time) }, leaseTestTimeout, "50ms").Should(gomega.BeTrue())
	before.stop()
	after := startReplica(t, w, api, "pod-2")
	g.Eventually(after.Sends, leaseTestTimeout, "50ms").Should(gomega.BeTrue())
	for epoch, want := range map[int64]string{0: announce.ReasonDeposed, 7: announce.ReasonDeposed, 8: ""} {
		if got := after.leader(t, epoch).Send(t.Context(), delivery("1")); got.Reason != want {
			t.Errorf("outcome for epoch %d after the restart: %+v, want reason %q", epoch, got, want)
		}
	}
}

// TestHolderWithoutNetwork: a holder that cannot renew stops before another one sends, and never both may send.
func TestHolderWithoutNetwork(t *testing.T) {
	w, api, g := newWorld(t, nil), newAPIServer(t), gomega.NewWithT(t)
	first := startReplica(t, w, api, "first")
	g.Eventually(first.Sends, leaseTestTimeout, "50ms").Should(gomega.BeTrue())
	second := startReplica(t, w, api, "second")
	first.cut.Store(true)
	g.Eventually(func() bool {
		a, b := second.Sends(), first.Sends() // in this order: the first one never begins to send again
		if a && b {
			t.Error("both may send")
		}
		return a
	}, leaseTestTimeout, "5ms").Should(gomega.BeTrue())

	// The Service still connects to the first one. It sends nothing, and cannot know who does.
	if got := first.leader(t, 1).Send(t.Context(), delivery("1")); got.Result != announce.Temporary || got.Reason != announce.ReasonNotifierUnavail {
		t.Errorf("outcome by way of the first one: %+v, want Temporary and NotifierUnavailable", got)
	}
	if n := first.posts.posts.Load(); n != 0 {
		t.Errorf("the first one sent %d messages, want none", n)
	}
	// It stands by when it is back.
	first.cut.Store(false)
	g.Eventually(func() string { why, _ := first.Standby(); return why }, leaseTestTimeout, "50ms").Should(gomega.Equal("stands by: second sends"))
	if got := first.leader(t, 1).Send(t.Context(), delivery("1")); got.Result != announce.Delivered || second.posts.posts.Load() != 1 {
		t.Errorf("outcome by way of the first one when it is back: %+v, want that the second one sends", got)
	}
}

// TestPausedHolder: a holder that was paused for longer than its deadline does not send when it goes on, before anything has renewed the Lease.
func TestPausedHolder(t *testing.T) {
	w, api, g := newWorld(t, nil), newAPIServer(t), gomega.NewWithT(t)
	only := startReplica(t, w, api, "only")
	g.Eventually(only.Sends, leaseTestTimeout, "50ms").Should(gomega.BeTrue())
	only.cut.Store(true) // the renewal comes later than the request
	only.clock.pause(shortTimes.RenewDeadline)
	if got := only.leader(t, 1).Send(t.Context(), delivery("1")); got.Reason != announce.ReasonNotifierUnavail || !strings.Contains(got.Message, "could not be renewed") {
		t.Errorf("outcome after the pause: %+v, want NotifierUnavailable: it could not be renewed", got)
	}
	if n := only.posts.posts.Load(); n != 0 {
		t.Errorf("sent %d messages after the pause, want none", n)
	}
	only.cut.Store(false)
	g.Eventually(only.Sends, leaseTestTimeout, "50ms").Should(gomega.BeTrue(), "the Lease is renewed again")
}

// TestStolenLease: a notifier whose Lease names another holder stops at the next renewal, and cannot keep an epoch before.
func TestStolenLease(t *testing.T) {
	w, api, g := newWorld(t, nil), newAPIServer(t), gomega.NewWithT(t)
	victim := startReplica(t, w, api, "victim")
	g.Eventually(victim.Sends, leaseTestTimeout, "50ms").Should(gomega.BeTrue())
	g.Eventually(func() error { // a renewal in between is a conflict
		lease := api.lease(t)
		steal(lease, "thief_192.0.2.1:8443")
		_, err := api.leases().Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	}, leaseTestTimeout, "10ms").Should(gomega.Succeed())
	if _, err := victim.RaiseEpoch(t.Context(), 9); err == nil || !strings.Contains(err.Error(), "another notifier holds it") {
		t.Errorf("error %v, want that another notifier holds the Lease", err)
	}
	g.Eventually(victim.Sends, leaseTestTimeout, "50ms").Should(gomega.BeFalse())
	why, sender := victim.Standby()
	if why != "stands by: thief sends" || sender != "192.0.2.1:8443" {
		t.Errorf("%q, address %q, want that the thief sends", why, sender)
	}
	if err := victim.leader(t, 9).BeginEpoch(t.Context(), 9); err == nil || errors.Is(err, announce.ErrDeposed) {
		t.Errorf("error %v of an epoch that nobody keeps, want one to retry", err)
	}
	if kept := api.lease(t).Annotations[notifier.EpochAnnotation]; kept != "" {
		t.Errorf("epoch %s is kept, want none", kept)
	}
}

func steal(lease *coordinationv1.Lease, by string) {
	now, hour := metav1.NowMicro(), int32(3600)
	lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &by, &now, &hour
}

// TestEpochIsNotKept: an epoch that cannot be kept is not accepted, and nothing is sent for it.
func TestEpochIsNotKept(t *testing.T) {
	w, api, g := newWorld(t, nil), newAPIServer(t), gomega.NewWithT(t)
	only := startReplica(t, w, api, "only")
	g.Eventually(only.Sends, leaseTestTimeout, "50ms").Should(gomega.BeTrue())
	only.cut.Store(true)
	if got := only.leader(t, 3).Send(t.Context(), delivery("1")); got.Result != announce.Temporary || got.Reason != announce.ReasonNotifierUnavail {
		t.Errorf("outcome %+v, want Temporary and NotifierUnavailable", got)
	}
	if n := only.posts.posts.Load(); n != 0 {
		t.Errorf("sent %d messages, want none", n)
	}
	only.cut.Store(false)
	g.Eventually(func() announce.Result { return only.leader(t, 3).Send(t.Context(), delivery("1")).Result }, leaseTestTimeout, "100ms").
		Should(gomega.Equal(announce.Delivered))
}
