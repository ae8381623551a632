package clair

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quay/claircore"
)

// TestNames: the IDs of an updater's record. The records have the forms of claircore's own updaters.
func TestNames(t *testing.T) {
	for name, tt := range map[string]struct {
		updater, title, links string
		want                  names
	}{
		"Debian": {"debian/updater", "CVE-2023-4911", "https://security-tracker.debian.org/tracker/CVE-2023-4911",
			names{ids: []string{"CVE-2023-4911"}, native: "CVE-2023-4911"}},
		"Debian, before there is a CVE": {"debian/updater", "TEMP-0841856-B18BAF", "https://security-tracker.debian.org/tracker/TEMP-0841856-B18BAF",
			names{ids: []string{"TEMP-0841856-B18BAF"}, native: "TEMP-0841856-B18BAF"}},
		"Alpine, of Xen":        {"alpine-main-v3.19-updater", "XSA-248", "https://security.alpinelinux.org/vuln/XSA-248", names{ids: []string{"XSA-248"}, native: "XSA-248"}},
		"Alpine, with a remark": {"alpine-main-v3.19-updater", "CVE-2017-2616 (+ regression fix)", "", names{ids: []string{"CVE-2017-2616"}, native: "CVE-2017-2616"}},
		"Ubuntu": {"ubuntu/updater/bionic", "CVE-2021-20193 on Ubuntu 18.04 LTS (bionic) - low.",
			"https://ubuntu.com/security/CVE-2021-20193 https://cve.mitre.org/cgi-bin/cvename.cgi?name=CVE-2021-99999",
			names{ids: []string{"CVE-2021-20193"}, native: "CVE-2021-20193"}},
		"SUSE": {"suse-updater-suse.linux.enterprise.server.15", "CVE-2002-2443", "http://cve.mitre.org/cgi-bin/cvename.cgi?name=CVE-2002-2443",
			names{ids: []string{"CVE-2002-2443"}, native: "CVE-2002-2443"}},
		"SUSE, an update": {"suse-updater", "SUSE-SU-2021:1234-1", "https://www.suse.com/security/cve/CVE-2021-2/ https://www.suse.com/security/cve/CVE-2021-00002/ https://www.suse.com/security/cve/CVE-2021-00001/",
			names{ids: []string{"CVE-2021-00001", "CVE-2021-00002"}, native: "SUSE-SU-2021:1234-1"}},
		"Oracle": {"oracle-2018-updater", "\nELSA-2018-0007:  kernel security update (IMPORTANT)\n",
			"https://linux.oracle.com/errata/ELSA-2018-0007.html https://linux.oracle.com/cve/CVE-2017-5754.html https://linux.oracle.com/cve/CVE-2017-5715.html",
			names{ids: []string{"CVE-2017-5715", "CVE-2017-5754"}, native: "ELSA-2018-0007"}},
		"Amazon": {"aws-linux2-updater", "ALAS2-2021-1704", "http://cve.mitre.org/cgi-bin/cvename.cgi?name=CVE-2021-0001 http://cve.mitre.org/cgi-bin/cvename.cgi?name=CVE-2021-0002",
			names{ids: []string{"CVE-2021-0001", "CVE-2021-0002"}, native: "ALAS2-2021-1704"}},
		"Photon": {"photon-updater-photon3", "PHSA-2020:00001 sqlite Security Update. (Important)",
			"https://github.com/vmware/photon/wiki/Security-Updates-3.0-0036 https://nvd.nist.gov/vuln/detail?vulnId=CVE-2019-16168",
			names{ids: []string{"CVE-2019-16168"}, native: "PHSA-2020:00001"}},
		"Red Hat, an update of several": {"rhel-updater", "RHSA-2021:1234: openssl security update (Important)",
			"https://access.redhat.com/errata/RHSA-2021:1234 https://access.redhat.com/security/cve/CVE-2021-3449 https://access.redhat.com/security/cve/CVE-2021-3450",
			names{ids: []string{"CVE-2021-3449", "CVE-2021-3450"}, native: "RHSA-2021:1234"}},
		"an update without any CVE": {"oracle-2018-updater", "ELSA-2018-0008: tzdata", "https://linux.oracle.com/errata/ELSA-2018-0008.html",
			names{ids: []string{"ELSA-2018-0008"}, native: "ELSA-2018-0008"}},
		"Go": {"osv/go", "GO-2023-2102", "https://go.dev/issue/63417 https://osv.dev/vulnerability/CVE-2023-39325 https://osv.dev/vulnerability/GHSA-4374-p667-p6c8",
			names{ids: []string{"CVE-2023-39325"}, native: "GO-2023-2102", aliases: []string{"CVE-2023-39325", "GHSA-4374-p667-p6c8"}}},
		"Go, with a link to another CVE": {"osv/go", "GO-2023-2102", "https://nvd.nist.gov/vuln/detail/CVE-2023-44487 https://osv.dev/vulnerability/CVE-2023-39325",
			names{ids: []string{"CVE-2023-39325"}, native: "GO-2023-2102", aliases: []string{"CVE-2023-39325"}}},
		"OSV without an alias": {"osv/go", "GO-2026-5932", "https://nvd.nist.gov/vuln/detail/CVE-2023-44487", names{ids: []string{"GO-2026-5932"}, native: "GO-2026-5932"}},
		"OSV with two CVEs: none would be right, as with Grype": {"osv/pypi", "GHSA-aaaa-bbbb-cc99", "https://osv.dev/vulnerability/CVE-2023-0002 https://osv.dev/vulnerability/CVE-2023-0001",
			names{ids: []string{"GHSA-aaaa-bbbb-cc99"}, native: "GHSA-aaaa-bbbb-cc99", aliases: []string{"CVE-2023-0002", "CVE-2023-0001"}}},
		"a title of several":    {"other", "cve_2021_0001 and CVE-2021-0002", "", names{ids: []string{"CVE-2021-0001", "CVE-2021-0002"}, native: "cve_2021_0001 and CVE-2021-0002"}},
		"a title without an id": {"other", "Some trouble", "", names{ids: []string{"Some trouble"}, native: "Some trouble"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := namesOf(&claircore.Vulnerability{Updater: tt.updater, Name: tt.title, Links: tt.links})
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(names{})); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAddress: the link that is shown to readers.
func TestAddress(t *testing.T) {
	for name, tt := range map[string]struct{ links, want string }{
		"the advisory itself":    {"https://example.com/a https://example.com/CVE-2024-0001 https://example.com/GHSA-aaaa-bbbb-cc99", "https://example.com/GHSA-aaaa-bbbb-cc99"},
		"else the vulnerability": {"https://example.com/a https://example.com/CVE-2024-0001", "https://example.com/CVE-2024-0001"},
		"else the first":         {"https://example.com/a https://example.com/b", "https://example.com/a"},
		"only of the web":        {"javascript:alert('GHSA-aaaa-bbbb-cc99') file:///GHSA-aaaa-bbbb-cc99 https:///CVE-2024-0001 http://example.com/c", "http://example.com/c"},
		"nothing that is a link": {"GHSA-aaaa-bbbb-cc99", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := primaryLink(&claircore.Vulnerability{Links: tt.links}, names{native: "GHSA-aaaa-bbbb-cc99", ids: []string{"CVE-2024-0001"}})
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
