package clair

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// pollTimeout bounds a request for Clair's state, which it answers at once.
	pollTimeout = 15 * time.Second
	// minPollInterval is the minimum time between two polls of the data, however often RequestDataPoll is called.
	minPollInterval = 5 * time.Second
	// stableTime is how long no new updater must have completed before data counts as complete. It applies where the expected updaters are
	// not configured exactly.
	stableTime = 10 * time.Minute
	// lossTimeout is how long data of fewer updaters than before counts as lost. After that the smaller number is accepted, since an
	// administrator may have disabled updaters.
	lossTimeout = 24 * time.Hour
)

// data is what is known about the vulnerability data of a Clair. It is rebuilt after a restart.
type data struct {
	latest map[api.DataKind]map[string]api.UpdateOperation
	etags  map[api.DataKind]string
	// completed is when each updater last completed with other vulnerabilities than before, as far as this was observed. The map never changes.
	completed map[string]time.Time
	// seen holds the updaters that have completed. newest is when the last of them completed for the first time.
	seen   map[string]bool
	newest time.Time
	// fewerSince is since when there are fewer updaters than in the current data version; zero if there are not.
	fewerSince time.Time
	// known means that Clair was polled. missing describes data whose lack makes every report incomplete. isUnstable means that further
	// updaters may still complete for the first time.
	known      bool
	missing    string
	isUnstable bool
}

// pollLoop polls Clair's data and state, and checks the access of each Scanner.
func (i *instance) pollLoop(ctx context.Context) {
	for i.awaitWake(ctx, i.polling, i.untilPoll()) {
		_ = i.Loops.Run("clair-poll", func() error { return i.poll(ctx) }) // the Scanners' conditions show the error
	}
}

// requestPoll requests a poll of the data soon.
func (i *instance) requestPoll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.pollRequested {
		i.pollRequested = true
		wake(i.polling)
	}
}

// untilPoll returns the time until the next request over any link.
func (i *instance) untilPoll() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	now, next := i.Clock.Now(), time.Time{}
	for _, l := range i.links {
		if !i.isBound(l) || l.settingsFailure != nil {
			continue
		}
		if at := i.nextCheck(l); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if next.IsZero() {
		return requeueAfter
	}
	return next.Sub(now)
}

// nextCheck returns the time of the next request over a link.
func (i *instance) nextCheck(l *link) time.Time {
	switch {
	case l.failure != nil && l.next.After(i.connection.next):
		return l.next
	case i.connection.failure != nil:
		return i.connection.next
	case i.pollRequested && l == i.lastWorking && i.polled.Add(minPollInterval).Before(l.next):
		return i.polled.Add(minPollInterval)
	}
	return l.next
}

// due returns the links that are due, the one that worked last first.
func (i *instance) due() []*link {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.dropUnused()
	var due []*link
	for _, l := range i.links {
		if l.settingsFailure == nil && i.isBound(l) && !i.nextCheck(l).After(i.Clock.Now()) {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *link) int {
		switch {
		case a == i.lastWorking:
			return -1
		case b == i.lastWorking:
			return 1
		}
		return strings.Compare(a.key.namespace+"/"+a.key.secret, b.key.namespace+"/"+b.key.secret)
	})
	return due
}

// poll checks all links that are due. The first that works is also used to fetch the data; for the others only access is checked. A shared
// outage is detected once. It returns the last error.
func (i *instance) poll(ctx context.Context) (last error) {
	brought := false
	for _, l := range i.due() {
		i.mu.Lock()
		again := i.nextCheck(l).After(i.Clock.Now())
		i.mu.Unlock()
		if again {
			continue
		}
		err := i.pollLink(ctx, l, !brought)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the shutdown is no failure of Clair
		}
		if err != nil {
			last = err
			i.recordFailure(ctx, l, err)
			continue
		}
		brought = true
		i.recordSuccess(ctx, l)
	}
	if brought {
		if err := i.recordDataVersion(ctx); err != nil && ctx.Err() == nil {
			i.Log.Error(err, "Noting the vulnerability data", "clair", i.url)
			last = err
		}
	}
	return last
}

