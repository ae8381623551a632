package notifier_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
)

// authority is a private CA.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority() authority {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	return authority{must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)))), key}
}

func (a authority) pem() string { return pemOf("CERTIFICATE", a.certificate.Raw) }

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// issue returns a certificate of 127.0.0.1 and its key (PEM). The certificate has expired if age is positive.
func (a authority) issue(age time.Duration) (certificate, key string) {
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(time.Hour - age), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	raw := must(x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key))
	return pemOf("CERTIFICATE", raw), pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(private)))
}

func pemOf(kind string, raw []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
}

// ownServer returns a server whose certificate is from a private CA, and that requires a client's certificate from that CA.
func ownServer(t *testing.T, kind string, version uint16, implicit bool) (*server, authority) {
	t.Helper()
	ca := newAuthority()
	certificate := must(tls.X509KeyPair(joined(ca.issue(0))))
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: version}
	var s *server
	if receiverTypes[kind].isMail {
		s = &server{}
		host, _ := serveMail(t, s, config, implicit, func(*mailSession) {})
		s.URL = "smtps://" + host
	} else {
		s = startServer(t, kind, func(backend *httptest.Server) {
			backend.TLS, backend.Config.ErrorLog, backend.Listener = config, log.New(io.Discard, "", 0), lingering{backend.Listener}
			backend.StartTLS()
		})
	}
	s.certificate = nil // the notifier trusts it by the Secret only
	return s, ca
}

// lingering closes connections as servers do that want their last words read: with TLS 1.3, a client sends its request before it can know that its
// certificate is refused. A connection that is closed at once is reset by that request, and the client may lose what came before.
type lingering struct{ net.Listener }

func (l lingering) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return lingeringConn{c.(*net.TCPConn)}, nil
}

type lingeringConn struct{ *net.TCPConn }

func (c lingeringConn) Close() error {
	err := c.CloseWrite()
	go func() {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.Copy(io.Discard, c.TCPConn)
		_ = c.TCPConn.Close()
	}()
	return err
}

// hugeAuthority returns a certificate with an RSA key of 16384 bits that nobody has.
func hugeAuthority(by authority) string {
	modulus := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 16384), big.NewInt(1))
	template := &x509.Certificate{SerialNumber: big.NewInt(3), IsCA: true, BasicConstraintsValid: true}
	return pemOf("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, template, by.certificate, &rsa.PublicKey{N: modulus, E: 65537}, by.key)))
}

func joined(certificate, key string) (a, b []byte) { return []byte(certificate), []byte(key) }

// TestContractCertificates: a receiver of each type may have a private CA, and know the notifier by a certificate. Both are in the Secret, and what is
// corrected there counts for the next request.
func TestContractCertificates(t *testing.T) {
	forEachType(t, func(t *testing.T, kind string) {
		for name, tt := range map[string]struct {
			version  uint16
			implicit bool
		}{
			"TLS 1.2": {tls.VersionTLS12, false}, "TLS 1.3": {tls.VersionTLS13, false}, "TLS 1.3 from the start": {tls.VersionTLS13, true},
		} {
			if tt.implicit && !receiverTypes[kind].isMail {
				continue
			}
			t.Run(name, func(t *testing.T) {
				s, ca := ownServer(t, kind, tt.version, tt.implicit)
				c := newContractWithin(t, kind, s, 10*time.Second)
				certificate, key := ca.issue(0)
				refused := announce.Permanent
				if tt.version == tls.VersionTLS12 {
					refused = announce.Temporary // its alert can have other reasons
				}
				expired, expiredKey := ca.issue(2 * time.Hour)
				strange, strangeKey := newAuthority().issue(0)
				d := c.delivery(delivery("1").Message)
				if d.Receiver.Mail != nil && tt.implicit {
					d.Receiver.Mail.TLS = announce.MailImplicitTLS
				}
				for _, step := range []struct {
					what          string
					ca, cert, key string
					want          announce.Result
					says          string
				}{
					{"no certificates", "", "", "", announce.Temporary, "put that CA's certificate into the key ca.crt of the Secret"},
					{"another CA", newAuthority().pem(), certificate, key, announce.Temporary, "certificate signed by unknown authority"},
					{"no client certificate", ca.pem(), "", "", refused, "check the keys tls.crt and tls.key of the Secret"},
					{"an expired one", ca.pem(), expired, expiredKey, announce.Permanent, "check the keys tls.crt and tls.key of the Secret"},
					{"one of another CA", ca.pem(), strange, strangeKey, announce.Permanent, "check the keys tls.crt and tls.key of the Secret"},
					{"all", ca.pem(), certificate, key, announce.Delivered, ""},
				} {
					secret := c.of.secret(s.URL)
					maps.Copy(secret, map[string]string{"ca.crt": step.ca, "tls.crt": step.cert, "tls.key": step.key})
					c.cluster.set("shop/team", secret)
					got := c.manager.Send(t.Context(), d)
					if got.Result != step.want || !strings.Contains(got.Message, step.says) {
						t.Errorf("%s: outcome %+v, want %s and %q", step.what, got, step.want, step.says)
					}
				}
				if n := len(s.got()); n != 1 {
					t.Errorf("%d messages, want the one with all certificates", n)
				}
			})
		}
	})
}

