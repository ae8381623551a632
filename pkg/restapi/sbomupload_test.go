package restapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	imagedocument "github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const (
	typeCycloneDX = "application/vnd.cyclonedx+json"
	// uploadedText is an SBOM with one package.
	uploadedText = `{"bomFormat":"CycloneDX","specVersion":"1.6","components":[{"name":"openssl","version":"3.0.1"}]}`
)

// manifestOf returns the manifest of an image for one platform.
func manifestOf(name string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
		"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":2},
		"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":%q,"size":3}]}`, digest("config of "+name), digest("layer of "+name))
}

// indexOf returns an index that has a manifest for each platform.
func indexOf(manifests map[string]string) string {
	var children []string
	for _, platform := range []string{"linux/amd64", "linux/arm/v7"} {
		if manifest, found := manifests[platform]; found {
			parts := strings.Split(platform+"/", "/")
			children = append(children, fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":%d,
				"platform":{"os":%q,"architecture":%q,"variant":%q}}`, sumOf(manifest), len(manifest), parts[0], parts[1], parts[2]))
		}
	}
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]}`, strings.Join(children, ","))
}

func sumOf(text string) string { return imagedocument.Digest([]byte(text)).String() }

// part is a part of a body: its name, its type and its content.
type part [3]string

func uploadParts(sbom string, manifests ...string) (parts []part) {
	for _, manifest := range manifests {
		parts = append(parts, part{partManifest, "", manifest})
	}
	return append(parts, part{partSBOM, typeCycloneDX, sbom})
}

// bodyOf returns a body as curl --form sends it.
func bodyOf(t testing.TB, parts []part) string {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	if err := form.SetBoundary("limit"); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		header := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name=%q; filename="file"`, p[0])}}
		if p[1] != "" {
			header.Set("Content-Type", p[1])
		}
		to, err := form.CreatePart(header)
		if err == nil {
			_, err = io.WriteString(to, p[2])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	return body.String()
}

func uploadPath(namespace, digest string) string {
	return "/api/v1/namespaces/" + namespace + "/images/" + digest + "/sbom"
}

func (w *harness) putParts(namespace, digest, token string, parts []part, headers ...string) answer {
	w.t.Helper()
	return w.put(uploadPath(namespace, digest), token, bodyOf(w.t, parts), append([]string{"Content-Type", "multipart/form-data; boundary=limit"}, headers...)...)
}

// uploadedFor returns what a catalog Job would get for an image; empty if nothing is uploaded.
func (w *harness) uploadedFor(namespace, digest string, platform image.Platform) string {
	w.t.Helper()
	u, err := w.store.UploadedSBOM(w.t.Context(), namespace, image.Key{Digest: digest, Platform: platform})
	if err != nil {
		return ""
	}
	reader, _, err := w.store.OpenUploadedSBOM(w.t.Context(), u)
	w.must(err)
	content, err := io.ReadAll(reader)
	w.must(err)
	line, rest, _ := strings.Cut(string(content), "\n")
	var header workerapi.UploadedSBOM
	w.must(json.Unmarshal([]byte(line), &header))
	text := u.User + ":"
	for _, size := range header.ManifestSizes {
		text += " " + sumOf(rest[:size])
		rest = rest[size:]
	}
	return text + " " + decompress(w.t, []byte(rest))
}