// pollLink fetches the state of the indexer and, if wanted, the data. No state or data is recorded before everything was fetched.
func (i *instance) pollLink(ctx context.Context, l *link, wanted bool) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	state, err := l.client.IndexState(ctx)
	i.mu.Lock()
	isWorking := l.isWorking() // a probe may have recorded an outage meanwhile
	i.mu.Unlock()
	if err == nil && !isWorking {
		err = l.client.Delete(ctx, randomDigest()) // the state needs no database
	}
	if err != nil || !wanted {
		return err
	}
	i.mu.Lock()
	etags := i.data.etags
	i.pollRequested, i.polled = false, i.Clock.Now()
	i.mu.Unlock()
	reported, err := i.Store.DataVersion(ctx, i.engine)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		i.Log.Error(err, "Looking up the vulnerability data", "clair", i.url)
		return nil // Clair works
	}
	changed := map[api.DataKind]api.Updates{}
	for _, kind := range []api.DataKind{api.Vulnerabilities, api.Enrichments} {
		if changed[kind], err = l.client.UpdateOperations(ctx, kind, etags[kind]); err != nil {
			return err
		}
	}
	i.recordState(state)
	i.recordUpdates(changed, updatersOf(reported))
	return nil
}

// recordState records the state of the indexer. It accepts a change only after two polls in a row: while Clair is replaced, old and new
// instances both answer.
func (i *instance) recordState(state string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.state != state && (i.state == "" || i.polledState == state) {
		i.Log.Info("Clair's indexer has another state", "clair", i.url, "state", state)
		i.state = state
		wake(i.indexing)
		wake(i.sweeping)
	}
	i.polledState = state
}

// recordUpdates records Clair's current data. reported is the number of updaters in the current data version.
func (i *instance) recordUpdates(changed map[api.DataKind]api.Updates, reported int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before, now := i.data, i.Clock.Now()
	next := data{
		latest: map[api.DataKind]map[string]api.UpdateOperation{}, etags: map[api.DataKind]string{},
		seen: map[string]bool{}, newest: before.newest, known: true, completed: map[string]time.Time{},
	}
	for kind, updates := range changed {
		next.etags[kind], next.latest[kind] = updates.ETag, updates.Latest
		if updates.Latest == nil {
			next.latest[kind] = before.latest[kind]
		}
		for updater, operation := range next.latest[kind] {
			next.seen[updater] = true
			if kind == api.Vulnerabilities {
				next.completed[updater] = before.completionTime(updater, operation, now)
			}
			if before.seen[updater] {
				continue
			}
			// An operation's date is by another clock. It is used only at the first poll, when nothing better is known.
			ended := now
			if !before.known && operation.Date.Before(now) {
				ended = operation.Date
			}
			if ended.After(next.newest) {
				next.newest = ended
			}
		}
	}
	if len(next.seen) < reported {
		if next.fewerSince = before.fewerSince; next.fewerSince.IsZero() {
			next.fewerSince = now
		}
	}
	i.checkCompleteness(&next, reported, now)
	i.data = next
}

// completionTime returns when an operation of an updater completed. The date is by another clock, so it is limited to now.
func (d *data) completionTime(updater string, operation api.UpdateOperation, now time.Time) time.Time {
	if known, found := d.latest[api.Vulnerabilities][updater]; found && known.Ref == operation.Ref {
		return d.completed[updater]
	}
	if operation.Date.Before(now) {
		return operation.Date
	}
	return now
}

