package scenario

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	restclient "github.com/scanner-operator/scanner-operator/api/rest/v1/client"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Viewer creates a ServiceAccount that may view a namespace, unless it is there, and returns a token for it.
func (e *Environment) Viewer(ctx context.Context, namespace string) (token string, err error) {
	for _, args := range [][]string{
		{"create", "serviceaccount", "viewer"},
		{"create", "rolebinding", "viewer", "--clusterrole=scanner-operator-view", "--serviceaccount=" + namespace + ":viewer"},
	} {
		if _, err := e.Kubectl(ctx, append([]string{"--namespace", namespace}, args...)...); err != nil && !strings.Contains(err.Error(), "already exists") {
			return "", err
		}
	}
	token, err = e.Kubectl(ctx, "--namespace", namespace, "create", "token", "viewer")
	return strings.TrimSpace(token), err
}

var forwarding = regexp.MustCompile(`Forwarding from 127\.0\.0\.1:([0-9]+)`)

// Forward connects to a Service of the operator by "kubectl port-forward" until the context ends, and returns the local port.
func (e *Environment) Forward(ctx context.Context, service, port string) (local string, err error) {
	command := exec.CommandContext(ctx, "kubectl", "--namespace", SystemNamespace, "port-forward", "service/"+service, ":"+port)
	out, err := command.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := command.Start(); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := forwarding.FindStringSubmatch(lines.Text()); found != nil {
			go func() {
				_, _ = io.Copy(io.Discard, out)
				_ = command.Wait()
			}()
			return found[1], nil
		}
	}
	return "", errors.Join(errors.New("kubectl port-forward ended before it was ready"), command.Wait())
}

// ForwardAPI connects to the REST API as docs/integrate/rest-api.md describes, until the context ends: by port-forward, verified with the
// published certificates.
func (e *Environment) ForwardAPI(ctx context.Context) (url string, client *http.Client, err error) {
	bundle, err := e.Kubectl(ctx, "--namespace", SystemNamespace, "get", "configmap", "scanner-operator-ca", "--output", `jsonpath={.data.ca\.crt}`)
	if err != nil {
		return "", nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(bundle)) {
		return "", nil, fmt.Errorf("the ConfigMap scanner-operator-ca has no certificates: %q", bundle)
	}
	port, err := e.Forward(ctx, "scanner-operator-api", "443")
	return "https://localhost:" + port, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}}, err
}

// withToken adds a token to the requests of a client.
func withToken(token string) restclient.RequestEditorFn {
	return func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
}

// Overview returns what the web UI's first page shows to a viewer of a namespace.
func (e *Environment) Overview(ctx context.Context, namespace string) (*restv1.Overview, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	token, err := e.Viewer(ctx, namespace)
	if err != nil {
		return nil, err
	}
	url, client, err := e.ForwardAPI(ctx)
	if err != nil {
		return nil, err
	}
	api, err := restclient.NewClientWithResponses(url, restclient.WithHTTPClient(client), restclient.WithRequestEditorFn(withToken(token)))
	if err != nil {
		return nil, err
	}
	response, err := api.GetOverviewWithResponse(ctx, &restv1.GetOverviewParams{Namespace: &namespace})
	if err != nil {
		return nil, err
	}
	if response.JSON200 == nil {
		return nil, fmt.Errorf("overview: %s", response.Body)
	}
	return response.JSON200, nil
}

// metricsTime bounds how long it takes until metrics show what the status shows, and until a new permission counts.
const metricsTime = time.Minute

// checkNumbers compares the numbers of findings in the status of each Scanner, which the summary in Slack has as well, with those of the web UI's
// first page and of the metrics.
func (e *Environment) checkNumbers(ctx context.Context) (string, error) {
	var shown []string
	for _, namespace := range e.namespaces() {
		scanner, err := e.Scanner(ctx, namespace)
		if err != nil {
			return "", err
		}
		want := scanner.Status.Findings
		overview, err := e.Overview(ctx, namespace)
		if err != nil {
			return "", err
		}
		if got := countsOf(overview.Findings); got != numbers(want) {
			return "", fmt.Errorf("%s: the web UI shows %v, the Scanner has %v", namespace, got, numbers(want))
		}
		if got := overview.Coverage.Scanned; got != int(scanner.Status.Images.Scanned) {
			return "", fmt.Errorf("%s: the web UI shows %d scanned images, the Scanner has %d", namespace, got, scanner.Status.Images.Scanned)
		}
		shown = append(shown, fmt.Sprintf("%d Critical and %d High in %s", want.Critical, want.High, namespace))
	}
	return strings.Join(shown, ", "), e.checkMetrics(ctx)
}

// counts are numbers of findings: critical, high, medium, low, negligible, unknown, fixable, known exploited.
type counts [8]int

func numbers(c v1alpha1.FindingCounts) counts {
	var n counts
	for i, value := range []int32{c.Critical, c.High, c.Medium, c.Low, c.Negligible, c.Unknown, c.Fixable, c.KnownExploited} {
		n[i] = int(value)
	}
	return n
}

func countsOf(c restv1.FindingCounts) counts {
	return counts{c.Critical, c.High, c.Medium, c.Low, c.Negligible, c.Unknown, c.Fixable, c.KnownExploited}
}

// checkMetrics compares the metrics of each Scanner with its status.
func (e *Environment) checkMetrics(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	token, err := e.Viewer(ctx, e.Production())
	if err != nil {
		return err
	}
	const binding = "scanner-operator-demo-metrics"
	if _, err := e.Kubectl(ctx, "create", "clusterrolebinding", binding, "--clusterrole=system:monitoring", "--serviceaccount="+e.Production()+":viewer"); err != nil {
		return err
	}
	defer func() { _, _ = e.Kubectl(context.WithoutCancel(ctx), "delete", "clusterrolebinding", binding) }()
	port, err := e.Forward(ctx, "scanner-operator-metrics", "8443")
	if err != nil {
		return err
	}
	// The certificate of the metrics is of no authority: docs/operate/monitoring.md.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return wait.Eventually(ctx, metricsTime, wait.Normally, func(ctx context.Context) error {
		text, err := get(ctx, client, "https://localhost:"+port+"/metrics", token)
		if err != nil {
			return err
		}
		for _, namespace := range e.namespaces() {
			scanner, err := e.Scanner(ctx, namespace)
			if err != nil {
				return err
			}
			got, err := measured(text, namespace)
			if err != nil {
				return err
			}
			if want := numbers(scanner.Status.Findings); got != want {
				return fmt.Errorf("%s: the metrics have %v, the Scanner has %v", namespace, got, want)
			}
		}
		return nil
	})
}

// measured returns the numbers of a namespace's Scanner in metrics.
func measured(metrics, namespace string) (n counts, err error) {
	for i, severity := range []string{"critical", "high", "medium", "low", "negligible", "unknown"} {
		lines := ""
		for line := range strings.Lines(metrics) {
			if strings.Contains(strings.ToLower(line), `severity="`+severity+`"`) {
				lines += line
			}
		}
		if n[i], err = total(lines, "scanner_operator_findings{", `scanner_namespace="`+namespace+`"`); err != nil {
			return n, err
		}
	}
	for i, name := range []string{"scanner_operator_findings_fixable{", "scanner_operator_findings_known_exploited{"} {
		if n[6+i], err = total(metrics, name, `scanner_namespace="`+namespace+`"`); err != nil {
			return n, err
		}
	}
	return n, nil
}

// get returns the body of a GET request.
func get(ctx context.Context, client *http.Client, url, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %d %s", url, response.StatusCode, body)
	}
	return string(body), err
}
