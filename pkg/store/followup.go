package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// maxRounds bounds how often what is recorded is looked at again after it was brought up to date: a record that was carried over
// may be covered by an exception, for example.
const maxRounds = 4

// FollowUp implements Announcements. As long as there is nothing to record no writer is waited for, and then none waits for longer
// than it takes to look at those repositories in which there is.
func (s *SQLite) FollowUp(ctx context.Context, scanner, receiver string, f NewsFilter, extent Extent) error {
	const action = "follow up what was said"
	if extent != FollowAll {
		f.Settled = nil // nothing is fixed
	}
	steps := extent.steps()
	teller, err := s.newTeller(ctx, "follow-up "+string(extent), scanner, receiver, f)
	if err != nil {
		return err
	}
	var edits []edit
	err = s.read(ctx, action, func(ctx context.Context, q query) error {
		edits, err = teller.edits(ctx, q, s.now(), steps)
		return err
	})
	if err != nil || len(edits) == 0 {
		return err
	}
	defer s.quiet.told(scanner, receiver)
	return s.write(ctx, action, func(ctx context.Context, tx *sql.Tx) error {
		id, err := ensureReceiver(ctx, tx, scanner, receiver)
		if err != nil {
			return err
		}
		if full, err := recordsFull(ctx, tx, scanner, s.recordBudget); full || err != nil {
			return err
		}
		// What was suspect before is so now: nothing but a report changes that, which would have to wait.
		if teller.suspect, err = s.isSuspect(ctx, scanner, f.Engine); err != nil {
			return err
		}
		// All writers wait, so only that is looked at again where there is something to record.
		teller.memory, teller.only = nil, make(map[string]bool)
		for _, e := range edits {
			teller.only[e.repository] = true
		}
		for range maxRounds {
			edits, err := teller.edits(ctx, tx, s.now(), steps)
			if err != nil || len(edits) == 0 {
				return err
			}
			err = bulk(ctx, len(edits), func(ctx context.Context, i int) error {
				_, err := tx.ExecContext(ctx, edits[i].statement, append(edits[i].args, sql.Named("receiver", id))...) //nolint:gosec // the statements are this file's own
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// step gives the edits that bring some records of a repository up to date.
type step func(l *look, ctx context.Context, now time.Time) ([]edit, error)

func (e Extent) steps() []step {
	switch e {
	case FollowKnown:
		return []step{(*look).followGone, (*look).followExceptions}
	case FollowExceptions:
		return []step{(*look).followExceptions}
	}
	return []step{(*look).followChanges, (*look).followGone, (*look).followExceptions, (*look).fillUp}
}

// edit is a change of what is recorded of a receiver.
type edit struct {
	repository, statement string
	args                  []any
}

// The edits of one record, but for saveRecord.
const (
	thisRecord   = ` WHERE receiver_id = @receiver AND repository = @repository AND canonical_id = @id AND package = @package`
	markFixed    = `UPDATE announcements SET fixed_at = @at, excepted = 0` + thisRecord
	markExcepted = `UPDATE announcements SET fixed_at = NULL, excepted = 1` + thisRecord
	setFixable   = `UPDATE announcements SET fixable = 1` + thisRecord
	setSeverity  = `UPDATE announcements SET severity = @severity, known_exploited = @exploited` + thisRecord
	setFacts     = `UPDATE announcements SET severity = @severity, known_exploited = @exploited, fixable = @fixable, aliases = @aliases` + thisRecord
	anyRecord    = `SELECT EXISTS (SELECT 1 FROM announcements WHERE receiver_id = @receiver AND repository = @repository)`
	deleteRecord = `DELETE FROM announcements` + thisRecord
	// copyRecord lets what was told by one id have been told by another.
	copyRecord = `
		INSERT INTO announcements (receiver_id, repository, canonical_id, package, digest_id, announced_at,
			severity, fixable, known_exploited, aliases, fixed_at, excepted)
		SELECT receiver_id, repository, @to, package, digest_id, announced_at,
			severity, fixable, known_exploited, @aliases, fixed_at, excepted
		FROM announcements` + thisRecord + ` ON CONFLICT DO NOTHING`
	// saveRecord records what is told now. Of one that was told before it keeps which message told it first, and when.
	saveRecord = `
		INSERT INTO announcements (receiver_id, repository, canonical_id, package, digest_id, announced_at,
			severity, fixable, known_exploited, aliases, fixed_at)
		VALUES (@receiver, @repository, @id, @package, @digest, @at, @severity, @fixable, @exploited, @aliases, @fixed_at)` + replaceRecord
	replaceRecord = ` ON CONFLICT (receiver_id, repository, canonical_id, package) DO UPDATE SET severity = excluded.severity, fixable = excluded.fixable,
			known_exploited = excluded.known_exploited, aliases = excluded.aliases, fixed_at = excluded.fixed_at, excepted = 0`
)

// edits are those of all repositories.
func (t *teller) edits(ctx context.Context, q query, now time.Time, steps []step) (edits []edit, err error) {
	err = t.each(ctx, q, func(ctx context.Context, l *look) (quiet bool, err error) {
		before := len(edits)
		for _, step := range steps {
			more, err := step(l, ctx, now)
			if err != nil {
				return false, err
			}
			edits = append(edits, more...)
		}
		return len(edits) == before, nil
	})
	return edits, err
}

// edit is one of a record by its id and package.
func (l *look) edit(statement, id, pkg string, more ...any) edit {
	return edit{l.name, statement, append(more, sql.Named("repository", l.name), sql.Named("id", id), sql.Named("package", pkg))}
}

// followChanges carries records over to other ids of the same vulnerability, and records changes that the receiver does not want.
func (l *look) followChanges(ctx context.Context, now time.Time) (edits []edit, err error) {
	if l.wants[ChangeNew] {
		// Where nothing was told everything is new.
		var told bool
		if err := l.q.QueryRowContext(ctx, anyRecord, l.args...).Scan(&told); err != nil || !told {
			return nil, err
		}
	}
	differing, err := l.differing(ctx)
	var left []edit
	for _, s := range differing {
		if s.linked {
			edits = append(edits, l.edit(copyRecord, s.record.id, s.record.pkg, sql.Named("to", s.Finding.ID), namesOf(s.Finding)))
			if !s.record.fixedAt.IsZero() {
				// By the id before it would be taken as back once more.
				left = append(left, l.edit(deleteRecord, s.record.id, s.record.pkg))
			}
		}
		for _, change := range s.changes(l.filter) {
			if !l.wanted(s, change) {
				edits = append(edits, l.asIfTold(s, change, now))
			}
		}
	}
	return append(edits, left...), err
}

// asIfTold records a change that is not told.
func (l *look) asIfTold(s *sighting, change Change, now time.Time) edit {
	f := s.Finding
	switch {
	case change == ChangeFixAvailable:
		return l.edit(setFixable, f.ID, f.Package.Name)
	case change == ChangeEscalated && s.record != nil:
		return l.edit(setSeverity, f.ID, f.Package.Name, facts(f)...)
	}
	return l.edit(saveRecord, f.ID, f.Package.Name, append(facts(f), sql.Named("digest", ""), sql.Named("at", millis{now}), sql.Named("fixed_at", nil))...)
}

// facts are what is recorded of a finding.
func facts(f finding.Finding) []any {
	return []any{sql.Named("severity", int64(f.Severity)), sql.Named("fixable", f.Fixable()), sql.Named("exploited", f.KnownExploited), namesOf(f)}
}

func namesOf(f finding.Finding) any { return sql.Named("aliases", list[string](f.Aliases)) }

// followGone carries records over whose finding is there by other ids only, and records what is fixed if the receiver does not
// want to hear of it, or an exception covered it.
func (l *look) followGone(ctx context.Context, now time.Time) (edits []edit, err error) {
	orphans, err := l.orphans(ctx)
	for _, o := range orphans {
		for _, f := range o.now {
			edits = append(edits, l.edit(copyRecord, o.id, o.pkg, sql.Named("to", f.ID), namesOf(f)))
		}
		switch {
		case len(o.now) > 0:
			edits = append(edits, l.edit(deleteRecord, o.id, o.pkg))
		case l.mayBeFixed() && (o.excepted || !l.wants[ChangeFixed]):
			edits = append(edits, l.edit(markFixed, o.id, o.pkg, sql.Named("at", millis{now})))
		}
	}
	return edits, err
}

// selectCovered are those told of which exceptions cover all that is present.
const selectCovered = `
	SELECT DISTINCT v.canonical_id, f.package FROM json_each(@covered) c
	CROSS JOIN findings f ON f.id = c.value
	CROSS JOIN vulnerabilities v ON v.id = f.vulnerability_id
	CROSS JOIN announcements a ON a.receiver_id = @receiver AND a.repository = @repository AND a.canonical_id = v.canonical_id AND a.package = f.package
	WHERE a.excepted = 0 AND NOT EXISTS (
		SELECT 1 FROM vulnerabilities ov CROSS JOIN findings o INDEXED BY findings_by_vulnerability
			ON o.vulnerability_id = ov.id AND o.report_id IN (SELECT value FROM json_each(@reports))
		WHERE ov.canonical_id = v.canonical_id AND o.package = f.package AND o.gone_at IS NULL
			AND o.id NOT IN (SELECT value FROM json_each(@covered)))`

// followExceptions marks what exceptions cover.
func (l *look) followExceptions(ctx context.Context, _ time.Time) ([]edit, error) {
	if !l.excepts {
		return nil, nil
	}
	rows, err := l.q.QueryContext(ctx, selectCovered, l.args...)
	return collect(rows, err, func(rows *sql.Rows) (edit, error) {
		var id, pkg string
		err := rows.Scan(&id, &pkg)
		return l.edit(markExcepted, id, pkg), err
	})
}

// fillUp records what is present of what was told before that was recorded.
func (l *look) fillUp(ctx context.Context, _ time.Time) (edits []edit, err error) {
	unknown, err := l.selectRecords(ctx, selectRecords+`AND a.severity < 0 AND a.fixed_at IS NULL`)
	if err != nil {
		return nil, err
	}
	keys := make([][2]string, len(unknown))
	for i, r := range unknown {
		keys[i] = [2]string{r.id, r.pkg}
	}
	present, err := l.present(ctx, keys, true)
	for _, s := range present {
		edits = append(edits, l.edit(setFacts, s.Finding.ID, s.Finding.Package.Name, facts(s.Finding)...))
	}
	return edits, err
}
