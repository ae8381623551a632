package controllers

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubernetes "k8s.io/client-go/kubernetes/fake"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/notifier"
	receivers "github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/notifier/webhook"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/client"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// webhookPath is the secret part of the webhook URL. It must not appear in any output.
const webhookPath = "/services/T0SECRET1/B0SECRET2/verysecrettoken3"

// deliveryWorld is a notifyWorld that sends messages through the real notifier to its own Slack stand-in.
type deliveryWorld struct {
	*notifyWorld
	slack *standin.Standin
	// url is the webhook URL. answers handles a request before the stand-in does, and returns whether it answered; nil for never.
	url       string
	intercept func(http.ResponseWriter, *http.Request) bool
	// silent is the address of a server that accepts connections and never answers.
	silent  string
	secrets *kubernetes.Clientset
	log     *bytes.Buffer
}

type allowAll struct{}

func (allowAll) Allow(context.Context, string) error { return nil }

// shortDeadlinePoster is Slack's poster with a deadline short enough for tests.
type shortDeadlinePoster struct{ *slack.Poster }

func (h shortDeadlinePoster) Post(ctx context.Context, address receivers.Address, d announce.Delivery) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	return h.Poster.Post(ctx, address, d)
}

func newDeliveryWorld(t *testing.T) *deliveryWorld {
	t.Helper()
	w := &deliveryWorld{notifyWorld: newNotifyWorld(t, nil), log: &bytes.Buffer{}}
	w.slack = standin.New(w.clock.Now, io.Discard)
	webhooks := w.slack.Webhooks()
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.intercept == nil || !w.intercept(rw, r) {
			webhooks.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(server.Close)
	w.url = server.URL + webhookPath
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts the connections
	w.must(err)
	t.Cleanup(func() { _ = silent.Close() })
	w.silent = silent.Addr().String()
	w.secrets = kubernetes.NewClientset()
	// Secrets made from files or with echo end in whitespace, which must be ignored.
	w.replaceSecret("url", w.url+" \n")
	w.startNotifier(server)
	w.saveReport(finding.Critical)
	w.reconcile()
	return w
}

// startNotifier runs the notifier and makes the reconciler send through it.
func (w *deliveryWorld) startNotifier(slackServer *httptest.Server) {
	w.t.Helper()
	sleep := func(_ context.Context, d time.Duration) error { w.clock.SetTime(w.clock.Now().Add(d)); return nil }
	roots := x509.NewCertPool()
	roots.AddCert(slackServer.Certificate())
	network := receivers.Network{Roots: receivers.Trusting(roots)}
	notifies := notifier.New(notifier.Config{
		Callers: allowAll{},
		Addresses: notifier.NewSecretAddresses(w.secrets.CoreV1(), "scanner-operator-system", "scanner-operator-notifier",
			allowedHosts(w.t, w.silent, strings.TrimPrefix(slackServer.URL, "https://"))),
		Receivers: map[string]notifier.Receiver{
			announce.ReceiverTypeSlack:    shortDeadlinePoster{slack.NewPoster(network)},
			announce.ReceiverTypeSlackApp: slack.NewApp(network, slackServer.URL+"/api", false),
			announce.ReceiverTypeWebhook:  webhook.NewPoster(network),
		},
		Budget: notifier.NewBudget(w.clock, sleep, func() float64 { return 0 }), Metrics: notifier.NewMetrics(prometheus.NewRegistry()),
		Log: slog.New(slog.NewJSONHandler(w.log, nil)), Clock: w.clock,
	})
	server := httptest.NewTLSServer(notifies.Handler())
	w.t.Cleanup(server.Close)
	token := filepath.Join(w.t.TempDir(), "token")
	w.must(os.WriteFile(token, []byte("token"), 0o600))
	trust := x509.NewCertPool()
	trust.AddCert(server.Certificate())
	w.reconciler.Sender = client.New(client.Config{
		URL: server.URL, TokenFile: token, CA: func() (*x509.CertPool, error) { return trust, nil },
	})
}

// allowedHosts returns the policy that allows receivers to have some hosts.
func allowedHosts(t *testing.T, hosts ...string) *egress.Policy {
	t.Helper()
	policy, err := egress.NewPolicy(hosts)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// replaceSecret replaces the Secret by one with a single key; an empty key only deletes the Secret.
func (w *deliveryWorld) replaceSecret(key, value string) {
	w.t.Helper()
	ctx, secrets := w.t.Context(), w.secrets.CoreV1().Secrets("shop")
	_ = secrets.Delete(ctx, "slack-team", metav1.DeleteOptions{})
	if key == "" {
		return
	}
	_, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "slack-team"}, Data: map[string][]byte{key: []byte(value)},
	}, metav1.CreateOptions{})
	w.must(err)
}

