package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Kind classifies an Error for the caller.
type Kind string

const (
	// NotIndexed means that Clair has no finished index report of this digest. Clair also reports this for every digest while its database
	// is unavailable, so it proves nothing.
	NotIndexed Kind = "NotIndexed"
	// NoData means that Clair has no vulnerability data yet. Clair also reports this for unknown digests.
	NoData Kind = "NoData"
	// Unauthorized means that Clair requires a token or rejects the one that was sent.
	Unauthorized Kind = "Unauthorized"
	// Throttled means too many concurrent requests; see RetryAfter.
	Throttled Kind = "Throttled"
	// BadManifest means that Clair cannot read the manifest, and never will.
	BadManifest Kind = "BadManifest"
	// LayerFailed means that Clair could not fetch or read a layer; see Layer.
	LayerFailed Kind = "LayerFailed"
	// Unavailable means that there is no connection or no answer in time, or that Clair or a proxy before it is broken.
	Unavailable Kind = "Unavailable"
	// Invalid means that the answer is incomplete, not Clair's, or not about what was requested.
	Invalid Kind = "Invalid"
	// TooLarge means that the answer exceeds its bound.
	TooLarge Kind = "TooLarge"
)

// LayerCause is why Clair cannot use a layer.
type LayerCause string

const (
	// LayerRefused means that the registry requires other credentials, or refuses the request for another reason.
	LayerRefused LayerCause = "Refused"
	// LayerUnreachable means that the registry cannot be reached, is broken, or is overloaded.
	LayerUnreachable LayerCause = "Unreachable"
	// LayerUnscannable means that Clair has the layer but failed to read its contents, or to store the result.
	LayerUnscannable LayerCause = "Unscannable"
	// LayerMissing means that the registry has no such blob.
	LayerMissing LayerCause = "Missing"
	// LayerCorrupt means that the registry's content does not have the digest.
	LayerCorrupt LayerCause = "Corrupt"
	// LayerUnsupported means that this Clair does not support the layer's content type, compression, format or address.
	LayerUnsupported LayerCause = "Unsupported"
)

// Error is the error of every method that got no usable answer.
type Error struct {
	Kind Kind
	// Host of the Clair that was contacted, with its port.
	Host string
	// Status of the HTTP answer; 0 if there was none.
	Status int
	// Layer is the cause of LayerFailed.
	Layer LayerCause
	// RetryAfter is how long Clair asks the caller to wait; 0 if it does not say.
	RetryAfter time.Duration
	// Message is one bounded line without credentials.
	Message string
	cause   error
}

// Error returns the host and what happened.
func (e *Error) Error() string { return fmt.Sprintf("Clair at %s: %s", e.Host, e.Message) }

// Unwrap returns the cause of the ended context, if that ended the request.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of an Error, or "" for nil and any other error.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

func (c *Client) failure(kind Kind, status int, message string) *Error {
	return &Error{Kind: kind, Host: c.host, Status: status, Message: message}
}

func (c *Client) invalid(status int, message string) *Error {
	return c.failure(Invalid, status, message)
}

// unavailable converts a transport error and removes the address from it.
func (c *Client) unavailable(ctx context.Context, err error) *Error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	e := c.failure(Unavailable, 0, err.Error())
	if ctx.Err() != nil {
		e.cause = context.Cause(ctx)
		e.Message = e.cause.Error()
	}
	return e
}

// refusal converts an answer with a status that is not accepted.
func (c *Client) refusal(call call, response *http.Response, body []byte) *Error {
	code, text := parseErrorDocument(body)
	e := c.invalid(response.StatusCode, statusText(response.StatusCode)+": "+text)
	indexing := call.method == http.MethodPost && code != ""
	switch status := response.StatusCode; {
	// Any other 404 comes from a server that is not Clair, or from another path of Clair.
	case status == http.StatusNotFound && code == "not-found":
		e.Kind = NotIndexed
	case status == http.StatusAccepted:
		e.Kind, e.Message = NoData, "it has no vulnerability data yet"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Kind, e.Message = Unauthorized, statusText(response.StatusCode)+": "+c.authAdvice()
	case status == http.StatusTooManyRequests:
		e.Kind, e.RetryAfter = Throttled, retryAfter(response.Header, c.options.Clock.Now())
	case indexing && layerCause(text) != "":
		e.Kind, e.Layer = LayerFailed, layerCause(text)
	case indexing && status == http.StatusBadRequest:
		e.Kind = BadManifest
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		e.Message = statusText(response.StatusCode) + ": redirects are not followed, the URL must be that of Clair itself"
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout:
		e.Kind, e.RetryAfter = Unavailable, retryAfter(response.Header, c.options.Clock.Now())
	}
	return e
}

func (c *Client) authAdvice() string {
	if c.options.Auth == nil {
		return "it wants a token, and no pre-shared key is given"
	}
	return "it does not take the token: key and issuer must be those of auth.psk in its configuration, and the clocks agree"
}

// parseErrorDocument parses Clair's error document. For any other body the code is empty.
func parseErrorDocument(body []byte) (code, text string) {
	var document struct{ Code, Message string }
	switch err := json.Unmarshal(body, &document); {
	case err == nil && document.Code != "":
		return document.Code, document.Message
	case len(body) == 0:
		return "", "without a word"
	}
	return "", "not Clair's answer, is the URL right?"
}

// statusText returns a status with the standard text, whatever text the server sent.
func statusText(code int) string { return fmt.Sprintf("%d %s", code, http.StatusText(code)) }

// maxRetryAfter bounds Retry-After, which may be a mistake.
const maxRetryAfter = time.Hour

// retryAfter parses the Retry-After header: seconds or a date (RFC 9110, section 10.2.3).
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	var wait time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
