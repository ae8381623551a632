package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/operator-framework/api/crds"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/process"
)

// asManager is the variable that makes the test binary run as the manager, with real flags, signals and files.
const asManager = "MANAGER_TEST_CHILD"

// waitTimeout is long, since a lease lasts 10 s and the machine of a test may be slow.
const waitTimeout = 90 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(asManager) != "" {
		os.Args[0] = "/scanner-operator" // as the image has it
		main()
	}
	ctrl.SetLogger(logr.Discard())
	// Managers under test mostly wait. If only as many tests ran at a time as there are processors, they would wait one after the other.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := sharedServer.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the API server:", err)
	}
	os.Exit(code)
}

// cluster is a real API server with the operator's CRDs, and an operator's namespace, a node and a namespace with a Scanner of the test's own.
type cluster struct {
	Gomega
	t      *testing.T
	client client.Client
	// system is the operator's namespace, shop the one with the Scanner.
	system, shop string
	// watched are the namespaces that the operator watches, with commas between them; empty means all.
	watched string
	// kubeconfig connects to the API server through the proxy.
	kubeconfig string
	proxy      *stallingProxy
}

// definitions is the directory with the operator's CRDs.
var definitions = filepath.Join("..", "..", "config", "crd", "bases")

// sharedServer is the API server of all tests that change nothing but their own namespaces. The first of them starts it.
var (
	sharedServer = &envtest.Environment{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{crds.OperatorCondition()}, CRDDirectoryPaths: []string{definitions}, ErrorIfCRDPathMissing: true,
	}
	startSharedServer = sync.OnceValue(func() error { _, err := sharedServer.Start(); return err })
)

// administrator is a user who may do everything.
func administrator(string) envtest.User {
	return envtest.User{Name: "operator", Groups: []string{"system:masters"}}
}

// newCluster returns a cluster whose operator may do everything in the namespaces of this test. Other tests share the API server.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := newSharedCluster(t, administrator)
	c.watched = c.system + "," + c.shop
	return c
}

// newSharedCluster returns a cluster with the operator as the user that userOf returns for its namespace. Other tests share the API server.
func newSharedCluster(t *testing.T, userOf func(system string) envtest.User) *cluster {
	t.Helper()
	needAPIServer(t)
	t.Parallel()
	if err := startSharedServer(); err != nil {
		t.Fatal(err)
	}
	return newClusterOn(t, sharedServer, userOf)
}

// newOwnCluster returns a cluster with an API server of its own, with the CRDs of a directory.
func newOwnCluster(t *testing.T, userOf func(system string) envtest.User, kinds string) *cluster {
	t.Helper()
	needAPIServer(t)
	t.Parallel()
	server := &envtest.Environment{CRDDirectoryPaths: []string{kinds}, ErrorIfCRDPathMissing: true}
	if _, err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, server.Stop()) })
	return newClusterOn(t, server, userOf)
}

