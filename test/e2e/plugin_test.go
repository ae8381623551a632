package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// plugin runs kubectl-scanner as somebody who has a token and no other credentials.
type plugin struct {
	t          *testing.T
	kubeconfig string
	namespace  string
}

// pluginOf returns the plugin for the viewer of a namespace.
func pluginOf(t *testing.T, namespace string) plugin {
	t.Helper()
	config, err := clientcmd.LoadFromFile(os.Getenv("KUBECONFIG"))
	must(t, err)
	current := config.Contexts[config.CurrentContext]
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{current.AuthInfo: {Token: viewerOf(t, namespace)}}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, file))
	return plugin{t, file, namespace}
}

// command returns a command of the plugin.
func (p plugin) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "kubectl-scanner"), append(args, "--namespace="+p.namespace)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig)
	return c
}

// run returns the standard output and the standard error of a command, and fails the test if its exit status is another one.
func (p plugin) run(status int, args ...string) (results, remarks string) {
	p.t.Helper()
	c := p.command(p.t.Context(), args...)
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr = &out, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != status {
		p.t.Fatalf("kubectl scanner %s: exit status %d, want %d\n%s%s", strings.Join(args, " "), got, status, out.String(), stderr.String())
	}
	return out.String(), stderr.String()
}

// shows fails the test unless a command succeeds and its output has some texts.
func (p plugin) shows(want []string, args ...string) {
	p.t.Helper()
	results, remarks := p.run(0, args...)
	for _, text := range want {
		if !strings.Contains(results+remarks, text) {
			p.t.Errorf("kubectl scanner %s does not show %q:\n%s%s", strings.Join(args, " "), text, results, remarks)
		}
	}
}

// kubectl scanner reaches the REST API through the API server and the kubelet with the permissions that docs/use/kubectl-plugin.md names, and shows
// what the store has.
func TestKubectlPlugin(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "plugin")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "web", Image: env.Reference(images.Web)}))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	stored, err := env.Findings(t.Context(), ns)
	must(t, err)
	want := imageNamed(t, stored, images.Web).Findings
	worst := want[0]
	p := pluginOf(t, ns)

	if _, remarks := p.run(1, "findings"); !strings.Contains(remarks, "scanner-operator-connect") {
		t.Errorf("without permission for a port-forward, the error does not name the Role that has it: %s", remarks)
	}
	bind(t, scenario.SystemNamespace, ns+"-connect", "--role=scanner-operator-connect", ns)
	results, _ := p.run(0, "findings", "--output=json")
	var list struct {
		Items []struct {
			Finding struct {
				ID      string
				Package struct{ Name string }
			}
		}
		Complete bool
	}
	must(t, json.Unmarshal([]byte(results), &list))
	if !list.Complete || len(list.Items) != len(want) {
		t.Fatalf("the plugin has %d findings, complete: %v; the store has %d", len(list.Items), list.Complete, len(want))
	}
	for i, f := range want {
		if got := list.Items[i].Finding; got.ID != f.ID || got.Package.Name != f.Package.Name {
			t.Errorf("finding %d is %s in %s, want %s in %s", i, got.ID, got.Package.Name, f.ID, f.Package.Name)
		}
	}
	p.shows([]string{"ImageScan " + ns + "/", "Scanned", "receiver team"}, "why", "web")
	p.shows([]string{ns + "/" + scenario.ScannerName}, "status")
	p.shows([]string{worst.ID, worst.Package.Name, "Pod/web"}, "image", "web")
	p.shows([]string{"Pod/web", "1 container in 1 namespace runs it."}, "cve", worst.ID)
	p.shows([]string{"Nobody runs CVE-2022-3715", "1 image was asked; 0 pending, 0 failed, 0 not covered"}, "cve", "cve", "2022", "3715")
	if _, remarks := p.run(1, "cve", "CVE-1999-0001"); !strings.Contains(remarks, "CVE-1999-0001 is not known in the vulnerability data") {
		t.Errorf("of an ID that the database does not have, the plugin says %s", remarks)
	}
	p.shows([]string{"ENDS", "shop/web"}, "actions")
	p.shows([]string{`"artifacts"`, worst.Package.Name}, "sbom", "web")
	p.run(2, "findings", "--fail-on=any")

	bind(t, ns, "except", "--clusterrole=scanner-operator-except", ns)
	p.shows([]string{"will suppress"}, "except", worst.ID, "--until=30d", "--reason=waits for the vendor", "--yes")
	waitFor(t, "no finding "+worst.ID, func(ctx context.Context) error {
		out, err := p.command(ctx, "findings").Output()
		if err == nil && bytes.Contains(out, []byte(worst.ID+" ")) {
			err = errors.New("it is still listed")
		}
		return err
	})
	p.shows([]string{worst.ID}, "findings", "--suppressed")
	bind(t, ns, "edit", "--clusterrole=scanner-operator-edit", ns)
	p.run(0, "rescan", "web")
	p.signsIn()
}

// signsIn opens the address that "kubectl scanner ui" prints, as a browser does.
func (p plugin) signsIn() {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	c := p.command(ctx, "ui", "--no-browser")
	out, err := c.StdoutPipe()
	must(p.t, err)
	must(p.t, c.Start())
	defer func() { cancel(); _ = c.Wait() }()
	text := make([]byte, 1024)
	n, err := out.Read(text)
	must(p.t, err)
	address, err := url.Parse(strings.TrimSpace(string(text[:n])))
	must(p.t, err)
	code, found := strings.CutPrefix(address.Fragment, "code=")
	if !found || address.Query().Get("namespace") != p.namespace {
		p.t.Fatalf("the address is %s, want one of the namespace %s with a code", address.Redacted(), p.namespace)
	}
	_, client := forwarded(p.t)
	client.Jar, err = cookiejar.New(nil)
	must(p.t, err)
	body, err := json.Marshal(map[string]string{"code": code})
	must(p.t, err)
	session := "https://localhost:" + address.Port() + "/api/v1/session" // the name in the certificate
	for i, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, session, bytes.NewReader(body))
		must(p.t, err)
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		must(p.t, err)
		_ = response.Body.Close()
		if response.StatusCode != want {
			p.t.Errorf("use %d of the code: %s, want %d", i+1, response.Status, want)
		}
	}
}

// bind binds a role to the viewer of a namespace until the test ends.
func bind(t *testing.T, in, name, role, viewerOf string) {
	t.Helper()
	_, err := env.Kubectl(t.Context(), "--namespace="+in, "create", "rolebinding", name, role, "--serviceaccount="+viewerOf+":viewer")
	must(t, err)
	t.Cleanup(func() { _, _ = env.Kubectl(context.Background(), "--namespace="+in, "delete", "rolebinding", name) })
}
