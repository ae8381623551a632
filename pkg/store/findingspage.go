package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// FindingFilter selects findings. The zero value selects all.
type FindingFilter struct {
	// Severities to include; nil for all.
	Severities []finding.Severity
	// Fixable and KnownExploited include only findings with this value; nil for both values.
	Fixable, KnownExploited *bool
	// Package is a complete package name.
	Package string
	// ID is an ID or an alias, in any case.
	ID string
	// Gone selects findings that are gone and still stored, instead of the present ones.
	Gone bool
	// Suppressed selects suppressed findings (true) or all others (false); nil for both. It needs Exceptions.
	Suppressed *bool
	Exceptions ImageExceptions
	// FirstSeenSince is the earliest first-seen time; zero for any.
	FirstSeenSince time.Time
	// Text is part of an ID or an alias, with any separators, a package name or a description. ASCII letters match in any case.
	Text string
}

// FindingCursor is a position in a list of findings. The zero value is the beginning.
type FindingCursor struct {
	Report, Revision int64
	// Count is how many findings come before the position, and Sum is a checksum of them.
	Count int
	Sum   uint64
	// ExceptionsSum is a checksum of what the exceptions suppressed.
	ExceptionsSum uint64
}

// FindingPage is one page of a report's findings.
type FindingPage struct {
	Report   ReportState
	Findings []TrackedFinding
	// Total is the number of all findings that pass the filter.
	Total int
	// Next is the beginning of the next page; nil if this is the last one.
	Next *FindingCursor
}

// TrackedFinding is a finding and its lifetime in the store. Times that do not apply are zero.
type TrackedFinding struct {
	finding.Finding
	// FirstSeen is when the store first recorded the finding. LastSeen is when a report last had it: the current report's time while
	// it is present.
	FirstSeen, LastSeen time.Time
	// FixedAt is when a second, independent version of the data lacked the finding (see Evidence). FixSince and ExploitedSince are as
	// in FindingChange.
	FixedAt, FixSince, ExploitedSince time.Time
	// Severities that the finding had before, oldest first, at most ten.
	Severities []SeverityBefore
	// Exception that suppresses the finding; nil if none does.
	Exception *exception.Exception
	// Source is the tool whose report has the finding; empty for an engine of the operator.
	Source string
}

// maxPageBytes bounds the texts of a page: the content of an image can make a single finding as large as 1 MiB.
const maxPageBytes = 4 << 20

const (
	selectReportState = `SELECT r.id, r.revision, r.data_version, r.matched_at, r.distro, d.version, d.tool
		FROM manifests m JOIN reports r ON r.manifest_id = m.id LEFT JOIN data_versions d ON d.engine = r.engine
		WHERE m.platform_digest = ? AND m.scope = ? AND r.engine = ?`

	// selectPassing selects the row IDs of the present findings that pass a filter, in the order of finding.Worse. selectWithAnnounced adds
	// those of other reports to them. selectGone selects those of the gone findings.
	selectPassing = `SELECT f.id
		FROM findings f INDEXED BY findings_present ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.report_id = @report AND f.gone_at IS NULL` + filtered
	selectWithAnnounced = `WITH shown AS (
			SELECT f.id FROM findings f INDEXED BY findings_present WHERE f.report_id = @report AND f.gone_at IS NULL
			UNION ALL SELECT value FROM ids(@announced) a)
		SELECT f.id
		FROM shown ORDERED JOIN findings f ON f.id = shown.id ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.gone_at IS NULL` + filtered
	selectGone = `SELECT f.id
		FROM findings f ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.report_id = @report AND f.gone_at IS NOT NULL` + filtered

	filtered = `
		AND (@every = 1 OR f.severity IN (SELECT value FROM ids(@severities) i))
		AND (@fixable < 0 OR f.fixable = @fixable) AND (@exploited < 0 OR f.known_exploited = @exploited)
		AND (@package = '' OR f.package = @package) AND f.first_seen >= @since
		AND (@id = '' OR ` + isCalled + `)
		AND (@text = '' OR contains(fold(v.canonical_id || ' ' || f.aliases || ' ' || f.package || ' ' || v.description), @text)
			OR contains(fold(v.canonical_id || ' ' || f.aliases), @part))
		` + worst + `, f.type, f.purl`

	// isCalled is true for findings whose vulnerability has the ID or alias of calledArgs. An alias is the first of the list in JSON, or
	// follows another one. No alias contains these texts, since the quotes in an alias are escaped.
	isCalled = `(fold(v.canonical_id) = @id OR contains(fold(f.aliases), @first_alias) OR contains(fold(f.aliases), @next_alias))`

	selectByID = selectFinding + `, f.id, f.first_seen, CASE WHEN f.gone_at IS NULL THEN r.matched_at ELSE f.last_seen END, f.fixed_at,
			CASE WHEN f.fixable = 1 THEN coalesce(f.fix_available, f.fixable_since) END,
			CASE WHEN f.known_exploited = 1 THEN v.known_exploited_since END, f.severity_history, r.engine
		FROM records(?, value bigint, place bigint) wanted ORDERED JOIN findings f ON f.id = wanted.value ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		ORDERED JOIN reports r ON r.id = f.report_id
		ORDER BY wanted.place`
)

