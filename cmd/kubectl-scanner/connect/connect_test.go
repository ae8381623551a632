package connect

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// TestBearerToken: where the caller's token comes from, and what is said if there is none.
func TestBearerToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := func(status string) *clientcmdapi.ExecConfig {
		return &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "echo", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			Args: []string{`{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": ` + status + `}`},
		}
	}
	for name, tt := range map[string]struct {
		config rest.Config
		want   string
		// reason is a part of the reason for which there is no token.
		reason string
	}{
		"in the kubeconfig":    {rest.Config{BearerToken: "in-it"}, "in-it", ""},
		"in a file":            {rest.Config{BearerTokenFile: file}, "from-file", ""},
		"from a program":       {rest.Config{ExecProvider: program(`{"token": "from-program"}`)}, "from-program", ""},
		"a client certificate": {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x"), KeyData: []byte("x")}}, "", "has a client certificate and no token"},
		"nothing":              {rest.Config{}, "", "has no token"},
		"a password":           {rest.Config{Username: "jane", Password: "secret"}, "", "has no token"},
		"of somebody else":     {rest.Config{BearerToken: "mine", Impersonate: rest.ImpersonationConfig{UserName: "jane"}}, "", "--as=jane applies to the API server only"},
	} {
		tt.config.Host = "https://api.example.com"
		got, err := Options{Kubernetes: &tt.config}.token(t.Context())
		var none *NoTokenError
		if got != tt.want || errors.As(err, &none) != (tt.reason != "") || err != nil && !strings.Contains(err.Error(), tt.reason) {
			t.Errorf("%s: %q, %v; want %q, %s", name, got, err, tt.want, tt.reason)
		}
		if err != nil && strings.Contains(err.Error(), "mine") {
			t.Errorf("%s: the token is in the error: %v", name, err)
		}
	}
}

// TestServers: which addresses a token is sent to.
func TestServers(t *testing.T) {
	for server, want := range map[string]string{
		"https://scanner.example.com": "", "https://scanner.example.com/base/": "", "http://scanner.example.com": "not https", "scanner.example.com": "no address",
		"https://": "no address", "https://jane:secret@scanner.example.com": "no user", "https://scanner.example.com?a=b": "query", "ftp://x": "not https",
	} {
		if err := checkServer(server); (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", server, err, want)
		}
	}
}

// TestRefusals: what a response that is no success becomes, and how often it is requested.
func TestRefusals(t *testing.T) {
	problem := func(status int, reason string) string {
		return fmt.Sprintf(`{"title": "x", "status": %d, "reason": %q, "detail": "do this"}`, status, reason)
	}
	for name, tt := range map[string]struct {
		status            int
		kind, body, after string
		want              string
		reason            restv1.Reason
		requests          int32
	}{
		"a problem":         {403, "application/problem+json", problem(403, "Forbidden"), "", "do this", restv1.ReasonForbidden, 1},
		"busy for long":     {503, "application/problem+json", problem(503, "Unavailable"), "0", "do this", restv1.ReasonUnavailable, maxAttempts},
		"busy for too long": {503, "application/problem+json", problem(503, "Unavailable"), "3600", "do this", restv1.ReasonUnavailable, 1},
		"another version": {
			404, "application/problem+json", `{"status": 404, "reason": "NotFound", "detail": "there is nothing at this path; /openapi.yaml lists the paths"}`, "",
			"another version than this plugin", restv1.ReasonNotFound, 1,
		},
		"a proxy's error page":        {502, "text/html", "<html>", "", "answers 502 Bad Gateway, and not as the operator's REST API does", "", 1},
		"a problem in another format": {403, "text/plain", problem(403, "Forbidden"), "", "answers 403", "", 1},
		"a login page":                {302, "text/html", "", "", "redirects to login.example.com", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("Content-Type", tt.kind)
				if tt.status == http.StatusFound {
					w.Header().Set("Location", "https://login.example.com/?from=x")
				}
				if tt.after != "" {
					w.Header().Set("Retry-After", tt.after)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer server.Close()
			c := open(t, Options{Kubernetes: &rest.Config{BearerToken: "secret"}, Server: server.URL, CAFile: caFile(t, server)})
			_, err := c.ListScannersWithResponse(t.Context(), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.reason != "" && !IsReason(err, tt.reason) || requests.Load() != tt.requests {
				t.Errorf("after %d requests: %v; want %q after %d", requests.Load(), err, tt.want, tt.requests)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the token is in the error: %v", err)
			}
		})
	}
}

// TestUntrustedServer: no token is sent to a server whose certificate is not trusted.
func TestUntrustedServer(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer server.Close()
	server.Config.ErrorLog = nil
	c := open(t, Options{Kubernetes: &rest.Config{Host: "https://127.0.0.1:1", BearerToken: "secret"}, Server: server.URL})
	if _, err := c.ListScannersWithResponse(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "--server-ca") || requests.Load() != 0 {
		t.Errorf("%d requests arrived, %v", requests.Load(), err)
	}
}

func open(t *testing.T, o Options) *Connection {
	t.Helper()
	c, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func caFile(t *testing.T, server *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// An answer in JSON that does not end takes a bounded amount of memory. An SBOM, which is streamed, may be larger.
func TestEndlessAnswer(t *testing.T) {
	const sent = maxAnswerBytes + 1<<20
	for kind, fails := range map[string]bool{"application/json": true, "application/json; charset=utf-8": true, "application/vnd.cyclonedx+json": false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.CopyN(w, zeros{}, sent)
		}))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&Doer{Client: server.Client()}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		server.Close()
		if fails != (err != nil) || fails && (n > maxAnswerBytes || !strings.Contains(err.Error(), "more than 64 MiB")) {
			t.Errorf("%s: %d of %d bytes were read, error %v", kind, n, sent, err)
		}
	}
}

// zeros is an endless answer.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) { return len(p), nil }
