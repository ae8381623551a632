package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"
)

// EndedWorkload is a workload whose pods ran an image and have ended: they succeeded or failed.
type EndedWorkload struct {
	Workload
	// At is when the last of these pods ended.
	At time.Time
}

// RecentImage is an image that no workload runs now and that is still in use, since its last pods ended recently.
type RecentImage struct {
	NamespacedImage
	// Reference is one of the image's references. Repositories and Receivers are those of the workloads that ran the image.
	Reference               string
	Repositories, Receivers []string
}

// maxLeft bounds how many workloads are kept that have left an image. Otherwise Jobs and pods with a new name each time would add
// one each. Superseded workloads are kept first, since any one of them ends the image's use; then ended ones, and then the latest
// ones.
const maxLeft = 250

// leftWorkload is a workload that ran an image and no longer runs it.
type leftWorkload struct {
	Workload
	leftAt time.Time
	// ended means that the workload's pods have ended, and not before Used.EndedSince.
	ended bool
	// superseded means that the store has recorded another image of the repository for this workload since.
	superseded bool
	// wasRunning means that the store has the workload as running. leftAt is then when it was last seen running.
	wasRunning bool
}

// recordedUsage is the recorded use of an image by a Scanner.
type recordedUsage struct {
	// id is 0 if the Scanner does not have the image. manifest is 0 if the image is not cataloged.
	id, manifest int64
	// recordedAt is when the workloads were last written; zero if an older version of the operator wrote them.
	recordedAt time.Time
	running    []Workload
	left       []leftWorkload
}

// loadUsage reads the recorded use of an image. same reports whether everything but the workloads equals u.
func loadUsage(ctx context.Context, q query, u ImageUsage) (use recordedUsage, same bool, err error) {
	var engine string
	var scope Scope
	var suspended bool
	var recordedAt millis
	err = q.QueryRowContext(ctx, `SELECT id, coalesce(manifest_id, 0), scope, engine, suspended, recorded_at FROM scanner_images WHERE `+isImageOfScanner,
		u.imageArgs()...).Scan(&use.id, &use.manifest, &scope, &engine, &suspended, &recordedAt)
	use.recordedAt = recordedAt.Time
	if errors.Is(err, sql.ErrNoRows) {
		return recordedUsage{}, false, nil
	}
	if err != nil {
		return recordedUsage{}, false, err
	}
	running, err := collect(ctx, q, `
		SELECT namespace, kind, name, container, repository, reference, receivers, completes FROM workloads WHERE image_id = ?`,
		[]any{use.id}, func(rows *sql.Rows) (w Workload, err error) {
			err = rows.Scan(&w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository, &w.Reference, &w.Receivers, &w.Completes)
			return w, err
		})
	if err != nil {
		return recordedUsage{}, false, err
	}
	use.running = distinctWorkloads(running)
	use.left, err = collect(ctx, q, `
		SELECT namespace, kind, name, container, repository, reference, receivers, left_at, ended, superseded FROM left_workloads WHERE image_id = ?`,
		[]any{use.id}, func(rows *sql.Rows) (l leftWorkload, err error) {
			var at millis
			err = rows.Scan(&l.Namespace, &l.Kind, &l.Name, &l.Container, &l.Repository, &l.Reference, &l.Receivers, &at, &l.ended, &l.superseded)
			l.leftAt = at.Time
			return l, err
		})
	return use, scope == u.Scope && engine == u.Engine && suspended == u.Suspended, err
}

// nextLeft returns the workloads that no longer run the image once u is recorded, in order, at most maxLeft. A workload whose pods
// are meant to end counts as ended when none of them runs the image, even if all of them are deleted. It then ended at lastSeen,
// which is not after now.
func (use recordedUsage) nextLeft(u ImageUsage, lastSeen, now time.Time) []leftWorkload {
	byName, runs := make(map[Workload]leftWorkload), make(map[Workload]bool)
	for _, w := range u.Workloads {
		runs[containerKey(w)] = true
	}
	for _, l := range use.left {
		byName[containerKey(l.Workload)] = l
	}
	for _, w := range use.running {
		byName[containerKey(w)] = leftWorkload{Workload: w, leftAt: lastSeen, ended: w.Completes, wasRunning: true}
	}
	markDropped(u, byName)
	for _, e := range u.Ended {
		known, found := byName[containerKey(e.Workload)]
		if !found || use.isLatest(e, known) {
			byName[containerKey(e.Workload)] = leftWorkload{Workload: e.Workload, leftAt: earlierTime(e.At, now), ended: true}
		}
	}
	var next []leftWorkload
	for name, l := range byName {
		l.Completes = false
		l.ended = l.ended && !l.leftAt.Before(u.EndedSince)
		if !runs[name] && (l.ended || len(u.Workloads) == 0) {
			next = append(next, l)
		}
	}
	return sortedLeft(keepLatest(next))
}

