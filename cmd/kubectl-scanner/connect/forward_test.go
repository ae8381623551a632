package connect

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/proxy"
	apiserverproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	clocktesting "k8s.io/utils/clock/testing"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/scanner-operator/scanner-operator/pkg/certificate"
)

// operator is a cluster with the operator in it: its REST API with a certificate of the real authority, and the API server's side of port-forwards.
type operator struct {
	server *httptest.Server
	// api is the address of the REST API in the pod.
	api string
	// bundle is what the ConfigMap holds.
	bundle string
	ready  bool
	// websocket is false for an API server that knows only SPDY. forbidden is a resource that the caller may not use.
	websocket bool
	forbidden string
	// webSockets and spdys count the connections of each kind.
	webSockets, spdys atomic.Int32
	kubelet           *httptest.Server
	// killed ends the port-forwards when it is closed.
	killed chan struct{}
	// token is the one that arrived at the REST API.
	token atomic.Value
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{ready: true, websocket: true, killed: make(chan struct{})}
	authority := &certificate.Authority{Client: fakeclient.NewFakeClient(), Clock: clocktesting.NewFakePassiveClock(time.Now()), Namespace: "operators", Secret: "authority"}
	authority.Reader = authority.Client
	if err := authority.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.bundle = string(authority.Bundle())
	serving := &certificate.Server{Authority: authority, Names: []string{Service + ".operators.svc", "localhost"}}
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.token.Store(r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"items": [], "total": 7, "allNamespaces": true}`)
	}))
	listener := tls.NewListener(api.Listener, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: serving.GetCertificate})
	o.api = api.Listener.Addr().String()
	go func() { _ = api.Config.Serve(listener) }()
	t.Cleanup(func() { _ = api.Config.Close() })

	o.kubelet = httptest.NewServer(http.HandlerFunc(o.portForward))
	t.Cleanup(o.kubelet.Close)
	location, err := url.Parse(o.kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	o.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.serve(w, r, location) }))
	t.Cleanup(o.server.Close)
	return o
}

// serve is the API server.
func (o *operator) serve(w http.ResponseWriter, r *http.Request, kubelet *url.URL) {
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/operators/")
	if resource, _, _ := strings.Cut(path, "/"); resource == o.forbidden || strings.HasSuffix(path, "/"+o.forbidden) {
		o.write(w, http.StatusForbidden, apierrors.NewForbidden(corev1.Resource(o.forbidden), "", errors.New("no")).Status())
		return
	}
	switch path {
	case "configmaps/" + Bundle:
		o.write(w, http.StatusOK, corev1.ConfigMap{Data: map[string]string{bundleKey: o.bundle}})
	case "services/" + Service:
		o.write(w, http.StatusOK, corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Name: Service},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "x"}, Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromString("api")}}},
		})
	case "pods":
		if selector := r.URL.Query().Get("labelSelector"); selector != "app=x" {
			http.Error(w, "the label selector is "+selector, http.StatusBadRequest)
			return
		}
		o.write(w, http.StatusOK, corev1.PodList{Items: []corev1.Pod{o.pod("starting", false), o.pod("manager", o.ready)}})
	case "pods/manager/portforward":
		location := *kubelet
		location.Path = r.URL.Path
		upgrade := proxy.NewUpgradeAwareHandler(&location, nil, false, true, responder{})
		if httpstream.IsUpgradeRequest(r) && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			if !o.websocket {
				http.Error(w, "only SPDY", http.StatusBadRequest)
				return
			}
			o.webSockets.Add(1)
			apiserverproxy.NewTunnelingHandler(upgrade).ServeHTTP(w, r)
			return
		}
		o.spdys.Add(1)
		upgrade.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
}

type responder struct{}

// Error implements proxy.ErrorResponder.
func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}

func (o *operator) write(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func (o *operator) pod(name string, ready bool) corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 8443}, {Name: "api", ContainerPort: 8444}}}}},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
}

// portForward is the kubelet's side: it connects each stream with the REST API.
func (o *operator) portForward(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	streams := make(chan httpstream.Stream, 16)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close()
	for {
		select {
		case <-connection.CloseChan():
			return
		case <-o.killed:
			return
		case stream := <-streams:
			if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeData && stream.Headers().Get(corev1.PortHeader) == "8444" {
				go o.copy(stream)
			}
		}
	}
}

func (o *operator) copy(stream httpstream.Stream) {
	connection, err := net.Dial("tcp", o.api)
	if err != nil {
		_ = stream.Reset()
		return
	}
	go func() { _, _ = io.Copy(connection, stream); _ = connection.Close() }()
	_, _ = io.Copy(stream, connection)
	_ = stream.Close()
}

// options reach the operator as a caller with a token.
func (o *operator) options() Options {
	return Options{Kubernetes: &rest.Config{Host: o.server.URL, BearerToken: "caller"}, Namespace: "operators"}
}

// TestPortForward: a request reaches the REST API in the ready pod through the API server, by WebSocket and, where that is refused, by SPDY.
// The certificate is verified by the name of the Service.
func TestPortForward(t *testing.T) {
	for _, websocket := range []bool{true, false} {
		o := newOperator(t)
		o.websocket = websocket
		c := open(t, o.options())
		for range 3 {
			scanners, err := c.ListScannersWithResponse(t.Context(), nil)
			if err != nil || scanners.JSON200 == nil || scanners.JSON200.Total != 7 {
				t.Fatalf("websocket %v: %+v, %v", websocket, scanners, err)
			}
		}
		if token := o.token.Load(); token != "Bearer caller" {
			t.Errorf("the REST API got %q", token)
		}
		if got := o.webSockets.Load() == 1 && o.spdys.Load() == 0; got != websocket {
			t.Errorf("websocket %v: %d WebSocket and %d SPDY connections", websocket, o.webSockets.Load(), o.spdys.Load())
		}
	}
}

// TestPortForwardEnds: a connection reports that its port-forward has ended by itself.
func TestPortForwardEnds(t *testing.T) {
	o := newOperator(t)
	c := open(t, o.options())
	select {
	case err := <-c.Ended:
		t.Fatalf("it has ended at once: %v", err)
	default:
	}
	close(o.killed)
	select {
	case err := <-c.Ended:
		if err == nil {
			t.Error("it has ended without an error")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it has not ended 30 seconds after the pod")
	}
}

// TestPortForwardIsRefused: what a caller is advised who cannot reach the API.
func TestPortForwardIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*operator)
		want   []string
	}{
		"no ready pod":     {func(o *operator) { o.ready = false }, []string{"none of the operator's 2 pods", "kubectl -n operators get pods"}},
		"no certificates":  {func(o *operator) { o.bundle = "" }, []string{"operators/scanner-operator-ca has no certificate"}},
		"no ConfigMap":     {func(o *operator) { o.forbidden = "configmaps" }, []string{"--operator-namespace"}},
		"no services":      {func(o *operator) { o.forbidden = "services" }, []string{"The Role scanner-operator-connect", "--server"}},
		"no pods":          {func(o *operator) { o.forbidden = "pods" }, []string{"The Role scanner-operator-connect"}},
		"no port-forwards": {func(o *operator) { o.forbidden = "portforward" }, []string{"port-forward to pod operators/manager", "The Role scanner-operator-connect"}},
	} {
		o := newOperator(t)
		tt.change(o)
		_, err := Open(t.Context(), o.options())
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", name, err, want)
			}
		}
	}
}

// TestForwardedServerIsVerified: a pod that answers with a certificate of another authority gets no token.
func TestForwardedServerIsVerified(t *testing.T) {
	o, other := newOperator(t), newOperator(t)
	o.bundle = other.bundle
	c := open(t, o.options())
	if _, err := c.ListScannersWithResponse(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") || o.token.Load() != nil {
		t.Errorf("%v; the REST API got %v", err, o.token.Load())
	}
}
