package calendar

import (
	"testing"
	"time"
)

// TestParseSchedule: a schedule has five fields or a name, is due at least once in five years and at most once an hour.
func TestParseSchedule(t *testing.T) {
	for expression, want := range map[string]bool{
		"0 8 * * *": true, "30 7 * * MON-FRI": true, "0 8 1 * *": true, "0 */6 * * *": true, "0 8 29 2 *": true, "@daily": true, "@weekly": true, "@hourly": true,
		"0 8 30 2 *": false, "0 0 31 2,4,6,9,11 *": false, "@every 1h": false, "TZ=UTC 0 8 * * *": false, "CRON_TZ=UTC 0 8 * * *": false, "": false, "0 8 * *": false,
		"0 0 8 * * *": false, "60 8 * * *": false, "0 24 * * *": false, "* 8 * * *": false, "*/5 * * * *": false, "0,30 8 * * *": false, "0-59 8 * * *": false,
		"@reboot": false, "daily": false, "0 8 * * MON-": false,
	} {
		if got, err := ParseSchedule(expression, time.UTC); (err == nil) != want || got.IsZero() == want {
			t.Errorf("%q gives %+v and %v, want a schedule: %t", expression, got, err, want)
		}
	}
}

// TestNext: a schedule is due by the clock of its zone, and exactly once for each time of day when the clock is changed.
func TestNext(t *testing.T) {
	berlin, samoa, saoPaulo := zone(t, "Europe/Berlin"), zone(t, "Pacific/Apia"), zone(t, "America/Sao_Paulo")
	for name, tt := range map[string]struct {
		expression string
		location   *time.Location
		after      string
		want       []string
	}{
		"every day":                  {"0 8 * * *", berlin, "2026-05-04 08:00 +0200", []string{"2026-05-05 08:00 +0200", "2026-05-06 08:00 +0200"}},
		"on Mondays":                 {"0 8 * * MON", berlin, "2026-05-04 07:59 +0200", []string{"2026-05-04 08:00 +0200", "2026-05-11 08:00 +0200"}},
		"from summer to winter":      {"0 8 * * *", berlin, "2026-10-24 08:00 +0200", []string{"2026-10-25 08:00 +0100", "2026-10-26 08:00 +0100"}},
		"a time that is skipped":     {"30 2 * * *", berlin, "2026-03-28 02:30 +0100", []string{"2026-03-29 03:00 +0200", "2026-03-30 02:30 +0200"}},
		"a time that comes twice":    {"30 2 * * *", berlin, "2026-10-24 02:30 +0200", []string{"2026-10-25 02:30 +0200", "2026-10-26 02:30 +0100"}},
		"between both":               {"30 2 * * *", berlin, "2026-10-25 02:10 +0100", []string{"2026-10-26 02:30 +0100"}},
		"each hour in spring":        {"0 * * * *", berlin, "2026-03-29 01:00 +0100", []string{"2026-03-29 03:00 +0200", "2026-03-29 04:00 +0200"}},
		"each hour in autumn":        {"0 * * * *", berlin, "2026-10-25 01:00 +0200", []string{"2026-10-25 02:00 +0200", "2026-10-25 03:00 +0100"}},
		"a midnight that is skipped": {"0 0 * * *", saoPaulo, "2018-11-03 12:00 -0300", []string{"2018-11-04 01:00 -0200", "2018-11-05 00:00 -0200"}},
		"a day that is skipped":      {"0 8 * * *", samoa, "2011-12-29 08:00 -1000", []string{"2011-12-31 00:00 +1400", "2011-12-31 08:00 +1400"}},
		"in a leap year":             {"0 8 29 2 *", time.UTC, "2026-01-01 00:00 +0000", []string{"2028-02-29 08:00 +0000"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseSchedule(tt.expression, tt.location)
			if err != nil {
				t.Fatal(err)
			}
			due := at(t, tt.after)
			for _, want := range tt.want {
				if due = s.Next(due); !due.Equal(at(t, want)) {
					t.Fatalf("due at %s, want %s", due, want)
				}
			}
		})
	}
	if got := (Schedule{}).Next(time.Now()); !got.IsZero() {
		t.Errorf("without a schedule, the next time is %s", got)
	}
}

// TestLatest: of several times that were missed, it is the last one.
func TestLatest(t *testing.T) {
	s, err := ParseSchedule("0 8 * * *", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ after, until, want string }{
		"none":        {"2026-05-04 08:00 +0000", "2026-05-05 07:59 +0000", ""},
		"one":         {"2026-05-04 08:00 +0000", "2026-05-05 08:00 +0000", "2026-05-05 08:00 +0000"},
		"several":     {"2026-05-01 08:00 +0000", "2026-05-05 12:00 +0000", "2026-05-05 08:00 +0000"},
		"in no order": {"2026-05-05 08:00 +0000", "2026-05-01 12:00 +0000", ""},
	} {
		var want time.Time
		if tt.want != "" {
			want = at(t, tt.want)
		}
		if got := s.Latest(at(t, tt.after), at(t, tt.until)); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
