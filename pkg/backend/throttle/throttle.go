// Package throttle remembers which registries want to be left alone, so that engines do not ask them.
package throttle

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const (
	// pause is how long a registry is left alone that wants it and does not say for how long.
	pause = 5 * time.Minute
	// maxHosts bounds the registries that are remembered for a scope: Jobs in a tenant's namespace may name any.
	maxHosts = 64
)

// Registries remembers which registries have asked to wait until when. Who was told so matters: registries count per
// account and address, and a Job in a tenant's namespace, where others may speak in its name, must slow down nobody
// else. After a restart the registries say it again.
type Registries struct {
	mu    sync.Mutex
	until map[store.Scope]map[string]time.Time
	// asked counts; nil until Count is called, which comes before all else.
	asked prometheus.Counter
}

// Note takes note of a failure by throttling, and puts the next attempt for its image off until then.
func (r *Registries) Note(now time.Time, scope store.Scope, failure *backend.Failure) {
	if failure.Reason != workerapi.ReasonRegistryThrottled || failure.Registry == "" {
		return
	}
	if r.asked != nil {
		r.asked.Inc()
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
	// The longest that was asked for counts: of Jobs that ran at once, each was told something.
	case failure.RetryAfter > 0 && asked.After(until):
		until = asked
	case !found && failure.RetryAfter <= 0:
		until = now.Add(pause)
	}
	hosts[host] = until
	if len(hosts) > maxHosts {
		delete(hosts, longest(hosts, host))
	}
	failure.RetryAfter = until.Sub(now)
}

// longest is the host that wants to be left alone for the longest time, of all but one. That one goes when there is no
// room: who wants to keep others out names hosts that stay.
func longest(hosts map[string]time.Time, but string) (last string) {
	for host, until := range hosts {
		if host != but && (last == "" || until.After(hosts[last])) {
			last = host
		}
	}
	return last
}

// Until is until when a registry wants to be left alone; false if it does not.
func (r *Registries) Until(now time.Time, scope store.Scope, host string) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, found := r.until[scope][host]
	return until, found && now.Before(until)
}

// Spared are the registries that want to be left alone, sorted.
func (r *Registries) Spared(now time.Time, scope store.Scope) (hosts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for host, until := range r.until[scope] {
		if now.Before(until) {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts
}
