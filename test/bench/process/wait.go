package process

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Intervals between checks: Often for measured waits, Rarely for checks that load the server.
const (
	Often  = 100 * time.Millisecond
	Rarely = 2 * time.Second
)

// final is an error that makes Eventually return at once.
type final struct{ error }

// Unwrap returns the wrapped error.
func (f *final) Unwrap() error { return f.error }

// Eventually calls check at the given interval until it returns no error. After a timeout, the error contains check's last error.
func Eventually(ctx context.Context, within, interval time.Duration, check func(context.Context) error) error {
	var last error
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		var end *final
		if err == nil || errors.As(err, &end) {
			return err
		}
		if ctx.Err() == nil || last == nil { // an error that the timeout itself causes hides the cause
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, last)
		case <-ticker.C:
		}
	}
}
