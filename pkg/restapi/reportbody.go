package restapi

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Bounds of the body of a report, in bytes.
const (
	maxReportBody = 24 << 20
	maxReportText = 200 << 20
	// maxReportRatio bounds how many times larger a body gets when it is decompressed, beyond the first MiB.
	maxReportRatio = 100
	// reportBodyTime bounds how long a body is read.
	reportBodyTime = time.Minute
)

// reportBody is a request's body in a temporary file without a name, decompressed and compressed again with zstd.
type reportBody struct {
	compressed *os.File
	// sum is the SHA-256 of the text.
	sum     string
	decoder *zstd.Decoder
}

// receiveBody reads a body to its end, before anything is decided about it: a slow sender holds up nobody else.
func receiveBody(w http.ResponseWriter, r *http.Request, encoding string) (_ *reportBody, err error) {
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(reportBodyTime))
	defer func() { _ = connection.SetReadDeadline(time.Time{}) }()
	file, to, err := newTemporaryFile("report", maxReportFile)
	if err != nil {
		return nil, err
	}
	body := &reportBody{compressed: file}
	defer func() {
		if err != nil {
			body.close()
		}
	}()
	if r.ContentLength > maxReportBody {
		return nil, bodyTooLarge("it has more than %d MiB", maxReportBody>>20)
	}
	raw := &countingReader{from: http.MaxBytesReader(w, r.Body, maxReportBody)}
	text, err := decompressor(raw, encoding)
	if err != nil {
		return nil, refuseBody(err)
	}
	defer text.Close()
	sum := sha256.New()
	buffer := bufio.NewWriterSize(to, 64<<10)
	encoder, err := zstd.NewWriter(buffer, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.MultiWriter(encoder, sum), &unpackedReader{from: text, raw: raw})
	if err = errors.Join(err, encoder.Close()); err != nil {
		return nil, refuseBody(err)
	}
	if err := buffer.Flush(); err != nil {
		return nil, refuseBody(err)
	}
	body.sum = hex.EncodeToString(sum.Sum(nil))
	return body, body.rewind()
}

// decompressor returns a reader of the text in a body.
func decompressor(raw io.Reader, encoding string) (io.ReadCloser, error) {
	switch encoding {
	case "gzip":
		return gzip.NewReader(raw)
	case "zstd":
		decoder, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(workerapi.MaxWindowBytes))
		if err != nil {
			return nil, err
		}
		return decoder.IOReadCloser(), nil
	}
	return io.NopCloser(raw), nil
}

// countingReader counts the bytes that are read.
type countingReader struct {
	from io.Reader
	n    int64
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

// unpackedReader reads a text that is decompressed, up to the bounds.
type unpackedReader struct {
	from io.Reader
	raw  *countingReader
	n    int64
}

// Read implements io.Reader.
func (u *unpackedReader) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	u.n += int64(n)
	switch {
	case u.n > maxReportText:
		return 0, bodyTooLarge("it has more than %d MiB when it is decompressed", maxReportText>>20)
	case u.n > 1<<20+maxReportRatio*u.raw.n:
		return 0, bodyTooLarge("it gets more than %d times larger when it is decompressed", maxReportRatio)
	}
	return n, err
}

func bodyTooLarge(format string, args ...any) *problem {
	return newProblem(restv1.ReasonBodyTooLarge, "the body is too large: "+format, args...)
}

// refuseBody returns the refusal of a body that cannot be read.
func refuseBody(err error) error {
	var refused *problem
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, new(*http.MaxBytesError)):
		return bodyTooLarge("it has more than %d MiB", maxReportBody>>20)
	case errors.Is(err, errTemporaryFull):
		return bodyTooLarge("it has more than %d MiB when it is compressed with zstd", maxReportFile>>20)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return unavailable("the body did not come within " + reportBodyTime.String())
	}
	return invalidParameter("body", "it cannot be read, or is not compressed as Content-Encoding says")
}

func (b *reportBody) rewind() error {
	_, err := b.compressed.Seek(0, io.SeekStart)
	return err
}

// text returns the decompressed body from its beginning. An error of the file comes with the first read.
func (b *reportBody) text() io.Reader {
	if err := b.rewind(); err != nil {
		return failedReader{err}
	}
	decoder, err := zstd.NewReader(b.compressed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return failedReader{err}
	}
	b.decoder = decoder
	return decoder
}

type failedReader struct{ err error }

// Read implements io.Reader.
func (f failedReader) Read([]byte) (int, error) { return 0, f.err }

func (b *reportBody) close() {
	if b.decoder != nil {
		b.decoder.Close()
	}
	_ = b.compressed.Close()
}
