// Package certificate keeps the small certificate authority by which the operator's own processes trust each other. Its key is in one
// Secret in the operator's namespace. Nothing outside the operator trusts it.
//
// Authorities overlap when they are replaced. The next authority is published for a day before it signs anything. The previous authority
// stays trusted as long as a server may still use its certificates.
package certificate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lifetimes.
const (
	authorityLifetime = 365 * 24 * time.Hour
	// renewBefore is the remaining lifetime at which the next authority is created.
	renewBefore = authorityLifetime / 3
	// overlap is how long the next authority is published before it signs. No worker lives longer.
	overlap         = 24 * time.Hour
	servingLifetime = 30 * 24 * time.Hour
	// backdate allows for clients whose clocks are behind, and for a clock of the operator that is set back.
	backdate = 24 * time.Hour
	// expiryMargin is the remaining lifetime at which an authority is replaced without overlap, since it might expire before the next Refresh.
	expiryMargin = 2 * time.Hour
)

// Keys of the Secret. Those of the next and the previous authority have prefixes.
const (
	keyCertificate = "ca.crt"
	keyPrivate     = "ca.key"
	prefixNext     = "next-"
	prefixPrevious = "previous-"
)

// Authority signs serving certificates. Methods are safe for concurrent use after Refresh has succeeded once.
type Authority struct {
	Client    client.Client
	Reader    client.Reader // uncached
	Clock     clock.PassiveClock
	Namespace string
	Secret    string

	mu     sync.Mutex
	active *keyPair
	// next is nil while there is none. previous is the authority that this process has seen promoted away, for DeriveKeys; nil before.
	next, previous *keyPair
	bundle         []byte
}

// keyPair is a certificate with its private key.
type keyPair struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	certPEM     []byte
	keyPEM      []byte
}

// +kubebuilder:rbac:groups="",namespace=system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=system,resources=secrets,resourceNames=scanner-operator-authority;scanner-operator-notifier-serving,verbs=get;update

// Refresh loads the authority. When it is time, it creates, publishes or promotes one. Call it at the start and then every hour. Another
// manager may call it at the same time: the one that writes second uses what the first has written.
func (a *Authority) Refresh(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	secret, err := update(ctx, a, a.Secret, func(secret *corev1.Secret) (bool, error) {
		changed, err := a.rotate(secret)
		if err != nil {
			err = fmt.Errorf("secret %s/%s: %w; delete it to have a new certificate authority made", a.Namespace, a.Secret, err)
		}
		return changed, err
	})
	if err != nil {
		return err
	}
	return a.load(secret)
}

// update reads an object of the operator's namespace, or makes one, and writes it if change has changed it. After a conflict it starts
// again: at most five attempts, some milliseconds apart.
func update[T any, O interface {
	*T
	client.Object
}](ctx context.Context, a *Authority, name string, change func(O) (bool, error)) (object O, err error) {
	err = retry.OnError(retry.DefaultRetry, func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	}, func() error {
		object = new(T)
		err := a.Reader.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: name}, object)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		changed, err := change(object)
		switch {
		case err != nil || !changed:
			return err
		case missing:
			object.SetNamespace(a.Namespace)
			object.SetName(name)
			return a.Client.Create(ctx, object)
		}
		return a.Client.Update(ctx, object)
	})
	return object, err
}

// rotate takes the rotation in the Secret's content one step further, if it is time.
func (a *Authority) rotate(secret *corev1.Secret) (changed bool, err error) {
	now := a.Clock.Now()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if len(secret.Data[keyCertificate]) == 0 {
		return true, a.addAuthority(secret, "", now)
	}
	active, err := parse(secret.Data[keyCertificate], secret.Data[keyPrivate])
	if err != nil {
		return false, err
	}
	expiring := active.expiresSoon(now)
	if len(secret.Data[prefixNext+keyCertificate]) == 0 {
		if active.certificate.NotAfter.Sub(now) > renewBefore {
			return false, nil
		}
		if expiring {
			return true, a.reset(secret, now)
		}
		return true, a.addAuthority(secret, prefixNext, now)
	}
	next, err := parse(secret.Data[prefixNext+keyCertificate], secret.Data[prefixNext+keyPrivate])
	if err != nil {
		return false, err
	}
	switch {
	case next.expiresSoon(now):
		return true, a.reset(secret, now)
	case now.Sub(next.certificate.NotBefore.Add(backdate)) < overlap && !expiring:
		return false, nil
	}
	secret.Data[prefixPrevious+keyCertificate] = active.certPEM
	secret.Data[keyCertificate], secret.Data[keyPrivate] = next.certPEM, next.keyPEM
	delete(secret.Data, prefixNext+keyCertificate)
	delete(secret.Data, prefixNext+keyPrivate)
	return true, nil
}

