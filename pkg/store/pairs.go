package store

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// withRecord joins the receiver's announcement records. differs selects the findings that diff.Finding may call a change, so that all others
// need not be read. Of several findings with one key, the worst decides. A value that was not recorded is -1 and never differs.
const (
	withRecord = ` NESTED LEFT JOIN announcements a ON a.receiver_id = @receiver AND a.repository = @repository
		AND a.canonical_id = v.canonical_id AND a.package = `

	differs = ` (a.receiver_id IS NULL OR a.fixed_at IS NOT NULL OR a.excepted = 1
		OR a.fixable = 0 AND wanted.fixable = 1 OR a.known_exploited = 0 AND wanted.known_exploited = 1
		OR a.severity >= 0 AND a.severity < @severity AND wanted.severity >= @severity) `
)

const (
	// selectCandidate has of a finding what a message or a record of it shows. What an image may make long and no message shows in
	// whole is cut: a package's name is in the key.
	selectCandidate = `SELECT v.canonical_id, substr(v.url, 1, 4096), v.cvss, v.epss, f.known_exploited, f.severity,
		f.package, substr(f.version, 1, 512), f.type, substr(f.purl, 1, 512), substring(f.paths, 1, 512), f.fix_state, f.fix_versions,
		f.fix_available, f.aliases, f.first_seen, coalesce(f.fix_available, f.fixable_since), v.known_exploited_since,
		f.severity_history, f.report_id, f.id,
		a.receiver_id IS NOT NULL, coalesce(a.aliases, ''), ` + announcedColumns + ` `

	// listKeys lists the present findings of some IDs and packages that pass the filter, or all if @every is true. The findings of an ID are
	// read once, however many of its packages are keys.
	listKeys = selectCandidate + `
		FROM (SELECT DISTINCT k.id FROM records(@keys, id text, package text) k) named
		NESTED JOIN vulnerabilities v ON v.canonical_id = named.id
		NESTED JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM ids(@reports) i)` +
		withRecord + `f.package
		WHERE unjoined((key_of(v.canonical_id, f.package)) IN (SELECT key_of(k.id, k.package) FROM records(@keys, id text, package text) k))
			AND f.gone_at IS NULL AND (@every = 1 OR ` + passesFilter + `)`
)

// record is what was announced to a receiver about one vulnerability in one package.
type record struct {
	id, pkg string
	aliases list[string]
	// sources are the announced sources that know the finding. Until that is recorded, each of them may know it if the finding is absent. If it is
	// present, those that have it know it: a source that never reports on an image would otherwise keep what it never knew.
	sources recordedNames
	// packageTypes are recorded while an image of the repository has no result about some types of packages.
	packageTypes recordedNames
	diff.Announced
}

// recordedNames is a sorted list in a column that is NULL until it is recorded.
type recordedNames struct {
	names      list[string]
	isRecorded bool
}

// Scan implements sql.Scanner.
func (s *recordedNames) Scan(column any) error {
	*s = recordedNames{isRecorded: column != nil}
	if column == nil {
		return nil
	}
	return s.names.Scan(column)
}

// Value implements driver.Valuer.
func (s recordedNames) Value() (driver.Value, error) {
	if !s.isRecorded {
		return nil, nil
	}
	return s.names.Value()
}

func (s recordedNames) equals(other recordedNames) bool {
	return s.isRecorded == other.isRecorded && slices.Equal(s.names, other.names)
}

// announcedColumns selects diff.Announced from a, with the zero value for no record. In the table, facts are -1 where they were not recorded.
const announcedColumns = `greatest(coalesce(a.severity, 0), 0), coalesce(a.severity < 0, FALSE), coalesce(a.fixable = 1, FALSE), coalesce(a.known_exploited = 1, FALSE),
		a.fixed_at IS NOT NULL, coalesce(a.excepted, 0)`

