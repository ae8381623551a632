package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
)

// maxCachedStatementBytes bounds the statements that are kept in memory, decoded, by the bytes of their stored form. Decoded they take about twice as many.
const maxCachedStatementBytes = 16 << 20

// ImageVEX is what the OpenVEX documents that are attached to an image amount to.
type ImageVEX struct {
	// Policy identifies whose signatures were accepted; empty if no documents were wanted.
	Policy string
	// Statements are those that suppress findings. Manifest, Images, Namespaces and UID are not stored.
	Statements []exception.Exception
	// Problem is why documents or statements do not count, in one line; empty if all do.
	Problem string
	// Budget is how many bytes of statements about images may count against the namespace of the result, since all of them are in memory at times; 0
	// for no limit. If the image's do not fit, none of them is stored, and the stored problem says so.
	Budget int64
}

// VEXSummary is an ImageVEX without its statements.
type VEXSummary struct {
	Statements int
	Problem    string
}

// storedStatement is the stored form of a statement.
type storedStatement struct {
	Document        string          `json:"document"`
	Signer          string          `json:"signer"`
	Status          string          `json:"status"`
	Justification   string          `json:"justification,omitempty"`
	Reason          string          `json:"reason,omitempty"`
	Vulnerabilities []string        `json:"vulnerabilities"`
	Packages        []storedPackage `json:"packages,omitempty"`
	Time            int64           `json:"time,omitempty"` // Unix milliseconds
}

type storedPackage struct {
	Name       string `json:"name"`
	Version    string `json:"version,omitempty"`
	Type       string `json:"type"`
	Qualifiers string `json:"qualifiers,omitempty"`
}

