package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// link finds what was told by another id.
func (l *look) link(ctx context.Context, sightings []*sighting) error {
	for _, s := range sightings {
		if s.record != nil {
			continue
		}
		told, err := l.records(ctx)
		if err != nil {
			return err
		}
		for _, r := range told[s.Finding.Package.Name] {
			if areLinked(r.id, r.aliases, s.Finding.ID, s.Finding.Aliases) && (s.record == nil || r.before(s.record)) {
				s.record, s.linked = r, true
			}
		}
	}
	return nil
}

// before puts what is known best first: what was told before what an exception covers, and that before what was fixed.
func (r *record) before(other *record) bool {
	if r.excepted != other.excepted {
		return !r.excepted && r.fixedAt.IsZero()
	}
	return r.fixedAt.IsZero() && !other.fixedAt.IsZero()
}

// areLinked says whether two vulnerabilities are one: if the id of one is among the other's ids. That both have a third one in
// common says nothing, since an advisory covers several.
func areLinked(id string, aliases []string, otherID string, otherAliases []string) bool {
	among := func(id string, ids []string) bool {
		return slices.ContainsFunc(ids, func(other string) bool { return strings.EqualFold(id, other) })
	}
	return among(id, otherAliases) || among(otherID, aliases)
}

const (
	selectRecords = `SELECT canonical_id, package, severity, fixable, known_exploited, aliases, fixed_at, excepted FROM announcements a
		WHERE a.receiver_id = @receiver AND a.repository = @repository `

	// selectOrphans are those told that no running image has and that are not recorded as fixed. What has gone with one version of
	// the data only is as good as present.
	selectOrphans = selectRecords + `AND a.fixed_at IS NULL AND NOT EXISTS (
		SELECT 1 FROM vulnerabilities v CROSS JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM json_each(@all_reports))
		WHERE v.canonical_id = a.canonical_id AND f.package = a.package AND f.fixed_at IS NULL)`

	// selectNamed are findings in a package by some names.
	selectNamed = `SELECT DISTINCT v.canonical_id, f.aliases
		FROM json_each(@names) n CROSS JOIN vulnerability_names vn ON vn.name = n.value
		CROSS JOIN vulnerabilities v ON v.id = vn.vulnerability_id
		CROSS JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM json_each(@all_reports))
		WHERE f.package = @package AND f.fixed_at IS NULL ORDER BY v.canonical_id`
)

// records gives what the receiver was told of the repository, by package.
func (l *look) records(ctx context.Context) (map[string][]*record, error) {
	if l.told != nil {
		return l.told, nil
	}
	told := make(map[string][]*record)
	all, err := l.selectRecords(ctx, selectRecords)
	for i, r := range all {
		told[r.pkg] = append(told[r.pkg], &all[i])
	}
	l.told = told
	return told, err
}

func (l *look) selectRecords(ctx context.Context, statement string) ([]record, error) {
	rows, err := l.q.QueryContext(ctx, statement, l.args...)
	return collect(rows, err, func(rows *sql.Rows) (r record, err error) {
		err = rows.Scan(&r.id, &r.pkg, &r.severity, &r.fixable, &r.knownExploited, &r.aliases, &r.fixedAt, &r.excepted)
		return r, err
	})
}

// orphan is what was told and is not there any more.
type orphan struct {
	record
	// now are the ids and aliases by which it is there now, if it is by others.
	now []finding.Finding
}

// orphans lists what was told and is not there any more by its id.
func (l *look) orphans(ctx context.Context) ([]orphan, error) {
	gone, err := l.selectRecords(ctx, selectOrphans)
	if err != nil {
		return nil, err
	}
	orphans := make([]orphan, 0, len(gone))
	for _, r := range gone {
		names, err := json.Marshal(append([]string{r.id}, r.aliases...))
		if err != nil {
			return nil, err
		}
		o := orphan{record: r}
		rows, err := l.q.QueryContext(ctx, selectNamed, append(slices.Clone(l.args), sql.Named("names", string(names)), sql.Named("package", r.pkg))...)
		_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
			var f finding.Finding
			err := rows.Scan(&f.ID, (*list[string])(&f.Aliases))
			if areLinked(r.id, r.aliases, f.ID, f.Aliases) {
				o.now = append(o.now, f)
			}
			return struct{}{}, err
		})
		if err != nil {
			return nil, err
		}
		orphans = append(orphans, o)
	}
	return orphans, nil
}
