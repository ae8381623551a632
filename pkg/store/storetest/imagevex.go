package storetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// testImageStatements checks where the statements of attached documents count: for their image, in the namespaces that have it, as an image of the
// policy's hosts. A later result by the same policy replaces them, and the counts follow.
func (on suite) testImageStatements(t *testing.T) {
	f := on.newStore(t)
	hosts := func(policy string) []string {
		if policy == "former" {
			return nil
		}
		return []string{"ghcr.io"}
	}
	save := func(job, name, policy, problem string, ids ...string) {
		t.Helper()
		result := f.jobResult(t, job, name, "SBOM")
		result.VEX = store.ImageVEX{Policy: policy, Problem: problem}
		for _, id := range ids {
			result.VEX.Statements = append(result.VEX.Statements, exception.Exception{
				Name: "doc", Signer: "jane", Status: "not_affected", Justification: "component_not_present", Reason: "not there", Vulnerabilities: []string{id, "GHSA-" + id},
				Packages: []exception.Package{{Name: "openssl", Version: "1.0", Type: "deb", Qualifiers: "arch=amd64"}}, Created: f.clock.Now().UTC(),
			})
		}
		got[bool](t)(f.SaveJobResult(t.Context(), result))
	}
	statements := func(namespaces ...string) exception.Set {
		t.Helper()
		return exception.NewSet(got[[]exception.Exception](t)(f.ImageStatements(t.Context(), namespaces, hosts)), f.clock.Now())
	}
	suppressed := func(set exception.Set) (counts [3]int) {
		t.Helper()
		for i, name := range []string{"web", "api"} {
			counts[i] = got[store.Summary](t)(f.Summary(t.Context(), subject(name), store.ImageExceptions{
				Exceptions: set, Images: []exception.Image{imageNamed("ghcr.io/shop/"+name+":1", key(name).Digest)},
			})).Suppressed
		}
		counts[2] = got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", set)).Suppressed
		return counts
	}
	save("one", "web", "policy", "document two is no OpenVEX", "CVE-2026-0001", "CVE-2026-0009")
	save("two", "api", "former", "", "CVE-2026-0001")
	for _, name := range []string{"web", "api"} {
		f.use(t, "scanner", name, workload(name, "ghcr.io/shop/"+name))
		f.report(t, name, vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "openssl"), vulnerable("CVE-2026-0001", "zlib"))
	}
	set := statements("shop")
	equal(t, "statements about images in shop", len(set.All()), 2)
	equal(t, "statements about images in all namespaces", len(statements().All()), 2)
	equal(t, "statements about images in blog", len(statements("blog").All()), 0)
	equal(t, "a statement", set.All()[0], exception.Exception{
		UID: set.All()[0].UID, Manifest: set.All()[0].Manifest, Name: "doc", Signer: "jane", Status: "not_affected", Justification: "component_not_present", Reason: "not there",
		Vulnerabilities: []string{"CVE-2026-0001", "GHSA-CVE-2026-0001"}, Packages: []exception.Package{{Name: "openssl", Version: "1.0", Type: "deb", Qualifiers: "arch=amd64"}},
		Images: []string{"ghcr.io/*"}, Namespaces: map[string]bool{"shop": true}, Created: f.clock.Now().UTC(),
	})
	equal(t, "suppressed in web, api and all", suppressed(set), [3]int{1, 0, 1})
	location := got[store.Location](t)(f.Locate(t.Context(), "scanner", "shop", key("web")))
	equal(t, "the names of the image", location.Names, []exception.Image{{
		Reference: location.Names[0].Reference, Digest: key("web").Digest, Manifest: set.All()[0].Manifest,
	}})
	runs := f.runs(t, store.RunsQuery{ID: "CVE-2026-0001", All: true, Exceptions: func(string) exception.Set { return set }}, 10)
	by := map[string]bool{}
	for _, run := range runs {
		by[run.Name+" "+run.Finding.Package.Name] = run.Exception != nil
	}
	equal(t, "suppressed where it runs", by, map[string]bool{"web openssl": true, "web zlib": false, "api openssl": false, "api zlib": false})
	equal(t, "the summary", got[store.VEXSummary](t)(f.VEXSummary(t.Context(), subject("web"), "policy")), store.VEXSummary{Statements: 2, Problem: "document two is no OpenVEX"})
	if summary, err := f.VEXSummary(t.Context(), subject("web"), "other"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the summary by another policy is %+v, %v, want ErrNotFound", summary, err)
	}

	// The image is read again, although its catalog stays.
	save("three", "web", "policy", "")
	equal(t, "suppressed after the document was taken back", suppressed(statements("shop")), [3]int{})
	equal(t, "the summary afterwards", got[store.VEXSummary](t)(f.VEXSummary(t.Context(), subject("web"), "policy")), store.VEXSummary{})
	save("four", "web", "policy", "", "CVE-2026-0002")
	save("five", "web", "", "")
	equal(t, "suppressed after a Job that reads no documents", suppressed(statements("shop")), [3]int{1, 0, 1})
}

