package store

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// These statements select the findings of some reports that exceptions may suppress. @ids and @packages bound them, unless @every
// is true. A vulnerability has the names of all its findings, so some of the candidates may not match an exception.
const (
	presentCandidates = wantedPresent + selectCandidates

	wantedPresent = `WITH wanted AS (
		SELECT f.id FROM texts(@ids) named
		ORDERED JOIN vulnerability_names n ON n.name = named.value
		ORDERED JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = n.vulnerability_id AND f.report_id IN (SELECT value FROM ids(@reports) i)
		WHERE f.gone_at IS NULL
		UNION
		SELECT f.id FROM ids(@reports) j
		ORDERED JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		WHERE f.gone_at IS NULL AND (@every = 1 OR f.package IN (SELECT value FROM texts(@packages) t))) `

	goneCandidates = `WITH wanted AS (
		SELECT f.id FROM ids(@reports) j ORDERED JOIN findings f ON f.report_id = j.value
		WHERE f.gone_at IS NOT NULL) ` + selectCandidates

	selectCandidates = `SELECT f.id, f.report_id, v.canonical_id, f.aliases, f.package, f.version, f.type
		FROM wanted ORDERED JOIN findings f ON f.id = wanted.id ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id`
)

// suppressedFindings returns the findings of some reports that exceptions suppress, by the findings' row IDs. candidates is
// presentCandidates or goneCandidates. images has the names of each report's image: a finding is suppressed if an exception covers it
// under each of them. Without exceptions it runs no query.
func suppressedFindings(
	ctx context.Context, q query, candidates string, set exception.Set, images map[int64][]exception.Image,
) (map[int64]*exception.Exception, error) {
	if set = set.About(manifestsNamed(images)); set.Key() == "" || len(images) == 0 {
		return nil, nil
	}
	ids, packages, every := set.SearchBounds()
	args := []any{
		sql.Named("ids", jsonArray(foldNames(ids))), sql.Named("packages", jsonArray(packages)), sql.Named("reports", idsOf(images)), sql.Named("every", every),
	}
	suppressed := make(map[int64]*exception.Exception)
	err := eachRow(ctx, q, candidates, args, func(rows *sql.Rows) error {
		var id, report int64
		var f finding.Finding
		err := rows.Scan(&id, &report, &f.ID, (*list[string])(&f.Aliases), &f.Package.Name, &f.Package.Version, &f.Package.Type)
		if err != nil {
			return err
		}
		if e := set.SuppressedUnderAllNames(images[report], f); e != nil {
			suppressed[id] = e
		}
		return nil
	})
	return suppressed, err
}

// manifestsNamed returns the manifests of some images.
func manifestsNamed(images map[int64][]exception.Image) map[int64]bool {
	manifests := make(map[int64]bool)
	for _, names := range images {
		for _, img := range names {
			manifests[img.Manifest] = true
		}
	}
	return manifests
}

// withManifest returns the names of an image with the row ID of its manifest.
func withManifest(names []exception.Image, manifest int64) []exception.Image {
	known := slices.Clone(names)
	for i := range known {
		known[i].Manifest = manifest
	}
	return known
}

// imageNamed returns an image with the reference that a workload has for it (Workload.Reference, by image.Reference.String) and
// the digest that the node reports.
func imageNamed(reference, digest string) exception.Image {
	ref := image.Reference{Repository: reference}
	if repository, named, found := strings.Cut(reference, "@"); found {
		ref = image.Reference{Repository: repository, Digest: named}
	} else if colon := strings.LastIndexByte(reference, ':'); colon > strings.LastIndexByte(reference, '/') {
		ref = image.Reference{Repository: reference[:colon], Tag: reference[colon+1:]}
	}
	return exception.Image{Reference: ref, Digest: digest}
}
