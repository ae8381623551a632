package calendar

import (
	"errors"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is a list of times that recur. The zero Schedule has none.
type Schedule struct {
	expression string
	// wall has the times as the clock shows them, as if they were of UTC.
	wall     cron.Schedule
	location *time.Location
}

// The fields of CronJobs in Kubernetes, which has them from the same library.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// beforeLeapYear is followed by each day of a year within the five years that the library looks ahead.
var beforeLeapYear = time.Date(2027, 12, 31, 0, 0, 0, 0, time.UTC)

// Errors of ParseSchedule.
var (
	errNotOften   = errors.New("the minute must be one number, so that the schedule is due at most once an hour")
	errInterval   = errors.New("an interval such as @every begins anew with each start: use five fields")
	errZoneInside = errors.New("the time zone belongs in the field timeZone")
	errNever      = errors.New("it is never due: no month has this day")
)

// ParseSchedule returns the schedule of an expression with the five fields of cron, or a name such as @daily, by the clock of a time zone. A schedule
// is due at least once in five years, and at most once an hour.
func ParseSchedule(expression string, location *time.Location) (Schedule, error) {
	switch {
	case strings.Contains(expression, "TZ="):
		return Schedule{}, errZoneInside
	case strings.HasPrefix(expression, "@every"):
		return Schedule{}, errInterval
	}
	wall, err := parser.Parse(expression)
	if err != nil {
		return Schedule{}, err
	}
	first := wall.Next(beforeLeapYear)
	switch {
	case first.IsZero():
		return Schedule{}, errNever
	case wall.Next(first).Sub(first) < time.Hour || !strings.HasPrefix(expression, "@") && strings.ContainsAny(strings.Fields(expression)[0], "*/,-"):
		return Schedule{}, errNotOften
	}
	return Schedule{expression: expression, wall: wall, location: location}, nil
}

// IsZero reports whether the schedule has no times.
func (s Schedule) IsZero() bool { return s.wall == nil }

// String returns the expression and the time zone; empty for a schedule without times.
func (s Schedule) String() string {
	if s.IsZero() {
		return ""
	}
	return s.expression + " " + s.location.String()
}

// Next returns the first time after another at which the schedule is due; zero for a schedule without times. A time of day that the clock skips is due
// when the clock is set forward, and one that comes twice is due the first time.
func (s Schedule) Next(after time.Time) time.Time {
	if s.IsZero() {
		return time.Time{}
	}
	local := after.In(s.location)
	year, month, day := local.Date()
	hour, minute, second := local.Clock()
	wall := time.Date(year, month, day, hour, minute, second, 0, time.UTC)
	for {
		// After a change of the clock, the next time of day can be one that was before.
		if wall = s.wall.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		at := time.Duration(wall.Hour())*time.Hour + time.Duration(wall.Minute())*time.Minute
		if due := onDay(wall.Year(), wall.Month(), wall.Day(), at, s.location); due.After(after) {
			return due
		}
	}
}

// Latest returns the last time at which the schedule is due that is after one time, and not after another; zero if there is none. It looks at each in
// between.
func (s Schedule) Latest(after, until time.Time) (latest time.Time) {
	for due := s.Next(after); !due.IsZero() && !due.After(until); due = s.Next(due) {
		latest = due
	}
	return latest
}
