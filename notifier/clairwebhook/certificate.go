package clairwebhook

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// certificateRefresh is the least time between two reads of the files.
const certificateRefresh = 10 * time.Second

// errNoCertificate ends handshakes. The client learns nothing else.
var errNoCertificate = errors.New("there is no certificate for Clair's webhooks yet")

// Certificate is the serving certificate of the webhook listener, read from the files tls.crt and tls.key of a directory, such as a mounted
// Secret. It is read again on connections when the files have changed. The files may appear after the notifier has started, since
// deliveries do not depend on Clair's webhooks. It is safe for concurrent use.
type Certificate struct {
	dir   string
	clock clock.PassiveClock
	log   *slog.Logger

	mu        sync.Mutex
	checkedAt time.Time
	pem       []byte
	current   *tls.Certificate
}

// NewCertificate returns a Certificate and reads the files for the first time. Unusable files are logged.
func NewCertificate(dir string, clock clock.PassiveClock, log *slog.Logger) *Certificate {
	c := &Certificate{dir: dir, clock: clock, log: log}
	c.reload()
	return c
}

// Get implements tls.Config.GetCertificate. While the files cannot be used, the previous certificate stays in use. Without one, the
// handshake fails.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clock.Now().Sub(c.checkedAt).Abs() >= certificateRefresh {
		c.reload()
	}
	if c.current == nil {
		return nil, errNoCertificate
	}
	return c.current, nil
}

// reload reads the files, and logs why they cannot be used.
func (c *Certificate) reload() {
	c.checkedAt = c.clock.Now()
	if err := c.read(); err != nil {
		c.log.Warn("cannot use the certificate for Clair's webhooks: tls.crt and tls.key must be a pair in the directory of --clair-webhook-cert-dir",
			"directory", c.dir, "error", err, "refused", c.current == nil)
	}
}

func (c *Certificate) read() error {
	certificate, err := os.ReadFile(filepath.Join(c.dir, "tls.crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(filepath.Join(c.dir, "tls.key"))
	if err != nil {
		return err
	}
	text := append(bytes.Clone(certificate), key...)
	if bytes.Equal(text, c.pem) {
		return nil
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("tls.crt and tls.key in %s: %w", c.dir, err)
	}
	c.pem, c.current = text, &pair
	return nil
}
