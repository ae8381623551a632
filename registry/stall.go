package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// defaultStallTimeout is how long a registry may send nothing, before its answer or in the middle of it. Users see a
// failure within two minutes.
const defaultStallTimeout = time.Minute

// errStalled reports that a registry has stopped sending. It is not a timeout in the sense of package net: the client
// library would retry that, and wait as long again.
var errStalled = errors.New("the registry has stopped sending")

// roundTripWithStallTimeout sends a request. It cancels the request, or the reading of its answer, if the server sends nothing for timeout. A
// deadline for the whole request would depend on the size of a layer.
func roundTripWithStallTimeout(next http.RoundTripper, request *http.Request, timeout time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	timer := time.AfterFunc(timeout, func() { cancel(fmt.Errorf("%w: %s has sent nothing for %s", errStalled, request.URL.Host, timeout)) })
	response, err := next.RoundTrip(request.WithContext(ctx))
	timer.Stop()
	if err != nil {
		defer cancel(nil)
		return nil, stallCause(ctx, err)
	}
	response.Body = &stallBody{ReadCloser: response.Body, ctx: ctx, cancel: cancel, timer: timer, timeout: timeout}
	return response, nil
}

// stallCause returns the stall that ended a context, or err if the context did not end by a stall.
func stallCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// stallBody restarts the stall timer with each Read. The timer stands still between two Reads, when nothing is expected.
type stallBody struct {
	io.ReadCloser
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	timeout time.Duration
}

// Read implements io.Reader.
func (b *stallBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.timeout)
	defer b.timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = stallCause(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *stallBody) Close() error {
	b.timer.Stop()
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
