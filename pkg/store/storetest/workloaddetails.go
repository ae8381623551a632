package storetest

import (
	"fmt"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testWorkloadDetails checks that a workload has its own images and their findings, each once.
func (on suite) testWorkloadDetails(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web", "proxy", "api")
	sidecar := workload("web", "ghcr.io/shop/proxy")
	sidecar.Container = "proxy"
	f.use(t, "scanner", "web", workload("web", "ghcr.io/shop/web"))
	f.use(t, "scanner", "proxy", sidecar, workload("other", "ghcr.io/shop/proxy"))
	f.use(t, "scanner", "api", workload("api", "ghcr.io/shop/api"))
	f.use(t, "scanner", "pending", workload("web", "ghcr.io/shop/pending"))
	elsewhere := used("scanner", "api", workload("web", "ghcr.io/shop/api"))
	elsewhere.Namespace, elsewhere.Workloads[0].Namespace = "blog", "blog"
	must(t, f.SetUsage(t.Context(), elsewhere))
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "zlib", severity(finding.Low), fixed))
	f.report(t, "proxy", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical)))
	f.report(t, "api", vulnerable("CVE-2026-0003", "curl"))

	lines := func(namespace, kind, name string, exceptions ...exception.Exception) (lines []string) {
		asked := store.WorkloadQuery{Namespace: namespace, Kind: kind, Name: name, Exceptions: exception.NewSet(exceptions, f.clock.Now())}
		d := got[store.WorkloadDetails](t)(f.Workload(t.Context(), asked, 10))
		for _, i := range d.Images {
			lines = append(lines, fmt.Sprint(i.Container, " runs ", i.Reference, " of ", i.Scanner))
		}
		for _, found := range d.Findings {
			line := fmt.Sprint(found.Severity, " ", found.ID, " in ", found.Package.Name, " of ", found.Containers)
			if found.Exception != nil {
				line += " by " + found.Exception.Name
			}
			lines = append(lines, line)
		}
		return append(lines, fmt.Sprint(d.Counts.Total(), " and ", d.Suppressed))
	}
	const (
		pending, web, proxy = "main runs ghcr.io/shop/pending:1 of scanner", "main runs ghcr.io/shop/web:1 of scanner", "proxy runs ghcr.io/shop/proxy:1 of scanner"
		zlib                = "Low CVE-2026-0002 in zlib of [main]"
	)
	equal(t, "web", lines("shop", "Deployment", "web"), []string{pending, web, proxy, "Critical CVE-2026-0001 in openssl of [main proxy]", zlib, "2 and 0"})
	equal(t, "another kind", lines("shop", "StatefulSet", "web"), []string{"0 and 0"})
	equal(t, "another namespace", lines("blog", "Deployment", "web"), []string{"main runs ghcr.io/shop/api:1 of scanner", "High CVE-2026-0003 in curl of [main]", "1 and 0"})
	openssl := exception.Exception{UID: "1", Name: "old", Namespace: "shop", Vulnerabilities: []string{"CVE-2026-0001"}}
	equal(t, "with an exception", lines("shop", "Deployment", "web", openssl), []string{
		pending, web, proxy, "Critical CVE-2026-0001 in openssl of [main proxy] by old", zlib, "1 and 1",
	})
	openssl.Images = []string{"*/web"}
	equal(t, "with an exception for one of the images", lines("shop", "Deployment", "web", openssl), []string{
		pending, web, proxy, "Critical CVE-2026-0001 in openssl of [main proxy]", zlib, "2 and 0",
	})
}
