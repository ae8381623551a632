package sarif

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// schema returns OASIS' schema, with validation of string formats.
func schema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "schema", "sarif-schema-2.1.0.json"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	const address = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(address, parsed); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile(address)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func written(t testing.TB, r Report) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, r); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read validates and decodes a log, and checks it against the rules of GitHub.
func read(t testing.TB, against *jsonschema.Schema, text []byte) run {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := against.Validate(parsed); err != nil {
		t.Fatalf("the log is not valid SARIF 2.1.0: %v", err)
	}
	var decoded log
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&decoded); err != nil {
		t.Fatal(err)
	}
	for name, isKept := range gitHubRules {
		if !isKept(decoded) {
			t.Errorf("GitHub's rule is broken: %s", name)
		}
	}
	return decoded.Runs[0]
}

func digest(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

func reportOf(findings ...Finding) Report {
	return Report{
		Reference: "ghcr.io/shop/web:1.2", Repositories: []string{"ghcr.io/shop/web"},
		Key: image.Key{Digest: digest("a"), Platform: image.Platform{OS: "linux", Architecture: "arm64"}}, PlatformDigest: digest("b"),
		Engine: "grype", Tool: "grype 0.110.0", DataVersion: "v6.0.2/2026-03-01", MatchedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Distro: "debian 12",
		Findings: findings, Total: len(findings),
	}
}

func openssl(changes ...func(*Finding)) Finding {
	f := Finding{FirstSeen: time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC), Finding: finding.Finding{
		ID: "CVE-2024-0001", Aliases: []string{"DSA-1"}, Severity: finding.Critical,
		Package:  finding.Package{Name: "openssl", Version: "3.0.1", Type: "deb", PURL: "pkg:deb/debian/openssl@3.0.1?arch=arm64"},
		FixState: finding.FixStateFixed, FixVersions: []string{"3.0.2", "3.1.0"},
		Description: "A flaw.", URL: "https://security-tracker.debian.org/tracker/CVE-2024-0001", CVSS: 9.8, EPSS: 0.97, KnownExploited: true,
	}}
	for _, change := range changes {
		change(&f)
	}
	return f
}

// npm makes a finding one of a package that is in a file.
func npm(name, version, file string) func(*Finding) {
	return func(f *Finding) {
		f.ID, f.Paths = "GHSA-aaaa-bbbb-cccc", []string{file}
		f.Package = finding.Package{Name: name, Version: version, Type: "npm", PURL: "pkg:npm/" + name + "@" + version}
	}
}

// TestLog compares a whole log with a file.
func TestLog(t *testing.T) {
	accepted := &exception.Exception{
		UID: "1", Namespace: "shop", Name: "accepted", Status: "not_affected", Justification: "component_not_present", Reason: "Not reachable.",
		Expires: time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC),
	}
	report := reportOf(
		openssl(),
		openssl(func(f *Finding) {
			f.Package.Name, f.Package.PURL = "libssl3", "pkg:deb/debian/libssl3@3.0.1"
			f.Severity, f.FixState, f.FixVersions = finding.Medium, finding.FixStateWontFix, nil
		}),
		openssl(npm("lodash", "4.17.20", "/app/node_modules/lodash/package.json"), func(f *Finding) {
			f.Severity, f.CVSS, f.Exception, f.KnownExploited = finding.High, 0, accepted, false
		}),
		openssl(npm("lodash", "3.0.0", "/opt/old/node_modules/lodash/package.json"), func(f *Finding) {
			f.Severity, f.CVSS, f.Exception, f.KnownExploited, f.FirstSeen = finding.High, 0, accepted, false, f.FirstSeen.Add(-time.Hour)
		}),
	)
	report.Total, report.NotCovered, report.Cluster = 5, []string{"rust"}, "prod-eu"
	text := written(t, report)
	read(t, schema(t), text)
	var got bytes.Buffer
	if err := json.Indent(&got, text, "", " "); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "log.json")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("log (-want +got; UPDATE_GOLDEN=1 writes it anew):\n%s", diff)
	}
}

