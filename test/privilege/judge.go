package privilege

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Exception is a permission that may be unused in a run, or a denied request that is expected.
type Exception struct {
	Account string
	Verb    string
	// Resource has the form of kubectl, with its group: jobs.batch.
	Resource string
	// Why describes when the permission is needed, or why the request is made although it is denied.
	Why string
}

func (e Exception) String() string { return e.Account + ": " + e.Verb + " " + e.Resource }

func (e Exception) is(account, verb, resource, group string) bool {
	return e.Account == account && e.Verb == verb && e.Resource == qualified(resource, group)
}

// Verdict holds the problems with permissions.
type Verdict struct {
	// Unused permissions were granted and not used. TooWide permissions were granted in all namespaces and used only in the operator's.
	// Stale exceptions are for permissions that are not granted. Each has one line; the lines are sorted.
	Unused, TooWide, Stale []string
	// Refused are requests that were unexpectedly denied for lack of a permission.
	Refused []string
}

// Wrong reports whether permissions or exceptions must be changed. Denied requests do not count: a test may have caused them.
func (v Verdict) Wrong() bool { return len(v.Unused)+len(v.TooWide)+len(v.Stale) > 0 }

// String returns the problems for the output of a run.
func (v Verdict) String() string {
	var text strings.Builder
	for _, part := range []struct {
		title string
		lines []string
	}{
		{"granted and not used", v.Unused}, {"granted everywhere and used in the operator's namespace only", v.TooWide},
		{"an exception for a right that is not granted", v.Stale}, {"refused", v.Refused},
	} {
		for _, line := range part.lines {
			fmt.Fprintf(&text, "%s: %s\n", part.title, line)
		}
	}
	return text.String()
}

// Compare compares grants with uses. home is the operator's namespace. seldom are permissions for functions that a run does not use.
// expected are denials that tests provoke.
func Compare(systemNamespace string, grants []Grant, uses Uses, rarelyUsed, expected []Exception) Verdict {
	var verdict Verdict
	for _, grant := range grants {
		used := slices.DeleteFunc(slices.Collect(maps.Keys(uses.Allowed)), func(use Use) bool { return !grant.covers(use) })
		switch {
		case len(used) == 0:
			if !slices.ContainsFunc(rarelyUsed, func(e Exception) bool { return e.is(grant.Account, grant.Verb, grant.Resource, grant.Group) }) {
				verdict.Unused = append(verdict.Unused, grant.String())
			}
		case grant.Namespace == "" && !slices.ContainsFunc(used, func(use Use) bool { return use.Namespace != systemNamespace }):
			verdict.TooWide = append(verdict.TooWide, grant.String())
		}
	}
	for _, exception := range rarelyUsed {
		if !slices.ContainsFunc(grants, func(g Grant) bool { return exception.is(g.Account, g.Verb, g.Resource, g.Group) }) {
			verdict.Stale = append(verdict.Stale, exception.String())
		}
	}
	for use, times := range uses.Denied {
		if !slices.ContainsFunc(expected, func(e Exception) bool { return e.is(use.Account, use.Verb, use.Resource, use.Group) }) {
			verdict.Refused = append(verdict.Refused, fmt.Sprintf("%s, %d times", use, times))
		}
	}
	for _, lines := range [][]string{verdict.Unused, verdict.TooWide, verdict.Stale, verdict.Refused} {
		slices.Sort(lines)
	}
	return verdict
}
