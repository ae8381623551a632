package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Workload is one container of a Kubernetes workload and the image that it runs.
type Workload struct {
	Namespace string
	// Kind and Name of the top-most known owner: Deployment, StatefulSet, DaemonSet, CronJob, Job, Pod, …
	Kind, Name string
	// Container is the container's name.
	Container string
	// Repository is the normalized repository of the pod spec's image. Announcements are grouped by it.
	Repository string
	// Reference is the image reference in the pod spec, with its tag.
	Reference string
	// Receivers that the pods or their namespace name, sorted and joined by commas; empty if they name none.
	Receivers string
	// Completes means that the pods are meant to end, as those of a CronJob are. Such pods count as ended once they are gone.
	Completes bool
}

// NamespacedImage is an image in a namespace.
type NamespacedImage struct {
	Namespace string
	Key       image.Key
}

// ImageUsage is the use of an image in a namespace by a Scanner or a ClusterScanner.
type ImageUsage struct {
	// Scanner is the scanner's UID. Cluster is true for a ClusterScanner.
	Scanner   string
	Cluster   bool
	Namespace string
	Key       image.Key
	Scope     Scope
	Engine    string
	// Suspended keeps the image out of the match queue, unless a Scanner that is not suspended has it too.
	Suspended bool
	// Workloads that run the image now. Without any, the image is still matched, but its findings are not counted.
	Workloads []Workload
	// Ended are workloads whose ended pods still exist, whether or not other pods of theirs run the image now. The image stays in
	// use, and its findings are announced, until all these ends are before EndedSince, or until one of the image's workloads has run
	// another image of the repository. Workloads that have left the image are kept up to a bound, the latest ones first.
	Ended      []EndedWorkload
	EndedSince time.Time
	// Dropped are workloads whose pods still exist but no longer belong to the Scanner: they have not ended. A workload that is in
	// Ended as well has pods of both kinds; of these, the ended ones count.
	Dropped []Workload
}

// ScannerImage is an image that a scanner has in a namespace.
type ScannerImage struct {
	// Scanner is the UID of a Scanner or a ClusterScanner.
	Scanner, Namespace string
	Key                image.Key
}

// InNamespace returns the image without the scanner.
func (i ScannerImage) InNamespace() NamespacedImage { return NamespacedImage{i.Namespace, i.Key} }

// isImageOfScanner is the condition on scanner_images for one image of a scanner, with the parameters of imageArgs.
const isImageOfScanner = `scanner = ? AND digest = ? AND platform = ? AND namespace = ?`

func (i ScannerImage) imageArgs() []any {
	return []any{i.Scanner, i.Key.Digest, platform(i.Key.Platform), i.Namespace}
}

func (u ImageUsage) imageArgs() []any {
	return ScannerImage{u.Scanner, u.Namespace, u.Key}.imageArgs()
}

// ReportAge is the age of a report and of its data.
type ReportAge struct {
	MatchedAt time.Time
	// Current means that the report was made with the engine's current data. It is true while no data version is known.
	Current bool
}

// SetUsage replaces the recorded use of an image by a Scanner. Without running or ended workloads, scope and engine stay as they
// were. It writes nothing if the use is unchanged, so it may be called at every reconcile.
func (s *Store) SetUsage(ctx context.Context, u ImageUsage) error {
	if u.Scanner == "" || u.Key.Digest == "" {
		return errors.New("store: set use: the scanner's UID or the image's digest is empty")
	}
	action := "set use of " + u.Key.String()
	u = u.bounded()
	u.Workloads = distinctWorkloads(u.Workloads)
	known, id := false, int64(0)
	err := s.read(ctx, action, func(ctx context.Context, q query) error {
		complete, err := keepScopeAndEngine(ctx, q, u)
		if err != nil {
			return err
		}
		use, same, err := loadUsage(ctx, q, complete)
		id = use.id
		known = same && !use.hasEndBeside(complete, s.now()) && slices.Equal(use.running, u.Workloads) &&
			slices.EqualFunc(sortedLeft(use.left), use.nextLeft(u, s.lastSeen(use), s.now()), equalLeft)
		return err
	})
	if err == nil && !known {
		id, err = s.saveWorkloads(ctx, action, u)
	}
	if err == nil {
		s.presence.confirm(id, len(u.Workloads))
	}
	return err
}

// Bounds of the texts of a workload in bytes: an entry of an index has room for them in every database. The API server bounds the names of
// objects, but not those in an owner reference. References that pods can run are shorter.
const (
	maxWorkloadName = 253
	maxReference    = 1024
)

