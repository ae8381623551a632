package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// stallTimeout is how long a registry may send nothing, before its answer or in the middle of it. Users learn of a
// failure within two minutes.
const stallTimeout = time.Minute

// errStalled says that a registry has stopped sending. It is no timeout in the sense of package net: the client
// library would ask again, and wait as long.
var errStalled = errors.New("the registry has stopped sending")

// impatient sends a request and ends it, and the reading of its answer, when nothing comes for a while. A deadline
// for the whole would have to know how large a layer is.
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

// becauseOf returns why a context was ended rather than that it was.
func becauseOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// watchedBody winds the watch up with each Read. Between two of them nobody waits for the registry.
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
