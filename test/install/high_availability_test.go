package install

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	restclient "github.com/scanner-operator/scanner-operator/api/rest/v1/client"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// TestHighAvailability follows docs/operate/high-availability.md with Helm: two managers and two notifiers. Then both managers are upgraded to a
// version that adds to the schema of the store, and back. Meanwhile clients read, upload and follow the live updates through the Service, and a
// browser has the web UI open: no request fails, no page shows an error or has to be loaded again, and the receivers hear nothing of it.
func TestHighAvailability(t *testing.T) {
	newer := filepath.Join(env.Root, "bin", "newer")
	operator, err := scenario.ImagesOf(newer)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("needs the images of a later version: make e2e-ha")
	}
	must(t, err)
	page, server, helm := readPage(t, "docs/operate/high-availability.md"), readPage(t, "docs/operate/store-server.md"), readPage(t, "docs/operate/install/helm.md")
	useHelm(t)
	startFromNothing(t)
	prepareServer(t, server)
	values := " --values " + helmValues(t) + " --values " + serverValues(t, server) + " --values " + writeWork(t, "ha-values.yaml", page.block(t, "High availability", "yaml"))
	_, install, _ := strings.Cut(helm.block(t, "Install", "bash"), "helm install")
	bash(t, "helm install"+strings.Replace(install, published, currentChart(t)+values, 1))
	ns := scannedAndAnnounced(t)
	found := findings(t, ns)
	requireReplicas(t, ns)
	before := schemaOf(t, ns)

	browser := newClient(t, ns)
	finish, err := env.KeepWebUIOpen(t.Context(), browser.url, browser.token, ns, images.Cache)
	must(t, err)
	c := startClients(t, ns)
	defer c.stop()
	helm.followWith(t, "Upgrade", published, chartOf(t, "0.1.1", operator))
	rollOut(t)
	if after := schemaOf(t, ns); after <= before {
		t.Errorf("the schema is %d after the upgrade and was %d before", after, before)
	}
	c.check(t, "the upgrade")
	requireReplicas(t, ns)
	helm.followWith(t, "Upgrade", published, currentChart(t))
	rollOut(t)
	c.check(t, "the way back")
	requireReplicas(t, ns)
	c.stop()
	requireUnchanged(t, ns, found)
	checkNewImageAnnounced(t, ns)
	if err := finish(); err != nil {
		t.Errorf("the web UI during the upgrades: %v", err)
	}

	helm.follow(t, "Uninstall")
	removeServer(t)
	page.follow(t, "What stays")
	requireNothingLeft(t, helm.list(t, "What stays")...)
	kubectl(t, "delete", "namespace", ns, "--timeout=60s")
	helm.follow(t, "What stays")
	requireNothingLeft(t)
}

// rollOut waits until the pods of both Deployments are replaced, and the last ones have gone.
func rollOut(t *testing.T) {
	t.Helper()
	for _, deployment := range []string{scenario.ManagerDeployment, scenario.NotifierDeployment} {
		must(t, env.WaitForRollout(t.Context(), scenario.SystemNamespace, deployment))
	}
	eventually(t, func(ctx context.Context) error {
		pods, err := env.Kubectl(ctx, "--namespace", scenario.SystemNamespace, "get", "pods", "--selector=app.kubernetes.io/name=scanner-operator,app.kubernetes.io/component in (manager,notifier)", "--output=name")
		if n := len(strings.Fields(pods)); err == nil && n != 4 {
			err = fmt.Errorf("there are %d pods, want 4", n)
		}
		return err
	})
}

// operatorStatus returns what the REST API says about the operator.
func operatorStatus(t *testing.T, ns string) (status *restv1.Operator) {
	t.Helper()
	c := newClient(t, ns)
	eventually(t, func(ctx context.Context) error {
		answer, err := c.api.GetOperatorWithResponse(ctx)
		if err == nil && answer.JSON200 == nil {
			err = fmt.Errorf("operator: %d %s", answer.StatusCode(), answer.Body)
		}
		if err != nil {
			return err
		}
		status = answer.JSON200
		return nil
	})
	return status
}

func schemaOf(t *testing.T, ns string) int64 {
	t.Helper()
	return operatorStatus(t, ns).Store.Schema
}

// requireReplicas checks that the operator shows two replicas, both ready, one of which leads.
func requireReplicas(t *testing.T, ns string) {
	t.Helper()
	eventually(t, func(context.Context) error {
		leading, replicas := 0, operatorStatus(t, ns).Replicas
		for _, r := range replicas {
			if r.Leads {
				leading++
			}
			if !r.Ready {
				return fmt.Errorf("the replica %s is not ready", r.Name)
			}
		}
		if len(replicas) != 2 || leading != 1 {
			return fmt.Errorf("replicas: %+v, want two, one of which leads", replicas)
		}
		return nil
	})
}

// apiClient is a client of the REST API that connects to the Service anew for each request, as those of other programs do.
type apiClient struct {
	api *restclient.ClientWithResponses
	// streams has no time limit.
	streams    *http.Client
	url, token string
}