// bounded returns the usage with texts that every database takes.
func (u ImageUsage) bounded() ImageUsage {
	u.Workloads, u.Dropped, u.Ended = slices.Clone(u.Workloads), slices.Clone(u.Dropped), slices.Clone(u.Ended)
	for _, list := range [][]Workload{u.Workloads, u.Dropped} {
		for i := range list {
			list[i].bound()
		}
	}
	for i := range u.Ended {
		u.Ended[i].bound()
	}
	return u
}

func (w *Workload) bound() {
	w.Kind, w.Name = finding.TruncateText(w.Kind, maxWorkloadName), finding.TruncateText(w.Name, maxWorkloadName)
	w.Container = finding.TruncateText(w.Container, maxWorkloadName)
	w.Repository, w.Reference = finding.TruncateText(w.Repository, maxReference/2), finding.TruncateText(w.Reference, maxReference)
}

// saveWorkloads records the use of an image, and returns the row ID of the image.
func (s *Store) saveWorkloads(ctx context.Context, action string, u ImageUsage) (id int64, err error) {
	err = s.write(ctx, action, func(ctx context.Context, tx *session) error {
		complete, err := keepScopeAndEngine(ctx, tx, u)
		if err != nil {
			return err
		}
		use, _, err := loadUsage(ctx, tx, complete)
		if err != nil {
			return err
		}
		manifest := int64(0)
		if id, manifest, err = saveUsage(ctx, tx, complete, s.now()); err != nil {
			return err
		}
		if err := replaceWorkloads(ctx, tx, id, u.Workloads); err != nil {
			return err
		}
		if err := markChanged(ctx, tx, u.Namespace); err != nil {
			return err
		}
		if err := replaceLeft(ctx, tx, id, use.left, use.nextLeft(u, s.lastSeen(use), s.now())); err != nil {
			return err
		}
		if err := updateRunning(ctx, tx, u.Namespace, use.manifest, manifest); err != nil {
			return err
		}
		if started, stopped := len(use.running) == 0, len(u.Workloads) == 0; started != stopped {
			if err := updateExternalOfImages(ctx, tx, [2]string{u.Namespace, u.Key.Digest}); err != nil {
				return err
			}
		}
		return markSuperseded(ctx, tx, id)
	})
	return id, err
}

// distinctWorkloads returns each workload once, in order. Receivers that only some pods of a workload name apply to all of them.
func distinctWorkloads(workloads []Workload) []Workload {
	sorted := slices.SortedFunc(slices.Values(workloads), compareWorkloads)
	distinct := make([]Workload, 0, len(sorted))
	for _, w := range sorted {
		if last := len(distinct) - 1; last >= 0 && compareWorkloads(distinct[last], w) == 0 {
			distinct[last].Receivers = mergeReceivers(distinct[last].Receivers, w.Receivers)
			distinct[last].Completes = distinct[last].Completes && w.Completes
			continue
		}
		distinct = append(distinct, w)
	}
	return distinct
}

// mergeReceivers merges two lists of receivers in the format of Workload.Receivers.
func mergeReceivers(a, b string) string {
	if a == b {
		return a
	}
	names := strings.FieldsFunc(a+","+b, func(r rune) bool { return r == ',' })
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}

// compareWorkloads orders workloads by namespace, kind and name first. Their receivers do not matter.
func compareWorkloads(a, b Workload) int {
	return cmp.Or(
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Container, b.Container), cmp.Compare(a.Repository, b.Repository), cmp.Compare(a.Reference, b.Reference),
	)
}

// keepScopeAndEngine gives an image without workloads the scope and engine that are recorded for it, since there are no pods to derive them
// from.
func keepScopeAndEngine(ctx context.Context, q query, u ImageUsage) (ImageUsage, error) {
	if len(u.Workloads)+len(u.Ended) > 0 {
		return u, nil
	}
	err := q.QueryRowContext(ctx, `SELECT scope, engine FROM scanner_images WHERE `+isImageOfScanner, u.imageArgs()...).Scan(&u.Scope, &u.Engine)
	if errors.Is(err, sql.ErrNoRows) {
		return u, nil
	}
	return u, err
}

