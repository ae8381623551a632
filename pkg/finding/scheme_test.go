package finding

import (
	"testing"
	"time"
)

// TestIDSchemes: ids of known publishers are ids, in any case. Names of images, packages and workloads are none, however similar they look.
func TestIDSchemes(t *testing.T) {
	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	for _, id := range []string{
		"CVE-2024-3094", "cve-2021-44228", "CVE-2027-0001", "GHSA-rxwq-x6h5-x525", "ghsa-RXWQ-x6h5-x525", "GO-2023-1571", "RHSA-2024:1234", "ELSA-2018-0007", "ELSA-2024-12345-1",
		"ALAS-2023-100", "ALAS2-2024-2400", "ALAS2023-2024-500", "ALASKERNEL-5.10-2022-001", "DSA-5500-1", "DLA-3500-1", "USN-6000-1", "RUSTSEC-2021-0001", "PYSEC-2021-19", "SUSE-SU-2024:1234-1",
		"openSUSE-SU-2024:1234-1", "CGA-2222-3333-4444", "TEMP-0841856-B18BAF", "MAL-2022-1", "UBUNTU-CVE-2024-1000", "BIT-nginx-2023-44487",
	} {
		if _, isID := ParseID(id, now); !isID {
			t.Errorf("%s is no id, want one", id)
		}
	}
	for _, text := range []string{
		"", "nginx", "web-1", "shop-web-1.4.2", "python-3.12", "postgres-16", "CVE-2024", "CVE-2024-1", "CVE-1998-0001", "CVE-2099-0001", "GHSA-1", "utf-8", "sha256-abc1", "my-CVE-2024-3094", "CVE-2024-3094x",
		"Deployment/web-2", "redis-7-alpine", "RHSA-1",
	} {
		if _, isID := ParseID(text, now); isID {
			t.Errorf("%q is an id, want none", text)
		}
	}
}

// TestParseID: an id is recognized however people type or paste it. What is no id stays as it was typed.
func TestParseID(t *testing.T) {
	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"cve 2024 1234": "CVE-2024-1234", " CVE-2024-3094\n": "CVE-2024-3094", "cve_2024_1234": "CVE-2024-1234", "CVE\u20132024\u20113094": "CVE-2024-3094", "Cve - 2024 - 3094": "CVE-2024-3094",
		"ghsa RXWQ x6h5 X525": "GHSA-rxwq-x6h5-x525", "GHSA-RXWQ-X6H5-X525": "GHSA-rxwq-x6h5-x525", "cga-2222-3333-4444": "CGA-2222-3333-4444",
		"rhsa 2024 1234": "RHSA-2024:1234", "rhsa-2024:1234": "RHSA-2024:1234", "alsa-2024-1234": "ALSA-2024:1234", "suse su 2024 1234 1": "SUSE-SU-2024:1234-1", "opensuse-su-2024:1234-1": "OPENSUSE-SU-2024:1234-1",
		"elsa 2024 12345": "ELSA-2024-12345", "alas2 2024 2400": "ALAS2-2024-2400", "alaskernel-5.10 2022 001": "ALASKERNEL-5.10-2022-001", "dsa 5500 1": "DSA-5500-1", "usn 6000": "USN-6000",
		"go 2023 1571": "GO-2023-1571", "rustsec 2021 0001": "RUSTSEC-2021-0001", "pysec-2021-19": "PYSEC-2021-19", "mal 2022 1": "MAL-2022-1", "temp 0841856 b18baf": "TEMP-0841856-B18BAF",
		"CVE-2099-0001": "", "CVE 2024": "", "CVE-2024-1234 openssl": "", "CVE-2024-1234\nCVE-2024-1235": "", "2024 1234": "", "web 1": "", "Web_1 ": "", "": "", " ": "", "\xff": "",
	} {
		id, isID := ParseID(text, now)
		if isID != (want != "") || isID && id != want {
			t.Errorf("%q is the id %q, %v, want %q", text, id, isID, want)
		}
		if again, stays := ParseID(id, now); again != id || stays != isID {
			t.Errorf("%q of %q is the id %q, %v", id, text, again, stays)
		}
	}
	if text, _ := ParseID(" Web_1 x ", now); text != "Web_1 x" {
		t.Errorf("what is no id becomes %q", text)
	}
}