// condition returns the Scanner's condition NotificationsDelivered and the status of its receiver.
func (w *deliveryWorld) condition() (metav1.Condition, v1alpha1.ReceiverStatus) {
	w.t.Helper()
	states, err := receiverStates(w.t.Context(), w.store, w.scanner, destinationsOf(w.scanner, inventory.Namespaces{}))
	w.must(err)
	(&scannerScope{scanner: w.scanner, scannerFacts: scannerFacts{receivers: states}}).setReceivers(w.store.ID())
	return *meta.FindStatusCondition(w.scanner.Status.Conditions, v1alpha1.ConditionNotificationsDelivered), w.scanner.Status.Receivers[0]
}

// takeEvents returns the events since the last call.
func (w *deliveryWorld) takeEvents() (reported []string) {
	for {
		select {
		case event := <-w.events.Events:
			reported = append(reported, event)
		default:
			return reported
		}
	}
}

// slackFails makes the Slack stand-in fail once in the given way.
func slackFails(t standin.Failure) func(*deliveryWorld) {
	t.Times = 1
	return func(w *deliveryWorld) { w.slack.Expect(t) }
}

// alwaysAnswers answers all requests with the given handler instead of the Slack stand-in.
func alwaysAnswers(answer func(http.ResponseWriter, *http.Request)) func(*deliveryWorld) {
	return func(w *deliveryWorld) {
		w.intercept = func(rw http.ResponseWriter, r *http.Request) bool { answer(rw, r); return true }
	}
}

