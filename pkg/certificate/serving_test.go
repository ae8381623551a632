package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const servingName = "notifier-serving"

// TestServerRenews: a certificate is used for a third of its lifetime and then replaced.
func TestServerRenews(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	first := leafOf(t, i)
	i.advanceClock(servingLifetime/3 - time.Minute)
	if again := leafOf(t, i); again.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Error("a certificate with two thirds of its life left is replaced")
	}
	i.advanceClock(2 * time.Minute)
	if renewed := leafOf(t, i); renewed.SerialNumber.Cmp(first.SerialNumber) == 0 {
		t.Error("a certificate with less than two thirds of its life left is still used")
	}
}

// TestServingCertificate: a serving certificate is valid for its server only, and may not sign others.
func TestServingCertificate(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	leaf := leafOf(t, i)
	if diff := cmp.Diff([]string{hostName}, leaf.DNSNames); diff != "" {
		t.Errorf("DNS names (-want +got):\n%s", diff)
	}
	if leaf.IsCA {
		t.Error("a serving certificate may sign others")
	}
	if err := leaf.VerifyHostname("another.svc"); err == nil {
		t.Error("the certificate is good for another server")
	}
	if life := leaf.NotAfter.Sub(startTime); life != servingLifetime {
		t.Errorf("it lives for %s, want %s", life, servingLifetime)
	}
}

// TestHandshake: crypto/tls accepts the certificate with the bundle, and rejects it without.
func TestHandshake(t *testing.T) {
	i := newInstallation(t)
	i.clock.SetTime(time.Now())
	i.refresh(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: i.server.GetCertificate})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func(c net.Conn) { _, _ = io.WriteString(c, "hello"); _ = c.Close() }(connection)
		}
	}()
	connection, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: i.Pool(), ServerName: hostName})
	if err != nil {
		t.Fatalf("a client with the bundle cannot connect: %v", err)
	}
	defer connection.Close()
	if text, err := io.ReadAll(connection); err != nil || string(text) != "hello" {
		t.Errorf("the client reads %q, %v", text, err)
	}
	if _, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{ServerName: hostName}); err == nil {
		t.Error("a client without the bundle trusts the server")
	}
}

// TestPublish: the certificate in another process's Secret is always trusted by clients with the bundle.
func TestPublish(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	publish := func() *corev1.Secret {
		t.Helper()
		if err := i.PublishServing(t.Context(), servingName, hostName); err != nil {
			t.Fatal(err)
		}
		return i.secret(t, servingName)
	}
	made := publish()
	if made.Type != corev1.SecretTypeTLS {
		t.Errorf("the Secret has the type %s, want %s", made.Type, corev1.SecretTypeTLS)
	}
	if again := publish(); again.ResourceVersion != made.ResourceVersion {
		t.Error("a fresh certificate is written again")
	}
	for day := range 2 * 365 {
		i.advanceClock(24 * time.Hour)
		i.refresh(t)
		secret := publish()
		pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(pair.Leaf, i.Bundle(), i.clock.Now()); err != nil {
			t.Fatalf("on day %d: %v", day, err)
		}
	}
}

// TestPublishNames: a certificate that lacks a name is replaced. One that has more names is kept.
func TestPublishNames(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	published := func(names ...string) *x509.Certificate {
		t.Helper()
		if err := i.PublishServing(t.Context(), servingName, names...); err != nil {
			t.Fatal(err)
		}
		secret := i.secret(t, servingName)
		pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	one, both := published(hostName), published(hostName, "another.example.com")
	if diff := cmp.Diff([]string{hostName, "another.example.com"}, both.DNSNames); diff != "" || one.Equal(both) {
		t.Errorf("the second certificate's names (-want +got):\n%s", diff)
	}
	if again := published(hostName); !again.Equal(both) {
		t.Error("a certificate that has the name is made anew")
	}
}

// TestPublishRepairs: a broken certificate is replaced.
func TestPublishRepairs(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	if err := i.PublishServing(t.Context(), servingName, hostName); err != nil {
		t.Fatal(err)
	}
	secret := i.secret(t, servingName)
	secret.Data[corev1.TLSCertKey] = []byte("broken")
	if err := i.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := i.PublishServing(t.Context(), servingName, hostName); err != nil {
		t.Fatal(err)
	}
	secret = i.secret(t, servingName)
	if _, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		t.Errorf("the Secret is still broken: %v", err)
	}
}

// TestPublishBundle: the ConfigMap always has the current certificates, and nothing secret.
func TestPublishBundle(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	published := func() *corev1.ConfigMap {
		t.Helper()
		if err := i.PublishBundle(t.Context(), "ca"); err != nil {
			t.Fatal(err)
		}
		var made corev1.ConfigMap
		if err := i.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "ca"}, &made); err != nil {
			t.Fatal(err)
		}
		return &made
	}
	made := published()
	if again := published(); again.ResourceVersion != made.ResourceVersion {
		t.Error("a bundle that has not changed is written again")
	}
	for day := 0; day < 400; day += 10 {
		i.advanceClock(10 * 24 * time.Hour)
		i.refresh(t)
		data := published().Data
		if len(data) != 1 || data["ca.crt"] != string(i.Bundle()) || strings.Contains(data["ca.crt"], "PRIVATE") {
			t.Fatalf("on day %d this is published: %v", day, data)
		}
	}
}

// TestClockSetBack: a certificate is still trusted if the clock is set back by most of a day just after it was renewed, even
// right after the first start.
func TestClockSetBack(t *testing.T) {
	for name, age := range map[string]time.Duration{"just made": 0, "renewed after a month": servingLifetime} {
		i := newInstallation(t)
		i.refresh(t)
		i.advanceClock(age)
		i.refresh(t)
		leafOf(t, i)
		i.advanceClock(-20 * time.Hour)
		i.refresh(t)
		if err := i.verifyServer(i.Bundle()); err != nil {
			t.Errorf("%s: after the clock went back by 20h: %v", name, err)
		}
	}
}
