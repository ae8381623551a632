package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// SummaryCounts are the numbers of a scheduled summary, from one consistent read.
type SummaryCounts struct {
	// Counts, Suppressed, Namespaces and SnapshotID are those of Present.
	Counts     finding.Counts
	Suppressed int
	Namespaces map[string]PresentInNamespace
	SnapshotID string
	// Opened is how many of Counts the earlier summary did not count. Ended is how many of those that it counted are not in Counts, for whatever reason:
	// fixed, suppressed, or of images that nothing runs any more. The total of the earlier summary plus Opened minus Ended is the total of Counts.
	Opened, Ended int
	// NotProven is how many of Ended no exception suppresses and nothing proves absent, in repositories with images in use.
	NotProven int
}

// CountedFindings records with an announcement which findings its message counts.
type CountedFindings struct {
	Filter ChangeFilter
	// SnapshotID is the one of SummaryCounts.
	SnapshotID string
	// Keep is the earlier message whose findings stay recorded: the present one may never be delivered. Those of all others are deleted.
	Keep string
}

const (
	selectCountedStates = `SELECT c.repository, c.state FROM receivers r JOIN counted_findings c ON c.receiver_id = r.id
		WHERE r.scanner = @scanner AND r.name = @receiver AND c.message_id = @message`
	selectCountedFindings = `SELECT c.findings FROM receivers r JOIN counted_findings c ON c.receiver_id = r.id
		WHERE r.scanner = @scanner AND r.name = @receiver AND c.message_id = @message AND c.repository = @repository`

	// selectCounted selects what countScanner counts.
	selectCounted = `SELECT v.canonical_id, f.package
		FROM ids(@reports) j
		ORDERED JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.gone_at IS NULL AND f.id NOT IN (SELECT value FROM ids(@suppressed) i)`

	// selectLives selects what reports know of all findings that they have or had.
	selectLives = `SELECT v.canonical_id, f.package, f.type, f.id, f.gone_at IS NULL, f.gone_at IS NOT NULL AND f.fixed_at IS NULL
		FROM ids(@reports) j
		ORDERED JOIN findings f ON f.report_id = j.value
		ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id`

	deleteCounted = `DELETE FROM counted_findings WHERE receiver_id = @receiver AND message_id <> @keep`
	copyCounted   = `INSERT INTO counted_findings (receiver_id, message_id, repository, state, findings)
		SELECT receiver_id, @message, repository, state, findings FROM counted_findings WHERE receiver_id = @receiver AND message_id = @keep AND repository = @repository`
	insertCounted = `INSERT INTO counted_findings (receiver_id, message_id, repository, state, findings) VALUES (?, ?, ?, ?, ?)`
)

// CountSummary counts what is present as Present does, and compares it with what an earlier message counted (Announcement.Counted). Of a message that is
// not recorded, everything is opened. inUse are the repositories with images in use, with a result or
// without. What others had has ended.
func (s *Store) CountSummary(
	ctx context.Context, scanner, receiver string, f ChangeFilter, earlier string, inUse map[string]bool,
) (counts SummaryCounts, err error) {
	detector, err := s.newChangeDetector(ctx, "count for a summary", scanner, receiver, f)
	if err != nil {
		return SummaryCounts{}, err
	}
	err = s.read(ctx, "count for a summary", func(ctx context.Context, q query) error {
		counts = SummaryCounts{}
		repositories, err := loadRunning(ctx, q, scanner, f.Engine, f.Route, reachInUse)
		if err != nil {
			return err
		}
		counts.SnapshotID = snapshotID(repositories, f)
		total, err := s.countRepositories(ctx, q, repositories, f.Exceptions)
		if err != nil {
			return err
		}
		counts.Counts, counts.Suppressed = total.Counts, total.Suppressed
		if counts.Namespaces, err = s.presentByNamespace(ctx, q, repositories, f.Exceptions); err != nil {
			return err
		}
		if err := detector.readSources(ctx, q); err != nil {
			return err
		}
		args := []any{sql.Named("scanner", scanner), sql.Named("receiver", receiver), sql.Named("message", earlier)}
		before, err := readCountedStates(ctx, q, selectCountedStates, args)
		if err != nil {
			return err
		}
		for _, r := range repositories {
			state := before[r.name]
			delete(before, r.name)
			if state == r.countedState(f) {
				continue
			}
			now, err := r.countedFindings(ctx, q, f)
			if err != nil {
				return err
			}
			missing, err := counts.compare(ctx, q, args, r.name, now)
			if err != nil {
				return err
			}
			notProven, err := detector.countNotProven(ctx, q, r, missing)
			if err != nil {
				return err
			}
			counts.NotProven += notProven
		}
		for name := range before { // it is not in use any more, or has no result
			missing, err := counts.compare(ctx, q, args, name, nil)
			if err != nil {
				return err
			}
			if inUse[name] {
				counts.NotProven += len(missing)
			}
		}
		return nil
	})
	return counts, err
}

func readCountedStates(ctx context.Context, q query, statement string, args []any) (map[string]string, error) {
	states := make(map[string]string)
	err := eachRow(ctx, q, statement, args, func(rows *sql.Rows) error {
		var repository, state string
		err := rows.Scan(&repository, &state)
		states[repository] = state
		return err
	})
	return states, err
}

