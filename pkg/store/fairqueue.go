package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"
)

// Lease reserves one image for a match worker.
type Lease struct {
	ID             string
	Holder         string // UID of the Job
	PlatformDigest string
	Scope          Scope
	// Namespace is the one against whose storage budget the findings count. LeaseMatches leaves it empty.
	Namespace string
	Engine    string
	Until     time.Time
}

// currentBounds selects the values of matchable.made_with between which a report is current: anything below or above is due.
// While no data version is known, every report is current.
const currentBounds = `
	SELECT coalesce('=' || max(version), '='), coalesce('=' || max(version), '>'), coalesce(max(version), '')
	FROM data_versions WHERE engine = ?`

// queueSide is one of the two ranges of made_with in an index on matchable that are due. The lower one starts with images that
// were never matched.
type queueSide string

const (
	sideBelow queueSide = `made_with < @below`
	sideAbove queueSide = `made_with > @above`
)

var queueSides = []queueSide{sideBelow, sideAbove}

// countQueue counts an image once, however many namespaces have it. A failed image whose retry time is still to come does not
// count, unless the failure is in the future, because the clock was set back since.
const countQueue = `SELECT count(DISTINCT manifest_id) FROM (` +
	`SELECT manifest_id FROM matchable INDEXED BY matchable_by_data WHERE engine = @engine AND retry_at IS NULL AND ` + string(sideBelow) +
	` UNION ALL SELECT manifest_id FROM matchable INDEXED BY matchable_by_data WHERE engine = @engine AND retry_at IS NULL AND ` + string(sideAbove) +
	` UNION ALL SELECT manifest_id FROM matchable WHERE engine = @engine AND retry_at <= @now AND (` + string(sideBelow) + ` OR ` + string(sideAbove) + `)` +
	` UNION ALL SELECT manifest_id FROM matchable INDEXED BY matchable_by_failure WHERE engine = @engine AND retry_at IS NOT NULL AND failed_at > @now` +
	` AND (` + string(sideBelow) + ` OR ` + string(sideAbove) + `)) AS queue`

// hasQueue selects whether LeaseMatches has anything to do: an image is due and not leased, a lease has expired, or a retry time
// has come. It stops at the first such image, so it reads little more of the queue than what is leased.
const hasQueue = `SELECT EXISTS (SELECT 1 FROM leases WHERE engine = @engine AND until <= @now)
	OR EXISTS (SELECT 1 FROM matchable WHERE engine = @engine AND retry_at IS NULL AND ` + string(sideBelow) + notLeased + `)
	OR EXISTS (SELECT 1 FROM matchable WHERE engine = @engine AND retry_at IS NULL AND ` + string(sideAbove) + notLeased + `)
	OR EXISTS (SELECT 1 FROM matchable WHERE engine = @engine AND retry_at <= @now)
	OR EXISTS (SELECT 1 FROM matchable WHERE engine = @engine AND retry_at IS NOT NULL AND failed_at > @now)`

const notLeased = ` AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.manifest_id = matchable.manifest_id AND l.engine = matchable.engine)`

// namespacesDue lists the namespaces with due images. It skips through the index from one data version to the next, and within
// each from one namespace to the next, so its cost grows with the number of namespaces, not of images.
const namespacesDue = `
	WITH RECURSIVE data(made_with) AS (
		SELECT (SELECT min(made_with)` + fromDue + `)
		UNION ALL
		SELECT (SELECT min(made_with)` + fromDue + ` AND made_with > data.made_with) FROM data WHERE data.made_with IS NOT NULL
	), due(made_with, namespace) AS (
		SELECT made_with, (SELECT min(namespace)` + fromDue + ` AND made_with = data.made_with) FROM data
		WHERE ` + string(sideBelow) + ` OR ` + string(sideAbove) + `
		UNION ALL
		SELECT made_with, (SELECT min(namespace)` + fromDue + ` AND made_with = due.made_with AND namespace > due.namespace) FROM due
		WHERE due.namespace IS NOT NULL
	)
	SELECT DISTINCT namespace FROM due WHERE namespace IS NOT NULL ORDER BY namespace`

const fromDue = ` FROM matchable INDEXED BY matchable_by_data WHERE engine = @engine AND retry_at IS NULL`

