package finding

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestWorse checks the order of urgency.
func TestWorse(t *testing.T) {
	exploited := deb("CVE-2024-0009", "a", "1", func(f *Finding) { f.Severity, f.KnownExploited = Low, true })
	critical := deb("CVE-2024-0008", "a", "1", func(f *Finding) { f.Severity = Critical })
	likely := deb("CVE-2024-0007", "a", "1", func(f *Finding) { f.Severity, f.EPSS = Negligible, 0.5 })
	possible := deb("CVE-2024-0005", "a", "1", func(f *Finding) { f.Severity, f.EPSS = Low, 0.1 })
	hardly := deb("CVE-2024-0009", "b", "1", func(f *Finding) { f.EPSS = 0.09 })
	fixable := deb("CVE-2024-0006", "a", "1", func(f *Finding) { f.FixState, f.FixVersions = FixStateFixed, []string{"2"} })
	first := deb("CVE-2024-0001", "a", "1")
	second := deb("CVE-2024-0001", "b", "1")
	newer := deb("CVE-2024-0001", "b", "2")
	unknown := deb("CVE-2024-0000", "a", "1", func(f *Finding) { f.Severity = Unknown })

	want := []Finding{exploited, likely, possible, critical, fixable, hardly, first, second, newer, unknown}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Worse)
	for i := range want {
		if got[i].Key() != want[i].Key() {
			t.Errorf("place %d is taken by %s in %s %s, want %s in %s %s", i, got[i].ID, got[i].Package.Name, got[i].Package.Version,
				want[i].ID, want[i].Package.Name, want[i].Package.Version)
		}
	}
}

// TestWorseIsATotalOrder checks that sorting always gives the same result: different findings never compare as equal.
func TestWorseIsATotalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := anyFinding().Draw(t, "a"), anyFinding().Draw(t, "b"), anyFinding().Draw(t, "c")
		if rapid.Bool().Draw(t, "a and b look alike") {
			kind, purl := b.Package.Type, b.Package.PURL
			b = a
			b.Package.Type, b.Package.PURL = kind, purl
		}
		if Worse(a, a) != 0 {
			t.Errorf("a finding is worse than itself: %+v", a)
		}
		if (Worse(a, b) < 0) != (Worse(b, a) > 0) {
			t.Errorf("a against b is %d, b against a is %d", Worse(a, b), Worse(b, a))
		}
		if Worse(a, b) == 0 && a.Key() != b.Key() {
			t.Errorf("two findings with different keys have the same place:\n%+v\n%+v", a, b)
		}
		if Worse(a, b) < 0 && Worse(b, c) < 0 && Worse(a, c) >= 0 {
			t.Errorf("a before b and b before c, but not a before c:\n%+v\n%+v\n%+v", a, b, c)
		}
	})
}

// TestSeverities checks that the six severities have an order, are written by name and are parsed in any case.
func TestSeverities(t *testing.T) {
	if !slices.IsSortedFunc(Severities(), func(a, b Severity) int { return int(b) - int(a) }) || len(Severities()) != 6 {
		t.Errorf("severities are %v, want six, worst first", Severities())
	}
	for _, severity := range Severities() {
		text, err := json.Marshal(severity)
		if err != nil || string(text) != `"`+severity.String()+`"` {
			t.Errorf("%s is written %s, %v", severity, text, err)
		}
		var read Severity
		if err := json.Unmarshal(text, &read); err != nil || read != severity {
			t.Errorf("%s is read as %s, %v", text, read, err)
		}
	}
	for text, want := range map[string]Severity{"critical": Critical, "HIGH": High, "": Unknown, "moderate": Unknown, "Unknown": Unknown} {
		if got := ParseSeverity(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	if got := Severity(17).String(); got != "Severity(17)" {
		t.Errorf("a severity out of range is written %q", got)
	}
}
