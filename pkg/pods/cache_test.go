package pods_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/pods"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

const (
	waitTimeout = time.Minute
	// manyPods need more than one page.
	manyPods = 510
)

// theServer is an API server that the tests share. Each test has its own namespaces.
var theServer = sync.OnceValues(func() (*rest.Config, error) {
	environment := &envtest.Environment{}
	config, err := environment.Start()
	stopServer = environment.Stop
	if err == nil {
		config.QPS = -1 // no client-side rate limit
	}
	return config, err
})

var stopServer = func() error { return nil }

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code := m.Run()
	if err := stopServer(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the API server:", err)
	}
	os.Exit(code)
}

// cluster is an API server with a namespace for one test, and a network in between.
type cluster struct {
	Gomega
	t         *testing.T
	config    *rest.Config
	client    client.Client
	network   *network
	namespace string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip(`needs an API server: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	config, err := theServer()
	if err != nil {
		t.Fatalf("starting the API server: %v", err)
	}
	c := &cluster{Gomega: NewWithT(t), t: t, network: &network{}, config: rest.CopyConfig(config)}
	c.client, err = client.New(config, client.Options{})
	c.Expect(err).NotTo(HaveOccurred())
	c.config.Wrap(func(next http.RoundTripper) http.RoundTripper { c.network.next = next; return c.network })
	c.namespace = c.createNamespace("a")
	return c
}

func (c *cluster) createNamespace(suffix string) string {
	name := strings.ToLower(strings.ReplaceAll(c.t.Name(), "/", "-")) + "-" + suffix
	c.Expect(c.client.Create(c.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	return name
}

// start starts a cache of pods.
func (c *cluster) start(namespaces ...string) *pods.Cache {
	options := cache.Options{NewInformer: preflight.NewInformer, DefaultNamespaces: map[string]cache.Config{}}
	for _, name := range namespaces {
		options.DefaultNamespaces[name] = cache.Config{}
	}
	started, err := pods.NewCache(inventory.StripPod)(c.config, options)
	c.Expect(err).NotTo(HaveOccurred())
	var notStarted *cache.ErrCacheNotStarted
	c.Expect(errors.As(started.List(c.t.Context(), &corev1.PodList{}), &notStarted)).To(BeTrue(), "before the start")
	c.Expect(inventory.SetupIndexes(c.t.Context(), podIndexes{started})).To(Succeed())
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- started.Start(ctx) }()
	c.t.Cleanup(func() { cancel(); c.Expect(<-ended).To(Succeed()) })
	c.Expect(started.WaitForCacheSync(ctx)).To(BeTrue())
	return started.(*pods.Cache)
}

// podIndexes adds only the indexes of pods.
type podIndexes struct{ client.FieldIndexer }

func (p podIndexes) IndexField(ctx context.Context, o client.Object, field string, values client.IndexerFunc) error {
	if _, ok := o.(*corev1.Pod); !ok {
		return nil
	}
	return p.FieldIndexer.IndexField(ctx, o, field, values)
}

// digest returns a digest that is unique for a number.
func digest(n int) string { return fmt.Sprintf("sha256:%064x", n) }

// run creates a pod that runs the image of a digest.
func (c *cluster) run(namespace, name, digest string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}, Annotations: map[string]string{"not": "kept"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/web:1"}}, NodeName: "node-1"},
	}
	c.Expect(c.client.Create(c.t.Context(), pod)).To(Succeed())
	c.report(pod, digest)
	return pod
}

// report sets the digest in the status of a pod, as its node does.
func (c *cluster) report(pod *corev1.Pod, digest string) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ImageID: "registry.example.com/web@" + digest}}
	c.Expect(c.client.Status().Update(c.t.Context(), pod)).To(Succeed())
}

func (c *cluster) delete(pod *corev1.Pod) {
	c.Expect(c.client.Delete(c.t.Context(), pod, client.GracePeriodSeconds(0))).To(Succeed())
}

// names returns a function that lists the names of the pods in a cache.
func (c *cluster) names(reader client.Reader, opts ...client.ListOption) func() []string {
	return func() []string {
		var listed corev1.PodList
		c.Expect(reader.List(c.t.Context(), &listed, opts...)).To(Succeed())
		names := []string{}
		for i := range listed.Items {
			names = append(names, listed.Items[i].Name)
		}
		slices.Sort(names)
		return names
	}
}

// TestCacheReads: the cache has the pods with the fields that are kept, and selects them by namespace, label and image.
func TestCacheReads(t *testing.T) {
	c := newCluster(t)
	other := c.createNamespace("b")
	web, db := c.run(c.namespace, "web", digest(1)), c.run(c.namespace, "db", digest(2))
	c.run(other, "web", digest(1))
	reader := c.start()

	var got corev1.Pod
	c.Expect(reader.Get(t.Context(), client.ObjectKeyFromObject(web), &got)).To(Succeed())
	want := inventory.StripPod(web)
	want.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	c.Expect(&got).To(BeComparableTo(want))
	got.Labels["app"] = "changed"
	c.Expect(reader.Get(t.Context(), client.ObjectKeyFromObject(web), &got)).To(Succeed())
	c.Expect(got.Labels).To(HaveKeyWithValue("app", "web"), "the cache after a change of what it returned")
	c.Expect(apierrors.IsNotFound(reader.Get(t.Context(), types.NamespacedName{Namespace: c.namespace, Name: "none"}, &got))).To(BeTrue())

	inNamespace, ofWeb := client.InNamespace(c.namespace), client.MatchingFields{inventory.PodsByDigest: digest(1)}
	c.Expect(c.names(reader, inNamespace)()).To(Equal([]string{"db", "web"}))
	c.Expect(c.names(reader, inNamespace, client.UnsafeDisableDeepCopy)()).To(Equal([]string{"db", "web"}))
	c.Expect(c.names(reader, inNamespace, client.MatchingLabels{"app": "db"})()).To(Equal([]string{"db"}))
	c.Expect(c.names(reader, inNamespace, ofWeb)()).To(Equal([]string{"web"}))
	c.Expect(c.names(reader, client.Limit(1))()).To(HaveLen(1))
	c.Expect(reader.List(t.Context(), &corev1.PodList{}, ofWeb)).NotTo(Succeed(), "by image in all namespaces")
	c.Expect(reader.List(t.Context(), &corev1.PodList{}, client.Continue("x"))).NotTo(Succeed())
	c.Expect(reader.List(t.Context(), &corev1.NamespaceList{})).To(Succeed(), "objects that are no pods")

	c.report(db, digest(1))
	c.Eventually(c.names(reader, inNamespace, ofWeb), waitTimeout).Should(Equal([]string{"db", "web"}))
	c.delete(web)
	c.Eventually(c.names(reader, inNamespace, ofWeb), waitTimeout).Should(Equal([]string{"db"}))
}

// TestCacheOfNamespaces: a cache of some namespaces has their pods, and refuses to answer for others.
func TestCacheOfNamespaces(t *testing.T) {
	c := newCluster(t)
	second, unwatched := c.createNamespace("b"), c.createNamespace("c")
	for _, namespace := range []string{c.namespace, second, unwatched} {
		c.run(namespace, "in-"+namespace[len(namespace)-1:], digest(1))
	}
	reader := c.start(c.namespace, second)
	c.Expect(c.names(reader)()).To(Equal([]string{"in-a", "in-b"}))
	c.Expect(c.names(reader, client.InNamespace(second), client.MatchingFields{inventory.PodsByDigest: digest(1)})()).To(Equal([]string{"in-b"}))
	c.Expect(reader.List(t.Context(), &corev1.PodList{}, client.InNamespace(unwatched))).To(MatchError(ContainSubstring("not watched")))
	c.Expect(reader.Get(t.Context(), types.NamespacedName{Namespace: unwatched, Name: "in-c"}, &corev1.Pod{})).To(MatchError(ContainSubstring("not watched")))
}

// TestCacheEvents: handlers get complete pods.
func TestCacheEvents(t *testing.T) {
	c := newCluster(t)
	before := c.run(c.namespace, "before", digest(1))
	informer, err := c.start(c.namespace).GetInformer(t.Context(), &corev1.Pod{})
	c.Expect(err).NotTo(HaveOccurred())
	events := make(chan string, 100)
	seen := func(what string, o any) {
		pod := o.(*corev1.Pod)
		events <- what + " " + pod.Name + " " + pod.Status.ContainerStatuses[0].ImageID[25:]
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { seen("added", o) }, DeleteFunc: func(o any) { seen("deleted", o) },
		UpdateFunc: func(old, o any) { seen("was", old); seen("is", o) },
	})
	c.Expect(err).NotTo(HaveOccurred())
	c.Eventually(events, waitTimeout).Should(Receive(Equal("added before " + digest(1))))
	c.report(before, digest(2))
	c.Eventually(events, waitTimeout).Should(Receive(Equal("was before " + digest(1))))
	c.Eventually(events, waitTimeout).Should(Receive(Equal("is before " + digest(2))))
	c.delete(before)
	c.Eventually(func() string { return <-events }, waitTimeout).Should(Equal("deleted before " + digest(2)))
}

// TestCacheAfterFaults: the cache has all pods after each fault of the network or the API server.
func TestCacheAfterFaults(t *testing.T) {
	for name, faulty := range map[string]fault{
		"cut":                      {cut: true},
		"expired":                  {cut: true, expireWatches: 1},
		"without streaming lists":  {cut: true, expireWatches: 1, refuseStreams: true},
		"list expires in between":  {cut: true, expireWatches: 1, refuseStreams: true, expirePages: 1},
		"list expires repeatedly":  {cut: true, expireWatches: 1, refuseStreams: true, expirePages: 3},
		"API server is overloaded": {cut: true, overloaded: 3},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c := newCluster(t)
			stays, goes := c.run(c.namespace, "stays", digest(1)), c.run(c.namespace, "goes", digest(1))
			c.network.set(fault{refuseStreams: faulty.refuseStreams})
			reader := c.start(c.namespace)
			c.Expect(c.names(reader)()).To(Equal([]string{"goes", "stays"}))
			c.network.set(faulty)
			c.delete(goes)
			c.report(stays, digest(2))
			want := []string{"stays"}
			if faulty.refuseStreams {
				want = append(want, c.runMany(manyPods)...)
			} else {
				c.run(c.namespace, "new", digest(2))
				want = []string{"new", "stays"}
			}
			slices.Sort(want)
			c.network.reconnect()
			c.Eventually(c.names(reader), waitTimeout).Should(Equal(want))
			c.Eventually(c.names(reader, client.InNamespace(c.namespace), client.MatchingFields{inventory.PodsByDigest: digest(2)}), waitTimeout).
				Should(ContainElement("stays"))
			c.Expect(c.network.left()).To(BeZero(), "faults that did not happen")
			c.run(c.namespace, "later", digest(1))
			c.Eventually(c.names(reader), waitTimeout).Should(ContainElement("later"))
		})
	}
}

// runMany creates pods and returns their names.
func (c *cluster) runMany(count int) (names []string) {
	var creating errgroup.Group
	creating.SetLimit(8)
	for n := range count {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: fmt.Sprintf("many-%d", n)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/web:1"}}},
		}
		names = append(names, pod.Name)
		creating.Go(func() error { return c.client.Create(c.t.Context(), pod) })
	}
	c.Expect(creating.Wait()).To(Succeed())
	return names
}

// fault is what a network or an API server does wrong.
type fault struct {
	// cut breaks all connections until the network is reconnected.
	cut bool
	// refuseStreams answers requests for streaming lists as API servers do that do not know them.
	refuseStreams bool
	// expireWatches, expirePages and overloaded are how many watches, pages of lists after the first, and requests fail.
	expireWatches, expirePages, overloaded int
}

// network is between a cache and the API server.
type network struct {
	next  http.RoundTripper
	mutex sync.Mutex
	fault fault
	open  []io.Closer
}

func (n *network) set(f fault) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.fault = f; f.cut {
		n.closeLocked()
	}
}

func (n *network) reconnect() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.closeLocked()
	n.fault.cut = false
}

// closeLocked breaks open streams.
func (n *network) closeLocked() {
	for _, stream := range n.open {
		_ = stream.Close()
	}
	n.open = nil
}

// left returns how many faults have not happened yet.
func (n *network) left() int {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.fault.expireWatches + n.fault.expirePages + n.fault.overloaded
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(request.URL.Path, "/pods") {
		return n.next.RoundTrip(request)
	}
	if response, err := n.fail(request); response != nil || err != nil {
		return response, err
	}
	response, err := n.next.RoundTrip(request)
	if err == nil && request.URL.Query().Get("watch") != "" {
		n.mutex.Lock()
		n.open = append(n.open, response.Body)
		n.mutex.Unlock()
	}
	return response, err
}

// fail returns what a faulty network or API server answers; neither if there is no fault for the request.
func (n *network) fail(request *http.Request) (*http.Response, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	query := request.URL.Query()
	isStream, isWatch := query.Get("sendInitialEvents") != "", query.Get("watch") != ""
	use := func(faults *int) bool {
		if *faults == 0 {
			return false
		}
		*faults--
		return true
	}
	switch {
	case n.fault.cut:
		return nil, errors.New("connection refused")
	case isStream && n.fault.refuseStreams:
		return answer(request, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid), nil
	case isWatch && use(&n.fault.expireWatches), query.Get("continue") != "" && use(&n.fault.expirePages):
		return answer(request, http.StatusGone, metav1.StatusReasonExpired), nil
	case use(&n.fault.overloaded):
		return answer(request, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests), nil
	}
	return nil, nil //nolint:nilnil // the contract says so
}

func answer(request *http.Request, code int, reason metav1.StatusReason) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}
