package e2e

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	restclient "github.com/scanner-operator/scanner-operator/api/rest/v1/client"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// The REST API returns the stored data of a namespace to a viewer of the namespace, as docs/integrate/rest-api.md describes, and nothing to a
// viewer of another namespace.
func TestREST(t *testing.T) {
	t.Parallel()
	ns, other := namespace(t, "rest"), namespace(t, "rest-other")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "web", Image: env.Reference(images.Web)}))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	stored, err := env.Findings(t.Context(), ns)
	must(t, err)
	want := imageNamed(t, stored, images.Web)
	viewer, stranger := viewerOf(t, ns), viewerOf(t, other)
	url, client := forwarded(t)
	api := func(token string) *restclient.ClientWithResponses { return restAPI(t, url, client, token) }

	scanners, err := api(viewer).ListScannersWithResponse(t.Context(), nil)
	must(t, err)
	if s := scanners.JSON200; s == nil || s.Total != 1 || s.Items[0].Namespace != ns || s.Items[0].Images.Scanned != 1 || s.Items[0].VulnerabilityData.Tool == "" {
		t.Errorf("Scanners that the viewer sees: %s", scanners.Body)
	}
	scans, err := api(viewer).ListImageScansWithResponse(t.Context(), ns, nil)
	must(t, err)
	if scans.JSON200 == nil || len(scans.JSON200.Items) != 1 {
		t.Fatalf("ImageScans that the viewer sees: %s", scans.Body)
	}
	scan := scans.JSON200.Items[0].Name
	checkFindings(t, api(viewer), ns, scan, want.Findings)
	checkDownloads(t, api(viewer), ns, scan, want.Findings)
	workloads, err := api(viewer).ListWorkloadsWithResponse(t.Context(), want.Findings[0].ID, nil)
	must(t, err)
	if w := workloads.JSON200; w == nil || w.Total == 0 || w.Items[0].Namespace != ns || w.Items[0].Name != "web" || w.AllNamespaces {
		t.Errorf("workloads with %s, as the viewer sees them: %s", want.Findings[0].ID, workloads.Body)
	}
	refused, err := api(stranger).ListFindingsWithResponse(t.Context(), ns, scan, nil)
	must(t, err)
	if refused.StatusCode() != http.StatusForbidden {
		t.Errorf("findings for a viewer of another namespace: %d %s, expected 403", refused.StatusCode(), refused.Body)
	}
}

