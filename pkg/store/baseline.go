package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/action"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Present is a summary of everything that a Scanner has in use, from one consistent read.
type Present struct {
	// Counts are those of ScannerTotals for the filter's engine and route, with recently used images included. Suppressed is the number
	// of suppressed findings.
	Counts     finding.Counts
	Suppressed int
	// NotAnnounced is how many findings pass the filter and are not announced to the receiver. Repositories are those that have any, sorted.
	NotAnnounced int
	Repositories []string
	// Updates are the most urgent updates that end such findings. MoreUpdates is the number of further ones. NoFix are the worst of such
	// findings that have no fix, by finding.Worse and then repository. Both are limited.
	Updates     []PresentUpdate
	MoreUpdates int
	NoFix       []FindingChange
	// Namespaces are the counts of each namespace with findings, and the number of its repositories, if images run in several namespaces. A
	// finding of a repository that runs in several namespaces counts in each of them.
	Namespaces map[string]PresentInNamespace
	// SnapshotID identifies the snapshot of all that is present, announced or not. It is opaque: while it is equal, so is what is
	// present.
	SnapshotID string
}

// PresentInNamespace is the part of Present that one namespace has.
type PresentInNamespace struct {
	Counts       finding.Counts
	Repositories int
}

// PresentUpdate is an update and the findings that it ends. Truncated means that it may end more: its repository has more findings than are
// read.
type PresentUpdate struct {
	action.Update[FindingChange]
	Truncated bool
}

// maxGrouped is how many findings of a repository, the worst, are read to group them by update. With more, the counts of updates are lower
// bounds.
const maxGrouped = 1000

// FilteredSnapshot is everything that passed a filter in a snapshot, as Present returned it.
type FilteredSnapshot struct {
	Filter     ChangeFilter
	SnapshotID string
}

// AbsentFindings are the findings of some repositories that were announced up to a time, and that no image of the repository has by the
// filter's engine, whatever else the filter says. A repository that has no result by that engine has none.
type AbsentFindings struct {
	Filter       ChangeFilter
	Repositories []string
	Until        time.Time
}

// Present evaluates everything that a Scanner has in use in one consistent read, however much that is. Of the findings that pass the
// filter and are not announced it returns the most urgent updates, and the worst of those without a fix, at most limit of each. Beside the
// findings of these updates, no more than some of one repository's findings are held at a time. NotAnnounced counts all that
// PendingChanges would list but for what is fixed, whatever changes the filter names.
func (s *Store) Present(ctx context.Context, scanner, receiver string, f ChangeFilter, limit int) (present Present, err error) {
	f.Changes = nil
	t := &changeDetector{scanner: scanner, receiver: receiver, filter: f}
	err = s.read(ctx, "summarize what is present", func(ctx context.Context, q query) error {
		repositories, err := loadRunning(ctx, q, scanner, f.Engine, f.Route, reachInUse)
		if err != nil {
			return err
		}
		present.SnapshotID = snapshotID(repositories, f)
		total, err := s.countRepositories(ctx, q, repositories, f.Exceptions)
		if err != nil {
			return err
		}
		present.Counts, present.Suppressed = total.Counts, total.Suppressed
		if present.Namespaces, err = s.presentByNamespace(ctx, q, repositories, f.Exceptions); err != nil {
			return err
		}
		return t.eachOf(ctx, q, repositories, func(ctx context.Context, l *repositoryEvaluation) (quiet bool, err error) {
			list := newChangeList(bounds{values: maxGrouped, text: maxHeldText})
			if err := l.changed(ctx, list); err != nil {
				return false, err
			}
			changes := list.listed()
			present.add(l.name, list.total, changes, limit)
			return false, nil
		})
	})
	if err != nil {
		return Present{}, err
	}
	return present, nil
}

// presentByNamespace returns Present.Namespaces: nil if the repositories run in one namespace.
func (s *Store) presentByNamespace(
	ctx context.Context, q query, repositories []runningRepository, exceptions exception.Set,
) (map[string]PresentInNamespace, error) {
	all := make(map[string]PresentInNamespace)
	for _, r := range repositories {
		for namespace, part := range r.byNamespace() {
			totals, err := s.countRepository(ctx, q, part, exceptions)
			if err != nil {
				return nil, err
			}
			sum := all[namespace]
			all[namespace] = PresentInNamespace{Counts: sum.Counts.Plus(totals.Counts), Repositories: sum.Repositories + 1}
		}
	}
	if len(all) < 2 {
		return nil, nil
	}
	maps.DeleteFunc(all, func(_ string, p PresentInNamespace) bool { return p.Counts.Total() == 0 })
	return all, nil
}

