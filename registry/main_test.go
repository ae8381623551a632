package registry_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The proxy and the system's CAs, which Go reads from the environment once per process. Other tests use
// neither, since loopback addresses need no proxy.
var (
	environmentProxy    proxy
	systemAuthority     = selfSigned()
	proxyUser, proxyKey = "robot", "s3cret-of-the-proxy"
)

func TestMain(m *testing.M) {
	if reference := os.Getenv(locateEnvironment); reference != "" {
		locateAlone(reference)
		return
	}
	server := httptest.NewServer(&environmentProxy)
	address := "http://" + proxyUser + ":" + proxyKey + "@" + server.Listener.Addr().String()
	dir, err := os.MkdirTemp("", "registry-test-")
	if err != nil {
		log.Fatal(err)
	}
	bundle := filepath.Join(dir, "system.pem")
	if err := os.WriteFile(bundle, []byte(pemOf(systemAuthority)), 0o600); err != nil {
		log.Fatal(err)
	}
	for name, value := range map[string]string{
		"HTTP_PROXY": address, "HTTPS_PROXY": address, "NO_PROXY": "registry.invalid", "SSL_CERT_FILE": bundle, "SSL_CERT_DIR": dir,
	} {
		os.Setenv(name, value)
	}
	code := m.Run()
	server.Close()
	os.RemoveAll(dir)
	os.Exit(code)
}

// selfSigned returns a self-signed certificate for 127.0.0.1.
func selfSigned() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		log.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// pemOf returns a certificate in PEM format, as in a configuration.
func pemOf(certificate tls.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}))
}

// proxy is a proxy for plain HTTP that knows one host.
type proxy struct {
	// to is the address of the registry "registry.proxied.test". refuse makes the proxy refuse all requests.
	to     string
	refuse bool
	// requestedHosts are the hosts that were requested, and users the users who requested them.
	requestedHosts, users []string
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.requestedHosts = append(p.requestedHosts, r.Host)
	as := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, _, _ := as.BasicAuth()
	p.users = append(p.users, user)
	switch {
	case p.refuse:
		http.Error(w, "unknown user "+user, http.StatusProxyAuthRequired)
	case r.Method == http.MethodGet && r.Host == "registry.proxied.test":
		r.URL.Host, r.RequestURI = p.to, ""
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		for name, values := range response.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(response.StatusCode)
		_, _ = copyBody(w, response)
	default:
		http.Error(w, "no such host", http.StatusBadGateway)
	}
}
