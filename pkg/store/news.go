package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// defaultChanges are told if a filter names none.
var defaultChanges = []Change{ChangeNew, ChangeFixAvailable, ChangeEscalated, ChangeRegressed}

// News implements Announcements. The filter is for findings: a repository's vulnerability in a package is news if
// any of its findings passes and is described by the worst that does, with the workloads that have such a one. An
// empty UnknownPolicy is UnknownIfFixable.
func (s *SQLite) News(ctx context.Context, scanner, receiver string, f NewsFilter, limit int) (news []News, total int, err error) {
	teller, err := s.newTeller(ctx, "news", scanner, receiver, f)
	if err != nil {
		return nil, 0, err
	}
	err = s.read(ctx, "list news", func(ctx context.Context, q query) error {
		return teller.each(ctx, q, func(ctx context.Context, l *look) (quiet bool, err error) {
			if limit > 0 && len(news) >= limit {
				// What will not be listed is only counted: that needs no look at the findings' rows.
				n, err := l.count(ctx)
				total += n
				return n == 0, err
			}
			found, err := l.news(ctx)
			total += len(found)
			news = append(news, found...)
			return len(found) == 0, err
		})
	})
	if err != nil {
		return nil, 0, err
	}
	if limit > 0 && len(news) > limit {
		news = slices.Clip(news[:limit])
	}
	return news, total, nil
}

// teller compares what is present with what one receiver was told.
type teller struct {
	scanner, receiver string
	filter            NewsFilter
	wants             map[Change]bool
	settled           map[string]bool
	// only are the repositories to look at; nil for all.
	only map[string]bool
	// suspect says that the data is not to be believed where it says that something is fixed.
	suspect bool
	// memory of where there is nothing to tell, and what names the question; nil if nothing is to be remembered.
	memory *quietMemory
	about  string
}

func (s *SQLite) newTeller(ctx context.Context, purpose, scanner, receiver string, f NewsFilter) (*teller, error) {
	t := &teller{scanner: scanner, receiver: receiver, filter: f, wants: make(map[Change]bool), settled: make(map[string]bool)}
	if f.Changes == nil {
		f.Changes = defaultChanges
	}
	for _, change := range f.Changes {
		t.wants[change] = true
	}
	for _, repository := range f.Settled {
		t.settled[repository] = true
	}
	var err error
	if t.suspect, err = s.isSuspect(ctx, scanner, f.Engine); err != nil {
		return nil, err
	}
	// Whoever only reads does not notice what another process writes.
	if s.writer != nil {
		t.memory = &s.quiet
		t.about = fmt.Sprintf("%s %s %d %s %t %q %q %t", purpose, s.quiet.of(scanner, receiver),
			f.MinSeverity, f.Unknown, f.OnlyFixable, f.Changes, f.Engine, t.suspect)
	}
	return t, nil
}

// isSuspect says whether the data is suspect of an engine or (empty) of any by which the Scanner has images.
func (s *SQLite) isSuspect(ctx context.Context, scanner, engine string) (bool, error) {
	engines := []string{engine}
	if engine == "" {
		err := s.read(ctx, "list engines of scanner", func(ctx context.Context, q query) error {
			rows, err := q.QueryContext(ctx, `SELECT DISTINCT engine FROM scanner_images WHERE scanner = ?`, scanner)
			engines, err = collect(rows, err, func(rows *sql.Rows) (engine string, err error) { return engine, rows.Scan(&engine) })
			return err
		})
		if err != nil {
			return false, err
		}
	}
	for _, engine := range engines {
		if anomaly, err := s.DataAnomaly(ctx, scanner, engine); err != nil || anomaly != nil {
			return anomaly != nil, err
		}
	}
	return false, nil
}

// each looks at one repository after the other, but for those of which is known that there is nothing to tell. A look says
// whether it found nothing.
func (t *teller) each(ctx context.Context, q query, see func(context.Context, *look) (quiet bool, err error)) error {
	repositories, err := running(ctx, q, t.scanner, t.filter.Engine, t.filter.Route, t.within())
	if err != nil {
		return err
	}
	receiver, err := receiverID(ctx, q, t.scanner, t.receiver)
	if err != nil {
		return err
	}
	for _, r := range repositories {
		if t.only != nil && !t.only[r.name] {
			continue
		}
		about := fmt.Sprintf("%s %q %t %s", t.about, r.name, t.settled[r.name], r.covers(t.filter.Exceptions))
		if t.memory != nil && t.memory.is(about) {
			continue
		}
		l, err := t.look(ctx, q, receiver, r)
		if err != nil {
			return err
		}
		quiet, err := see(ctx, l)
		if err != nil {
			return err
		}
		if quiet && t.memory != nil {
			t.memory.note(about)
		}
	}
	return nil
}

