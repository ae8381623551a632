package calendar

import (
	"testing"
	"time"
)

// zone returns a time zone.
func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	location, err := LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return location
}

// at returns a time that is written with its offset from UTC.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse("2006-01-02 15:04 -0700", text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestLoadLocation: only names of the IANA database are time zones, whatever the machine has.
func TestLoadLocation(t *testing.T) {
	t.Setenv("ZONEINFO", "/nonexistent")
	for name, want := range map[string]bool{
		"UTC": true, "Europe/Berlin": true, "America/Argentina/Buenos_Aires": true, "Etc/GMT+8": true,
		"": false, "Local": false, "local": false, "Europe/Berln": false, "CEST": false, "+02:00": false, "../etc/passwd": false, "/etc/localtime": false,
	} {
		location, err := LoadLocation(name)
		if (err == nil) != want || want && location.String() != name {
			t.Errorf("%q is %v, error %v; want a time zone: %t", name, location, err, want)
		}
	}
}

// TestParseTimeOfDay: a time of day has hours and minutes.
func TestParseTimeOfDay(t *testing.T) {
	for text, want := range map[string]time.Duration{"00:00": 0, "08:30": 8*time.Hour + 30*time.Minute, "23:59": 24*time.Hour - time.Minute} {
		if got, err := ParseTimeOfDay(text); err != nil || got != want {
			t.Errorf("%s is %s, error %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "8:30", "24:00", "12:60", "08:30:00", "noon"} {
		if got, err := ParseTimeOfDay(text); err == nil {
			t.Errorf("%q is %s, want an error", text, got)
		}
	}
}

// TestUntil: a period ends by the clock of its zone, on the days on which the clock is changed, too.
func TestUntil(t *testing.T) {
	berlin, samoa, lordHowe := zone(t, "Europe/Berlin"), zone(t, "Pacific/Apia"), zone(t, "Australia/Lord_Howe")
	const hour = time.Hour
	night := Period{Start: 20 * hour, End: 8 * hour, Location: berlin}
	lunch := Period{Start: 12 * hour, End: 13 * hour, Location: berlin}
	weekend := Period{Days: []time.Weekday{time.Saturday, time.Sunday}, Location: berlin}
	friday := Period{Days: []time.Weekday{time.Friday}, Start: 22 * hour, End: 6 * hour, Location: berlin}
	half := hour / 2
	gap := Period{Start: hour, End: 2*hour + half, Location: berlin}
	afterGap := Period{Start: 2*hour + half, End: 4 * hour, Location: berlin}
	for name, tt := range map[string]struct {
		periods   []Period
		now, want string
	}{
		"no period":                             {nil, "2026-05-04 12:00 +0200", ""},
		"before it":                             {[]Period{lunch}, "2026-05-04 11:59 +0200", ""},
		"its start belongs to it":               {[]Period{lunch}, "2026-05-04 12:00 +0200", "2026-05-04 13:00 +0200"},
		"its end does not":                      {[]Period{lunch}, "2026-05-04 13:00 +0200", ""},
		"before midnight":                       {[]Period{night}, "2026-05-04 23:00 +0200", "2026-05-05 08:00 +0200"},
		"after midnight":                        {[]Period{night}, "2026-05-05 01:00 +0200", "2026-05-05 08:00 +0200"},
		"in another zone":                       {[]Period{night}, "2026-05-05 00:00 +0000", "2026-05-05 08:00 +0200"},
		"in winter":                             {[]Period{night}, "2026-01-05 06:59 +0000", "2026-01-05 08:00 +0100"},
		"whole days":                            {[]Period{weekend}, "2026-05-09 00:00 +0200", "2026-05-11 00:00 +0200"},
		"a day that is not listed":              {[]Period{weekend}, "2026-05-08 23:59 +0200", ""},
		"the night after a listed day":          {[]Period{friday}, "2026-05-09 05:00 +0200", "2026-05-09 06:00 +0200"},
		"the night before a listed day":         {[]Period{friday}, "2026-05-08 05:00 +0200", ""},
		"periods that overlap":                  {[]Period{weekend, night}, "2026-05-08 21:00 +0200", "2026-05-11 08:00 +0200"},
		"the night of the change to summer":     {[]Period{night}, "2026-03-28 20:00 +0100", "2026-03-29 08:00 +0200"},
		"the night of the change to winter":     {[]Period{night}, "2026-10-24 20:00 +0200", "2026-10-25 08:00 +0100"},
		"an end that the clock skips":           {[]Period{gap}, "2026-03-29 01:59 +0100", "2026-03-29 03:00 +0200"},
		"after an end that the clock skips":     {[]Period{gap}, "2026-03-29 03:00 +0200", ""},
		"a start that the clock skips":          {[]Period{afterGap}, "2026-03-29 03:00 +0200", "2026-03-29 04:00 +0200"},
		"an end that comes twice, first":        {[]Period{gap}, "2026-10-25 02:29 +0200", "2026-10-25 02:30 +0200"},
		"an end that comes twice, between both": {[]Period{gap}, "2026-10-25 02:10 +0100", ""},
		"a start that comes twice":              {[]Period{afterGap}, "2026-10-25 02:30 +0200", "2026-10-25 04:00 +0100"},
		"a start that comes twice, in between":  {[]Period{afterGap}, "2026-10-25 02:10 +0100", "2026-10-25 04:00 +0100"},
		"a zone that skipped a day":             {[]Period{{Start: 20 * hour, End: 8 * hour, Location: samoa}}, "2011-12-29 21:00 -1000", "2011-12-31 08:00 +1400"},
		"half an hour of summer":                {[]Period{{Start: hour, End: 2*hour + half/3, Location: lordHowe}}, "2026-10-04 01:30 +1030", "2026-10-04 02:30 +1100"},
	} {
		t.Run(name, func(t *testing.T) {
			var want time.Time
			if tt.want != "" {
				want = at(t, tt.want)
			}
			if got := Until(tt.periods, at(t, tt.now)); !got.Equal(want) {
				t.Errorf("at %s the end is %s, want %s", tt.now, got, tt.want)
			}
		})
	}
}

// TestUntilWithoutGap: periods without a gap have an end far ahead, after which they are looked at again.
func TestUntilWithoutGap(t *testing.T) {
	now := at(t, "2026-05-04 12:00 +0000")
	if got := Until([]Period{{Location: time.UTC}}, now); got.Before(now.AddDate(0, 0, 7)) || got.After(now.AddDate(1, 0, 0)) {
		t.Errorf("the end is %s, want one in some weeks", got)
	}
}

// TestUntilAlwaysAhead: in all zones with odd changes of the clock, whatever the time, an end is in the future and within two days, and there is no
// instant at which a period that was announced to last has ended earlier.
func TestUntilAlwaysAhead(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "America/St_Johns", "Africa/Casablanca", "Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Chatham", "UTC"} {
		location := zone(t, name)
		for _, p := range []Period{
			{Start: 20 * time.Hour, End: 8 * time.Hour, Location: location}, {Start: 2 * time.Hour, End: 3 * time.Hour, Location: location},
			{Start: 150 * time.Minute, End: 150 * time.Minute, Location: location}, {Days: []time.Weekday{time.Sunday}, Start: 23 * time.Hour, End: time.Hour, Location: location},
		} {
			var promised time.Time
			start := time.Date(2026, 1, 1, 0, 7, 0, 0, time.UTC)
			for now := start; now.Before(start.AddDate(1, 0, 0)); now = now.Add(23 * time.Minute) {
				got := p.until(now)
				if !got.IsZero() && (!got.After(now) || got.After(now.Add(49*time.Hour))) {
					t.Fatalf("%s: at %s the period %s to %s ends at %s", name, now.In(location), p.Start, p.End, got)
				}
				if now.Before(promised) && got.Before(promised) {
					t.Fatalf("%s: at %s the period %s to %s ends at %s, and was to end at %s", name, now.In(location), p.Start, p.End, got, promised)
				}
				promised = got
			}
		}
	}
}