// compare adds what differs between the findings of a repository now and those that the earlier message counted. It returns those that are missing now.
func (c *SummaryCounts) compare(ctx context.Context, q query, args []any, repository string, now []uint64) (missing map[uint64]bool, err error) {
	var stored []byte
	err = eachRow(ctx, q, selectCountedFindings, append(slices.Clone(args), sql.Named("repository", repository)), func(rows *sql.Rows) error {
		return rows.Scan(&stored)
	})
	missing = make(map[uint64]bool, len(stored)/8)
	for part := range slices.Chunk(stored, 8) {
		missing[binary.BigEndian.Uint64(part)] = true
	}
	for _, one := range now {
		if missing[one] {
			delete(missing, one)
		} else {
			c.Opened++
		}
	}
	c.Ended += len(missing)
	return missing, err
}

// countNotProven counts the findings that a repository with a result does not have any more, without proof that they are absent. Those that an exception
// suppresses have ended.
func (t *changeDetector) countNotProven(ctx context.Context, q query, r runningRepository, missing map[uint64]bool) (count int, err error) {
	if len(missing) == 0 {
		return 0, nil
	}
	names := make(map[int64][]exception.Image)
	for _, report := range r.reports {
		names[report.id] = report.imageNames()
	}
	suppressed, err := suppressedFindings(ctx, q, goneCandidates, r.exceptionsOf(t.filter.Exceptions), names)
	if err != nil {
		return 0, err
	}
	type life struct {
		types                   []string
		suppressed, unconfirmed bool
	}
	lives := make(map[uint64]life)
	err = eachRow(ctx, q, selectLives, []any{sql.Named("reports", r.reportIDs())}, func(rows *sql.Rows) error {
		var name, pkg, kind string
		var id int64
		var present, unconfirmed bool
		err := rows.Scan(&name, &pkg, &kind, &id, &present, &unconfirmed)
		one := countedHash(name, pkg)
		if !missing[one] {
			return err
		}
		known := lives[one]
		known.types = insertSorted(known.types, kind)
		if present || suppressed.whole[id] != nil { // what is present is missing because it is suppressed
			known.suppressed = true
		} else {
			known.unconfirmed = known.unconfirmed || unconfirmed
		}
		lives[one] = known
		return err
	})
	for one := range missing {
		known := lives[one]
		facts := t.factsOf(r.name, record{packageTypes: recordedNames{names: known.types}})
		facts.Unconfirmed = known.unconfirmed
		if (known.unconfirmed || !known.suppressed) && evidence.Of(facts) == evidence.Unknown {
			count++
		}
	}
	return count, err
}

// countedState identifies what countedFindings returns: while it is equal, so are they.
func (r *runningRepository) countedState(f ChangeFilter) string {
	sum := sha256.Sum256([]byte(r.stateWithExceptions(f.Exceptions)))
	return hex.EncodeToString(sum[:])
}

// countedFindings returns a hash of each finding that countRepository counts.
func (r *runningRepository) countedFindings(ctx context.Context, q query, f ChangeFilter) ([]uint64, error) {
	suppressed, err := r.suppressed(ctx, q, f.Exceptions)
	if err != nil {
		return nil, err
	}
	args := []any{sql.Named("reports", r.reportIDs()), sql.Named("suppressed", idsOf(suppressed.whole))}
	var counted []uint64
	err = eachRow(ctx, q, selectCounted, args, func(rows *sql.Rows) error {
		var id, pkg string
		err := rows.Scan(&id, &pkg)
		counted = append(counted, countedHash(id, pkg))
		return err
	})
	slices.Sort(counted)
	return slices.Compact(counted), err
}

func countedHash(id, pkg string) uint64 {
	sum := sha256.Sum256([]byte(id + "\x00" + pkg))
	return binary.BigEndian.Uint64(sum[:])
}

// recordCounted records which findings a message counts. It returns ErrChanged if they are not those of the snapshot any more.
func recordCounted(ctx context.Context, tx *session, receiver int64, scanner string, announcement Announcement) error {
	f, keep := announcement.Counted.Filter, announcement.Counted.Keep
	repositories, err := loadRunning(ctx, tx, scanner, f.Engine, f.Route, reachInUse)
	if err != nil {
		return err
	}
	if snapshotID(repositories, f) != announcement.Counted.SnapshotID {
		return ErrChanged
	}
	args := []any{sql.Named("receiver", receiver), sql.Named("keep", cmp.Or(keep, "-")), sql.Named("message", announcement.MessageID)}
	if _, err := tx.ExecContext(ctx, deleteCounted, args...); err != nil {
		return err
	}
	before, err := readCountedStates(ctx, tx, `SELECT repository, state FROM counted_findings WHERE receiver_id = @receiver AND message_id = @keep`, args)
	if err != nil {
		return err
	}
	for _, r := range repositories {
		state := r.countedState(f)
		if before[r.name] == state {
			if _, err := tx.ExecContext(ctx, copyCounted, append(slices.Clone(args), sql.Named("repository", r.name))...); err != nil {
				return err
			}
			continue
		}
		counted, err := r.countedFindings(ctx, tx, f)
		if err != nil {
			return err
		}
		stored := make([]byte, 0, 8*len(counted))
		for _, one := range counted {
			stored = binary.BigEndian.AppendUint64(stored, one)
		}
		if _, err := tx.ExecContext(ctx, insertCounted, receiver, announcement.MessageID, r.name, state, stored); err != nil {
			return err
		}
	}
	return nil
}