// add adds the number of changes of one repository, and the most urgent of the updates that end them.
func (p *Present) add(repository string, total int, changes []FindingChange, limit int) {
	if total == 0 {
		return
	}
	p.NotAnnounced += total
	p.Repositories = append(p.Repositories, repository)
	actions, noFix := action.Group(changes, FindingChange.Located)
	updates := p.Updates
	for _, u := range action.ByPackage(actions) {
		updates = append(updates, PresentUpdate{u, total > len(changes)})
	}
	slices.SortStableFunc(updates, func(a, b PresentUpdate) int {
		return cmp.Or(action.Compare(a.Counts, b.Counts), compareInRepositories(a.Actions[0].Ends[0], b.Actions[0].Ends[0]))
	})
	kept := min(limit, len(updates))
	p.MoreUpdates += len(updates) - kept
	// Only what is kept stays in memory.
	p.Updates = slices.Clone(updates[:kept])
	without := slices.Concat(p.NoFix, noFix[:min(limit, len(noFix))])
	slices.SortFunc(without, compareInRepositories)
	p.NoFix = slices.Clone(without[:min(limit, len(without))])
}

// compareInRepositories orders findings by urgency, and then by repository.
func compareInRepositories(a, b FindingChange) int {
	return cmp.Or(finding.Worse(a.Finding, b.Finding), cmp.Compare(a.Repository, b.Repository))
}

