package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Conditions of --fail-on besides severities.
const (
	failOnAny       = "any"
	failOnExploited = "exploited"
)

// matchError means that findings match --fail-on.
type matchError struct {
	matches int
	failOn  string
}

// Error implements error.
func (e *matchError) Error() string {
	return count(e.matches, "finding matches", "findings match") + " --fail-on=" + e.failOn
}

// addFailOn adds the flag --fail-on.
func (s *session) addFailOn(c *cobra.Command) {
	c.Flags().StringVar(&s.failOn, "fail-on", "", "exit with status 2 if a listed finding is of this severity or worse, or for the values exploited and any; with status 1 if that is not known")
	_ = c.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions([]string{failOnAny, failOnExploited, "Critical", "High", "Medium", "Low", "Negligible"}, cobra.ShellCompDirectiveNoFileComp))
}

// verdict returns the error by which --fail-on sets the exit status. Suppressed findings never match. If no finding matches, but something is not
// known, the error says so: a program must not take that for a pass.
func (s *session) verdict(found []imageFinding, gaps []string) error {
	matches := 0
	for _, f := range found {
		if f.Finding.Exception == nil && s.failsOn(f.Finding.Severity, f.Finding.KnownExploited) {
			matches++
		}
	}
	return s.verdictOf(matches, gaps)
}

// verdictOf is verdict for a number of findings that match.
func (s *session) verdictOf(matches int, gaps []string) error {
	if s.failOn == "" {
		return nil
	}
	if matches > 0 {
		return &matchError{matches: matches, failOn: s.failOn}
	}
	if len(gaps) > 0 {
		return errors.New("--fail-on: no finding matches, but not everything is known: " + strings.Join(gaps, "; "))
	}
	return nil
}

func (s *session) failsOn(severity restv1.Severity, exploited bool) bool {
	switch s.failOn {
	case failOnAny:
		return true
	case failOnExploited:
		return exploited
	}
	return finding.ParseSeverity(string(severity)) >= finding.ParseSeverity(s.failOn)
}

// checkFailOn refuses other values before anything is requested. From then on, severities are written as the API writes them.
func (s *session) checkFailOn() error {
	if s.failOn == "" || s.failOn == failOnAny || s.failOn == failOnExploited {
		return nil
	}
	severity, err := parseSeverity("--fail-on", s.failOn)
	if err == nil {
		s.failOn = string(severity)
	}
	return err
}

// parseSeverity returns the severity that a flag names.
func parseSeverity(flag, name string) (restv1.Severity, error) {
	severity := finding.ParseSeverity(name)
	if severity == finding.Unknown {
		return "", fmt.Errorf("%s: %q is none of Critical, High, Medium, Low and Negligible", flag, name)
	}
	return restv1.Severity(severity.String()), nil
}
