package calendar

import (
	"fmt"
	"slices"
	"time"
)

// Period recurs on days of the week.
type Period struct {
	// Days are those on which the period begins; nil for every day.
	Days []time.Weekday
	// Start and End are times of day, as the time since midnight by the clock. The period lasts until End of the same day, or of the next day if End
	// is not after Start.
	Start, End time.Duration
	Location   *time.Location
}

// ParseTimeOfDay returns the time since midnight of a time of day such as 08:30.
func ParseTimeOfDay(text string) (time.Duration, error) {
	at, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, fmt.Errorf("%.16q is no time of day from 00:00 to 23:59", text)
	}
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, nil
}

// maxEnds bounds the periods that follow each other without a gap, so that periods that leave no gap have an end: two weeks of eight periods a day.
const maxEnds = 14 * 8

// Until returns when the last of those periods ends that contain a time, or begin when the one before ends; zero if none contains it. If there is
// never a gap, it returns a time after at least a week.
func Until(periods []Period, now time.Time) (end time.Time) {
	for range maxEnds {
		next := later(end, now)
		for _, p := range periods {
			if until := p.until(later(end, now)); until.After(next) {
				next = until
			}
		}
		if !next.After(later(end, now)) {
			break
		}
		end = next
	}
	return end
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// until returns when the period that contains a time ends; zero if there is none.
func (p Period) until(now time.Time) (end time.Time) {
	local := now.In(p.Location)
	endsAt := p.End
	if endsAt <= p.Start {
		endsAt += 24 * time.Hour
	}
	for _, ago := range []int{0, 1} { // a period begins today or yesterday
		day := time.Date(local.Year(), local.Month(), local.Day()-ago, 0, 0, 0, 0, time.UTC)
		if p.Days != nil && !slices.Contains(p.Days, day.Weekday()) {
			continue
		}
		last := day
		if endsAt >= 24*time.Hour {
			last = day.AddDate(0, 0, 1)
		}
		start := onDay(day.Year(), day.Month(), day.Day(), p.Start, p.Location)
		ends := onDay(last.Year(), last.Month(), last.Day(), p.End, p.Location)
		if !now.Before(start) && now.Before(ends) {
			end = later(end, ends)
		}
	}
	return end
}
