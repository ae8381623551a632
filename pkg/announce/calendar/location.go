// Package calendar computes times that recur by the clock on the wall of a time zone: the quiet periods of a receiver, and when its summaries are
// due.
//
// It is pure: the present time comes from its caller. It knows neither what a receiver gets nor who configures it. Time zones come from the IANA
// database that is part of the program, since an image without an operating system may have none.
package calendar

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the time zones
)

// LoadLocation returns a time zone by its name in the IANA database, such as Europe/Berlin or UTC. The error names what is wrong with the name.
func LoadLocation(name string) (*time.Location, error) {
	// To time.LoadLocation, these two are UTC and the zone of the machine.
	if name != "" && !strings.EqualFold(name, "Local") {
		if location, err := time.LoadLocation(name); err == nil {
			return location, nil
		}
	}
	return nil, fmt.Errorf("%.64q is no time zone of the IANA database, such as Europe/Berlin or UTC", name)
}

// onDay returns the first instant of a day at which the clock shows a time of day, or has just passed it because it was set forward.
func onDay(year int, month time.Month, day int, at time.Duration, location *time.Location) time.Time {
	// The clock shows what UTC shows plus an offset. It is one of those before and after the change of the clock that is nearby, if there is any.
	wall := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(at)
	before, after := offset(wall.Add(-nearby), location), offset(wall.Add(nearby), location)
	for _, candidate := range []time.Time{wall.Add(-max(before, after)), wall.Add(-min(before, after))} {
		if offset(candidate, location) == wall.Sub(candidate) {
			return candidate.In(location)
		}
	}
	// The clock was set forward past the time. With the offset before, the time is after the change.
	start, _ := wall.Add(-before).In(location).ZoneBounds()
	return start
}

// nearby exceeds every offset from UTC (14 hours). No zone changes its clock twice in such a time.
const nearby = 24 * time.Hour

// offset returns the difference between the clock of a time zone and UTC.
func offset(at time.Time, location *time.Location) time.Duration {
	_, seconds := at.In(location).Zone()
	return time.Duration(seconds) * time.Second
}
