package store

import (
	"database/sql"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

func TestRoutes(t *testing.T) {
	for _, test := range []struct {
		named      string
		unassigned bool
		want       bool
	}{
		{"", true, true}, {"", false, false}, {"slack", false, true}, {"slack", true, true}, {"mail", true, false}, {"mail", false, false},
		{"mail,slack", false, true}, {"mail,mail", true, false}, {"gone", true, true}, {"gone", false, false}, {"gone,mail", true, false},
		{"gone,slack", false, true}, {"slack2", false, false},
	} {
		route := &Route{Receiver: "slack", Known: []string{"mail", "slack"}, Unassigned: test.unassigned}
		if got := route.passes(Workload{Receivers: test.named}); got != test.want {
			t.Errorf("a workload that names %q passes: %t, unassigned pass: %t, want %t", test.named, got, test.unassigned, test.want)
		}
	}
}

// TestPrefilterSelectsEveryChange checks that the SQL prefilter selects exactly the pairs of a finding and a record that are a change.
func TestPrefilterSelectsEveryChange(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		const pairs = `
			WITH severities(s) AS (VALUES (0), (1), (2), (3), (4), (5)), bits(b) AS (VALUES (0), (1)),
			wanted AS (SELECT s AS severity, x.b AS fixable, y.b AS known_exploited FROM severities, bits x, bits y),
			records AS (
				SELECT 1 AS receiver_id, s AS severity, w.b AS fixable, x.b AS known_exploited, nullif(y.b, 0) AS fixed_at, z.b AS excepted
				FROM severities, bits w, bits x, bits y, bits z
				UNION ALL SELECT 1, -1, -1, -1, nullif(y.b, 0), z.b FROM bits y, bits z
				UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL)
			SELECT wanted.severity, wanted.fixable, wanted.known_exploited, a.receiver_id IS NOT NULL, ` + announcedColumns + `, ` + differs + `
			FROM wanted CROSS JOIN records a`
		for _, threshold := range []finding.Severity{finding.Negligible, finding.Medium, finding.High, finding.Critical} {
			compared := 0
			must(t, eachRow(t.Context(), f.reading(), pairs, []any{sql.Named("severity", int64(threshold))}, func(rows *sql.Rows) error {
				var present diff.Present
				var record diff.Announced
				var hasRecord, selected bool
				targets := append([]any{&present.Severity, &present.Fixable, &present.KnownExploited, &hasRecord}, announcedTargets(&record)...)
				if err := rows.Scan(append(targets, &selected)...); err != nil {
					return err
				}
				announced := &record
				if !hasRecord {
					announced = nil
				}
				compared++
				if d := diff.Finding(&present, announced, diff.Policy{Threshold: threshold}); (d.Announce != "") != selected {
					t.Errorf("%+v with the record %+v (%t) is %+v, and selected: %t", present, record, hasRecord, d, selected)
				}
				return nil
			}))
			equal(t, "pairs", compared, 6*4*(6*16+4+1))
		}
	})
}
