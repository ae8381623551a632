package clairhook

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// certificateRefresh is the least time between two looks at the files.
const certificateRefresh = 10 * time.Second

// Certificate is that of the listener, from the files tls.crt and tls.key of a directory, such as a mounted Secret. It is
// read again when there are connections and the files have changed.
type Certificate struct {
	dir   string
	clock clock.PassiveClock
	log   *slog.Logger

	mu        sync.Mutex
	looked    time.Time
	text      []byte
	currently *tls.Certificate
}

// NewCertificate reads the files for the first time.
func NewCertificate(dir string, clock clock.PassiveClock, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{dir: dir, clock: clock, log: log, looked: clock.Now()}
	return c, c.read()
}

// Get is for tls.Config.GetCertificate. While the files cannot be used, the certificate before stays.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.clock.Now(); now.Sub(c.looked).Abs() >= certificateRefresh {
		c.looked = now
		if err := c.read(); err != nil {
			c.log.Warn("no new certificate for Clair's webhooks", "error", err)
		}
	}
	return c.currently, nil
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
	if bytes.Equal(text, c.text) {
		return nil
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("tls.crt and tls.key in %s: %w", c.dir, err)
	}
	c.text, c.currently = text, &pair
	return nil
}