// FindingsPage returns findings of a subject from a cursor on, worst first (finding.Worse); ErrNotFound if there is no report. The present ones are
// those that Summary counts: those of the report, and what announced reports add. It may
// return fewer than limit when they are large. It returns ErrChanged if the findings before the cursor are not the same as then, so
// that a finding would be missed or come twice, or if other exceptions are in force. The order can change while the report is the
// same, since the exploitation probability belongs to the vulnerability and not to the finding. A cursor therefore identifies the
// findings before it, not only their number. It also identifies what exceptions suppressed, so that all pages have the same
// exceptions.
func (s *Store) FindingsPage(ctx context.Context, subject Subject, f FindingFilter, from FindingCursor, limit int) (page FindingPage, err error) {
	err = s.read(ctx, "list a page of findings of "+subject.PlatformDigest, func(ctx context.Context, q query) error {
		var row reportRow
		if err := q.QueryRowContext(ctx, selectReportState, reportArgs(subject)...).Scan(row.columns()...); err != nil {
			return orNotFound(err)
		}
		page.Report = row.state()
		cursor := FindingCursor{Report: page.Report.ID, Revision: page.Report.Revision, ExceptionsSum: f.Exceptions.sum()}
		if from != (FindingCursor{}) && (from.Report != cursor.Report || from.Revision != cursor.Revision || from.ExceptionsSum != cursor.ExceptionsSum) {
			return ErrChanged
		}
		passing, suppressed, err := listPassing(ctx, q, page.Report.ID, f)
		if err != nil {
			return err
		}
		page.Total = len(passing)
		if from.Count < 0 || from.Count > len(passing) || sumOf(passing[:from.Count]) != from.Sum {
			return ErrChanged
		}
		rest := passing[from.Count:]
		if page.Findings, err = listByID(ctx, q, rest[:min(len(rest), limit)], suppressed); err != nil {
			return err
		}
		if end := from.Count + len(page.Findings); end < len(passing) {
			cursor.Count, cursor.Sum = end, sumOf(passing[:end])
			page.Next = &cursor
		}
		return nil
	})
	if err != nil {
		return FindingPage{}, err
	}
	return page, nil
}

