package restapi

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

// Bounds of requests that write. Each tenant has one at a time.
const (
	// maxWriters is the number of concurrent requests, each of which may still be receiving its body.
	maxWriters = 16
	// maxSaving is the number of reports, and of uploaded SBOMs' manifests, that are in memory at the same time.
	maxSaving = 2
	// writesPerMinute is that of one replica.
	writesPerMinute = 60
)

// writeSlots bounds the requests of each tenant that write. It is safe for concurrent use.
type writeSlots struct {
	all   *limits.Pool
	busy  limits.Quota
	rates *limits.Rates
}

func newWriteSlots(c clock.PassiveClock) *writeSlots {
	return &writeSlots{all: limits.NewPool(maxWriters), rates: limits.NewRates(rate.Every(time.Minute/writesPerMinute), writesPerMinute, c)}
}

// acquire returns a refusal if the user's tenant is writing already or has written too often, and else waits for a slot. The caller must call
// release once.
func (s *writeSlots) acquire(ctx context.Context, user string) (release func(), err error) {
	tenant := kubeauth.TenantOf(user)
	end, exceeded := s.busy.Take(limits.Bound{Owner: tenant, Max: 1})
	if exceeded >= 0 {
		return nil, tooManyRequests(time.Second, tenant+" is writing already, and only one such request at a time is allowed")
	}
	if wait := s.rates.Take(tenant); wait > 0 {
		end()
		return nil, tooManyRequests(max(wait, time.Second), tenant+" has written too often: each replica of the operator accepts at most 60 such requests in a minute")
	}
	leave, err := acquireBriefly(ctx, s.all, tenant)
	if err != nil {
		end()
		return nil, err
	}
	return func() {
		leave()
		end()
	}, nil
}

// tooManyRequests returns the refusal that tells the caller to slow down.
func tooManyRequests(retryAfter time.Duration, detail string) *problem {
	p := newProblem(restv1.ReasonTooManyRequests, "%s", detail)
	p.retryAfter = retryAfter
	return p
}
