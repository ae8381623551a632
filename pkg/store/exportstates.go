package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

const (
	upsertExportState = `INSERT INTO export_states (scanner, name, item, state) VALUES (@scanner, @name, @item, @state)
		ON CONFLICT (scanner, name, item) DO UPDATE SET state = excluded.state`
	deleteExportState  = `DELETE FROM export_states WHERE scanner = @scanner AND name = @name AND item = @item`
	areOtherExports    = `scanner = ? AND name NOT IN (SELECT value FROM texts(?) t)`
	deleteOtherExports = `DELETE FROM export_states WHERE ` + areOtherExports
	countOtherExports  = `SELECT count(*) FROM export_states WHERE ` + areOtherExports
)

// ExportState returns the state that was saved last for a Scanner's export as a whole, nil if there is none. Only the caller interprets it.
func (s *Store) ExportState(ctx context.Context, scanner, name string) (state []byte, err error) {
	err = s.queryRow(ctx, "look up export state", `SELECT state FROM export_states WHERE scanner = ? AND name = ? AND item = ''`, scanner, name).Scan(&state)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return state, err
}

// ExportStates returns all states of an export by item. The item "" is the export as a whole.
func (s *Store) ExportStates(ctx context.Context, scanner, name string) (states map[string][]byte, err error) {
	const statement = `SELECT item, state FROM export_states WHERE scanner = ? AND name = ?`
	err = s.read(ctx, "read export states", func(ctx context.Context, q query) error {
		states = map[string][]byte{}
		return eachRow(ctx, q, statement, []any{scanner, name}, func(rows *sql.Rows) error {
			var item string
			var state []byte
			err := rows.Scan(&item, &state)
			states[item] = state
			return err
		})
	})
	return states, err
}

