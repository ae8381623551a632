package registry

import (
	"archive/tar"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/worker/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// classify gives an error of a pull its reason. An error that already has one keeps it.
func classify(err error, retryAfter time.Duration) error {
	var known *failure.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	reason := reasonOf(err)
	if errors.Is(err, remote.ErrSchema1) {
		err = fmt.Errorf("its manifest is of schema 1, which container runtimes do not take any more; push the image again: %w", err)
	}
	classified := failure.New(reason, err)
	if reason == workerapi.ReasonRegistryThrottled {
		classified.RetryAfter = retryAfter
	}
	return classified
}

// reasonOf goes from what is said most precisely to what is only guessed.
func reasonOf(err error) string {
	var answer *transport.Error
	switch {
	case errors.As(err, &answer):
		return reasonOfAnswer(answer)
	case errors.Is(err, remote.ErrSchema1), isCorrupt(err):
		return workerapi.ReasonNotAnImage
	case isNetwork(err):
		return workerapi.ReasonRegistryUnavail
	}
	return workerapi.ReasonCatalogFailed
}

// reasonOfAnswer translates a registry's refusal. The error code decides before the status: registries
// agree on codes (https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md#error-codes)
// more than on statuses.
func reasonOfAnswer(answer *transport.Error) string {
	for _, diagnostic := range answer.Errors {
		switch diagnostic.Code {
		case transport.ManifestUnknownErrorCode, transport.NameUnknownErrorCode,
			transport.BlobUnknownErrorCode, transport.ManifestBlobUnknownErrorCode:
			return workerapi.ReasonImageNotFound
		case transport.UnauthorizedErrorCode, transport.DeniedErrorCode:
			return workerapi.ReasonUnauthorized
		case transport.TooManyRequestsErrorCode:
			return workerapi.ReasonRegistryThrottled
		}
	}
	switch status := answer.StatusCode; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return workerapi.ReasonUnauthorized
	case status == http.StatusNotFound, status == http.StatusGone:
		return workerapi.ReasonImageNotFound
	case status == http.StatusTooManyRequests:
		return workerapi.ReasonRegistryThrottled
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout:
		return workerapi.ReasonRegistryUnavail
	}
	return workerapi.ReasonCatalogFailed
}

// isCorrupt says that the registry delivered what the digest promises, and it is not a readable image.
func isCorrupt(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt) ||
		errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, tar.ErrHeader) ||
		errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, zstd.ErrCRCMismatch) ||
		strings.Contains(err.Error(), "unsupported layer media type")
}

// isNetwork says that the registry could not be reached or did not deliver what it promised.
func isNetwork(err error) bool {
	// Each of these appears alone, depending on how far the conversation got.
	var network net.Error
	var request *url.Error
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var system syscall.Errno
	switch {
	case errors.Is(err, context.Canceled):
		// Somebody stopped the worker: no fault of the registry.
		return false
	case errors.As(err, &system) && isLocal(system):
		return false
	case errors.As(err, &network), errors.As(err, &request), errors.As(err, &certificate),
		errors.As(err, &record), errors.As(err, &authority),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, ErrPlainHTTP), errors.Is(err, errStalled):
		return true
	}
	// A body that differs from its digest or size; the library has no exported error for it.
	return strings.Contains(err.Error(), "error verifying")
}

// isLocal tells a problem of this pod's disk from one of the network.
func isLocal(err syscall.Errno) bool {
	return err == syscall.ENOSPC || err == syscall.EDQUOT || err == syscall.EROFS || err == syscall.EACCES || err == syscall.EIO
}
