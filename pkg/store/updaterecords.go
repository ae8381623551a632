package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// UpdateExtent is which part of a receiver's announcement records UpdateAnnouncements updates.
type UpdateExtent string

const (
	// UpdateAll updates all of them. It is the zero value.
	UpdateAll UpdateExtent = ""
	// UpdateKnown is used while a summary of all that is present is still to be sent. Announcements are carried over to the other IDs
	// of their vulnerabilities, and suppressed findings are marked, but nothing is recorded as announced or fixed without a message.
	UpdateKnown UpdateExtent = "Known"
	// UpdateSuppressed is used while a message is being delivered, since its announcements will be recorded by the IDs that it has.
	// Only suppressed findings are marked, and who knows a finding: if their exception ends before the delivery does, they are announced again.
	UpdateSuppressed UpdateExtent = "Exceptions"
)

// maxRounds bounds how often the records are updated in one call. One update can require another: for example, a record that was
// carried over may be of a finding that an exception suppresses.
const maxRounds = 4

// maxEdits is how many edits are held at a time and written together.
const maxEdits = 10_000

// maxBatches bounds the batches of edits of one call. The next call does the others.
const maxBatches = 100

// UpdateAnnouncements updates a receiver's announcement records to what is present, as far as that needs no message. It carries an
// announcement over when its vulnerability has got another ID, marks announced findings that an exception suppresses, and records
// changes that the receiver is not notified of. A second call changes nothing, unless there were more than a million edits. As long
// as there is nothing to record no writer is waited for, and then none waits for longer than it takes to look at those repositories
// in which there is.
func (s *Store) UpdateAnnouncements(ctx context.Context, scanner, receiver string, f ChangeFilter, extent UpdateExtent) error {
	if extent != UpdateAll {
		f.AbsentIsFixedIn = nil
	}
	from := ""
	for range maxBatches {
		next, err := s.updateFrom(ctx, scanner, receiver, f, extent, from)
		if err != nil || next == "" {
			return err
		}
		from = next
	}
	return nil
}

// updateFrom updates the records of the repositories from one on, in alphabetical order, as far as the edits are held at a time. It returns
// the repository to go on with; empty if nothing is left.
func (s *Store) updateFrom(ctx context.Context, scanner, receiver string, f ChangeFilter, extent UpdateExtent, from string) (next string, err error) {
	const action = "update announcement records"
	detector, err := s.newChangeDetector(ctx, "update "+string(extent), scanner, receiver, f)
	if err != nil {
		return "", err
	}
	detector.from, detector.readsNamespaces = from, extent == UpdateAll // only then updateReleased marks findings as fixed
	steps := extent.steps()
	var found *editList
	err = s.read(ctx, action, func(ctx context.Context, q query) error {
		if detector.noRoom, err = recordsFull(ctx, q, scanner, s.recordBudget); err != nil {
			return err
		}
		found, err = detector.edits(ctx, q, s.now(), steps)
		return err
	})
	if err != nil || len(found.edits) == 0 {
		return "", err
	}
	defer s.unchanged.invalidate(scanner, receiver)
	err = s.write(ctx, action, func(ctx context.Context, tx *session) error {
		id, err := ensureReceiver(ctx, tx, scanner, receiver)
		if err != nil {
			return err
		}
		if detector.noRoom, err = recordsFull(ctx, tx, scanner, s.recordBudget); err != nil {
			return err
		}
		// Only a report can change whether the data has an anomaly, and reports wait for this transaction.
		if detector.hasAnomaly, err = s.hasAnomaly(ctx, scanner, f.Engine); err != nil {
			return err
		}
		// All writers wait, so only the repositories with something to record are evaluated again.
		detector.cache, detector.only = nil, make(map[string]bool)
		for _, e := range found.edits {
			detector.only[e.repository] = true
		}
		next, err = detector.applyEdits(ctx, tx, id, s.now(), steps, found.next())
		return err
	})
	return next, err
}

