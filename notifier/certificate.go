package notifier

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Pauses between two looks at the certificate.
const (
	// certificateRetry is short: nothing is served before there is a certificate.
	certificateRetry = 2 * time.Second
	// certificateRefresh is far below the overlap of two certificates.
	certificateRefresh = 10 * time.Minute
)

// Certificate is the serving certificate that the manager keeps in a Secret (keys tls.crt and tls.key). It is
// read again from time to time, so that it can be rotated without a restart.
type Certificate struct {
	secrets coreclient.SecretInterface
	name    string
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]
}

// NewCertificate returns a Certificate that is yet to be read.
func NewCertificate(secrets coreclient.SecretInterface, name string, log *slog.Logger) *Certificate {
	return &Certificate{secrets: secrets, name: name, log: log}
}

// Ready says whether there is a certificate.
func (c *Certificate) Ready() bool { return c.current.Load() != nil }

// Get is for tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := c.current.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, errors.New("no serving certificate yet")
}

// Load reads the Secret once. When that fails, the certificate before stays.
func (c *Certificate) Load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	secret, err := c.secrets.Get(ctx, c.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the serving certificate's Secret %s, which the manager makes: %w", c.name, err)
	}
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		return fmt.Errorf("serving certificate in Secret %s: %w", c.name, err)
	}
	c.current.Store(&pair)
	return nil
}

// Run keeps the certificate up to date until the context ends. sleep waits, or returns the context's error.
func (c *Certificate) Run(ctx context.Context, sleep func(context.Context, time.Duration) error) {
	for {
		err := c.Load(ctx)
		pause := certificateRefresh
		if !c.Ready() {
			pause = certificateRetry
		}
		if err != nil {
			c.log.Warn("no new serving certificate", "ready", c.Ready(), "error", err)
		}
		if sleep(ctx, pause) != nil {
			return
		}
	}
}
