package store

import (
	"context"
	"database/sql"
	"slices"
)

// The table namespace_changes holds, for each namespace, the revision of the last transaction that changed what the API shows of its images.
// Whoever changes scanner_images, workloads or running_manifests marks the namespaces, so that every process that has the store open can find out
// what another one has changed. A report that is saved has the revision itself: to save one is what the store does most, and costs no mark.

// ChangePosition is a position in the sequence of the store's changes.
type ChangePosition struct {
	// Revision is that of the last transaction before the position.
	Revision int64
	// Message is the ID of the last message before the position.
	Message int64
}

// Changes is what transactions have changed between two positions.
type Changes struct {
	// Position is the end. The changes after it are those of later transactions.
	Position ChangePosition
	// Namespaces are those in which the workloads, reports or SBOMs of images have changed, sorted.
	Namespaces []string
	// Scanners are the UIDs of the Scanners and ClusterScanners with new messages, sorted.
	Scanners []string
}

const (
	// markNamespaces records that the current transaction changes namespaces. It is followed by a statement that selects them, and by onMarked.
	markNamespaces = `INSERT INTO namespace_changes (namespace, store_revision) SELECT DISTINCT c.namespace, ` + currentRevision + ` FROM (`
	onMarked       = `) AS c WHERE true ON CONFLICT (namespace) DO UPDATE SET store_revision = excluded.store_revision`

	markListed              = markNamespaces + `SELECT value AS namespace FROM texts(@namespaces) t` + onMarked
	markImages              = markNamespaces + `SELECT namespace FROM scanner_images WHERE manifest_id = ?` + onMarked
	selectChangedNamespaces = `
		SELECT namespace FROM namespace_changes WHERE store_revision > @after AND store_revision <= @until
		UNION SELECT si.namespace FROM reports r ORDERED JOIN scanner_images si ON si.manifest_id = r.manifest_id AND si.engine = r.engine
			WHERE r.store_revision > @after AND r.store_revision <= @until
		UNION SELECT e.namespace FROM reports r ORDERED JOIN external_reports e ON e.report_id = r.id
			WHERE r.store_revision > @after AND r.store_revision <= @until
		ORDER BY namespace`
	// selectMessagedScanners selects new messages. The IDs of messages rise with the revision, since writers wait for each other.
	selectMessagedScanners = `SELECT id, scanner FROM messages WHERE id > ? AND store_revision <= ?`
	selectPosition         = `SELECT revision, (SELECT coalesce(max(id), 0) FROM messages) FROM store_revision`

	// deleteOldChanges deletes the records of namespaces without images. A position that is this far back is not asked for any more.
	deleteOldChanges = `DELETE FROM namespace_changes WHERE store_revision < ` + currentRevision + ` - 100000
		AND NOT EXISTS (SELECT 1 FROM scanner_images si WHERE si.namespace = namespace_changes.namespace)`
)

// ChangePosition returns the position after the last change.
func (s *Store) ChangePosition(ctx context.Context) (p ChangePosition, err error) {
	err = s.queryRow(ctx, "look up the position of changes", selectPosition).Scan(&p.Revision, &p.Message)
	return p, err
}

// ChangesSince returns what has changed after a position of this store, whichever process has changed it. While nothing is written, it costs what
// Revision costs: at most one read of one row. It does not report what only the API server has, such as phases and exceptions, nor what a sweep deletes.
func (s *Store) ChangesSince(ctx context.Context, after ChangePosition) (c Changes, err error) {
	c.Position = after
	if c.Position.Revision, err = s.Revision(ctx); err != nil || c.Position.Revision == after.Revision {
		return c, err
	}
	// A record of a later revision is left for the next time. After a dump was loaded, all records are of the former store.
	c.Namespaces, err = queryRows(ctx, s, "list changed namespaces", selectChangedNamespaces,
		[]any{sql.Named("after", after.Revision), sql.Named("until", c.Position.Revision)}, scanValue[string])
	if err != nil {
		return c, err
	}
	c.Scanners, err = queryRows(ctx, s, "list scanners with new messages", selectMessagedScanners, []any{after.Message, c.Position.Revision}, func(rows *sql.Rows) (scanner string, err error) {
		var id int64
		err = rows.Scan(&id, &scanner)
		c.Position.Message = max(c.Position.Message, id)
		return scanner, err
	})
	slices.Sort(c.Scanners)
	c.Scanners = slices.Compact(c.Scanners)
	return c, err
}

// markChanged records that the transaction changes these namespaces.
func markChanged(ctx context.Context, tx *session, namespaces ...string) error {
	for page := range slices.Chunk(namespaces, maxRows) {
		if _, err := tx.ExecContext(ctx, markListed, sql.Named("namespaces", jsonArray(page))); err != nil {
			return err
		}
	}
	return nil
}

// markImagesOf records that the transaction changes the namespaces that have images with this manifest, matched by any engine.
func markImagesOf(ctx context.Context, tx *session, manifest int64) error {
	_, err := tx.ExecContext(ctx, markImages, manifest)
	return err
}
