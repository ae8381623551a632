package notifier_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
)

// uploaded is how Dependency-Track answers an upload.
const uploaded = `{"token":"0198f3a2-7d1c-7b54-9a7e-0a4f3c1f2b11"}`

func sbomRequest(t *testing.T, sbom string) export.Request {
	t.Helper()
	encoder := must(zstd.NewWriter(nil))
	return export.Request{
		Receiver: announce.ReceiverRef{Type: export.TypeDependencyTrack, Namespace: "shop", SecretName: "dojo", SecretKey: "address"},
		Scanner:  "shop/default",
		Project:  export.Project{DependencyTrack: export.DependencyTrackProject{Name: "shop/Deployment/web/main", Version: "prod"}},
		Document: encoder.EncodeAll([]byte(sbom), nil),
	}
}

// TestSBOM checks the request to Dependency-Track (src/main/java/org/dependencytrack/resources/v1/BomResource.java in version 4.13.2): the SBOM is
// sent decompressed, which all versions accept, and whole.
func TestSBOM(t *testing.T) {
	for name, sbom := range map[string]string{
		"an empty one": `{"bomFormat":"CycloneDX","specVersion":"1.6","version":1,"components":[]}`,
		"a large one":  `{"components":["` + strings.Repeat("é", export.MaxDocumentBytes) + `"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newExportWorld(t)
			w.server.answers(status(200, uploaded))
			if outcome := w.export(sbomRequest(t, sbom)); outcome.Result != announce.Delivered {
				t.Fatalf("%+v, want Delivered", outcome)
			}
			got := w.server.got()
			if len(got) != 1 || got[0].path != "/verysecretpath5/api/v1/bom" || got[0].header.Get("X-Api-Key") != apiKey {
				t.Fatalf("%d requests, want one upload with the API key", len(got))
			}
			if n := got[0].header.Get("Content-Length"); n != strconv.Itoa(len(got[0].body)) {
				t.Errorf("Content-Length %s, want %d", n, len(got[0].body))
			}
			form := w.form(got[0])
			want := map[string][]string{"projectName": {"shop/Deployment/web/main"}, "projectVersion": {"prod"}, "autoCreate": {"true"}}
			if diff := cmp.Diff(want, form.Value); diff != "" {
				t.Errorf("form (-want +got):\n%s", diff)
			}
			if content, file := w.fileOf(form, "bom"); content != sbom || file.Header.Get("Content-Type") != "application/json" {
				t.Errorf("a file of %d bytes as %s, want the SBOM of %d bytes as JSON", len(content), file.Header.Get("Content-Type"), len(sbom))
			}
		})
	}
}

// TestSBOMOutcomes: what an answer of Dependency-Track, or of a proxy before it, means and what it advises.
func TestSBOMOutcomes(t *testing.T) {
	const invalid = `{"status":400,"title":"The uploaded BOM is invalid","detail":"Schema validation failed","errors":["components[37].licenses[2].license.id: does not have a value in the enumeration [\"0BSD\", \"3D-Slicer-1.0\"]"]}`
	testExportOutcomes(t, sbomRequest(t, "{}"), map[string]exportOutcome{
		"a page of a proxy":      {status(200, "$"), refused, 0, "without a token; the key address of the Secret must have the URL of Dependency-Track's API server"},
		"another API":            {status(200, `{"id":1}`), refused, 0, "without a token"},
		"an invalid SBOM":        {status(400, invalid), refused, 0, "The uploaded BOM is invalid: Schema validation failed: components[37].licenses[2].license.id: does not have a value in the enumeration; the SBOM of shop/Deployment/web/main is not accepted"},
		"401":                    {status(401, "$"), refused, 0, "check the key token of the Secret"},
		"no project":             {status(401, "The principal does not have permission to create project."), refused, 0, "PROJECT_CREATION_UPLOAD"},
		"403":                    {status(403, "$"), refused, 0, "BOM_UPLOAD, and access to the project shop/Deployment/web/main"},
		"404":                    {status(404, "$"), refused, 0, "without /api"},
		"an answer cut short":    {status(200, `{"tok`, "Content-Length", "500"), lost, 0, "answer was lost"},
		"405 of the front end":   {status(405, "$"), refused, 0, "URL of Dependency-Track's API server"},
		"413":                    {status(413, "$"), refused, 0, "the SBOM of shop/Deployment/web/main has 1 MiB: raise the limit of the proxy"},
		"429":                    {status(429, "", "Retry-After", "90"), limited, 90 * time.Second, ""},
		"500":                    {status(500, "$"), failed, 0, "answers 500"},
		"503 with a time":        {status(503, "", "Retry-After", "7"), limited, 7 * time.Second, ""},
		"redirect to an address": {status(308, "", "Location", "https://169.254.169.254/"), refused, 0, "redirects are not followed"},
		"hung":                   {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, lost, 0, "no answer in time"},
		"cut off":                {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, lost, 0, "lost"},
	})
}

// TestBadSBOMs: what is not an SBOM of a bounded size is not sent. A small request may have a document that is very large.
func TestBadSBOMs(t *testing.T) {
	encoder := must(zstd.NewWriter(nil))
	large, writer := io.Pipe()
	go func() {
		zeros := make([]byte, 1<<20)
		for range export.MaxSBOMBytes>>20 + 1 {
			_, _ = writer.Write(zeros)
		}
		_ = writer.Close()
	}()
	var bomb strings.Builder
	encoder.Reset(&bomb)
	must(io.Copy(encoder, large))
	if err := encoder.Close(); err != nil {
		t.Fatal(err)
	}
	whole := sbomRequest(t, strings.Repeat("an SBOM that is cut off ", 1000)).Document
	for name, tt := range map[string]struct{ document, says string }{
		"too large":      {bomb.String(), "the SBOM has more than the 64 MiB that an export can have"},
		"not compressed": {"{}", "damaged: have the image scanned again"},
		"cut off":        {string(whole[:len(whole)-9]), "damaged: have the image scanned again"},
	} {
		w := newExportWorld(t)
		r := sbomRequest(t, "")
		r.Document = []byte(tt.document)
		got := w.export(r)
		if got.Result != announce.Permanent || got.Reason != export.ReasonSBOMNotSent || !strings.Contains(got.Message, "shop/Deployment/web/main: ") ||
			!strings.Contains(got.Message, tt.says) {
			t.Errorf("%s: %+v, want Permanent %s with %q", name, got, export.ReasonSBOMNotSent, tt.says)
		}
		if n := len(w.server.got()); n != 0 {
			t.Errorf("%s: %d requests, want none", name, n)
		}
	}
}

// TestSBOMWithoutToken: a Dependency-Track needs an API key, like each tool.
func TestSBOMWithoutToken(t *testing.T) {
	w := newExportWorld(t)
	w.cluster.set("shop/dojo", map[string]string{"address": w.server.URL})
	if got := w.export(sbomRequest(t, "{}")); got.Reason != announce.ReasonInvalidToken || len(w.server.got()) != 0 {
		t.Errorf("%+v and %d requests, want %s and none", got, len(w.server.got()), announce.ReasonInvalidToken)
	}
}
