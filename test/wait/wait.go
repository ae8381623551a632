// Package wait waits for states that cannot be watched, in tests and benchmarks with real processes.
package wait

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Intervals between checks: Often for waits that are measured, Normally for others, Rarely for checks that load the server.
const (
	Often    = 100 * time.Millisecond
	Normally = 500 * time.Millisecond
	Rarely   = 2 * time.Second
)

// errFinal marks errors that waiting cannot resolve.
var errFinal = errors.New("no use to wait")

// Final makes Eventually return the error at once.
func Final(err error) error { return errors.Join(err, errFinal) }

// Eventually repeats a check at the given interval until it succeeds. After a timeout, the error contains the check's last error.
func Eventually(ctx context.Context, within, interval time.Duration, check func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last error
	for {
		err := check(limited)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errFinal):
			return err
		case limited.Err() == nil || last == nil: // an error that the timeout itself causes hides the cause
			last = err
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("after %s: %w", within, last)
		case <-ticker.C:
		}
	}
}

// Consistently repeats a check at the given interval, for the given time, and returns its first error.
func Consistently(ctx context.Context, during, interval time.Duration, check func(context.Context) error) error {
	end := time.NewTimer(during)
	defer end.Stop()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := check(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-ticker.C:
		}
	}
}
