package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/restapi"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/events"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
	"github.com/scanner-operator/scanner-operator/ui"
)

var update = flag.Bool("update", false, "write what the commands print to testdata")

const operatorNamespace = "scanner-operator-system"

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	amd64 = image.Platform{OS: "linux", Architecture: "amd64"}
)

// world is a real API server, and the real REST API with a real store.
type world struct {
	t       testing.TB
	config  *rest.Config
	cluster client.Client
	store   *store.Store
	clock   *clocktesting.FakePassiveClock
	// url and caFile are those of the REST API and the web UI. api serves the REST API alone.
	url, caFile string
	api         http.Handler
	// browsed are the addresses that commands opened in a browser; browseErr is what they get.
	browsed   []string
	browseErr error
	dir       string
}

var (
	startOnce sync.Once
	shared    world
	startErr  error
	stopAll   = func() error { return nil }
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := stopAll(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the API server:", err)
	}
	os.Exit(code)
}

// newWorld returns the world that all tests share, with the fixture in it.
func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip(`needs an API server: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	startOnce.Do(func() { startErr = shared.start() })
	if startErr != nil {
		t.Fatal(startErr)
	}
	w := shared
	w.t = t
	w.dir = t.TempDir()
	return &w
}

// start starts everything once.
func (w *world) start() error {
	root := filepath.Join("..", "..", "..", "config")
	environment := &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join(root, "crd", "bases")}, ErrorIfCRDPathMissing: true}
	config, err := environment.Start()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	if w.cluster, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	w.config, w.clock = config, clocktesting.NewFakePassiveClock(noon)
	dir, err := os.MkdirTemp("", "kubectl-scanner")
	if err != nil {
		return err
	}
	if w.store, err = storetest.Open(context.Background(), filepath.Join(dir, "store.db"), w.clock.Now, store.OpenSQLite); err != nil {
		return err
	}
	api := &restapi.API{
		Reader: w.cluster, TokenReviews: w.cluster, AccessReviews: w.cluster, Store: w.store, Clock: w.clock, Metrics: prometheus.NewRegistry(),
		Inventory: &inventory.Inventory{Client: w.cluster, Store: w.store, Clock: w.clock}, Log: logr.Discard(),
		Events: &events.Server{Log: events.NewLog()},
	}
	key := make([]byte, 32)
	api.SessionKeys = func() ([][]byte, error) { return [][]byte{key}, nil }
	if w.api, err = api.Handler(); err != nil {
		return err
	}
	handler, err := ui.Handler(w.api, "")
	if err != nil {
		return err
	}
	server := httptest.NewTLSServer(handler)
	stopAll = func() error {
		server.Close()
		return errors.Join(w.store.Close(), os.RemoveAll(dir), environment.Stop())
	}
	w.url, w.caFile = server.URL, filepath.Join(dir, "ca.crt")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(w.caFile, certificate, 0o600); err != nil {
		return err
	}
	ctx := context.Background()
	for _, namespace := range []string{operatorNamespace, "people"} {
		if err := w.cluster.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			return err
		}
	}
	bundle := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "scanner-operator-ca"}, Data: map[string]string{"ca.crt": string(certificate)}}
	if err := w.cluster.Create(ctx, bundle); err != nil {
		return err
	}
	if err := w.createRoles(ctx, filepath.Join(root, "rbac", "user_roles.yaml")); err != nil {
		return err
	}
	return w.createFixture(ctx)
}

// createRoles creates the roles that the project ships for users.
func (w *world) createRoles(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(part, &kind); err != nil {
			return err
		}
		o, known := map[string]client.Object{"ClusterRole": &rbacv1.ClusterRole{}, "Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{}}[kind.Kind]
		if !known {
			return fmt.Errorf("%s has a %q", file, kind.Kind)
		}
		if err := yaml.Unmarshal(part, o); err != nil {
			return err
		}
		if kind.Kind != "ClusterRole" {
			o.SetNamespace(operatorNamespace)
		}
		if err := w.cluster.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

func key(name string) image.Key { return image.Key{Digest: digest("index " + name), Platform: amd64} }

// must fails the test after an error.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// token creates a ServiceAccount with ClusterRoles in a namespace, or in all (""), and returns a token of it.
func (w *world) token(account, namespace string, roles ...string) string {
	w.t.Helper()
	ctx := w.t.Context()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "people", Name: account}}
	w.must(client.IgnoreAlreadyExists(w.cluster.Create(ctx, sa)))
	for _, role := range roles {
		w.bind(account, namespace, role)
	}
	request := &authenticationv1.TokenRequest{}
	w.must(w.cluster.SubResource("token").Create(ctx, sa, request))
	return request.Status.Token
}

func (w *world) bind(account, namespace, role string) {
	w.t.Helper()
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "people", Name: account}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: account + "-" + role}
	var binding client.Object = &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}
	if namespace == "" {
		binding = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}
	}
	w.must(client.IgnoreAlreadyExists(w.cluster.Create(w.t.Context(), binding)))
	var granted rbacv1.ClusterRole
	w.must(w.cluster.Get(w.t.Context(), client.ObjectKey{Name: role}, &granted))
	for _, rule := range granted.Rules {
		w.waitForRule(account, namespace, rule)
	}
}

// waitForRule waits until the API server's authorizer, which reads roles and bindings by watches, allows a rule.
func (w *world) waitForRule(account, namespace string, rule rbacv1.PolicyRule) {
	w.t.Helper()
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	attributes := authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
	}
	if len(rule.ResourceNames) > 0 {
		attributes.Name = rule.ResourceNames[0]
	}
	err := wait.PollUntilContextTimeout(w.t.Context(), 10*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:people:" + account, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &attributes,
		}}
		err := w.cluster.Create(ctx, review)
		return review.Status.Allowed, err
	})
	if err != nil {
		w.t.Fatalf("%s was never allowed to %+v: %v", account, attributes, err)
	}
}

// kubeconfig writes a kubeconfig. Without a token it has the client certificate of the cluster's administrator.
func (w *world) kubeconfig(namespace, token string) string {
	w.t.Helper()
	user := &clientcmdapi.AuthInfo{Token: token}
	if token == "" {
		user = &clientcmdapi.AuthInfo{ClientCertificateData: w.config.CertData, ClientKeyData: w.config.KeyData}
	}
	file := filepath.Join(w.dir, fmt.Sprintf("%x", sha256.Sum256([]byte(namespace+token)))[:12])
	w.must(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: w.config.Host, CertificateAuthorityData: w.config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u", Namespace: namespace}},
		CurrentContext: "x",
	}, file))
	return file
}

// result is what a command printed.
type result struct {
	out, err string
	status   int
}

// run runs a command with a kubeconfig, and reaches the REST API by its address.
func (w *world) run(kubeconfig string, args ...string) result {
	w.t.Helper()
	return w.runWithInput(kubeconfig, strings.NewReader(""), args...)
}

func (w *world) runWithInput(kubeconfig string, in io.Reader, args ...string) result {
	w.t.Helper()
	var out, errOut bytes.Buffer
	app := App{Streams: genericiooptions.IOStreams{In: in, Out: &out, ErrOut: &errOut}, Clock: w.clock, Browse: w.browse}
	all := slices.Concat(args, []string{"--kubeconfig", kubeconfig, "--server", w.url, "--server-ca", w.caFile, "--cache-dir", w.dir})
	status := app.Run(w.t.Context(), all)
	return result{out: out.String(), err: errOut.String(), status: status}
}

func (w *world) browse(_ context.Context, address string) error {
	w.browsed = append(w.browsed, address)
	return w.browseErr
}

// golden compares what commands print with a file. "go test ./command -update" writes the file: look at it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// transcript is a command with everything that it prints, as a terminal would show it.
func transcript(args []string, r result) string {
	var text strings.Builder
	text.WriteString("$ kubectl scanner " + strings.Join(args, " ") + "\n" + r.out)
	for line := range strings.Lines(r.err) {
		text.WriteString("! " + line)
	}
	if r.status != 0 {
		fmt.Fprintf(&text, "exit status %d\n", r.status)
	}
	return text.String()
}

// createFixture creates the namespace shop, where some images have findings, one has failed and one is pending; blog, where all is well; archive, whose
// image was last matched with earlier data; lab, where images are excluded; idle, where nothing runs; and void, where nothing is scanned.
func (w *world) createFixture(ctx context.Context) error {
	f := fixture{world: w, ctx: ctx}
	f.namespaces("shop", "blog", "archive", "lab", "idle", "void")
	shop := f.scanner("shop", v1alpha1.ImageCounts{Total: 5, Scanned: 2, Pending: 1, Failed: 1, Excluded: 1})
	f.scanned(shop, "web", []string{"Deployment/web", "CronJob/report"},
		vulnerable("CVE-2026-0001", "openssl", "3.0.11", finding.Critical, "3.0.14", func(f *finding.Finding) { f.KnownExploited, f.EPSS = true, 0.93 }),
		vulnerable("CVE-2026-0002", "openssl", "3.0.11", finding.High, "3.0.14"),
		vulnerable("CVE-2026-0003", "zlib1g", "1.2.13", finding.High, ""),
		vulnerable("CVE-2026-0004", "=cmd()|calc", "\u202e1.0", finding.Low, ""))
	f.scanned(shop, "nginx", []string{"Deployment/nginx"},
		vulnerable("CVE-2026-0002", "openssl", "3.0.11", finding.High, "3.0.14"),
		vulnerable("CVE-2026-0005", "libxml2", "2.9.14", finding.Medium, "2.9.15"))
	f.scan(shop, "billing", func(s *v1alpha1.ImageScan) {
		s.Status.Phase, s.Status.Attempts, s.Status.NextAttemptTime = v1alpha1.PhaseFailed, 3, &metav1.Time{Time: noon.Add(4 * time.Minute)}
		s.Status.Workloads, s.Status.WorkloadCount = []string{"Deployment/billing"}, 1
		s.Status.Conditions = ready(metav1.ConditionFalse, "PullSecretMissing", "the registry ghcr.io requires credentials, and the Secret ghcr does not exist")
	})
	f.scan(shop, "queue", func(s *v1alpha1.ImageScan) {
		s.Status.Phase = v1alpha1.PhasePending
		s.Status.Conditions = ready(metav1.ConditionUnknown, v1alpha1.ReasonPending, "waiting for a free slot")
	})
	blog := f.scanner("blog", v1alpha1.ImageCounts{Total: 1, Scanned: 1})
	f.scanned(blog, "site", []string{"Deployment/site"})
	archive := f.scanner("archive", v1alpha1.ImageCounts{Total: 1, Scanned: 1})
	f.scannedWith("v0", archive, "books", []string{"Deployment/books"}, vulnerable("CVE-2026-0006", "zlib1g", "1.2.13", finding.Low, ""))
	lab := f.scanner("lab", v1alpha1.ImageCounts{Total: 3, Scanned: 1, Excluded: 2})
	f.scanned(lab, "probe", []string{"Deployment/probe"})
	f.scanner("idle", v1alpha1.ImageCounts{})
	f.do(w.store.SetDataVersion(ctx, "grype", store.DataVersion{Version: "v1"}))
	f.do(w.store.SaveVulnerabilityIDs(ctx, "grype", "v1", "CVE-1999-0001\n"))
	return f.err
}

// fixture creates objects until the first error.
type fixture struct {
	*world
	ctx context.Context
	err error
}

func (f *fixture) do(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *fixture) namespaces(names ...string) {
	for _, name := range names {
		f.do(f.cluster.Create(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
}

// create creates an object with its status.
func (f *fixture) create(o client.Object, setStatus func()) {
	if f.err != nil {
		return
	}
	f.do(f.cluster.Create(f.ctx, o))
	setStatus()
	f.do(f.cluster.Status().Update(f.ctx, o))
}

func ready(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}}
}

func (f *fixture) scanner(namespace string, images v1alpha1.ImageCounts) *v1alpha1.Scanner {
	s := &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"},
		Spec: v1alpha1.ScannerSpec{
			ScanSettings: v1alpha1.ScanSettings{Images: v1alpha1.ImageFilter{Exclude: []string{"*:dev-*"}}},
			Notifications: []v1alpha1.Receiver{{
				Name: "team", MinSeverity: "High", Slack: &v1alpha1.SlackReceiver{WebhookURLSecretRef: v1alpha1.SecretKeyReference{Name: "slack", Key: "url"}},
			}},
		},
	}
	f.create(s, func() {
		s.Status.Images, s.Status.ObservedGeneration = images, 1
		s.Status.Columns = v1alpha1.ScannerColumns{Images: strconv.Itoa(int(images.Total)), Critical: strconv.Itoa(int(images.Failed)), Messages: v1alpha1.MessagesDelivered}
		s.Status.VulnerabilityData = &v1alpha1.VulnerabilityData{BuildTime: metav1.NewTime(noon.Add(-6 * time.Hour)), Tool: "grype 0.110.0"}
		s.Status.Conditions = ready(metav1.ConditionTrue, v1alpha1.ReasonScanned, "all images were scanned")
		if images.Failed > 0 {
			s.Status.Findings = v1alpha1.FindingCounts{Critical: 1, High: 3, Medium: 1, Low: 1, Fixable: 4, KnownExploited: 1}
			s.Status.Conditions = ready(metav1.ConditionTrue, v1alpha1.ReasonSomeFailed, "1 of 5 images failed: PullSecretMissing")
		}
		s.Status.Receivers = []v1alpha1.ReceiverStatus{{
			Name: "team", LastDeliveryTime: &metav1.Time{Time: noon.Add(-2 * time.Hour)}, LastMessage: "1 new known exploited vulnerability in shop/web",
		}}
	})
	return s
}

// scan creates an ImageScan without a result.
func (f *fixture) scan(scanner *v1alpha1.Scanner, name string, change func(*v1alpha1.ImageScan)) *v1alpha1.ImageScan {
	s := &v1alpha1.ImageScan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: scanner.Namespace, Name: name + "-5f2c7a9d31e04b68",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(scanner, v1alpha1.GroupVersion.WithKind("Scanner"))},
		},
		Spec: v1alpha1.ImageScanSpec{
			Digest: key(name).Digest, DigestType: v1alpha1.DigestManifest, Platform: amd64.String(), ScannerRef: inventory.ReferenceTo(scanner),
			References: []string{"ghcr.io/" + scanner.Namespace + "/" + name + ":1.4"},
		},
	}
	f.create(s, func() {
		s.Status.Image = scanner.Namespace + "/" + name + ":1.4"
		change(s)
	})
	return s
}

// scanned creates an ImageScan with its result in the store.
func (f *fixture) scanned(scanner *v1alpha1.Scanner, name string, workloads []string, findings ...finding.Finding) {
	f.scannedWith("v1", scanner, name, workloads, findings...)
}

// scannedWith is scanned with a version of the vulnerability data.
func (f *fixture) scannedWith(data string, scanner *v1alpha1.Scanner, name string, workloads []string, findings ...finding.Finding) {
	f.scan(scanner, name, func(s *v1alpha1.ImageScan) {
		s.Status.Phase, s.Status.Workloads, s.Status.WorkloadCount = v1alpha1.PhaseScanned, workloads, int32(len(workloads))
		s.Status.Conditions = ready(metav1.ConditionTrue, v1alpha1.ReasonScanned, fmt.Sprintf("%d findings", len(findings)))
		s.Status.Findings = &v1alpha1.FindingCounts{}
		for i, one := range findings {
			switch one.Severity {
			case finding.Critical:
				s.Status.Findings.Critical++
			case finding.High:
				s.Status.Findings.High++
			case finding.Medium:
				s.Status.Findings.Medium++
			default:
				s.Status.Findings.Low++
			}
			if i < 2 {
				s.Status.TopFindings = append(s.Status.TopFindings, v1alpha1.TopFinding{
					ID: one.ID, Severity: one.Severity.String(), Package: one.Package.Name + " " + one.Package.Version, FixedIn: strings.Join(one.FixVersions, ", "),
				})
			}
			if one.Fixable() {
				s.Status.Findings.Fixable++
			}
			if one.KnownExploited {
				s.Status.Findings.KnownExploited++
			}
		}
		if name == "nginx" {
			s.Status.SBOM = &v1alpha1.SBOMOrigin{Source: v1alpha1.SBOMFromAttestation, Signer: "key sha256:4f9c2e0d8a1b7c35"}
		}
	})
	if f.err != nil {
		return
	}
	usage := store.ImageUsage{Scanner: string(scanner.UID), Namespace: scanner.Namespace, Key: key(name), Scope: store.Cluster, Engine: "grype"}
	for _, workload := range workloads {
		kind, workloadName, _ := strings.Cut(workload, "/")
		usage.Workloads = append(usage.Workloads, store.Workload{
			Namespace: scanner.Namespace, Kind: kind, Name: workloadName, Container: "main",
			Repository: "ghcr.io/" + scanner.Namespace + "/" + name, Reference: "ghcr.io/" + scanner.Namespace + "/" + name + ":1.4",
		})
	}
	f.do(f.store.SetUsage(f.ctx, usage))
	encoder, err := zstd.NewWriter(nil)
	f.do(err)
	sbom := encoder.EncodeAll([]byte(`{"artifacts":[{"name":"`+name+`"}]}`), nil)
	artifacts := map[store.Artifact]io.Reader{store.ArtifactSBOM: bytes.NewReader(sbom), store.ArtifactMatchInput: strings.NewReader("")}
	if name == "web" { // the other images were cataloged without another format
		artifacts[store.ArtifactSPDX] = bytes.NewReader(encoder.EncodeAll([]byte(`{"spdxVersion":"SPDX-2.3"}`), nil))
	}
	f.do(f.store.SaveCatalog(f.ctx, store.Catalog{
		Engine: "grype", Key: key(name), Scope: store.Cluster, PlatformDigest: digest(name), Tool: "syft 1", CatalogedAt: noon,
	}, artifacts))
	_, err = f.store.SaveReport(f.ctx, store.Report{
		Subject:     store.Subject{PlatformDigest: digest(name), Scope: store.Cluster, Engine: "grype"},
		DataVersion: data, MatchedAt: noon, Distro: "debian 12", Findings: findings,
	}, "")
	f.do(err)
}

func vulnerable(id, pkg, version string, severity finding.Severity, fixed string, changes ...func(*finding.Finding)) finding.Finding {
	f := finding.Finding{
		ID: id, Severity: severity, FixState: finding.FixStateNotFixed,
		Package: finding.Package{Name: pkg, Version: version, Type: "deb"},
	}
	if fixed != "" {
		f.FixState, f.FixVersions = finding.FixStateFixed, []string{fixed}
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}