// TestDeliveryFailures: each way in which a delivery fails has its reason in the Scanner's condition, in the receiver's status and in one
// event. The message helps and has no part of the webhook URL. The delivery is retried after a suitable delay, and the message arrives once
// after the repair.
func TestDeliveryFailures(t *testing.T) {
	repairSecret := func(w *deliveryWorld) { w.replaceSecret("url", w.url) }
	for name, tt := range map[string]struct {
		arrange func(*deliveryWorld)
		repair  func(*deliveryWorld)
		reason  string
		message string
		// again is the delay until the next attempt, at least; up to a quarter more is added.
		again time.Duration
		// doubled is true if Slack may have received the message before its answer was lost: then it arrives twice.
		doubled bool
	}{
		"UnknownSecret":    {func(w *deliveryWorld) { w.replaceSecret("", "") }, repairSecret, announce.ReasonSecretNotFound, "there is no Secret slack-team in namespace shop", 5 * time.Minute, false},
		"UnknownKey":       {func(w *deliveryWorld) { w.replaceSecret("address", w.url) }, repairSecret, announce.ReasonSecretNotFound, "has no key url", 5 * time.Minute, false},
		"WebhookNotHTTPS":  {func(w *deliveryWorld) { w.replaceSecret("url", "http://hooks.slack.com"+webhookPath) }, repairSecret, announce.ReasonInvalidURL, "key url of Secret slack-team in namespace shop is not an https URL", 5 * time.Minute, false},
		"WebhookNotAURL":   {func(w *deliveryWorld) { w.replaceSecret("url", "verysecrettoken3 %zz") }, repairSecret, announce.ReasonInvalidURL, "is not an https URL", 5 * time.Minute, false},
		"WebhookEmpty":     {func(w *deliveryWorld) { w.replaceSecret("url", " \n") }, repairSecret, announce.ReasonInvalidURL, "is empty", 5 * time.Minute, false},
		"WebhookElsewhere": {func(w *deliveryWorld) { w.replaceSecret("url", "https://example.com"+webhookPath) }, repairSecret, announce.ReasonInvalidURL, "--allowed-webhook-hosts", 5 * time.Minute, false},

		"Slack400InvalidPayload":    {slackFails(standin.Failure{Status: 400}), nil, announce.ReasonReceiverRefused, "400 Bad Request: invalid_payload", 5 * time.Minute, false},
		"Slack403ActionProhibited":  {slackFails(standin.Failure{Status: 403}), nil, announce.ReasonReceiverRefused, "403 Forbidden: action_prohibited", 5 * time.Minute, false},
		"Slack403InvalidToken":      {slackFails(standin.Failure{Status: 403, Body: "invalid_token"}), nil, announce.ReasonReceiverRefused, "403 Forbidden: invalid_token", 5 * time.Minute, false},
		"Slack404NoService":         {slackFails(standin.Failure{Status: 404}), nil, announce.ReasonReceiverRefused, "404 Not Found: no_service", 5 * time.Minute, false},
		"Slack404ChannelNotFound":   {slackFails(standin.Failure{Status: 404, Body: "channel_not_found"}), nil, announce.ReasonReceiverRefused, "404 Not Found: channel_not_found", 5 * time.Minute, false},
		"Slack410ChannelIsArchived": {slackFails(standin.Failure{Status: 410}), nil, announce.ReasonReceiverRefused, "410 Gone: channel_is_archived", 5 * time.Minute, false},
		"Slack429WithRetryAfter":    {slackFails(standin.Failure{Status: 429, RetryAfter: 47}), nil, announce.ReasonReceiverLimited, "Slack requests a wait of 47s", 47 * time.Second, false},
		"Slack429WithoutRetryAfter": {slackFails(standin.Failure{Status: 429}), nil, announce.ReasonReceiverLimited, "Slack requests a wait of 30s", 30 * time.Second, false},
		"Slack500":                  {slackFails(standin.Failure{Status: 500}), nil, announce.ReasonReceiverFailed, "500 Internal Server Error: rollup_error", 5 * time.Second, false},

		"SlackNeverSpeaks": {func(w *deliveryWorld) {
			w.replaceSecret("url", "https://"+w.silent+webhookPath)
		}, repairSecret, announce.ReasonNetwork, "no connection to Slack: no answer in time", 5 * time.Second, false},
		"SlackNeverAnswers": {slackFails(standin.Failure{Hang: true}), nil, announce.ReasonAnswerLost, "Slack's answer was lost: no answer in time", 5 * time.Second, true},
		"SlackHangsUp":      {slackFails(standin.Failure{Drop: true}), nil, announce.ReasonAnswerLost, "Slack's answer was lost", 5 * time.Second, true},
		"SlackDribbles": {alwaysAnswers(func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(http.StatusInternalServerError)
			for r.Context().Err() == nil {
				if _, err := rw.Write([]byte("x")); err != nil {
					return
				}
				_ = http.NewResponseController(rw).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		}), func(w *deliveryWorld) { w.intercept = nil }, announce.ReasonReceiverFailed, "Slack answers 500", 5 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeliveryWorld(t)
			tt.arrange(w)
			next, _ := w.reconcileAfter(30 * time.Second)
			if next < tt.again || next > tt.again+tt.again/4+time.Second {
				t.Errorf("tried again in %s, want about %s", next, tt.again)
			}
			condition, receiver := w.condition()
			if condition.Status != metav1.ConditionFalse || condition.Reason != tt.reason || !strings.Contains(condition.Message, tt.message) {
				t.Errorf("NotificationsDelivered is %s %s %q, want False %s and %q", condition.Status, condition.Reason, condition.Message, tt.reason, tt.message)
			}
			if !strings.HasPrefix(receiver.LastError, tt.reason+": ") || !strings.Contains(receiver.LastError, tt.message) || receiver.Pending == 0 {
				t.Errorf("receiver %+v, want the reason %s, %q and what is pending", receiver, tt.reason, tt.message)
			}
			reported := w.takeEvents()
			if len(reported) != 1 || !strings.HasPrefix(reported[0], "Warning "+tt.reason+" receiver team: ") || !strings.Contains(reported[0], tt.message) {
				t.Errorf("events %q, want one warning %s with %q", reported, tt.reason, tt.message)
			}
			for _, secret := range []string{"T0SECRET1", "B0SECRET2", "verysecrettoken3"} {
				if all := condition.Message + receiver.LastError + strings.Join(reported, "") + w.log.String(); strings.Contains(all, secret) {
					t.Errorf("the address is shown: %s", all)
				}
			}
			if tt.repair != nil {
				tt.repair(w)
			}
			w.reconcileAfter(next)
			w.assertArrived(tt.doubled)
		})
	}
}

