package certificate

import (
	"context"
	"crypto/tls"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Server holds the certificate of a server in this process. The certificate is renewed when it is used.
type Server struct {
	Authority *Authority
	Names     []string

	mu      sync.Mutex
	current *tls.Certificate
}

// GetCertificate returns a certificate that is fresh, for tls.Config.
func (s *Server) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.Authority.isFresh(s.current.Leaf, s.Names...) {
		return s.current, nil
	}
	certPEM, keyPEM, err := s.Authority.signServing(s.Names...)
	if err != nil {
		return nil, err
	}
	loaded, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	s.current = &loaded
	return s.current, nil
}

// +kubebuilder:rbac:groups="",namespace=system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=system,resources=configmaps,resourceNames=scanner-operator-ca,verbs=get;update

// PublishBundle writes the bundle to the key ca.crt of a ConfigMap in the operator's namespace. It is for clients of the operator's servers
// that may not read its Secrets.
func (a *Authority) PublishBundle(ctx context.Context, name string) error {
	_, err := update(ctx, a, name, func(published *corev1.ConfigMap) (bool, error) {
		bundle := string(a.Bundle())
		if published.Data[keyCertificate] == bundle {
			return false, nil
		}
		published.Data = map[string]string{keyCertificate: bundle}
		return true, nil
	})
	return err
}

// PublishServing keeps a fresh serving certificate for another process of the operator in a Secret of the operator's namespace. Two managers may
// call it at the same time.
func (a *Authority) PublishServing(ctx context.Context, secretName string, names ...string) error {
	_, err := update(ctx, a, secretName, func(secret *corev1.Secret) (bool, error) {
		published, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err == nil && a.isFresh(published.Leaf, names...) {
			return false, nil
		}
		certPEM, keyPEM, err := a.signServing(names...)
		if err != nil {
			return false, err
		}
		secret.Data = map[string][]byte{corev1.TLSCertKey: certPEM, corev1.TLSPrivateKeyKey: keyPEM}
		if secret.ResourceVersion == "" {
			secret.Type = corev1.SecretTypeTLS // the API server does not allow to change it later
		}
		return true, nil
	})
	return err
}
