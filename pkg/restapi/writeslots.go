package restapi

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// Bounds of requests that write. Each tenant has one at a time.
const (
	// maxWriters is the number of concurrent requests, each of which may still be receiving its body.
	maxWriters = 16
	// maxSaving is the number of reports, and of uploaded SBOMs' manifests, that are in memory at the same time.
	maxSaving       = 2
	writesPerMinute = 60
	// maxWriteRates is the number of tenants whose rates are remembered.
	maxWriteRates = 4096
)

// writeSlots bounds the requests of each tenant that write. It is safe for concurrent use.
type writeSlots struct {
	all   semaphore
	clock clock.PassiveClock
	mu    sync.Mutex
	busy  map[string]bool
	rates *cache.LRUExpireCache // *rate.Limiter by tenant
}

func newWriteSlots(c clock.PassiveClock) *writeSlots {
	return &writeSlots{all: make(semaphore, maxWriters), clock: c, busy: make(map[string]bool), rates: cache.NewLRUExpireCacheWithClock(maxWriteRates, c)}
}

// acquire returns a refusal if the user's tenant is writing already or has written too often, and else waits for a slot. The caller must call
// release once.
func (s *writeSlots) acquire(ctx context.Context, user string) (release func(), err error) {
	tenant := tenantOf(user)
	if err := s.begin(tenant); err != nil {
		return nil, err
	}
	if err := s.all.acquireBriefly(ctx); err != nil {
		s.end(tenant)
		return nil, err
	}
	return func() {
		s.all.release()
		s.end(tenant)
	}, nil
}

func (s *writeSlots) begin(tenant string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[tenant] {
		return tooManyRequests(time.Second, tenant+" is writing already, and only one such request at a time is allowed")
	}
	limiter, _ := s.rates.Get(tenant)
	known, _ := limiter.(*rate.Limiter)
	if known == nil {
		known = rate.NewLimiter(rate.Every(time.Minute/writesPerMinute), writesPerMinute)
	}
	s.rates.Add(tenant, known, time.Hour)
	if now := s.clock.Now(); !known.AllowN(now, 1) {
		wait := time.Duration((1 - known.TokensAt(now)) * float64(time.Minute/writesPerMinute))
		return tooManyRequests(max(wait, time.Second), tenant+" has written too often: at most 60 such requests in a minute are allowed")
	}
	s.busy[tenant] = true
	return nil
}

func (s *writeSlots) end(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, tenant)
}

// tooManyRequests returns the refusal that tells the caller to slow down.
func tooManyRequests(retryAfter time.Duration, detail string) *problem {
	p := newProblem(restv1.ReasonTooManyRequests, "%s", detail)
	p.retryAfter = retryAfter
	return p
}
