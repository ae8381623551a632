package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	address := func(url string) func(*finding.Finding) { return func(v *finding.Finding) { v.URL = url } }
	tooLong := address("https://example.com/" + strings.Repeat("ü", 256))
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl", address("https://example.com/1")), vulnerable("CVE-2026-0002", "zlib", severity(finding.Low), fixed, tooLong))
	f.report(t, "proxy", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), address("https://example.com/1")))
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
			if found.URL != "" {
				line += ", see " + found.URL
			}
			lines = append(lines, line)
		}
		return append(lines, fmt.Sprint(d.Counts.Total(), " and ", d.Suppressed))
	}
	const (
		pending, web, proxy = "main runs ghcr.io/shop/pending:1 of scanner", "main runs ghcr.io/shop/web:1 of scanner", "proxy runs ghcr.io/shop/proxy:1 of scanner"
		zlib                = "Low CVE-2026-0002 in zlib of [main]"
	)
	equal(t, "web", lines("shop", "Deployment", "web"), []string{pending, web, proxy, "Critical CVE-2026-0001 in openssl of [main proxy], see https://example.com/1", zlib, "2 and 0"})
	equal(t, "another kind", lines("shop", "StatefulSet", "web"), []string{"0 and 0"})
	equal(t, "another namespace", lines("blog", "Deployment", "web"), []string{"main runs ghcr.io/shop/api:1 of scanner", "High CVE-2026-0003 in curl of [main]", "1 and 0"})
	openssl := exception.Exception{UID: "1", Name: "old", Namespace: "shop", Vulnerabilities: []string{"CVE-2026-0001"}}
	equal(t, "with an exception", lines("shop", "Deployment", "web", openssl), []string{
		pending, web, proxy, "Critical CVE-2026-0001 in openssl of [main proxy] by old, see https://example.com/1", zlib, "1 and 1",
	})
	ofNobody := store.WorkloadQuery{Namespace: "shop", Kind: "Deployment", Name: "web", Scanner: "another"}
	equal(t, "of another Scanner", got[store.WorkloadDetails](t)(f.Workload(t.Context(), ofNobody, 10)), store.WorkloadDetails{})
	openssl.Images = []string{"*/web"}
	equal(t, "with an exception for one of the images", lines("shop", "Deployment", "web", openssl), []string{
		pending, web, proxy, "Critical CVE-2026-0001 in openssl of [main proxy], see https://example.com/1", zlib, "2 and 0",
	})
}

// testImagesRunBy checks that the images of workloads are found by name, also by kind, and only in the namespaces that are asked for.
func (on suite) testImagesRunBy(t *testing.T) {
	f := on.newStore(t)
	job := workload("web", "ghcr.io/shop/web")
	job.Kind = "Job"
	f.use(t, "scanner", "web", workload("web", "ghcr.io/shop/web"), job)
	f.use(t, "scanner", "proxy", workload("proxy", "ghcr.io/shop/proxy"))
	blog := used("other", "blog", workload("web", "ghcr.io/blog/blog"))
	blog.Namespace, blog.Workloads[0].Namespace = "blog", "blog"
	must(t, f.SetUsage(t.Context(), blog))
	all, shop := store.Sight{All: true}, store.Sight{Namespaces: []string{"shop"}}
	ofWeb, ofBlog := scannerImage("web"), store.ScannerImage{Scanner: "other", Namespace: "blog", Key: key("blog")}
	for _, tt := range []struct {
		seen       store.Sight
		kind, name string
		want       []store.ScannerImage
	}{
		{all, "", "web", []store.ScannerImage{ofBlog, ofWeb}},
		{shop, "", "web", []store.ScannerImage{ofWeb}},
		{all, "job", "web", []store.ScannerImage{ofWeb}},
		{all, "CronJob", "web", nil},
		{all, "", "we", nil},
		{store.Sight{}, "", "web", nil},
	} {
		images := got[[]store.ScannerImage](t)(f.ImagesRunBy(t.Context(), tt.seen, tt.kind, tt.name))
		slices.SortFunc(images, func(a, b store.ScannerImage) int { return cmp.Compare(a.Namespace, b.Namespace) })
		equal(t, tt.kind+" "+tt.name, images, tt.want)
	}
}