// announcedTargets returns where a row of announcedColumns is scanned to.
func announcedTargets(a *diff.Announced) []any {
	return []any{&a.Severity, &a.WithoutFacts, &a.Fixable, &a.KnownExploited, &a.Fixed, &a.Suppressed}
}

// pair is what is present of one vulnerability in one package, and the record of its announcement.
type pair struct {
	FindingChange
	// concerned are the workloads that the finding concerns, which are set as FindingChange.Workloads last.
	concerned affected
	// record is nil if the finding was never announced; linked is true if it was announced by another ID.
	record *record
	linked bool
	// before is the finding's previous severity, the current one if it has not changed. Of equal findings, the one that has risen
	// most counts.
	before finding.Severity
}

// presentOf returns the pairs of some keys (ID and package) of which findings are present: any findings, or only those that pass the filter.
func (l *repositoryEvaluation) presentOf(ctx context.Context, keys [][2]string, every bool) (map[[2]string]*pair, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	byKey := make(map[[2]string]*pair)
	args := l.with(sql.Named("keys", jsonArray(keys)), sql.Named("every", every))
	err := eachRow(ctx, l.q, listKeys, args, func(rows *sql.Rows) error {
		var announced bool
		var r record
		var f finding.Finding
		var fixAvailable, firstSeen, fixSince, exploitedSince millis
		var history list[SeverityBefore]
		var report, id int64
		p := &f.Package
		err := rows.Scan(append([]any{&f.ID, &f.URL, &f.CVSS, &f.EPSS, &f.KnownExploited, &f.Severity,
			&p.Name, &p.Version, &p.Type, &p.PURL, (*paths)(&f.Paths), &f.FixState, (*list[string])(&f.FixVersions),
			&fixAvailable, (*list[string])(&f.Aliases), &firstSeen, &fixSince, &exploitedSince, &history, &report, &id,
			&announced, &r.aliases}, announcedTargets(&r.Announced)...)...)
		if err != nil {
			return err
		}
		f.FixAvailable = fixAvailable.Time
		key := [2]string{f.ID, f.Package.Name}
		s, found := byKey[key]
		if !found {
			s = &pair{FindingChange: FindingChange{Repository: l.name, FirstSeen: firstSeen.Time}}
			if announced {
				r.id, r.pkg = f.ID, f.Package.Name
				s.record = &r
			}
			byKey[key] = s
		}
		if before := severityBefore(f, history); !found || cmp.Or(finding.Worse(f, s.Finding), cmp.Compare(before, s.before)) < 0 {
			s.describe(f, fixSince, exploitedSince, before)
		}
		if firstSeen.Before(s.FirstSeen) {
			s.FirstSeen = firstSeen.Time
		}
		s.concerned.add(report, l.suppressed.byName[id])
		return nil
	})
	return byKey, err
}

func (s *pair) describe(f finding.Finding, fixSince, exploitedSince millis, before finding.Severity) {
	s.Finding, s.FixSince, s.ExploitedSince, s.before = f, time.Time{}, time.Time{}, before
	if f.Fixable() {
		s.FixSince = fixSince.Time
	}
	if f.KnownExploited {
		s.ExploitedSince = exploitedSince.Time
	}
}

// severityBefore returns the severity that a finding had before its last change, the current one if it has not changed.
func severityBefore(f finding.Finding, history []SeverityBefore) finding.Severity {
	if len(history) == 0 {
		return f.Severity
	}
	return history[len(history)-1].Severity
}

// decide compares a finding with its record.
func (l *repositoryEvaluation) decide(s *pair) diff.Decision {
	present := diff.Present{Severity: s.Finding.Severity, SeverityBefore: s.before, Fixable: s.Finding.Fixable(), KnownExploited: s.Finding.KnownExploited}
	if s.record == nil {
		return diff.Finding(&present, nil, l.policy)
	}
	return diff.Finding(&present, &s.record.Announced, l.policy)
}
