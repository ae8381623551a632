package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// linkAliases finds the records of findings that were announced by another ID.
func (l *repositoryEvaluation) linkAliases(ctx context.Context, sightings []*findingState) error {
	if announced, err := l.receiverHasRecords(ctx); err != nil || !announced {
		return err
	}
	notAnnounced := make(map[string][]*findingState)
	for _, s := range sightings {
		if s.record == nil {
			notAnnounced[s.Finding.Package.Name] = append(notAnnounced[s.Finding.Package.Name], s)
		}
	}
	if len(notAnnounced) == 0 {
		return nil
	}
	packages, err := json.Marshal(slices.Collect(maps.Keys(notAnnounced)))
	if err != nil {
		return err
	}
	rows, err := l.q.QueryContext(ctx, selectRecordsIn, l.with(sql.Named("packages", string(packages)))...)
	return eachRow(rows, err, func(rows *sql.Rows) error {
		r, err := scanRecord(rows)
		for _, s := range notAnnounced[r.pkg] {
			if areLinked(r.id, r.aliases, s.Finding.ID, s.Finding.Aliases) && (s.record == nil || r.before(s.record)) {
				s.record, s.linked = &r, true
			}
		}
		return err
	})
}

// before orders records by how well the receiver knows the finding: announced ones come first, then suppressed ones, then fixed
// ones.
func (r *record) before(other *record) bool {
	if r.Suppressed != other.Suppressed {
		return !r.Suppressed && !r.Fixed
	}
	return !r.Fixed && other.Fixed
}

// areLinked reports whether two IDs are of the same vulnerability: if one of them is among the other's aliases. A common alias
// proves nothing, since one advisory covers several vulnerabilities.
func areLinked(id string, aliases []string, otherID string, otherAliases []string) bool {
	among := func(id string, ids []string) bool {
		return slices.ContainsFunc(ids, func(other string) bool { return strings.EqualFold(id, other) })
	}
	return among(id, otherAliases) || among(otherID, aliases)
}

const (
	selectRecords = `SELECT a.canonical_id, a.package, a.aliases, ` + announcedColumns + ` FROM announcements a
		WHERE a.receiver_id = @receiver AND a.repository = @repository `

	// selectRecordsIn are those of some packages.
	selectRecordsIn = selectRecords + `AND a.package IN (SELECT value FROM json_each(@packages))`

	// afterRecord are those after one, in the order of the primary key.
	afterRecord = ` AND (a.canonical_id, a.package) > (@after_id, @after_package) ORDER BY a.canonical_id, a.package`

	// selectOrphans are those told that no running image has and that are not recorded as fixed. What has gone with one version of
	// the data only is as good as present.
	selectOrphans = selectRecords + `AND a.fixed_at IS NULL AND NOT EXISTS (
		SELECT 1 FROM vulnerabilities v CROSS JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM json_each(@all_reports))
		WHERE v.canonical_id = a.canonical_id AND f.package = a.package AND f.fixed_at IS NULL)`

	// selectNamed selects findings in a package by any of several IDs.
	selectNamed = `SELECT DISTINCT v.canonical_id, f.aliases
		FROM json_each(@names) n CROSS JOIN vulnerability_names vn ON vn.name = n.value
		CROSS JOIN vulnerabilities v ON v.id = vn.vulnerability_id
		CROSS JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM json_each(@all_reports))
		WHERE f.package = @package AND f.fixed_at IS NULL ORDER BY v.canonical_id`
)

// receiverHasRecords reports whether the receiver has a record of the repository.
func (l *repositoryEvaluation) receiverHasRecords(ctx context.Context) (bool, error) {
	if l.hasRecords == nil {
		var announced bool
		if err := l.q.QueryRowContext(ctx, anyRecord, l.args...).Scan(&announced); err != nil {
			return false, err
		}
		l.hasRecords = &announced
	}
	return *l.hasRecords, nil
}

func scanRecord(rows *sql.Rows) (r record, err error) {
	err = rows.Scan(append([]any{&r.id, &r.pkg, &r.aliases}, announcedTargets(&r.Announced)...)...)
	return r, err
}

// eachRecordPage gives what a statement selects in pages.
func (l *repositoryEvaluation) eachRecordPage(ctx context.Context, statement string, each func([]record) error) error {
	for after, full := (record{}), true; full; {
		var page []record
		text := 0
		rows, err := l.q.QueryContext(ctx, statement+afterRecord,
			l.with(sql.Named("after_id", after.id), sql.Named("after_package", after.pkg))...)
		err = eachRow(rows, err, func(rows *sql.Rows) error {
			r, err := scanRecord(rows)
			page = append(page, r)
			if text += len(r.id) + len(r.pkg) + textOf(r.aliases); err == nil && (len(page) >= maxPageKeys || text >= maxPageText) {
				return errFull
			}
			return err
		})
		if full = errors.Is(err, errFull); err != nil && !full || len(page) == 0 {
			return err
		}
		if err := each(page); err != nil {
			return err
		}
		after = page[len(page)-1]
	}
	return nil
}

func textOf(texts []string) (n int) {
	for _, text := range texts {
		n += len(text)
	}
	return n
}

// orphan is a record whose finding is not present by the record's ID.
type orphan struct {
	record
	// now has the IDs and aliases of the same finding by other IDs, if it is present by others.
	now []finding.Finding
}

// eachOrphan gives what was announced and is not there any more by its id.
func (l *repositoryEvaluation) eachOrphan(ctx context.Context, each func(orphan) error) error {
	return l.eachRecordPage(ctx, selectOrphans, func(gone []record) error {
		for _, r := range gone {
			o, err := l.orphan(ctx, r)
			if err != nil {
				return err
			}
			if err := each(o); err != nil {
				return err
			}
		}
		return nil
	})
}

// orphan finds out by which ids a thing is there now.
func (l *repositoryEvaluation) orphan(ctx context.Context, r record) (orphan, error) {
	o := orphan{record: r}
	names, err := json.Marshal(append([]string{r.id}, r.aliases...))
	if err != nil {
		return o, err
	}
	rows, err := l.q.QueryContext(ctx, selectNamed, l.with(sql.Named("names", string(names)), sql.Named("package", r.pkg))...)
	err = eachRow(rows, err, func(rows *sql.Rows) error {
		var f finding.Finding
		err := rows.Scan(&f.ID, (*list[string])(&f.Aliases))
		if areLinked(r.id, r.aliases, f.ID, f.Aliases) {
			o.now = append(o.now, f)
		}
		return err
	})
	return o, err
}