// saveUsage writes which Scanner has the image, and the image's manifest if it is known. manifest is 0 if it is not.
func saveUsage(ctx context.Context, tx *session, u ImageUsage, now time.Time) (id, manifest int64, err error) {
	// A changed scope means another manifest.
	if err := touchManifests(ctx, tx, now, isImageOfScanner, u.imageArgs()...); err != nil {
		return 0, 0, err
	}
	args := []any{u.Scanner, u.Cluster, u.Namespace, u.Key.Digest, platform(u.Key.Platform), u.Scope, u.Engine, u.Suspended, millis{now}}
	if _, err := tx.ExecContext(ctx, `
		INSERT INTO scanner_images (scanner, cluster, namespace, digest, platform, scope, engine, suspended, recorded_at, store_revision, manifest_id)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, `+currentRevision+`, `+resolveManifest+`)
		ON CONFLICT (scanner, digest, platform, namespace) DO UPDATE
		SET scope = excluded.scope, engine = excluded.engine,
			suspended = excluded.suspended, recorded_at = excluded.recorded_at, store_revision = excluded.store_revision, manifest_id = excluded.manifest_id`,
		append(args, resolveManifestArgs(u.Key, u.Scope)...)...); err != nil {
		return 0, 0, err
	}
	err = tx.QueryRowContext(ctx, `SELECT id, coalesce(manifest_id, 0) FROM scanner_images WHERE `+isImageOfScanner, u.imageArgs()...).Scan(&id, &manifest)
	return id, manifest, err
}

const insertWorkloads = `
	INSERT INTO workloads (image_id, namespace, kind, name, container, repository, reference, receivers, completes)
	SELECT @image, r.namespace, r.kind, r.name, r.container, r.repository, r.reference, r.receivers, r.completes
	FROM records(@rows, namespace text, kind text, name text, container text, repository text, reference text, receivers text, completes bigint) r`

