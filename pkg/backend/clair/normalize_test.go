package clair

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/quay/claircore"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// recorded reads a report recorded from Clair 4.9.
func recorded(t testing.TB, name string) *claircore.VulnerabilityReport {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "report_"+name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	report := &claircore.VulnerabilityReport{}
	if err := json.Unmarshal(text, report); err != nil {
		t.Fatal(err)
	}
	return report
}

var recordings = []string{"alpine", "debian-old", "goapp", "py", "registry"}

func normalised(t testing.TB, report *claircore.VulnerabilityReport) []finding.Finding {
	t.Helper()
	findings, err := Normalise(report)
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// find returns the finding of a vulnerability in a package.
func find(t testing.TB, findings []finding.Finding, id, pkg string) finding.Finding {
	t.Helper()
	for _, f := range findings {
		if f.ID == id && f.Package.Name == pkg {
			return f
		}
	}
	t.Fatalf("there is no finding of %s in %s", id, pkg)
	return finding.Finding{}
}

// TestRecordedFindings: complete findings, and the counts by severity, of real reports. The expectations were read from the reports by eye
// and counted with jq.
func TestRecordedFindings(t *testing.T) {
	nvdRating := func(vector string, score float64) []finding.Rating {
		return []finding.Rating{{Source: "nvd@nist.gov", Version: "3.1", Vector: vector, Score: score}}
	}
	for name, tt := range map[string]struct {
		counts finding.Counts
		want   finding.Finding
	}{
		"alpine": {
			counts: finding.Counts{Medium: 1, Unknown: 7},
			want: finding.Finding{
				ID: "CVE-2023-6129", Severity: finding.Unknown, Paths: []string{"/lib/apk/db/installed"},
				Package: finding.Package{Name: "libcrypto3", Version: "3.1.4-r1", Type: "apk",
					PURL: "pkg:apk/alpine/libcrypto3@3.1.4-r1?arch=x86_64&distro=alpine-3.19&upstream=openssl"},
				FixState: "fixed", FixVersions: []string{"3.1.4-r3"}, URL: "https://security.alpinelinux.org/vuln/CVE-2023-6129",
				Advisories: []finding.Advisory{{ID: "CVE-2023-6129", Source: "alpine-main-v3.19-updater", Severity: "Unknown",
					FixState: "fixed", FixVersions: []string{"3.1.4-r3"}, Layer: "sha256:94278f2a9f15f8691f5f6498afdb39261ddf48c0c5d22e56e1e66a2804429c97"}},
			},
		},
		// Debian has no severity yet, so the NVD's rating counts.
		"debian-old": {
			counts: finding.Counts{Critical: 1, High: 2, Medium: 1, Low: 21, Unknown: 3},
			want: finding.Finding{
				ID: "CVE-2023-4911", Severity: finding.High, Paths: []string{"/var/lib/dpkg/status"},
				Package: finding.Package{Name: "libc6", Version: "2.36-9+deb12u1", Type: "deb",
					PURL: "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64&distro=debian-12&upstream=glibc"},
				FixState: "fixed", FixVersions: []string{"2.36-9+deb12u3"}, CVSS: 7.8,
				Description: "A buffer overflow was discovered in the GNU C Library dynamic loader ld.so while processing the GLIBC_TUNABLES environment variable.",
				URL:         "https://security-tracker.debian.org/tracker/CVE-2023-4911",
				Advisories: []finding.Advisory{{ID: "CVE-2023-4911", Source: "debian/updater", Severity: "not yet assigned",
					FixState: "fixed", FixVersions: []string{"2.36-9+deb12u3"}, Layer: "sha256:15498e0f55743dfec025d30f6316ed94fe7895d7e64e9961f1362eeeb6087e49",
					Ratings: nvdRating("CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", 7.8)}},
			},
		},
		"goapp": {
			counts: finding.Counts{High: 1, Unknown: 40},
			want: finding.Finding{
				ID: "CVE-2020-26160", Aliases: []string{"GHSA-w73w-5m7g-f7qc", "GO-2020-0017"}, Severity: finding.Unknown, Paths: []string{"/app/goapp"},
				Package: finding.Package{Name: "github.com/dgrijalva/jwt-go", Version: "v3.2.0+incompatible", Type: "go-module",
					PURL: "pkg:golang/github.com/dgrijalva/jwt-go@v3.2.0%2Bincompatible"},
				FixState: "unknown", Description: "Authorization bypass in github.com/dgrijalva/jwt-go", URL: "https://osv.dev/vulnerability/CVE-2020-26160",
				Advisories: []finding.Advisory{{ID: "GO-2020-0017", Source: "osv/go", Severity: "Unknown",
					FixState: "unknown", Layer: "sha256:4dc19cbdd23a22e18090ee388cd25e07b4f582eab93c99d76c9ec7d45b3c9f1c"}},
			},
		},
		// Two records of one vulnerability, of which only one has a severity.
		"py": {
			counts: finding.Counts{Critical: 1, Medium: 2, Low: 21},
			want: finding.Finding{
				ID: "CVE-2023-32681", Aliases: []string{"GHSA-j8r2-6x86-q33q", "PYSEC-2023-74"}, Severity: finding.Medium, Paths: []string{"/usr/lib/python3/site-packages"},
				Package:  finding.Package{Name: "requests", Version: "2.28.0", Type: "python", PURL: "pkg:pypi/requests@2.28.0"},
				FixState: "fixed", FixVersions: []string{"2.31.0"}, CVSS: 6.1,
				Description: "Unintended leak of Proxy-Authorization header in requests", URL: "https://nvd.nist.gov/vuln/detail/CVE-2023-32681",
				Advisories: []finding.Advisory{
					{ID: "GHSA-j8r2-6x86-q33q", Source: "osv/pypi", Severity: "Medium", FixState: "fixed", FixVersions: []string{"2.31.0"},
						Layer:   "sha256:d6ec4688cc74e044e18c94a7fc44c884327fae1c2dd5a3e3204784f9b2b81da6",
						Ratings: []finding.Rating{{Version: "3.1", Vector: "CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:C/C:H/I:N/A:N", Score: 6.1}}},
					{ID: "PYSEC-2023-74", Source: "osv/pypi", Severity: "Unknown", FixState: "fixed", FixVersions: []string{"2.31.0"},
						Layer: "sha256:d6ec4688cc74e044e18c94a7fc44c884327fae1c2dd5a3e3204784f9b2b81da6"},
				},
			},
		},
		"registry": {
			counts: finding.Counts{Critical: 1, High: 1, Medium: 1, Low: 21, Unknown: 79},
			want: finding.Finding{
				ID: "CVE-2023-39325", Aliases: []string{"GHSA-4374-p667-p6c8", "GO-2023-2102"}, Severity: finding.High, Paths: []string{"/usr/bin/docker-registry"},
				Package:  finding.Package{Name: "stdlib", Version: "go1.19.8", Type: "go-module", PURL: "pkg:golang/stdlib@1.19.8"},
				FixState: "fixed", FixVersions: []string{"1.20.10"}, CVSS: 7.5,
				Description: "HTTP/2 rapid reset can cause excessive work in net/http", URL: "https://osv.dev/vulnerability/CVE-2023-39325",
				Advisories: []finding.Advisory{{ID: "GO-2023-2102", Source: "osv/go", Severity: "Unknown",
					FixState: "fixed", FixVersions: []string{"1.20.10"}, Layer: "sha256:87fc3740b264437a912bb1c37846422b9e8e84132282f7189d958efcb0e2c843",
					Ratings: nvdRating("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H", 7.5)}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings := normalised(t, recorded(t, name))
			var counts finding.Counts
			for _, f := range findings {
				counts.Add(f.Severity, 1)
			}
			if counts != tt.counts {
				t.Errorf("findings by severity: got %+v, want %+v", counts, tt.counts)
			}
			if diff := cmp.Diff(tt.want, find(t, findings, tt.want.ID, tt.want.Package.Name), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("finding (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryVulnerabilityIsReportedOnce: each vulnerability of each package in a real report becomes exactly one advisory of one finding, and
// there are no others.
func TestEveryVulnerabilityIsReportedOnce(t *testing.T) {
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			report := recorded(t, name)
			raw := map[string]int{}
			for pkg, vulnerabilities := range report.PackageVulnerabilities {
				for _, id := range vulnerabilities {
					v := report.Vulnerabilities[id]
					raw[strings.Join([]string{report.Packages[pkg].Name, v.Updater, v.Name}, " ")]++
				}
			}
			got := map[string]int{}
			for _, f := range normalised(t, report) {
				for _, a := range f.Advisories {
					got[strings.Join([]string{f.Package.Name, a.Source, a.ID}, " ")]++
				}
			}
			if diff := cmp.Diff(raw, got); diff != "" {
				t.Errorf("what the report says and what became of it (-report +findings):\n%s", diff)
			}
		})
	}
}

// TestInternalIDsDoNotMatter: the result does not depend on Clair's internal IDs of packages and vulnerabilities, which change with its
// data.
func TestInternalIDsDoNotMatter(t *testing.T) {
	report := recorded(t, "py")
	want := normalised(t, report)
	rapid.Check(t, func(rt *rapid.T) {
		renumbered := *report
		vulnerabilities := permuted(rt, "vulnerabilities", slices.Sorted(maps.Keys(report.Vulnerabilities)))
		packages := permuted(rt, "packages", slices.Sorted(maps.Keys(report.Packages)))
		renumbered.Vulnerabilities, renumbered.Packages = rename(report.Vulnerabilities, vulnerabilities), rename(report.Packages, packages)
		renumbered.Environments = rename(report.Environments, packages)
		renumbered.PackageVulnerabilities = map[string][]string{}
		for pkg, ids := range report.PackageVulnerabilities {
			for _, id := range slices.Backward(ids) {
				renumbered.PackageVulnerabilities[packages[pkg]] = append(renumbered.PackageVulnerabilities[packages[pkg]], vulnerabilities[id])
			}
		}
		renumbered.Enrichments = map[string][]json.RawMessage{}
		for kind, messages := range report.Enrichments {
			for _, message := range messages {
				var ratings map[string]json.RawMessage
				if err := json.Unmarshal(message, &ratings); err != nil {
					rt.Fatal(err)
				}
				text, err := json.Marshal(rename(ratings, vulnerabilities))
				if err != nil {
					rt.Fatal(err)
				}
				renumbered.Enrichments[kind] = append(renumbered.Enrichments[kind], text)
			}
		}
		got, err := Normalise(&renumbered)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Errorf("with other numbers (-want +got):\n%s", diff)
		}
	})
}

func permuted(t *rapid.T, label string, ids []string) map[string]string {
	to := map[string]string{}
	for i, id := range rapid.Permutation(ids).Draw(t, label) {
		to[ids[i]] = id
	}
	return to
}

func rename[V any](from map[string]V, names map[string]string) map[string]V {
	to := map[string]V{}
	for id, value := range from {
		to[names[id]] = value
	}
	return to
}

// TestKeysAgreeWithGrype: a finding of both engines has the same key. The matches are as Grype workers upload them.
func TestKeysAgreeWithGrype(t *testing.T) {
	for name, tt := range map[string]struct {
		report, id, pkg string
		match           workerapi.Finding
	}{
		"a Debian package": {"debian-old", "CVE-2023-4911", "libc6", workerapi.Finding{
			ID: "CVE-2023-4911", Namespace: "debian:distro:debian:12",
			Package: workerapi.Package{Name: "libc6", Version: "2.36-9+deb12u1", Type: "deb", Upstreams: []string{"glibc"},
				PURL: "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64&distro=debian-12&upstream=glibc"},
			Locations: []workerapi.Location{{Path: "/var/lib/dpkg/status"}, {Path: "/var/lib/dpkg/info/libc6.list"}},
		}},
		"an Alpine package": {"alpine", "CVE-2023-6129", "libcrypto3", workerapi.Finding{
			ID: "CVE-2023-6129", Namespace: "alpine:distro:alpine:3.19",
			Package: workerapi.Package{Name: "libcrypto3", Version: "3.1.4-r1", Type: "apk", Upstreams: []string{"openssl"},
				PURL: "pkg:apk/alpine/libcrypto3@3.1.4-r1?arch=x86_64&distro=alpine-3.19.0&upstream=openssl"},
			Locations: []workerapi.Location{{Path: "/lib/apk/db/installed"}},
		}},
		"a Go module": {"goapp", "CVE-2023-39325", "golang.org/x/net", workerapi.Finding{
			ID: "GHSA-4374-p667-p6c8", Namespace: "github:language:go", Aliases: []string{"CVE-2023-39325"},
			Package:   workerapi.Package{Name: "golang.org/x/net", Version: "v0.7.0", Type: "go-module", PURL: "pkg:golang/golang.org/x/net@v0.7.0"},
			Locations: []workerapi.Location{{Path: "/app/goapp"}},
		}},
		"Go's standard library": {"registry", "CVE-2023-39325", "stdlib", workerapi.Finding{
			ID: "CVE-2023-39325", Namespace: "nvd:cpe",
			Package:   workerapi.Package{Name: "stdlib", Version: "go1.19.8", Type: "go-module", PURL: "pkg:golang/stdlib@1.19.8"},
			Locations: []workerapi.Location{{Path: "/usr/bin/docker-registry"}},
		}},
		"a Python package, which Grype finds by its metadata": {"py", "CVE-2023-32681", "requests", workerapi.Finding{
			ID: "GHSA-j8r2-6x86-q33q", Namespace: "github:language:python", Aliases: []string{"CVE-2023-32681"},
			Package:   workerapi.Package{Name: "requests", Version: "2.28.0", Type: "python", PURL: "pkg:pypi/requests@2.28.0"},
			Locations: []workerapi.Location{{Path: "/usr/lib/python3/site-packages/requests-2.28.0.dist-info/METADATA"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ours := find(t, normalised(t, recorded(t, tt.report)), tt.id, tt.pkg)
			theirs := grype.Normalise([]workerapi.Finding{tt.match})[0]
			if ours.Key() != theirs.Key() {
				t.Errorf("Clair's and Grype's findings have different keys:\n%+v\n%+v", ours, theirs)
			}
		})
	}
}

// small returns a report with one package in two locations, and its vulnerabilities.
func small(vulnerabilities ...*claircore.Vulnerability) *claircore.VulnerabilityReport {
	report := &claircore.VulnerabilityReport{
		Packages:               map[string]*claircore.Package{"1": {Name: "openssl-libs", Version: "1:3.0.1-1.el9", Arch: "x86_64"}},
		Distributions:          map[string]*claircore.Distribution{"1": {DID: "ol", VersionID: "9"}},
		Environments:           map[string][]*claircore.Environment{"1": {{PackageDB: "sqlite:var/lib/rpm", DistributionID: "1"}, {PackageDB: "sqlite:usr/lib/sysimage/rpm", DistributionID: "1"}}},
		Vulnerabilities:        map[string]*claircore.Vulnerability{},
		PackageVulnerabilities: map[string][]string{"1": {}},
	}
	for i, v := range vulnerabilities {
		id := strconv.Itoa(i)
		report.Vulnerabilities[id] = v
		report.PackageVulnerabilities["1"] = append(report.PackageVulnerabilities["1"], id)
	}
	return report
}

var errata = claircore.Vulnerability{
	Updater: "oracle-2024-updater", Name: "\nELSA-2024-0007:  openssl security update (IMPORTANT)\n", Severity: "IMPORTANT", NormalizedSeverity: claircore.High,
	Links:          "https://linux.oracle.com/errata/ELSA-2024-0007.html https://linux.oracle.com/cve/CVE-2023-5753.html https://linux.oracle.com/cve/CVE-2023-5754.html",
	FixedInVersion: "1:3.0.1-2.el9",
}

// TestAdvisoryOfSeveral: an advisory that covers several CVEs becomes one finding for each, regardless of the number of locations of the
// package.
func TestAdvisoryOfSeveral(t *testing.T) {
	repeated, older := errata, errata
	older.Name, older.FixedInVersion, older.Severity, older.NormalizedSeverity = "ELSA-2023-9999:  openssl (CRITICAL)", "", "CRITICAL", claircore.Critical
	older.Links = "https://linux.oracle.com/cve/CVE-2023-5754.html"
	findings := normalised(t, small(&older, &errata, &repeated))
	advisory := finding.Advisory{ID: "ELSA-2024-0007", Source: "oracle-2024-updater", Severity: "IMPORTANT", FixState: "fixed", FixVersions: []string{"1:3.0.1-2.el9"}}
	want := finding.Finding{
		ID: "CVE-2023-5753", Aliases: []string{"ELSA-2024-0007"}, Severity: finding.High, FixState: "fixed", FixVersions: []string{"1:3.0.1-2.el9"},
		Package: finding.Package{Name: "openssl-libs", Version: "1:3.0.1-1.el9", Type: "rpm", PURL: "pkg:rpm/ol/openssl-libs@3.0.1-1.el9?arch=x86_64&distro=ol-9&epoch=1"},
		Paths:   []string{"/usr/lib/sysimage/rpm", "/var/lib/rpm"}, URL: "https://linux.oracle.com/errata/ELSA-2024-0007.html",
		Advisories: []finding.Advisory{advisory},
	}
	if diff := cmp.Diff(want, find(t, findings, "CVE-2023-5753", "openssl-libs")); diff != "" {
		t.Errorf("what only one advisory covers (-want +got):\n%s", diff)
	}
	// Both advisories cover this CVE: the worst severity counts, and the fix that only one of them has.
	want.ID, want.Aliases, want.Severity = "CVE-2023-5754", []string{"ELSA-2023-9999", "ELSA-2024-0007"}, finding.Critical
	want.Advisories = []finding.Advisory{{ID: "ELSA-2023-9999", Source: "oracle-2024-updater", Severity: "CRITICAL", FixState: "unknown"}, advisory}
	if diff := cmp.Diff(want, find(t, findings, "CVE-2023-5754", "openssl-libs")); diff != "" {
		t.Errorf("what both cover (-want +got):\n%s", diff)
	}
	if len(findings) != 2 {
		t.Errorf("got %d findings, want 2", len(findings))
	}
}

// TestNotAffected: a fix in version 0 means that no version is affected.
func TestNotAffected(t *testing.T) {
	other := errata
	other.FixedInVersion = "0"
	if findings := normalised(t, small(&other)); len(findings) != 0 {
		t.Errorf("got %+v, want nothing", findings)
	}
}

// TestCopies: a language package in two locations gives two findings, since an update of one leaves the other.
func TestCopies(t *testing.T) {
	report := small(&claircore.Vulnerability{Name: "CVE-2024-0001"})
	report.Environments["1"] = []*claircore.Environment{{PackageDB: "go:usr/bin/a"}, {PackageDB: "go:usr/bin/b"}}
	if findings := normalised(t, report); len(findings) != 2 {
		t.Errorf("got %+v, want one finding for each binary", findings)
	}
}

// TestTolerated: parts that a report may lack without being invalid.
func TestTolerated(t *testing.T) {
	for name, change := range map[string]func(*claircore.VulnerabilityReport){
		"no environments":              func(r *claircore.VulnerabilityReport) { r.Environments = nil },
		"an environment that is null":  func(r *claircore.VulnerabilityReport) { r.Environments["1"] = []*claircore.Environment{nil} },
		"no distribution":              func(r *claircore.VulnerabilityReport) { r.Distributions = nil },
		"a distribution without names": func(r *claircore.VulnerabilityReport) { r.Distributions["1"] = &claircore.Distribution{} },
		"an unknown package database": func(r *claircore.VulnerabilityReport) {
			r.Environments["1"] = []*claircore.Environment{{PackageDB: "cobol:usr/share"}}
		},
		"a package with nothing":              func(r *claircore.VulnerabilityReport) { r.Packages["1"] = &claircore.Package{} },
		"an unknown package without findings": func(r *claircore.VulnerabilityReport) { r.PackageVulnerabilities["2"] = nil },
		"an enrichment of another kind": func(r *claircore.VulnerabilityReport) {
			r.Enrichments = map[string][]json.RawMessage{"other": {json.RawMessage("1")}}
		},
		"an enrichment that is null": func(r *claircore.VulnerabilityReport) {
			r.Enrichments = map[string][]json.RawMessage{cvssEnricher: {json.RawMessage("null")}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			report := small(&claircore.Vulnerability{Name: "CVE-2024-0001"})
			change(report)
			findings := normalised(t, report)
			if len(findings) != 1 || findings[0].ID != "CVE-2024-0001" || findings[0].Package.Type == "" || findings[0].FixState != "unknown" {
				t.Errorf("got %+v, want the one finding", findings)
			}
		})
	}
}

// TestInvalidOptions: a report that cannot be understood is an error, since a partial result would look like a cleaner image.
func TestInvalidOptions(t *testing.T) {
	huge := strings.Repeat("x", maxTextBytes/2)
	for name, tt := range map[string]struct {
		change func(*claircore.VulnerabilityReport)
		want   string
	}{
		"an unknown package":          {func(r *claircore.VulnerabilityReport) { r.Packages = nil }, `package "1" is not among`},
		"an unknown vulnerability":    {func(r *claircore.VulnerabilityReport) { r.Vulnerabilities = nil }, `vulnerability "0" is not among`},
		"a vulnerability of no name":  {func(r *claircore.VulnerabilityReport) { r.Vulnerabilities["0"].Name = " \n" }, `"0" of the vulnerability report has no name`},
		"an enrichment of other form": {func(r *claircore.VulnerabilityReport) { r.Enrichments = enriched(`[]`) }, "enrichment clair.cvss"},
		"too many findings": {func(r *claircore.VulnerabilityReport) {
			r.PackageVulnerabilities["1"] = slices.Repeat([]string{"0"}, maxFindings)
		}, "too large"},
		"too much text": {func(r *claircore.VulnerabilityReport) { r.Vulnerabilities["0"].FixedInVersion = huge }, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			report := small(&claircore.Vulnerability{Name: "CVE-2024-0001"})
			tt.change(report)
			findings, err := Normalise(report)
			if err == nil || !strings.Contains(err.Error(), tt.want) || findings != nil {
				t.Errorf("got %d findings and the error %v, want none and one with %q", len(findings), err, tt.want)
			}
		})
	}
	if _, err := Normalise(nil); err == nil {
		t.Error("no report is no error")
	}
}

func enriched(text string) map[string][]json.RawMessage {
	return map[string][]json.RawMessage{"message/vnd.clair.map.vulnerability; enricher=clair.cvss schema=x": {json.RawMessage(text)}}
}

// TestLongDescription: a long description is cut between two characters.
func TestLongDescription(t *testing.T) {
	v := claircore.Vulnerability{Name: "CVE-2024-0001", Description: strings.Repeat("é", maxDescriptionBytes)}
	got := normalised(t, small(&v))[0].Description
	if want := strings.Repeat("é", (maxDescriptionBytes-len("…"))/2) + "…"; got != want {
		t.Errorf("got %d bytes that end in %q, want %d", len(got), got[len(got)-6:], len(want))
	}
}

// FuzzNormalise: any answer of Clair gives bounded findings or an error, never a panic.
func FuzzNormalise(f *testing.F) {
	osv := claircore.Vulnerability{Updater: "osv/pypi", Name: "GHSA-aaaa-bbbb-cc99", Links: "https://osv.dev/vulnerability/CVE-2024-0001",
		Severity: "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", FixedInVersion: "fixed=1.0&introduced=0"}
	report := small(&errata, &osv)
	report.Environments["1"][0].PackageDB = "python:usr/lib/python3/dist-packages"
	report.Environments["1"][1].PackageDB = "maven:opt/app.jar:lib/x.jar"
	for _, environment := range report.Environments["1"] {
		environment.IntroducedIn = claircore.MustParseDigest("sha256:" + strings.Repeat("a", 64)) // an empty digest cannot be decoded again
	}
	report.Hash = report.Environments["1"][0].IntroducedIn
	report.Enrichments = enriched(`{"0":[{"version":"3.1","baseScore":9.8,"baseSeverity":"CRITICAL"}]}`)
	text, err := json.Marshal(report)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"packages":{"1":null},"package_vulnerabilities":{"1":["1"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var report claircore.VulnerabilityReport
		if err := decode(text, &report); err != nil {
			t.Skip()
		}
		findings, err := Normalise(&report)
		if err != nil && findings != nil {
			t.Error("there are findings beside an error")
		}
		keys := map[string]bool{}
		for _, found := range findings {
			if keys[found.Key()] {
				t.Errorf("two findings have one key: %+v", found)
			}
			keys[found.Key()] = true
			if found.ID == "" || len(found.Advisories) == 0 || found.CVSS < 0 || found.CVSS > 10 || len(found.Description) > maxDescriptionBytes {
				t.Errorf("a finding that breaks its promises: %+v", found)
			}
		}
	})
}

// decode reads a report. It recovers because unknown severities make claircore's decoder panic.
func decode(text []byte, report *claircore.VulnerabilityReport) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = errors.Join(err, fmt.Errorf("%v", problem))
		}
	}()
	return json.Unmarshal(text, report)
}
