package clock

import (
	"context"
	"sync"
	"time"
)

// Fake is a clock for tests: sleeping takes no time, it only moves the clock forward.
// The zero value starts at the zero time. It is safe for concurrent use.
type Fake struct {
	mu  sync.Mutex
	now time.Time
}

// NewFake returns a clock that shows start.
func NewFake(start time.Time) *Fake { return &Fake{now: start} }

// Now implements Clock.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Sleep implements Clock.
func (f *Fake) Sleep(ctx context.Context, d time.Duration) error {
	f.Advance(d)
	return ctx.Err()
}

// Jitter implements Clock; it leaves d as it is.
func (f *Fake) Jitter(d time.Duration) time.Duration { return d }

// Advance moves the clock forward by d.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}
