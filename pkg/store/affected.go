package store

import (
	"context"
	"database/sql"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Affected is a workload that runs an image with a vulnerability.
type Affected struct {
	// Scanner is the UID of the one that has the image.
	Scanner string
	Subject
	Workload Workload
	Severity finding.Severity
	Package  finding.Package
}

const selectAffected = `
	SELECT si.scanner, m.platform_digest, m.scope, r.engine, w.namespace, w.kind, w.name, w.container, w.repository, w.reference,
		f.severity, f.package, f.version, f.type, f.purl
	FROM vulnerabilities v
	CROSS JOIN findings f ON f.vulnerability_id = v.id AND f.gone_at IS NULL
	CROSS JOIN reports r ON r.id = f.report_id
	CROSS JOIN manifests m ON m.id = r.manifest_id
	CROSS JOIN scanner_images si ON si.manifest_id = m.id AND si.engine = r.engine
	CROSS JOIN workloads w ON w.image_id = si.id
	WHERE v.canonical_id = ?
	ORDER BY w.namespace, w.kind, w.name, w.container, si.scanner, f.package, f.version, f.id`

// Affected answers "which workloads have CVE-X?", for a canonical id, ordered by workload.
func (s *SQLite) Affected(ctx context.Context, canonicalID string) (affected []Affected, err error) {
	err = s.read(ctx, "list workloads with "+canonicalID, func(ctx context.Context, q query) error {
		rows, err := q.QueryContext(ctx, selectAffected, canonicalID)
		affected, err = collect(rows, err, func(rows *sql.Rows) (a Affected, err error) {
			w, p := &a.Workload, &a.Package
			err = rows.Scan(&a.Scanner, &a.PlatformDigest, &a.Scope, &a.Engine,
				&w.Namespace, &w.Kind, &w.Name, &w.Container, &w.Repository, &w.Reference,
				&a.Severity, &p.Name, &p.Version, &p.Type, &p.PURL)
			return a, err
		})
		return err
	})
	return affected, err
}
