package controllers

import (
	"testing"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestWorstFinding: one line says which vulnerability, how severe, in which package, and what ends it.
func TestWorstFinding(t *testing.T) {
	libssl := finding.Finding{
		ID: "CVE-2023-0464", Severity: finding.Critical, Package: finding.Package{Name: "libssl3", Version: "3.0.9-1"},
		FixState: finding.FixStateFixed, FixVersions: []string{"3.0.11-1", "3.1.0"},
	}
	with := func(change func(*finding.Finding)) []finding.Finding {
		changed := libssl
		change(&changed)
		return []finding.Finding{changed, libssl}
	}
	for name, test := range map[string]struct {
		findings []finding.Finding
		want     string
	}{
		"none": {nil, ""},
		"fix":  {[]finding.Finding{libssl}, "CVE-2023-0464 Critical libssl3 3.0.9-1 → 3.0.11-1"},
		"exploited": {
			with(func(f *finding.Finding) { f.KnownExploited = true }),
			"CVE-2023-0464 Critical libssl3 3.0.9-1 → 3.0.11-1 (known exploited)",
		},
		"likely to be exploited": {
			with(func(f *finding.Finding) { f.Severity, f.EPSS = finding.Medium, 0.63 }),
			"CVE-2023-0464 Medium libssl3 3.0.9-1 → 3.0.11-1 (EPSS ≥ 50 %)",
		},
		"no fix": {
			with(func(f *finding.Finding) { f.FixState, f.KnownExploited = finding.FixStateNotFixed, true }),
			"CVE-2023-0464 Critical libssl3 3.0.9-1, no fix yet (known exploited)",
		},
		"will not be fixed": {
			with(func(f *finding.Finding) { f.FixState = finding.FixStateWontFix }), "CVE-2023-0464 Critical libssl3 3.0.9-1, will not be fixed",
		},
		"fix unknown": {with(func(f *finding.Finding) { f.FixState = finding.FixStateUnknown }), "CVE-2023-0464 Critical libssl3 3.0.9-1"},
		"line break":  {with(func(f *finding.Finding) { f.Package.Name = "lib\nssl\x1b[31m" }), "CVE-2023-0464 Critical lib ssl [31m 3.0.9-1 → 3.0.11-1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := worstFinding(test.findings); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestWorstFindingIsBounded: the longest texts that an engine may report give a line of exactly the API's bound, which keeps all parts.
func TestWorstFindingIsBounded(t *testing.T) {
	for _, character := range []string{"x", "ü", "…"} {
		long := repeatToLength(character, 900)
		line := worstFinding([]finding.Finding{{
			ID: long, Severity: finding.Negligible, Package: finding.Package{Name: long, Version: long},
			FixState: finding.FixStateFixed, FixVersions: []string{long}, KnownExploited: true,
		}})
		if len(line) > v1alpha1.MaxWorstBytes || len(line) < v1alpha1.MaxWorstBytes-8 {
			t.Errorf("the line has %d bytes, want about %d: %s", len(line), v1alpha1.MaxWorstBytes, line)
		}
	}
}

// TestShortImageName: the name comes from the first reference that can be parsed, else from the digest.
func TestShortImageName(t *testing.T) {
	for name, test := range map[string]struct {
		references []string
		want       string
	}{
		"reference":    {[]string{"registry.example.com/shop/web:1.4", "registry.example.com/shop/other:1"}, "shop/web:1.4"},
		"not parsable": {[]string{"//", "nginx:1.25"}, "nginx:1.25"},
		"none":         {nil, digest("web")[:len("sha256:")+12] + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shortImageName(v1alpha1.ImageScanSpec{References: test.references, Digest: digest("web")}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
