package notifier

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
)

// Roots are the certificates to trust: those of the system, or the built-in ones where the system has none, and those in a file. The file may be
// missing. It is read again when it has changed, as a mounted ConfigMap does. Roots is safe for concurrent use.
type Roots struct {
	file string
	log  *slog.Logger

	mu   sync.Mutex
	pool *x509.CertPool
	// read describes the file as it was last read; nil if it was missing.
	read fs.FileInfo
}

// LoadRoots reads the certificates in a file; an empty name stands for none. While a file has no certificate or cannot be read, as when the one who fills a
// ConfigMap is late, the log has the reason, and only the other certificates are trusted. It fails if these cannot be read.
func LoadRoots(file string, log *slog.Logger) (*Roots, error) {
	r := &Roots{file: file, log: log}
	err := r.load()
	if err != nil && r.pool != nil {
		log.Error("the certificates in the file are not trusted until it is mended: without them, receivers that have certificates of your own authority fail", "error", err)
		err = nil
	}
	return r, err
}

// Pool returns the certificates to trust now. While a changed file cannot be used, it returns those before, and logs the reason.
func (r *Roots) Pool() *x509.CertPool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if info, _ := os.Stat(r.file); !sameFile(r.read, info) {
		before := r.pool
		if err := r.load(); err != nil {
			r.pool = before
			r.log.Error("the changed certificates are not used; the ones before stay trusted", "error", err)
		} else {
			r.log.Info("the certificates to trust were read again", "file", r.file)
		}
	}
	return r.pool
}

// load reads the file. The next call of Pool reads it again only if it has changed since.
func (r *Roots) load() (err error) {
	if r.pool, err = x509.SystemCertPool(); err != nil {
		return fmt.Errorf("certificates of the system: %w", err)
	}
	if r.read, _ = os.Stat(r.file); r.file == "" {
		return nil
	}
	pem, err := os.ReadFile(r.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--ca-file: %w", err)
	case !r.pool.AppendCertsFromPEM(pem):
		return fmt.Errorf("--ca-file %s: no certificate in it (PEM)", r.file)
	}
	return nil
}

// sameFile reports whether a file is unchanged.
func sameFile(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
