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
	presentCandidates = `WITH wanted AS (
		SELECT f.id FROM texts(@ids) named
		ORDERED JOIN vulnerability_names n ON n.name = named.value
		ORDERED JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = n.vulnerability_id AND f.report_id IN (SELECT value FROM ids(@reports) i)
		WHERE f.gone_at IS NULL
		UNION
		SELECT f.id FROM ids(@reports) j
		ORDERED JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		WHERE f.gone_at IS NULL AND (@every = 1 OR f.package IN (SELECT value FROM texts(@packages) t))) ` + selectCandidates

	goneCandidates = `WITH wanted AS (
		SELECT f.id FROM ids(@reports) j ORDERED JOIN findings f ON f.report_id = j.value
		WHERE f.gone_at IS NOT NULL) ` + selectCandidates

	selectCandidates = `SELECT f.id, f.report_id, v.canonical_id, f.aliases, f.package, f.version, f.type
		FROM wanted ORDERED JOIN findings f ON f.id = wanted.id ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id`
)

// suppressions are the findings of some reports that exceptions suppress, by the findings' row IDs.
type suppressions struct {
	// whole are suppressed under each name of their image, with the exception of the first name.
	whole map[int64]*exception.Exception
	// byName has the exceptions of each name, nil for none, in the order of the names. It has no findings that one exception suppresses under each name.
	byName map[int64][]*exception.Exception
}

// involved returns the exceptions that together suppress a finding under each name of its image.
func (s suppressions) involved(finding int64) []*exception.Exception {
	if by := s.byName[finding]; by != nil {
		return exception.Distinct(by)
	}
	return []*exception.Exception{s.whole[finding]}
}

// manyNames is the number of names in the bounds of a search from which on it is compared with the number of findings.
const manyNames = 32

// suppressedFindings returns the findings of some reports that exceptions suppress. candidates is presentCandidates or goneCandidates. images has the
// names of each report's image. Without exceptions it runs no query. It reads no more than all findings of the reports, however many exceptions there
// are.
func suppressedFindings(
	ctx context.Context, q query, candidates string, set exception.Set, images map[int64][]exception.Image,
) (found suppressions, err error) {
	if set = set.About(manifestsNamed(images)); set.Key() == "" || len(images) == 0 {
		return found, nil
	}
	ids, packages, every := set.SearchBounds()
	reports := sql.Named("reports", idsOf(images))
	if n := len(ids) + len(packages); n > manyNames {
		present := 0
		if err := q.QueryRowContext(ctx, countMost, reports).Scan(&present); err != nil {
			return found, err
		}
		if every = every || n > present/2; every {
			ids, packages = nil, nil
		}
	}
	args := []any{sql.Named("ids", jsonArray(foldNames(ids))), sql.Named("packages", jsonArray(packages)), reports, sql.Named("every", every)}
	found = suppressions{whole: make(map[int64]*exception.Exception), byName: make(map[int64][]*exception.Exception)}
	comparisons := make(map[int64]*exception.Comparison)
	err = eachRow(ctx, q, candidates, args, func(rows *sql.Rows) error {
		var id, report int64
		var f finding.Finding
		err := rows.Scan(&id, &report, &f.ID, (*list[string])(&f.Aliases), &f.Package.Name, &f.Package.Version, &f.Package.Type)
		if err != nil {
			return err
		}
		if comparisons[report] == nil {
			comparisons[report] = set.Compare(images[report])
		}
		found.add(id, comparisons[report], f)
		return nil
	})
	return found, err
}

func (s suppressions) add(id int64, names *exception.Comparison, f finding.Finding) {
	by, all := names.ByName(f)
	if all {
		s.whole[id] = by[0]
	}
	if by != nil && (!all || len(exception.Distinct(by)) > 1) {
		s.byName[id] = by
	}
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
