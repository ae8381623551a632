package restapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/cyclonedx"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// reportServer is the variable that makes the test binary serve the API with the SQLite store at its value.
const reportServer = "REPORT_SERVER_STORE"

// serveReports serves the API until the process is killed, and prints its URL. The token anyone may do everything.
func serveReports(path string) error {
	db, err := store.OpenSQLite(context.Background(), path, time.Now)
	if err != nil {
		return err
	}
	reviewer := &fakeReviewer{
		tokens:  map[string]authenticationv1.UserInfo{anyone: {Username: "anyone"}},
		allowed: func(authorizationv1.SubjectAccessReviewSpec) bool { return true },
	}
	cluster := fakeclient.NewClientBuilder().WithScheme(newScheme()).WithInterceptorFuncs(interceptor.Funcs{Create: reviewer.create}).Build()
	api := &API{
		Reader: cluster, ImageScans: cluster, TokenReviews: cluster, AccessReviews: cluster, Store: db, Clock: clock.RealClock{}, Log: logr.Discard(),
		Metrics: prometheus.NewRegistry(), Replicas: func(context.Context) ([]restv1.Replica, error) { return nil, nil }, Wake: func(context.Context, string) {},
	}
	handler, err := api.Handler()
	if err != nil {
		return err
	}
	fmt.Println(httptest.NewTLSServer(handler).URL)
	select {}
}

// manyFindings returns a document with vulnerabilities whose ids begin with a name. It was made at a time.
func manyFindings(n int, name string, at time.Time) string {
	var text strings.Builder
	fmt.Fprintf(&text, `{"bomFormat":"CycloneDX","specVersion":"1.6","metadata":{"timestamp":%q},"components":[`, at.UTC().Format(time.RFC3339Nano))
	for i := range n / 10 {
		fmt.Fprintf(&text, `{"bom-ref":"p%d","name":"package-%d","version":"1.%d","purl":"pkg:deb/debian/package-%d@1.%d?arch=amd64"},`, i, i, i, i, i)
	}
	text.WriteString(`{"name":"base"}],"vulnerabilities":[`)
	for i := range n {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"id":"%s-%d","source":{"name":"debian"},"ratings":[{"source":{"name":"debian"},"severity":"high"},{"source":{"name":"nvd"},"score":7.5,
			"method":"CVSSv31","vector":"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H"}],"description":"A flaw that lets a remote sender stop the program by a long header. %s",
			"affects":[{"ref":"p%d","versions":[{"version":"1.%d","status":"affected"}]}]}`, name, i, strings.Repeat("More text. ", 20), i/10, i/10)
	}
	text.WriteString(`]}`)
	return text.String()
}

// TestKilledWhileSaving: a manager that is killed while it saves a report leaves the report before or the new one, as a whole.
func TestKilledWhileSaving(t *testing.T) {
	const findings, kills = 2000, 12
	path := filepath.Join(t.TempDir(), "store.db")
	k := store.ExternalKey{Namespace: "shop", Digest: key("web").Digest, Source: "ci"}
	saved, replaced := "", 0
	var took time.Duration
	for i := range kills {
		server := startReportServer(t, path)
		began := time.Now()
		name := fmt.Sprintf("CVE-%d", 2000+i)
		text, done := manyFindings(findings, name, began), make(chan error, 1)
		began = time.Now()
		go func() { done <- server.put(text) }()
		if i == 0 {
			if err := <-done; err != nil { // the first one is there
				t.Fatal(err)
			}
			took = time.Since(began)
		} else {
			// The delays are spread over one and a half times what it takes to save a report.
			time.Sleep(took * 3 * time.Duration(i-1) / (2 * (kills - 2)))
		}
		server.kill(t)
		now := requireWholeReport(t, path, k, findings)
		if now != name && now != saved {
			t.Fatalf("after kill %d, the report is %s, want %s or %s", i, now, saved, name)
		}
		if now == name {
			replaced++
		}
		saved = now
	}
	t.Logf("%d of %d reports were saved before the kill; one takes %v", replaced, kills, took)
}

// requireWholeReport returns the name of the findings of the report in a store. It fails the test unless text and findings are of one report.
func requireWholeReport(t *testing.T, path string, k store.ExternalKey, n int) (name string) {
	t.Helper()
	w := &harness{t: t}
	db, err := store.OpenSQLite(t.Context(), path, time.Now)
	w.must(err)
	defer func() { w.must(db.Close()) }()
	state, err := db.ExternalReport(t.Context(), k)
	w.must(err)
	findings, err := db.Findings(t.Context(), k.Subject())
	w.must(err)
	if len(findings) != n || state.Findings != n {
		t.Errorf("the report has %d findings, and says %d; want %d", len(findings), state.Findings, n)
	}
	text, _, err := db.OpenExternalReport(t.Context(), k)
	w.must(err)
	defer text.Close()
	compressed, err := io.ReadAll(text)
	w.must(err)
	document, err := cyclonedx.Decode(strings.NewReader(decompress(t, compressed)), time.Now())
	w.must(err)
	if !document.Timestamp.Truncate(time.Millisecond).Equal(state.Time) {
		t.Errorf("the text is of %v, the report of %v", document.Timestamp, state.Time)
	}
	for i, f := range finding.Merge(findings) { // in the order of the document's
		if f.Key() != document.Findings[i].Key() {
			t.Fatalf("the finding %s is not that of the text, %s", f.ID, document.Findings[i].ID)
		}
	}
	return findings[0].ID[:strings.LastIndex(findings[0].ID, "-")]
}

// reportServerProcess is a process with the API.
type reportServerProcess struct {
	command *exec.Cmd
	url     string
}

func startReportServer(t *testing.T, path string) *reportServerProcess {
	t.Helper()
	w := &harness{t: t}
	executable, err := os.Executable()
	w.must(err)
	s := &reportServerProcess{command: exec.CommandContext(t.Context(), executable)}
	s.command.Env = append(os.Environ(), reportServer+"="+path)
	s.command.Stderr = os.Stderr
	out, err := s.command.StdoutPipe()
	w.must(err)
	w.must(s.command.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	w.must(err)
	s.url = strings.TrimSpace(line)
	return s
}

// put saves a report, and returns an error unless it is saved. The error of a server that is killed is expected.
func (s *reportServerProcess) put(text string) error {
	r, err := http.NewRequest(http.MethodPut, s.url+reportPath("shop", "web", "ci"), strings.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+anyone)
	r.Header.Set("Content-Type", cyclonedx.MediaType)
	httpClient := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the test's own server
	response, err := httpClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}

func (s *reportServerProcess) kill(t *testing.T) {
	t.Helper()
	if err := s.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.command.Wait() // it was killed
}
