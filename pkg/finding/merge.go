package finding

import (
	"slices"
)

// Merge merges findings with the same key, since several sources may describe one vulnerability in one package. The highest
// severity and probability win, and every advisory is kept. The result is ordered by Worse. Merge does not change the input, and
// the result shares no slice with the input that Merge changes.
func Merge(findings []Finding) []Finding {
	byKey := make(map[string]*Finding, len(findings))
	var order []string
	for _, f := range findings {
		key := f.Key()
		known, found := byKey[key]
		if !found {
			f.Aliases, f.Paths = slices.Clone(f.Aliases), slices.Clone(f.Paths)
			byKey[key] = &f
			order = append(order, key)
			continue
		}
		known.mergeWith(f)
	}
	merged := make([]Finding, 0, len(order))
	for _, key := range order {
		f := byKey[key]
		slices.Sort(f.Aliases)
		f.Aliases = slices.DeleteFunc(slices.Compact(f.Aliases), func(a string) bool { return a == f.ID || a == "" })
		merged = append(merged, *f)
	}
	slices.SortFunc(merged, Worse)
	return merged
}

// mergeWith merges another finding with the same key into f.
func (f *Finding) mergeWith(other Finding) {
	f.Aliases = slices.Concat(f.Aliases, other.Aliases)
	f.Advisories = slices.Concat(f.Advisories, other.Advisories)
	f.Severity = max(f.Severity, other.Severity)
	f.CVSS = max(f.CVSS, other.CVSS)
	f.EPSS = max(f.EPSS, other.EPSS)
	f.KnownExploited = f.KnownExploited || other.KnownExploited
	if f.Description == "" {
		f.Description, f.URL = other.Description, other.URL
	}
	// One source that knows a fix is enough.
	if !f.Fixable() && other.Fixable() {
		f.FixState, f.FixVersions, f.FixAvailable = other.FixState, other.FixVersions, other.FixAvailable
	}
	for _, path := range other.Paths {
		// The first path is part of the key, unless the package is one of the operating system. The key must stay the same.
		if !slices.Contains(f.Paths, path) && (len(f.Paths) > 0 || IsOSPackage(f.Package.Type)) {
			f.Paths = append(f.Paths, path)
		}
	}
}

// Counts are numbers of findings by severity.
type Counts struct {
	Critical   int `json:"critical"`
	High       int `json:"high"`
	Medium     int `json:"medium"`
	Low        int `json:"low"`
	Negligible int `json:"negligible"`
	Unknown    int `json:"unknown"`
	// Fixable and KnownExploited count findings of all severities.
	Fixable        int `json:"fixable"`
	KnownExploited int `json:"knownExploited"`
}

// Add adds n findings of a severity.
func (c *Counts) Add(s Severity, n int) {
	*c.bySeverity(s) += n
}

// AddFinding counts one finding.
func (c *Counts) AddFinding(f Finding) {
	c.Add(f.Severity, 1)
	if f.Fixable() {
		c.Fixable++
	}
	if f.KnownExploited {
		c.KnownExploited++
	}
}

// Plus returns the sum of two counts.
func (c Counts) Plus(more Counts) Counts {
	for _, severity := range Severities() {
		c.Add(severity, more.Of(severity))
	}
	c.Fixable += more.Fixable
	c.KnownExploited += more.KnownExploited
	return c
}

func (c *Counts) bySeverity(s Severity) *int {
	switch s {
	case Critical:
		return &c.Critical
	case High:
		return &c.High
	case Medium:
		return &c.Medium
	case Low:
		return &c.Low
	case Negligible:
		return &c.Negligible
	}
	return &c.Unknown
}

// Of returns the count of a severity.
func (c Counts) Of(s Severity) int { return *c.bySeverity(s) }

// Total returns the number of findings of all severities.
func (c Counts) Total() int {
	return c.Critical + c.High + c.Medium + c.Low + c.Negligible + c.Unknown
}
