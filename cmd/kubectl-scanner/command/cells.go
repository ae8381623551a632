package command

import (
	"fmt"
	"strings"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// yes is the cell of something that is rarely true.
func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// percent returns a probability as a cell; none is empty.
func percent(p float64) string {
	if p == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*p)
}

// day returns the date of a time in UTC; that of the zero time is empty.
func day(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateOnly)
}

// minute returns a time in UTC for people.
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func exceptionCell(e *restv1.Exception) string {
	if e == nil {
		return ""
	}
	if e.Source == restv1.ExceptionFromImage {
		return e.Kind + " by " + e.Signer + ": " + e.Status
	}
	return e.Name + ": " + e.Status
}

// age returns a duration as kubectl shows ages, in its largest units.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// countsText returns the numbers of findings in one line, without zeros.
func countsText(c v1alpha1.FindingCounts) string {
	var parts []string
	add := func(n int32, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(c.KnownExploited, "known exploited")
	add(c.Critical, "critical")
	add(c.High, "high")
	add(c.Medium, "medium")
	add(c.Low, "low")
	add(c.Negligible, "negligible")
	add(c.Unknown, "of unknown severity")
	add(c.Fixable, "fixable")
	add(c.Suppressed, "more suppressed")
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