// TestSeverities: each severity has its level, and a score that GitHub shows as that severity: that of CVSS if it is one.
func TestSeverities(t *testing.T) {
	compiled := schema(t)
	for _, tt := range []struct {
		severity     finding.Severity
		cvss         float64
		level, score string
	}{
		{finding.Critical, 9.8, "error", "9.8"}, {finding.Critical, 0, "error", "9.5"}, {finding.High, 0, "error", "8.0"}, {finding.Medium, 0, "warning", "5.5"},
		{finding.Low, 0, "note", "2.0"}, {finding.Low, 9.8, "note", "3.9"}, {finding.Negligible, 0, "note", "0.1"}, {finding.Negligible, 0.04, "note", "0.1"},
		{finding.Negligible, 9.8, "note", "3.9"}, {finding.Medium, 9.8, "warning", "6.9"}, {finding.High, 9.8, "error", "8.9"}, {finding.High, 3.1, "error", "7.0"},
		{finding.High, 7.5, "error", "7.5"}, {finding.High, 8.95, "error", "8.9"}, {finding.Medium, 6.96, "warning", "6.9"}, {finding.Critical, 5.5, "error", "9.0"},
		{finding.Unknown, 0, "warning", ""}, {finding.Unknown, 7.55, "warning", "7.5"}, {finding.Critical, 11, "error", "10.0"},
	} {
		got := read(t, compiled, written(t, reportOf(openssl(func(f *Finding) { f.Severity, f.CVSS = tt.severity, tt.cvss }))))
		rule := got.Tool.Driver.Rules[0]
		if got.Results[0].Level != tt.level || rule.DefaultConfiguration.Level != tt.level || rule.Properties.SecuritySeverity != tt.score {
			t.Errorf("%s with CVSS %v is %s, %q; want %s, %q", tt.severity, tt.cvss, got.Results[0].Level, rule.Properties.SecuritySeverity, tt.level, tt.score)
		}
	}
}

