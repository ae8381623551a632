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

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// classify adds a reason to an error of a pull. An error that already has a reason keeps it. The text may quote the registry's
// answers and documents, so classify removes credentials from it and truncates it.
func (g *guard) classify(err error) error {
	if err == nil {
		return nil
	}
	var known *failure.Error
	if errors.As(err, &known) {
		cleaned := *known
		cleaned.Err = &cleanedError{error: err, text: g.redacted(err.Error())}
		return &cleaned
	}
	if errors.Is(err, remote.ErrSchema1) {
		err = fmt.Errorf("its manifest is of schema 1, which container runtimes no longer accept; push the image again: %w", err)
	}
	classified := failure.New(reasonOf(err), &cleanedError{error: err, text: g.cleanText(err)})
	if classified.Reason == workerapi.ReasonRegistryThrottled {
		classified.RetryAfter, classified.Registry = g.requestedWait(), g.registry
	}
	return classified
}

// maxErrorText bounds the text of an error in bytes, since it may quote answers of registries.
const maxErrorText = 2 << 10

// noTokenText is the client library's error text for a token server's answer without a token. The library quotes that answer, which
// may hold other secrets that redaction does not know.
const noTokenText = "no token in bearer response"

// cleanText returns the text of an error without secrets, followed by advice if there is any.
func (g *guard) cleanText(err error) string {
	text := err.Error()
	if before, _, found := strings.Cut(text, noTokenText); found {
		text = before + noTokenText
	}
	return g.redacted(text) + advice(err)
}

// redacted returns a text without secrets, truncated.
func (g *guard) redacted(text string) string {
	text = redact(text, append(g.credentials.secretValues(), g.sent.all()...))
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + "…"
	}
	return text
}

// advice names the setting that may be missing; empty if there is none.
func advice(err error) string {
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return "; if its certificate authority is private, add the authority as registries[].caBundle to the operator's configuration"
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "; if it uses plain HTTP, set registries[].plainHTTP in the operator's configuration"
	}
	return ""
}

// cleanedError is an error with a replaced text.
type cleanedError struct {
	error
	text string
}

// Error returns the cleaned text.
func (c *cleanedError) Error() string { return c.text }

// Unwrap returns the original error. Its text may hold secrets and must not be shown.
func (c *cleanedError) Unwrap() error { return c.error }

// reasonOf returns the reason for an error. It checks precise evidence, such as a status, before guesses.
func reasonOf(err error) string {
	var answer *transport.Error
	switch {
	case errors.As(err, &answer):
		return reasonOfAnswer(answer)
	case strings.Contains(err.Error(), noTokenText):
		return workerapi.ReasonUnauthorized
	case errors.Is(err, remote.ErrSchema1), errors.Is(err, document.ErrTooLarge), isCorrupt(err):
		return workerapi.ReasonNotAnImage
	case isNetwork(err):
		return workerapi.ReasonRegistryUnavail
	}
	return workerapi.ReasonCatalogFailed
}

// reasonOfAnswer returns the reason for an error response of a registry. The error code decides before the status: registries
// agree on codes (https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md#error-codes)
// more than on statuses. Only status 429 decides before the code: some registries send DENIED with it, and no credential helps then.
func reasonOfAnswer(answer *transport.Error) string {
	if answer.StatusCode == http.StatusTooManyRequests {
		return workerapi.ReasonRegistryThrottled
	}
	// Only requests for tokens use POST. OAuth 2.0 refuses a refresh token with status 400 (RFC 6749, 5.2).
	if request := answer.Request; request != nil && request.Method == http.MethodPost && answer.StatusCode == http.StatusBadRequest {
		return workerapi.ReasonUnauthorized
	}
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
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout:
		return workerapi.ReasonRegistryUnavail
	}
	return workerapi.ReasonCatalogFailed
}

// isCorrupt reports whether the content has the right digest, but is not a readable image.
func isCorrupt(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt) ||
		errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, tar.ErrHeader) ||
		errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, zstd.ErrCRCMismatch) ||
		strings.Contains(err.Error(), "unsupported layer media type")
}

// isNetwork reports whether the registry could not be reached, or did not deliver the promised content.
func isNetwork(err error) bool {
	// Each of these appears alone, depending on how far the request got.
	var network net.Error
	var request *url.Error
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var system syscall.Errno
	switch {
	case errors.Is(err, context.Canceled):
		// The worker was stopped: the registry is not at fault.
		return false
	case errors.As(err, &system) && isLocal(system):
		return false
	case errors.As(err, &network), errors.As(err, &request), errors.As(err, &certificate),
		errors.As(err, &record), errors.As(err, &authority),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, ErrPlainHTTP), errors.Is(err, errStalled), errors.Is(err, errAnswerTooLarge):
		return true
	}
	// The body differs from its digest or size. The library exports no errors for these cases.
	return strings.Contains(err.Error(), "error verifying") || strings.Contains(err.Error(), "does not match requested digest") ||
		strings.Contains(err.Error(), "does not match expected size")
}

// isLocal reports whether an error is about this pod's disk rather than the network.
func isLocal(err syscall.Errno) bool {
	return err == syscall.ENOSPC || err == syscall.EDQUOT || err == syscall.EROFS || err == syscall.EACCES || err == syscall.EIO
}
