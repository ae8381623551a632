package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

const (
	scannerText = `# A comment.
---
apiVersion: scanner-operator.io/v1alpha1
kind: Scanner
metadata: {name: default, namespace: shop}
spec: {backend: {type: Grype}}
`
	clusterScannerText = `
apiVersion: scanner-operator.io/v1alpha1
kind: ClusterScanner
metadata: {name: platform}
spec: {namespaceSelector: {}, excludeNamespaces: [kube-system]}
`
	createdAt = "2026-11-23T20:00:00Z"
)

// aCreator returns a creator of a Scanner, in a cluster that answers the first attempts with errors, and what it prints.
func aCreator(t *testing.T, text string, answers []error, existing ...client.Object) (*creator, client.Client, *bytes.Buffer) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(existing...).WithStatusSubresource(&v1alpha1.Scanner{}).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(
			ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption,
		) error {
			if len(answers) == 0 {
				return c.Create(ctx, object, options...)
			}
			answer := answers[0]
			if len(answers) > 1 || answer == nil {
				answers = answers[1:]
			}
			if answer == nil {
				return c.Create(ctx, object, options...)
			}
			return answer
		}}).Build()
	var out bytes.Buffer
	work := &creator{
		out: &out, connect: func() (client.Client, error) { return cluster, nil }, interval: time.Millisecond,
		now: func() time.Time { at, _ := time.Parse(time.RFC3339, createdAt); return at },
	}
	if err := work.parse([]string{"--timeout=200ms", file}); err != nil {
		t.Fatal(err)
	}
	return work, cluster, &out
}

// TestCreateWaits: an object is created once its kind is served and the permission is known, and says that no manager has reported on it.
func TestCreateWaits(t *testing.T) {
	notServed := &meta.NoKindMatchError{
		GroupKind: schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Scanner"}, SearchedVersions: []string{"v1alpha1"},
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "scanners"}, "default", errors.New("no RBAC policy matched"))
	work, cluster, out := aCreator(t, scannerText, []error{notServed, notServed, forbidden, nil})
	if err := work.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var scanner v1alpha1.Scanner
	if err := cluster.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "default"}, &scanner); err != nil {
		t.Fatal(err)
	}
	ready := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionUnknown || ready.Reason != v1alpha1.ReasonWaitingForManager ||
		!strings.Contains(ready.Message, "kubectl -n scanner-operator-system get pods,pvc") ||
		ready.LastTransitionTime.UTC().Format(time.RFC3339) != createdAt {
		t.Errorf("the condition is %+v", ready)
	}
	if scanner.Spec.Backend.Type != v1alpha1.BackendGrype {
		t.Errorf("the Scanner has %+v", scanner.Spec)
	}
	want := "Scanner shop/default: not yet: " + notServed.Error() +
		"\nScanner shop/default: not yet: " + forbidden.Error() + "\nScanner shop/default: created\n"
	if out.String() != want {
		t.Errorf("it prints\n%s\nwant each reason once:\n%s", out, want)
	}
}

// TestCreateKeepsWhatExists: an object that exists keeps its spec and its status.
func TestCreateKeepsWhatExists(t *testing.T) {
	existing := &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"}}
	existing.Spec.Backend.Type = v1alpha1.BackendClair
	work, cluster, out := aCreator(t, scannerText, nil, existing)
	if err := work.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var scanner v1alpha1.Scanner
	if err := cluster.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "default"}, &scanner); err != nil {
		t.Fatal(err)
	}
	if scanner.Spec.Backend.Type != v1alpha1.BackendClair || len(scanner.Status.Conditions) > 0 || !strings.Contains(out.String(), "exists already") {
		t.Errorf("the Scanner is changed: %+v; printed: %s", scanner, out)
	}
}

