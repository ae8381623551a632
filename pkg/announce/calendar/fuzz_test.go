package calendar

import (
	"testing"
	"time"
)

// zones change their clocks by an hour, by half an hour, at midnight, by two hours, by a day, and never.
var zones = []string{"Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Antarctica/Troll", "Pacific/Apia", "Asia/Kathmandu", "UTC"}

// anyTime returns a time between 2000 and 2068.
func anyTime(seconds uint32) time.Time { return time.Unix(946684800+int64(seconds)/2, 0) }

// FuzzSchedule: an expression is refused, or its times are after each other, an hour at least where no clock is changed, and the same from wherever one
// looks. A zone is one of the IANA database under its own name, or refused with a short text.
func FuzzSchedule(f *testing.F) {
	for i, expression := range []string{
		"0 8 * * *", "30 7 * * MON-FRI", "0 */6 * * *", "0 8 29 2 *", "@hourly", "@every 1s", "TZ=UTC 0 8 * * *", "0 0 31 2,4 *", "*/5 * * * *", "? 8 * * *", " @every 1s", "30 2 * 3,10 SUN",
		"0-0 8 * * *", "00000000000000000008 1 ? * 0", "",
	} {
		f.Add(expression, zones[i%len(zones)], uint32(i)<<27)
	}
	f.Add("0 8 * * *", "../../etc/passwd", uint32(0))
	f.Add("30 2 * * *", "Europe/Berlin", uint32(1692411600)) // 2:10 on the day on which 2:30 comes twice, for the second time
	f.Fuzz(func(t *testing.T, expression, zone string, seconds uint32) {
		const maxText = 512
		location, err := LoadLocation(zone)
		if err != nil {
			if len(err.Error()) > maxText {
				t.Errorf("%q is refused with %q", zone, err)
			}
			return
		}
		if location.String() != zone {
			t.Errorf("%q is the zone %s", zone, location)
		}
		s, err := ParseSchedule(expression, location)
		if err != nil {
			return
		}
		if again, err := ParseSchedule(expression, location); err != nil || again.String() != s.String() || s.IsZero() {
			t.Errorf("%q is %q, and then %q: %v", expression, s, again, err)
		}
		now := anyTime(seconds)
		first := s.Next(now)
		if !first.After(now) {
			t.Fatalf("%q is due at %s after %s", s, first, now)
		}
		second := s.Next(first)
		if !second.After(first) || zone == "UTC" && second.Sub(first) < time.Hour {
			t.Errorf("%q is due at %s and at %s", s, first, second)
		}
		for _, between := range []time.Time{first.Add(-time.Nanosecond), now.Add(first.Sub(now) / 2)} {
			if due := s.Next(between); !due.Equal(first) {
				t.Errorf("%q is due at %s after %s, and at %s after %s", s, first, now, due, between)
			}
		}
		if last := s.Latest(now, first); !last.Equal(first) {
			t.Errorf("%q was due last at %s until %s", s, last, first)
		}
		if last := s.Latest(now, first.Add(-time.Nanosecond)); !last.IsZero() {
			t.Errorf("%q was due last at %s before %s", s, last, first)
		}
	})
}

// FuzzPeriods: a time of day is refused, or is the one that is written. Quiet periods end after the time that is in them, at the same time from wherever one
// looks, and are over then.
func FuzzPeriods(f *testing.F) {
	f.Add("20:00", "08:00", uint8(0), "12:30", "13:30", uint8(0), uint8(0), uint32(1)<<30)
	f.Add("20:00", "08:00", uint8(0), "12:30", "13:30", uint8(0), uint8(0), uint32(158400)) // 23:00
	f.Add("02:30", "03:30", uint8(1), "00:00", "24:00", uint8(127), uint8(1), uint32(1)<<31)
	f.Add("00:00", "00:00", uint8(127), "23:59", "00:01", uint8(64), uint8(4), uint32(757382400))
	f.Add("8:00", "08:00:00", uint8(0), "", "noon", uint8(0), uint8(2), uint32(0))
	f.Fuzz(func(t *testing.T, start, end string, days uint8, otherStart, otherEnd string, otherDays, zoneIndex uint8, seconds uint32) {
		location := zone(t, zones[int(zoneIndex)%len(zones)])
		var periods []Period
		for _, p := range []struct {
			start, end string
			days       uint8
		}{{start, end, days}, {otherStart, otherEnd, otherDays}} {
			from, isFrom := timeOfDay(t, p.start)
			to, isTo := timeOfDay(t, p.end)
			if !isFrom || !isTo {
				continue
			}
			made := Period{Start: from, End: to, Location: location}
			for day := range time.Saturday + 1 {
				if p.days&(1<<day) != 0 {
					made.Days = append(made.Days, day)
				}
			}
			periods = append(periods, made)
		}
		now := anyTime(seconds)
		over := Until(periods, now)
		if over.IsZero() {
			return
		}
		// Without a gap, the end is some time after a week.
		const aWeek = 7 * 24 * time.Hour
		if !over.After(now) || len(periods) == 0 {
			t.Fatalf("%+v is quiet at %s until %s", periods, now, over)
		}
		if over.Sub(now) > aWeek {
			return
		}
		if between := now.Add(over.Sub(now) / 2); !Until(periods, between).Equal(over) {
			t.Errorf("%+v is quiet at %s until %s, and at %s until %s", periods, now, over, between, Until(periods, between))
		}
		if again := Until(periods, over); !again.IsZero() {
			t.Errorf("%+v is quiet at %s until %s, and then until %s", periods, now, over, again)
		}
	})
}

// timeOfDay parses a time of day, and fails the test unless it is the one that is written.
func timeOfDay(t *testing.T, text string) (at time.Duration, ok bool) {
	t.Helper()
	at, err := ParseTimeOfDay(text)
	if err == nil && time.Unix(0, 0).UTC().Add(at).Format("15:04") != text {
		t.Errorf("%q is the time %s", text, at)
	}
	return at, err == nil
}
