package clock

import (
	"context"
	"sync"
	"time"
)

// Fake is a clock for tests. Sleep takes no time and only moves the clock forward. Timeouts and repetitions do not follow the
// clock, since a concurrent Sleep would end them: the test triggers them with Fire.
// The zero value starts at the zero time. It is safe for concurrent use.
type Fake struct {
	mu       sync.Mutex
	now      time.Time
	timeouts map[*timeout]time.Duration
	repeated map[*func()]time.Duration
}

type timeout struct{ end context.CancelCauseFunc }

// NewFake returns a clock that starts at start.
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

// Jitter implements Clock. It returns d unchanged.
func (f *Fake) Jitter(d time.Duration) time.Duration { return d }

// Advance moves the clock forward by d.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// WithTimeout implements Clock.
func (f *Fake) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	one := &timeout{end}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timeouts == nil {
		f.timeouts = map[*timeout]time.Duration{}
	}
	f.timeouts[one] = d
	return ctx, func() {
		f.mu.Lock()
		delete(f.timeouts, one)
		f.mu.Unlock()
		end(nil)
	}
}

// Every implements Clock.
func (f *Fake) Every(ctx context.Context, d time.Duration, do func()) {
	f.mu.Lock()
	if f.repeated == nil {
		f.repeated = map[*func()]time.Duration{}
	}
	f.repeated[&do] = d
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	delete(f.repeated, &do)
	f.mu.Unlock()
}

// Fire ends the timeouts of at most d, and calls each repeated function with an interval of at most d once. It returns the number of
// both together.
func (f *Fake) Fire(d time.Duration) (fired int) {
	f.mu.Lock()
	var all []func()
	for one, after := range f.timeouts {
		if after <= d {
			all = append(all, func() { one.end(context.DeadlineExceeded) })
		}
	}
	for do, every := range f.repeated {
		if every <= d {
			all = append(all, *do)
		}
	}
	f.mu.Unlock()
	for _, do := range all {
		do()
	}
	return len(all)
}
