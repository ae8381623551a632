package certificate

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const (
	namespace  = "scanner-operator-system"
	secretName = "authority"
	hostName   = "scanner-operator-ingest.scanner-operator-system.svc"
)

var startTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// installation is a cluster with an operator and a clock that the test sets.
type installation struct {
	*Authority
	client client.Client
	clock  *clocktesting.FakePassiveClock
	server *Server
}

func newInstallation(t testing.TB, objects ...client.Object) *installation {
	t.Helper()
	i := &installation{client: fake.NewClientBuilder().WithObjects(objects...).Build(), clock: clocktesting.NewFakePassiveClock(startTime)}
	i.restart()
	return i
}

// restart replaces the process by another one in the same cluster.
func (i *installation) restart() {
	i.Authority = &Authority{Client: i.client, Reader: i.client, Clock: i.clock, Namespace: namespace, Secret: secretName}
	i.server = &Server{Authority: i.Authority, Names: []string{hostName}}
}

func (i *installation) refresh(t testing.TB) {
	t.Helper()
	if err := i.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (i *installation) advanceClock(d time.Duration) { i.clock.SetTime(i.clock.Now().Add(d)) }

func (i *installation) secret(t testing.TB, name string) *corev1.Secret {
	t.Helper()
	var secret corev1.Secret
	if err := i.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &secret); err != nil {
		t.Fatal(err)
	}
	return &secret
}

// verifyServer returns an error unless a client with this bundle trusts the server now.
func (i *installation) verifyServer(bundle []byte) error {
	certificate, err := i.server.GetCertificate(nil)
	if err != nil {
		return err
	}
	return verify(certificate.Leaf, bundle, i.clock.Now())
}

func verify(leaf *x509.Certificate, bundle []byte, at time.Time) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("the bundle holds no certificate")
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: hostName, CurrentTime: at})
	return err
}

// TestFirstStart: the first Refresh creates an authority, and clients trust the server at once.
func TestFirstStart(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	if err := i.verifyServer(i.Bundle()); err != nil {
		t.Errorf("a client does not trust the server: %v", err)
	}
	if err := verify(leafOf(t, i), i.Bundle(), startTime.Add(-59*time.Minute)); err != nil {
		t.Errorf("a client whose clock is an hour behind does not trust the server: %v", err)
	}
	if !i.Pool().Equal(poolOf(i.Bundle())) {
		t.Error("Pool and Bundle hold different certificates")
	}
}

func leafOf(t testing.TB, i *installation) *x509.Certificate {
	t.Helper()
	certificate, err := i.server.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return certificate.Leaf
}

func poolOf(bundle []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	return pool
}

// TestRestart: a restarted process uses the same authority and writes nothing.
func TestRestart(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	bundle, version := i.Bundle(), i.secret(t, secretName).ResourceVersion
	i.restart()
	i.advanceClock(24 * time.Hour)
	i.refresh(t)
	if !bytes.Equal(bundle, i.Bundle()) {
		t.Error("a restart changes the bundle")
	}
	if got := i.secret(t, secretName).ResourceVersion; got != version {
		t.Errorf("a restart writes the Secret: version %s, was %s", got, version)
	}
	if err := i.verifyServer(bundle); err != nil {
		t.Errorf("a worker from before the restart does not trust the server: %v", err)
	}
}

// TestBeforeRefresh: a server without an authority returns an error and serves nothing.
func TestBeforeRefresh(t *testing.T) {
	if _, err := newInstallation(t).server.GetCertificate(nil); err == nil || !strings.Contains(err.Error(), "not loaded") {
		t.Errorf("the error is %v, want one that says that the authority is not loaded", err)
	}
}

// TestRotation: over three years, in steps of some hours, a client with a bundle that is at most a day old trusts the server at any time.
func TestRotation(t *testing.T) {
	const step = 4 * time.Hour
	i := newInstallation(t)
	var bundles [][]byte // of the last 24 hours, oldest first
	authorities := map[string]bool{}
	for i.clock.Since(startTime) < 3*365*24*time.Hour {
		i.refresh(t)
		bundles = append(bundles[max(0, len(bundles)-int(overlap/step)):], i.Bundle())
		for _, bundle := range [][]byte{bundles[0], bundles[len(bundles)-1]} {
			if err := i.verifyServer(bundle); err != nil {
				t.Fatalf("at %s a client with a bundle of the last day does not trust the server: %v", i.clock.Now(), err)
			}
		}
		authorities[string(leafOf(t, i).AuthorityKeyId)] = true
		i.advanceClock(step)
	}
	// An authority lives for 365 days and is replaced when a third of that is left.
	if got := len(authorities); got != 5 {
		t.Errorf("%d authorities signed in three years, want 5", got)
	}
}

// TestRotationWithPauses: refreshes are irregular, and the process is down for hours or months. A client with the bundle of a running
// process still trusts that process for a day.
func TestRotationWithPauses(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		i := newInstallation(t)
		pauses := rapid.SliceOfN(rapid.Int64Range(int64(time.Minute), int64(200*24*time.Hour)), 1, 12).Draw(r, "pauses")
		for _, pause := range pauses {
			i.refresh(t)
			bundle := i.Bundle()
			if err := i.verifyServer(bundle); err != nil {
				r.Fatalf("at %s: %v", i.clock.Now(), err)
			}
			for range 24 {
				i.advanceClock(time.Hour)
				i.refresh(t)
				if err := i.verifyServer(bundle); err != nil {
					r.Fatalf("at %s, with a bundle of less than a day ago: %v", i.clock.Now(), err)
				}
			}
			i.advanceClock(time.Duration(pause))
			if rapid.Bool().Draw(r, "restart") {
				i.restart()
			}
		}
	})
}

