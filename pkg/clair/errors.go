package clair

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

// Kind says what an Error means for whoever asked.
type Kind string

const (
	// NotIndexed says: Clair has no finished index report of this digest. With its database away Clair says the same of every
	// digest, so it proves nothing.
	NotIndexed Kind = "NotIndexed"
	// NoData says: Clair has no vulnerability data yet. It says so of digests that it does not know, too.
	NoData Kind = "NoData"
	// Unauthorized says: Clair does not take the token, or wants one.
	Unauthorized Kind = "Unauthorized"
	// Throttled says: too many requests at once; see RetryAfter.
	Throttled Kind = "Throttled"
	// BadManifest says: Clair cannot read the manifest, and never will.
	BadManifest Kind = "BadManifest"
	// LayerFailed says: Clair could not get or read a layer; see Layer.
	LayerFailed Kind = "LayerFailed"
	// Unavailable says: no connection, no answer in time, or Clair or something before it is broken.
	Unavailable Kind = "Unavailable"
	// Invalid says: the answer is not whole, not Clair's, or not about what was asked.
	Invalid Kind = "Invalid"
	// TooLarge says: the answer takes more than it may.
	TooLarge Kind = "TooLarge"
)

// LayerCause says why Clair has no use of a layer.
type LayerCause string

const (
	// LayerRefused says: the registry wants other credentials, or refuses the request otherwise.
	LayerRefused LayerCause = "Refused"
	// LayerUnreachable says: the registry cannot be reached, is broken, or has no time.
	LayerUnreachable LayerCause = "Unreachable"
	// LayerUnscannable says: Clair has the layer and failed to read its contents, or to store what it read.
	LayerUnscannable LayerCause = "Unscannable"
	// LayerMissing says: the registry has no such blob.
	LayerMissing LayerCause = "Missing"
	// LayerCorrupt says: what the registry gives does not have the digest.
	LayerCorrupt LayerCause = "Corrupt"
	// LayerUnsupported says: its content type, compression, format or address is none that this Clair takes.
	LayerUnsupported LayerCause = "Unsupported"
)

// Error is what every method returns when it has no answer.
type Error struct {
	Kind Kind
	// Host of the Clair that was asked, with its port.
	Host string
	// Status of the HTTP answer; 0 if there was none.
	Status int
	// Layer says more about LayerFailed.
	Layer LayerCause
	// RetryAfter is how long Clair wants to be left alone; 0 if it does not say.
	RetryAfter time.Duration
	// Message is one bounded line without credentials.
	Message string
	cause   error
}

// Error names the host and what happened.
func (e *Error) Error() string { return fmt.Sprintf("Clair at %s: %s", e.Host, e.Message) }

// Unwrap gives the error of the context, if that is what ended the request.
func (e *Error) Unwrap() error { return e.cause }

// Final says that the image itself is the reason, so that the same request fails the same way until the image, the
// registry's copy of it or Clair's configuration is another one.
func (e *Error) Final() bool {
	switch e.Layer {
	case LayerMissing, LayerCorrupt, LayerUnsupported:
		return true
	}
	return e.Kind == BadManifest
}

// KindOf is the kind of an Error; empty for any other error and for none.
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

// unavailable is an error of the transport, in which the address is not repeated.
func (c *Client) unavailable(ctx context.Context, err error, secrets []string) *Error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	e := c.failure(Unavailable, 0, clean(err.Error(), secrets))
	if ctx.Err() != nil {
		e.cause = context.Cause(ctx)
		e.Message = clean(e.cause.Error(), secrets)
	}
	return e
}

// refusal tells what a status means that is not the one hoped for.
func (c *Client) refusal(call call, response *http.Response, body []byte) *Error {
	code, text := said(body)
	e := c.invalid(response.StatusCode, clean(statusText(response.StatusCode)+": "+text, call.secrets))
	indexing := call.method == http.MethodPost && code != ""
	switch status := response.StatusCode; {
	// Any other 404 is of a server that is no Clair, or of another path of it.
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

// said reads Clair's error document; for any other body the code is empty.
func said(body []byte) (code, text string) {
	var document struct{ Code, Message string }
	switch err := json.Unmarshal(body, &document); {
	case err == nil && document.Code != "":
		return document.Code, document.Message
	case len(body) == 0:
		return "", "without a word"
	}
	return "", "not Clair's answer, is the URL right?"
}

// statusText is a status in the words of the standard, whatever the server's are.
func statusText(code int) string { return fmt.Sprintf("%d %s", code, http.StatusText(code)) }

// maxRetryAfter bounds a wish, which may be a mistake.
const maxRetryAfter = time.Hour

// retryAfter reads the header of that name: seconds or a date (RFC 9110, section 10.2.3).
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