func needAPIServer(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip(`needs an API server: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
}

// newClusterOn creates the test's namespaces, node and Scanner on an API server.
func newClusterOn(t *testing.T, server *envtest.Environment, userOf func(system string) envtest.User) *cluster {
	t.Helper()
	name := strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	c := &cluster{Gomega: NewWithT(t), t: t, system: name + "-system", shop: name + "-shop", kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	var err error
	c.client, err = client.New(server.Config, client.Options{Scheme: newScheme()})
	c.Expect(err).NotTo(HaveOccurred())
	user, err := server.AddUser(userOf(c.system), nil)
	c.Expect(err).NotTo(HaveOccurred())
	text, err := user.KubeConfig()
	c.Expect(err).NotTo(HaveOccurred())
	loaded, err := clientcmd.Load(text)
	c.Expect(err).NotTo(HaveOccurred())
	for _, entry := range loaded.Clusters {
		scheme, address, _ := strings.Cut(entry.Server, "://")
		c.proxy = newStallingProxy(t, strings.TrimSuffix(address, "/"))
		entry.Server = scheme + "://" + c.proxy.address
	}
	c.Expect(clientcmd.WriteToFile(*loaded, c.kubeconfig)).To(Succeed())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.shop}}
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.system}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.shop}}, node)
	node.Status.NodeInfo = corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64"}
	c.Expect(c.client.Status().Update(t.Context(), node)).To(Succeed())
	c.create(&v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.shop, Name: "default"},
		Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}},
	})
	return c
}

func (c *cluster) create(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		c.Expect(c.client.Create(c.t.Context(), o)).To(Succeed())
	}
}

// createPod creates a pod with an image of its own in the namespace of the Scanner.
func (c *cluster) createPod(name string) {
	c.t.Helper()
	c.createPodIn(c.shop, name)
}

func (c *cluster) createPodIn(namespace, name string) {
	c.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: c.shop, Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/" + name + ":1"}}},
	}
	c.create(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", ImageID: fmt.Sprintf("registry.example.com/%s@sha256:%064x", name, []byte(name)), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}}
	c.Expect(c.client.Status().Update(c.t.Context(), pod)).To(Succeed())
}

// waitScanned waits until the Scanner has exactly this number of images, all of them scanned.
func (c *cluster) waitScanned(images int32) {
	c.t.Helper()
	c.waitScannedIn(c.shop, images)
}

func (c *cluster) waitScannedIn(namespace string, images int32) {
	c.t.Helper()
	c.Eventually(func() (v1alpha1.ImageCounts, error) {
		var scanner v1alpha1.Scanner
		err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, &scanner)
		return scanner.Status.Images, err
	}, waitTimeout, "250ms").Should(Equal(v1alpha1.ImageCounts{Total: images, Scanned: images}))
}

// managerProcess is a manager in a process of its own.
type managerProcess struct {
	command *exec.Cmd
	probes  string
	metrics string
	log     *output
	// ended is closed when the process has ended.
	ended chan struct{}
}

// freeAddress returns an address on which nothing listens now.
func (c *cluster) freeAddress() string {
	c.t.Helper()
	address, _, err := process.FreeAddress()
	c.Expect(err).NotTo(HaveOccurred())
	return address
}

// start starts a manager with a data directory. prefix is a command that runs the manager.
func (c *cluster) start(name, dataDir string, prefix ...string) *managerProcess {
	c.t.Helper()
	return c.startWith(nil, name, dataDir, prefix...)
}

// startWith starts a manager with additional environment variables.
func (c *cluster) startWith(environment []string, name, dataDir string, prefix ...string) *managerProcess {
	c.t.Helper()
	p := &managerProcess{probes: c.freeAddress(), metrics: c.freeAddress(), log: &output{}, ended: make(chan struct{})}
	arguments := append(slices.Clone(prefix), os.Args[0],
		"--data-dir="+dataDir, "--spool-dir="+c.t.TempDir(), "--health-probe-bind-address="+p.probes, "--metrics-bind-address="+p.metrics,
		"--ingest-bind-address=127.0.0.1:0", "--enable-fake-backend", "--worker-image=scanner-grype", "--namespace="+c.system)
	p.command = exec.CommandContext(c.t.Context(), arguments[0], arguments[1:]...)
	p.command.Env = append(append(os.Environ(), asManager+"=1", "KUBECONFIG="+c.kubeconfig, "POD_NAME=", "SCANNER_API_BIND_ADDRESS=0", "SCANNER_WATCH_NAMESPACES="+c.watched), environment...)
	p.command.Stdout, p.command.Stderr = p.log, p.log
	c.Expect(p.command.Start()).To(Succeed())
	go func() { _ = p.command.Wait(); close(p.ended) }()
	c.t.Cleanup(func() {
		_ = p.command.Process.Kill()
		<-p.ended
		if c.t.Failed() {
			c.t.Logf("log of manager %s:\n%s", name, p.log.without(`"msg":"Starting EventSource"`))
		}
	})
	return p
}

// probe sends a request as the kubelet does.
func (p *managerProcess) probe(path string) (status int, text string) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+p.probes+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := (&http.Client{Timeout: time.Second}).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

func (p *managerProcess) readiness() int { status, _ := p.probe("/readyz"); return status }

func (p *managerProcess) liveness() int { status, _ := p.probe("/healthz"); return status }

func (c *cluster) waitReady(p *managerProcess) {
	c.t.Helper()
	c.Eventually(p.readiness, waitTimeout, "250ms").Should(Equal(http.StatusOK))
}

func (c *cluster) signal(p *managerProcess, signal os.Signal) {
	c.t.Helper()
	c.Expect(p.command.Process.Signal(signal)).To(Succeed())
}

// waitEnded waits until a process has ended.
func (c *cluster) waitEnded(p *managerProcess) {
	c.t.Helper()
	c.Eventually(p.ended, waitTimeout).Should(BeClosed())
}

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// without returns the output without the lines that contain a text.
func (o *output) without(text string) string {
	lines := strings.Lines(o.String())
	return strings.Join(slices.DeleteFunc(slices.Collect(lines), func(line string) bool { return strings.Contains(line, text) }), "")
}

// stallingProxy is a connection to the API server that can be stalled. While it is stalled, it accepts connections and delivers no data, like a network
// that drops all packets.
type stallingProxy struct {
	address string
	mu      sync.Mutex
	resumed *sync.Cond
	stalled bool
}

func newStallingProxy(t *testing.T, to string) *stallingProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &stallingProxy{address: listener.Addr().String()}
	d.resumed = sync.NewCond(&d.mu)
	t.Cleanup(func() { d.setStalled(false); _ = listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go d.forward(near, to)
		}
	}()
	return d
}

func (d *stallingProxy) forward(near net.Conn, to string) {
	defer near.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	go func() { _, _ = io.Copy(far, stallingReader{near, d}); _ = far.Close() }()
	_, _ = io.Copy(near, stallingReader{far, d})
}

// stallingReader is a reader that delivers data only while the proxy is not stalled.
type stallingReader struct {
	io.Reader
	proxy *stallingProxy
}

func (w stallingReader) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.proxy.mu.Lock()
	defer w.proxy.mu.Unlock()
	for w.proxy.stalled {
		w.proxy.resumed.Wait()
	}
	return n, err
}

func (d *stallingProxy) setStalled(stalled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stalled = stalled
	d.resumed.Broadcast()
}
