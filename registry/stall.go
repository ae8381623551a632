package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// stallTimeout is how long a registry may send nothing, before its answer or in the middle of it. Users see a
// failure within two minutes.
const stallTimeout = time.Minute

// errStalled reports that a registry has stopped sending. It is not a timeout in the sense of package net: the client
// library would retry that, and wait as long again.
var errStalled = errors.New("the registry has stopped sending")

// impatient sends a request. It cancels the request, or the reading of its answer, if the server sends nothing for patience. A
// deadline for the whole request would depend on the size of a layer.
func impatient(next http.RoundTripper, request *http.Request, patience time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	watch := time.AfterFunc(patience, func() { cancel(fmt.Errorf("%w: %s has sent nothing for %s", errStalled, request.URL.Host, patience)) })
	response, err := next.RoundTrip(request.WithContext(ctx))
	watch.Stop()
	if err != nil {
		defer cancel(nil)
		return nil, becauseOf(ctx, err)
	}
	response.Body = &watchedBody{ReadCloser: response.Body, ctx: ctx, cancel: cancel, watch: watch, patience: patience}
	return response, nil
}

// becauseOf returns the stall that ended a context, or err if the context did not end by a stall.
func becauseOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// watchedBody restarts the stall timer with each Read. The timer stands still between two Reads, when nothing is expected.
type watchedBody struct {
	io.ReadCloser
	ctx      context.Context
	cancel   context.CancelCauseFunc
	watch    *time.Timer
	patience time.Duration
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.watch.Reset(b.patience)
	defer b.watch.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = becauseOf(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	b.watch.Stop()
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