// expiresSoon reports whether an authority has expired, or may expire before the next Refresh.
func (p *keyPair) expiresSoon(now time.Time) bool {
	return p.certificate.NotAfter.Sub(now) < expiryMargin
}

// reset starts over with a new authority. The operator did not run for months, so that no client needs an overlap.
func (a *Authority) reset(secret *corev1.Secret, now time.Time) error {
	clear(secret.Data)
	return a.addAuthority(secret, "", now)
}

func (a *Authority) addAuthority(secret *corev1.Secret, prefix string, now time.Time) error {
	made, err := newAuthority(now)
	if err != nil {
		return err
	}
	secret.Data[prefix+keyCertificate], secret.Data[prefix+keyPrivate] = made.certPEM, made.keyPEM
	return nil
}

func (a *Authority) load(secret *corev1.Secret) error {
	active, err := parse(secret.Data[keyCertificate], secret.Data[keyPrivate])
	if err != nil {
		return err
	}
	var next *keyPair
	if len(secret.Data[prefixNext+keyCertificate]) > 0 {
		if next, err = parse(secret.Data[prefixNext+keyCertificate], secret.Data[prefixNext+keyPrivate]); err != nil {
			return err
		}
	}
	promoted := a.next != nil && bytes.Equal(a.next.certPEM, active.certPEM)
	switch {
	case promoted:
		a.previous = a.active
	case a.active != nil && !bytes.Equal(a.active.certPEM, active.certPEM): // the Secret was deleted
		a.previous = nil
	}
	a.active, a.next = active, next
	a.bundle = bytes.Join([][]byte{active.certPEM, secret.Data[prefixNext+keyCertificate], secret.Data[prefixPrevious+keyCertificate]}, nil)
	return nil
}

// Bundle returns the PEM bundle that verifies the operator's own servers.
func (a *Authority) Bundle() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return bytes.Clone(a.bundle)
}

// Pool returns the certificates of Bundle as a pool.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.Bundle())
	return pool
}

// signServing signs a certificate for a server with the given DNS names. It returns an error before Refresh has succeeded.
func (a *Authority) signServing(names ...string) (certPEM, keyPEM []byte, err error) {
	a.mu.Lock()
	active := a.active
	a.mu.Unlock()
	if active == nil {
		return nil, nil, errors.New("the certificate authority is not loaded")
	}
	now := a.Clock.Now()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		// A clock that is set back makes this certificate invalid only if it makes the authority's own certificate invalid.
		NotBefore: active.certificate.NotBefore, NotAfter: now.Add(servingLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	made, err := sign(template, active)
	if err != nil {
		return nil, nil, err
	}
	return made.certPEM, made.keyPEM, nil
}

// DeriveKeys returns keys of 32 bytes that only those can know who may read the authority's Secret. The first one is that of the active authority, to
// seal with. For an hour after the next authority was promoted, processes that have not refreshed yet have another active one: so the keys of the next
// and the previous authority follow, to open with. Keys for different purposes are independent. It returns an error before Refresh has succeeded.
func (a *Authority) DeriveKeys(purpose string) (keys [][]byte, err error) {
	a.mu.Lock()
	authorities := []*keyPair{a.active, a.next, a.previous}
	a.mu.Unlock()
	if authorities[0] == nil {
		return nil, errors.New("the certificate authority is not loaded")
	}
	for _, authority := range authorities {
		if authority == nil {
			continue
		}
		key, err := hkdf.Key(sha256.New, authority.keyPEM, nil, purpose, sha256.Size)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// isFresh reports whether a certificate is signed by the active authority, has the names, and has more than two thirds of its lifetime left.
func (a *Authority) isFresh(serving *x509.Certificate, names ...string) bool {
	for _, name := range names {
		if serving.VerifyHostname(name) != nil {
			return false
		}
	}
	a.mu.Lock()
	active := a.active
	a.mu.Unlock()
	return active != nil && serving.CheckSignatureFrom(active.certificate) == nil && serving.NotAfter.Sub(a.Clock.Now()) > servingLifetime*2/3
}

func newAuthority(now time.Time) (*keyPair, error) {
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "Scanner Operator"}, NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil)
}

// sign creates a key and a certificate. Without an issuer, the certificate signs itself.
func sign(template *x509.Certificate, issuer *keyPair) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.certificate, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return parse(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

func parse(certPEM, keyPEM []byte) (*keyPair, error) {
	loaded, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key is not an ECDSA key")
	}
	return &keyPair{certificate: loaded.Leaf, key: key, certPEM: certPEM, keyPEM: keyPEM}, nil
}