// newClient returns a client with an account in a namespace, which may view everything and save reports.
func newClient(t *testing.T, ns string) *apiClient {
	t.Helper()
	address := strings.TrimSpace(kubectl(t, "--namespace", scenario.SystemNamespace, "get", "service", "scanner-operator-api", "--output=jsonpath={.spec.clusterIP}"))
	name := "ha-" + ns
	for _, args := range [][]string{
		{"--namespace", ns, "create", "serviceaccount", name},
		{"create", "clusterrolebinding", name, "--clusterrole=scanner-operator-view", "--serviceaccount=" + ns + ":" + name},
		{"--namespace", ns, "create", "rolebinding", name, "--clusterrole=scanner-operator-report", "--serviceaccount=" + ns + ":" + name},
	} {
		if _, err := env.Kubectl(t.Context(), args...); err != nil && !strings.Contains(err.Error(), "already exists") {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_, _ = env.Kubectl(context.Background(), "delete", "clusterrolebinding", name, "--ignore-not-found")
	})
	c := &apiClient{url: "https://" + address, token: strings.TrimSpace(kubectl(t, "--namespace", ns, "create", "token", name, "--duration=1h"))}
	// Which certificate the Service has is tested elsewhere.
	c.streams = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true,
	}}
	requests := &http.Client{Transport: c.streams.Transport, Timeout: 30 * time.Second}
	var err error
	c.api, err = restclient.NewClientWithResponses(c.url, restclient.WithHTTPClient(requests), restclient.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+c.token)
		return nil
	}))
	must(t, err)
	return c
}

// clients are requests that go on until stop is called.
type clients struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	sent   map[string]int
	failed []error
}

// startClients starts a client that reads, one that uploads, and one that follows the live updates as a browser does.
func startClients(t *testing.T, ns string) *clients {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c, client := &clients{cancel: cancel, sent: map[string]int{}}, newClient(t, ns)
	list, err := client.api.ListImageScansWithResponse(ctx, ns, nil)
	must(t, err)
	if list.JSON200 == nil || len(list.JSON200.Items) == 0 {
		t.Fatalf("images of %s: %d %s", ns, list.StatusCode(), list.Body)
	}
	digest := list.JSON200.Items[0].Digest
	c.repeat(ctx, "read", 100*time.Millisecond, func(ctx context.Context) error {
		answer, err := client.api.ListImageScansWithResponse(ctx, ns, nil)
		if err == nil && answer.StatusCode() != http.StatusOK {
			err = fmt.Errorf("%d %s", answer.StatusCode(), answer.Body)
		}
		return err
	})
	// A replica accepts 60 a minute, and one of them may get all.
	c.repeat(ctx, "upload", 1500*time.Millisecond, func(ctx context.Context) error {
		report := fmt.Sprintf(`{"bomFormat":"CycloneDX","specVersion":"1.6","metadata":{"timestamp":%q},"components":[],"vulnerabilities":[]}`, time.Now().UTC().Format(time.RFC3339Nano))
		answer, err := client.api.PutExternalReportWithBodyWithResponse(ctx, ns, digest, "ha", nil, "application/vnd.cyclonedx+json", strings.NewReader(report))
		if err == nil && answer.StatusCode() >= 300 {
			err = fmt.Errorf("%d %s", answer.StatusCode(), answer.Body)
		}
		return err
	})
	c.repeat(ctx, "stream", 100*time.Millisecond, func(ctx context.Context) error { return client.follow(ctx) })
	return c
}

// follow follows the live updates until the replica says that it ends.
func (c *apiClient) follow(ctx context.Context) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/api/v1/events", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := c.streams.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	switch {
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%d %s", response.StatusCode, text)
	case err == nil && !strings.Contains(string(text), `"type":"bye"`):
		return fmt.Errorf("the stream ended without a word: %s", text)
	}
	return err
}

// repeat sends requests one after the other, and begins at most one in each interval.
func (c *clients) repeat(ctx context.Context, what string, interval time.Duration, send func(context.Context) error) {
	c.done.Go(func() {
		ticks := time.NewTicker(interval)
		defer ticks.Stop()
		for ctx.Err() == nil {
			began := time.Now()
			err := send(ctx)
			c.mu.Lock()
			c.sent[what]++
			if err != nil && ctx.Err() == nil {
				c.failed = append(c.failed, fmt.Errorf("%s at %s: %w", what, began.Format(time.TimeOnly), err))
			}
			c.mu.Unlock()
			select {
			case <-ticks.C:
			case <-ctx.Done():
			}
		}
	})
}

// check fails the test if a request has failed so far.
func (c *clients) check(t *testing.T, during string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("requests until after %s: %v, %d failed", during, c.sent, len(c.failed))
	for i, err := range c.failed {
		if i < 10 {
			t.Errorf("%s: %v", during, err)
		}
	}
	if c.sent["read"] < 50 || c.sent["upload"] < 5 {
		t.Errorf("%s: %v requests are too few to prove anything", during, c.sent)
	}
	c.failed = nil
}

// stop ends all clients.
func (c *clients) stop() {
	c.cancel()
	c.done.Wait()
}