func replaceWorkloads(ctx context.Context, tx *session, id int64, workloads []Workload) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM workloads WHERE image_id = ?`, id); err != nil {
		return err
	}
	rows := make([][]any, len(workloads))
	for i, w := range workloads {
		rows[i] = []any{w.Namespace, w.Kind, w.Name, w.Container, w.Repository, w.Reference, w.Receivers, w.Completes}
	}
	return tx.execRows(ctx, insertWorkloads, rows, sql.Named("image", id))
}

// InUse reports whether any Scanner has an image with an engine in a credential scope.
func (s *Store) InUse(ctx context.Context, engine string, key image.Key, scope Scope) (used bool, err error) {
	err = s.queryRow(ctx, "look up use of "+key.String(),
		`SELECT EXISTS (SELECT 1 FROM scanner_images WHERE digest = ? AND platform = ? AND scope = ? AND engine = ?)`,
		key.Digest, platform(key.Platform), scope, engine).Scan(&used)
	return used, err
}

// IsNeeded reports whether a Scanner that is not suspended has an image with an engine in a credential scope, and a workload runs
// the image or has ended recently.
func (s *Store) IsNeeded(ctx context.Context, engine string, key image.Key, scope Scope) (needed bool, err error) {
	err = s.queryRow(ctx, "look up the need of "+key.String(), `
		SELECT EXISTS (SELECT 1 FROM scanner_images si
			WHERE si.digest = ? AND si.platform = ? AND si.scope = ? AND si.engine = ? AND si.suspended = 0
				AND (EXISTS (SELECT 1 FROM workloads w WHERE w.image_id = si.id)
					OR EXISTS (SELECT 1 FROM left_workloads w WHERE w.image_id = si.id AND `+isRecent+`)))`,
		key.Digest, platform(key.Platform), scope, engine).Scan(&needed)
	return needed, err
}

// ImagesInUse counts the images that Scanners have with an engine, each once per scope.
func (s *Store) ImagesInUse(ctx context.Context, engine string) (n int, err error) {
	err = s.queryRow(ctx, "count images in use",
		`SELECT count(*) FROM (SELECT DISTINCT digest, platform, scope FROM scanner_images WHERE engine = ?) AS used`, engine).Scan(&n)
	return n, err
}

// The plus prevents SQLite from iterating over all images of the engine, of any Scanner.
const selectReported = `
	SELECT si.namespace, si.digest, si.platform, r.matched_at, r.data_version = coalesce(d.version, r.data_version) FROM scanner_images si
	JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
	LEFT JOIN data_versions d ON d.engine = r.engine
	WHERE si.scanner = ? AND unindexed(si.engine) = ?`

// ReportAges returns the images of a scanner that have a report of the engine in the scope that the scanner has them in now,
// whatever data the report was made with. Other images are not in the map.
func (s *Store) ReportAges(ctx context.Context, scanner, engine string) (map[NamespacedImage]ReportAge, error) {
	reported := make(map[NamespacedImage]ReportAge)
	err := s.read(ctx, "list images with a report", func(ctx context.Context, q query) error {
		return eachRow(ctx, q, selectReported, []any{scanner, engine}, func(rows *sql.Rows) error {
			var img NamespacedImage
			var matched millis
			var age ReportAge
			err := rows.Scan(&img.Namespace, &img.Key.Digest, (*platform)(&img.Key.Platform), &matched, &age.Current)
			age.MatchedAt = matched.Time
			reported[img] = age
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return reported, nil
}

const selectReportGaps = `
	SELECT si.namespace, si.digest, si.platform, r.not_covered FROM scanner_images si
	JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
	WHERE si.scanner = ? AND unindexed(si.engine) = ?`

// ReportGaps returns the images of ReportAges with what their reports do not cover.
func (s *Store) ReportGaps(ctx context.Context, scanner, engine string) (gaps map[NamespacedImage][]string, err error) {
	err = s.read(ctx, "list what reports do not cover", func(ctx context.Context, q query) error {
		gaps = make(map[NamespacedImage][]string)
		return eachRow(ctx, q, selectReportGaps, []any{scanner, engine}, func(rows *sql.Rows) error {
			var img NamespacedImage
			var of list[string]
			err := rows.Scan(&img.Namespace, &img.Key.Digest, (*platform)(&img.Key.Platform), &of)
			gaps[img] = of
			return err
		})
	})
	return gaps, err
}

// touchManifests sets the last use of the manifests of scanner_images rows that are about to be deleted or linked to another
// manifest.
func touchManifests(ctx context.Context, tx *session, now time.Time, which string, args ...any) error {
	_, err := tx.ExecContext(ctx, `UPDATE manifests SET last_used = ? WHERE id IN (SELECT manifest_id FROM scanner_images WHERE `+which+`)`,
		append([]any{millis{now}}, args...)...)
	return err
}

// deleteScannerImages deletes rows of scanner_images, and sets the last use of their manifests and of those of their external reports and uploaded
// SBOMs.
func (s *Store) deleteScannerImages(ctx context.Context, tx *session, which string, args ...any) error {
	if err := touchManifests(ctx, tx, s.now(), which, args...); err != nil {
		return err
	}
	for _, used := range []string{
		`SELECT r.manifest_id FROM external_reports e JOIN reports r ON r.id = e.report_id WHERE (e.namespace, e.digest)`,
		`SELECT u.manifest_id FROM uploaded_sboms u WHERE (u.namespace, u.digest)`,
	} {
		if _, err := tx.ExecContext(ctx, `UPDATE manifests SET last_used = ? WHERE id IN (`+used+` IN (SELECT namespace, digest FROM scanner_images WHERE `+which+`))`,
			append([]any{millis{s.now()}}, args...)...); err != nil {
			return err
		}
	}
	manifests, err := manifestsOf(ctx, tx, which, args...)
	if err != nil {
		return err
	}
	images, err := collect(ctx, tx, `SELECT DISTINCT e.namespace, e.digest FROM external_reports e
		WHERE (e.namespace, e.digest) IN (SELECT namespace, digest FROM scanner_images WHERE `+which+`)`, args, func(rows *sql.Rows) (image [2]string, err error) {
		err = rows.Scan(&image[0], &image[1])
		return image, err
	})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, markNamespaces+`SELECT namespace FROM scanner_images WHERE `+which+onMarked, args...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM scanner_images WHERE `+which, args...); err != nil {
		return err
	}
	if err := updateRunning(ctx, tx, anyNamespace, manifests...); err != nil {
		return err
	}
	return updateExternalOfImages(ctx, tx, images...)
}

// manifestsOf returns the row IDs of the manifests of some rows of scanner_images, each once.
func manifestsOf(ctx context.Context, q query, which string, args ...any) ([]int64, error) {
	return collect(ctx, q, `SELECT DISTINCT manifest_id FROM scanner_images WHERE manifest_id IS NOT NULL AND `+which, args, scanValue[int64])
}

const (
	selectScannerImages     = `SELECT scanner, namespace, digest, platform FROM scanner_images`
	selectScannerImagesOfNS = selectScannerImages + ` WHERE namespace = ?`
)

// ScannerImages lists which Scanner has which image in a namespace, or in all namespaces if it is empty.
func (s *Store) ScannerImages(ctx context.Context, namespace string) ([]ScannerImage, error) {
	statement, args := selectScannerImages, []any(nil)
	if namespace != "" {
		statement, args = selectScannerImagesOfNS, []any{namespace}
	}
	return queryRows(ctx, s, "list images of scanners", statement, args, func(rows *sql.Rows) (img ScannerImage, err error) {
		err = rows.Scan(&img.Scanner, &img.Namespace, &img.Key.Digest, (*platform)(&img.Key.Platform))
		return img, err
	})
}

