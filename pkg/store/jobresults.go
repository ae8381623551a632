package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Errors of SaveJobResult.
var (
	// ErrResultTaken means that the Job already has another result.
	ErrResultTaken = errors.New("the job has brought its result")
	// ErrOverBudget means that the result does not fit into the namespace's storage budget.
	ErrOverBudget = errors.New("the namespace has used up its room in the store")
)

// findingBytes is what an ordinary finding takes in the store, its indexes included (docs/understand/benchmarks.md). No finding counts less.
const findingBytes = 320

// JobResult is the result of a catalog Job.
type JobResult struct {
	Catalog
	// JobUID identifies the Job, which must be live.
	JobUID string
	// Digest of the upload. Two uploads with the same digest are the same result.
	Digest string
	// Artifacts are read to their end. Size is the sum of their sizes in bytes.
	Artifacts map[Artifact]io.Reader
	Size      int64
	// Budget is how many bytes may count against Namespace; 0 for no limit.
	Budget int64
	// VEX are the OpenVEX documents that are attached to the image, as the Job read them. Without a policy, those of an earlier Job stay.
	VEX ImageVEX
}

// SaveJobResult stores the result of a catalog Job, once for each Job. What one Job stored is replaced by another Job's result in two cases
// only: an attested SBOM does not stay for a result whose image it does not count for, and the Job's Scanner has requested it (RequestRescan).
//
// kept is false in two cases: the engine already has a catalog of the platform manifest in that scope that counts, so that only the alias from
// the image key to the manifest was stored; or the same upload was stored before. It returns ErrNotFound if the Job is not live,
// ErrResultTaken if the Job has another result, and ErrOverBudget if the namespace's budget is used up.
func (s *Store) SaveJobResult(ctx context.Context, r JobResult) (kept bool, err error) {
	if err := r.check(); err != nil {
		return false, err
	}
	err = s.writeLarge(ctx, cmp.Or(string(r.Scope), r.Namespace), "save result of job "+r.JobUID, func(ctx context.Context, tx *session) error {
		kept = false
		taken, err := recordResult(ctx, tx, r)
		if taken || err != nil {
			return err
		}
		if err := s.saveImageVEX(ctx, tx, r); err != nil {
			return err
		}
		before, requested, err := findCatalog(ctx, tx, r)
		if err != nil {
			return err
		}
		if before != nil && before.CountsWith(r.Origin.Policy) && !requested {
			return s.saveAliasToCatalog(ctx, tx, r.Catalog)
		}
		if err := requireBudget(ctx, tx, r); err != nil {
			return err
		}
		kept = true
		if err := s.saveCatalog(ctx, tx, r.Catalog, r.Artifacts); err != nil || before == nil {
			return err
		}
		return matchAgain(ctx, tx, Subject{PlatformDigest: r.PlatformDigest, Scope: r.Scope, Engine: r.Engine})
	})
	return kept && err == nil, err
}

// recordResult records the upload's digest as the Job's result. taken is true if the same upload was stored before.
func recordResult(ctx context.Context, tx *session, r JobResult) (taken bool, err error) {
	var before string
	err = tx.QueryRowContext(ctx, `SELECT result FROM jobs WHERE uid = ? AND ended_at IS NULL`, r.JobUID).Scan(&before)
	switch {
	case err != nil:
		return false, orNotFound(err)
	case before == r.Digest:
		return true, nil
	case before != "":
		return false, ErrResultTaken
	}
	_, err = tx.ExecContext(ctx, `UPDATE jobs SET result = ? WHERE uid = ?`, r.Digest, r.JobUID)
	return false, err
}

// findCatalog returns the engine's catalog of the platform manifest in the scope, with its policy only; nil if there is none. requested means that
// the Job's Scanner has requested another one for the Job's image.
func findCatalog(ctx context.Context, q query, r JobResult) (found *Catalog, requested bool, err error) {
	found = &Catalog{}
	err = q.QueryRowContext(ctx, `SELECT c.sbom_policy, EXISTS (SELECT 1 FROM jobs j
			JOIN scanner_images si ON si.scanner = j.scanner AND si.digest = j.digest AND si.platform = j.platform
			WHERE j.uid = ? AND si.manifest_id = m.id AND si.engine = c.engine AND si.rescan_requested_at IS NOT NULL)
		FROM manifests m JOIN catalogues c ON c.manifest_id = m.id
		WHERE m.platform_digest = ? AND m.scope = ? AND c.engine = ?`, r.JobUID, r.PlatformDigest, r.Scope, r.Engine).Scan(&found.Origin.Policy, &requested)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	return found, requested, err
}

