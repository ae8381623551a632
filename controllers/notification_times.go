package controllers

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce/calendar"
)

// defaultTimeZone is the time zone of objects that were created before the API server had this default.
const defaultTimeZone = "UTC"

var weekdays = map[v1alpha1.Weekday]time.Weekday{
	v1alpha1.Monday: time.Monday, v1alpha1.Tuesday: time.Tuesday, v1alpha1.Wednesday: time.Wednesday, v1alpha1.Thursday: time.Thursday,
	v1alpha1.Friday: time.Friday, v1alpha1.Saturday: time.Saturday, v1alpha1.Sunday: time.Sunday,
}

// quietHoursOf returns the quiet hours of a receiver. Those that are invalid have no effect: nothing is held back until nobody knows when. The error
// names each of them.
func quietHoursOf(receiver v1alpha1.ClusterReceiver) (periods []calendar.Period, err error) {
	var errs []error
	for i, q := range receiver.QuietHours {
		field := fmt.Sprintf("spec.notifications[%s].quietHours[%d]", receiver.Name, i)
		location, zoneErr := calendar.LoadLocation(cmp.Or(string(q.TimeZone), defaultTimeZone))
		start, startErr := calendar.ParseTimeOfDay(string(q.StartTime))
		end, endErr := calendar.ParseTimeOfDay(string(q.EndTime))
		if err := errors.Join(inField(field+".timeZone", zoneErr), inField(field+".startTime", startErr), inField(field+".endTime", endErr)); err != nil {
			errs = append(errs, err)
			continue
		}
		period := calendar.Period{Start: start, End: end, Location: location}
		for _, day := range q.Days {
			period.Days = append(period.Days, weekdays[day])
		}
		periods = append(periods, period)
	}
	return periods, errors.Join(errs...)
}

// scheduleOf returns when a receiver gets summaries; never if it has no schedule or an invalid one, which the error names.
func scheduleOf(receiver v1alpha1.ClusterReceiver) (calendar.Schedule, error) {
	if receiver.Schedule == nil {
		return calendar.Schedule{}, nil
	}
	field := fmt.Sprintf("spec.notifications[%s].schedule", receiver.Name)
	location, err := calendar.LoadLocation(cmp.Or(string(receiver.Schedule.TimeZone), defaultTimeZone))
	if err != nil {
		return calendar.Schedule{}, inField(field+".timeZone", err)
	}
	schedule, err := calendar.ParseSchedule(receiver.Schedule.Cron, location)
	return schedule, inField(field+".cron", err)
}

// inField adds the path of a field to an error; nil for none.
func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

// invalidTimes describes the fields of a scanner's receivers with a time or a time zone that does not exist; empty if there are none.
func invalidTimes(scanner v1alpha1.GenericScanner) string {
	var errs []error
	for _, receiver := range scanner.Receivers() {
		_, quietErr := quietHoursOf(receiver)
		_, scheduleErr := scheduleOf(receiver)
		errs = append(errs, quietErr, scheduleErr)
	}
	if err := errors.Join(errs...); err != nil {
		return truncate(strings.ReplaceAll(err.Error(), "\n", "; "), maxInvalidTimes) + ". It has no effect until it is corrected"
	}
	return ""
}

// maxInvalidTimes bounds what a condition says about invalid times.
const maxInvalidTimes = 512
