package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testPreviewSuppression checks that a preview shows what an exception then suppresses, and counts it as the Scanner does.
func (on suite) testPreviewSuppression(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web", "web2", "api", "blog")
	f.use(t, "scanner", "web", workload("web", "ghcr.io/shop/web"), workload("worker", "ghcr.io/shop/web"))
	f.use(t, "scanner", "web2", workload("web", "ghcr.io/shop/web"), workload("next", "ghcr.io/shop/web"))
	f.use(t, "scanner", "api", workload("api", "ghcr.io/shop/api"))
	elsewhere := workload("blog", "ghcr.io/blog/blog")
	elsewhere.Namespace = "blog"
	ofBlog := used("other", "blog", elsewhere)
	ofBlog.Namespace = "blog"
	must(t, f.SetUsage(t.Context(), ofBlog))
	openssl := vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed)
	openssl.Aliases = []string{"GHSA-aaaa-bbbb-cccc"}
	f.report(t, "web", openssl, vulnerable("CVE-2026-0002", "zlib"))
	f.report(t, "web2", openssl, vulnerable("CVE-2026-0001", "libssl", exploited))
	f.report(t, "api", vulnerable("CVE-2026-0001", "openssl", severity(finding.Low)), vulnerable("CVE-2026-0003", "curl"))
	f.report(t, "blog", openssl)

	set := func(e exception.Exception) exception.Set {
		e.UID, e.Namespace = "preview", "shop"
		return exception.NewSet([]exception.Exception{e}, f.clock.Now())
	}
	preview := func(namespaces []string, e exception.Exception, inForce ...exception.Exception) (lines []string) {
		asked := store.SuppressionQuery{Namespaces: namespaces, Exception: set(e), InForce: exception.NewSet(inForce, f.clock.Now())}
		found := got[store.SuppressionPreview](t)(f.PreviewSuppression(t.Context(), asked, 10))
		for _, p := range found.Findings {
			line := fmt.Sprintf("%s %s in %s of %s in %d", p.Severity, p.ID, p.Package.Name, p.Repository, p.Containers)
			if p.By != nil {
				line += " by " + p.By.Name
			}
			lines = append(lines, line)
		}
		equal(t, "total", found.Total, len(lines))
		equal(t, "counts", found.Counts.Total(), len(lines))
		if found.Partly > 0 {
			lines = append(lines, fmt.Sprint("partly ", found.Partly))
		}
		return lines
	}
	shop := []string{"shop"}
	const inWeb = "Critical CVE-2026-0001 in openssl of ghcr.io/shop/web in 3"
	for name, tt := range map[string]struct {
		exception exception.Exception
		want      []string
	}{
		"an ID": {exception.Exception{Vulnerabilities: []string{"cve-2026-0001"}}, []string{
			inWeb, "High CVE-2026-0001 in libssl of ghcr.io/shop/web in 2", "Low CVE-2026-0001 in openssl of ghcr.io/shop/api in 1",
		}},
		"an alias":                {exception.Exception{Vulnerabilities: []string{"GHSA-aaaa-bbbb-cccc"}}, []string{inWeb}},
		"packages by a pattern":   {exception.Exception{Packages: []exception.Package{{Name: "c*l"}}}, []string{"High CVE-2026-0003 in curl of ghcr.io/shop/api in 1"}},
		"an image of two":         {exception.Exception{Vulnerabilities: []string{"CVE-2026-0001"}, Images: []string{"*@" + key("web").Digest}}, []string{"partly 1"}},
		"nothing that runs":       {exception.Exception{Vulnerabilities: []string{"CVE-2026-0009"}}, nil},
		"neither ID nor package":  {exception.Exception{Images: []string{"*"}}, nil},
		"a repository":            {exception.Exception{Packages: []exception.Package{{Name: "openssl"}}, Images: []string{"*/web:1"}}, []string{inWeb}},
		"another package version": {exception.Exception{Packages: []exception.Package{{Name: "openssl", Version: "2.*"}}}, nil},
	} {
		equal(t, name, preview(shop, tt.exception), tt.want)
		suppressed := got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", set(tt.exception))).Suppressed
		if n := len(tt.want); n != suppressed && tt.want != nil && tt.want[0] != "partly 1" {
			t.Errorf("%s: the Scanner has %d suppressed findings, the preview %d", name, suppressed, n)
		}
	}
	equal(t, "in the namespaces that the query names", preview([]string{"blog"}, exception.Exception{Vulnerabilities: []string{"CVE-2026-0001"}}), []string(nil))
	others := exception.Exception{UID: "1", Name: "old", Namespace: "shop", Packages: []exception.Package{{Name: "openssl"}}, Images: []string{"*/web"}, Expires: f.clock.Now().Add(time.Hour)}
	equal(t, "with an exception in force", preview(shop, exception.Exception{Packages: []exception.Package{{Name: "openssl"}}}, others), []string{
		inWeb + " by old", "Low CVE-2026-0001 in openssl of ghcr.io/shop/api in 1",
	})
}