// saveAliasToCatalog stores an alias from the image key to a manifest that is already cataloged.
func (s *Store) saveAliasToCatalog(ctx context.Context, tx *session, c Catalog) error {
	now := s.now()
	manifest, err := ensureManifest(ctx, tx, c.PlatformDigest, c.Scope, now)
	if err != nil {
		return err
	}
	return saveAlias(ctx, tx, c.Key, c.Scope, manifest, now)
}

// requireBudget returns ErrOverBudget if the result does not fit into the namespace's budget. Artifacts that the manifest already
// has do not count, since the result replaces them.
func requireBudget(ctx context.Context, q query, r JobResult) error {
	if r.Budget == 0 {
		return nil
	}
	var replaced int64
	used, err := storedBytes(ctx, q, r.Namespace)
	if err != nil {
		return err
	}
	err = q.QueryRowContext(ctx, `SELECT coalesce(sum(a.size), 0) FROM manifests m JOIN artifacts a ON a.manifest_id = m.id
		WHERE m.platform_digest = ? AND m.scope = ? AND m.namespace = ?`, r.PlatformDigest, r.Scope, r.Namespace).Scan(&replaced)
	if err != nil {
		return err
	}
	if used-replaced+r.Size > r.Budget {
		return fmt.Errorf("%w: %d of %d bytes, and the result has %d", ErrOverBudget, used-replaced, r.Budget, r.Size)
	}
	return nil
}

func (r JobResult) check() error {
	if r.JobUID == "" || r.Digest == "" {
		return errors.New("store: save job result: the Job's UID or the upload's digest is empty")
	}
	return r.Catalog.check()
}

const (
	// storedIn counts the bytes of a manifest: of SBOMs, match inputs, findings, also those that are gone, and statements about the image.
	storedIn = `coalesce((SELECT sum(a.size) FROM artifacts a WHERE a.manifest_id = m.id), 0) +
		coalesce((SELECT sum(r.bytes + r.kept_bytes) FROM reports r WHERE r.manifest_id = m.id), 0) +
		coalesce((SELECT sum(v.bytes) FROM image_statements v WHERE v.manifest_id = m.id), 0)`
	// storedStatements counts the bytes of what other tools state about vulnerabilities. Their engines begin with the name of the namespace.
	storedStatements = `coalesce((SELECT sum(v.bytes) FROM vulnerabilities v WHERE v.engine >= ? AND v.engine < ?), 0)`
	selectStored     = `SELECT coalesce(sum(` + storedIn + `), 0) + ` + storedStatements + ` FROM manifests m WHERE m.namespace = ?`
	selectStatedBy   = `SELECT engine, sum(bytes) FROM vulnerabilities WHERE engine >= ? AND engine < ? GROUP BY engine`

	selectStoredByNamespace = `SELECT m.namespace, sum(` + storedIn + `) FROM manifests m INDEXED BY manifests_by_namespace GROUP BY m.namespace`
)

// StoredBytes is how many bytes are stored on behalf of a namespace: SBOMs, match inputs, and findings with their texts, also those that are gone.
func (s *Store) StoredBytes(ctx context.Context, namespace string) (bytes int64, err error) {
	err = s.read(ctx, "count bytes of namespace "+namespace, func(ctx context.Context, q query) error {
		bytes, err = storedBytes(ctx, q, namespace)
		return err
	})
	return bytes, err
}

func storedBytes(ctx context.Context, q query, namespace string) (bytes int64, err error) {
	from, to := prefixRange(externalEngine + namespace + "/")
	err = q.QueryRowContext(ctx, selectStored, from, to, namespace).Scan(&bytes)
	return bytes, err
}

// prefixRange returns the bounds of the texts that begin with a prefix: from is the first of them, and to the first text after them.
func prefixRange(prefix string) (from, to string) {
	last := len(prefix) - 1
	return prefix, prefix[:last] + string(prefix[last]+1)
}

// StoredByNamespace returns StoredBytes of all namespaces; "" has what counts against none.
func (s *Store) StoredByNamespace(ctx context.Context) (map[string]int64, error) {
	stored := map[string]int64{}
	err := s.read(ctx, "count bytes of namespaces", func(ctx context.Context, q query) error {
		err := eachRow(ctx, q, selectStoredByNamespace, nil, func(rows *sql.Rows) error {
			var namespace string
			var bytes int64
			err := rows.Scan(&namespace, &bytes)
			stored[namespace] = bytes
			return err
		})
		if err != nil {
			return err
		}
		from, to := prefixRange(externalEngine)
		return eachRow(ctx, q, selectStatedBy, []any{from, to}, func(rows *sql.Rows) error {
			var engine string
			var bytes int64
			err := rows.Scan(&engine, &bytes)
			namespace, _, _ := strings.Cut(strings.TrimPrefix(engine, externalEngine), "/")
			stored[namespace] += bytes
			return err
		})
	})
	return stored, err
}