// assertArrived asserts that Slack has the message the expected number of times, and that the status has no error any more.
func (w *deliveryWorld) assertArrived(doubled bool) {
	w.t.Helper()
	want := 1
	if doubled {
		want = 2
	}
	messages := w.slack.Messages()
	if len(messages) != want || slices.ContainsFunc(messages, func(m standin.Message) bool { return m.Text != messages[0].Text }) {
		w.t.Errorf("Slack has %d messages, want %d of one text: %v", len(messages), want, messages)
	}
	condition, receiver := w.condition()
	if condition.Status != metav1.ConditionTrue || receiver.LastError != "" || receiver.Pending != 0 || receiver.LastDeliveryTime == nil {
		w.t.Errorf("afterwards NotificationsDelivered is %s %s, receiver %+v, want all well", condition.Status, condition.Reason, receiver)
	}
	if next, sent := w.reconcileAfter(time.Hour); next != noticeInterval || len(sent) != 0 || len(w.slack.Messages()) != want {
		w.t.Errorf("an hour later Slack has %d messages, want no more than %d", len(w.slack.Messages()), want)
	}
}

// TestHangingReceiverDelaysNoOther: while one receiver does not answer, messages to the others are delivered.
func TestHangingReceiverDelaysNoOther(t *testing.T) {
	w := newNotifyWorld(t, func(s *v1alpha1.Scanner) {
		s.Spec.Notifications = []v1alpha1.Receiver{slackReceiver("broken"), slackReceiver("team")}
	})
	w.saveReport(finding.Critical)
	w.reconcile()
	w.clock.SetTime(w.clock.Now().Add(30 * time.Second))
	w.receivers.hangs = "slack-broken"
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.reconciler.Reconcile(ctx, requestFor(w.scanner))
		ended <- err
	}()
	select {
	case event := <-w.events.Events:
		if !strings.HasPrefix(event, "Normal Delivered receiver team") {
			t.Errorf("event %q, want that the other receiver took its message", event)
		}
	case err := <-ended:
		t.Errorf("the reconciliation is over (%v) before the receiver that hangs", err)
	case <-time.After(eventuallyTimeout):
		t.Error("the other receiver waits for the one that hangs")
	}
	giveUp()
	<-ended
}

// blockedNotifier is an announce.Sender whose sends wait until they are released.
type blockedNotifier struct{ started, released chan struct{} }

func (b blockedNotifier) Send(context.Context, announce.Delivery) announce.Outcome {
	b.started <- struct{}{}
	<-b.released
	return announce.Outcome{Result: announce.Delivered}
}