// SaveExportStates saves states of an export by item, in one transaction. An item, of at most 64 bytes, is deleted if its state is nil.
func (s *Store) SaveExportStates(ctx context.Context, scanner, name string, states map[string][]byte) error {
	if scanner == "" {
		return errors.New("the scanner's UID is empty")
	}
	return s.write(ctx, "save export states", func(ctx context.Context, tx *session) error {
		for item, state := range states {
			args := []any{sql.Named("scanner", scanner), sql.Named("name", name), sql.Named("item", item)}
			statement := deleteExportState
			if state != nil {
				statement, args = upsertExportState, append(args, sql.Named("state", state))
			}
			if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// RetainExports deletes the states of a Scanner's exports that are not listed. It starts a write transaction only if there is one to delete.
func (s *Store) RetainExports(ctx context.Context, scanner string, names []string) error {
	var others int
	kept := jsonArray(names)
	if err := s.queryRow(ctx, "count export states", countOtherExports, scanner, kept).Scan(&others); err != nil || others == 0 {
		return err
	}
	return s.write(ctx, "delete export states", func(ctx context.Context, tx *session) error {
		_, err := tx.ExecContext(ctx, deleteOtherExports, scanner, kept)
		return err
	})
}

// WorkloadVersion identifies the reports on a workload's images by one Scanner.
type WorkloadVersion struct {
	Namespace, Kind, Name string
	// Version is the same as long as the workload runs the same images under the same references and none of them has a new report. A new report
	// may have the same findings.
	Version string
	// Images are those that it runs, each once.
	Images []image.Key
	// Pending is the number of its containers and images without a result.
	Pending int
	// SBOMs is the same as long as WorkloadSBOMs returns the same documents. WithoutSBOM is the number of its containers and images that have a
	// result and no ArtifactCycloneDX.
	SBOMs       string
	WithoutSBOM int
	// Ended means that no pod of the workload runs an image now, and that the use of one has not been forgotten yet.
	Ended bool
}

const isAskedWorkload = ` AND (@name = '' OR w.name = @name AND w.kind = @kind AND w.namespace = @namespace)`

const selectWorkloadVersions = `
	SELECT w.namespace, w.kind, w.name, w.container, w.reference, si.digest, si.platform, coalesce(r.id, 0), coalesce(r.revision, 0), 0,
		coalesce(a.id, 0)
	FROM scanner_images si
	NESTED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace
	NESTED LEFT JOIN reports r ON r.manifest_id = si.manifest_id AND r.engine = si.engine
	NESTED LEFT JOIN artifacts a ON a.manifest_id = si.manifest_id AND a.name = @artifact
	WHERE si.scanner = @scanner` + isAskedWorkload + `
	UNION ALL
	SELECT w.namespace, w.kind, w.name, w.container, w.reference, si.digest, si.platform, r.id, r.revision, 0, -1
	FROM announced_sources s
	ORDERED JOIN scanner_images si ON si.scanner = s.scanner
	ORDERED JOIN external_reports e ON e.namespace = si.namespace AND e.digest = si.digest AND e.source = s.source AND e.platform IN ('', si.platform)
	ORDERED JOIN reports r ON r.id = e.report_id
	ORDERED JOIN workloads w ON w.image_id = si.id AND w.namespace = si.namespace
	WHERE s.scanner = @scanner` + isAskedWorkload + `
	UNION ALL
	SELECT w.namespace, w.kind, w.name, w.container, w.reference, si.digest, si.platform, 0, 0, 1, -1
	FROM scanner_images si
	NESTED JOIN left_workloads w ON w.image_id = si.id AND w.namespace = si.namespace
	WHERE si.scanner = @scanner` + isAskedWorkload + `
	ORDER BY 1, 2, 3, 10, 4, 5, 6, 7, 8`

const selectWorkloadSBOMs = `
	SELECT w.container, si.scope, coalesce(m.platform_digest, ''), coalesce(a.id, 0)
	FROM workloads w
	NESTED JOIN scanner_images si ON si.id = w.image_id AND si.namespace = w.namespace
	NESTED LEFT JOIN manifests m ON m.id = si.manifest_id
	NESTED LEFT JOIN artifacts a ON a.manifest_id = si.manifest_id AND a.name = @artifact
	WHERE w.name = @name AND w.kind = @kind AND w.namespace = @namespace AND si.scanner = @scanner
	ORDER BY w.container, w.reference, si.digest, si.platform`

// WorkloadVersions lists the workloads that run images of a Scanner, or ran one that it still has, ordered by namespace, kind and name.
func (s *Store) WorkloadVersions(ctx context.Context, scanner string) ([]WorkloadVersion, error) {
	return s.workloadVersions(ctx, scanner, WorkloadVersion{})
}

// WorkloadVersion returns the version of one workload. It returns ErrNotFound if the Scanner has no image that it runs or ran.
func (s *Store) WorkloadVersion(ctx context.Context, scanner, namespace, kind, name string) (WorkloadVersion, error) {
	all, err := s.workloadVersions(ctx, scanner, WorkloadVersion{Namespace: namespace, Kind: kind, Name: name})
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return WorkloadVersion{}, err
	}
	return all[0], nil
}

// WorkloadSBOM is an SBOM as CycloneDX of an image that a container of a workload runs.
type WorkloadSBOM struct {
	Container string
	// PlatformDigest and Scope are those of OpenArtifact.
	PlatformDigest string
	Scope          Scope
	// ID permanently identifies the document; 0 if there is none.
	ID int64
}

// WorkloadSBOMs returns the SBOMs of the images of a Scanner that a workload runs now, ordered by container, reference, digest and platform.
func (s *Store) WorkloadSBOMs(ctx context.Context, scanner, namespace, kind, name string) ([]WorkloadSBOM, error) {
	args := []any{
		sql.Named("scanner", scanner), sql.Named("namespace", namespace), sql.Named("kind", kind), sql.Named("name", name),
		sql.Named("artifact", ArtifactCycloneDX),
	}
	return queryRows(ctx, s, "list SBOMs of a workload", selectWorkloadSBOMs, args, func(rows *sql.Rows) (w WorkloadSBOM, err error) {
		err = rows.Scan(&w.Container, &w.Scope, &w.PlatformDigest, &w.ID)
		return w, err
	})
}

// workloadVersions lists all workloads, or the one with the name of asked.
func (s *Store) workloadVersions(ctx context.Context, scanner string, asked WorkloadVersion) (all []WorkloadVersion, err error) {
	args := []any{
		sql.Named("scanner", scanner), sql.Named("namespace", asked.Namespace), sql.Named("kind", asked.Kind), sql.Named("name", asked.Name),
		sql.Named("artifact", ArtifactCycloneDX),
	}
	err = s.read(ctx, "list versions of workloads", func(ctx context.Context, q query) error {
		all = nil
		sum, sboms := sha256.New(), sha256.New()
		end := func() {
			if len(all) > 0 {
				all[len(all)-1].Version, all[len(all)-1].SBOMs = hex.EncodeToString(sum.Sum(nil)), hex.EncodeToString(sboms.Sum(nil))
			}
		}
		err := eachRow(ctx, q, selectWorkloadVersions, args, func(rows *sql.Rows) error {
			var w WorkloadVersion
			var container, reference string
			var key image.Key
			var report, revision, sbom int64 // sbom is -1 in the row of an external report
			err := rows.Scan(&w.Namespace, &w.Kind, &w.Name, &container, &reference, &key.Digest, (*platform)(&key.Platform), &report, &revision, &w.Ended, &sbom)
			if err != nil {
				return err
			}
			last := len(all) - 1
			if last < 0 || all[last].Namespace != w.Namespace || all[last].Kind != w.Kind || all[last].Name != w.Name {
				end()
				all, last = append(all, w), last+1
				sum.Reset()
				sboms.Reset()
			}
			if w.Ended { // the rows of images that run come before
				return nil
			}
			fmt.Fprintf(sum, "%q %q %s %d@%d\n", container, reference, key, report, revision)
			if sbom >= 0 {
				fmt.Fprintf(sboms, "%q %s %d\n", container, key, sbom)
			}
			if !slices.Contains(all[last].Images, key) {
				all[last].Images = append(all[last].Images, key)
			}
			switch {
			case report == 0:
				all[last].Pending++
			case sbom == 0:
				all[last].WithoutSBOM++
			}
			return nil
		})
		end()
		return err
	})
	return all, err
}