// checkCompleteness sets missing and isUnstable: whether reports made with this data are complete. reported is the number of updaters in the current
// data version.
func (i *instance) checkCompleteness(d *data, reported int, now time.Time) {
	if len(d.latest[api.Vulnerabilities]) == 0 {
		d.missing = fmt.Sprintf("Clair at %s has no vulnerability data yet", i.host)
		return
	}
	var missing []string
	for _, pattern := range i.updaters {
		if !matchesAny(pattern, d.seen) {
			missing = append(missing, pattern)
		}
	}
	if len(missing) > 0 {
		d.missing = fmt.Sprintf("these updaters of Clair at %s have not run yet (clair.instances[].updaters in the operator's configuration): %s",
			i.host, strings.Join(missing, ", "))
	}
	if i.updatersUnknown() && !d.fewerSince.IsZero() && now.Sub(d.fewerSince) < lossTimeout {
		d.missing = fmt.Sprintf("Clair at %s has data of %d updaters, and had that of %d: its database may have been lost; waiting until as many have run, "+
			"or for %s; to wait for certain ones instead, name them in clair.instances[].updaters of the operator's configuration",
			i.host, len(d.seen), reported, lossTimeout)
	}
	d.isUnstable = i.updatersUnknown() && now.Sub(d.newest) < stableTime
}

// updatersUnknown reports whether the set of updaters of this Clair is unknown. A pattern with "*" stands for any number of updaters.
func (i *instance) updatersUnknown() bool {
	return len(i.updaters) == 0 || slices.ContainsFunc(i.updaters, func(pattern string) bool { return strings.Contains(pattern, "*") })
}

// matches reports whether a name fits a pattern, in which "*" stands for any characters.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, begins := strings.CutPrefix(name, parts[0])
	rest, ends := strings.CutSuffix(rest, parts[len(parts)-1])
	if !begins || !ends {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		// Matching each part as early as possible leaves the most for the parts that follow.
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// matchesAny reports whether any updater fits a pattern.
func matchesAny[V any](pattern string, updaters map[string]V) bool {
	for updater := range updaters {
		if matches(pattern, updater) {
			return true
		}
	}
	return false
}

// dataMissing returns why there is no usable data, or "". first means that no data version is recorded yet. Unsettled data is a reason
// only then, because otherwise reports are made with the earlier data version.
func (i *instance) dataMissing(first bool) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case !i.data.known && first:
		return fmt.Sprintf("Clair at %s was not asked yet", i.host)
	case i.data.missing != "":
		return i.data.missing
	case first:
		return fmt.Sprintf("the updaters of Clair at %s run for the first time, %d so far: waiting until there was no other one for %s; "+
			"to wait for certain ones instead, name them in clair.instances[].updaters of the operator's configuration", i.host, len(i.data.seen), stableTime)
	}
	return ""
}

// recordDataVersion records Clair's data as the current data version once it is complete.
func (i *instance) recordDataVersion(ctx context.Context) error {
	i.mu.Lock()
	d := i.data
	i.mu.Unlock()
	if !d.known || d.missing != "" || d.isUnstable {
		return nil
	}
	version := versionOf(d)
	current, err := i.Store.DataVersion(ctx, i.engine)
	if err != nil && !errors.Is(err, store.ErrNotFound) || err == nil && current.Version == version.Version {
		return err
	}
	i.Log.Info("Reports are made with other vulnerability data from now on", "clair", i.url, "built", version.Built, "updaters", len(d.seen))
	if err := i.Store.SetDataVersion(ctx, i.engine, version); err != nil {
		return err
	}
	wake(i.reading)
	i.DataChanged(ctx)
	return nil
}

// versionOf returns a version that identifies the last operation of every updater. It ends in the number of updaters.
func versionOf(d data) store.DataVersion {
	version := store.DataVersion{Tool: Tool}
	var lines []string
	for kind, latest := range d.latest {
		for updater, operation := range latest {
			lines = append(lines, fmt.Sprintf("%s %q %s\n", kind, updater, operation.Ref))
			if kind == api.Vulnerabilities && operation.Date.After(version.Built) {
				version.Built = operation.Date.UTC()
			}
		}
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	version.Version = fmt.Sprintf("%s-%d", hex.EncodeToString(sum[:]), len(d.seen))
	return version
}

// updatersOf returns the number of updaters in a version; 0 if unknown.
func updatersOf(version store.DataVersion) int {
	_, count, _ := strings.Cut(version.Version, "-")
	updaters, _ := strconv.Atoi(count)
	return updaters
}