// nextOf returns the statement that selects the first image of a namespace that is due and not leased: never matched ones first,
// then those with the oldest data and then the oldest report.
func nextOf(side queueSide) string {
	return `SELECT m.manifest_id FROM matchable m INDEXED BY matchable_by_namespace
	WHERE m.engine = @engine AND m.namespace = @namespace AND m.retry_at IS NULL AND m.` + string(side) + `
	AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.manifest_id = m.manifest_id AND l.engine = m.engine)
	AND CASE WHEN EXISTS (SELECT 1 FROM silent_ends e
		WHERE e.manifest_id = m.manifest_id AND e.engine = m.engine AND e.data_version = @version) THEN 1 ELSE 0 END = @suspected
	ORDER BY m.made_with, m.matched_at, m.manifest_id LIMIT 1`
}

// isolatedWait is how long isolated images wait behind all others. Then one of them is next, and the others wait as long
// again.
const isolatedWait = 5 * time.Minute

// isolatedDue lists the namespaces with isolated images that are due and not leased. There are few isolated images, so the
// statement starts from these and not from the queue.
const isolatedDue = `
	SELECT DISTINCT m.namespace FROM silent_ends e ORDERED JOIN matchable m ON m.manifest_id = e.manifest_id AND m.engine = e.engine
	WHERE e.engine = @engine AND e.data_version = @version AND m.retry_at IS NULL AND (m.` + string(sideBelow) + ` OR m.` + string(sideAbove) + `)
	AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.manifest_id = e.manifest_id AND l.engine = e.engine)
	ORDER BY m.namespace`

// QueueLength returns the number of images to match. Leased images count; images that FailMatch postponed do not.
func (s *Store) QueueLength(ctx context.Context, engine string) (n int, err error) {
	err = s.readQueue(ctx, "count the match queue of "+engine, engine, s.now(), countQueue, &n)
	return n, err
}

// LeaseMatches leases images to a match worker. The queue follows from the rest of the store: it contains every cataloged image in
// use whose report is missing or was made with other data. LeaseMatches leases up to limit images until the given time. Within a
// namespace, images that were never matched come first, then those with the oldest data and then the oldest report.
//
// The queue is fair to namespaces: the next image is from the namespace with the fewest leases of the engine and, among equals,
// from the one that has waited longest. An image that several namespaces have is leased once, for the first of them that is
// served.
//
// An image may kill or block the worker that matches it. An image whose lease expires, or is still held when its Job ends or is
// deleted, is therefore isolated as long as the data is the same. It is leased alone, so that no other image is lost with it, and
// for some minutes only after all others. After MaxSilentEnds such ends in a row, the match has failed, and it fails once more
// after each further one. The reason is ReasonMatchTimedOut if the last lease expired, else ReasonMatchWorkerDied. A report, or a
// failure that a worker reports, resets the count. Only leases held by Jobs count.
//
// An isolated image is leased only if there is no other image, and only to a holder without a lease; that holder gets nothing more
// until the lease ends. After isolated images have waited for some minutes, one of them comes before all others: until it is leased,
// holders that have a lease get nothing.
func (s *Store) LeaseMatches(ctx context.Context, engine, holder string, limit int, now, until time.Time) (leases []Lease, err error) {
	if limit <= 0 {
		return nil, nil
	}
	// Waiting workers poll every second. As long as there is nothing to lease, they must not block writers.
	var has bool
	if err := s.readQueue(ctx, "look into the match queue of "+engine, engine, now, hasQueue, &has); err != nil || !has {
		return nil, err
	}
	var remember func()
	err = s.write(ctx, "lease matches of "+engine, func(ctx context.Context, tx *session) error {
		leases, remember = nil, func() {}
		if err := expireLeases(ctx, tx, now, `engine = ?`, engine); err != nil {
			return err
		}
		if err := requeueDueRetries(ctx, tx, engine, now); err != nil {
			return err
		}
		queue, err := openQueue(ctx, tx, engine, now)
		if err != nil {
			return err
		}
		order, err := queue.loadFairOrder(ctx, tx, holder, s.fairness.lastServed(engine))
		if err != nil {
			return err
		}
		if s.fairness.isolatedWaited(engine, now, until) {
			waiting, served, err := queue.leaseIsolated(ctx, tx, order, holder, until)
			if leases = served; err != nil || waiting && len(served) == 0 {
				return err // a worker with a lease gets nothing more until it has none
			}
			remember = func() { s.fairness.restartIsolatedWait(engine, until, now, waiting) }
		}
		if len(leases) == 0 {
			leases, err = queue.lease(ctx, tx, order, holder, limit, until)
		}
		restart := remember
		remember = func() { restart(); s.fairness.recordServed(engine, order.last) }
		return err
	})
	if err != nil {
		return nil, err
	}
	remember()
	return leases, nil
}

