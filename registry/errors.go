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

// classify gives an error of a pull its reason. An error that already has one keeps it. What the text quotes of
// the registry's answers is cleaned of credentials, and cut.
func (g *guard) classify(err error) error {
	var known *failure.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if errors.Is(err, remote.ErrSchema1) {
		err = fmt.Errorf("its manifest is of schema 1, which container runtimes do not take any more; push the image again: %w", err)
	}
	classified := failure.New(reasonOf(err), &cleaned{error: err, text: g.clean(err)})
	if classified.Reason == workerapi.ReasonRegistryThrottled {
		classified.RetryAfter, classified.Registry = g.wait(), g.registry
	}
	return classified
}

// maxErrorText bounds the text of an error: answers of registries are quoted in it.
const maxErrorText = 2 << 10

// noToken is what the client library says of a token server's answer without a token, and quotes it. Such an
// answer may hold other secrets, which nobody knows of here.
const noToken = "no token in bearer response"

// clean is the text of an error without secrets, with advice where there is some.
func (g *guard) clean(err error) string {
	text := err.Error()
	if before, _, found := strings.Cut(text, noToken); found {
		text = before + noToken
	}
	text = redact(text, append(g.credentials.secrets(), g.sent.all()...))
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + "…"
	}
	return text + advice(err)
}

// advice names the setting that may be missing.
func advice(err error) string {
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return "; if its authority is a private one, add that as registries[].caBundle to the operator's configuration"
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "; if it speaks plain HTTP, say so with registries[].plainHTTP in the operator's configuration"
	}
	return ""
}

// cleaned is an error with another text.
type cleaned struct {
	error
	text string
}

// Error returns the text.
func (c *cleaned) Error() string { return c.text }

// Unwrap returns the error as it was, whose text must not be shown.
func (c *cleaned) Unwrap() error { return c.error }

// reasonOf goes from what is said most precisely to what is only guessed.
func reasonOf(err error) string {
	var answer *transport.Error
	switch {
	case errors.As(err, &answer):
		return reasonOfAnswer(answer)
	case strings.Contains(err.Error(), noToken):
		return workerapi.ReasonUnauthorized
	case errors.Is(err, remote.ErrSchema1), errors.Is(err, document.ErrTooLarge), isCorrupt(err):
		return workerapi.ReasonNotAnImage
	case isNetwork(err):
		return workerapi.ReasonRegistryUnavail
	}
	return workerapi.ReasonCatalogFailed
}

// reasonOfAnswer translates a registry's refusal. The error code decides before the status: registries
// agree on codes (https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md#error-codes)
// more than on statuses. Only 429 leaves no doubt: some say DENIED with it, and no credential helps there.
func reasonOfAnswer(answer *transport.Error) string {
	if answer.StatusCode == http.StatusTooManyRequests {
		return workerapi.ReasonRegistryThrottled
	}
	// Only tokens are ever asked for with POST: 400 is how OAuth 2.0 refuses a refresh token (RFC 6749, 5.2).
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
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, ErrPlainHTTP), errors.Is(err, errStalled), errors.Is(err, errLongAnswer):
		return true
	}
	// A body that differs from its digest or size; the library has no exported errors for it.
	return strings.Contains(err.Error(), "error verifying") || strings.Contains(err.Error(), "does not match requested digest") ||
		strings.Contains(err.Error(), "does not match expected size")
}

// isLocal tells a problem of this pod's disk from one of the network.
func isLocal(err syscall.Errno) bool {
	return err == syscall.ENOSPC || err == syscall.EDQUOT || err == syscall.EROFS || err == syscall.EACCES || err == syscall.EIO
}