// isLatest reports whether the end of a pod replaces what is known as the time at which its workload left the image.
func (use recordedUsage) isLatest(e EndedWorkload, known leftWorkload) bool {
	if !known.wasRunning {
		return e.At.After(known.leftAt)
	}
	// A pod that ended before the workload was last recorded as running is not the pod that ran then. That pod has been deleted.
	return !known.ended || e.At.After(use.recordedAt)
}

// hasEndBeside reports whether a pod has ended since the workloads were recorded, while another pod of the same workload still
// runs. Such workloads are recorded again, so that this end is not taken for the end of the workload later.
func (use recordedUsage) hasEndBeside(u ImageUsage, now time.Time) bool {
	return slices.ContainsFunc(u.Ended, func(e EndedWorkload) bool {
		return e.At.After(use.recordedAt) && !e.At.After(now) &&
			slices.ContainsFunc(u.Workloads, func(w Workload) bool { return containerKey(w) == containerKey(e.Workload) })
	})
}

// keepLatest returns the at most maxLeft workloads that are kept. The order is total, so the same ones are kept when their pods are
// listed again.
func keepLatest(left []leftWorkload) []leftWorkload {
	if len(left) <= maxLeft {
		return left
	}
	slices.SortFunc(left, func(a, b leftWorkload) int {
		return cmp.Or(trueFirst(a.superseded, b.superseded), trueFirst(a.ended, b.ended), b.leftAt.Compare(a.leftAt), compareWorkloads(a.Workload, b.Workload))
	})
	return left[:maxLeft]
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// markDropped marks the workloads that no longer belong to the Scanner as not ended.
func markDropped(u ImageUsage, left map[Workload]leftWorkload) {
	ended := make(map[Workload]bool)
	for _, e := range u.Ended {
		ended[containerKey(e.Workload)] = true
	}
	for _, w := range u.Dropped {
		if l, found := left[containerKey(w)]; found && (l.wasRunning || !ended[containerKey(w)]) {
			l.ended = false
			left[containerKey(w)] = l
		}
	}
}

func sortedLeft(left []leftWorkload) []leftWorkload {
	return slices.SortedFunc(slices.Values(left), func(a, b leftWorkload) int { return compareWorkloads(a.Workload, b.Workload) })
}

func earlierTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// equalLeft compares times in milliseconds, the precision of the store.
func equalLeft(a, b leftWorkload) bool {
	return a.Workload == b.Workload && a.ended == b.ended && a.leftAt.UnixMilli() == b.leftAt.UnixMilli()
}

const (
	declareLeft = `repository text, namespace text, kind text, name text, container text`

	// A superseded row stays superseded until the workload leaves the image again, later than before.
	saveLeft = `
		INSERT INTO left_workloads (image_id, repository, namespace, kind, name, container, reference, receivers, left_at, ended)
		SELECT @image, r.repository, r.namespace, r.kind, r.name, r.container, r.reference, r.receivers, r.left_at, r.ended
		FROM records(@rows, ` + declareLeft + `, reference text, receivers text, left_at bigint, ended bigint) r WHERE true
		ON CONFLICT (image_id, repository, namespace, kind, name, container) DO UPDATE SET
			superseded = CASE WHEN excluded.left_at IS NULL OR left_workloads.left_at >= excluded.left_at THEN left_workloads.superseded ELSE 0 END,
			reference = excluded.reference, receivers = excluded.receivers, left_at = excluded.left_at, ended = excluded.ended`

	deleteLeft = `
		DELETE FROM left_workloads WHERE image_id = @image AND (repository, namespace, kind, name, container) IN (
			SELECT r.repository, r.namespace, r.kind, r.name, r.container FROM records(@rows, ` + declareLeft + `) r)`
)

// replaceLeft replaces the workloads that have left an image. It writes only the differences: an image that many short-lived pods
// run has a row for each of them, and each of their ends is recorded.
func replaceLeft(ctx context.Context, tx *session, id int64, before, after []leftWorkload) error {
	known, kept := make(map[Workload]leftWorkload), make(map[Workload]bool)
	for _, l := range before {
		known[containerKey(l.Workload)] = l
	}
	var saved, deleted [][]any
	for _, l := range after {
		kept[containerKey(l.Workload)] = true
		if was, found := known[containerKey(l.Workload)]; !found || !equalLeft(was, l) {
			saved = append(saved, append(l.key(), l.Reference, l.Receivers, millis{l.leftAt}, l.ended))
		}
	}
	for _, l := range before {
		if !kept[containerKey(l.Workload)] {
			deleted = append(deleted, l.key())
		}
	}
	if err := tx.execRows(ctx, saveLeft, saved, sql.Named("image", id)); err != nil {
		return err
	}
	return tx.execRows(ctx, deleteLeft, deleted, sql.Named("image", id))
}

// key returns the columns of declareLeft.
func (l leftWorkload) key() []any {
	return []any{l.Repository, l.Namespace, l.Kind, l.Name, l.Container}
}

const (
	// A workload has superseded an image that it left if it runs another image of the repository, or left another one later. The same
	// digest on another platform is not another image, since it is no rollout.
	supersede = `UPDATE left_workloads SET superseded = 1 FROM (
		SELECT l.image_id, l.repository, l.namespace, l.kind, l.name, l.container FROM workloads own JOIN left_workloads l ON ` + sameName
	orLeftBefore = `
		UNION
		SELECT l.image_id, l.repository, l.namespace, l.kind, l.name, l.container FROM left_workloads own JOIN left_workloads l ON ` + sameName
	sameName = `l.name = own.name AND l.namespace = own.namespace AND l.kind = own.kind AND l.container = own.container AND l.repository = own.repository
		AND l.image_id <> own.image_id AND l.superseded = 0
		JOIN scanner_images oi ON oi.id = own.image_id JOIN scanner_images li ON li.id = l.image_id AND li.scanner = oi.scanner AND li.digest <> oi.digest `
	ofFound = `AND l.left_at < own.left_at) AS found
		WHERE left_workloads.image_id = found.image_id AND left_workloads.repository = found.repository AND left_workloads.namespace = found.namespace
		AND left_workloads.kind = found.kind AND left_workloads.name = found.name AND left_workloads.container = found.container`
	markOwn    = supersede + `WHERE l.image_id = @id` + orLeftBefore + `WHERE l.image_id = @id ` + ofFound
	markOthers = supersede + `WHERE own.image_id = @id` + orLeftBefore + `WHERE own.image_id = @id ` + ofFound
)

// markSuperseded marks the workloads that now run another image of the repository as superseded: those of this image by other images,
// and those of other images by this one. An image with a superseded workload is no longer in use.
func markSuperseded(ctx context.Context, tx *session, id int64) error {
	for _, statement := range []string{markOwn, markOthers} {
		if _, err := tx.ExecContext(ctx, statement, sql.Named("id", id)); err != nil {
			return err
		}
	}
	return nil
}

// isRecent is the condition on rows w of left_workloads by which an image of scanner_images si counts as in use although nothing
// runs it: pods that ran it have ended, and none of its workloads has run another image of the repository since.
const isRecent = `w.ended = 1 AND NOT EXISTS (SELECT 1 FROM left_workloads s WHERE s.image_id = si.id AND s.superseded = 1)`

// isRecentColumn is isRecent as a result column. SQLite evaluates its subquery once, and would evaluate that of isRecent for each row.
const isRecentColumn = `w.ended = 1 AND si.id NOT IN (
			SELECT o.id FROM scanner_images o ORDERED JOIN left_workloads s ON s.image_id = o.id WHERE o.scanner = @scanner AND s.superseded = 1)`

const selectRecentImages = `
	SELECT si.namespace, si.digest, si.platform, w.repository, w.reference, w.receivers
	FROM scanner_images si ORDERED JOIN left_workloads w ON w.image_id = si.id
	WHERE si.scanner = ? AND unindexed(si.engine) = ? AND ` + isRecent + ` AND NOT EXISTS (SELECT 1 FROM workloads r WHERE r.image_id = si.id)
	ORDER BY si.namespace, si.digest, si.platform, w.reference, w.repository, w.receivers`

// RecentImages lists a Scanner's images of an engine that no workload runs now and that are still in use.
func (s *Store) RecentImages(ctx context.Context, scanner, engine string) (images []RecentImage, err error) {
	err = s.read(ctx, "list recently used images", func(ctx context.Context, q query) error {
		return eachRow(ctx, q, selectRecentImages, []any{scanner, engine}, func(rows *sql.Rows) error {
			var img NamespacedImage
			var w Workload
			if err := rows.Scan(&img.Namespace, &img.Key.Digest, (*platform)(&img.Key.Platform), &w.Repository, &w.Reference, &w.Receivers); err != nil {
				return err
			}
			if n := len(images); n == 0 || images[n-1].NamespacedImage != img {
				images = append(images, RecentImage{NamespacedImage: img, Reference: w.Reference})
			}
			images[len(images)-1].add(w)
			return nil
		})
	})
	return images, err
}

func (r *RecentImage) add(w Workload) {
	if !slices.Contains(r.Repositories, w.Repository) {
		r.Repositories = append(r.Repositories, w.Repository)
	}
	if !slices.Contains(r.Receivers, w.Receivers) {
		r.Receivers = append(r.Receivers, w.Receivers)
	}
}