// TestDeliveriesAtOnce: a scanner with many destinations delivers to a bounded number of them at a time, and to all in the end.
func TestDeliveriesAtOnce(t *testing.T) {
	const destinations = maxDeliveriesAtOnce + 8
	w := newNotifyWorld(t, func(s *v1alpha1.Scanner) {
		s.Spec.Notifications = nil
		for n := range destinations {
			s.Spec.Notifications = append(s.Spec.Notifications, slackReceiver(fmt.Sprintf("team-%d", n)))
		}
	})
	w.saveReport(finding.Critical)
	w.reconcile()
	w.clock.SetTime(w.clock.Now().Add(30 * time.Second))
	notifier := blockedNotifier{make(chan struct{}, destinations), make(chan struct{})}
	w.reconciler.Sender = notifier
	ended := make(chan error, 1)
	go func() {
		_, err := w.reconciler.Reconcile(t.Context(), requestFor(w.scanner))
		ended <- err
	}()
	g := gomega.NewWithT(t)
	g.Eventually(notifier.started, eventuallyTimeout).Should(gomega.HaveLen(maxDeliveriesAtOnce))
	g.Consistently(notifier.started, "500ms").Should(gomega.HaveLen(maxDeliveriesAtOnce))
	close(notifier.released)
	g.Eventually(ended, eventuallyTimeout).Should(gomega.Receive(gomega.BeNil()))
	if n := len(notifier.started); n != destinations {
		t.Errorf("%d deliveries, want %d", n, destinations)
	}
}

// TestReceiverGrantMissing: the commands in the error message, run unchanged, let this notifier read this Secret and no other. The test
// uses a real API server, a real kubectl and names of any length.
func TestReceiverGrantMissing(t *testing.T) {
	p := newTestEnv(t)
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	if _, err := os.Stat(kubectl); err != nil {
		t.Skipf("no kubectl: %v", err)
	}
	as := rest.CopyConfig(p.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:operators-namespace:notifiers-own-account"}
	core, err := coreclient.NewForConfig(as)
	p.must(err)
	addresses := notifier.NewSecretAddresses(core, "operators-namespace", "notifiers-own-account", allowedHosts(t, "hooks.slack.com"))
	for _, name := range []string{"slack", repeatToLength("s", 249) + "-one", repeatToLength("s", 249) + "-two"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}, StringData: map[string]string{"url": "https://hooks.slack.com" + webhookPath}}
		p.create(secret)
		ref := announce.ReceiverRef{Type: announce.ReceiverTypeSlack, Namespace: p.namespace, SecretName: name, SecretKey: "url"}
		_, outcome := addresses.Address(t.Context(), ref)
		if outcome == nil || outcome.Reason != announce.ReasonSecretForbidden || outcome.Result != announce.Permanent {
			t.Fatalf("without a grant: %+v, want SecretForbidden", outcome)
		}
		_, commands, found := strings.Cut(outcome.Message, "to allow it: ")
		if !found || len(outcome.Message) > announce.MaxMessageBytes-len("receiver : ")-63 {
			t.Fatalf("message of %d bytes %q, want the commands, whole in an event", len(outcome.Message), outcome.Message)
		}
		shell := exec.CommandContext(t.Context(), "sh", "-c", commands)
		shell.Env = append(os.Environ(), "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"), "KUBECONFIG="+p.kubeconfig())
		if output, err := shell.CombinedOutput(); err != nil {
			t.Fatalf("the commands %q: %v: %s", commands, err, output)
		}
		p.Eventually(func() string { address, _ := addresses.Address(t.Context(), ref); return address.Target.URL() }, eventuallyTimeout, "100ms").
			Should(gomega.Equal("https://hooks.slack.com" + webhookPath))
	}
	_, err = core.Secrets(p.namespace).List(t.Context(), metav1.ListOptions{})
	p.Expect(apierrors.IsForbidden(err)).To(gomega.BeTrue(), "all Secrets may be listed: %v", err)
}

// kubeconfig writes a kubeconfig file for kubectl.
func (p *testEnv) kubeconfig() string {
	p.t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["test"] = &clientcmdapi.Cluster{Server: p.config.Host, CertificateAuthorityData: p.config.CAData}
	c.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: p.config.CertData, ClientKeyData: p.config.KeyData}
	c.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	path := filepath.Join(p.t.TempDir(), "kubeconfig")
	p.must(clientcmd.WriteToFile(*c, path))
	return path
}
