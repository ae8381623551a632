package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// DataAnomaly means that too many findings have disappeared with one version of an engine's data for that data to be trusted.
type DataAnomaly struct {
	DataVersion string
	// Missing of Total findings have disappeared with that version, the first of them at Since.
	Missing, Total int
	Since          time.Time
	// Namespaces of TotalNamespaces namespaces show the anomaly. They are set if the Scanner's own images do not show it: then Missing
	// and Total are 0.
	Namespaces, TotalNamespaces int
}

// Data is anomalous when the findings that disappear with it exceed both of these bounds.
const (
	AnomalyShare = 0.2
	AnomalyCount = 50
)

// quarantine is how long a finding that disappeared with anomalous data counts as missing. Publishers of vulnerability data fix a
// broken build within days. What has not come back in two weeks is gone for good.
const quarantine = 14 * 24 * time.Hour

const (
	// selectOwnAnomaly selects the version of the data with the most missing findings in the cluster's scope and in those of the Scanner's
	// images together, if there are too many. The plus prevents SQLite from iterating over all images of the engine.
	selectOwnAnomaly = `
		WITH own AS (SELECT '' AS scope UNION SELECT scope FROM scanner_images WHERE scanner = @scanner AND unindexed(engine) = @engine AND cluster = 0),
		kept AS (SELECT coalesce(sum(present), 0) AS present FROM present_counts WHERE engine = @engine AND scope IN (SELECT scope FROM own))
		SELECT data_version, min(since), sum(missing), max(present) + sum(missing), 0, 0 FROM loss_counts ORDERED JOIN kept ON true
		WHERE engine = @engine AND scope IN (SELECT scope FROM own) AND since > @quarantined
		GROUP BY data_version HAVING sum(missing) > @count AND sum(missing) > @share * (max(present) + sum(missing))
		ORDER BY sum(missing) DESC, data_version LIMIT 1`

	// selectWidespreadAnomaly selects the version of the data with the most missing findings if too many are missing in most namespaces.
	// Each namespace has one vote. The majority and the number of findings must hold without any one of them, so that no single namespace
	// can cause an anomaly by what it uploads.
	selectWidespreadAnomaly = `
		WITH lost AS (
			SELECT l.scope, l.data_version, min(l.since) AS since, sum(l.missing) AS missing, coalesce(max(p.present), 0) AS present
			FROM loss_counts l LEFT JOIN present_counts p ON p.engine = l.engine AND p.scope = l.scope
			WHERE l.engine = @engine AND l.scope <> '' AND l.since > @quarantined GROUP BY l.scope, l.data_version),
		namespaces AS (SELECT count(*) AS total FROM (
			SELECT scope FROM present_counts WHERE engine = @engine AND scope <> '' AND present <> 0 UNION SELECT scope FROM lost) AS scopes)
		SELECT data_version, min(since), 0, 0, count(*), max(total) FROM lost ORDERED JOIN namespaces ON true
		WHERE missing > @share * (present + missing)
		GROUP BY data_version HAVING 2 * (count(*) - 1) > max(total) - 1 AND sum(missing) - max(missing) > @count
		ORDER BY sum(missing) DESC, data_version LIMIT 1`
)

// DataAnomaly returns the anomaly of an engine's data as a Scanner (by UID) sees it, nil if there is none. It considers what the
// operator itself cataloged, and the credential scopes of a Scanner's images, but not those of a ClusterScanner's. What other namespaces uploaded counts only if most
// of them show the same. During an anomaly no finding counts as fixed. The anomaly ends when the missing findings are back, or after
// two weeks. If several versions of the data are anomalous, it returns the one with the most missing findings.
func (s *Store) DataAnomaly(ctx context.Context, scanner, engine string) (anomaly *DataAnomaly, err error) {
	args := []any{
		sql.Named("scanner", scanner), sql.Named("engine", engine), sql.Named("quarantined", millis{s.now().Add(-quarantine)}),
		sql.Named("share", AnomalyShare), sql.Named("count", AnomalyCount),
	}
	err = s.read(ctx, "look for an anomaly in the data of "+engine, func(ctx context.Context, q query) error {
		for _, statement := range []string{selectOwnAnomaly, selectWidespreadAnomaly} {
			var found DataAnomaly
			var since millis
			err := q.QueryRowContext(ctx, statement, args...).
				Scan(&found.DataVersion, &since, &found.Missing, &found.Total, &found.Namespaces, &found.TotalNamespaces)
			if err == nil {
				found.Since = since.Time
				anomaly = &found
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		return nil
	})
	return anomaly, err
}
