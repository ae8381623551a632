package finding

import (
	"testing"
	"time"
)

// TestIsID: ids of known publishers are ids, in any case. Names of images, packages and workloads are none, however similar they look.
func TestIsID(t *testing.T) {
	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	for _, id := range []string{
		"CVE-2024-3094", "cve-2021-44228", "CVE-2027-0001", "GHSA-rxwq-x6h5-x525", "ghsa-RXWQ-x6h5-x525", "GO-2023-1571", "RHSA-2024:1234", "ELSA-2018-0007", "ELSA-2024-12345-1",
		"ALAS-2023-100", "ALAS2-2024-2400", "ALAS2023-2024-500", "ALASKERNEL-5.10-2022-001", "DSA-5500-1", "DLA-3500-1", "USN-6000-1", "RUSTSEC-2021-0001", "PYSEC-2021-19", "SUSE-SU-2024:1234-1",
		"openSUSE-SU-2024:1234-1", "CGA-2222-3333-4444", "TEMP-0841856-B18BAF", "MAL-2022-1", "UBUNTU-CVE-2024-1000", "BIT-nginx-2023-44487",
	} {
		if !IsID(id, now) {
			t.Errorf("%s is no id, want one", id)
		}
	}
	for _, text := range []string{
		"", "nginx", "web-1", "shop-web-1.4.2", "python-3.12", "postgres-16", "CVE-2024", "CVE-2024-1", "CVE-1998-0001", "CVE-2099-0001", "GHSA-1", "utf-8", "sha256-abc1", "my-CVE-2024-3094", "CVE-2024-3094x",
		"Deployment/web-2", "redis-7-alpine", "RHSA-1",
	} {
		if IsID(text, now) {
			t.Errorf("%q is an id, want none", text)
		}
	}
}