// snapshotID returns the snapshot ID of what runs, what is found in it and what exceptions suppress. A report's ID and revision
// never repeat, so neither do snapshots.
func snapshotID(repositories []runningRepository, f ChangeFilter) string {
	sum := sha256.New()
	if f.Route != nil {
		fmt.Fprintf(sum, "%q %q %t %t %q\n", f.Route.Receiver, f.Route.Known, f.Route.All, f.Route.Unassigned, slices.Sorted(maps.Keys(f.Route.Namespaces)))
	}
	for _, r := range repositories {
		fmt.Fprintf(sum, "%q %s\n", r.name, r.stateWithExceptions(f.Exceptions))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

const (
	// listWorst lists the worst present finding of each vulnerability and package.
	listWorst = `WITH` + passingFindings + `
		SELECT ` + worstID + `
		FROM wanted ORDERED JOIN vulnerabilities v ON v.id = wanted.vulnerability_id ORDERED JOIN findings f ON f.id = wanted.id
		GROUP BY group_key(v.canonical_id, f.package)`

	measureFindings = `
		SELECT f.id, octet_length(f.package) + octet_length(f.aliases) FROM ids(@findings) j ORDERED JOIN findings f ON f.id = j.value`

	// announceFindings records findings as announced. Existing records keep their message.
	announceFindings = `
		INSERT INTO announcements (receiver_id, repository, canonical_id, package, digest_id, announced_at, severity, fixable, known_exploited, aliases)
		SELECT @receiver, @repository, v.canonical_id, f.package, @digest, @at, f.severity, f.fixable, f.known_exploited, f.aliases` + ofFindings + `
		WHERE true` + replaceRecord

	// selectAnnounced selects those of some findings that have a record. setMessage moves their records to another message.
	selectAnnounced = `
		SELECT f.id, f.severity, f.fixable, f.known_exploited, ` + announcedColumns + ofFindings + `
		NESTED JOIN announcements a ON a.receiver_id = @receiver AND a.repository = @repository AND a.canonical_id = v.canonical_id AND a.package = f.package`
	setMessage = `
		UPDATE announcements SET digest_id = @digest
		WHERE receiver_id = @receiver AND repository = @repository AND (canonical_id, package) IN (SELECT v.canonical_id, f.package` + ofFindings + `)`
	ofFindings = `
		FROM ids(@findings) j NESTED JOIN findings f ON f.id = j.value NESTED JOIN vulnerabilities v ON v.id = f.vulnerability_id`

	// selectAbsentKeys selects the records of a repository, announced up to a time, whose findings are not present. A finding that one version
	// of the data lacks is present until it is fixed.
	selectAbsentKeys = selectKeysInRepositoryAfter + `AND announced_at <= @before AND unjoined(NOT EXISTS (
			SELECT 1 FROM vulnerabilities v NESTED JOIN findings f INDEXED BY findings_by_vulnerability
				ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM ids(@reports) i)
			WHERE v.canonical_id = announcements.canonical_id AND f.package = announcements.package AND f.fixed_at IS NULL))`
)

// recordSnapshot records all findings that pass as announced, or returns ErrChanged if they are not those of the snapshot any more. Only IDs
// and a part of the texts are in memory. A million findings take some seconds, in which other writers wait. When the budget is used up, the
// other repositories are not recorded: their findings are new to the receiver when there is room again.
func recordSnapshot(ctx context.Context, tx *session, receiver int64, scanner string, announcement Announcement, at time.Time, budget int64) error {
	f := announcement.Snapshot.Filter
	repositories, err := loadRunning(ctx, tx, scanner, f.Engine, f.Route, reachInUse)
	if err != nil {
		return err
	}
	if snapshotID(repositories, f) != announcement.Snapshot.SnapshotID {
		return ErrChanged
	}
	if announcement.ResetRepositories {
		if err := deleteOtherRepositories(ctx, tx, receiver, repositories); err != nil {
			return err
		}
		for _, r := range repositories {
			err := deleteRecords(ctx, tx, selectAbsentKeys, sql.Named("receiver", receiver), sql.Named("repository", r.name),
				sql.Named("reports", r.reportIDs()), sql.Named("before", math.MaxInt64))
			if err != nil {
				return err
			}
		}
	}
	f.Changes = nil
	t := &changeDetector{scanner: scanner, filter: f}
	for _, r := range repositories {
		if full, err := recordsFull(ctx, tx, scanner, budget); full || err != nil {
			return err
		}
		l, err := t.evaluate(ctx, tx, receiver, r)
		if err != nil {
			return err
		}
		l.args = append(l.args, sql.Named("digest", announcement.MessageID), sql.Named("at", millis{at}))
		if err := l.announceAll(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// deleteAbsent deletes the announcements of absent findings.
func deleteAbsent(ctx context.Context, tx *session, receiver int64, scanner string, absent AbsentFindings) error {
	repositories, err := loadRunning(ctx, tx, scanner, absent.Filter.Engine, nil, reachInUse)
	if err != nil {
		return err
	}
	for _, r := range repositories {
		if !slices.Contains(absent.Repositories, r.name) {
			continue
		}
		err := deleteRecords(ctx, tx, selectAbsentKeys, sql.Named("receiver", receiver), sql.Named("repository", r.name), sql.Named("reports", r.allReportIDs()),
			sql.Named("before", millis{absent.Until}))
		if err != nil {
			return err
		}
	}
	return nil
}

// announceAll records all findings of one repository that pass, in parts: announcements have triggers, so SQLite holds the rows that a
// statement inserts in memory.
func (l *repositoryEvaluation) announceAll(ctx context.Context, tx *session) error {
	ids, err := collect(ctx, tx, listWorst, l.args, scanValue[int64])
	if err != nil {
		return err
	}
	for page := range slices.Chunk(ids, maxPageKeys) {
		parts, err := partsByText(ctx, tx, page)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if err := l.moveChanged(ctx, tx, part); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, announceFindings, l.with(sql.Named("findings", jsonArray(part)))...); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveChanged moves the records of those findings that have changed since their announcement to this message, so that they are retracted with
// it if it is never delivered. Of a first baseline, no finding has a record.
func (l *repositoryEvaluation) moveChanged(ctx context.Context, tx *session, findings []int64) error {
	if announced, err := l.receiverHasRecords(ctx); err != nil || !announced {
		return err
	}
	var changed []int64
	err := eachRow(ctx, tx, selectAnnounced, l.with(sql.Named("findings", jsonArray(findings))), func(rows *sql.Rows) error {
		var id int64
		var present diff.Present
		var announced diff.Announced
		err := rows.Scan(append([]any{&id, &present.Severity, &present.Fixable, &present.KnownExploited}, announcedTargets(&announced)...)...)
		if d := diff.Finding(&present, &announced, l.policy); d.Announce != "" {
			changed = append(changed, id)
		}
		return err
	})
	if err != nil || len(changed) == 0 {
		return err
	}
	_, err = tx.ExecContext(ctx, setMessage, l.with(sql.Named("findings", jsonArray(changed)))...)
	return err
}

// partsByText splits findings into parts whose texts take at most maxPageText, or that are one finding.
func partsByText(ctx context.Context, q query, ids []int64) (parts [][]int64, err error) {
	text := 0
	err = eachRow(ctx, q, measureFindings, []any{sql.Named("findings", jsonArray(ids))}, func(rows *sql.Rows) error {
		var id int64
		var size int
		err := rows.Scan(&id, &size)
		if text += size; len(parts) == 0 || text > maxPageText {
			parts, text = append(parts, nil), size
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], id)
		return err
	})
	return parts, err
}

// deleteOtherRepositories deletes the announcements of repositories that do not run.
func deleteOtherRepositories(ctx context.Context, tx *session, receiver int64, repositories []runningRepository) error {
	names := make([]string, 0, len(repositories))
	for _, r := range repositories {
		names = append(names, r.name)
	}
	return deleteRecords(ctx, tx, selectKeysAfter+`AND repository NOT IN (SELECT value FROM texts(@running) t)`,
		sql.Named("receiver", receiver), sql.Named("running", jsonArray(names)))
}