// readQueue reads one value of an engine's queue.
func (s *Store) readQueue(ctx context.Context, action, engine string, now time.Time, statement string, value any) error {
	return s.read(ctx, action, func(ctx context.Context, q query) error {
		queue, err := openQueue(ctx, q, engine, now)
		if err != nil {
			return err
		}
		return q.QueryRowContext(ctx, statement, queue.args()...).Scan(value)
	})
}

// retryBatch bounds how many images one call of requeueDueRetries makes due again. The next call continues.
const retryBatch = 1000

// requeueDueRetries makes failed images due again whose retry time has come, or whose failure is in the future, because the clock was set
// back since.
func requeueDueRetries(ctx context.Context, tx *session, engine string, now time.Time) error {
	const update = `UPDATE matchable SET retry_at = NULL WHERE id IN (SELECT due.id FROM (SELECT id FROM matchable WHERE engine = ? AND `
	for _, statement := range []string{
		update + `retry_at <= ? LIMIT ?) AS due)`,
		update + `retry_at IS NOT NULL AND failed_at > ? LIMIT ?) AS due)`,
	} {
		if _, err := tx.ExecContext(ctx, statement, engine, millis{now}, retryBatch); err != nil {
			return err
		}
	}
	return nil
}

// matchQueue is an engine's queue at one point in time, within one transaction.
type matchQueue struct {
	engine, version, below, above string
	now                           time.Time
}

func openQueue(ctx context.Context, q query, engine string, now time.Time) (matchQueue, error) {
	queue := matchQueue{engine: engine, now: now}
	err := q.QueryRowContext(ctx, currentBounds, engine).Scan(&queue.below, &queue.above, &queue.version)
	return queue, err
}

func (m matchQueue) args(more ...any) []any {
	return append([]any{
		sql.Named("engine", m.engine), sql.Named("below", m.below), sql.Named("above", m.above), sql.Named("now", millis{m.now}),
	}, more...)
}

// fairOrder decides which namespace is next: the one with the fewest leases and, among equals, the one that follows the last
// served in the order of names. A namespace whose matches take long therefore gets no more workers than any other that waits.
type fairOrder struct {
	namespaces []string // with something due; sorted
	leases     map[string]int
	last       string
	// holdsIsolated means that the holder has a lease of an isolated image, and holds that it has any lease.
	holdsIsolated, holdsAny bool
}

func (m matchQueue) loadFairOrder(ctx context.Context, tx *session, holder, last string) (*fairOrder, error) {
	due, err := collect(ctx, tx, namespacesDue, m.args(), scanValue[string])
	if err != nil {
		return nil, err
	}
	order := &fairOrder{namespaces: due, leases: map[string]int{}, last: last}
	err = eachRow(ctx, tx, `
		SELECT l.namespace, l.holder, EXISTS (SELECT 1 FROM silent_ends e
			WHERE e.manifest_id = l.manifest_id AND e.engine = l.engine AND e.data_version = l.data_version)
		FROM leases l WHERE l.engine = ?`, []any{m.engine}, func(rows *sql.Rows) error {
		var namespace, by string
		var suspected bool
		err := rows.Scan(&namespace, &by, &suspected)
		order.leases[namespace]++
		order.holdsAny = order.holdsAny || by == holder
		order.holdsIsolated = order.holdsIsolated || by == holder && suspected
		return err
	})
	return order, err
}

// next returns the namespace that is served next; false if there is none.
func (t *fairOrder) next() (string, bool) {
	best := -1
	for i, namespace := range t.namespaces {
		if best < 0 || t.before(namespace, t.namespaces[best]) {
			best = i
		}
	}
	if best < 0 {
		return "", false
	}
	return t.namespaces[best], true
}

func (t *fairOrder) before(a, b string) bool {
	if t.leases[a] != t.leases[b] {
		return t.leases[a] < t.leases[b]
	}
	if after, afterB := a > t.last, b > t.last; after != afterB {
		return after
	}
	return a < b
}

// countLease counts a lease of a namespace, and makes the namespace the last served.
func (t *fairOrder) countLease(namespace string) { t.leases[namespace]++; t.last = namespace }

func (t *fairOrder) exclude(namespace string) {
	t.namespaces = slices.DeleteFunc(t.namespaces, func(n string) bool { return n == namespace })
}