// TestUploadedSBOM: an SBOM is saved for the platform that the manifests prove, replaced, left as it is, and withdrawn. It counts in its namespace only.
func TestUploadedSBOM(t *testing.T) {
	w, _ := newFakeHarness(t)
	manifest, other := manifestOf("web on amd64"), manifestOf("web on arm")
	index := indexOf(map[string]string{"linux/amd64": manifest, "linux/arm/v7": other})
	requireSaved := func(a answer, status int, want restv1.SavedSBOM) {
		t.Helper()
		w.requireStatus(a, status)
		var saved restv1.SavedSBOM
		w.must(json.Unmarshal(a.body, &saved))
		if diff := cmp.Diff(want, saved); diff != "" {
			t.Errorf("what is saved (-want +got):\n%s", diff)
		}
	}
	onAMD64 := restv1.SavedSBOM{Platform: "linux/amd64", PlatformDigest: sumOf(manifest)}
	requireSaved(w.putParts("shop", sumOf(index), anyone, uploadParts(uploadedText, index, manifest)), http.StatusCreated, onAMD64)
	want := "anyone: " + sumOf(index) + " " + sumOf(manifest) + " " + uploadedText
	if got := w.uploadedFor("shop", sumOf(index), amd64); got != want {
		t.Errorf("a Job gets %q, want %q", got, want)
	}
	arm := image.Platform{OS: "linux", Architecture: "arm"}
	if got := w.uploadedFor("shop", sumOf(index), arm) + w.uploadedFor("bank", sumOf(index), amd64); got != "" {
		t.Errorf("on another platform, or in another namespace, a Job gets %q", got)
	}
	requireSaved(w.putParts("shop", sumOf(index), anyone, uploadParts(uploadedText, index, other)), http.StatusCreated,
		restv1.SavedSBOM{Platform: "linux/arm", PlatformDigest: sumOf(other)})

	w.requireStatus(w.putParts("shop", sumOf(index), anyone, uploadParts(uploadedText, index, manifest)), http.StatusNoContent)
	next := strings.Replace(uploadedText, "openssl", "zlib", 1)
	requireSaved(w.putParts("shop", sumOf(index), anyone, uploadParts(next, index, manifest)), http.StatusOK, onAMD64)
	if got := w.uploadedFor("shop", sumOf(index), amd64); !strings.HasSuffix(got, next) {
		t.Errorf("a Job gets %q, want the second SBOM", got)
	}

	// The digest of a manifest names its content, whatever platform a node has.
	requireSaved(w.putParts("shop", sumOf(manifest), anyone, uploadParts(uploadedText, manifest)), http.StatusCreated,
		restv1.SavedSBOM{PlatformDigest: sumOf(manifest)})
	if got := w.uploadedFor("shop", sumOf(manifest), arm); !strings.HasSuffix(got, uploadedText) {
		t.Errorf("a Job gets %q, want the SBOM", got)
	}

	w.requireStatus(w.delete(uploadPath("shop", sumOf(index)), anyone), http.StatusNoContent)
	w.requireProblem(w.delete(uploadPath("shop", sumOf(index)), anyone), http.StatusNotFound, restv1.ReasonNotFound, "")
	if got := w.uploadedFor("shop", sumOf(index), amd64) + w.uploadedFor("shop", sumOf(index), arm); got != "" {
		t.Errorf("after it was withdrawn, a Job gets %q", got)
	}
	for _, line := range []string{`"msg":"Saved an uploaded SBOM","user":"anyone","namespace":"shop"`, `"msg":"Withdrew an uploaded SBOM","user":"anyone"`} {
		if !strings.Contains(w.logText(), line) {
			t.Errorf("the log lacks %s:\n%s", line, w.logText())
		}
	}
	if strings.Contains(w.logText(), "openssl") {
		t.Error("the log has parts of the SBOM")
	}
}

// TestUploadedSBOMScansFailedImages: an image that has failed is scanned at once, and no other.
func TestUploadedSBOMScansFailedImages(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner, other := w.createScanner("shop", "default"), w.createScanner("bank", "default")
	manifest := manifestOf("web")
	failed := func(s *v1alpha1.ImageScan) { s.Spec.Digest, s.Status.Phase = sumOf(manifest), v1alpha1.PhaseFailed }
	w.createScan(scanner, "failed", failed)
	w.createScan(scanner, "waits", failed, func(s *v1alpha1.ImageScan) { s.Status.Phase = v1alpha1.PhaseCataloging })
	w.createScan(scanner, "another", failed, func(s *v1alpha1.ImageScan) { s.Spec.Digest = digest("another") })
	w.createScan(other, "elsewhere", failed)
	w.requireStatus(w.putParts("shop", sumOf(manifest), anyone, uploadParts(uploadedText, manifest)), http.StatusCreated)
	for namespace, names := range map[string][]string{"shop": {"waits", "another"}, "bank": {"elsewhere"}} {
		for _, name := range names {
			w.must(w.cluster.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &v1alpha1.ImageScan{}))
		}
	}
	if err := w.cluster.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "failed"}, &v1alpha1.ImageScan{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ImageScan that failed is still there: %v", err)
	}
	if len(w.woken) != 1 || w.woken[0] != sumOf(manifest) {
		t.Errorf("woken for %q, want once for the image", w.woken)
	}
}