// testStatementsAndAnnouncements checks that a finding is not announced while a statement suppresses it, and is announced when the statement is gone.
func (on suite) testStatementsAndAnnouncements(t *testing.T) {
	r := on.newReceiver(t)
	read := func(job string, ids ...string) {
		t.Helper()
		result := r.jobResult(t, job, "app", "SBOM")
		result.VEX.Policy = "policy"
		for _, id := range ids {
			result.VEX.Statements = append(result.VEX.Statements, exception.Exception{Name: "doc", Status: "fixed", Vulnerabilities: []string{id}})
		}
		got[bool](t)(r.SaveJobResult(t.Context(), result))
		statements := got[[]exception.Exception](t)(r.ImageStatements(t.Context(), []string{"shop"}, func(string) []string { return []string{"ghcr.io"} }))
		r.filter.Exceptions = exception.NewSet(statements, r.clock.Now())
	}
	const repository = "ghcr.io/app"
	read("one", "CVE-2026-0001")
	r.running(t, "app", repository, vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a"))
	read("two", "CVE-2026-0001")
	r.expectChanges(t, "suppressed from the beginning", "New ghcr.io/app CVE-2026-0002 High")
	read("three", "CVE-2026-0001", "CVE-2026-0002")
	r.expectChanges(t, "suppressed after it was announced")
	read("four", "CVE-2026-0001")
	r.expectChanges(t, "one statement is gone", "New ghcr.io/app CVE-2026-0002 High, was excepted")
	read("five")
	r.expectChanges(t, "all statements are gone", "New ghcr.io/app CVE-2026-0001 High")
}

// testStatementsOfANamespace checks that what a Job with a namespace's pull secrets has read counts only there.
func (on suite) testStatementsOfANamespace(t *testing.T) {
	f := on.newStore(t)
	result := f.jobResult(t, "one", "web", "SBOM")
	result.Scope, result.VEX = "shop", store.ImageVEX{Policy: "policy", Statements: []exception.Exception{{Name: "doc", Status: "fixed", Vulnerabilities: []string{"CVE-2026-0001"}}}}
	got[bool](t)(f.SaveJobResult(t.Context(), result))
	f.saveCatalogs(t, "web")
	f.running(t, "web", "ghcr.io/shop/web", vulnerable("CVE-2026-0001", "openssl"))
	own := used("own", "web", workload("web", "ghcr.io/shop/web"))
	own.Scope = "shop"
	must(t, f.SetUsage(t.Context(), own))
	inShop := report("web", vulnerable("CVE-2026-0001", "openssl"))
	inShop.Scope = "shop"
	got[store.Difference](t)(f.SaveReport(t.Context(), inShop, ""))
	set := exception.NewSet(got[[]exception.Exception](t)(f.ImageStatements(t.Context(), nil, func(string) []string { return []string{"ghcr.io"} })), f.clock.Now())
	equal(t, "suppressed with the cluster's result", got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", set)).Suppressed, 0)
	equal(t, "suppressed with the namespace's result", got[store.Totals](t)(f.ScannerTotals(t.Context(), "own", set)).Suppressed, 1)
}

// testBudgetOfStatements checks that statements about the images of one namespace are bounded together, that those which do not fit say so, and that other
// namespaces keep theirs.
func (on suite) testBudgetOfStatements(t *testing.T) {
	f := on.newStore(t)
	save := func(job, name, namespace string, statements int) store.VEXSummary {
		t.Helper()
		result := f.jobResult(t, job, name, "SBOM")
		result.Namespace = namespace
		result.VEX = store.ImageVEX{Policy: "policy", Budget: 1000}
		for range statements {
			result.VEX.Statements = append(result.VEX.Statements, exception.Exception{Name: "doc", Status: "fixed", Reason: strings.Repeat("x", 300), Vulnerabilities: []string{"CVE-2026-0001"}})
		}
		got[bool](t)(f.SaveJobResult(t.Context(), result))
		return got[store.VEXSummary](t)(f.VEXSummary(t.Context(), subject(name), "policy"))
	}
	equal(t, "the first image of shop", save("one", "web", "shop", 2), store.VEXSummary{Statements: 2})
	if refused := save("two", "api", "shop", 1); refused.Statements != 0 || !strings.HasPrefix(refused.Problem, "no statement counts: together with those about other images of the namespace shop") {
		t.Errorf("the second image of shop has %+v, want no statements and the reason", refused)
	}
	equal(t, "an image of blog", save("three", "blog", "blog", 1), store.VEXSummary{Statements: 1})
	equal(t, "the first image again", save("four", "web", "shop", 1), store.VEXSummary{Statements: 1})
	equal(t, "the second image again", save("five", "api", "shop", 1), store.VEXSummary{Statements: 1})
}
