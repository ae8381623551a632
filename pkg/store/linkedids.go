package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

const selectMissing = `SELECT f.key, f.package, f.version, f.type, f.purl, f.paths, f.aliases
	FROM ids(?) missing ORDERED JOIN findings f ON f.id = missing.value WHERE f.aliases <> ''`

// findRenamed marks the known findings that a report has, and finds those that it has under another ID: in the same package, if
// the ID of one is among the aliases of the other. A common alias proves nothing, since one advisory covers many vulnerabilities.
// Each known finding is assigned to at most one of the report's findings.
func findRenamed(ctx context.Context, q query, known map[[sha256.Size]byte]*knownFinding, rows []*findingRow) (map[*findingRow]*knownFinding, error) {
	fresh := make(map[[sha256.Size]byte]*findingRow)
	missing := len(known)
	for _, row := range rows {
		if k := known[row.key]; k != nil {
			k.seen = true
			missing--
		} else {
			fresh[row.key] = row
		}
	}
	if len(fresh) == 0 || missing == 0 {
		return nil, nil
	}
	links := make(map[*findingRow][]*knownFinding)
	for _, row := range fresh {
		for _, key := range keysUnderAliases(row.Finding) {
			if k := known[key]; k != nil && !k.seen {
				links[row] = append(links[row], k)
			}
		}
	}
	if err := linkMissing(ctx, q, known, fresh, links); err != nil {
		return nil, err
	}
	return assign(rows, links), nil
}

// linkMissing adds the links that follow from the aliases of known findings that the report lacks.
func linkMissing(ctx context.Context, q query, known map[[sha256.Size]byte]*knownFinding, fresh map[[sha256.Size]byte]*findingRow, links map[*findingRow][]*knownFinding) error {
	var missing []int64
	for _, k := range known {
		if !k.seen {
			missing = append(missing, k.id)
		}
	}
	return eachRow(ctx, q, selectMissing, []any{jsonArray(missing)}, func(rows *sql.Rows) error {
		var f finding.Finding
		var key sql.RawBytes
		p := &f.Package
		if err := rows.Scan(&key, &p.Name, &p.Version, &p.Type, &p.PURL, (*paths)(&f.Paths), (*list[string])(&f.Aliases)); err != nil {
			return err
		}
		k := known[[sha256.Size]byte(key)]
		for _, key := range keysUnderAliases(f) {
			if row := fresh[key]; row != nil {
				links[row] = append(links[row], k)
			}
		}
		return nil
	})
}

// keysUnderAliases returns the key that a finding would have under each of its aliases.
func keysUnderAliases(f finding.Finding) (keys [][sha256.Size]byte) {
	for _, alias := range f.Aliases {
		f.ID = finding.Canonical(alias, nil)
		keys = append(keys, f.KeySum())
	}
	return keys
}

// assign gives each row, in order, at most one of the known findings that it is linked to: a present one before a gone one, and
// then the oldest.
func assign(rows []*findingRow, links map[*findingRow][]*knownFinding) map[*findingRow]*knownFinding {
	renamed := make(map[*findingRow]*knownFinding, len(links))
	for _, row := range rows {
		var best *knownFinding
		for _, k := range links[row] {
			if !k.seen && (best == nil || earlier(k, best)) {
				best = k
			}
		}
		if best != nil {
			best.seen = true
			renamed[row] = best
		}
	}
	return renamed
}

func earlier(a, b *knownFinding) bool {
	if a.gone != b.gone {
		return b.gone
	}
	return cmp.Less(a.id, b.id)
}
