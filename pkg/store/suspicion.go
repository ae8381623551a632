package store

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"
)

// suspectFor is how long a finding that went with suspicious data is missed. Whoever publishes vulnerability data mends a broken
// build within days; what has not come back in two weeks has gone for good.
const suspectFor = 14 * 24 * time.Hour

const (
	// selectLosses counts what has gone since a time and is not back, for each version of an engine's data. It holds whether or
	// not a later version has confirmed it: the next one is often as wrong.
	selectLosses = `SELECT f.gone_data_version, count(*) AS missing, min(f.gone_at)
		FROM findings f INDEXED BY findings_gone CROSS JOIN reports r ON r.id = f.report_id
		WHERE f.gone_at > ? AND f.gone_data_version <> '' AND r.engine = ?
		GROUP BY f.gone_data_version HAVING missing > ? ORDER BY missing DESC, f.gone_data_version LIMIT 1`

	// selectState names the reports of an engine and their revisions: while it is the same, so is what is present and what has gone.
	selectState = `SELECT count(*), coalesce(max(id), 0), coalesce(sum(revision), 0), coalesce(sum(present), 0) FROM reports WHERE engine = ?`
)

// engineState is a row of selectState. No id comes twice and revisions only rise.
type engineState struct{ reports, lastID, revisions, present int64 }

// suspicionMemory remembers for each engine what was suspicious of a state, nil for nothing.
type suspicionMemory struct {
	mutex    sync.Mutex
	byEngine map[string]rememberedSuspicion
}

type rememberedSuspicion struct {
	state     engineState
	suspicion *Suspicion
}

// recall returns what is known of a state. As time passes the losses only get smaller: what was not suspicious does not become so,
// and what was stays as it was until the first of its losses counts no more.
func (m *suspicionMemory) recall(engine string, state engineState, now time.Time) (*Suspicion, bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	known, found := m.byEngine[engine]
	if !found || known.state != state || known.suspicion != nil && now.Sub(known.suspicion.Since) >= suspectFor {
		return nil, false
	}
	return known.suspicion, true
}

func (m *suspicionMemory) remember(engine string, state engineState, suspicion *Suspicion) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.byEngine == nil {
		m.byEngine = make(map[string]rememberedSuspicion)
	}
	m.byEngine[engine] = rememberedSuspicion{state, suspicion}
}

// Suspicion implements Reports. It is about the version of the data with which most has gone.
func (s *SQLite) Suspicion(ctx context.Context, engine string) (suspicion *Suspicion, err error) {
	now := s.now()
	err = s.read(ctx, "look for lost findings of "+engine, func(ctx context.Context, q query) error {
		var state engineState
		err := q.QueryRowContext(ctx, selectState, engine).Scan(&state.reports, &state.lastID, &state.revisions, &state.present)
		if err != nil {
			return err
		}
		var known bool
		if suspicion, known = s.suspicions.recall(engine, state, now); known {
			return nil
		}
		if suspicion, err = worstLoss(ctx, q, engine, int(state.present), now); err == nil {
			s.suspicions.remember(engine, state, suspicion)
		}
		return err
	})
	if err != nil || suspicion == nil {
		return nil, err
	}
	own := *suspicion
	return &own, nil
}

// worstLoss looks for the version of the data with which most has gone, and returns nil if that is not too much to be believed.
func worstLoss(ctx context.Context, q query, engine string, present int, now time.Time) (*Suspicion, error) {
	var worst Suspicion
	var since millis
	err := q.QueryRowContext(ctx, selectLosses, millis{now.Add(-suspectFor)}, engine, SuspectNumber).Scan(&worst.DataVersion, &worst.Missing, &since)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	worst.Of, worst.Since = present+worst.Missing, since.Time
	if err != nil || float64(worst.Missing) <= SuspectShare*float64(worst.Of) {
		return nil, err
	}
	return &worst, nil
}
