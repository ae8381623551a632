package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Totals are the numbers of a Scanner's findings.
type Totals struct {
	// Counts excludes suppressed findings; Suppressed is the number of these.
	Counts     finding.Counts
	Suppressed int
	// ToActOn is how many of Counts an update ends and are known exploited or at least of high severity, as ActionsPage selects them.
	ToActOn int
	// ByException is how many findings each exception suppresses in the namespaces that it applies to, by the exception's UID.
	ByException map[string]int
}

const (
	// countScanner counts a finding once that several of a repository's images have, with its worst values.
	countScanner = `
		SELECT severity, count(*), sum(fixable), sum(known_exploited), sum(to_act_on) FROM (
			SELECT max(f.severity) AS severity, max(f.fixable) AS fixable, max(f.known_exploited) AS known_exploited,
				max(CASE WHEN f.fixable = 1 AND (f.severity >= 4 OR f.known_exploited = 1) THEN 1 ELSE 0 END) AS to_act_on
			FROM ids(@reports) j
			ORDERED JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
			ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
			WHERE f.gone_at IS NULL AND f.id NOT IN (SELECT value FROM ids(@suppressed) i)
			GROUP BY group_key(v.canonical_id, f.package)) AS worst
		GROUP BY severity`

	// listSuppressed lists the findings of each vulnerability and package that is suppressed in all images, one row for each.
	listSuppressed = `
		SELECT id_array(f.id)
		FROM ids(@reports) j
		ORDERED JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		ORDERED JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.gone_at IS NULL
		GROUP BY group_key(v.canonical_id, f.package)
		HAVING min(CASE WHEN f.id IN (SELECT value FROM ids(@suppressed) i) THEN 1 ELSE 0 END) = 1`
)

// ScannerTotals counts the findings of the images that run now for a Scanner, once per repository, vulnerability and package,
// whether announced or not. It counts only repositories again that have changed since the last call.
func (s *Store) ScannerTotals(ctx context.Context, scanner string, exceptions exception.Set) (total Totals, err error) {
	err = s.read(ctx, "count findings of scanner", func(ctx context.Context, q query) error {
		repositories, err := loadRunning(ctx, q, scanner, "", nil, reachRunning)
		if err != nil {
			return err
		}
		total, err = s.countRepositories(ctx, q, repositories, exceptions)
		return err
	})
	return total, err
}

// NamespaceTotals returns ScannerTotals, and the findings in each namespace, as ScannerTotals would count them for a Scanner of the namespace.
// Namespaces without an image that has a report are not in the map.
func (s *Store) NamespaceTotals(ctx context.Context, scanner string, exceptions exception.Set) (total Totals, byNamespace map[string]Totals, err error) {
	byNamespace = make(map[string]Totals)
	err = s.read(ctx, "count findings of namespaces", func(ctx context.Context, q query) error {
		repositories, err := loadRunning(ctx, q, scanner, "", nil, reachRunning)
		if err != nil {
			return err
		}
		total = Totals{}
		scopes := scopesOf(exceptions)
		for _, r := range repositories {
			totals, err := s.countInScopes(ctx, q, r, exceptions, scopes)
			if err != nil {
				return err
			}
			total.add(totals)
			for namespace, part := range r.byNamespace() {
				of, err := s.countRepository(ctx, q, part, exceptions)
				if err != nil {
					return err
				}
				sum := byNamespace[namespace]
				sum.add(of)
				byNamespace[namespace] = sum
			}
		}
		return nil
	})
	return total, byNamespace, err
}

// exceptionScope is an exception that applies to some namespaces only.
type exceptionScope struct {
	uid        string
	namespaces map[string]bool
}

// scopesOf returns the exceptions of a set that apply to some namespaces only.
func scopesOf(exceptions exception.Set) (scopes []exceptionScope) {
	for _, e := range exceptions.All() {
		switch {
		case e.Namespace != "":
			scopes = append(scopes, exceptionScope{e.UID, map[string]bool{e.Namespace: true}})
		case e.Namespaces != nil:
			scopes = append(scopes, exceptionScope{e.UID, e.Namespaces})
		}
	}
	return scopes
}