// TestNextIsPublishedFirst: for a day, the next authority is in the bundle but signs nothing. After that, the previous one is still
// trusted, for servers without a new certificate.
func TestNextIsPublishedFirst(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	old := i.secret(t, secretName).Data[keyCertificate]
	i.advanceClock(authorityLifetime - renewBefore + time.Hour)
	i.refresh(t)
	if got := certificates(i.Bundle()); got != 2 {
		t.Fatalf("the bundle has %d certificates, want the active and the next", got)
	}
	if err := verify(leafOf(t, i), old, i.clock.Now()); err != nil {
		t.Errorf("the next authority signs before a day is over: %v", err)
	}
	i.advanceClock(overlap - time.Second)
	i.refresh(t)
	before := leafOf(t, i)
	if err := verify(before, old, i.clock.Now()); err != nil {
		t.Errorf("the next authority signs a second too early: %v", err)
	}
	i.advanceClock(time.Second)
	i.refresh(t)
	if err := verify(leafOf(t, i), old, i.clock.Now()); err == nil {
		t.Error("the old authority still signs after a day")
	}
	if err := verify(before, i.Bundle(), i.clock.Now()); err != nil {
		t.Errorf("a server with a certificate of the old authority is not trusted any more: %v", err)
	}
	if got := certificates(i.Bundle()); got != 2 {
		t.Errorf("the bundle has %d certificates, want the active and the previous", got)
	}
	if key := i.secret(t, secretName).Data[prefixPrevious+keyPrivate]; key != nil {
		t.Error("the old authority's key is kept, though nothing is signed with it any more")
	}
}

func certificates(bundle []byte) (n int) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return n
		}
		n++
	}
}

// TestExpiredAuthority: an operator that was down for more than a year starts like a new one.
func TestExpiredAuthority(t *testing.T) {
	for name, tt := range map[string]struct{ on, off time.Duration }{
		"a year":                      {0, authorityLifetime + time.Hour},
		"years":                       {0, 5 * authorityLifetime},
		"years, with a next one made": {authorityLifetime - renewBefore + time.Hour, 5 * authorityLifetime},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t)
			i.refresh(t)
			i.advanceClock(tt.on)
			i.refresh(t)
			i.advanceClock(tt.off)
			i.restart()
			i.refresh(t)
			if err := i.verifyServer(i.Bundle()); err != nil {
				t.Errorf("a client does not trust the server: %v", err)
			}
			if got := certificates(i.Bundle()); got != 1 {
				t.Errorf("the bundle has %d certificates, want the new one only", got)
			}
		})
	}
}

// TestAlmostExpiredAuthority: an operator that starts hours before its authority expires cannot publish the next one for a whole day. A
// client that got a bundle since then trusts the server all the same.
func TestAlmostExpiredAuthority(t *testing.T) {
	for _, left := range []time.Duration{time.Minute, 119 * time.Minute, 121 * time.Minute, 12 * time.Hour, 23 * time.Hour} {
		t.Run(left.String(), func(t *testing.T) {
			i := newInstallation(t)
			i.refresh(t)
			i.advanceClock(authorityLifetime - left)
			i.restart()
			i.refresh(t)
			bundle := i.Bundle()
			for range 24 {
				if err := i.verifyServer(bundle); err != nil {
					t.Fatalf("at %s: %v", i.clock.Now(), err)
				}
				i.advanceClock(time.Hour)
				i.refresh(t)
			}
		})
	}
}

// TestBrokenSecret: a Secret that cannot be parsed stays unchanged, and the error says what to do.
func TestBrokenSecret(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	whole := i.secret(t, secretName).Data
	other := newInstallation(t)
	other.refresh(t)
	for name, data := range map[string]map[string][]byte{
		"no PEM":            {keyCertificate: []byte("x"), keyPrivate: whole[keyPrivate]},
		"no key":            {keyCertificate: whole[keyCertificate]},
		"another key":       {keyCertificate: whole[keyCertificate], keyPrivate: other.secret(t, secretName).Data[keyPrivate]},
		"a broken next":     {keyCertificate: whole[keyCertificate], keyPrivate: whole[keyPrivate], prefixNext + keyCertificate: []byte("x")},
		"a certificate cut": {keyCertificate: whole[keyCertificate][:200], keyPrivate: whole[keyPrivate]},
	} {
		t.Run(name, func(t *testing.T) {
			broken := newInstallation(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName}, Data: data})
			err := broken.Refresh(t.Context())
			if err == nil {
				t.Fatal("the Secret is accepted")
			}
			for _, want := range []string{namespace + "/" + secretName, "delete it to have a new certificate authority made"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "PRIVATE KEY") {
				t.Errorf("the error holds a key: %v", err)
			}
			if got := broken.secret(t, secretName).Data[keyCertificate]; !bytes.Equal(got, data[keyCertificate]) {
				t.Error("the broken Secret was written")
			}
		})
	}
}

// TestDeletedSecret: the advice of the error works. A new authority is created and used at once.
func TestDeletedSecret(t *testing.T) {
	i := newInstallation(t)
	i.refresh(t)
	old := i.Bundle()
	if err := i.client.Delete(t.Context(), i.secret(t, secretName)); err != nil {
		t.Fatal(err)
	}
	i.refresh(t)
	if bytes.Equal(old, i.Bundle()) {
		t.Error("the bundle is the old one")
	}
	if err := i.verifyServer(i.Bundle()); err != nil {
		t.Errorf("a client with the new bundle does not trust the server: %v", err)
	}
}
