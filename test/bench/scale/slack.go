package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/test/process"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// managerAccount is the ServiceAccount from which the notifier accepts deliveries.
const managerAccount = "scanner-operator-manager"

// maxMessageBytes is larger than any message.
const maxMessageBytes = 1 << 20

// message is a message that the stand-in for Slack accepted.
type message struct {
	blocks int
	text   string
}

// slack is the stand-in for Slack with its limits. It keeps all messages, of which the stand-in itself keeps only the last ones.
type slack struct {
	server *httptest.Server

	mu         sync.Mutex
	messages   []message
	violations []standin.Violation
}

func newSlack() *slack {
	s := &slack{}
	simulated := standin.New(time.Now, io.Discard).Webhooks()
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessageBytes))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		simulated.ServeHTTP(answer, r)
		s.record(body, answer.status == http.StatusOK)
	}))
	return s
}

// statusRecorder remembers the status of an answer.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (s *slack) record(body []byte, accepted bool) {
	var payload struct {
		Blocks []json.RawMessage `json:"blocks"`
	}
	violations := standin.Check(body)
	if err := json.Unmarshal(body, &payload); err != nil {
		violations = append(violations, standin.Violation{Error: "invalid_payload", Detail: err.Error()})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, violations...)
	if accepted {
		s.messages = append(s.messages, message{blocks: len(payload.Blocks), text: standin.Readable(body)})
	}
}

// received returns the accepted messages, oldest first, and how many limits of Slack were exceeded.
func (s *slack) received() (messages []message, violations int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]message(nil), s.messages...), len(s.violations)
}

// startNotifier starts the stand-in for Slack and the notifier. It returns the flags by which the manager finds the notifier.
func (c *cluster) startNotifier(ctx context.Context) (flags []string, err error) {
	c.slack = newSlack()
	token, err := c.managerToken(ctx)
	if err != nil {
		return nil, err
	}
	authority := filepath.Join(c.dir, "slack.crt")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: c.slack.server.Certificate().Raw}
	if err := os.WriteFile(authority, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, err
	}
	config, err := c.server.Kubeconfig(c.dir, "notifier")
	if err != nil {
		return nil, err
	}
	_, port, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	command := exec.Command(filepath.Join(c.options.Bin, "notifier"),
		"--kubeconfig="+config, "--listen=127.0.0.1:"+port, "--health-listen=127.0.0.1:0", "--metrics-listen=",
		"--ca-file="+authority, "--allowed-webhook-hosts="+strings.TrimPrefix(c.slack.server.URL, "https://"))
	command.Env = append(os.Environ(), "POD_NAMESPACE="+systemNamespace)
	c.notifier, err = process.Start(c.dir, "notifier", command)
	return []string{"--notifier-url=https://localhost:" + port, "--notifier-token-file=" + token}, err
}

// managerToken writes the token that a projected volume provides in a cluster, and returns its file.
func (c *cluster) managerToken(ctx context.Context) (file string, err error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: managerAccount}}
	if err := c.server.Create(ctx, account); err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{announce.NotifierAudience}, ExpirationSeconds: ptr.To(int64(2 * time.Hour / time.Second)),
	}}
	if err := c.server.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	file = filepath.Join(c.dir, "token")
	return file, os.WriteFile(file, []byte(request.Status.Token), 0o600)
}

// webhookSecret returns the Secret with a webhook of its own for a namespace.
func (c *cluster) webhookSecret(namespace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: receiverName},
		StringData: map[string]string{"url": c.slack.server.URL + "/services/" + namespace + "/B/secret"},
	}
}
