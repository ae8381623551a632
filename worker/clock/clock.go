// Package clock abstracts time for the worker, so that tests control the time and never sleep.
package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// Clock provides the current time, sleeping, timeouts and repetition.
type Clock interface {
	Now() time.Time
	// Sleep returns after d, or earlier with the context's error.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout returns a context that ends with ctx, or with context.DeadlineExceeded d after now.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Every calls f after each d until the context ends.
	Every(ctx context.Context, d time.Duration, f func())
	// Jitter returns a random duration in [d/2, d], so that many workers do not send requests at the same moment.
	Jitter(d time.Duration) time.Duration
}

// System is the machine's clock.
type System struct{}

// Now implements Clock.
func (System) Now() time.Time { return time.Now() }

// Sleep implements Clock.
func (System) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WithTimeout implements Clock.
func (System) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Every implements Clock.
func (System) Every(ctx context.Context, d time.Duration, f func()) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// Jitter implements Clock.
func (System) Jitter(d time.Duration) time.Duration {
	half := d / 2
	if half <= 0 {
		return d
	}
	return half + rand.N(half+1) //nolint:gosec // spreading load is no secret
}