// TestFingerprints: a result has the same fingerprints as long as repository, vulnerability and name of the package are the same.
func TestFingerprints(t *testing.T) {
	compiled := schema(t)
	fingerprints := func(change func(*Report)) map[string]string {
		report := reportOf(openssl())
		change(&report)
		return read(t, compiled, written(t, report)).Results[0].PartialFingerprints
	}
	base := fingerprints(func(*Report) {})
	for name, change := range map[string]func(*Report){
		"another tag":      func(r *Report) { r.Reference = "ghcr.io/shop/web:2" },
		"another digest":   func(r *Report) { r.Key.Digest, r.PlatformDigest = digest("c"), digest("d") },
		"another platform": func(r *Report) { r.Key.Platform.Architecture = "amd64" },
		"newer data":       func(r *Report) { r.DataVersion, r.MatchedAt = "newer", r.MatchedAt.Add(time.Hour) },
		"another severity": func(r *Report) { r.Findings[0].Severity, r.Findings[0].CVSS = finding.Low, 1 },
		"a fix":            func(r *Report) { r.Findings[0].FixVersions = []string{"9"} },
		"another version": func(r *Report) {
			r.Findings[0].Package.Version, r.Findings[0].Package.PURL = "3.0.9", "pkg:deb/debian/openssl@3.0.9"
		},
	} {
		if diff := cmp.Diff(base, fingerprints(change)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
	for name, change := range map[string]func(*Report){
		"another repository":    func(r *Report) { r.Repositories = []string{"ghcr.io/shop/api"} },
		"another vulnerability": func(r *Report) { r.Findings[0].ID = "CVE-2024-0002" },
		"another package":       func(r *Report) { r.Findings[0].Package.Name = "libssl3" },
	} {
		changed := fingerprints(change)
		for key, value := range base {
			if changed[key] == value {
				t.Errorf("%s has the same fingerprint %s", name, key)
			}
		}
	}
}

// TestLocations: a result is at the path of the image's repository, which stays the same, and in a file. GitHub takes neither for an address.
func TestLocations(t *testing.T) {
	compiled := schema(t)
	for name, tt := range map[string]struct {
		paths        []string
		repositories []string
		want         []string
	}{
		"a file":                    {[]string{"/usr/lib/x/METADATA"}, []string{"ghcr.io/shop/web"}, []string{"shop/web", "usr/lib/x/METADATA"}},
		"several files":             {[]string{"/a", "/b"}, []string{"ghcr.io/shop/web"}, []string{"shop/web", "a"}},
		"a file in an archive":      {[]string{"/app.jar:BOOT-INF/lib/log4j.jar"}, []string{"ghcr.io/shop/web"}, []string{"shop/web", "app.jar%3ABOOT-INF/lib/log4j.jar"}},
		"a file that looks strange": {[]string{"/a b/%/?#[x]\xff\n"}, []string{"ghcr.io/shop/web"}, []string{"shop/web", "a%20b/%25/%3F%23%5Bx%5D%FF%0A"}},
		"a file outside":            {[]string{"../../etc/../passwd"}, []string{"ghcr.io/shop/web"}, []string{"shop/web", "passwd"}},
		"an address":                {[]string{"https://example.com/x"}, []string{"ghcr.io/shop/web"}, []string{"shop/web", "https%3A/example.com/x"}},
		"the root":                  {[]string{"/"}, []string{"ghcr.io/shop/web"}, []string{"shop/web"}},
		"no file":                   {nil, []string{"ghcr.io/shop/web"}, []string{"shop/web"}},
		"a registry with a port":    {nil, []string{"10.0.0.1:5000/shop/web"}, []string{"shop/web"}},
		"several repositories":      {nil, []string{"a.example.com/api", "b.example.com/web"}, []string{"api"}},
		"no repository":             {nil, nil, []string{strings.Repeat("a", 64)}},
	} {
		t.Run(name, func(t *testing.T) {
			report := reportOf(openssl(func(f *Finding) { f.Paths = tt.paths }))
			report.Repositories = tt.repositories
			var got []string
			for _, l := range read(t, compiled, written(t, report)).Results[0].Locations {
				got = append(got, l.PhysicalLocation.ArtifactLocation.URI)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("locations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSuppressions: a result is suppressed if all its findings are, by each of their exceptions once.
func TestSuppressions(t *testing.T) {
	compiled := schema(t)
	one := &exception.Exception{UID: "1", Namespace: "shop", Name: "one", Status: "affected", Reason: "Later."}
	two := &exception.Exception{UID: "2", Name: "two", Status: "fixed", Reason: "Patched."}
	for name, tt := range map[string]struct {
		exceptions []*exception.Exception
		want       []string
	}{
		"none":       {[]*exception.Exception{nil}, []string{}},
		"one":        {[]*exception.Exception{one}, []string{"VulnerabilityException shop/one: Later."}},
		"of a part":  {[]*exception.Exception{one, nil}, []string{}},
		"one of all": {[]*exception.Exception{one, one}, []string{"VulnerabilityException shop/one: Later."}},
		"two":        {[]*exception.Exception{one, two}, []string{"VulnerabilityException shop/one: Later.", "ClusterVulnerabilityException two: Patched."}},
	} {
		report := reportOf()
		for i, e := range tt.exceptions {
			report.Findings = append(report.Findings, openssl(npm("lodash", fmt.Sprint(i), fmt.Sprint("/", i)), func(f *Finding) { f.Exception = e }))
		}
		got := []string{}
		for _, s := range read(t, compiled, written(t, report)).Results[0].Suppressions {
			got = append(got, s.Properties.Exception+": "+s.Justification)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestBounds: a log with as many findings as possible is within the limits, and says what is left out.
func TestBounds(t *testing.T) {
	compiled := schema(t)
	many := func(n int, change func(int, *Finding)) (all []Finding) {
		for i := range n {
			all = append(all, openssl(func(f *Finding) { change(i, f) }))
		}
		return all
	}
	for name, tt := range map[string]struct {
		findings       []Finding
		total          int
		rules, results int
	}{
		"none":                        {nil, 0, 0, 0},
		"as many rules as possible":   {many(MaxFindings, func(i int, f *Finding) { f.ID = fmt.Sprint("CVE-2024-", i) }), MaxFindings, MaxFindings, MaxFindings},
		"as many results as possible": {many(MaxFindings, func(i int, f *Finding) { f.Package.Name = fmt.Sprint("p", i) }), MaxFindings + 1, 1, MaxFindings},
		"many copies of a package": {many(5000, func(i int, f *Finding) {
			f.Package.Type, f.Package.Version, f.Paths = "npm", fmt.Sprint("1.", i), []string{fmt.Sprint("/", i)}
		}), 5000, 1, 1},
		"long texts": {many(3, func(i int, f *Finding) {
			f.Package.Name, f.Description = strings.Repeat("版", 50_000), strings.Repeat("](", 50_000)
		}), 3, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			report := reportOf(tt.findings...)
			report.Total = tt.total
			got := read(t, compiled, written(t, report))
			if len(got.Tool.Driver.Rules) != tt.rules || len(got.Results) != tt.results {
				t.Errorf("%d rules and %d results, want %d and %d", len(got.Tool.Driver.Rules), len(got.Results), tt.rules, tt.results)
			}
			if isTruncated := tt.total > len(tt.findings); got.Properties.Truncated != isTruncated || got.Properties.Findings != tt.total {
				t.Errorf("properties are %+v, want %d findings, truncated: %t", got.Properties, tt.total, isTruncated)
			}
		})
	}
}

// TestAnyLogIsValid: whatever an image, a database or an exception contains, the log is valid and has no link that others chose.
func TestAnyLogIsValid(t *testing.T) {
	compiled := schema(t)
	rapid.Check(t, func(rt *rapid.T) { checkAnyLog(t, compiled, rt) })
}

// FuzzLog is TestAnyLogIsValid with inputs that reach new code.
func FuzzLog(f *testing.F) {
	compiled := schema(f)
	f.Fuzz(func(t *testing.T, drawn []byte) {
		rapid.MakeFuzz(func(rt *rapid.T) { checkAnyLog(t, compiled, rt) })(t, drawn)
	})
}

func checkAnyLog(t *testing.T, compiled *jsonschema.Schema, rt *rapid.T) {
	t.Helper()
	text := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "a", "CVE-2024-0001", "\xff", "#:", "?x=y", "https://a.example/b c", "[x](https://evil.example)", "日本", "\u0000\n", "../..", "{0}"}).Draw(t, "text") + rapid.StringN(0, 3, 9).Draw(t, "more")
	})
	anyFinding := rapid.Custom(func(t *rapid.T) Finding {
		f := Finding{Finding: finding.Finding{
			ID: text.Draw(t, "id"), Aliases: rapid.SliceOfN(text, 0, 3).Draw(t, "aliases"), Severity: finding.Severity(rapid.IntRange(0, 5).Draw(t, "severity")),
			Package: finding.Package{Name: text.Draw(t, "name"), Version: text.Draw(t, "version"), Type: rapid.SampledFrom([]string{"deb", "npm", ""}).Draw(t, "type"), PURL: text.Draw(t, "purl")},
			Paths:   rapid.SliceOfN(text, 0, 2).Draw(t, "paths"), FixState: rapid.SampledFrom([]string{"fixed", "wont-fix", ""}).Draw(t, "state"),
			FixVersions: rapid.SliceOfN(text, 0, 2).Draw(t, "fixed"), URL: text.Draw(t, "url"), CVSS: rapid.Float64Range(0, 10).Draw(t, "cvss"), Description: text.Draw(t, "description"),
		}}
		// What the store has is UTF-8 without NUL, except paths.
		f.Finding = f.Finding.Clean()
		if rapid.Bool().Draw(t, "is suppressed") {
			f.Exception = &exception.Exception{UID: text.Draw(t, "uid"), Name: text.Draw(t, "exception"), Reason: text.Draw(t, "reason")}
		}
		return f
	})
	report := reportOf(rapid.SliceOfN(anyFinding, 0, 8).Draw(rt, "findings")...)
	report.Repositories = rapid.SampledFrom([][]string{nil, {"docker.io/library/nginx"}, {"localhost:5000/a"}}).Draw(rt, "repositories")
	report.Reference, report.Tool, report.Distro = text.Draw(rt, "reference"), text.Draw(rt, "tool"), text.Draw(rt, "distro")
	first := written(t, report)
	got := read(t, compiled, first)
	if !bytes.Equal(first, written(t, report)) {
		rt.Error("the same report gives two different logs")
	}
	for _, r := range got.Results {
		if strings.Contains(r.Message.Text, "](") {
			rt.Errorf("the message %q has a link", r.Message.Text)
		}
	}
}

// gitHubRules are those that GitHub publishes for uploads
// (https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning), beyond what the schema
// requires. A rule is true for a log that keeps it.
var gitHubRules = map[string]func(log) bool{
	"the version is 2.1.0, and there is one run, of at most 20": func(l log) bool { return l.Version == "2.1.0" && len(l.Runs) == 1 },
	"a run has at most 25,000 results":                          func(l log) bool { return len(l.Runs[0].Results) <= 25_000 },
	"a run has at most 25,000 rules":                            func(l log) bool { return len(l.Runs[0].Tool.Driver.Rules) <= 25_000 },
	"the tool has a name":                                       func(l log) bool { return l.Runs[0].Tool.Driver.Name != "" },
	"the category ends with a slash":                            func(l log) bool { return strings.HasSuffix(l.Runs[0].AutomationDetails.ID, "/") },
	"each rule has an ID of its own": func(l log) bool {
		ids := map[string]bool{}
		for _, r := range l.Runs[0].Tool.Driver.Rules {
			ids[r.ID] = true
		}
		return len(ids) == len(l.Runs[0].Tool.Driver.Rules)
	},
	"a rule has a short and a full description, of at most 1,024 characters each, and help": eachRule(func(r rule) bool {
		short, full := len([]rune(r.ShortDescription.Text)), len([]rune(r.FullDescription.Text))
		return short > 0 && short <= 1024 && full > 0 && full <= 1024 && r.Help.Text != ""
	}),
	"a rule has at most 10 tags, of which one is security": eachRule(func(r rule) bool {
		return len(r.Properties.Tags) <= 10 && slices.Contains(r.Properties.Tags, "security")
	}),
	"a security-severity is a text with a number above 0.0 and at most 10.0": eachRule(func(r rule) bool {
		var score float64
		_, err := fmt.Sscanf(r.Properties.SecuritySeverity, "%g", &score)
		return r.Properties.SecuritySeverity == "" || err == nil && score > 0 && score <= 10
	}),
	"the level of a rule and of a result is note, warning or error": func(l log) bool {
		isLevel := func(level string) bool { return slices.Contains([]string{"note", "warning", "error"}, level) }
		return eachRule(func(r rule) bool { return isLevel(r.DefaultConfiguration.Level) })(l) && eachResult(func(r result) bool { return isLevel(r.Level) })(l)
	},
	"a result has the ID and the index of its rule": func(l log) bool {
		return eachResult(func(r result) bool { return l.Runs[0].Tool.Driver.Rules[r.RuleIndex].ID == r.RuleID })(l)
	},
	"a result has a message": eachResult(func(r result) bool { return r.Message.Text != "" }),
	"a result has 1 to 10 locations, each a relative path without a colon, and a region": eachResult(func(r result) bool {
		isGood := func(l location) bool {
			uri, at := l.PhysicalLocation.ArtifactLocation.URI, l.PhysicalLocation.Region
			return uri != "" && !strings.HasPrefix(uri, "/") && !strings.ContainsAny(uri, ":\\ ") && at.StartLine > 0 && at.StartColumn > 0 && at.EndLine > 0 && at.EndColumn > 0
		}
		return len(r.Locations) > 0 && len(r.Locations) <= 10 && !slices.ContainsFunc(r.Locations, func(l location) bool { return !isGood(l) })
	}),
	"a result has the fingerprint that GitHub compares": eachResult(func(r result) bool { return r.PartialFingerprints["primaryLocationLineHash"] != "" }),
	"two results of a rule differ in their fingerprints": func(l log) bool {
		different := map[string]bool{}
		for _, r := range l.Runs[0].Results {
			different[fmt.Sprint(r.RuleIndex, slices.Sorted(maps.Values(r.PartialFingerprints)))] = true
		}
		return len(different) == len(l.Runs[0].Results)
	},
}

func eachRule(is func(rule) bool) func(log) bool {
	return func(l log) bool {
		return !slices.ContainsFunc(l.Runs[0].Tool.Driver.Rules, func(r rule) bool { return !is(r) })
	}
}

func eachResult(is func(result) bool) func(log) bool {
	return func(l log) bool {
		return !slices.ContainsFunc(l.Runs[0].Results, func(r result) bool { return !is(r) })
	}
}