// sum returns a checksum of the exceptions and the image's names; 0 if there are no exceptions.
func (e ImageExceptions) sum() uint64 {
	if e.Exceptions.Key() == "" {
		return 0
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %#v", e.Exceptions.Key(), e.Images)
	return binary.BigEndian.Uint64(sum.Sum(nil))
}

// listPassing returns the row IDs of the findings that pass, and which of all findings exceptions suppress.
func listPassing(ctx context.Context, q query, report int64, f FindingFilter) (passing []int64, suppressed map[int64]*exception.Exception, err error) {
	severities := make([]int, 0, len(f.Severities))
	for _, severity := range f.Severities {
		severities = append(severities, int(severity))
	}
	statement, candidates := selectPassing, presentCandidates
	if f.Gone {
		statement, candidates = selectGone, goneCandidates
	}
	found, err := suppressedFindings(ctx, q, candidates, f.Exceptions.Exceptions, map[int64][]exception.Image{report: f.Exceptions.Images})
	if err != nil {
		return nil, nil, err
	}
	suppressed = found.whole
	var more addedFindings
	if !f.Gone {
		if more, err = announcedOn(ctx, q, report, f.Exceptions.Images, f.Exceptions, found); err != nil {
			return nil, nil, err
		}
	}
	announced := slices.Concat(more.open, more.suppressed)
	if len(announced) > 0 {
		statement = selectWithAnnounced
		suppressed = make(map[int64]*exception.Exception, len(found.whole)+len(more.by))
		maps.Copy(suppressed, found.whole)
		maps.Copy(suppressed, more.by)
	}
	since := int64(0)
	if !f.FirstSeenSince.IsZero() {
		since = f.FirstSeenSince.UnixMilli()
	}
	args := []any{
		sql.Named("report", report), sql.Named("since", since), sql.Named("every", f.Severities == nil), sql.Named("severities", jsonArray(severities)),
		sql.Named("fixable", wantedValue(f.Fixable)), sql.Named("exploited", wantedValue(f.KnownExploited)), sql.Named("package", f.Package),
		sql.Named("text", foldName(f.Text)), sql.Named("part", foldName(finding.PartOfID(f.Text))), sql.Named("announced", jsonArray(announced)),
	}
	args = append(args, calledArgs(f.ID)...)
	passing, err = collect(ctx, q, statement, args, scanValue[int64])
	passing = slices.DeleteFunc(passing, func(id int64) bool {
		return more.replaced[id] || f.Suppressed != nil && (suppressed[id] != nil) != *f.Suppressed
	})
	return passing, suppressed, err
}

// calledArgs returns the parameters of isCalled.
func calledArgs(id string) []any {
	alias := strings.Trim(jsonArray([]string{foldName(id)}), "[]")
	return []any{sql.Named("id", foldName(id)), sql.Named("first_alias", "["+alias), sql.Named("next_alias", ","+alias)}
}

// wantedValue returns the value that a column must have; -1 for any.
func wantedValue(wanted *bool) int {
	switch {
	case wanted == nil:
		return -1
	case *wanted:
		return 1
	}
	return 0
}

// listByID reads findings by row ID: at least one, and then as many as fit into a page.
func listByID(ctx context.Context, q query, ids []int64, suppressed map[int64]*exception.Exception) (findings []TrackedFinding, err error) {
	size := 0
	wanted := make([][2]int64, len(ids))
	for place, id := range ids {
		wanted[place] = [2]int64{id, int64(place)}
	}
	err = eachRow(ctx, q, selectByID, []any{jsonArray(wanted)}, func(rows *sql.Rows) error {
		var id int64
		var firstSeen, lastSeen, fixedAt, fixSince, exploitedSince millis
		var severities list[SeverityBefore]
		var engine string
		f, err := scanFinding(rows, &id, &firstSeen, &lastSeen, &fixedAt, &fixSince, &exploitedSince, &severities, &engine)
		if err != nil {
			return err
		}
		if size += f.TextBytes(); size > maxPageBytes && len(findings) > 0 {
			return errFull
		}
		source, _ := SourceOf(engine)
		findings = append(findings, TrackedFinding{
			Finding: f, FirstSeen: firstSeen.Time, LastSeen: lastSeen.Time, FixedAt: fixedAt.Time, FixSince: fixSince.Time,
			ExploitedSince: exploitedSince.Time, Severities: severities, Exception: suppressed[id], Source: source,
		})
		return nil
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return findings, err
}

// sumOf returns a checksum of numbers that does not depend on their order.
func sumOf(numbers []int64) (sum uint64) {
	for _, number := range numbers {
		sum += mix64(uint64(number))
	}
	return sum
}

// mix64 spreads a number over 64 bits with the finalizer of SplitMix64 (https://prng.di.unimi.it/splitmix64.c).
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
