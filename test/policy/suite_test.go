package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	home = "scanner-operator-system" // the operator's namespace
	shop = "shop"                    // a tenant's namespace, as in the golden files

	manager     = "scanner-operator-manager"
	notifier    = "scanner-operator-notifier"
	workerImage = "registry.example.com/scanner-grype:v1" // as in the golden files
)

// background is for work that outlives a test: shared setup, and cleanup.
var background = context.Background()

// policyTimeout is the maximum time until a new policy is effective in the API server.
const policyTimeout = 60 * time.Second

// cluster is an API server with the operator's manifests.
type cluster struct {
	config *rest.Config
	// admin has all permissions. thief has the manager's token with its real permissions. mighty is the manager with all permissions, as
	// after an administrator's mistake. notifier and privilegedNotifier are the same for the notifier.
	admin, thief, privileged, notifier, privilegedNotifier client.Client
}

var (
	startOnce sync.Once
	started   *cluster
	startErr  error
	stop      = func() error { return nil }
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the API server:", err)
	}
	os.Exit(code)
}

// requireAssets returns the directory of the API server and kubectl, and skips the test without them.
func requireAssets(t *testing.T) string {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Skip(`needs an API server and kubectl: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	return assets
}

// sharedCluster returns the shared API server and starts it for the first test.
func sharedCluster(t *testing.T) *cluster {
	t.Helper()
	requireAssets(t)
	startOnce.Do(func() { started, startErr = start(t) })
	if startErr != nil || started == nil {
		t.Fatalf("the operator is not installed on an API server: %v", startErr)
	}
	return started
}

func start(t *testing.T) (*cluster, error) {
	server := &envtest.Environment{}
	config, err := server.Start()
	if err != nil {
		return nil, err
	}
	stop = server.Stop
	config.QPS = -1 // no client-side rate limit
	c := &cluster{config: config}
	if c.admin, err = client.New(config, client.Options{}); err != nil {
		return nil, err
	}
	ctx := background
	if err := c.apply(ctx, render(t, above(t, overlay(t, home), "notifier-clair-webhooks"))); err != nil {
		return nil, err
	}
	if err := c.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}); err != nil {
		return nil, err
	}
	if c.thief, err = c.as(ctx, home, manager); err != nil {
		return nil, err
	}
	if c.privileged, err = c.privilegedAs("system:serviceaccount:" + home + ":" + manager); err != nil {
		return nil, err
	}
	if c.notifier, err = c.as(ctx, home, notifier); err != nil {
		return nil, err
	}
	if c.privilegedNotifier, err = c.privilegedAs("system:serviceaccount:" + home + ":" + notifier); err != nil {
		return nil, err
	}
	c.effective(t)
	return c, nil
}

// effective waits until each policy is effective: the API server loads the policies one by one.
func (c *cluster) effective(t *testing.T) {
	t.Helper()
	ctx, g := background, gomega.NewWithT(t)
	pod, job := somePod("probe"), golden(t, "match-job.yaml")
	job.Name, job.Labels = "probe", nil
	for _, o := range []client.Object{pod, job} {
		if err := c.admin.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	evil := golden(t, "match-job.yaml")
	evil.Spec.Template.Spec.Containers[0].Image = "evil"
	meta := metav1.ObjectMeta{Namespace: home, Name: "evil"}
	scanner := aScanner("probe")
	// The API server serves a kind only a moment after its CRD is created.
	g.Eventually(func() error { return c.admin.Create(ctx, scanner) }, policyTimeout, "100ms").Should(gomega.Succeed())
	scan := anImageScan("probe")
	g.Eventually(func() error { return c.admin.Create(ctx, scan) }, policyTimeout, "100ms").Should(gomega.Succeed())
	g.Eventually(func() string {
		return fmt.Sprint(c.privilegedNotifier.Patch(ctx, scan.DeepCopy(), merge(`{"spec":{"references":["evil"]}}`), client.DryRunAll))
	}, policyTimeout, "100ms").Should(gomega.ContainSubstring("ValidatingAdmissionPolicy 'scanner-operator-notifier-imagescans'"))
	for policy, request := range map[string]func() error{
		"pods": func() error {
			return c.privileged.Patch(ctx, pod.DeepCopy(), merge(`{"metadata":{"labels":{"app":"evil"}}}`), client.DryRunAll)
		},
		"jobs":          func() error { return c.privileged.Create(ctx, evil.DeepCopy(), client.DryRunAll) },
		"existing-jobs": func() error { return c.privileged.Delete(ctx, job.DeepCopy(), client.DryRunAll) },
		"secrets":       func() error { return c.privileged.Create(ctx, &corev1.Secret{ObjectMeta: meta}, client.DryRunAll) },
		"configmaps":    func() error { return c.privileged.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, client.DryRunAll) },
		"claims":        func() error { return c.privileged.Create(ctx, claim("evil"), client.DryRunAll) },
		"scanners": func() error {
			return c.privileged.Patch(ctx, scanner.DeepCopy(), merge(`{"spec":{"suspend":true}}`), client.DryRunAll)
		},
	} {
		g.Eventually(func() string { return fmt.Sprint(request()) }, policyTimeout, "100ms").Should(
			gomega.ContainSubstring("ValidatingAdmissionPolicy 'scanner-operator-manager-"+policy+"'"), "the policy for "+policy)
	}
}

// privilegedAs returns a client for a user with all RBAC permissions.
func (c *cluster) privilegedAs(user string) (client.Client, error) {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	return client.New(config, client.Options{})
}

// as returns a client with a token of a ServiceAccount, requested as the kubelet does.
func (c *cluster) as(ctx context.Context, namespace, name string) (client.Client, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.admin.Create(ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	request := &authenticationv1.TokenRequest{}
	if err := c.admin.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken, config.QPS = request.Status.Token, -1
	return client.New(config, client.Options{})
}

// apply creates the objects that kustomize has printed.
func (c *cluster) apply(ctx context.Context, rendered string) error {
	objects, err := decode(rendered)
	if err != nil {
		return err
	}
	var errs []error
	for i := range objects {
		if err := c.admin.Create(ctx, &objects[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", objects[i].GetKind(), objects[i].GetName(), err))
		}
	}
	return errors.Join(errs...)
}

func decode(rendered string) ([]unstructured.Unstructured, error) {
	var objects []unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(rendered), 4096)
	for {
		var object unstructured.Unstructured
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// render returns the output of "kubectl kustomize".
func render(t *testing.T, dir string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(requireAssets(t), "kubectl"), "kustomize", dir)
	var problems strings.Builder
	command.Stderr = &problems
	text, err := command.Output()
	if err != nil {
		t.Fatalf("kubectl kustomize: %v\n%s", err, problems.String())
	}
	return string(text)
}