func (t *teller) within() reach {
	if t.filter.Kept {
		return reachKept
	}
	return reachInUse
}

// receiverID is 0, which no receiver has, for one that is not known: it was told nothing.
func receiverID(ctx context.Context, q query, scanner, receiver string) (id int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT id FROM receivers WHERE scanner = ? AND name = ?`, scanner, receiver).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return id, err
}

// look is one look at one repository.
type look struct {
	*teller
	q        query
	receiver int64
	runningRepository
	args []any
	// excepts says that exceptions cover something.
	excepts bool
	// told is what the receiver was told of the repository, by package; nil until it is needed.
	told map[string][]*record
}

func (t *teller) look(ctx context.Context, q query, receiver int64, r runningRepository) (*look, error) {
	reports, err := r.reports()
	if err != nil {
		return nil, err
	}
	allReports, err := r.allReports()
	if err != nil {
		return nil, err
	}
	excepted, err := r.covered(ctx, q, t.filter.Exceptions)
	if err != nil {
		return nil, err
	}
	covered, err := idsOf(excepted)
	if err != nil {
		return nil, err
	}
	args := append(t.filter.args(), sql.Named("receiver", receiver), sql.Named("repository", r.name),
		sql.Named("reports", reports), sql.Named("all_reports", allReports), sql.Named("covered", covered))
	return &look{teller: t, q: q, receiver: receiver, runningRepository: r, args: args, excepts: len(excepted) > 0}, nil
}

// args are the parameters of wanted.
func (f NewsFilter) args() []any {
	const all, ifFixable, none = 0, 1, 2
	fixable := all
	if f.OnlyFixable {
		fixable = ifFixable
	}
	unknown := ifFixable
	switch f.Unknown {
	case UnknownAlways:
		unknown = fixable
	case UnknownNever:
		unknown = none
	}
	return []any{sql.Named("severity", int64(f.threshold())), sql.Named("fixable", fixable), sql.Named("unknown", unknown)}
}

// threshold is the least severity that passes as such. Unknown is none.
func (f NewsFilter) threshold() finding.Severity { return max(f.MinSeverity, finding.Negligible) }

// wanted are the present findings of some reports that pass a filter and that no exception covers, each once: three ranges of
// one index. @severity is 1 at least. @fixable and @unknown are 0 for all findings, 1 for fixable ones, 2 for none.
const (
	wantedColumns = `
		SELECT f.id, f.vulnerability_id, f.package, f.report_id, f.known_exploited, f.severity, f.fixable FROM json_each(@reports) j
		CROSS JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		WHERE f.gone_at IS NULL AND f.id NOT IN (SELECT value FROM json_each(@covered)) AND `

	wanted = ` wanted AS (` +
		wantedColumns + `f.known_exploited = 1 UNION ALL` +
		wantedColumns + `f.known_exploited = 0 AND f.severity >= @severity AND f.fixable >= @fixable UNION ALL` +
		wantedColumns + `f.known_exploited = 0 AND f.severity = 0 AND f.fixable >= @unknown)`

	// wantedToo is the same for findings that are looked up by what they are about.
	wantedToo = `(f.known_exploited = 1 OR f.severity >= @severity AND f.fixable >= @fixable OR f.severity = 0 AND f.fixable >= @unknown)
		AND f.id NOT IN (SELECT value FROM json_each(@covered))`
)

// withRecord joins what the receiver was told. differs says that a finding may be news by that: whether it is, is up to what is
// worst. What was not recorded differs from nothing.
const (
	withRecord = ` LEFT JOIN announcements a ON a.receiver_id = @receiver AND a.repository = @repository
		AND a.canonical_id = v.canonical_id AND a.package = `

	differs = ` (a.receiver_id IS NULL OR a.fixed_at IS NOT NULL OR a.excepted = 1
		OR a.fixable = 0 AND wanted.fixable = 1 OR a.known_exploited = 0 AND wanted.known_exploited = 1
		OR a.severity >= 0 AND a.severity < @severity AND wanted.severity >= @severity) `
)

const (
	selectSighting = selectFinding + `, f.first_seen, coalesce(f.fix_available, f.fixable_since), v.known_exploited_since,
		f.severity_history, f.report_id,
		a.receiver_id IS NOT NULL, coalesce(a.severity, -1), coalesce(a.fixable, -1), coalesce(a.known_exploited, -1),
		coalesce(a.aliases, ''), a.fixed_at, coalesce(a.excepted, 0) `

	listNews = `WITH` + wanted + selectSighting + `
		FROM wanted CROSS JOIN vulnerabilities v ON v.id = wanted.vulnerability_id` + withRecord + `wanted.package
		CROSS JOIN findings f ON f.id = wanted.id
		WHERE` + differs

	// countNews counts what was never told, and lists what else may be news.
	countNews = `WITH` + wanted + `
		SELECT count(*) FILTER (WHERE NOT told), json_group_array(json_array(canonical_id, package)) FILTER (WHERE told) FROM (
			SELECT DISTINCT v.canonical_id, wanted.package, a.receiver_id IS NOT NULL AS told
			FROM wanted CROSS JOIN vulnerabilities v ON v.id = wanted.vulnerability_id` + withRecord + `wanted.package
			WHERE` + differs + `)`

	// listKeys lists all that is present of some things, if it passes or @every is true.
	listKeys = selectSighting + `
		FROM json_each(@keys) k CROSS JOIN vulnerabilities v ON v.canonical_id = k.value ->> 0
		CROSS JOIN findings f INDEXED BY findings_by_vulnerability
			ON f.vulnerability_id = v.id AND f.report_id IN (SELECT value FROM json_each(@reports)) AND f.package = k.value ->> 1` +
		withRecord + `f.package
		WHERE f.gone_at IS NULL AND (@every OR ` + wantedToo + `)`
)

// record is what a receiver was told of one thing. Numbers are -1 where that was not recorded.
type record struct {
	id, pkg                 string
	severity                finding.Severity
	fixable, knownExploited int
	aliases                 list[string]
	fixedAt                 millis
	excepted                bool
}

// sighting is what is present of one thing, and the record of what was told of it.
type sighting struct {
	News
	// record is nil if it was never told; linked says that it was told by another id.
	record *record
	linked bool
	// before is the severity that the finding had before, the same if it has not changed: of equal findings, what has risen most.
	before finding.Severity
}

// differing gives what is present and may be news, whether the receiver wants to hear of it or not.
func (l *look) differing(ctx context.Context) ([]*sighting, error) {
	sightings, err := l.see(ctx, listNews, l.args...)
	if err != nil {
		return nil, err
	}
	// Of what was told only the findings that differ are here, and one that does not may be worse.
	var keys [][2]string
	for key, s := range sightings {
		if r := s.record; r != nil && r.fixedAt.IsZero() && !r.excepted {
			keys = append(keys, key)
		}
	}
	complete, err := l.present(ctx, keys, false)
	if err != nil {
		return nil, err
	}
	all := make([]*sighting, 0, len(sightings))
	for key, s := range sightings {
		if whole := complete[key]; whole != nil {
			s = whole
		}
		all = append(all, s)
	}
	return all, l.link(ctx, all)
}

// present gives what is present of some things, by id and package: all of it, or what passes.
func (l *look) present(ctx context.Context, keys [][2]string, every bool) (map[[2]string]*sighting, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	list, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	return l.see(ctx, listKeys, append(slices.Clone(l.args), sql.Named("keys", string(list)), sql.Named("every", every))...)
}

// see reads rows of selectSighting, by id and package.
func (l *look) see(ctx context.Context, statement string, args ...any) (map[[2]string]*sighting, error) {
	byKey := make(map[[2]string]*sighting)
	rows, err := l.q.QueryContext(ctx, statement, args...)
	_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var told bool
		var r record
		var firstSeen, fixSince, exploitedSince millis
		var history list[SeverityBefore]
		var report int64
		f, err := scanFinding(rows, &firstSeen, &fixSince, &exploitedSince, &history, &report,
			&told, &r.severity, &r.fixable, &r.knownExploited, &r.aliases, &r.fixedAt, &r.excepted)
		if err != nil {
			return struct{}{}, err
		}
		key := [2]string{f.ID, f.Package.Name}
		s, found := byKey[key]
		if !found {
			s = &sighting{News: News{Repository: l.name, FirstSeen: firstSeen.Time}}
			if told {
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
		s.Workloads = append(s.Workloads, l.workloads[report]...)
		return struct{}{}, nil
	})
	for _, s := range byKey {
		s.Workloads = distinctWorkloads(s.Workloads)
	}
	return byKey, err
}

func (s *sighting) describe(f finding.Finding, fixSince, exploitedSince millis, before finding.Severity) {
	s.Finding, s.FixSince, s.ExploitedSince, s.before = f, time.Time{}, time.Time{}, before
	if f.Fixable() {
		s.FixSince = fixSince.Time
	}
	if f.KnownExploited {
		s.ExploitedSince = exploitedSince.Time
	}
}

// severityBefore is the severity that a finding had last before it changed, if it has.
func severityBefore(f finding.Finding, history []SeverityBefore) finding.Severity {
	if len(history) == 0 {
		return f.Severity
	}
	return history[len(history)-1].Severity
}

// changes says what has changed about it, what matters most first; nothing if it is as it was told.
func (s *sighting) changes(f NewsFilter) []Change {
	r := s.record
	switch {
	case r == nil && s.before < s.Finding.Severity:
		return []Change{ChangeEscalated}
	case r == nil || r.excepted:
		return []Change{ChangeNew}
	case !r.fixedAt.IsZero():
		return []Change{ChangeRegressed}
	}
	var changes []Change
	if s.escalated(f) {
		changes = append(changes, ChangeEscalated)
	}
	if r.fixable == 0 && s.Finding.Fixable() {
		changes = append(changes, ChangeFixAvailable)
	}
	return changes
}

func (s *sighting) escalated(f NewsFilter) bool {
	r := s.record
	return r.knownExploited == 0 && s.Finding.KnownExploited ||
		r.severity >= 0 && r.severity < f.threshold() && s.Finding.Severity >= f.threshold()
}

// wanted says whether the receiver is told of a change. What was never told passes as new as well, whatever else it is.
func (l *look) wanted(s *sighting, change Change) bool {
	return l.wants[change] || s.record == nil && l.wants[ChangeNew]
}

// tell completes what is told.
func (s *sighting) tell(change Change) News {
	s.Change, s.SeverityBefore = change, s.before
	if r := s.record; r != nil {
		s.ExceptionEnded = r.excepted
		if s.SeverityBefore = r.severity; r.severity < 0 {
			s.SeverityBefore = s.Finding.Severity
		}
	}
	return s.News
}

// news gives what the receiver is to be told of the repository, worst first and what is fixed last.
func (l *look) news(ctx context.Context) ([]News, error) {
	differing, err := l.differing(ctx)
	if err != nil {
		return nil, err
	}
	news := l.newsOf(differing)
	fixed, err := l.fixed(ctx)
	return append(news, fixed...), err
}

func (l *look) newsOf(sightings []*sighting) []News {
	var news []News
	for _, s := range sightings {
		for _, change := range s.changes(l.filter) {
			if l.wanted(s, change) {
				news = append(news, s.tell(change))
				break
			}
		}
	}
	slices.SortFunc(news, func(a, b News) int { return finding.Worse(a.Finding, b.Finding) })
	return news
}

// fixed gives what is fixed, if the receiver wants to hear of it.
func (l *look) fixed(ctx context.Context) ([]News, error) {
	if !l.wants[ChangeFixed] || !l.mayBeFixed() {
		return nil, nil
	}
	orphans, err := l.orphans(ctx)
	if err != nil {
		return nil, err
	}
	var fixed []News
	for _, o := range orphans {
		if len(o.now) > 0 || o.excepted {
			continue
		}
		severity := max(o.severity, finding.Unknown)
		fixed = append(fixed, News{
			Change: ChangeFixed, Repository: l.name, SeverityBefore: severity, Workloads: l.everyone(),
			Finding: finding.Finding{ID: o.id, Aliases: o.aliases, Severity: severity, Package: finding.Package{Name: o.pkg}},
		})
	}
	slices.SortFunc(fixed, func(a, b News) int { return finding.Worse(a.Finding, b.Finding) })
	return fixed, nil
}

// mayBeFixed says whether what is not there any more is fixed.
func (l *look) mayBeFixed() bool { return l.settled[l.name] && !l.suspect }

// count counts what news lists.
func (l *look) count(ctx context.Context) (int, error) {
	if !l.wants[ChangeNew] {
		// What was never told is news only if it has escalated: that is to be looked at.
		news, err := l.news(ctx)
		return len(news), err
	}
	var untold int
	var differing string
	if err := l.q.QueryRowContext(ctx, countNews, l.args...).Scan(&untold, &differing); err != nil {
		return 0, err
	}
	var keys [][2]string
	if err := json.Unmarshal([]byte(differing), &keys); err != nil {
		return 0, fmt.Errorf("keys of what has changed: %w", err)
	}
	present, err := l.present(ctx, keys, false)
	if err != nil {
		return 0, err
	}
	changed := make([]*sighting, 0, len(present))
	for _, s := range present {
		changed = append(changed, s)
	}
	fixed, err := l.fixed(ctx)
	return untold + len(l.newsOf(changed)) + len(fixed), err
}

// idsOf lists covered findings as JSON, for json_each.
func idsOf[V any](byID map[int64]V) (string, error) {
	ids := make([]int64, 0, len(byID))
	for id := range byID {
		ids = append(ids, id)
	}
	text, err := json.Marshal(ids)
	return string(text), err
}
