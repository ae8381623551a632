package notifier_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/notifier"
	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/client"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

const (
	managerUser  = "system:serviceaccount:scanner-operator-system:scanner-operator-manager"
	managerToken = "token-of-the-manager"
	// secretPath must not appear in any output.
	secretPath = "/services/T0SECRET1/B0SECRET2/verysecrettoken3"
	// botToken must not appear in any output, either.
	botToken = "xoxb-123456789012-verysecrettoken3"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// cluster is the part of a Kubernetes API server that the notifier uses, over real HTTP.
type cluster struct {
	mu sync.Mutex
	// secrets by "namespace/name". Reading one in forbidden fails with 403. With down, every request fails with 500.
	secrets   map[string]map[string]string
	forbidden map[string]bool
	down      bool
	// reviews by token.
	reviews map[string]authenticationv1.TokenReviewStatus
	// reviewed is the number of token reviews.
	reviewed int
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case c.down:
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		c.reviewed++
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
		review.Status = c.reviews[review.Spec.Token]
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	case len(parts) == 6 && parts[4] == "secrets":
		c.secret(w, parts[3]+"/"+parts[5])
	default:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

func (c *cluster) secret(w http.ResponseWriter, key string) {
	data, found := c.secrets[key]
	switch {
	case c.forbidden[key]:
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case !found:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	default:
		secret := corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{}}
		for k, v := range data {
			secret.Data[k] = []byte(v)
		}
		_ = json.NewEncoder(w).Encode(secret)
	}
}

func refuse(w http.ResponseWriter, status int, reason metav1.StatusReason) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(status),
	})
}

// set replaces a Secret.
func (c *cluster) set(key string, data map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets[key] = data
}

// world is a notifier with a cluster, a manager and Slack, all over real HTTP.
type world struct {
	t       testing.TB
	cluster *cluster
	core    *coreclient.CoreV1Client
	clock   *testingclock.FakePassiveClock
	// answerWithin is when the notifier answers at the latest; 0 for its default.
	answerWithin time.Duration
	slack        *standin.Standin
	// slackURL is the webhook URL in key url of Secret shop/slack. slackHost is its host and port.
	slackURL, slackHost string
	notifier            *httptest.Server
	manager             *client.Client
	registry            *prometheus.Registry
	// logs is everything that was logged.
	logs *lockedBuffer
	// waited is how long the notifier has waited for its budget, by the fake clock.
	waited time.Duration
	// onSleep is called in each wait for the budget, unless it is nil.
	onSleep func()
	// exporters are those of the notifier; nil for none.
	exporters map[string]notifier.Exporter
}

// newWorld returns a world. A receiver that is not nil replaces the Slack poster.
func newWorld(t testing.TB, slack notifier.Receiver) *world {
	t.Helper()
	return newWorldWith(t, slack, notifier.Network{})
}

// newWorldWith does what newWorld does, with network settings that it completes.
func newWorldWith(t testing.TB, slack notifier.Receiver, network notifier.Network) *world {
	t.Helper()
	w := newBareWorld(t)
	w.slack = standin.New(w.clock.Now, io.Discard)
	slackServer := httptest.NewTLSServer(w.slack.Webhooks())
	t.Cleanup(slackServer.Close)
	w.slackURL = slackServer.URL + secretPath
	w.slackHost = strings.TrimPrefix(slackServer.URL, "https://")
	network.Network, network.SlackAPI = receiver.Network{Roots: receiver.Trusting(poolOf(slackServer))}, slackServer.URL+"/api"
	receivers := notifier.NewReceivers(network)
	if slack != nil {
		receivers = map[string]notifier.Receiver{announce.ReceiverTypeSlack: slack}
	}
	w.start(receivers, "hooks.slack.com", w.slackHost)
	w.cluster.secrets = map[string]map[string]string{"shop/slack": {"url": w.slackURL + "\n"}, "shop/app": {"token": botToken + "\n"}}
	return w
}

