package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Location is where the results of an image are.
type Location struct {
	// Subject's platform digest is empty until the image is cataloged.
	Subject
	// Report is nil if there is none.
	Report *ReportState
	// SBOM, CycloneDX and SPDX permanently identify the documents that OpenArtifact returns for this subject now: ArtifactSBOM, ArtifactCycloneDX
	// and ArtifactSPDX. Each is 0 if there is no such document.
	SBOM, CycloneDX, SPDX int64
	// Names are the image's names in the workloads that run it now, each once; empty if no workload does.
	Names []exception.Image
	// Manifest is exception.Image.Manifest of the image; 0 until it is cataloged.
	Manifest int64
}

// ReportState is a report without its subject and its findings.
type ReportState struct {
	// ID and Revision together permanently identify one state of the report's findings.
	ID, Revision int64
	DataVersion  string
	MatchedAt    time.Time
	Distro       string
	// Current means that the engine has no other data version. Then Tool is the engine and its version, if known.
	Current bool
	Tool    string
}

const selectLocation = `
	SELECT si.scope, si.engine, COALESCE(m.platform_digest, ''), COALESCE(a.id, 0), COALESCE(c.id, 0), COALESCE(s.id, 0), COALESCE(m.id, 0),
		r.id, r.revision, r.data_version, r.matched_at, r.distro, d.version, d.tool
	FROM scanner_images si
	LEFT JOIN manifests m ON m.id = si.manifest_id
	LEFT JOIN artifacts a ON a.manifest_id = m.id AND a.name = ?
	LEFT JOIN artifacts c ON c.manifest_id = m.id AND c.name = ?
	LEFT JOIN artifacts s ON s.manifest_id = m.id AND s.name = ?
	LEFT JOIN reports r ON r.manifest_id = m.id AND r.engine = si.engine
	LEFT JOIN data_versions d ON d.engine = si.engine
	WHERE si.scanner = ? AND si.digest = ? AND si.platform = ? AND si.namespace = ?`

const selectReferences = `
	SELECT DISTINCT w.reference FROM scanner_images si JOIN workloads w ON w.image_id = si.id
	WHERE si.scanner = ? AND si.digest = ? AND si.platform = ? AND si.namespace = ? ORDER BY w.reference`

// Locate returns where the results of an image are that a Scanner in a namespace has, in the scope and by the engine that the
// Scanner has it with now. It returns ErrNotFound if the Scanner does not have the image.
func (s *Store) Locate(ctx context.Context, scanner, namespace string, key image.Key) (l Location, err error) {
	err = s.read(ctx, "locate "+key.String(), func(ctx context.Context, q query) error {
		var row reportRow
		err := q.QueryRowContext(ctx, selectLocation,
			ArtifactSBOM, ArtifactCycloneDX, ArtifactSPDX, scanner, key.Digest, platform(key.Platform), namespace).
			Scan(append([]any{&l.Scope, &l.Engine, &l.PlatformDigest, &l.SBOM, &l.CycloneDX, &l.SPDX, &l.Manifest}, row.columns()...)...)
		if err != nil {
			return orNotFound(err)
		}
		if row.id.Valid {
			state := row.state()
			l.Report = &state
		}
		image := []any{scanner, key.Digest, platform(key.Platform), namespace}
		l.Names, err = collect(ctx, q, selectReferences, image, func(rows *sql.Rows) (exception.Image, error) {
			var reference string
			err := rows.Scan(&reference)
			named := imageNamed(reference, key.Digest)
			named.Manifest = l.Manifest
			return named, err
		})
		return err
	})
	if err != nil {
		return Location{}, err
	}
	return l, nil
}

// reportRow is a report, which may be missing, and its engine's current data version, which may be unknown.
type reportRow struct {
	id, revision        sql.NullInt64
	dataVersion, distro sql.NullString
	matchedAt           millis
	version, tool       sql.NullString
}

func (r *reportRow) columns() []any {
	return []any{&r.id, &r.revision, &r.dataVersion, &r.matchedAt, &r.distro, &r.version, &r.tool}
}

func (r *reportRow) state() ReportState {
	state := ReportState{
		ID: r.id.Int64, Revision: r.revision.Int64, DataVersion: r.dataVersion.String,
		MatchedAt: r.matchedAt.Time, Distro: r.distro.String,
		Current: !r.version.Valid || r.version.String == r.dataVersion.String,
	}
	if state.Current {
		state.Tool = r.tool.String
	}
	return state
}