// testWorkloadsPage checks that each workload comes once, the most urgent first, with the counts of its details.
func (on suite) testWorkloadsPage(t *testing.T) {
	f := on.newStore(t)
	f.saveCatalogs(t, "web", "proxy", "api", "blog")
	sidecar := workload("web", "ghcr.io/shop/proxy")
	sidecar.Container = "proxy"
	f.use(t, "scanner", "web", workload("web", "ghcr.io/shop/web"))
	f.use(t, "scanner", "proxy", sidecar, workload("Other", "ghcr.io/shop/proxy"))
	f.use(t, "scanner", "api", workload("api", "ghcr.io/shop/api"))
	f.use(t, "scanner", "pending", workload("web-pending", "ghcr.io/shop/pending"))
	f.use(t, "scanner", "left")
	blog := used("other", "blog", workload("web", "ghcr.io/blog/blog"))
	blog.Namespace, blog.Workloads[0].Namespace = "blog", "blog"
	must(t, f.SetUsage(t.Context(), blog))
	f.report(t, "web", vulnerable("CVE-2026-0001", "openssl", fixed), vulnerable("CVE-2026-0002", "zlib", severity(finding.Low), fixed))
	f.report(t, "proxy", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed))
	f.report(t, "api", vulnerable("CVE-2026-0003", "curl"))
	f.report(t, "blog", vulnerable("CVE-2026-0004", "curl", exploited, fixed))
	set := exception.NewSet([]exception.Exception{{UID: "1", Name: "old", Namespace: "shop", Vulnerabilities: []string{"CVE-2026-0002"}}}, f.clock.Now())

	lines := func(seen store.Sight, text string) (lines []string) {
		t.Helper()
		var after store.WorkloadCursor
		for more := true; more; {
			page := got[store.WorkloadsPage](t)(f.WorkloadsPage(t.Context(), store.WorkloadsQuery{Seen: seen, Text: text, Exceptions: set}, after, 1))
			for _, w := range page.Workloads {
				lines = append(lines, fmt.Sprintf("%s/%s/%s with %d of %d", w.Namespace, w.Kind, w.Name, w.ToActOn, w.Counts.Total()))
				d := got[store.WorkloadDetails](t)(f.Workload(t.Context(), store.WorkloadQuery{Namespace: w.Namespace, Kind: w.Kind, Name: w.Name, Exceptions: set}, 10))
				equal(t, "images of "+w.Name, w.Images, d.Images)
				equal(t, "counts of "+w.Name, w.Counts, d.Counts)
				equal(t, "suppressed in "+w.Name, w.Suppressed, d.Suppressed)
			}
			if more = page.Next != nil; more {
				after = *page.Next
			}
			if len(lines) == 1 && len(page.Workloads) == 1 {
				lines = append(lines, fmt.Sprint("of ", page.Total))
			}
		}
		return lines
	}
	const (
		ofBlog  = "blog/Deployment/web with 1 of 1"
		ofOther = "shop/Deployment/Other with 1 of 1"
		ofWeb   = "shop/Deployment/web with 1 of 1"
		ofAPI   = "shop/Deployment/api with 0 of 1"
		pending = "shop/Deployment/web-pending with 0 of 0"
	)
	all, shop := store.Sight{All: true}, store.Sight{Namespaces: []string{"shop", "unknown"}}
	equal(t, "everywhere", lines(all, ""), []string{ofBlog, "of 5", ofOther, ofWeb, ofAPI, pending})
	equal(t, "in shop", lines(shop, ""), []string{ofOther, "of 4", ofWeb, ofAPI, pending})
	equal(t, "with a text", lines(all, "WEB"), []string{ofBlog, "of 3", ofWeb, pending})
	equal(t, "with a text of an image", lines(all, "/PROXY"), []string{ofOther, "of 2", ofWeb})
	equal(t, "with a text that is no pattern", lines(all, "%"), []string(nil))
	equal(t, "nowhere", lines(store.Sight{}, ""), []string(nil))
}
