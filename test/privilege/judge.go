package privilege

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Exception is a right that a run need not show, or a refusal that it may.
type Exception struct {
	Account string
	Verb    string
	// Resource is as kubectl names it, with its group: jobs.batch.
	Resource string
	// Why says when it is needed, or why it is asked for in vain.
	Why string
}

func (e Exception) String() string { return e.Account + ": " + e.Verb + " " + e.Resource }

func (e Exception) is(account, verb, resource, group string) bool {
	return e.Account == account && e.Verb == verb && e.Resource == qualified(resource, group)
}

// Verdict is what is wrong with rights.
type Verdict struct {
	// Unused were given and are not needed; TooWide were given for the whole cluster and used in the operator's namespace
	// alone; Stale are exceptions for rights that nobody has. One line each, sorted.
	Unused, TooWide, Stale []string
	// Refused are requests that failed for want of a right, though nobody expected that.
	Refused []string
}

// Wrong says whether rights have to be changed. A refusal alone may be a test's doing.
func (v Verdict) Wrong() bool { return len(v.Unused)+len(v.TooWide)+len(v.Stale) > 0 }

// String is for those who read what a run has printed.
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

// Judge compares. home is the operator's namespace; seldom are rights that are for what a run does not show, and expected are
// refusals that tests provoke.
func Judge(home string, grants []Grant, uses Uses, seldom, expected []Exception) Verdict {
	var verdict Verdict
	for _, grant := range grants {
		used := slices.DeleteFunc(slices.Collect(maps.Keys(uses.Allowed)), func(use Use) bool { return !grant.covers(use) })
		switch {
		case len(used) == 0:
			if !slices.ContainsFunc(seldom, func(e Exception) bool { return e.is(grant.Account, grant.Verb, grant.Resource, grant.Group) }) {
				verdict.Unused = append(verdict.Unused, grant.String())
			}
		case grant.Namespace == "" && !slices.ContainsFunc(used, func(use Use) bool { return use.Namespace != home }):
			verdict.TooWide = append(verdict.TooWide, grant.String())
		}
	}
	for _, exception := range seldom {
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