// newBareWorld returns a world without a notifier.
func newBareWorld(t testing.TB) *world {
	return &world{t: t, clock: testingclock.NewFakePassiveClock(noon), registry: prometheus.NewRegistry(), logs: &lockedBuffer{}}
}

// start starts the notifier with some receivers, which may have the given hosts, and a cluster without Secrets.
func (w *world) start(receivers map[string]notifier.Receiver, hosts ...string) {
	w.t.Helper()
	w.cluster = &cluster{
		secrets:   map[string]map[string]string{},
		forbidden: map[string]bool{"shop/private": true},
		reviews: map[string]authenticationv1.TokenReviewStatus{managerToken: {
			Authenticated: true, User: authenticationv1.UserInfo{Username: managerUser}, Audiences: []string{announce.NotifierAudience},
		}},
	}
	api := httptest.NewServer(w.cluster)
	w.t.Cleanup(api.Close)
	// The stand-in reads only JSON; the default is protobuf.
	config := &rest.Config{Host: api.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	w.core = must(coreclient.NewForConfig(config))
	authentication := must(authenticationclient.NewForConfig(config))

	server := notifier.New(notifier.Config{
		Callers:   notifier.NewTokenReviews(authentication, managerUser, w.clock),
		Addresses: notifier.NewSecretAddresses(w.core, "scanner-operator-system", "scanner-operator-notifier", must(egress.NewPolicy(hosts))),
		Receivers: receivers,
		Exporters: w.exporters,
		Budget:    notifier.NewBudget(w.clock, w.sleep, func() float64 { return 0 }),
		Metrics:   notifier.NewMetrics(w.registry),
		Log:       slog.New(slog.NewJSONHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Clock:     w.clock, AnswerWithin: w.answerWithin,
	})
	w.notifier = httptest.NewTLSServer(server.Handler())
	w.t.Cleanup(w.notifier.Close)
	w.manager = w.leader(0)
}

// leader returns the client of a manager that leads, or has led, with the given epoch.
func (w *world) leader(epoch int64) *client.Client {
	w.t.Helper()
	return client.New(client.Config{
		URL: w.notifier.URL, TokenFile: w.file(managerToken + "\n"),
		CA:    func() (*x509.CertPool, error) { return poolOf(w.notifier), nil },
		Epoch: func() int64 { return epoch },
	})
}

// sleep advances the fake clock and returns at once.
func (w *world) sleep(_ context.Context, d time.Duration) error {
	w.pass(d)
	w.waited += d
	if w.onSleep != nil {
		w.onSleep()
	}
	return nil
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// file writes a file and returns its name.
func (w *world) file(content string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// send requests the delivery of a message as the manager does.
func (w *world) send(id string) announce.Outcome {
	return w.manager.Send(context.Background(), delivery(id))
}

func delivery(id string) announce.Delivery {
	return announce.Delivery{
		Receiver: announce.ReceiverRef{Type: announce.ReceiverTypeSlack, Namespace: "shop", SecretName: "slack", SecretKey: "url"},
		Message: announce.Message{
			ID: strings.Repeat("0", 32-len(id)) + id, Kind: announce.KindChanges, Namespace: "shop", Scanner: "default", CreatedAt: noon,
			Totals: finding.Counts{Critical: 1}, Images: 1,
			Sections: []announce.Section{{
				Repository: "docker.io/library/nginx", Workloads: []string{"Deployment shop/web"},
				Items: []announce.Item{{ID: "CVE-2024-1", Severity: finding.Critical, Package: "openssl", Version: "1"}},
			}},
		},
	}
}

// post sends a raw request and returns status and answer.
func (w *world) post(token, body string) (int, string) {
	w.t.Helper()
	request := must(http.NewRequest(http.MethodPost, w.notifier.URL+announce.DeliveryPath, strings.NewReader(body)))
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response := must(w.notifier.Client().Do(request))
	defer response.Body.Close()
	return response.StatusCode, string(must(io.ReadAll(response.Body)))
}

func poolOf(s *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// lockedBuffer is a buffer that several goroutines may write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
