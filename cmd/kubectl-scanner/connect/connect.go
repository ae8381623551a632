// Package connect reaches the operator's REST API from outside the cluster, as the caller and with no more than the caller's permissions.
//
// A connection goes to an address that the caller names, or through the API server to a pod of the operator (port-forward). Either way it is
// verified TLS: a token is never sent to a server whose certificate is not trusted.
package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	restclient "github.com/scanner-operator/scanner-operator/api/rest/v1/client"
)

const (
	// DefaultNamespace is the operator's namespace unless it was installed elsewhere.
	DefaultNamespace = "scanner-operator-system"
	// Service is the Service of the REST API in the operator's namespace.
	Service = "scanner-operator-api"
	// Bundle is the ConfigMap with the certificates that verify the REST API. Everybody with an account may read it.
	Bundle = "scanner-operator-ca"
	// bundleKey is the key of the certificates in the ConfigMap.
	bundleKey = "ca.crt"
)

// Options say how to reach the API, and as whom.
type Options struct {
	// Kubernetes is how the caller reaches the API server.
	Kubernetes *rest.Config
	// Namespace is that of the operator.
	Namespace string
	// Server is the address of the API, such as https://scanner.example.com. Empty: a port-forward to a pod of the operator.
	Server string
	// CAFile has the certificates that verify Server, PEM. Empty: those of the system and of the operator's ConfigMap.
	CAFile string
	// ServiceAccount is the one whose token is requested and sent to the API. Empty: the token of Kubernetes is sent.
	ServiceAccount types.NamespacedName
	// TokenSeconds is how long a requested token is valid; 0 for the shortest time that the API server accepts, 10 minutes.
	TokenSeconds int64
}

// Connection is a connection to the API. Close it. It may be used concurrently.
type Connection struct {
	*restclient.ClientWithResponses
	// URL is the API's address, without a trailing slash.
	URL string
	// Token is the caller's. It must not be printed.
	Token string
	// HTTP sends requests and returns refusals as *Problem. It does not add the token.
	HTTP *Doer
	// Ended gets one value when the port-forward ends by itself, such as with its pod. It is nil for a connection to a server.
	Ended <-chan error

	stop func()
}

// Close ends the connection.
func (c *Connection) Close() { c.stop() }

// Open connects. The error is a *NoTokenError if the caller has no token that the API would accept. No request was sent to the API then.
func Open(ctx context.Context, o Options) (*Connection, error) {
	token, err := o.token(ctx)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(token, " \t\r\n") || token == "" {
		return nil, errors.New("the token is empty or has white space in it")
	}
	c := &Connection{URL: strings.TrimSuffix(o.Server, "/"), Token: token, stop: func() {}}
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if o.Server == "" {
		// The name in the certificate is that of the Service, whatever the local end of the connection is called.
		config.ServerName = Service + "." + o.Namespace + ".svc"
		if config.RootCAs, err = o.operatorRoots(ctx, x509.NewCertPool()); err != nil {
			return nil, err
		}
		port, err := forward(ctx, o.Kubernetes, o.Namespace)
		if err != nil {
			return nil, err
		}
		c.URL, c.Ended, c.stop = "https://"+port.address, port.ended, port.stop
	} else if err := checkServer(o.Server); err != nil {
		return nil, err
	} else if config.RootCAs, err = o.serverRoots(ctx); err != nil {
		return nil, err
	} else {
		// A proxy or an Ingress in front of the API may not speak TLS 1.3.
		config.MinVersion = tls.VersionTLS12
	}
	transport := &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 8,
		// A lost node ends no connection.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 20 * time.Second},
	}
	if o.Server != "" {
		transport.Proxy = http.ProxyFromEnvironment
	}
	c.HTTP = &Doer{Client: &http.Client{
		Transport: transport,
		// A redirect leads to a login page, or to a host that must not see the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.ClientWithResponses, err = restclient.NewClientWithResponses(c.URL, restclient.WithHTTPClient(c.HTTP),
		restclient.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+token)
			return nil
		}))
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func checkServer(server string) error {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return fmt.Errorf("--server: %q is no address; it looks like https://scanner.example.com", server)
	}
	if u.Scheme != "https" {
		return fmt.Errorf("--server: %s is not https; a token is sent over TLS only", server)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("--server: the address must have no user, query or fragment")
	}
	return nil
}

// serverRoots returns the certificates that verify the address that the caller names.
func (o Options) serverRoots(ctx context.Context) (*x509.CertPool, error) {
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--server-ca: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--server-ca: %s has no certificate in PEM", o.CAFile)
		}
		return roots, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	// The ConfigMap is only needed for a server with the operator's own certificate. Without it, verification decides.
	if both, err := o.operatorRoots(ctx, roots); err == nil {
		return both, nil
	}
	return roots, nil
}

// operatorRoots adds the certificates that the operator publishes.
func (o Options) operatorRoots(ctx context.Context, roots *x509.CertPool) (*x509.CertPool, error) {
	client, err := corev1client.NewForConfig(o.Kubernetes)
	if err != nil {
		return nil, err
	}
	bundle, err := client.ConfigMaps(o.Namespace).Get(ctx, Bundle, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the certificates of the REST API (is the operator in namespace %s? --operator-namespace names another one): %w", o.Namespace, err)
	}
	if !roots.AppendCertsFromPEM([]byte(bundle.Data[bundleKey])) {
		return nil, fmt.Errorf("the ConfigMap %s/%s has no certificate: the operator has not started yet", o.Namespace, Bundle)
	}
	return roots, nil
}
