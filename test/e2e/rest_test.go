package e2e

import (
	"context"
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

// checkDownloads checks the SBOM and the CycloneDX document.
func checkDownloads(t *testing.T, api *restclient.ClientWithResponses, ns, scan string, want []finding.Finding) {
	t.Helper()
	sbom, err := api.GetSBOMWithResponse(t.Context(), ns, scan, nil)
	must(t, err)
	if !strings.Contains(string(sbom.Body), `"artifacts"`) || !strings.Contains(string(sbom.Body), want[0].Package.Name) {
		t.Errorf("the SBOM: %d, %d bytes, expected syft-json with %s", sbom.StatusCode(), len(sbom.Body), want[0].Package.Name)
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