// restAPI returns a client that authenticates with a token.
func restAPI(t *testing.T, url string, client *http.Client, token string) *restclient.ClientWithResponses {
	t.Helper()
	api, err := restclient.NewClientWithResponses(url, restclient.WithHTTPClient(client), restclient.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	must(t, err)
	return api
}

// checkFindings compares all pages of findings with the store.
func checkFindings(t *testing.T, api *restclient.ClientWithResponses, ns, scan string, want []finding.Finding) {
	t.Helper()
	limit := 7
	params := restv1.ListFindingsParams{Limit: &limit}
	var got []string
	for first := true; first || params.Continue != nil; first = false {
		page, err := api.ListFindingsWithResponse(t.Context(), ns, scan, &params)
		must(t, err)
		if page.JSON200 == nil || page.JSON200.Total != len(want) {
			t.Fatalf("a page of findings: %s, expected one of %d in all", page.Body, len(want))
		}
		for _, f := range page.JSON200.Items {
			got = append(got, f.ID+" "+f.Package.Name)
		}
		params.Continue = nil
		if page.JSON200.Continue != "" {
			params.Continue = &page.JSON200.Continue
		}
	}
	for i, f := range want {
		if i >= len(got) || got[i] != f.ID+" "+f.Package.Name {
			t.Fatalf("findings of %s: place %d is not %s in %s: %q", scan, i, f.ID, f.Package.Name, got)
		}
	}
}

// checkDownloads checks the documents about an image: its SBOM in each format, the report as CycloneDX and SARIF, and the findings as CSV.
func checkDownloads(t *testing.T, api *restclient.ClientWithResponses, ns, scan string, want []finding.Finding) {
	t.Helper()
	for accept, answer := range map[string]struct {
		status int
		has    []string
	}{
		"":                               {http.StatusOK, []string{`"artifacts"`, want[0].Package.Name}},
		"application/vnd.cyclonedx+json": {http.StatusOK, []string{`"specVersion":"1.6"`, want[0].Package.Name}},
		"application/spdx+json":          {http.StatusConflict, []string{"FormatNotStored", "additionalFormats"}}, // not configured
		"text/html":                      {http.StatusNotAcceptable, []string{"NotAcceptable"}},
	} {
		sbom, err := api.GetSBOMWithResponse(t.Context(), ns, scan, &restv1.GetSBOMParams{Accept: &accept})
		must(t, err)
		if text := strings.ReplaceAll(string(sbom.Body), `": "`, `":"`); sbom.StatusCode() != answer.status || !containsAll(text, answer.has) {
			t.Errorf("the SBOM as %q: %d with %d bytes, expected %d with %q: %.300s", accept, sbom.StatusCode(), len(sbom.Body), answer.status, answer.has, text)
		}
	}
	document, err := api.GetCycloneDX(t.Context(), ns, scan, nil)
	must(t, err)
	defer document.Body.Close()
	var bom cdx.BOM
	must(t, cdx.NewBOMDecoder(document.Body, cdx.BOMFileFormatJSON).Decode(&bom))
	ids := map[string]bool{}
	for _, f := range want {
		ids[f.ID] = true
	}
	if bom.Vulnerabilities == nil || len(*bom.Vulnerabilities) != len(ids) {
		t.Errorf("the CycloneDX document does not have each of the %d vulnerabilities once", len(ids))
	}
	checkSARIF(t, api, ns, scan, want)
	export, err := api.ExportFindings(t.Context(), ns, scan, nil)
	must(t, err)
	defer export.Body.Close()
	rows, err := csv.NewReader(export.Body).ReadAll()
	must(t, err)
	if len(rows) != len(want)+1 || rows[0][0] != "id" || rows[1][0] != want[0].ID || !strings.Contains(export.Header.Get("Content-Disposition"), ".csv") {
		t.Errorf("the CSV has %d lines, expected the header and %d findings: %.3q, %v", len(rows), len(want), rows, export.Header)
	}
}

// checkSARIF checks that a document has a rule for each vulnerability, and a result for each vulnerability in each package.
func checkSARIF(t *testing.T, api *restclient.ClientWithResponses, ns, scan string, want []finding.Finding) {
	t.Helper()
	answer, err := api.GetSARIFWithResponse(t.Context(), ns, scan, nil)
	must(t, err)
	var sarif struct {
		Runs []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct{ RuleID string }
		}
	}
	if err := json.Unmarshal(answer.Body, &sarif); err != nil || len(sarif.Runs) != 1 {
		t.Fatalf("the SARIF document: %d, error %v, expected one run: %.300s", answer.StatusCode(), err, answer.Body)
	}
	ids, pairs := map[string]bool{}, map[string]bool{}
	for _, f := range want {
		ids[f.ID], pairs[f.ID+" "+f.Package.Name+" "+f.Package.Type] = true, true
	}
	if run := sarif.Runs[0]; len(run.Tool.Driver.Rules) != len(ids) || len(run.Results) != len(pairs) {
		t.Errorf("the SARIF document has %d rules and %d results, expected %d and %d", len(run.Tool.Driver.Rules), len(run.Results), len(ids), len(pairs))
	}
}

// viewerOf returns the token of somebody who may view a namespace.
func viewerOf(t *testing.T, ns string) string {
	t.Helper()
	token, err := env.Viewer(t.Context(), ns)
	must(t, err)
	return token
}

// forwarded connects to the API.
func forwarded(t *testing.T) (url string, client *http.Client) {
	t.Helper()
	url, client, err := env.ForwardAPI(t.Context())
	must(t, err)
	return url, client
}