// applyEdits finds and makes the edits, in rounds. It returns the repository to go on with: next, or an earlier one that has more edits.
func (t *changeDetector) applyEdits(ctx context.Context, tx *session, receiver int64, now time.Time, steps []step, next string) (string, error) {
	for range maxRounds {
		found, err := t.edits(ctx, tx, now, steps)
		if err != nil || len(found.edits) == 0 {
			return next, err
		}
		if first := found.next(); first != "" && (next == "" || first < next) {
			next = first
		}
		err = bulk(ctx, len(found.edits), func(ctx context.Context, i int) error {
			e := found.edits[i]
			_, err := tx.ExecContext(ctx, e.statement, append(e.args, sql.Named("receiver", receiver))...)
			return err
		})
		if err != nil {
			return next, err
		}
	}
	return next, nil
}

// step adds the edits that bring some records of a repository up to date. Its error is errFull when the list is full.
type step func(l *repositoryEvaluation, ctx context.Context, now time.Time, into *editList) error

func (e UpdateExtent) steps() []step {
	switch e {
	case UpdateKnown:
		return []step{(*repositoryEvaluation).updateReleased, (*repositoryEvaluation).updateGone, (*repositoryEvaluation).updateSuppressed, (*repositoryEvaluation).updateSources}
	case UpdateSuppressed:
		return []step{(*repositoryEvaluation).updateSuppressed, (*repositoryEvaluation).updateSources}
	}
	return []step{
		(*repositoryEvaluation).updateReleased, (*repositoryEvaluation).updateChanges, (*repositoryEvaluation).updateGone,
		(*repositoryEvaluation).updateSuppressed, (*repositoryEvaluation).fillMissingFacts, (*repositoryEvaluation).updateSources,
	}
}

// edit is one change of a receiver's announcement records.
type edit struct {
	repository, statement string
	args                  []any
	text                  int
}

// editList holds edits, up to a bound.
type editList struct {
	edits []edit
	text  int
	// full is true if there may be more.
	full bool
}

// next is the repository whose edits may be incomplete, in which the list got full; empty if it did not.
func (e *editList) next() string {
	if !e.full {
		return ""
	}
	return e.edits[len(e.edits)-1].repository
}

// add adds edits. The error is errFull when the list is full with them.
func (e *editList) add(edits ...edit) error {
	e.edits = append(e.edits, edits...)
	for _, one := range edits {
		e.text += one.text
	}
	if len(e.edits) < maxEdits && e.text < maxHeldText {
		return nil
	}
	e.full = true
	return errFull
}

// The statements that change one record, except saveRecord.
const (
	thisRecord     = ` WHERE receiver_id = @receiver AND repository = @repository AND canonical_id = @id AND package = @package`
	markFixed      = `UPDATE announcements SET fixed_at = @at, excepted = 0, released_at = NULL, released_from = ''` + thisRecord
	markSuppressed = `UPDATE announcements SET fixed_at = NULL, excepted = 1` + thisRecord
	markReturned   = `UPDATE announcements SET released_at = NULL, released_from = ''` + thisRecord
	setFixable     = `UPDATE announcements SET fixable = 1` + thisRecord
	setSeverity    = `UPDATE announcements SET severity = @severity, known_exploited = @exploited` + thisRecord
	setFacts       = `UPDATE announcements SET severity = @severity, known_exploited = @exploited, fixable = @fixable, aliases = @aliases` + thisRecord
	setKnownBy     = `UPDATE announcements SET sources = @sources, package_types = @types` + thisRecord
	anyRecord      = `SELECT EXISTS (SELECT 1 FROM announcements WHERE receiver_id = @receiver AND repository = @repository)`
	deleteRecord   = `DELETE FROM announcements` + thisRecord
	// copyRecord copies an announcement to another ID of its vulnerability.
	copyRecord = `
		INSERT INTO announcements (receiver_id, repository, canonical_id, package, digest_id, announced_at,
			severity, fixable, known_exploited, aliases, fixed_at, excepted, sources, package_types)
		SELECT receiver_id, repository, @to, package, digest_id, announced_at,
			severity, fixable, known_exploited, @aliases, fixed_at, excepted, sources, package_types
		FROM (SELECT * FROM announcements` + thisRecord + `) AS copied WHERE true ON CONFLICT DO NOTHING`
	// saveRecord records an announcement. An existing record keeps the message and time of its first announcement. If that had no message, or
	// an exception has suppressed the finding since, the finding is announced by this message.
	saveRecord  = insertRecord + `VALUES (@receiver, @repository, @id, @package, @digest, @at, @severity, @fixable, @exploited, @aliases, @fixed_at)` + replaceMessage
	saveRecords = insertRecord + `SELECT @receiver, r.repository, r.id, r.package, @digest, @at, r.severity, r.fixable, r.exploited, r.aliases, r.fixed_at
		FROM records(@rows, repository text, id text, package text, severity bigint, fixable bigint, exploited bigint, aliases text, fixed_at bigint) r
		WHERE true` + replaceMessage
	insertRecord = `
		INSERT INTO announcements (receiver_id, repository, canonical_id, package, digest_id, announced_at,
			severity, fixable, known_exploited, aliases, fixed_at) `
	replaceMessage = onKnownRecord + `digest_id = CASE WHEN announcements.digest_id = '' OR announcements.excepted = 1 AND excluded.digest_id <> ''
			THEN excluded.digest_id ELSE announcements.digest_id END, ` + replaceValues
	replaceRecord = onKnownRecord + replaceValues
	onKnownRecord = ` ON CONFLICT (receiver_id, repository, canonical_id, key_part(package)) DO UPDATE SET `
	// replaceValues keeps who knows a finding, unless it is back after a fix. MySQL reads fixed_at as it is assigned so far, so sources comes first.
	replaceValues = `sources = CASE WHEN announcements.fixed_at IS NULL THEN announcements.sources END, severity = excluded.severity, fixable = excluded.fixable,
			known_exploited = excluded.known_exploited, aliases = excluded.aliases, fixed_at = excluded.fixed_at, excepted = 0, released_at = NULL, released_from = ''`
)

