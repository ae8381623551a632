package receiver

import (
	"bytes"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
)

// Keys of a receiver's Secret with certificates, as in Secrets of the type kubernetes.io/tls.
const (
	AuthoritiesKey       = "ca.crt"
	ClientCertificateKey = "tls.crt"
	ClientKeyKey         = "tls.key"
)

// Bounds of the keys in bytes, for some dozen certificates and an RSA key of 4096 bits, and of the RSA keys in certificates. One signature by a key of
// 8192 bits takes the notifier most of a second, and to verify one by a key that fills the Secret takes it most of a minute.
const (
	maxCertificatesBytes = 64 << 10
	maxClientKeyBytes    = 4 << 10
	maxRSABits           = 8192
)

// Certificates are those of one receiver, beside those of the Network.
type Certificates struct {
	// Authorities are CA certificates that are trusted in addition.
	Authorities []*x509.Certificate
	// Client is what the receiver knows the notifier by; nil for nothing.
	Client *tls.Certificate
}

// ParseCertificates returns the certificates in a Secret, or the key that is not valid and what is wrong with it. The texts contain nothing of a value.
// An empty value counts as a missing one: cert-manager writes an empty ca.crt for some issuers.
func ParseCertificates(data map[string][]byte) (c Certificates, key, problem string) {
	authorities, certificate, private := data[AuthoritiesKey], data[ClientCertificateKey], data[ClientKeyKey]
	if len(authorities) > 0 {
		if c.Authorities, problem = certificatesIn(authorities); problem != "" {
			return c, AuthoritiesKey, problem
		}
	}
	switch {
	case len(certificate) == 0 && len(private) == 0:
		return c, "", ""
	case len(certificate) == 0:
		return c, ClientCertificateKey, "is missing or empty, beside tls.key: it holds the client certificate (PEM)"
	case len(private) == 0:
		return c, ClientKeyKey, "is missing or empty, beside tls.crt: it holds the private key of the client certificate (PEM)"
	case len(private) > maxClientKeyBytes:
		return c, ClientKeyKey, fmt.Sprintf("is longer than %d KiB", maxClientKeyBytes>>10)
	}
	if _, problem = certificatesIn(certificate); problem != "" {
		return c, ClientCertificateKey, problem
	}
	client, err := tls.X509KeyPair(certificate, private)
	if err != nil {
		return c, ClientKeyKey, "is not the private key of the certificate in tls.crt (PEM, without a passphrase)"
	}
	c.Client = &client
	return c, "", ""
}

// certificatesIn returns the certificates in a text, or what is wrong with the text.
func certificatesIn(text []byte) (all []*x509.Certificate, problem string) {
	const invalid = "is not one or more certificates (PEM)"
	if len(text) > maxCertificatesBytes {
		return nil, fmt.Sprintf("is longer than %d KiB: only the certificates for this receiver belong there", maxCertificatesBytes>>10)
	}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != "CERTIFICATE" {
			return nil, invalid
		}
		if public, isRSA := certificate.PublicKey.(*rsa.PublicKey); isRSA && public.N.BitLen() > maxRSABits {
			return nil, fmt.Sprintf("has an RSA key of more than %d bits", maxRSABits)
		}
		all, text = append(all, certificate), rest
	}
	// A block that is cut off is no block for pem.
	if len(all) == 0 || bytes.Contains(text, []byte("-----BEGIN")) {
		return nil, invalid
	}
	return all, ""
}

// identify writes what distinguishes the certificates from others.
func (c Certificates) identify(w io.Writer) {
	for _, authority := range c.Authorities {
		fmt.Fprintf(w, "%s %x\n", AuthoritiesKey, authority.Raw)
	}
	if c.Client != nil {
		fmt.Fprintf(w, "%s %x\n", ClientCertificateKey, c.Client.Certificate)
	}
}

// TLS returns the settings for connections to a receiver with certificates of its own.
func (n Network) TLS(own Certificates) *tls.Config {
	config := &tls.Config{RootCAs: n.authorities(), MinVersion: tls.VersionTLS12}
	if len(own.Authorities) > 0 {
		config.RootCAs = cloneOf(config.RootCAs)
		for _, authority := range own.Authorities {
			config.RootCAs.AddCert(authority)
		}
	}
	if own.Client != nil {
		config.Certificates = []tls.Certificate{*own.Client}
	}
	return config
}

// cloneOf returns a copy of a pool; nil stands for the system's, which is empty if it cannot be read.
func cloneOf(pool *x509.CertPool) *x509.CertPool {
	if pool != nil {
		return pool.Clone()
	}
	if system, err := x509.SystemCertPool(); err == nil {
		return system
	}
	return x509.NewCertPool()
}
