package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// network is the transport to registries. A host with CAs of its own has a separate transport, so that
// they are trusted for no other host, wherever a registry redirects to.
type network struct {
	own    map[string]http.RoundTripper
	others http.RoundTripper
}

// NewTransport returns a transport to registries. All Pullers of a process should share it, so that connections are
// reused. registries must be valid (see Validate). The transport takes proxies from the environment, and is safe for concurrent use.
func NewTransport(registries []workerapi.Registry) (http.RoundTripper, error) {
	n := &network{own: map[string]http.RoundTripper{}, others: newTransport()}
	for host, registry := range hostsOf(registries) {
		if registry.CABundle == "" {
			continue
		}
		// Well-known CAs stay trusted: a registry may move from one to the other.
		roots, err := Authorities(registry.CABundle)
		if err != nil {
			return nil, fmt.Errorf("caBundle of %s: %w", host, err)
		}
		transport := newTransport()
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		n.own[host] = transport
	}
	return n, nil
}

// newTransport returns a copy of the client library's transport, proxies from the environment included, with its own timeout to
// connect. The library tries three times: with this timeout, a registry that a network policy blocks is reported within a minute.
func newTransport() *http.Transport {
	transport := remote.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	transport.MaxResponseHeaderBytes = maxHeaderBytes
	return transport
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(request *http.Request) (*http.Response, error) {
	if own, found := n.own[workerapi.CanonicalHost(request.URL.Host)]; found {
		return own.RoundTrip(request)
	}
	return n.others.RoundTrip(request)
}

// Authorities returns the system's CAs together with those of a PEM bundle. It returns an error if the bundle holds no certificate.
func Authorities(bundle string) (*x509.CertPool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("root certificates: %w", err)
	}
	if !roots.AppendCertsFromPEM([]byte(bundle)) {
		return nil, errors.New("must hold at least one certificate in PEM format")
	}
	return roots, nil
}
