package certificate

import (
	"context"
	"crypto/tls"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Server holds the certificate of a server in this process. The certificate is renewed when it is used.
type Server struct {
	Authority *Authority
	Names     []string

	mu      sync.Mutex
	certPEM []byte
	keyPEM  []byte
	current *tls.Certificate
}

// GetCertificate returns a certificate that is fresh, for tls.Config.
func (s *Server) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.Authority.isFresh(s.certPEM, s.keyPEM, s.Names...) {
		return s.current, nil
	}
	certPEM, keyPEM, err := s.Authority.SignServing(s.Names...)
	if err != nil {
		return nil, err
	}
	loaded, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	s.certPEM, s.keyPEM, s.current = certPEM, keyPEM, &loaded
	return s.current, nil
}

// +kubebuilder:rbac:groups="",namespace=system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=system,resources=configmaps,resourceNames=scanner-operator-ca,verbs=get;update

// PublishBundle writes the bundle to the key ca.crt of a ConfigMap in the operator's namespace. It is for clients of the operator's servers
// that may not read its Secrets.
func (a *Authority) PublishBundle(ctx context.Context, name string) error {
	return retryOnConflict(func() error { return a.publishBundle(ctx, name) })
}

func (a *Authority) publishBundle(ctx context.Context, name string) error {
	var published corev1.ConfigMap
	err := a.Reader.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: name}, &published)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	bundle := string(a.Bundle())
	if published.Data[keyCertificate] == bundle {
		return nil
	}
	published.Data = map[string]string{keyCertificate: bundle}
	if missing {
		published.ObjectMeta = metav1.ObjectMeta{Namespace: a.Namespace, Name: name}
		return a.Client.Create(ctx, &published)
	}
	return a.Client.Update(ctx, &published)
}

// PublishServing keeps a fresh serving certificate for another process of the operator in a Secret of the operator's namespace. Two managers may
// call it at the same time.
func (a *Authority) PublishServing(ctx context.Context, secretName string, names ...string) error {
	return retryOnConflict(func() error { return a.publishServing(ctx, secretName, names) })
}

func (a *Authority) publishServing(ctx context.Context, secretName string, names []string) error {
	var secret corev1.Secret
	err := a.Reader.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: secretName}, &secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	if a.isFresh(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], names...) {
		return nil
	}
	certPEM, keyPEM, err := a.SignServing(names...)
	if err != nil {
		return err
	}
	secret.Data = map[string][]byte{corev1.TLSCertKey: certPEM, corev1.TLSPrivateKeyKey: keyPEM}
	if missing {
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: a.Namespace, Name: secretName}
		secret.Type = corev1.SecretTypeTLS
		return a.Client.Create(ctx, &secret)
	}
	return a.Client.Update(ctx, &secret)
}
