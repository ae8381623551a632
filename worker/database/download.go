package database

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

// Limits of a download. Grype's own database is about 0.2 GiB as an archive and 1 to 2 GiB unpacked.
// Grype itself unpacks at most 5 GiB (grype v0.121, internal/file/getter.go).
const (
	maxArchiveBytes  = 1 << 30
	maxDatabaseBytes = 5 << 30
	stallTimeout     = time.Minute
)

// ErrChecksum reports that an archive does not have the listing's checksum: it is truncated or altered.
var ErrChecksum = errors.New("the archive's checksum is not the listing's")

// download stores the listing's archive in file and verifies it.
func (s *Source) download(ctx context.Context, listing Listing, file string, log *slog.Logger) error {
	// The context is cancelled with a cause when no more data arrives. A deadline for the whole download would depend on its size.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, err := s.get(ctx, listing.Archive)
	if err != nil {
		return fmt.Errorf("downloading the database: %w", err)
	}
	defer body.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()

	digest := sha256.New()
	progress := &progress{from: body, log: log, stallTimeout: s.stallTimeout, stalled: time.AfterFunc(s.stallTimeout, func() {
		cancel(fmt.Errorf("no data for %s", s.stallTimeout))
	})}
	defer progress.stalled.Stop()
	size, err := io.Copy(io.MultiWriter(out, digest), io.LimitReader(progress, maxArchiveBytes+1))
	// "no data for a minute" is more precise than "context cancelled".
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	switch {
	case err != nil:
		return fmt.Errorf("downloading the database, after %d bytes: %w", size, err)
	case size > maxArchiveBytes:
		return fmt.Errorf("the database's archive is larger than %d MiB", maxArchiveBytes>>20)
	}
	// The archive is verified before it is unpacked.
	if got := "sha256:" + hex.EncodeToString(digest.Sum(nil)); got != listing.Checksum {
		return fmt.Errorf("%w: got %s with %d bytes, want %s", ErrChecksum, got, size, listing.Checksum)
	}
	return out.Close()
}

// progress logs the progress of a download, and restarts the stall timer with each piece of data.
type progress struct {
	from          io.Reader
	log           *slog.Logger
	stallTimeout  time.Duration
	stalled       *time.Timer
	total, logged int64
}

// logEvery is the amount of data in bytes between two log lines.
const logEvery = 50 << 20

// Read implements io.Reader.
func (p *progress) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.stalled.Reset(p.stallTimeout)
	if p.total += int64(n); p.total-p.logged >= logEvery {
		p.logged = p.total
		p.log.Info("downloading the database", "bytes", p.total)
	}
	return n, err
}
