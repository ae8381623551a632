package finding

import (
	"fmt"
	"strings"
)

// Severity is a finding's severity, from Unknown to Critical in ascending order. Unknown sorts lowest, which does not mean
// harmless.
type Severity int

// The six values that Grype and Clair share.
const (
	Unknown Severity = iota
	Negligible
	Low
	Medium
	High
	Critical
)

var severityNames = [...]string{"Unknown", "Negligible", "Low", "Medium", "High", "Critical"}

// Severities lists all values, worst first.
func Severities() []Severity { return []Severity{Critical, High, Medium, Low, Negligible, Unknown} }

// ParseSeverity parses a severity name in any case. It returns Unknown for any other text.
func ParseSeverity(s string) Severity {
	for i, name := range severityNames {
		if strings.EqualFold(s, name) {
			return Severity(i)
		}
	}
	return Unknown
}

// String returns the name with a capital, such as "High".
func (s Severity) String() string {
	if s < Unknown || s > Critical {
		return fmt.Sprintf("Severity(%d)", int(s))
	}
	return severityNames[s]
}

// MarshalText returns the name, so that JSON has "High" and not 4.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a name as ParseSeverity does. It never returns an error.
func (s *Severity) UnmarshalText(text []byte) error {
	*s = ParseSeverity(string(text))
	return nil
}
