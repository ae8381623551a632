package noise

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Rates of the events in the year. Estimated values describe a quiet data source. A real source has more events, which affects all
// senders alike.
const (
	days = 365
	// perPackage is the number of advisories for a package that appear in the year.
	perPackage = 8
	// daysToFix is the longest time from an advisory to its fix, if there is one.
	daysToFix = 60
	// These shares of the advisories get another severity later, become known to be exploited, or are missing from the data on one day.
	ratedAgain, exploited, missing = 0.05, 0.01, 0.02
	// badBuilds is the number of days on which the data lacks one distribution.
	badBuilds = 3
)

// template is a published advisory on which advisories of the year are based.
type template struct {
	Package  string `json:"package"`
	Fixed    string `json:"fixed"`
	Severity string `json:"severity"`
}

// templates returns the advisories of the fixtures, by distribution.
func templates(dir string) (map[string][]template, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*-[0-9]*.json"))
	if err != nil {
		return nil, err
	}
	all := map[string][]template{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var read []template
		if err := json.Unmarshal(raw, &read); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = read
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no advisories in %s", dir)
	}
	return all, nil
}

// advisory is an advisory of the year. Its times are days, counted from 0. An event on a day after the year never happens.
type advisory struct {
	id, pkg                    string
	severity, after            finding.Severity
	epss                       float64
	published, rated           int
	fixable, exploited, absent int
}

// never is the day of an event that does not happen.
const never = days + 1

// year is the vulnerability data of each day.
type year struct {
	advisories map[string][]advisory // by distribution
	bad        map[int]string        // the missing distribution, by day
}

// newYear generates the year. Half of the advisories exist from its first day.
func newYear(published map[string][]template, random *rand.Rand) year {
	y := year{advisories: map[string][]advisory{}, bad: map[int]string{}}
	var distributions []string
	for distribution := range published {
		distributions = append(distributions, distribution)
	}
	slices.Sort(distributions)
	for _, distribution := range distributions {
		for _, pkg := range packagesOf(published[distribution]) {
			for n := range 2 * perPackage {
				source := published[distribution][random.IntN(len(published[distribution]))]
				a := newAdvisory(source, random)
				a.id, a.pkg = fmt.Sprintf("CVE-%d-%d", 2026+n%2, 10_000+random.IntN(900_000)), pkg
				if n < perPackage {
					a.published = 0
				}
				y.advisories[distribution] = append(y.advisories[distribution], a)
			}
		}
	}
	for range badBuilds {
		y.bad[1+random.IntN(days-2)] = distributions[random.IntN(len(distributions))]
	}
	return y
}

func newAdvisory(of template, random *rand.Rand) advisory {
	a := advisory{
		severity: finding.ParseSeverity(of.Severity), epss: random.Float64() * random.Float64() * random.Float64(),
		published: 1 + random.IntN(days-1), rated: never, fixable: never, exploited: never, absent: never,
	}
	a.after = a.severity
	if of.Fixed != "" {
		a.fixable = a.published + random.IntN(daysToFix)
	}
	if random.Float64() < ratedAgain {
		a.rated, a.after = a.published+random.IntN(30), finding.Severities()[random.IntN(4)]
	}
	if random.Float64() < exploited {
		a.exploited = a.published + random.IntN(90)
	}
	if random.Float64() < missing {
		a.absent = a.published + 1 + random.IntN(30)
	}
	return a
}

// packagesOf returns the names of the distribution's packages, sorted and without duplicates.
func packagesOf(published []template) []string {
	var names []string
	for _, t := range published {
		names = append(names, t.Package)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// findings returns the findings in the data of a day for an image that was built on another day, with the fixes of the build day.
func (y year) findings(distribution string, packages []string, built, day int) []finding.Finding {
	if y.bad[day] == distribution {
		return nil
	}
	var all []finding.Finding
	for _, a := range y.advisories[distribution] {
		if a.published > day || a.fixable <= built || a.absent == day || !slices.Contains(packages, a.pkg) {
			continue
		}
		f := finding.Finding{
			ID: a.id, Severity: a.severity, EPSS: a.epss, KnownExploited: a.exploited <= day, FixState: finding.FixStateNotFixed,
			Package: finding.Package{Name: a.pkg, Version: fmt.Sprintf("1.%d", built), Type: "deb", PURL: "pkg:deb/" + distribution + "/" + a.pkg},
		}
		if a.rated <= day {
			f.Severity = a.after
		}
		if a.fixable <= day {
			f.FixState, f.FixVersions = finding.FixStateFixed, []string{fmt.Sprintf("1.%d", a.fixable)}
		}
		all = append(all, f)
	}
	return all
}

// dayTime returns noon of a day.
func dayTime(day int) time.Time {
	return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).AddDate(0, 0, day)
}