// saveImageVEX replaces what is stored about an image by the policy of a result.
func (s *Store) saveImageVEX(ctx context.Context, tx *session, r JobResult) error {
	if r.VEX.Policy == "" {
		return nil
	}
	manifest, err := ensureManifest(ctx, tx, r.PlatformDigest, r.Scope, s.now())
	if err != nil {
		return err
	}
	stored := make([]storedStatement, 0, len(r.VEX.Statements))
	for _, e := range r.VEX.Statements {
		statement := storedStatement{
			Document: e.Name, Signer: e.Signer, Status: e.Status, Justification: e.Justification, Reason: e.Reason, Vulnerabilities: e.Vulnerabilities,
		}
		if !e.Created.IsZero() {
			statement.Time = e.Created.UnixMilli()
		}
		for _, p := range e.Packages {
			statement.Packages = append(statement.Packages, storedPackage(p))
		}
		stored = append(stored, statement)
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	problem := r.VEX.Problem
	switch used, err := vexBytes(ctx, tx, r.Namespace, manifest); {
	case err != nil:
		return err
	case r.VEX.Budget > 0 && len(stored) > 0 && used+int64(len(text)) > r.VEX.Budget:
		problem = fmt.Sprintf("no statement counts: together with those about other images of the namespace %s they take more than %d KiB; delete attached documents, or "+
			"those for other images, and scan the image again", r.Namespace, r.VEX.Budget>>10)
		stored, text = nil, []byte("[]")
	}
	sum := sha256.Sum256(text)
	_, err = tx.ExecContext(ctx, `
		INSERT INTO image_statements (manifest_id, policy, statements, amount, hash, bytes, problem) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (manifest_id, policy) DO UPDATE SET statements = excluded.statements, amount = excluded.amount, hash = excluded.hash,
			bytes = excluded.bytes, problem = excluded.problem`,
		manifest, r.VEX.Policy, string(text), len(stored), hex.EncodeToString(sum[:]), len(text), problem)
	if err != nil {
		return err
	}
	return markImagesOf(ctx, tx, manifest)
}

// vexBytes returns how many bytes of statements about other images than one count against a namespace.
func vexBytes(ctx context.Context, q query, namespace string, except int64) (bytes int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT coalesce(sum(v.bytes), 0) FROM manifests m JOIN image_statements v ON v.manifest_id = m.id
		WHERE m.namespace = ? AND m.id <> ?`, namespace, except).Scan(&bytes)
	return bytes, err
}

const (
	selectStatementsIn = `SELECT v.manifest_id, v.policy, v.hash, si.namespace FROM texts(@namespaces) n
		ORDERED JOIN scanner_images si INDEXED BY scanner_images_by_namespace ON si.namespace = n.value
		ORDERED JOIN image_statements v ON v.manifest_id = si.manifest_id
		WHERE v.amount > 0`
	selectAllStatements = `SELECT v.manifest_id, v.policy, v.hash, si.namespace FROM image_statements v
		ORDERED JOIN scanner_images si ON si.manifest_id = v.manifest_id
		WHERE v.amount > 0`
	selectStatements = `SELECT statements FROM image_statements WHERE manifest_id = ? AND policy = ?`
)

// manifestStatements identifies the statements of an image, and where scanners have the image.
type manifestStatements struct {
	manifest     int64
	policy, hash string
}

// ImageStatements returns the statements about images that scanners have in some namespaces (nil: all). Each applies only to that image, in
// those namespaces, as an image of the hosts that hosts returns for the policy by which it was accepted. Statements of a policy without hosts
// are left out.
func (s *Store) ImageStatements(ctx context.Context, namespaces []string, hosts func(policy string) []string) (all []exception.Exception, err error) {
	statement, args := selectStatementsIn, []any{sql.Named("namespaces", jsonArray(namespaces))}
	if namespaces == nil {
		statement, args = selectAllStatements, nil
	}
	err = s.read(ctx, "read statements about images", func(ctx context.Context, q query) error {
		all = nil
		usedIn := make(map[manifestStatements]map[string]bool)
		err := eachRow(ctx, q, statement, args, func(rows *sql.Rows) error {
			var of manifestStatements
			var namespace string
			err := rows.Scan(&of.manifest, &of.policy, &of.hash, &namespace)
			if usedIn[of] == nil {
				usedIn[of] = make(map[string]bool)
			}
			usedIn[of][namespace] = true
			return err
		})
		if err != nil {
			return err
		}
		for of, in := range usedIn {
			own, err := s.statementsOf(ctx, q, of, in, hosts(of.policy))
			if err != nil {
				return err
			}
			all = append(all, own...)
		}
		return nil
	})
	return all, err
}

// statementsOf returns the statements about one image.
func (s *Store) statementsOf(ctx context.Context, q query, of manifestStatements, namespaces map[string]bool, hosts []string) ([]exception.Exception, error) {
	if len(hosts) == 0 {
		return nil, nil
	}
	stored, known := s.statements.get(of.hash)
	if !known {
		var text string
		if err := q.QueryRowContext(ctx, selectStatements, of.manifest, of.policy).Scan(&text); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(text), &stored); err != nil {
			return nil, fmt.Errorf("statements about manifest %d: %w", of.manifest, err)
		}
		s.statements.put(of.hash, stored, len(text))
	}
	images := make([]string, 0, len(hosts))
	for _, host := range hosts {
		images = append(images, host+"/*")
	}
	all := make([]exception.Exception, 0, len(stored))
	for i, statement := range stored {
		e := exception.Exception{
			UID: fmt.Sprintf("image %d %s %d", of.manifest, of.policy, i), Manifest: of.manifest, Namespaces: namespaces, Images: images,
			Name: statement.Document, Signer: statement.Signer, Status: statement.Status, Justification: statement.Justification, Reason: statement.Reason,
			Vulnerabilities: statement.Vulnerabilities,
		}
		if statement.Time != 0 {
			e.Created = time.UnixMilli(statement.Time).UTC()
		}
		for _, p := range statement.Packages {
			e.Packages = append(e.Packages, exception.Package(p))
		}
		all = append(all, e)
	}
	return all, nil
}

// VEXSummary returns how many statements count about an image by a policy, and why others do not. It returns ErrNotFound if no documents were read by
// that policy.
func (s *Store) VEXSummary(ctx context.Context, subject Subject, policy string) (summary VEXSummary, err error) {
	err = s.queryRow(ctx, "look up statements about "+subject.PlatformDigest, `SELECT v.amount, v.problem FROM manifests m
		JOIN image_statements v ON v.manifest_id = m.id
		WHERE m.platform_digest = ? AND m.scope = ? AND v.policy = ?`, subject.PlatformDigest, subject.Scope, policy).Scan(&summary.Statements, &summary.Problem)
	return summary, err
}