// TestMailCertificatesOnly: the Secret of a mail server that requires no password may have certificates alone.
func TestMailCertificatesOnly(t *testing.T) {
	s, ca := &server{}, newAuthority()
	config := &tls.Config{Certificates: []tls.Certificate{must(tls.X509KeyPair(joined(ca.issue(0))))}}
	host, _ := serveMail(t, s, config, false, func(session *mailSession) { session.mechanisms = nil })
	s.URL = "smtps://" + host
	c := newMailContract(t, s, deadlineOf(""))
	c.cluster.set("shop/team", map[string]string{"ca.crt": ca.pem()})
	if got := c.deliver(delivery("1").Message); got.Result != announce.Delivered || len(s.got()) != 1 {
		t.Errorf("outcome %+v, want the message delivered without a password", got)
	}
	c.cluster.set("shop/team", map[string]string{"ca.crt": ca.pem(), "user": mailUser, "password": mailPassword})
	if got := c.deliver(delivery("2").Message); got.Reason != announce.ReasonInvalidToken {
		t.Errorf("outcome %+v of a password without a user name, want InvalidToken", got)
	}
}

// TestExportCertificates: the same holds for tools.
func TestExportCertificates(t *testing.T) {
	for kind, request := range map[string]export.Request{export.TypeDefectDojo: exportRequest(), export.TypeDependencyTrack: sbomRequest(t, `{}`)} {
		t.Run(kind, func(t *testing.T) {
			s, ca := ownServer(t, announce.ReceiverTypeWebhook, 0, false)
			w := newExportWorld(t, s.host())
			s.answers(func(rw http.ResponseWriter, _ *http.Request) {
				rw.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(rw, `{"test_id":7,"token":"t"}`)
			})
			certificate, key := ca.issue(0)
			w.cluster.set(request.Receiver.Namespace+"/"+request.Receiver.SecretName,
				map[string]string{"address": s.URL, "token": apiKey, "ca.crt": ca.pem(), "tls.crt": certificate, "tls.key": key})
			if got := w.export(request); got.Result != announce.Delivered || len(s.got()) != 1 {
				t.Errorf("outcome %+v after %d requests, want Delivered", got, len(s.got()))
			}
		})
	}
}

// TestInvalidCertificates: the outcome names the key of the Secret, and has nothing of its value.
func TestInvalidCertificates(t *testing.T) {
	ca := newAuthority()
	certificate, key := ca.issue(0)
	_, other := ca.issue(0)
	long := pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(must(rsa.GenerateKey(rand.Reader, 2048)))) + strings.Repeat("\n", 4<<10)
	for name, tt := range map[string]struct {
		secret    map[string]string
		key, says string
	}{
		"no PEM":                    {map[string]string{"ca.crt": "verysecret"}, "ca.crt", "is not one or more certificates (PEM)"},
		"a key as a CA":             {map[string]string{"ca.crt": key}, "ca.crt", "is not one or more certificates (PEM)"},
		"no certificate in PEM":     {map[string]string{"ca.crt": pemOf("CERTIFICATE", []byte("verysecret"))}, "ca.crt", "is not one or more certificates (PEM)"},
		"a second one is cut off":   {map[string]string{"ca.crt": ca.pem() + certificate[:200]}, "ca.crt", "is not one or more certificates (PEM)"},
		"all CAs of the world":      {map[string]string{"ca.crt": strings.Repeat(ca.pem(), 200)}, "ca.crt", "is longer than 64 KiB"},
		"a CA that takes long":      {map[string]string{"ca.crt": hugeAuthority(ca)}, "ca.crt", "has an RSA key of more than 8192 bits"},
		"no key":                    {map[string]string{"tls.crt": certificate}, "tls.key", "is missing or empty"},
		"no certificate":            {map[string]string{"tls.key": key}, "tls.crt", "is missing or empty"},
		"a key as a certificate":    {map[string]string{"tls.crt": key, "tls.key": key}, "tls.crt", "is not one or more certificates (PEM)"},
		"another certificate's key": {map[string]string{"tls.crt": certificate, "tls.key": other}, "tls.key", "is not the private key of the certificate in tls.crt"},
		"a certificate as a key":    {map[string]string{"tls.crt": certificate, "tls.key": certificate}, "tls.key", "is not the private key of the certificate in tls.crt"},
		"a key with a passphrase":   {map[string]string{"tls.crt": certificate, "tls.key": pemOf("ENCRYPTED PRIVATE KEY", []byte("verysecret"))}, "tls.key", "without a passphrase"},
		"a kind of PEM as a secret": {map[string]string{"tls.crt": certificate, "tls.key": pemOf("verysecret", []byte("verysecret"))}, "tls.key", "is not the private key"},
		"a long key":                {map[string]string{"tls.crt": certificate, "tls.key": long}, "tls.key", "is longer than 4 KiB"},
		"empty ones":                {map[string]string{"ca.crt": "", "tls.crt": "", "tls.key": ""}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContract(t, announce.ReceiverTypeWebhook, newServer(t, announce.ReceiverTypeWebhook, false))
			maps.Copy(c.cluster.secrets["shop/team"], tt.secret)
			got := c.deliver(delivery("1").Message)
			if tt.key == "" {
				if got.Result != announce.Delivered {
					t.Errorf("outcome %+v, want empty keys to count as missing", got)
				}
				return
			}
			if got.Reason != announce.ReasonInvalidToken || !strings.HasPrefix(got.Message, "key "+tt.key+" of Secret team in namespace shop ") || !strings.Contains(got.Message, tt.says) {
				t.Errorf("outcome %+v, want InvalidToken, the key %s and %q", got, tt.key, tt.says)
			}
			if text := got.Message + c.logs.String(); strings.Contains(text, "verysecret") || strings.Contains(text, "BEGIN") {
				t.Errorf("a value of the Secret is shown: %s", text)
			}
		})
	}
}
