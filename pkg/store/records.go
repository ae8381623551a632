package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// linkAliases finds the records of findings that were announced by another ID.
func (l *repositoryEvaluation) linkAliases(ctx context.Context, pairs []*pair) error {
	if announced, err := l.receiverHasRecords(ctx); err != nil || !announced {
		return err
	}
	notAnnounced := make(map[string][]*pair)
	for _, s := range pairs {
		if s.record == nil {
			notAnnounced[s.Finding.Package.Name] = append(notAnnounced[s.Finding.Package.Name], s)
		}
	}
	if len(notAnnounced) == 0 {
		return nil
	}
	args := l.with(sql.Named("packages", jsonArray(slices.Collect(maps.Keys(notAnnounced)))))
	return eachRow(ctx, l.q, selectRecordsIn, args, func(rows *sql.Rows) error {
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
	selectRecords = `SELECT a.canonical_id, a.package, a.aliases, a.sources, a.package_types, ` + announcedColumns + ` FROM announcements a
		WHERE a.receiver_id = @receiver AND a.repository = @repository `

	// selectRecordsIn are those of some packages.
	selectRecordsIn = selectRecords + `AND key_of(a.package) IN (SELECT key_of(t.value) FROM texts(@packages) t)`

	// afterRecord are those after one, in the order of the primary key.
	afterRecord = ` AND (a.canonical_id, a.package) > (@after_id, @after_package) ORDER BY a.canonical_id, a.package`

	// selectAbsent selects the records that are not fixed and whose finding no running image has. A finding that one version of the data
	// lacks is present until it is fixed. A finding whose image was released is not fixed.
	selectAbsent = selectRecords + `AND a.fixed_at IS NULL AND a.released_at IS NULL AND unjoined(NOT EXISTS (
		SELECT 1 FROM vulnerabilities v NESTED JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM ids(@all_reports) i)
		WHERE v.canonical_id = a.canonical_id AND f.package = a.package AND f.fixed_at IS NULL))`

	// selectNamed selects findings in a package by any of several IDs.
	selectNamed = `SELECT DISTINCT v.canonical_id, f.aliases
		FROM texts(@names) n NESTED JOIN vulnerability_names vn ON vn.name = n.value
		NESTED JOIN vulnerabilities v ON v.id = vn.vulnerability_id
		NESTED JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM ids(@all_reports) i)
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
	err = rows.Scan(append([]any{&r.id, &r.pkg, &r.aliases, &r.sources, &r.packageTypes}, announcedTargets(&r.Announced)...)...)
	return r, err
}

// eachRecordPage passes on the records that a statement selects, in pages.
func (l *repositoryEvaluation) eachRecordPage(ctx context.Context, statement string, each func([]record) error) error {
	for after, full := (record{}), true; full; {
		var page []record
		text := 0
		args := l.with(sql.Named("after_id", after.id), sql.Named("after_package", after.pkg))
		err := eachRow(ctx, l.q, statement+afterRecord, args, func(rows *sql.Rows) error {
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

// absentRecord is a record whose finding is not present by the record's ID.
type absentRecord struct {
	record
	// now has the IDs and aliases by which the same vulnerability is present; empty if it is absent by all of them.
	now []finding.Finding
}

// eachAbsent passes on the records whose finding is not present by the record's ID.
func (l *repositoryEvaluation) eachAbsent(ctx context.Context, each func(absentRecord) error) error {
	return l.eachRecordPage(ctx, selectAbsent, func(gone []record) error {
		for _, r := range gone {
			o, err := l.absent(ctx, r)
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

// absent finds the other IDs by which a vulnerability is present now.
func (l *repositoryEvaluation) absent(ctx context.Context, r record) (absentRecord, error) {
	o := absentRecord{record: r}
	args := l.with(sql.Named("names", jsonArray(foldNames(append([]string{r.id}, r.aliases...)))), sql.Named("package", r.pkg))
	err := eachRow(ctx, l.q, selectNamed, args, func(rows *sql.Rows) error {
		var f finding.Finding
		err := rows.Scan(&f.ID, (*list[string])(&f.Aliases))
		if areLinked(r.id, r.aliases, f.ID, f.Aliases) {
			o.now = append(o.now, f)
		}
		return err
	})
	return o, err
}