// countInScopes returns countRepository. What an exception for some of the repository's namespaces suppresses is counted there: in all of them, a
// finding is suppressed only if it is in each.
func (s *Store) countInScopes(ctx context.Context, q query, r runningRepository, exceptions exception.Set, scopes []exceptionScope) (Totals, error) {
	totals, err := s.countRepository(ctx, q, r, exceptions)
	namespaces := slices.Sorted(maps.Keys(r.namespaces()))
	if err != nil || len(namespaces) < 2 {
		return totals, err
	}
	totals.ByException = maps.Clone(totals.ByException)
	for _, scope := range scopes {
		in := slices.DeleteFunc(slices.Clone(namespaces), func(namespace string) bool { return !scope.namespaces[namespace] })
		if len(in) == 0 || len(in) == len(namespaces) {
			continue
		}
		part, err := s.countRepository(ctx, q, r.within(scope.namespaces), exceptions)
		if err != nil {
			return Totals{}, err
		}
		if totals.ByException == nil {
			totals.ByException = make(map[string]int)
		}
		totals.ByException[scope.uid] = part.ByException[scope.uid]
	}
	return totals, nil
}

// TotalsIn returns the sum of NamespaceTotals over some namespaces. It counts only what runs there.
func (s *Store) TotalsIn(ctx context.Context, scanner string, namespaces []string, exceptions exception.Set) (total Totals, err error) {
	route := &Route{All: true, Namespaces: make(map[string]bool, len(namespaces))}
	for _, namespace := range namespaces {
		route.Namespaces[namespace] = true
	}
	err = s.read(ctx, "count findings of some namespaces", func(ctx context.Context, q query) error {
		total = Totals{}
		repositories, err := loadRunning(ctx, q, scanner, "", route, reachRunning)
		if err != nil {
			return err
		}
		for _, r := range repositories {
			for _, part := range r.byNamespace() {
				of, err := s.countRepository(ctx, q, part, exceptions)
				if err != nil {
					return err
				}
				total.add(of)
			}
		}
		return nil
	})
	return total, err
}

// countRepositories adds up the totals of repositories.
func (s *Store) countRepositories(ctx context.Context, q query, repositories []runningRepository, exceptions exception.Set) (total Totals, err error) {
	for _, r := range repositories {
		totals, err := s.countRepository(ctx, q, r, exceptions)
		if err != nil {
			return Totals{}, err
		}
		total.add(totals)
	}
	return total, nil
}

// findingKey identifies what counts once in the images of a repository or of a workload: a vulnerability in a package. Every count, list and message
// uses it. In SQL it is group_key.
type findingKey struct{ id, pkg string }

func keyOf(f finding.Finding) findingKey { return findingKey{f.ID, f.Package.Name} }

// countRepository counts the findings of one repository. A finding that several exceptions suppress together counts for each of them.
func (s *Store) countRepository(ctx context.Context, q query, r runningRepository, exceptions exception.Set) (Totals, error) {
	state := r.stateWithExceptions(exceptions)
	if totals, found := s.counts.get(state); found {
		return totals, nil
	}
	suppressed, err := r.suppressed(ctx, q, exceptions)
	if err != nil {
		return Totals{}, err
	}
	args := []any{sql.Named("reports", r.reportIDs()), sql.Named("suppressed", idsOf(suppressed.whole))}
	var totals Totals
	if totals.Counts, err = sumCounts(ctx, q, countScanner, args, &totals.ToActOn); err != nil {
		return Totals{}, err
	}
	if len(suppressed.whole) > 0 {
		if err := totals.countSuppressed(ctx, q, suppressed, args); err != nil {
			return Totals{}, err
		}
	}
	s.counts.put(state, totals, 1)
	return totals, nil
}

func (t *Totals) countSuppressed(ctx context.Context, q query, suppressed suppressions, args []any) error {
	t.ByException = make(map[string]int)
	return eachRow(ctx, q, listSuppressed, args, func(rows *sql.Rows) error {
		var ids list[int64]
		if err := rows.Scan(&ids); err != nil {
			return err
		}
		by := make(map[string]bool)
		for _, id := range ids {
			for _, e := range suppressed.involved(id) {
				by[e.UID] = true
			}
		}
		for uid := range by {
			t.ByException[uid]++
		}
		t.Suppressed++
		return nil
	})
}

// add adds the numbers of another Totals.
func (t *Totals) add(more Totals) {
	t.Counts = t.Counts.Plus(more.Counts)
	t.Suppressed += more.Suppressed
	t.ToActOn += more.ToActOn
	for uid, n := range more.ByException {
		if t.ByException == nil {
			t.ByException = make(map[string]int)
		}
		t.ByException[uid] += n
	}
}

// maxCachedTotals is how many Totals are cached at least. One takes a few hundred bytes.
const maxCachedTotals = 20_000