// TestUploadedSBOMsThatAreRefused: each mistake has its own reason and names the part, and nothing is saved.
func TestUploadedSBOMsThatAreRefused(t *testing.T) {
	w, reviewer := newFakeHarness(t)
	reviewer.tokens["reporter"] = authenticationv1.UserInfo{Username: "reporter"}
	reviewer.allowed = func(spec authorizationv1.SubjectAccessReviewSpec) bool {
		return spec.User == "anyone" || spec.ResourceAttributes.Resource == "reports"
	}
	manifest, other, foreign := manifestOf("amd64"), manifestOf("arm"), manifestOf("of another image")
	index := indexOf(map[string]string{"linux/amd64": manifest, "linux/arm/v7": other})
	unnamed := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":1}]}`, sumOf(manifest))
	named := strings.Replace(index, `"os":"linux"`, `"os":"`+strings.Repeat("x", 300)+`"`, 1)
	of := func(sbom string) []part { return uploadParts(sbom, manifest) }
	typed := func(contentType, sbom string) []part {
		return []part{{partManifest, "", manifest}, {partSBOM, contentType, sbom}}
	}
	for name, tt := range map[string]struct {
		digest string
		parts  []part
		status int
		reason restv1.Reason
		field  string
	}{
		"another digest":                  {digest("x"), of(uploadedText), 422, restv1.ReasonInvalidManifest, partManifest},
		"a manifest of another image":     {sumOf(index), uploadParts(uploadedText, index, foreign), 422, restv1.ReasonInvalidManifest, partManifest},
		"an index alone":                  {sumOf(index), uploadParts(uploadedText, index), 422, restv1.ReasonInvalidManifest, partManifest},
		"a manifest too many":             {sumOf(manifest), uploadParts(uploadedText, manifest, other), 422, restv1.ReasonInvalidManifest, partManifest},
		"an index without platforms":      {sumOf(unnamed), uploadParts(uploadedText, unnamed, manifest), 422, restv1.ReasonInvalidManifest, partManifest},
		"a platform without end":          {sumOf(named), uploadParts(uploadedText, named, manifest), 422, restv1.ReasonInvalidManifest, partManifest},
		"a manifest that is no JSON":      {sumOf("no"), uploadParts(uploadedText, "no"), 422, restv1.ReasonInvalidManifest, partManifest},
		"no manifest":                     {sumOf(manifest), uploadParts(uploadedText), 400, restv1.ReasonInvalidParameter, partManifest},
		"no SBOM":                         {sumOf(manifest), []part{{partManifest, "", manifest}}, 400, restv1.ReasonInvalidParameter, partSBOM},
		"two SBOMs":                       {sumOf(manifest), append(of(uploadedText), of(uploadedText)[1]), 400, restv1.ReasonInvalidParameter, partSBOM},
		"an unknown part":                 {sumOf(manifest), []part{{"platform", "", "linux/amd64"}}, 400, restv1.ReasonInvalidParameter, "body"},
		"too many manifests":              {sumOf(manifest), uploadParts(uploadedText, make([]string, workerapi.MaxManifests+1)...), 422, restv1.ReasonLimitExceeded, partManifest},
		"a large manifest":                {sumOf(manifest), uploadParts(uploadedText, strings.Repeat("x", workerapi.MaxManifestBytes+1)), 422, restv1.ReasonLimitExceeded, partManifest},
		"an unknown format":               {sumOf(manifest), typed("text/xml", "<bom/>"), 415, restv1.ReasonUnsupportedMediaType, partSBOM},
		"no format":                       {sumOf(manifest), typed("", uploadedText), 415, restv1.ReasonUnsupportedMediaType, partSBOM},
		"another format":                  {sumOf(manifest), typed("application/spdx+json", uploadedText), 422, restv1.ReasonInvalidSBOM, partSBOM},
		"SPDX 3":                          {sumOf(manifest), typed("application/spdx+json", `{"spdxVersion":"SPDX-3.0","packages":[{}]}`), 422, restv1.ReasonInvalidSBOM, partSBOM},
		"an SBOM that is cut off":         {sumOf(manifest), of(uploadedText[:50]), 422, restv1.ReasonInvalidSBOM, partSBOM},
		"an SBOM that is a list":          {sumOf(manifest), of(`[` + uploadedText + `]`), 422, restv1.ReasonInvalidSBOM, partSBOM},
		"an SBOM with something after it": {sumOf(manifest), of(uploadedText + "x"), 422, restv1.ReasonInvalidSBOM, partSBOM},
		"an SBOM without packages":        {sumOf(manifest), of(`{"bomFormat":"CycloneDX","specVersion":"1.6","components":[]}`), 422, restv1.ReasonInvalidSBOM, partSBOM},
		"an SBOM with too many packages":  {sumOf(manifest), of(`{"specVersion":"1.6","components":[` + strings.Repeat("{},", workerapi.MaxPackages) + `{}]}`), 422, restv1.ReasonInvalidSBOM, partSBOM},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.clock.Step(1e9)
			w.requireProblem(w.putParts("shop", tt.digest, anyone, tt.parts), tt.status, tt.reason, tt.field)
		})
	}
	w.t = t
	w.requireProblem(w.putParts("shop", "sha256:x", anyone, of(uploadedText)), 400, restv1.ReasonInvalidParameter, "digest")
	w.requireProblem(w.putParts("shop", sumOf(manifest), "reporter", of(uploadedText)), 403, restv1.ReasonForbidden, "")
	w.requireProblem(w.delete(uploadPath("shop", sumOf(manifest)), "reporter"), 403, restv1.ReasonForbidden, "")
	w.requireProblem(w.put(uploadPath("shop", sumOf(manifest)), anyone, uploadedText), 415, restv1.ReasonUnsupportedMediaType, "")
	w.requireProblem(w.put(uploadPath("shop", sumOf(manifest)), anyone, "no form", "Content-Type", "multipart/form-data; boundary=limit"), 400, restv1.ReasonInvalidParameter, partSBOM)
	w.api.ReportBudget = 10
	w.requireProblem(w.putParts("shop", sumOf(manifest), anyone, of(uploadedText)), 507, restv1.ReasonStorageFull, "")
	if stored, err := w.store.StoredBytes(t.Context(), "shop"); err != nil || stored != 0 {
		t.Errorf("%d bytes are stored (%v), want none", stored, err)
	}
}

