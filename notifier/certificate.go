package notifier

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Intervals at which a certificate is read.
const (
	// certificateRetry is short, since nothing is served before there is a certificate.
	certificateRetry = 2 * time.Second
	// secretRefresh is far shorter than the overlap of two certificates.
	secretRefresh    = 10 * time.Minute
	directoryRefresh = 10 * time.Second
)

// Certificate is a serving certificate that Run reads periodically, so that it can be rotated without a restart of the notifier. It may also
// appear after the start: handshakes fail until then. It is safe for concurrent use.
type Certificate struct {
	load    func(context.Context) (tls.Certificate, error)
	refresh time.Duration
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]
}

// SecretCertificate returns the Certificate that the manager keeps in a Secret (keys tls.crt and tls.key).
func SecretCertificate(secrets coreclient.SecretInterface, name string, log *slog.Logger) *Certificate {
	load := func(ctx context.Context) (tls.Certificate, error) {
		ctx, cancel := context.WithTimeout(ctx, secretTimeout)
		defer cancel()
		secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("read the serving certificate's Secret %s, which the manager makes: %w", name, err)
		}
		pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("serving certificate in Secret %s: %w", name, err)
		}
		return pair, nil
	}
	return &Certificate{load: load, refresh: secretRefresh, log: log}
}

// DirectoryCertificate returns the Certificate for Clair's webhooks in the files tls.crt and tls.key of a directory, such as a mounted Secret.
// Files that exist already are in use when it returns.
func DirectoryCertificate(dir string, log *slog.Logger) *Certificate {
	load := func(context.Context) (tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("cannot use the certificate for Clair's webhooks: tls.crt and tls.key must be a pair in %s, the directory of "+
				"--clair-webhook-cert-dir: %w", dir, err)
		}
		return pair, nil
	}
	c := &Certificate{load: load, refresh: directoryRefresh, log: log}
	if pair, err := load(context.Background()); err == nil { // Run logs the error
		c.current.Store(&pair)
	}
	return c
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

// Run reads the certificate periodically until the context ends. After an error, the previous certificate stays in use. sleep waits, or
// returns the context's error.
func (c *Certificate) Run(ctx context.Context, sleep func(context.Context, time.Duration) error) {
	logged, sinceLogged := "", time.Duration(0)
	for {
		pair, err := c.load(ctx)
		switch {
		case err == nil:
			c.current.Store(&pair)
			logged = ""
		case err.Error() != logged || sinceLogged >= secretRefresh: // logs are rotated, so an error that stays is logged again
			logged, sinceLogged = err.Error(), 0
			c.log.Warn("no new serving certificate", "ready", c.Ready(), "error", err)
		}
		pause := c.refresh
		if !c.Ready() {
			pause = certificateRetry
		}
		if sleep(ctx, pause) != nil {
			return
		}
		sinceLogged += pause
	}
}
