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

// Intervals at which the certificate is read.
const (
	// certificateRetry is short, since nothing is served before there is a certificate.
	certificateRetry = 2 * time.Second
	// certificateRefresh is far shorter than the overlap of two certificates.
	certificateRefresh = 10 * time.Minute
)

// Certificate is the serving certificate that the manager keeps in a Secret (keys tls.crt and tls.key). It is read periodically, so that
// the manager can rotate it without a restart of the notifier. It is safe for concurrent use.
type Certificate struct {
	secrets coreclient.SecretInterface
	name    string
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]
}

// NewCertificate returns a Certificate that was not read yet.
func NewCertificate(secrets coreclient.SecretInterface, name string, log *slog.Logger) *Certificate {
	return &Certificate{secrets: secrets, name: name, log: log}
}

// Ready reports whether there is a certificate.
func (c *Certificate) Ready() bool { return c.current.Load() != nil }

// Get implements tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := c.current.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, errors.New("no serving certificate yet")
}

// Load reads the Secret once. With an error, the previous certificate stays in use.
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

// Run reads the certificate periodically until the context ends. sleep waits, or returns the context's error.
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