// TestOriginOfUploadedSBOM: an image says who uploaded its SBOM, and when.
func TestOriginOfUploadedSBOM(t *testing.T) {
	w, _ := newFakeHarness(t)
	scan := w.createScanned(w.createScanner("shop", "default"), "web")
	scan.Status.SBOM = &v1alpha1.SBOMOrigin{Source: v1alpha1.SBOMFromUpload, Uploader: "ci", UploadTime: &metav1.Time{Time: noon}, Message: "not pulled"}
	w.must(w.cluster.Status().Update(t.Context(), scan))
	got, err := w.clientFor(anyone).GetImageScanWithResponse(t.Context(), "shop", "web")
	w.must(err)
	want := &restv1.SBOMOrigin{Source: restv1.SBOMFromUpload, Uploader: "ci", UploadTime: noon, Message: "not pulled"}
	if diff := cmp.Diff(want, got.JSON200.SBOM); diff != "" {
		t.Errorf("the origin (-want +got):\n%s", diff)
	}
}

// FuzzUpload: a body is refused with the part that is wrong, or leads to one platform manifest, whose documents a Job gets byte for byte.
func FuzzUpload(f *testing.F) {
	manifest := manifestOf("web")
	index := indexOf(map[string]string{"linux/amd64": manifest})
	for _, parts := range [][]part{uploadParts(uploadedText, manifest), uploadParts(uploadedText, index, manifest), uploadParts("{}", index), {{"x", "", ""}}, nil} {
		f.Add([]byte(bodyOf(f, parts)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		u, err := readUpload(multipart.NewReader(bytes.NewReader(body), "limit"))
		if err != nil {
			requireProblemError(t, err)
			return
		}
		defer u.close()
		digest := sumOf(string(u.manifests[0]))
		platform, found, err := verifiedPlatform(digest, u.manifests)
		if err != nil {
			requireProblemError(t, err)
			return
		}
		if last := sumOf(string(u.manifests[len(u.manifests)-1])); found != last {
			t.Errorf("the manifest is %s, want %s, the last one", found, last)
		}
		if parsed, err := image.ParsePlatform(platform); platform != "" && err != nil || (platform == "") != (found == digest) {
			t.Errorf("%d documents are for %q, which is read as %s (%v)", len(u.manifests), platform, parsed, err)
		}
		if _, err := u.content.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(u.content)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := bytes.Cut(content, []byte("\n"))
		if begin := bytes.Join(u.manifests, nil); !bytes.HasPrefix(rest, begin) || len(decompress(t, rest[len(begin):])) != int(u.size) {
			t.Error("a Job does not get the documents and the SBOM")
		}
	})
}

// requireProblemError fails the test unless an error is a refusal of what the caller sent.
func requireProblemError(t *testing.T, err error) {
	t.Helper()
	if p, ok := err.(*problem); !ok || p.Status < 400 || p.Status >= 500 { //nolint:errorlint // refusals are not wrapped
		t.Errorf("refused with %v, want a refusal of the request", err)
	}
}

// FuzzSBOMShape: of a JSON object, the shape is what a decoder finds, however it comes in pieces.
func FuzzSBOMShape(f *testing.F) {
	for _, seed := range []string{
		uploadedText, `{"spdxVersion":"SPDX-2.3","packages":[{},{"a":[{}]}]}`, `{"artifacts":[{"packages":[{}]}]}`, `{"components":{"components":[{}]}}`,
		`{"specVersion":"1.\"6","components":[[{}],{}]}`, `{"a":"{","specVersion":"1.4"}`, `[]`, ``, `{}{}`,
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		for _, format := range sbomFormats {
			whole, _ := newSBOMShape(format.mediaType)
			_, wholeErr := whole.Write(text)
			pieces, _ := newSBOMShape(format.mediaType)
			var err error
			for rest := text; len(rest) > 0 && err == nil; {
				n := min(int(size)+1, len(rest))
				_, err = pieces.Write(rest[:n])
				rest = rest[n:]
			}
			if (err == nil) != (wholeErr == nil) || err == nil && pieces.problem() != whole.problem() {
				t.Fatalf("in pieces: %v %q, as a whole: %v %q", err, pieces.problem(), wholeErr, whole.problem())
			}
			var fields map[string]json.RawMessage
			isObject := json.Unmarshal(text, &fields) == nil && fields != nil
			if isObject && (wholeErr != nil || !whole.ended) {
				t.Fatalf("%q is refused as no object: %v %q", text, wholeErr, whole.problem())
			}
			if !isObject || bytes.ContainsRune(text, '\\') || bytes.Count(text, []byte(`"`+whole.packages+`"`)) > 1 {
				continue
			}
			var list []json.RawMessage
			entries := 0
			if json.Unmarshal(fields[whole.packages], &list) == nil {
				for _, entry := range list {
					if bytes.HasPrefix(entry, []byte("{")) {
						entries++
					}
				}
				if entries != whole.entries {
					t.Errorf("%q: %d entries, want %d", text, whole.entries, entries)
				}
			}
		}
	})
}
