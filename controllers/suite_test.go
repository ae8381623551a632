package controllers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/health"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/pods"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

// eventuallyTimeout bounds how long a test waits. A controller reconciles a second after an event, and the test machine may be slow.
const (
	eventuallyTimeout = 60 * time.Second
	// consistentlyDuration is how long nothing may happen before a test concludes that nothing will.
	consistentlyDuration = 3 * time.Second
)

// Namespaces that the shared operator does not watch.
const (
	// unattended has a name of the maximum length.
	unattended = "unattended-unattended-unattended-unattended-unattended-unattend"
	// absent has no operator. In restarting and busy, a test starts an operator of its own.
	absent     = "absent"
	restarting = "restarting"
	busy       = "busy"
)

// reconcilerStore is the store of the reconcilers that tests give another store.
type reconcilerStore interface {
	inventory.Store
	scannerStore
	imageScanStore
}

// operatorUnderTest is a real API server with the operator's controllers, the fake engine and a real store. All tests share it, each with a
// namespace of its own.
type operatorUnderTest struct {
	config *rest.Config
	client client.Client // uncached: it sees each write
	store  *store.Store
	// uses is the same store as store. reconciled is what the reconcilers get: uses, unless a test replaces it.
	uses       *useRecordingStore
	reconciled reconcilerStore
	engine     *fake.Backend
	// wakeups belongs to one manager.
	wakeups *Wakeups
	// slack has the delivered messages.
	slack *recordingSender
}

// operatorNamespace is where the Secrets of ClusterScanners are.
const operatorNamespace = "scanner-operator-system"

// recordingSender stands for the notifier and accepts every message.
type recordingSender struct {
	mu   sync.Mutex
	sent []announce.Delivery
}

// Send implements announce.Sender.
func (m *recordingSender) Send(_ context.Context, d announce.Delivery) announce.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = append(m.sent, d)
	return announce.Outcome{Result: announce.Delivered}
}

// of returns the messages to receivers of a namespace, oldest first.
func (m *recordingSender) of(namespace string) []announce.Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	var own []announce.Delivery
	for _, d := range m.sent {
		if d.Receiver.Namespace == namespace {
			own = append(own, d)
		}
	}
	return own
}

// ofScanner returns the messages of a scanner, given by a name that no other test uses, oldest first.
func (m *recordingSender) ofScanner(name string) []announce.Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.sent), func(d announce.Delivery) bool { return d.Message.Scanner != name })
}

var (
	startOnce sync.Once
	started   *operatorUnderTest
	startErr  error
	stops     []func() error
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if os.Getenv("TEST_LOG") != "" {
		ctrl.SetLogger(funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{}))
	}
	// Tests in a cluster mostly wait, so more of them than processors run in parallel.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	code := m.Run()
	for i := len(stops) - 1; i >= 0; i-- {
		if err := stops[i](); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}
	os.Exit(code)
}

