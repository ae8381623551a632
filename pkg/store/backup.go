package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/pressly/goose/v3"
)

// A backup consists of two parts. The first is a header line in JSON, which people can read with "head -1". The second is a zstd
// stream of the store's pages in order, which is the file as SQLite writes it, followed by the SHA-256 of the header line and all
// pages.
const (
	backupFormat = "scanner-operator-backup"
	// backupVersion is the version of this layout. The version of the content is BackupInfo.Schema.
	backupVersion = 1
	// maxBackupHeader bounds the header line, in bytes.
	maxBackupHeader = 4 << 10
	// maxPage is SQLite's own bound on its page size (https://www.sqlite.org/limits.html).
	maxPage = 64 << 10
	// maxPages bounds a store at 16 TiB with SQLite's default page size of 4 KiB. A header with more pages is invalid.
	maxPages = 1 << 32
)

// BackupInfo is the header line of a backup.
type BackupInfo struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Schema is the version of the store's schema. An older one is migrated when the restored store is opened; a newer one is
	// refused.
	Schema int64 `json:"schema"`
	// Store is the ID of the store that the backup was made of. CreatedAt is the time of its content.
	Store     string    `json:"store"`
	CreatedAt time.Time `json:"createdAt"`
	// Operator is the version of the operator that made the backup.
	Operator string `json:"operator"`
	// Pages is the number of pages, of PageSize bytes each.
	Pages    int64 `json:"pages"`
	PageSize int64 `json:"pageSize"`
}

// size returns the size of the store's file in bytes.
func (i BackupInfo) size() int64 { return i.Pages * i.PageSize }

// Backup writes a consistent snapshot of the whole store. It needs no space on any volume and does not block writers, but the
// write-ahead log grows until it is done. It first checks the integrity of the file, and refuses a damaged store.
func (s *Store) Backup(ctx context.Context, operator string, out io.Writer) (info BackupInfo, err error) {
	if err := s.CheckIntegrity(ctx); err != nil {
		return info, err
	}
	err = s.read(ctx, "back up", func(ctx context.Context, q query) error {
		info = BackupInfo{Format: backupFormat, Version: backupVersion, Store: s.ID(), Operator: operator}
		// The first statement of the transaction starts the snapshot that all others read.
		err := q.QueryRowContext(ctx, `SELECT (SELECT max(version_id) FROM `+goose.DefaultTablename+`), page_count, page_size
			FROM pragma_page_count, pragma_page_size`).Scan(&info.Schema, &info.Pages, &info.PageSize)
		if err != nil {
			return err
		}
		info.CreatedAt = s.now().UTC().Truncate(time.Millisecond)
		return writeBackup(ctx, q, info, out)
	})
	return info, err
}

func writeBackup(ctx context.Context, q query, info BackupInfo, out io.Writer) error {
	header, err := json.Marshal(info)
	if err != nil {
		return err
	}
	header = append(header, '\n')
	if _, err := out.Write(header); err != nil {
		return err
	}
	// One goroutine, since the manager works in the same container.
	compressed, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxBackupWindow))
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, _ = sum.Write(header) // a hash never fails
	if err := writePages(ctx, q, info, io.MultiWriter(compressed, sum)); err != nil {
		return errors.Join(err, compressed.Close())
	}
	if _, err := compressed.Write(sum.Sum(nil)); err != nil {
		return err
	}
	return compressed.Close()
}

// maxBackupWindow bounds the memory that reading a backup needs, in bytes.
const maxBackupWindow = 4 << 20

// writePages writes the pages as the transaction sees them (https://www.sqlite.org/dbpage.html).
func writePages(ctx context.Context, q query, info BackupInfo, out io.Writer) error {
	rows, err := q.QueryContext(ctx, `SELECT pgno, data FROM sqlite_dbpage`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var last int64
	for rows.Next() {
		var number int64
		var page []byte
		if err := rows.Scan(&number, &page); err != nil {
			return err
		}
		if last++; number != last || int64(len(page)) != info.PageSize {
			return fmt.Errorf("page %d of %d bytes where page %d of %d was to come", number, len(page), last, info.PageSize)
		}
		if _, err := out.Write(page); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if last != info.Pages {
		return fmt.Errorf("%d pages where %d were to come", last, info.Pages)
	}
	return nil
}

// Errors of reading a backup. If there is one, nothing was changed.
var (
	// ErrNoBackup means that the data is not a backup.
	ErrNoBackup = errors.New("this is no backup of the operator's store")
	// ErrBackupDamaged means that the data differs from what was written.
	ErrBackupDamaged = errors.New("the backup is damaged or not complete: use another one")
	// ErrBackupNewer means that a newer version of the operator made the backup.
	ErrBackupNewer = errors.New("the backup was made by a newer version of the operator")
)

// readBackup writes the store in a backup to out, unless checkSpace returns an error for its header. After an error, the output is
// incomplete or wrong.
func readBackup(in io.Reader, checkSpace func(BackupInfo) error, out io.Writer) (BackupInfo, error) {
	buffered := bufio.NewReaderSize(in, maxBackupHeader)
	header, info, err := readHeader(buffered)
	if err != nil {
		return info, err
	}
	if err := checkSpace(info); err != nil {
		return info, err
	}
	content, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxBackupWindow))
	if err != nil {
		return info, err
	}
	defer content.Close()
	sum := sha256.New()
	_, _ = sum.Write(header)
	tracked := &trackingWriter{out: io.MultiWriter(out, sum)}
	_, err = io.CopyN(tracked, content, info.size())
	if tracked.failed != nil {
		return info, tracked.failed
	}
	var rest bytes.Buffer
	if err == nil {
		_, err = io.Copy(&rest, io.LimitReader(content, sha256.Size+1))
	}
	if err != nil {
		return info, fmt.Errorf("%w (%w)", ErrBackupDamaged, err)
	}
	if !bytes.Equal(rest.Bytes(), sum.Sum(nil)) {
		return info, fmt.Errorf("%w (wrong checksum)", ErrBackupDamaged)
	}
	return info, nil
}

// trackingWriter remembers an error of its output, so that readBackup does not report it as a damaged backup.
type trackingWriter struct {
	out    io.Writer
	failed error
}

func (w *trackingWriter) Write(p []byte) (n int, err error) {
	n, w.failed = w.out.Write(p)
	return n, w.failed
}

func readHeader(in *bufio.Reader) (header []byte, info BackupInfo, err error) {
	header, err = in.ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, info, err
	}
	if json.Unmarshal(header, &info) != nil || info.Format != backupFormat {
		return nil, info, fmt.Errorf("%w: it does not begin as one", ErrNoBackup)
	}
	latest := latestSchema()
	switch {
	case info.Version > backupVersion:
		return nil, info, fmt.Errorf("%w (%s, format %d, this one knows %d): restore it with that version", ErrBackupNewer, info.Operator, info.Version, backupVersion)
	case info.Schema > latest:
		return nil, info, fmt.Errorf("%w (%s, schema %d, this one knows %d): restore it with that version", ErrBackupNewer, info.Operator, info.Schema, latest)
	case info.Schema < 1, info.Pages < 1, info.Pages > maxPages, info.PageSize < 512, info.PageSize > maxPage:
		return nil, info, fmt.Errorf("%w (its first line makes no sense)", ErrBackupDamaged)
	}
	return bytes.Clone(header), info, nil
}