// TestCreateGivesUp: a rejected object is an error at once, any other problem after the timeout.
func TestCreateGivesUp(t *testing.T) {
	for name, tt := range map[string]struct {
		answer error
		want   string
	}{
		"invalid":       {apierrors.NewInvalid(schema.GroupKind{Kind: "Scanner"}, "default", nil), "Scanner shop/default: Scanner \"default\" is invalid"},
		"unknown field": {apierrors.NewBadRequest(`strict decoding error: unknown field "spec.backnd"`), `unknown field "spec.backnd"`},
		"never served":  {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Scanner"}}, "not created within 200ms: no matches for kind"},
	} {
		t.Run(name, func(t *testing.T) {
			work, _, _ := aCreator(t, scannerText, []error{tt.answer})
			if err := work.run(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// TestCreateInvalid: only objects of the operator's own kinds are created.
func TestCreateInvalid(t *testing.T) {
	write := func(text string) []string {
		file := filepath.Join(t.TempDir(), "objects.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{file}
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no file":         {nil, "name one file"},
		"no such file":    {[]string{"none"}, "none"},
		"empty":           {write("---\n# nothing\n"), "no object"},
		"no YAML":         {write("a: b: c"), "mapping values"},
		"another kind":    {write("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"), `"Secret" of "v1": only kinds of scanner-operator.io`},
		"without a name":  {write("apiVersion: scanner-operator.io/v1alpha1\nkind: Scanner\n"), "Scanner: metadata.name is missing"},
		"too long":        {write(strings.Repeat("#", maxCreateBytes+1)), "more than"},
		"a wrong timeout": {append([]string{"--timeout=0s"}, write(scannerText)...), "--timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := new(creator).parse(tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// TestCreateBeforeItsCRD: against a real API server, an object is created once its CustomResourceDefinition is there, and an unknown field is an
// error. The quickstart applies its Job at the same time as the CRD.
func TestCreateBeforeItsCRD(t *testing.T) {
	c := newOwnCluster(t, administrator, olderCRDs(t))
	create := func(text string, flags ...string) (*exec.Cmd, *output) {
		file := filepath.Join(t.TempDir(), "objects.yaml")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		command := exec.CommandContext(t.Context(), os.Args[0], slices.Concat([]string{"create"}, flags, []string{file})...)
		command.Env = append(os.Environ(), asManager+"=1", "KUBECONFIG="+c.kubeconfig)
		says := &output{}
		command.Stdout, command.Stderr = says, says
		must(t, command.Start())
		return command, says
	}
	const exception = `
apiVersion: scanner-operator.io/v1alpha1
kind: ClusterVulnerabilityException
metadata: {name: kernel-headers}
spec:
  status: not_affected
  justification: vulnerable_code_not_present
  reason: Containers run on the kernel of their node
  packages: [{name: linux-libc-dev}]
  namespaceSelector: {}
`
	waiting, says := create(exception)
	c.Eventually(says.String, waitTimeout, "100ms").Should(ContainSubstring("not yet: no matches for kind"))
	c.applyCRDs()
	c.Expect(waiting.Wait()).To(Succeed(), says.String())
	c.Expect(says.String()).To(HaveSuffix("ClusterVulnerabilityException kernel-headers: created\n"))
	var created v1alpha1.ClusterVulnerabilityException
	c.Expect(c.client.Get(t.Context(), types.NamespacedName{Name: "kernel-headers"}, &created)).To(Succeed())

	misspelt, says := create(strings.NewReplacer("kernel-headers", "other", "reason:", "raeson:").Replace(exception))
	c.Expect(misspelt.Wait()).NotTo(Succeed())
	c.Expect(says.String()).To(ContainSubstring(`unknown field "spec.raeson"`))

	// With the chart's flag, an object that exists is changed, and keeps its status.
	for _, excluded := range []string{"kube-system", "shop"} {
		applied, says := create(strings.Replace(clusterScannerText, "kube-system", excluded, 1), "--apply-as=helm")
		c.Expect(applied.Wait()).To(Succeed(), says.String())
		c.Expect(says.String()).To(Equal("ClusterScanner platform: applied\n"))
		var scanner v1alpha1.ClusterScanner
		c.Expect(c.client.Get(t.Context(), types.NamespacedName{Name: "platform"}, &scanner)).To(Succeed())
		c.Expect(scanner.Spec.ExcludeNamespaces).To(Equal([]string{excluded}))
		ready := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionReady)
		if excluded == "kube-system" {
			c.Expect(ready.Reason).To(Equal(v1alpha1.ReasonWaitingForManager))
			ready.Reason = "ByTheManager"
			must(t, c.client.Status().Update(t.Context(), &scanner))
			continue
		}
		c.Expect(ready.Reason).To(Equal("ByTheManager"))
	}
}

// TestQuickstartObjects: what the quickstart creates is an object of the operator's own, and the Job's permission is for its name.
func TestQuickstartObjects(t *testing.T) {
	dir := filepath.Join("..", "..", "config", "quickstart")
	objects, err := readOwnObjects(filepath.Join(dir, "clusterscanner.yaml"))
	must(t, err)
	if len(objects) != 1 || objects[0].GetKind() != "ClusterScanner" {
		t.Fatalf("%v, want one ClusterScanner", objects)
	}
	permissions, err := os.ReadFile(filepath.Join(dir, "rbac.yaml"))
	must(t, err)
	if !strings.Contains(string(permissions), "resourceNames: ["+objects[0].GetName()+"]") {
		t.Errorf("the Job may not set the condition of %s:\n%s", objects[0].GetName(), permissions)
	}
}

// TestQuickstartIsAppliedOnce: on a cluster without the operator's kinds, one "kubectl apply" of the quickstart succeeds. The Job's command, which
// runs at the same time and with the Job's permissions, creates the ClusterScanner with a condition that says what to do without a manager.
func TestQuickstartIsAppliedOnce(t *testing.T) {
	needAPIServer(t)
	t.Parallel()
	g := NewWithT(t)
	server := &envtest.Environment{}
	_, err := server.Start()
	must(t, err)
	t.Cleanup(func() { must(t, server.Stop()) })
	kubeconfig := func(user envtest.User) string {
		added, err := server.AddUser(user, nil)
		must(t, err)
		text, err := added.KubeConfig()
		must(t, err)
		file := filepath.Join(t.TempDir(), "kubeconfig")
		must(t, os.WriteFile(file, text, 0o600))
		return file
	}
	account := envtest.User{
		Name:   "system:serviceaccount:" + defaultNamespace + ":scanner-operator-quickstart",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + defaultNamespace, "system:authenticated"},
	}
	dir := filepath.Join("..", "..", "config", "quickstart")
	job := exec.CommandContext(t.Context(), os.Args[0], "create", filepath.Join(dir, "clusterscanner.yaml"))
	job.Env = append(os.Environ(), asManager+"=1", "KUBECONFIG="+kubeconfig(account))
	says := &output{}
	job.Stdout, job.Stderr = says, says
	must(t, job.Start())
	g.Eventually(says.String, waitTimeout, "100ms").Should(ContainSubstring("not yet: "))

	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	rendered, err := exec.CommandContext(t.Context(), kubectl, "kustomize", dir).Output()
	must(t, err)
	apply := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", kubeconfig(administrator("")), "apply", "--server-side", "-f", "-")
	apply.Stdin = bytes.NewReader(rendered)
	printed, err := apply.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(printed))
	g.Expect(job.Wait()).To(Succeed(), says.String())

	c, err := client.New(server.Config, client.Options{Scheme: newScheme()})
	must(t, err)
	var created v1alpha1.ClusterScanner
	must(t, c.Get(t.Context(), types.NamespacedName{Name: "platform"}, &created))
	ready := meta.FindStatusCondition(created.Status.Conditions, v1alpha1.ConditionReady)
	g.Expect(ready).NotTo(BeNil(), says.String())
	g.Expect(string(ready.Status) + " " + ready.Reason).To(Equal("Unknown " + v1alpha1.ReasonWaitingForManager))
}