// theOperator starts the shared operator for the first test that needs it.
func theOperator(t *testing.T) *operatorUnderTest {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip(`needs an API server: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	startOnce.Do(func() { started, startErr = startOperator() })
	if startErr != nil {
		t.Fatalf("starting the API server: %v", startErr)
	}
	return started
}

func newTestScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		panic(err)
	}
	return scheme
}

func startOperator() (*operatorUnderTest, error) {
	server := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join("..", "config", "crd", "bases")}, ErrorIfCRDPathMissing: true, Scheme: newTestScheme(),
	}
	restConfig, err := server.Start()
	if err != nil {
		return nil, err
	}
	stops = append(stops, server.Stop)
	restConfig.QPS = -1 // no client-side rate limit
	o := &operatorUnderTest{config: restConfig, wakeups: &Wakeups{}, slack: &recordingSender{}}
	if o.client, err = client.New(restConfig, client.Options{Scheme: server.Scheme}); err != nil {
		return nil, err
	}
	if err := o.openStore(); err != nil {
		return nil, err
	}
	for _, name := range []string{unattended, absent, restarting, busy} {
		if err := o.client.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, err
		}
	}
	for name, architecture := range map[string]string{nodeAMD: "amd64", nodeARM: "arm64"} {
		if err := o.createNode(node(name, architecture)); err != nil {
			return nil, err
		}
	}
	// Tests use the namespaces that are left out for objects that the operator must not change.
	attended := fields.AndSelectors(
		fields.OneTermNotEqualSelector("metadata.namespace", unattended), fields.OneTermNotEqualSelector("metadata.namespace", absent),
		fields.OneTermNotEqualSelector("metadata.namespace", restarting), fields.OneTermNotEqualSelector("metadata.namespace", busy),
	)
	stop, err := o.startManager(attended)
	if err == nil {
		stops = append(stops, stop)
	}
	return o, err
}

// openStore gives the operator a store and an engine.
func (o *operatorUnderTest) openStore() error {
	dir, err := os.MkdirTemp("", "controllers-test-")
	if err != nil {
		return err
	}
	stops = append(stops, func() error { return os.RemoveAll(dir) })
	opened, err := storetest.Open(context.Background(), filepath.Join(dir, "store.db"), time.Now, store.OpenSQLite)
	if err != nil {
		return err
	}
	o.store, o.uses = opened, &useRecordingStore{Store: opened}
	o.reconciled = o.uses
	stops = append(stops, o.store.Close)
	o.engine = &fake.Backend{Store: o.store, Clock: clock.RealClock{}}
	return nil
}

func (o *operatorUnderTest) createNode(n *corev1.Node) error {
	status := n.Status
	if err := o.client.Create(context.Background(), n); err != nil {
		return err
	}
	n.Status = status
	return o.client.Status().Update(context.Background(), n)
}

// startManager runs the controllers as the manager does, for the objects that the selector of namespaces admits.
func (o *operatorUnderTest) startManager(namespaces fields.Selector) (stop func() error, err error) {
	mgr, err := ctrl.NewManager(o.config, ctrl.Options{
		Scheme: o.client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // several managers may run in this process
		NewCache:   pods.NewCache(inventory.StripPod),
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:         {Field: namespaces},
			&corev1.Node{}:        {Transform: inventory.StripNode},
			&corev1.Namespace{}:   {Transform: inventory.StripNamespace},
			&v1alpha1.Scanner{}:   {Field: namespaces},
			&v1alpha1.ImageScan{}: {Field: namespaces},

			&v1alpha1.VulnerabilityException{}: {Field: namespaces},
		}},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = inventory.SetupIndexes(ctx, mgr.GetFieldIndexer())
	for _, controller := range o.controllers(mgr) {
		err = errors.Join(err, controller.SetupWithManager(mgr))
	}
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() error { cancel(); return <-ended }, nil
}

type setup interface{ SetupWithManager(ctrl.Manager) error }

func (o *operatorUnderTest) controllers(mgr ctrl.Manager) []setup {
	events := mgr.GetEventRecorder("scanner-operator")
	backends := backend.Choosers{v1alpha1.BackendGrype: backend.Always(o.engine)}
	exceptions, covered := active.Source{Reader: mgr.GetClient(), Clock: clock.RealClock{}}, &SuppressionCounts{}
	images := &inventory.Inventory{Client: mgr.GetClient(), Pods: mgr.GetCache().(inventory.PodVisitor), Store: o.reconciled, Clock: clock.RealClock{}}
	return []setup{
		&PodReconciler{Client: mgr.GetClient(), Backends: backends, Clock: clock.RealClock{}, Events: events, Inventory: images},
		&ImageScanReconciler{
			Client: mgr.GetClient(), Store: o.reconciled, Backends: backends, Clock: clock.RealClock{}, Events: events, Wakeups: o.wakeups,
			Exceptions: exceptions, Inventory: images,
		},
		&ScannerReconciler{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Store: o.reconciled, Backends: backends, Clock: clock.RealClock{}, Events: events,
			Wakeups: o.wakeups, Exceptions: exceptions, Suppressed: covered, Inventory: images, StoreAdvice: "mount a volume",
		},
		&NotificationReconciler{
			Client: mgr.GetClient(), Store: o.store, Backends: backends, Clock: clock.RealClock{}, Events: events, Wakeups: o.wakeups, Sender: o.slack,
			Thresholds: health.Thresholds{ScansFailing: 6 * time.Hour, ImagesFailed: time.Hour},
			Exceptions: exceptions, Inventory: images, Namespace: operatorNamespace,
		},
		&ExceptionReconciler{
			Client: mgr.GetClient(), Exceptions: exceptions, Clock: clock.RealClock{}, Events: events, Suppressed: covered, Wakeups: o.wakeups, Inventory: images,
		},
	}
}

// testEnv is a namespace of the API server that belongs to one test.
type testEnv struct {
	*operatorUnderTest
	gomega.Gomega
	t         *testing.T
	namespace string
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	o := theOperator(t)
	t.Parallel()
	p := &testEnv{operatorUnderTest: o, Gomega: gomega.NewWithT(t), t: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	p.must(o.client.Create(t.Context(), namespace))
	p.namespace = namespace.Name
	own := *p // a test may change p.namespace; the cleanup must not
	t.Cleanup(own.empty)
	return p
}

// empty deletes the test's objects, so that its Scanners cause no more work.
func (p *testEnv) empty() {
	ctx := context.Background()
	for _, kind := range []client.Object{&v1alpha1.Scanner{}, &corev1.Pod{}, &v1alpha1.ImageScan{}, &v1alpha1.VulnerabilityException{}} {
		if err := p.client.DeleteAllOf(ctx, kind, client.InNamespace(p.namespace), client.GracePeriodSeconds(0)); err != nil {
			p.t.Errorf("removing what the test made: %v", err)
		}
	}
}

func (p *testEnv) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// create creates objects; pods get the status that they have in the argument.
func (p *testEnv) create(objects ...client.Object) {
	p.t.Helper()
	for _, o := range objects {
		if pod, isPod := o.(*corev1.Pod); isPod {
			p.createPod(pod)
			continue
		}
		p.must(p.client.Create(p.t.Context(), o))
	}
}

// createPod does in turn what user, scheduler and kubelet do.
func (p *testEnv) createPod(pod *corev1.Pod) {
	p.t.Helper()
	status, debug := pod.Status, pod.Spec.EphemeralContainers
	pod.Spec.EphemeralContainers = nil
	p.must(p.client.Create(p.t.Context(), pod))
	if len(debug) > 0 {
		pod.Spec.EphemeralContainers = debug
		p.must(p.client.SubResource("ephemeralcontainers").Update(p.t.Context(), pod))
	}
	p.setPodStatus(pod, status)
}

// setPodStatus updates the status of a pod, as the kubelet does.
func (p *testEnv) setPodStatus(pod *corev1.Pod, status corev1.PodStatus) {
	p.t.Helper()
	p.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		refresh(p, pod).Status = status
		return p.client.Status().Update(p.t.Context(), pod)
	}))
}

// delete deletes objects without a grace period.
func (p *testEnv) delete(objects ...client.Object) {
	p.t.Helper()
	for _, o := range objects {
		p.must(p.client.Delete(p.t.Context(), o, client.GracePeriodSeconds(0)))
	}
}

// patchScanner patches a Scanner.
func (p *testEnv) patchScanner(scanner *v1alpha1.Scanner, change func(*v1alpha1.Scanner)) {
	p.t.Helper()
	before := scanner.DeepCopy()
	change(scanner)
	p.must(p.client.Patch(p.t.Context(), scanner, client.MergeFrom(before)))
}

// scans lists the ImageScans of a Scanner.
func (p *testEnv) scans(scanner *v1alpha1.Scanner) []v1alpha1.ImageScan {
	p.t.Helper()
	var all v1alpha1.ImageScanList
	p.must(p.client.List(p.t.Context(), &all, client.InNamespace(scanner.Namespace)))
	var scans []v1alpha1.ImageScan
	for _, scan := range all.Items {
		if metav1.IsControlledBy(&scan, scanner) {
			scans = append(scans, scan)
		}
	}
	return scans
}

// phases maps the first reference of each of a Scanner's images to its phase.
func (p *testEnv) phases(scanner *v1alpha1.Scanner) func() map[string]v1alpha1.ImageScanPhase {
	return func() map[string]v1alpha1.ImageScanPhase {
		phases := map[string]v1alpha1.ImageScanPhase{}
		for _, scan := range p.scans(scanner) {
			phases[scan.Spec.References[0]] = scan.Status.Phase
		}
		return phases
	}
}

// scan returns a Scanner's ImageScan for an image; nil if there is none.
func (p *testEnv) scan(scanner *v1alpha1.Scanner, reference string) *v1alpha1.ImageScan {
	p.t.Helper()
	for _, scan := range p.scans(scanner) {
		if scan.Spec.Digest == keyOfImage(reference).Digest {
			return &scan
		}
	}
	return nil
}

// waitForPhases waits until a Scanner's images have exactly these phases.
func (p *testEnv) waitForPhases(scanner *v1alpha1.Scanner, want map[string]v1alpha1.ImageScanPhase) {
	p.t.Helper()
	p.Eventually(p.phases(scanner), eventuallyTimeout, "100ms").Should(gomega.Equal(want))
}

// refresh reads an object again and returns it.
func refresh[T client.Object](p *testEnv, o T) T {
	p.t.Helper()
	p.must(p.client.Get(p.t.Context(), client.ObjectKeyFromObject(o), o))
	return o
}

// annotations returns a function that reads the annotations of a pod.
func (p *testEnv) annotations(pod *corev1.Pod) func() map[string]string {
	return func() map[string]string { return refresh(p, pod.DeepCopy()).Annotations }
}

// waitForStatus waits until a check of a Scanner's status succeeds.
func (p *testEnv) waitForStatus(scanner *v1alpha1.Scanner, check func(g gomega.Gomega, status v1alpha1.ScannerStatus)) {
	p.t.Helper()
	p.Eventually(func(g gomega.Gomega) {
		var current v1alpha1.Scanner
		g.Expect(p.client.Get(p.t.Context(), client.ObjectKeyFromObject(scanner), &current)).To(gomega.Succeed())
		check(g, current.Status)
	}, eventuallyTimeout, "100ms").Should(gomega.Succeed())
}