// lease leases images fairly among namespaces. It leases images that are not isolated. If there are none and the holder has no
// lease, it leases a single isolated one.
func (m matchQueue) lease(ctx context.Context, tx *session, order *fairOrder, holder string, limit int, until time.Time) (leases []Lease, err error) {
	if order.holdsIsolated {
		return nil, nil
	}
	all := slices.Clone(order.namespaces)
	if leases, err = m.leaseImages(ctx, tx, order, holder, limit, until, false); err != nil || len(leases) > 0 || order.holdsAny {
		return leases, err
	}
	order.namespaces = all
	return m.leaseImages(ctx, tx, order, holder, 1, until, true)
}

// leaseIsolated leases an isolated image to a worker without a lease, before all others. waiting is true if an isolated image was
// leased, or could not be because the worker has a lease.
func (m matchQueue) leaseIsolated(
	ctx context.Context, tx *session, order *fairOrder, holder string, until time.Time,
) (waiting bool, leases []Lease, err error) {
	isolated, err := collect(ctx, tx, isolatedDue, m.args(sql.Named("version", m.version)), scanValue[string])
	if err != nil || len(isolated) == 0 || order.holdsAny {
		return len(isolated) > 0, nil, err
	}
	all := order.namespaces
	order.namespaces = isolated
	leases, err = m.leaseImages(ctx, tx, order, holder, 1, until, true)
	order.namespaces = all
	return len(leases) > 0, leases, err
}

func (m matchQueue) leaseImages(
	ctx context.Context, tx *session, order *fairOrder, holder string, limit int, until time.Time, suspected bool,
) (leases []Lease, err error) {
	for len(leases) < limit {
		namespace, found := order.next()
		if !found {
			break
		}
		manifest, err := m.nextOf(ctx, tx, namespace, suspected)
		if errors.Is(err, sql.ErrNoRows) {
			order.exclude(namespace)
			continue
		}
		if err != nil {
			return nil, err
		}
		lease, err := m.insertLease(ctx, tx, manifest, namespace, holder, until)
		if err != nil {
			return nil, err
		}
		order.countLease(namespace)
		leases = append(leases, lease)
	}
	return leases, nil
}

func (m matchQueue) nextOf(ctx context.Context, tx *session, namespace string, suspected bool) (manifest int64, err error) {
	args := m.args(sql.Named("namespace", namespace), sql.Named("version", m.version), sql.Named("suspected", suspected))
	for _, side := range queueSides {
		err = tx.QueryRowContext(ctx, nextOf(side), args...).Scan(&manifest)
		if !errors.Is(err, sql.ErrNoRows) {
			break
		}
	}
	return manifest, err
}

func (m matchQueue) insertLease(ctx context.Context, tx *session, manifest int64, namespace, holder string, until time.Time) (Lease, error) {
	// Truncated to the store's precision, so that reading the lease returns the same value.
	lease := Lease{ID: randomID(), Holder: holder, Engine: m.engine, Until: time.UnixMilli(until.UnixMilli()).UTC()}
	if _, err := tx.ExecContext(ctx, `
		INSERT INTO leases (id, manifest_id, engine, holder, until, data_version, namespace) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		lease.ID, manifest, m.engine, holder, millis{until}, m.version, namespace); err != nil {
		return Lease{}, err
	}
	err := tx.QueryRowContext(ctx, `SELECT platform_digest, scope FROM manifests WHERE id = ?`, manifest).
		Scan(&lease.PlatformDigest, &lease.Scope)
	return lease, err
}

// fairState is what the fair queue remembers of each engine.
type fairState struct {
	mu sync.Mutex
	// served is the namespace that was served last, by engine. After a restart, the first name is next.
	served map[string]string
	// isolatedSince is, by engine, the earliest time since which isolated images may have waited.
	isolatedSince map[string]time.Time
}

// isolatedWaited reports whether isolated images may have waited for isolatedWait. No lease ends after until, so a later time
// was recorded before the clock was set back, and the wait starts again.
func (t *fairState) isolatedWaited(engine string, now, until time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	since, found := t.isolatedSince[engine]
	if !found || since.After(until) {
		t.isolatedSince[engine] = now
		return false
	}
	return now.Sub(since) >= isolatedWait
}

// restartIsolatedWait restarts the wait of isolated images: now or, if one was leased, at the end of its lease.
func (t *fairState) restartIsolatedWait(engine string, until, now time.Time, leased bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isolatedSince[engine] = now; leased {
		t.isolatedSince[engine] = until
	}
}

func (t *fairState) lastServed(engine string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.served[engine]
}

func (t *fairState) recordServed(engine, namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.served[engine] = namespace
}
