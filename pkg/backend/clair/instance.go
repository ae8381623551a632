package clair

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/backoff"
	"github.com/scanner-operator/scanner-operator/pkg/config"
)

// maxReportsInMemory is how many reports of all Clair instances are in memory at a time. One may have 32 MiB, and several times that when decoded.
const maxReportsInMemory = 2

// bindingTTL is how long a Scanner counts as existing after its last reconcile. It is several times the reconcile interval.
const bindingTTL = 5 * time.Minute

// instance is one Clair, shared by all Scanners that use it.
type instance struct {
	*Engines
	network           *api.Network
	url, host, engine string
	// updaters are name patterns of the updaters that must have run.
	updaters []string
	// caBundle are PEM certificates of CAs to trust for Clair, in addition to the system's. Only the administrator sets them: a report
	// read over one link counts for all namespaces.
	caBundle string

	// polling, indexing, reading and sweeping wake the loops.
	polling, indexing, reading, sweeping chan struct{}
	// reports limits the rate of reading reports.
	reports *rate.Limiter
	queue   indexQueue
	// queued is the number of images that waited for a report at the last run of the readLoop.
	queued atomic.Int64
	// failures are kept until shortly after their Scanners got them.
	failures backend.FailureMemo[taskID]
	digests  digestLocks
	// lostImages has a lostImage for each image that Clair did not know any more, by digest, so that none is indexed over and over. It is
	// read and written under the lock of the digest.
	lostImages *cache.LRUExpireCache

	// mu guards the fields below, and all fields of links that change.
	mu    sync.Mutex
	links map[linkKey]*link
	// connection is the outage of the connection to Clair. All links share it, because whether Clair answers at all does not depend on the
	// settings.
	connection outage
	// bindings holds the Scanners that use this Clair, by UID.
	bindings map[string]binding
	// lastWorking is the last link over which a request succeeded; nil if there was none.
	lastWorking *link
	// state is the state of Clair's indexer; empty until known. polledState is the state at the last poll.
	state, polledState string
	data               data
	// pollRequested requests a poll of the data as soon as possible. polled is the time of the last poll of the data.
	pollRequested bool
	polled        time.Time
	// pausedUntil is when Clair may get work again. pauses counts how often in a row it refused work.
	pausedUntil time.Time
	pauses      int
	// unused holds since when each manifest is known to be unused. releasing holds the Scanners being released, by UID, with their last
	// Release call.
	unused    map[string]time.Time
	releasing map[string]time.Time
	// wokenForState is the indexer state for which all outdated images were woken.
	wokenForState string
}

// binding is the use of a Clair by one Scanner.
type binding struct {
	link *link
	seen time.Time
}

func newInstance(e *Engines, network *api.Network, address string, settings config.ClairInstance) *instance {
	parsed, _ := url.Parse(address) // the address is canonical
	i := &instance{
		Engines: e, network: network, url: address, host: parsed.Host, engine: engineOf(address), updaters: settings.Updaters, caBundle: settings.CABundle,
		polling: make(chan struct{}, 1), indexing: make(chan struct{}, 1), reading: make(chan struct{}, 1), sweeping: make(chan struct{}, 1),
		reports: rate.NewLimiter(rate.Limit(e.Config.Clair.ReportsPerSecond), e.Config.Clair.ReportsPerSecond),
		links:   map[linkKey]*link{}, bindings: map[string]binding{},
		unused: map[string]time.Time{}, releasing: map[string]time.Time{},
		lostImages: cache.NewLRUExpireCacheWithClock(maxLostImages, e.Clock),
	}
	i.failures.Clock = e.Clock
	return i
}

// bind records that a Scanner uses this Clair with its settings, and returns the link for them.
func (i *instance) bind(scanner v1alpha1.GenericScanner) *link {
	i.mu.Lock()
	defer i.mu.Unlock()
	l := i.linkFor(i.keyOf(scanner))
	i.bindings[string(scanner.GetUID())] = binding{link: l, seen: i.Clock.Now()}
	if scanner.GetDeletionTimestamp().IsZero() {
		delete(i.releasing, string(scanner.GetUID())) // the Scanner is not being deleted any more
	}
	if !l.checked {
		wake(i.polling)
	}
	return l
}

func (i *instance) unbind(scanner string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.bindings, scanner)
}

// scanners returns the UIDs of the Scanners that use this Clair.
func (i *instance) scanners() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.dropUnused()
	return slices.Collect(maps.Keys(i.bindings))
}

// dropUnused removes Scanners that were not seen for bindingTTL, and links that no Scanner uses. It keeps the link that worked last:
// after all Scanners are gone, that link deletes what Clair still holds. The caller holds mu.
func (i *instance) dropUnused() {
	now, used := i.Clock.Now(), map[linkKey]bool{}
	for uid, b := range i.bindings {
		if now.Sub(b.seen) > bindingTTL {
			delete(i.bindings, uid)
			continue
		}
		used[b.link.key] = true
	}
	for key, l := range i.links {
		if !used[key] && l != i.lastWorking {
			delete(i.links, key)
		}
	}
}

// isBound reports whether a Scanner uses this link, or whether the link is needed to delete manifests of Scanners that are gone. The
// caller holds mu.
func (i *instance) isBound(l *link) bool {
	if l == i.lastWorking && len(i.bindings) == 0 && len(i.unused) > 0 {
		return true
	}
	for _, b := range i.bindings {
		if b.link == l {
			return true
		}
	}
	return false
}

// workingLink returns a working link for requests that concern no single Scanner; nil if there is none now.
func (i *instance) workingLink() *link {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lastWorking != nil && i.lastWorking.problem() == nil {
		return i.lastWorking
	}
	for _, l := range i.links {
		if l.isWorking() {
			return l
		}
	}
	return nil
}

// wake wakes a loop. It never blocks.
func wake(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default: // a run is already pending
	}
}

// awaitWake waits until the loop is woken or until the time has passed. It reports whether the loop is to continue.
func (i *instance) awaitWake(ctx context.Context, loop chan struct{}, wait time.Duration) bool {
	timer := i.Clock.NewTimer(max(wait, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-loop:
	case <-timer.C():
	}
	return ctx.Err() == nil
}

// jitter returns d with a jitter of up to ±10 %, so that loops do not run in lockstep.
func (i *instance) jitter(d time.Duration) time.Duration {
	return d + time.Duration((i.Random()-0.5)/5*float64(d))
}

// Bounds of the backoff.
const (
	minBackoff = time.Second
	maxBackoff = 2 * time.Minute
)

// backoff returns the delay after this many failures in a row.
func (i *instance) backoff(times int) time.Duration {
	return min(i.jitter(backoff.After(times, minBackoff, maxBackoff)), maxBackoff)
}
