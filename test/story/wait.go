package story

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often something that cannot be watched is looked at.
const pollInterval = 500 * time.Millisecond

// errFinal marks what will not get better by waiting.
var errFinal = errors.New("no use to wait")

// Final makes Eventually give up at once.
func Final(err error) error { return errors.Join(err, errFinal) }

// Eventually waits until a check succeeds. When it does not within the time, the error says what the check said last.
func Eventually(ctx context.Context, within time.Duration, check func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := check(limited)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errFinal):
			return err
		case limited.Err() == nil || last == nil: // what the end of the time itself causes tells nothing
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

// Throughout checks again and again for a time and fails with the check.
func Throughout(ctx context.Context, during time.Duration, check func(context.Context) error) error {
	end := time.NewTimer(during)
	defer end.Stop()
	ticker := time.NewTicker(pollInterval)
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
