// Package throttle remembers which registries are rate limiting the operator, so that engines stop sending them requests.
package throttle

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const (
	// defaultBackoff is how long a throttled registry is avoided when it sends no Retry-After.
	defaultBackoff = 5 * time.Minute
	// maxHosts bounds the remembered registries of one credential scope: Jobs in a tenant's namespace may name any host.
	maxHosts = 64
)

// Registries remembers until when each registry is throttled, by credential scope. Registries limit each account and address separately. A
// Job in a tenant's namespace is not trusted either, so its report must not slow down other scopes. Nothing is persisted: after a restart
// the registries answer 429 again.
type Registries struct {
	mu    sync.Mutex
	until map[store.Scope]map[string]time.Time
	// throttleResponses counts throttled responses; nil unless RegisterMetrics was called. RegisterMetrics must come before any other method.
	throttleResponses prometheus.Counter
}

// Record records a failure caused by throttling and sets its RetryAfter to the time left. It ignores other failures.
func (r *Registries) Record(now time.Time, scope store.Scope, failure *backend.Failure) {
	if failure.Reason != workerapi.ReasonRegistryThrottled || failure.Registry == "" {
		return
	}
	if r.throttleResponses != nil {
		r.throttleResponses.Inc()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = map[store.Scope]map[string]time.Time{}
	}
	if r.until[scope] == nil {
		r.until[scope] = map[string]time.Time{}
	}
	hosts, host := r.until[scope], workerapi.CanonicalHost(failure.Registry)
	for known, until := range hosts {
		if !now.Before(until) {
			delete(hosts, known)
		}
	}
	until, found := hosts[host]
	switch asked := now.Add(failure.RetryAfter); {
	// The latest time wins: Jobs that ran at once may each have received another Retry-After.
	case failure.RetryAfter > 0 && asked.After(until):
		until = asked
	case !found && failure.RetryAfter <= 0:
		until = now.Add(defaultBackoff)
	}
	hosts[host] = until
	if len(hosts) > maxHosts {
		delete(hosts, longestThrottled(hosts, host))
	}
	failure.RetryAfter = until.Sub(now)
}

// longestThrottled returns the host other than but that is throttled for the longest time. That host is evicted when the map is full. An attacker
// who tries to fill the map names hosts with long times, so these are evicted first.
func longestThrottled(hosts map[string]time.Time, but string) (last string) {
	for host, until := range hosts {
		if host != but && (last == "" || until.After(hosts[last])) {
			last = host
		}
	}
	return last
}

// Throttled returns the registries of a scope that are throttled, and until when.
func (r *Registries) Throttled(now time.Time, scope store.Scope) map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	throttled := maps.Clone(r.until[scope])
	maps.DeleteFunc(throttled, func(_ string, until time.Time) bool { return !now.Before(until) })
	return throttled
}
