package command

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUI: the address that is opened signs in once, as the user of the kubeconfig, and has no token in it.
func TestUI(t *testing.T) {
	w := newWorld(t)
	token := w.token("viewer", "shop", "scanner-operator-view")
	kubeconfig := w.kubeconfig("shop", token)
	r := w.run(kubeconfig, "ui", "-n", "shop")
	if r.status != 0 || r.out != "" || len(w.browsed) != 1 {
		t.Fatalf("%d addresses were opened, want 1: %+v", len(w.browsed), r)
	}
	address, err := url.Parse(w.browsed[0])
	w.must(err)
	code, found := strings.CutPrefix(address.Fragment, "code=")
	if !found || address.Path != "/" || address.RawQuery != "namespace=shop" || strings.Contains(w.browsed[0]+r.out+r.err, token) {
		t.Errorf("the address is %q, and the output %+v; want the namespace and a code, and never the token", address, r)
	}
	if strings.Contains(r.err, code) {
		t.Error("the code is printed although the browser was opened")
	}
	if status, body := w.signIn(code); status != http.StatusOK || !strings.Contains(body, `"user":"system:serviceaccount:people:viewer"`) {
		t.Errorf("the code: %d %s, want the user's session", status, body)
	}
	if status, body := w.signIn(code); status != http.StatusUnauthorized {
		t.Errorf("the code again: %d %s, want 401", status, body)
	}
}

// TestUIWithoutBrowser: the address is printed if that is asked for, and if no browser can be opened.
func TestUIWithoutBrowser(t *testing.T) {
	w := newWorld(t)
	kubeconfig := w.kubeconfig("shop", w.token("viewer", "shop", "scanner-operator-view"))
	asked := w.run(kubeconfig, "ui", "--no-browser")
	if len(w.browsed) != 0 || asked.status != 0 {
		t.Errorf("%q were opened, want none: %+v", w.browsed, asked)
	}
	w.browseErr = errors.New("no display")
	failed := w.run(kubeconfig, "ui")
	if failed.status != 0 || !strings.Contains(failed.err, "No browser could be opened: no display") {
		t.Errorf("without a display: %+v", failed)
	}
	for _, r := range []result{asked, failed} {
		address := strings.TrimSuffix(r.out, "\n")
		if !strings.HasPrefix(address, w.url+"/#code=") || strings.Contains(address, "\n") {
			t.Errorf("the standard output has %q, want one address", r.out)
		}
	}
}

// TestUIIsDisabled: the command says so, and opens nothing, where the operator serves no web UI.
func TestUIIsDisabled(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewTLSServer(w.api)
	defer server.Close()
	w.caFile = filepath.Join(w.dir, "other.crt")
	w.must(os.WriteFile(w.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	w.url = server.URL
	r := w.run(w.kubeconfig("shop", w.token("viewer", "shop", "scanner-operator-view")), "ui")
	if r.status != exitError || len(w.browsed) != 0 || !strings.Contains(r.err, "serves no web UI") || !strings.Contains(r.err, "ui.enabled") {
		t.Errorf("%q were opened: %+v", w.browsed, r)
	}
}

// signIn signs in with a code, as the web UI does.
func (w *world) signIn(code string) (status int, body string) {
	w.t.Helper()
	text, err := os.ReadFile(w.caFile)
	w.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}}}
	defer browser.CloseIdleConnections()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+"/api/v1/session", strings.NewReader(`{"code":"`+code+`"}`))
	w.must(err)
	request.Header.Set("Content-Type", "application/json")
	response, err := browser.Do(request)
	w.must(err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	w.must(err)
	return response.StatusCode, string(content)
}
