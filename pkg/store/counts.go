package store

import (
	"context"
	"database/sql"
	"sync"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// countScanner counts once what several of a repository's images have, at its worst.
const countScanner = `
	SELECT severity, count(*), sum(fixable), sum(known_exploited) FROM (
		SELECT max(f.severity) AS severity, max(f.fixable) AS fixable, max(f.known_exploited) AS known_exploited
		FROM json_each(@reports) j
		CROSS JOIN findings f INDEXED BY findings_present ON f.report_id = j.value
		CROSS JOIN vulnerabilities v ON v.id = f.vulnerability_id
		WHERE f.gone_at IS NULL
		GROUP BY v.canonical_id, f.package)
	GROUP BY severity`

// ScannerTotals implements Announcements. Only repositories that have changed since the last call are counted again.
func (s *SQLite) ScannerTotals(ctx context.Context, scanner string, _ exception.Set) (total Totals, err error) {
	err = s.read(ctx, "count findings of scanner", func(ctx context.Context, q query) error {
		repositories, err := running(ctx, q, scanner, "")
		if err != nil {
			return err
		}
		for _, r := range repositories {
			counts, err := s.countRepository(ctx, q, r)
			if err != nil {
				return err
			}
			total.Counts = plus(total.Counts, counts)
		}
		return nil
	})
	if err != nil {
		return Totals{}, err
	}
	return total, nil
}

func (s *SQLite) countRepository(ctx context.Context, q query, r runningRepository) (finding.Counts, error) {
	state := r.state()
	if counts, found := s.counts.recall(state); found {
		return counts, nil
	}
	reports, err := r.reports()
	if err != nil {
		return finding.Counts{}, err
	}
	rows, err := q.QueryContext(ctx, countScanner, sql.Named("reports", reports))
	counts, err := sumCounts(rows, err)
	if err == nil {
		s.counts.remember(state, counts)
	}
	return counts, err
}

func plus(a, b finding.Counts) finding.Counts {
	for _, severity := range finding.Severities() {
		a.Add(severity, b.Of(severity))
	}
	a.Fixable += b.Fixable
	a.KnownExploited += b.KnownExploited
	return a
}

// maxCounts bounds a countMemory, which then begins anew. One entry is some hundred bytes.
const maxCounts = 20_000

// countMemory remembers the counts of states of runningRepository. Nothing in it is ever wrong, since a state
// names the same findings for ever.
type countMemory struct {
	mutex   sync.Mutex
	byState map[string]finding.Counts
}

func (m *countMemory) recall(state string) (finding.Counts, bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	counts, found := m.byState[state]
	return counts, found
}

func (m *countMemory) remember(state string, counts finding.Counts) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.byState == nil || len(m.byState) >= maxCounts {
		m.byState = make(map[string]finding.Counts)
	}
	m.byState[state] = counts
}
