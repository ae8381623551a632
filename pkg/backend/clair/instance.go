package clair

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	api "github.com/scanner-operator/scanner-operator/pkg/clair"
	"github.com/scanner-operator/scanner-operator/pkg/config"
)

// maxReadings is how many reports of all Clairs are in memory at a time: one may have 32 MiB, and some times that decoded.
const maxReadings = 2

// bindingMemory is how long a Scanner counts as there after it was last looked at: several times the interval at which
// that is done.
const bindingMemory = 5 * time.Minute

// instance is one Clair, as all Scanners use it.
type instance struct {
	*Engines
	network           *api.Network
	url, host, engine string
	// updaters are patterns of those that must have run.
	updaters []string
	// authorities vouch for Clair, beside the well-known ones. They are the administrator's: what is read over one link counts
	// for all namespaces.
	authorities string

	// polling, indexing, reading and tidying wake the loops.
	polling, indexing, reading, tidying chan struct{}
	// reports bounds how fast they are read.
	reports *rate.Limiter
	line    line
	// queued is how many images waited for a report when the loop that reads them last ran.
	queued   atomic.Int64
	failures failures
	digests  digestLocks
	lost     lostImages

	// mu guards what follows, and all that links hold but for what never changes.
	mu    sync.Mutex
	links map[linkKey]*link
	// way leads to Clair. Whether there is any answer is the same for all who go it.
	way outage
	// bindings are the Scanners that use this Clair, by UID.
	bindings map[string]binding
	// worked is the last link over which Clair gave what it was asked for; nil if there was none.
	worked *link
	// state is that of Clair's indexer; empty until known. stateSeen is what the last poll saw.
	state, stateSeen string
	data             data
	// prompted says that the data is to be looked at as soon as may be; polled is when that was done last.
	prompted bool
	polled   time.Time
	// pausedUntil is when Clair may be given work again, which it has refused pauses times in a row.
	pausedUntil time.Time
	pauses      int
	// unused is since when manifests are seen not to be in use. releasing are the Scanners that are about to go.
	unused    map[string]time.Time
	releasing map[string]time.Time
	// revisited is the state of the indexer for which all images were looked at.
	revisited string
}

// binding is one Scanner's use of a Clair.
type binding struct {
	link *link
	seen time.Time
}

func newInstance(e *Engines, network *api.Network, address string, settings config.ClairInstance) *instance {
	parsed, _ := url.Parse(address) // it is canonical
	i := &instance{
		Engines: e, network: network, url: address, host: parsed.Host, engine: engineOf(address), updaters: settings.Updaters, authorities: settings.CABundle,
		polling: make(chan struct{}, 1), indexing: make(chan struct{}, 1), reading: make(chan struct{}, 1), tidying: make(chan struct{}, 1),
		reports: rate.NewLimiter(rate.Limit(e.Config.Clair.ReportsPerSecond), e.Config.Clair.ReportsPerSecond),
		links:   map[linkKey]*link{}, bindings: map[string]binding{},
		unused: map[string]time.Time{}, releasing: map[string]time.Time{},
	}
	i.failures.clock, i.lost.clock = e.Clock, e.Clock
	return i
}

// bind notes that a Scanner uses this Clair with its settings, and returns the link for them.
func (i *instance) bind(scanner *v1alpha1.Scanner) *link {
	i.mu.Lock()
	defer i.mu.Unlock()
	l := i.linkFor(keyOf(scanner))
	i.bindings[string(scanner.UID)] = binding{link: l, seen: i.Clock.Now()}
	if scanner.DeletionTimestamp.IsZero() {
		delete(i.releasing, string(scanner.UID)) // it has come back
	}
	if !l.checked {
		kick(i.polling)
	}
	return l
}

func (i *instance) unbind(scanner string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.bindings, scanner)
}

// scanners are the UIDs of those that use this Clair.
func (i *instance) scanners() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.dropAbsent()
	uids := make([]string, 0, len(i.bindings))
	for uid := range i.bindings {
		uids = append(uids, uid)
	}
	return uids
}

// dropAbsent forgets Scanners that have gone, and links that nobody uses, but for the one that worked last: with that,
// what Clair keeps is deleted when all Scanners have gone.
func (i *instance) dropAbsent() {
	now, used := i.Clock.Now(), map[linkKey]bool{}
	for uid, b := range i.bindings {
		if now.Sub(b.seen) > bindingMemory {
			delete(i.bindings, uid)
			continue
		}
		used[b.link.key] = true
	}
	for key, l := range i.links {
		if !used[key] && l != i.worked {
			delete(i.links, key)
		}
	}
}

// isBound says that a Scanner uses this link, or that it is needed to undo what is kept for Scanners that have gone. The
// caller holds mu.
func (i *instance) isBound(l *link) bool {
	if l == i.worked && len(i.bindings) == 0 && len(i.unused) > 0 {
		return true
	}
	for _, b := range i.bindings {
		if b.link == l {
			return true
		}
	}
	return false
}

// worker is a link over which Clair can be asked for what concerns no single Scanner; nil if there is none now.
func (i *instance) worker() *link {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.worked != nil && i.worked.trouble() == nil {
		return i.worked
	}
	for _, l := range i.links {
		if l.checked && l.trouble() == nil {
			return l
		}
	}
	return nil
}

// kick wakes a loop. It never waits.
func kick(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default: // it is awake already
	}
}

// await waits for a kick or a time, and says whether to go on.
func (i *instance) await(ctx context.Context, loop chan struct{}, wait time.Duration) bool {
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

// around is a time that differs by up to a tenth, so that many do not do the same at once.
func (i *instance) around(d time.Duration) time.Duration {
	return d + time.Duration((i.Random()-0.5)/5*float64(d))
}

// Bounds of the time until something that failed is tried again.
const (
	firstPause = time.Second
	lastPause  = 2 * time.Minute
)

// backOff is how long to leave alone what has failed so many times in a row.
func (i *instance) backOff(times int) time.Duration {
	return min(i.around(min(firstPause<<min(max(times-1, 0), 10), lastPause)), lastPause)
}
