package store

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"
)

// quarantine is how long a finding that disappeared with anomalous data counts as missing. Publishers of vulnerability data fix a
// broken build within days. What has not come back in two weeks is gone for good.
const quarantine = 14 * 24 * time.Hour

// DataAnomaly returns the anomaly of an engine's data as a Scanner (by UID) sees it, nil if there is none. It considers what the
// operator itself cataloged, and the credential scopes of the Scanner's images. What other namespaces uploaded counts only if most
// of them show the same. During an anomaly no finding counts as fixed. The anomaly ends when the missing findings are back, or after
// two weeks. If several versions of the data are anomalous, it returns the one with the most missing findings.
func (s *Store) DataAnomaly(ctx context.Context, scanner, engine string) (anomaly *DataAnomaly, err error) {
	var scopes []Scope
	err = s.read(ctx, "list scopes of scanner", func(ctx context.Context, q query) (err error) {
		scopes, err = scopesOf(ctx, q, scanner, engine)
		return err
	})
	if err != nil {
		return nil, err
	}
	now := s.now()
	err = s.useLossCounts(ctx, engine, func(c *lossCounts) { anomaly = c.anomaly(scopes, now) })
	return anomaly, err
}

// scopesOf lists the credential scopes whose reports count for a Scanner: the cluster's, and those of the Scanner's images.
func scopesOf(ctx context.Context, q query, scanner, engine string) ([]Scope, error) {
	rows, err := q.QueryContext(ctx, `SELECT DISTINCT scope FROM scanner_images WHERE scanner = ? AND +engine = ? AND scope <> ''`, scanner, engine)
	scopes, err := collect(rows, err, func(rows *sql.Rows) (scope Scope, err error) { return scope, rows.Scan(&scope) })
	return append(scopes, Cluster), err
}

// anomaly returns the anomaly that these scopes show together. If they show none, it returns one that most namespaces show.
func (c *lossCounts) anomaly(scopes []Scope, now time.Time) *DataAnomaly {
	if own := c.worst(scopes, now); own != nil {
		return own
	}
	return c.widespread(now)
}

// worst returns the version of the data with the most missing findings in these scopes together, nil if they are within the
// bounds.
func (c *lossCounts) worst(scopes []Scope, now time.Time) *DataAnomaly {
	missing, present := map[string]loss{}, 0
	for _, scope := range scopes {
		present += c.present[scope]
		for version, l := range c.recent(scope, now) {
			missing[version] = l.plus(missing[version])
		}
	}
	versions := byMissing(missing)
	if len(versions) == 0 {
		return nil
	}
	most := missing[versions[0]]
	if most.missing <= AnomalyCount || !most.exceeds(present) {
		return nil
	}
	return &DataAnomaly{DataVersion: versions[0], Missing: most.missing, Total: present + most.missing, Since: most.since}
}

// widespread returns a version of the data with too many missing findings in most namespaces; nil if there is none. Each
// namespace has one vote. The majority and the number of findings must hold without any one of them, so that no single namespace
// can cause an anomaly by what it uploads.
func (c *lossCounts) widespread(now time.Time) *DataAnomaly {
	votes, sums, largest := map[string]int{}, map[string]loss{}, map[string]int{}
	namespaces := 0
	for scope := range c.scopes() {
		recent := c.recent(scope, now)
		if scope == Cluster || c.present[scope] == 0 && len(recent) == 0 {
			continue
		}
		namespaces++
		for version, l := range recent {
			if l.exceeds(c.present[scope]) {
				votes[version]++
				sums[version] = l.plus(sums[version])
				largest[version] = max(largest[version], l.missing)
			}
		}
	}
	for _, version := range byMissing(sums) {
		if 2*(votes[version]-1) > namespaces-1 && sums[version].missing-largest[version] > AnomalyCount {
			return &DataAnomaly{DataVersion: version, Namespaces: votes[version], TotalNamespaces: namespaces, Since: sums[version].since}
		}
	}
	return nil
}

// byMissing orders versions by the number of missing findings, the highest first.
func byMissing(losses map[string]loss) []string {
	return slices.SortedFunc(maps.Keys(losses), func(a, b string) int {
		return cmp.Or(cmp.Compare(losses[b].missing, losses[a].missing), cmp.Compare(a, b))
	})
}

// exceeds reports whether the share of missing findings is above AnomalyShare.
func (l loss) exceeds(present int) bool {
	return float64(l.missing) > AnomalyShare*float64(present+l.missing)
}
