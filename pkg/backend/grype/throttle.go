package grype

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const (
	// throttlePause is how long a registry is left alone that wants it and does not say for how long.
	throttlePause = 5 * time.Minute
	// maxThrottled bounds the registries that are remembered for a scope: Jobs in a tenant's namespace may name any.
	maxThrottled = 64
)

// throttles remembers which registries have asked to wait until when. Who was told so matters: registries count per
// account and address, and a Job in a tenant's namespace, where others may speak in its name, must slow down nobody
// else. After a restart the registries say it again.
type throttles struct {
	mu    sync.Mutex
	until map[store.Scope]map[string]time.Time
}

// note takes note of a failed Job that was told to wait, and puts the next attempt for its image off until then.
func (t *throttles) note(now time.Time, scope store.Scope, failure *backend.Failure) {
	if failure.Reason != workerapi.ReasonRegistryThrottled || failure.Registry == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = map[store.Scope]map[string]time.Time{}
	}
	if t.until[scope] == nil {
		t.until[scope] = map[string]time.Time{}
	}
	hosts, host := t.until[scope], workerapi.CanonicalHost(failure.Registry)
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
		until = now.Add(throttlePause)
	}
	hosts[host] = until
	if len(hosts) > maxThrottled {
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

// of is until when a registry wants to be left alone; false if it does not.
func (t *throttles) of(now time.Time, scope store.Scope, host string) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, found := t.until[scope][host]
	return until, found && now.Before(until)
}

// throttled says that all registries of an image want to be left alone, and none of them has a mirror to ask instead.
func (b *Backend) throttled(img backend.Image) (backend.Progress, bool) {
	hosts, now := registriesOf(img), b.Clock.Now()
	var first time.Time
	for _, host := range hosts {
		until, throttled := b.throttles.of(now, img.Scope, host)
		if !throttled || b.hasMirrors(host) {
			return backend.Progress{}, false
		}
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	if len(hosts) == 0 {
		return backend.Progress{}, false
	}
	verb := "asks"
	if len(hosts) > 1 {
		verb = "ask"
	}
	message := fmt.Sprintf("%s %s to wait until %s", strings.Join(hosts, " and "), verb, first.UTC().Format(time.RFC3339))
	return backend.Waiting(workerapi.ReasonRegistryThrottled, message, max(first.Sub(now), time.Second)), true
}

// spared are those of an image's registries that want to be left alone. A Job asks only their mirrors.
func (b *Backend) spared(img backend.Image) []string {
	return slices.DeleteFunc(registriesOf(img), func(host string) bool {
		_, throttled := b.throttles.of(b.Clock.Now(), img.Scope, host)
		return !throttled
	})
}

// hasMirrors says whether the configuration has mirrors for a registry.
func (b *Backend) hasMirrors(host string) bool {
	return slices.ContainsFunc(b.Config.Registries, func(registry config.Registry) bool {
		return workerapi.CanonicalHost(registry.Host) == host && len(registry.Mirrors) > 0
	})
}

// registriesOf are the hosts that an image can be pulled from, each once.
func registriesOf(img backend.Image) (hosts []string) {
	for _, text := range img.PullReferences {
		ref, err := image.ParseReference(text)
		if err != nil {
			continue // its Job says what is wrong
		}
		host, _, _ := strings.Cut(ref.Repository, "/")
		if host = workerapi.CanonicalHost(host); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
