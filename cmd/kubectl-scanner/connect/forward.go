package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// connectRole is the Role that has the permissions of forward.
const connectRole = "scanner-operator-connect"

// withAdvice adds to an error what to do where a port-forward is not allowed.
func withAdvice(err error, namespace string) error {
	return fmt.Errorf("%w\nThe Role %s in namespace %s has the permissions for a port-forward; with --server URL none is needed", err, connectRole, namespace)
}

// portForward is a port on the loopback interface that leads to a pod.
type portForward struct {
	address string
	// ended gets one value when the port-forward ends by itself.
	ended <-chan error
	stop  func()
}

// forward opens a port-forward to the REST API in a pod of the operator, as "kubectl port-forward" does.
func forward(ctx context.Context, config *rest.Config, namespace string) (_ *portForward, err error) {
	defer func() {
		if apierrors.IsForbidden(err) {
			err = withAdvice(err, namespace)
		}
	}()
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	service, err := client.Services(namespace).Get(ctx, Service, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("looking for the REST API in namespace %s: %w", namespace, err)
	}
	pods, err := client.Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
	if err != nil {
		return nil, fmt.Errorf("looking for the operator's pods in namespace %s: %w", namespace, err)
	}
	pod, port, err := target(service, pods.Items)
	if err != nil {
		return nil, err
	}
	request := client.RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod.Name).SubResource("portforward")
	dialer, err := newDialer(config, request)
	if err != nil {
		return nil, err
	}
	stopped, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stopped, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ctx.Done():
		close(stopped)
		return nil, ctx.Err()
	case err := <-failed:
		// The API server's refusal of an upgrade is only a text.
		return nil, withAdvice(fmt.Errorf("port-forward to pod %s/%s: %w", namespace, pod.Name, err), namespace)
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		close(stopped)
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local)))
	return &portForward{address: address, ended: failed, stop: func() { close(stopped) }}, nil
}

// newDialer prefers WebSocket, as kubectl does, and falls back to SPDY for API servers and proxies that refuse it.
func newDialer(config *rest.Config, request *rest.Request) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, request.URL())
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(request.URL(), config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(tunnel, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// target returns a ready pod of the Service, and the port of the REST API in it.
func target(service *corev1.Service, pods []corev1.Pod) (*corev1.Pod, int32, error) {
	if len(service.Spec.Ports) == 0 {
		return nil, 0, fmt.Errorf("the Service %s/%s has no port", service.Namespace, service.Name)
	}
	want := service.Spec.Ports[0].TargetPort
	for i := range pods {
		pod := &pods[i]
		if !isReady(pod) {
			continue
		}
		if want.Type == intstr.Int {
			return pod, want.IntVal, nil
		}
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				if port.Name == want.StrVal {
					return pod, port.ContainerPort, nil
				}
			}
		}
	}
	if len(pods) == 0 {
		return nil, 0, errors.New("the operator does not run: the Service " + service.Namespace + "/" + service.Name + " has no pod")
	}
	return nil, 0, fmt.Errorf("none of the operator's %d pods in namespace %s is ready: kubectl -n %s get pods", len(pods), service.Namespace, service.Namespace)
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}
