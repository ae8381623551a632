package api

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Network holds the connections to all Clair instances: one HTTP client for each address and set of CAs, and none is dropped. Callers
// bound their number: both come from the operator's configuration. It is safe for concurrent use.
type Network struct {
	// WrapTransport wraps the transport of every client. It must be set before the first client is created; may be nil.
	WrapTransport func(http.RoundTripper) http.RoundTripper

	mutex   sync.Mutex
	clients map[[2]string]*http.Client
}

// NewNetwork returns a Network without connections. It takes proxies from the environment.
func NewNetwork() *Network { return &Network{clients: map[[2]string]*http.Client{}} }

// client returns the HTTP client for an address and PEM certificates of CAs, and creates it if needed.
func (n *Network) client(address, authorities string) (*http.Client, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	key := [2]string{address, authorities}
	if client, found := n.clients[key]; found {
		return client, nil
	}
	client, err := newHTTPClient(authorities)
	if err != nil {
		return nil, err
	}
	if n.WrapTransport != nil {
		client.Transport = n.WrapTransport(client.Transport)
	}
	n.clients[key] = client
	return client, nil
}

func newHTTPClient(caBundle string) (*http.Client, error) {
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    15 * time.Second,
		IdleConnTimeout:        time.Minute,
		MaxIdleConnsPerHost:    8,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
		// A lost node ends no connection.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 20 * time.Second},
	}
	if caBundle != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("root certificates: %w", err)
		}
		if !roots.AppendCertsFromPEM([]byte(caBundle)) {
			return nil, errors.New("must hold at least one certificate in PEM format")
		}
		transport.TLSClientConfig.RootCAs = roots
	}
	return &http.Client{
		Transport: transport,
		// Clair never redirects, and a redirect would send the token and the layers' credentials to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// CanonicalURL returns the only spelling of a Clair's URL that is stored and compared with the configured instances: scheme and host in
// lower case, without default port and trailing slash. Errors say what the URL must be. They do not quote it, because it may contain
// credentials.
func CanonicalURL(text string) (string, error) {
	address, err := parseURL(text)
	if err != nil {
		return "", err
	}
	return address.String(), nil
}

func parseURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil || parsed.Hostname() == "":
		return nil, errors.New("must be a URL with scheme and host, such as http://clair.example.com:6060")
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return nil, errors.New("must begin with https:// or http://")
	case parsed.User != nil:
		return nil, errors.New("must not hold credentials")
	case strings.ContainsAny(text, "?#"):
		return nil, errors.New("must have neither query nor fragment")
	}
	host, err := canonicalHost(parsed)
	if err != nil {
		return nil, err
	}
	// Escaped or relative parts would allow several spellings of one path.
	prefix := strings.TrimSuffix(parsed.Path, "/")
	if parsed.RawPath != "" || prefix == "/" || prefix != "" && path.Clean(prefix) != prefix || (&url.URL{Path: prefix}).EscapedPath() != prefix {
		return nil, errors.New("must have a path without empty, relative or escaped parts, or none")
	}
	return &url.URL{Scheme: parsed.Scheme, Host: host, Path: prefix}, nil
}

// canonicalHost returns the host, with its port unless that is the default of the scheme.
func canonicalHost(address *url.URL) (string, error) {
	host := strings.ToLower(address.Hostname())
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		host = ip.String()
	} else if !isName(host) {
		return "", errors.New("must have a host name of letters, digits, dots and hyphens, or an IP address")
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if address.Port() == "" {
		return host, nil
	}
	port, err := strconv.ParseUint(address.Port(), 10, 16)
	switch {
	case err != nil || port == 0:
		return "", errors.New("must have a port from 1 to 65535, or none")
	case address.Scheme == "http" && port == 80, address.Scheme == "https" && port == 443:
		return host, nil
	}
	return host + ":" + strconv.FormatUint(port, 10), nil
}

// isName reports whether a lower-case text can be a host name.
func isName(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return len(text) <= 253
}