// ReleaseImage deletes the record that a scanner has an image. uncovered means that the scanner does not cover the namespace any more: what was
// announced of the image is then not fixed, whatever else of its repository runs.
func (s *Store) ReleaseImage(ctx context.Context, img ScannerImage, uncovered bool) error {
	if uncovered {
		defer s.unchanged.deleteScanner(img.Scanner)
	}
	return s.write(ctx, "release "+img.Key.String(), func(ctx context.Context, tx *session) error {
		if uncovered {
			if _, err := tx.ExecContext(ctx, markReleased, sql.Named("at", millis{s.now()}), sql.Named("scanner", img.Scanner), sql.Named("namespace", img.Namespace),
				sql.Named("digest", img.Key.Digest), sql.Named("platform", platform(img.Key.Platform))); err != nil {
				return err
			}
			if err := releaseExternal(ctx, tx, externalRelease{at: s.now(), scanner: img.Scanner, from: img.Namespace, namespace: img.Namespace, digest: img.Key.Digest}); err != nil {
				return err
			}
		}
		return s.deleteScannerImages(ctx, tx, isImageOfScanner, img.imageArgs()...)
	})
}

// markReleased marks the announcements of the findings that an image of a scanner has, unless another image of the repository has the finding too.
// It includes images that a rollout has replaced: while the new image has no report, nothing proves that a finding of the old one is fixed.
const markReleased = `
	UPDATE announcements SET released_at = @at, released_from = @namespace
	WHERE fixed_at IS NULL AND released_at IS NULL AND receiver_id IN (SELECT id FROM receivers WHERE scanner = @scanner)
		AND (repository, canonical_id, package) IN (
			WITH own AS MATERIALIZED (
				SELECT id, manifest_id, engine FROM scanner_images WHERE scanner = @scanner AND digest = @digest AND platform = @platform AND namespace = @namespace),
			used AS MATERIALIZED (
				SELECT repository FROM workloads WHERE image_id IN (SELECT id FROM own)
				UNION SELECT repository FROM left_workloads WHERE image_id IN (SELECT id FROM own)),
			others AS MATERIALIZED (
				SELECT DISTINCT w.repository, r.id AS report FROM scanner_images o
				ORDERED JOIN workloads w ON w.image_id = o.id AND w.repository IN (SELECT repository FROM used)
				ORDERED JOIN reports r ON r.manifest_id = o.manifest_id AND r.engine = o.engine
				WHERE o.scanner = @scanner AND o.id NOT IN (SELECT id FROM own))
			SELECT used.repository, v.canonical_id, f.package
			FROM own ORDERED JOIN used ON true
			ORDERED JOIN reports r ON r.manifest_id = own.manifest_id AND r.engine = own.engine
			ORDERED JOIN findings f ON f.report_id = r.id AND f.fixed_at IS NULL
			ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
			WHERE NOT EXISTS (
				SELECT 1 FROM others ORDERED JOIN findings g INDEXED BY findings_by_vulnerability
					ON g.vulnerability_id = f.vulnerability_id AND g.report_id = others.report
				WHERE others.repository = used.repository AND g.package = f.package AND g.fixed_at IS NULL))`

// Scanners lists the UIDs of the Scanners that the store has records of.
func (s *Store) Scanners(ctx context.Context) ([]string, error) {
	return queryRows(ctx, s, "list scanners", `SELECT scanner FROM scanner_images UNION SELECT scanner FROM receivers UNION SELECT scanner FROM export_states ORDER BY 1`, nil, scanValue[string])
}

// DeleteScanners deletes all records of these Scanners: the use of images, receivers, announcements, exports and the message log.
func (s *Store) DeleteScanners(ctx context.Context, scanners []string) error {
	if len(scanners) == 0 {
		return nil
	}
	gone := jsonArray(scanners)
	defer func() {
		for _, scanner := range scanners {
			s.unchanged.deleteScanner(scanner)
		}
	}()
	const which = `scanner IN (SELECT value FROM texts(?) t)`
	if err := s.deleteReceivers(ctx, which, gone); err != nil {
		return err
	}
	return s.write(ctx, "delete scanners", func(ctx context.Context, tx *session) error {
		if err := s.deleteScannerImages(ctx, tx, which, gone); err != nil {
			return err
		}
		for _, table := range []string{"announced_sources", "export_states"} {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE `+which, gone); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM messages WHERE `+which, gone)
		return err
	})
}