// edits returns the edits of all repositories, or as many as the list holds.
func (t *changeDetector) edits(ctx context.Context, q query, now time.Time, steps []step) (*editList, error) {
	into := &editList{}
	err := t.each(ctx, q, func(ctx context.Context, l *repositoryEvaluation) (quiet bool, err error) {
		before := len(into.edits)
		for _, step := range steps {
			if err := step(l, ctx, now, into); err != nil {
				return false, err
			}
		}
		return len(into.edits) == before, nil
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return into, err
}

// edit returns an edit of the record with this ID and package.
func (l *repositoryEvaluation) edit(statement, id, pkg string, more ...any) edit {
	return edit{l.name, statement, append(more, sql.Named("repository", l.name), sql.Named("id", id), sql.Named("package", pkg)), len(id) + len(pkg)}
}

// updateChanges carries records over to other ids of the same vulnerability, and records changes that the receiver does not want.
func (l *repositoryEvaluation) updateChanges(ctx context.Context, now time.Time, into *editList) error {
	if l.policy.Wants(diff.ChangeNew) {
		// Without records, everything is new.
		if announced, err := l.receiverHasRecords(ctx); err != nil || !announced {
			return err
		}
	}
	var left []edit
	err := l.eachPair(ctx, nil, func(pairs []*pair) error {
		for _, s := range pairs {
			if l.noRoom && s.linked {
				continue // a further record takes room
			}
			if err := into.add(l.editsOf(s, now)...); err != nil {
				return err
			}
			if s.linked && s.record.Fixed {
				// By the earlier ID it would count as back once more.
				left = append(left, l.edit(deleteRecord, s.record.id, s.record.pkg))
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFull) {
		return err
	}
	return errors.Join(err, into.add(left...))
}

// editsOf returns the edits for one present vulnerability.
func (l *repositoryEvaluation) editsOf(s *pair, now time.Time) (edits []edit) {
	if s.linked {
		edits = append(edits, l.edit(copyRecord, s.record.id, s.record.pkg, sql.Named("to", s.Finding.ID), aliasesArg(s.Finding)))
	}
	for _, change := range l.decide(s).Record {
		edits = append(edits, l.recordWithoutMessage(s, change, now))
	}
	return edits
}

// recordWithoutMessage returns the edit that records a change without a message.
func (l *repositoryEvaluation) recordWithoutMessage(s *pair, change diff.Change, now time.Time) edit {
	f := s.Finding
	switch {
	case change == diff.ChangeFixAvailable:
		return l.edit(setFixable, f.ID, f.Package.Name)
	case change == diff.ChangeEscalated && s.record != nil:
		return l.edit(setSeverity, f.ID, f.Package.Name, factArgs(f)...)
	}
	return l.edit(saveRecord, f.ID, f.Package.Name, append(factArgs(f), sql.Named("digest", ""), sql.Named("at", millis{now}), sql.Named("fixed_at", nil))...)
}

// factArgs returns the parameters for what is recorded of a finding.
func factArgs(f finding.Finding) []any {
	return []any{sql.Named("severity", int64(f.Severity)), sql.Named("fixable", f.Fixable()), sql.Named("exploited", f.KnownExploited), aliasesArg(f)}
}

func aliasesArg(f finding.Finding) any { return sql.Named("aliases", list[string](f.Aliases)) }

// updateGone carries records over whose vulnerability is present by other IDs only, and records what is fixed without a message. Without room
// nothing is carried over, and what is fixed is recorded in any case: to sweep the records is worth more than a message.
func (l *repositoryEvaluation) updateGone(ctx context.Context, now time.Time, into *editList) error {
	return l.eachAbsent(ctx, func(o absentRecord) error {
		if len(o.now) == 0 {
			if len(diff.Finding(nil, &o.Announced, l.policyOf(o.record)).Record) == 0 {
				return nil
			}
			return into.add(l.edit(markFixed, o.id, o.pkg, sql.Named("at", millis{now})))
		}
		if l.noRoom {
			return nil
		}
		var edits []edit
		for _, f := range o.now {
			edits = append(edits, l.edit(copyRecord, o.id, o.pkg, sql.Named("to", f.ID), aliasesArg(f)))
		}
		return into.add(append(edits, l.edit(deleteRecord, o.id, o.pkg))...)
	})
}

// selectReturned selects the records of released findings that an image has again, or has besides the released one.
const selectReturned = `
	SELECT a.canonical_id, a.package FROM announcements a INDEXED BY announcements_released
	WHERE a.receiver_id = @receiver AND a.repository = @repository AND a.released_at IS NOT NULL AND unjoined(EXISTS (
		SELECT 1 FROM vulnerabilities v NESTED JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM ids(@all_reports) i)
		WHERE v.canonical_id = a.canonical_id AND f.package = a.package AND f.fixed_at IS NULL))`

// selectStillReleased selects the records of released findings whose namespace is among some. It comes after selectReturned.
const selectStillReleased = `
	SELECT a.canonical_id, a.package, a.sources, a.package_types FROM announcements a INDEXED BY announcements_released
	WHERE a.receiver_id = @receiver AND a.repository = @repository AND a.released_at IS NOT NULL
		AND a.released_from IN (SELECT value FROM texts(@namespaces) t)`

// updateReleased marks released findings that are present as no longer released. From then on they can be fixed. Those that are missing although
// their namespace is back were fixed meanwhile: that is recorded without a message.
func (l *repositoryEvaluation) updateReleased(ctx context.Context, now time.Time, into *editList) error {
	returned := make(map[[2]string]bool)
	err := eachRow(ctx, l.q, selectReturned, l.args, func(rows *sql.Rows) error {
		var id, pkg string
		if err := rows.Scan(&id, &pkg); err != nil {
			return err
		}
		returned[[2]string{id, pkg}] = true
		return into.add(l.edit(markReturned, id, pkg))
	})
	if err != nil || !l.policy.AbsentIsFixed {
		return err
	}
	args := l.with(sql.Named("namespaces", jsonArray(slices.Sorted(maps.Keys(l.namespaces())))))
	return eachRow(ctx, l.q, selectStillReleased, args, func(rows *sql.Rows) error {
		var r record
		if err := rows.Scan(&r.id, &r.pkg, &r.sources, &r.packageTypes); err != nil || returned[[2]string{r.id, r.pkg}] || !l.policyOf(r).AbsentIsFixed {
			return err
		}
		return into.add(l.edit(markFixed, r.id, r.pkg, sql.Named("at", millis{now})))
	})
}

// selectSuppressed selects the announcements all of whose present findings are suppressed.
const selectSuppressed = `
	SELECT DISTINCT v.canonical_id, f.package FROM ids(@suppressed) c
	NESTED JOIN findings f ON f.id = c.value
	NESTED JOIN vulnerabilities v ON v.id = f.vulnerability_id
	NESTED JOIN announcements a ON a.receiver_id = @receiver AND a.repository = @repository AND a.canonical_id = v.canonical_id AND a.package = f.package
	WHERE a.excepted = 0 AND unjoined(NOT EXISTS (
		SELECT 1 FROM vulnerabilities ov NESTED JOIN findings o INDEXED BY findings_by_vulnerability
			ON o.vulnerability_id = ov.id AND o.report_id IN (SELECT value FROM ids(@reports) i)
		WHERE ov.canonical_id = v.canonical_id AND o.package = f.package AND o.gone_at IS NULL
			AND o.id NOT IN (SELECT value FROM ids(@suppressed) i)))`

// updateSuppressed marks the records of vulnerabilities that exceptions suppress.
func (l *repositoryEvaluation) updateSuppressed(ctx context.Context, _ time.Time, into *editList) error {
	if len(l.suppressed.whole) == 0 {
		return nil
	}
	return eachRow(ctx, l.q, selectSuppressed, l.args, func(rows *sql.Rows) error {
		var id, pkg string
		if err := rows.Scan(&id, &pkg); err != nil {
			return err
		}
		return into.add(l.edit(markSuppressed, id, pkg))
	})
}

// fillMissingFacts completes the records of older versions of the store, which had no facts, with those that are present.
func (l *repositoryEvaluation) fillMissingFacts(ctx context.Context, _ time.Time, into *editList) error {
	return l.eachRecordPage(ctx, selectRecords+`AND a.severity < 0 AND a.fixed_at IS NULL`, func(unknown []record) error {
		keys := make([][2]string, len(unknown))
		for i, r := range unknown {
			keys[i] = [2]string{r.id, r.pkg}
		}
		present, err := l.presentOf(ctx, keys, true)
		if err != nil {
			return err
		}
		for _, s := range present {
			if err := into.add(l.edit(setFacts, s.Finding.ID, s.Finding.Package.Name, factArgs(s.Finding)...)); err != nil {
				return err
			}
		}
		return nil
	})
}

// selectKnownTo selects the engines of the reports that have the findings of the records, with the types of the packages.
const selectKnownTo = `
	SELECT a.canonical_id, a.package, a.sources, a.package_types, r.engine, f.type FROM announcements a
	NESTED JOIN vulnerabilities v ON v.canonical_id = a.canonical_id
	NESTED JOIN findings f INDEXED BY findings_by_vulnerability
		ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM ids(@all_reports) i)
	NESTED JOIN reports r ON r.id = f.report_id
	WHERE a.receiver_id = @receiver AND a.repository = @repository AND a.fixed_at IS NULL AND f.package = a.package AND f.fixed_at IS NULL
		AND (@every = 1 OR a.sources <> '' OR a.package_types <> '')
	ORDER BY a.canonical_id, a.package`

// updateSources records which announced sources know the findings that are present and, if a gap leaves open some types of packages, the types that have
// them. Without announced sources and gaps, it only reads the records that have some.
func (l *repositoryEvaluation) updateSources(ctx context.Context, _ time.Time, into *editList) error {
	var last record
	var sources, types []string
	hasGap := l.gaps[l.name] != evidence.NoGap
	flush := func() error {
		if last.id == "" {
			return nil
		}
		known := recordedNames{evidence.KnownBy(last.sources.names, sources, l.silent[l.name]), true}
		if len(l.announced) == 0 && !last.sources.isRecorded {
			known = last.sources
		}
		of := recordedNames{types, hasGap}
		if known.equals(last.sources) && of.equals(last.packageTypes) {
			return nil
		}
		return into.add(l.edit(setKnownBy, last.id, last.pkg, sql.Named("sources", known), sql.Named("types", of)))
	}
	err := eachRow(ctx, l.q, selectKnownTo, l.with(sql.Named("every", len(l.announced) > 0 || hasGap)), func(rows *sql.Rows) error {
		var r record
		var engine, kind string
		if err := rows.Scan(&r.id, &r.pkg, &r.sources, &r.packageTypes, &engine, &kind); err != nil {
			return err
		}
		if r.id != last.id || r.pkg != last.pkg {
			if err := flush(); err != nil {
				return err
			}
			last, sources, types = r, nil, nil
		}
		if hasGap {
			types = insertSorted(types, kind)
		}
		if source, isExternal := SourceOf(engine); isExternal {
			sources = insertSorted(sources, source)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}
