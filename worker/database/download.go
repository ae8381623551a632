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

// Limits of a download. Grype's own database is about 0.2 GiB as an archive and 1 to 2 GiB unpacked;
// 5 GiB is where Grype itself stops unpacking (grype v0.121, internal/file/getter.go).
const (
	maxArchiveBytes  = 1 << 30
	maxDatabaseBytes = 5 << 30
	stallTimeout     = time.Minute
)

// ErrChecksum says that an archive is not the one that the listing promises: truncated or altered.
var ErrChecksum = errors.New("the archive's checksum is not the listing's")

// download stores the listing's archive in file and verifies it.
func (s *Source) download(ctx context.Context, listing Listing, file string, log *slog.Logger) error {
	// Cancelled with its cause when the data stops coming: a deadline for the whole would have to know the size.
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
	progress := &progress{from: body, log: log, patience: s.patience, stalled: time.AfterFunc(s.patience, func() {
		cancel(fmt.Errorf("no data for %s", s.patience))
	})}
	defer progress.stalled.Stop()
	size, err := io.Copy(io.MultiWriter(out, digest), io.LimitReader(progress, maxArchiveBytes+1))
	// "no data for a minute" tells more than "context cancelled".
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	switch {
	case err != nil:
		return fmt.Errorf("downloading the database, after %d bytes: %w", size, err)
	case size > maxArchiveBytes:
		return fmt.Errorf("the database's archive is larger than %d MiB", maxArchiveBytes>>20)
	}
	// Verified before anything looks into it.
	if got := "sha256:" + hex.EncodeToString(digest.Sum(nil)); got != listing.Checksum {
		return fmt.Errorf("%w: got %s with %d bytes, want %s", ErrChecksum, got, size, listing.Checksum)
	}
	return out.Close()
}

// progress says how far a download is, and notices when nothing comes any more.
type progress struct {
	from          io.Reader
	log           *slog.Logger
	patience      time.Duration
	stalled       *time.Timer
	total, logged int64
}

// logEvery is the amount of data between two lines of progress.
const logEvery = 50 << 20

// Read implements io.Reader.
func (p *progress) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.stalled.Reset(p.patience)
	if p.total += int64(n); p.total-p.logged >= logEvery {
		p.logged = p.total
		p.log.Info("downloading the database", "bytes", p.total)
	}
	return n, err
}
