package ingest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// spooled returns the number of files in the spool.
func (a *ingestAPI) spooled() int {
	a.t.Helper()
	files, err := os.ReadDir(a.spool)
	a.must(err)
	return len(files)
}

// stored returns an artifact as stored.
func (a *ingestAPI) stored(platformDigest string, scope store.Scope, artifact store.Artifact) []byte {
	a.t.Helper()
	content, size, err := a.store.OpenArtifact(a.t.Context(), platformDigest, scope, artifact)
	a.must(err)
	stored, err := io.ReadAll(content)
	a.must(err)
	_ = content.Close()
	if int64(len(stored)) != size {
		a.t.Errorf("%s has %d bytes, %d are announced", artifact, len(stored), size)
	}
	return stored
}

// cataloged reports whether the image "web" is in the store.
func (a *ingestAPI) cataloged(scope store.Scope) bool {
	a.t.Helper()
	_, err := a.store.Catalog(a.t.Context(), "grype", web, scope)
	return err == nil
}

// TestCatalogUpload: a Job uploads its result in one request. The result is stored for the image in the manager's record, and for the
// manifest that the manager itself verified.
func TestCatalogUpload(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	brought := newCatalogUpload(t, func(p *catalogUpload) { p.result.Image = "docker.io/library/another" })
	w.want(w.uploadResult(brought), http.StatusNoContent, "")
	got, err := a.store.Catalog(t.Context(), "grype", web, store.Cluster)
	a.must(err)
	want := store.Catalog{
		Engine: "grype", Key: web, Scope: store.Cluster, PlatformDigest: webPlatform, Distro: "debian 12", Packages: 7, Tool: "syft 1.42.3", CatalogedAt: noon,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("catalog (-want +got):\n%s", diff)
	}
	for artifact, body := range map[store.Artifact][]byte{store.ArtifactSBOM: brought.sbom, store.ArtifactMatchInput: brought.matchInput} {
		if stored := a.stored(webPlatform, store.Cluster, artifact); !bytes.Equal(stored, body) {
			t.Errorf("%s has %d bytes, want the %d that were sent", artifact, len(stored), len(body))
		}
	}
	if diff := cmp.Diff([]string{web.Digest}, a.woken); diff != "" {
		t.Errorf("images whose ImageScans are woken (-want +got):\n%s", diff)
	}
	a.spoolHolds(0, 0)
}

// TestAdditionalFormats: the SBOM's additional formats are stored beside it, and count against the namespace's budget. Another catalog of the image
// replaces them all.
func TestAdditionalFormats(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	cyclonedx, spdx := compressed(t, []byte("CycloneDX")), compressed(t, []byte("SPDX"))
	w := a.job(store.JobCatalog, "catalog")
	w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) {
		p.additional = []additionalSBOM{{workerapi.FormatSPDX, spdx}, {workerapi.FormatCycloneDX, cyclonedx}}
	})), http.StatusNoContent, "")
	all := map[store.Artifact][]byte{
		store.ArtifactSBOM: compressed(t, []byte("SBOM")), store.ArtifactMatchInput: newMatchInput(t), store.ArtifactCycloneDX: cyclonedx, store.ArtifactSPDX: spdx,
	}
	size := int64(0)
	for artifact, body := range all {
		size += int64(len(body))
		if stored := a.stored(webPlatform, store.Cluster, artifact); !bytes.Equal(stored, body) {
			t.Errorf("%s has %d bytes, want the %d that were sent", artifact, len(stored), len(body))
		}
	}
	counted, err := a.store.StoredBytes(t.Context(), "")
	a.must(err)
	if counted != size {
		t.Errorf("%d bytes count against the budget, want %d", counted, size)
	}

	a.must(a.store.DeleteCatalog(t.Context(), "grype", webPlatform))
	a.job(store.JobCatalog, "again").uploadValidResult()
	for _, artifact := range []store.Artifact{store.ArtifactCycloneDX, store.ArtifactSPDX} {
		if _, _, err := a.store.OpenArtifact(t.Context(), webPlatform, store.Cluster, artifact); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s of a catalog without it: %v, want %v", artifact, err, store.ErrNotFound)
		}
	}
}

// TestAttestedSBOM: an attested SBOM is stored with its signer, and with the policy that the manager gave the Job.
func TestAttestedSBOM(t *testing.T) {
	for name, tt := range map[string]struct {
		policy string
		change func(*workerapi.CatalogResult)
		status int
		want   store.Origin
	}{
		"attested":                             {"policy", func(r *workerapi.CatalogResult) { r.SBOMSigner = "somebody" }, http.StatusNoContent, store.Origin{Policy: "policy", Signer: "somebody"}},
		"cataloged instead":                    {"policy", func(r *workerapi.CatalogResult) { r.SBOMProblem = "not\nsigned" }, http.StatusNoContent, store.Origin{Problem: "not signed"}},
		"attested, and the Job has to catalog": {"", func(r *workerapi.CatalogResult) { r.SBOMSigner = "somebody" }, http.StatusUnprocessableEntity, store.Origin{}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{})
			a.must(a.store.SaveJob(t.Context(), store.Job{
				Namespace: operatorNamespace, Name: "catalog", UID: "uid-of-catalog", Purpose: store.JobCatalog, Key: web, CreatedAt: noon, Worker: workerImage, SBOMPolicy: tt.policy,
			}))
			w := a.worker(operatorNamespace, "catalog-pod", "uid-of-catalog")
			w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) { tt.change(&p.result) })), tt.status, "")
			if tt.status != http.StatusNoContent {
				return
			}
			got, err := a.store.Catalog(t.Context(), "grype", web, store.Cluster)
			a.must(err)
			if diff := cmp.Diff(tt.want, got.Origin); diff != "" {
				t.Errorf("attestation (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAttachedVEX: what the documents of a result amount to is stored by the policy that the manager gave the Job. Documents that do not count
// are a problem, and the result is taken.
func TestAttachedVEX(t *testing.T) {
	const document = `{"@context": "https://openvex.dev/ns/v0.2.0", "@id": "doc", "author": "jane", "timestamp": "2026-01-01T00:00:00Z", "version": 1, "statements": [%s]}`
	const fixed, affected = `{"vulnerability": {"name": "CVE-1"}, "status": "fixed"}`, `{"vulnerability": {"name": "CVE-1"}, "status": "affected", "action_statement": "update"}`
	for name, tt := range map[string]struct {
		policy string
		change func(*catalogUpload)
		status int
		want   store.VEXSummary
	}{
		"a document":       {"policy", func(p *catalogUpload) { p.vex = [][]byte{fmt.Appendf(nil, document, fixed)} }, http.StatusNoContent, store.VEXSummary{Statements: 1}},
		"no document":      {"policy", func(*catalogUpload) {}, http.StatusNoContent, store.VEXSummary{}},
		"none is accepted": {"policy", func(p *catalogUpload) { p.result.VEXProblem = "not\nsigned" }, http.StatusNoContent, store.VEXSummary{Problem: "not signed"}},
		"a contradiction":  {"policy", func(p *catalogUpload) { p.vex = [][]byte{fmt.Appendf(nil, document, fixed+","+affected)} }, http.StatusNoContent, store.VEXSummary{Problem: "the document doc contradicts itself about CVE-1: fixed and affected at the same time; none of its statements counts"}},
		"no package of the image": {"policy", func(p *catalogUpload) {
			const about = `, "products": [{"@id": "pkg:deb/debian/openssl@3.0.11-1"}], `
			p.vex = [][]byte{fmt.Appendf(nil, document, strings.Replace(fixed, ",", about, 1)+","+strings.Replace(strings.Replace(fixed, ",", strings.Replace(about, "openssl", "libssl3", 1), 1), "CVE-1", "CVE-2", 1))}
			p.matchInput = compressed(t, []byte(`{"artifacts":[{"name":"a","licenses":[{"purl":"pkg:deb/debian/openssl@3.0.11-1"}],"cpes":[],"version":"1","type":"deb"},
				{"id":"b","name":"libssl3","metadata":{"name":"openssl"},"version":"3.0.11-1","type":"deb","purl":"pkg:deb/debian/libssl3@3.0.11-1?upstream=openssl"}]}`))
		}, http.StatusNoContent, store.VEXSummary{Statements: 2, Problem: "1 of 2 statements name no package of the image, such as pkg:deb/debian/openssl 3.0.11-1 for CVE-1"}},
		"one is unread": {"policy", func(p *catalogUpload) {
			p.vex, p.result.VEXProblem, p.result.VEXUnread = [][]byte{fmt.Appendf(nil, document, fixed)}, "attestation two: the registry is busy", true
		}, http.StatusNoContent, store.VEXSummary{Problem: "no statement counts while an attached document is unread, which may say that the image is affected; mend it and scan the image again; attestation two: the registry is busy"}},
		"none is wanted": {"", func(p *catalogUpload) { p.vex = [][]byte{fmt.Appendf(nil, document, fixed)} }, http.StatusUnprocessableEntity, store.VEXSummary{}},
		"too many":       {"policy", func(p *catalogUpload) { p.vex = make([][]byte, workerapi.MaxVEXDocuments+1) }, http.StatusUnprocessableEntity, store.VEXSummary{}},
		"too large":      {"policy", func(p *catalogUpload) { p.vex = [][]byte{make([]byte, workerapi.MaxVEXBytes), {' '}} }, http.StatusUnprocessableEntity, store.VEXSummary{}},
		"a size below zero": {"policy", func(p *catalogUpload) {
			p.vex, p.corruptHeader = [][]byte{{' '}}, func(r *workerapi.CatalogResult) { r.VEX[0].Size = -1 }
		}, http.StatusUnprocessableEntity, store.VEXSummary{}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{})
			a.must(a.store.SaveJob(t.Context(), store.Job{
				Namespace: operatorNamespace, Name: "catalog", UID: "uid-of-catalog", Purpose: store.JobCatalog, Key: web, CreatedAt: noon, Worker: workerImage, VEXPolicy: tt.policy,
			}))
			w := a.worker(operatorNamespace, "catalog-pod", "uid-of-catalog")
			w.want(w.uploadResult(newCatalogUpload(t, tt.change)), tt.status, "")
			got, err := a.store.VEXSummary(t.Context(), store.Subject{PlatformDigest: webPlatform, Engine: "grype"}, "policy")
			if !errors.Is(err, store.ErrNotFound) {
				a.must(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("statements (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUploadsThatAreRefused: a refused upload leaves nothing behind.
func TestUploadsThatAreRefused(t *testing.T) {
	text := []byte(strings.Repeat("an SBOM, ", 1000))
	whole := compressed(t, text)
	bomb := compressed(t, make([]byte, 10<<20))
	is := func(sbom []byte) func(*catalogUpload) { return func(p *catalogUpload) { p.sbom = sbom } }
	wrong := func(mistake func(*workerapi.CatalogResult)) func(*catalogUpload) {
		return func(p *catalogUpload) { p.corruptHeader = mistake }
	}
	for name, tt := range map[string]struct {
		change func(*catalogUpload)
		status int
		text   string
	}{
		"whole":                             {is(whole), http.StatusNoContent, ""},
		"not zstd":                          {is([]byte("plain text")), http.StatusBadRequest, "the SBOM is not whole zstd"},
		"truncated zstd":                    {is(whole[:len(whole)-5]), http.StatusBadRequest, "not whole zstd"},
		"zstd, damaged":                     {is(damaged(whole)), http.StatusBadRequest, "not whole zstd"},
		"junk after it":                     {is(append(bytes.Clone(whole), "junk"...)), http.StatusBadRequest, "not whole zstd"},
		"too large":                         {is(bytes.Repeat([]byte("x"), 1<<20)), http.StatusRequestEntityTooLarge, "the body is too large"},
		"too large unpacked":                {is(bomb), http.StatusRequestEntityTooLarge, "the body is too large"},
		"the largest window":                {is(windowOf(25)), http.StatusNoContent, ""},
		"a window that no worker takes":     {is(windowOf(26)), http.StatusBadRequest, "not whole zstd"},
		"a match input that is not zstd":    {func(p *catalogUpload) { p.matchInput = []byte("plain text") }, http.StatusBadRequest, "the match input is not whole"},
		"a match input that is no document": {func(p *catalogUpload) { p.matchInput = compressed(t, []byte("hello")) }, http.StatusBadRequest, "the match input is not whole"},
		"a match input that is cut short":   {func(p *catalogUpload) { p.matchInput = compressed(t, []byte(`{"artifacts":[{}`)) }, http.StatusBadRequest, "the match input is not whole"},
		"a match input that is a list":      {func(p *catalogUpload) { p.matchInput = compressed(t, []byte(`[]`)) }, http.StatusBadRequest, "it is no object"},
		"a number of any size":              {func(p *catalogUpload) { p.matchInput = compressed(t, []byte(`{"artifacts":[],"a":1e999}`)) }, http.StatusNoContent, ""},
		"as many packages as fit":           {func(p *catalogUpload) { p.matchInput = inputOf(t, workerapi.MaxPackages) }, http.StatusNoContent, ""},
		"more packages than a worker holds": {func(p *catalogUpload) { p.matchInput = inputOf(t, workerapi.MaxPackages+1) }, http.StatusUnprocessableEntity, "exclude the image"},
		"more relationships than a worker holds": {func(p *catalogUpload) {
			p.matchInput = compressed(t, []byte(`{"artifacts":[{}],"artifactRelationships":[`+strings.Repeat(`{},`, workerapi.MaxPackages)+`{}]}`))
		}, http.StatusUnprocessableEntity, "belong to another one; exclude the image"},
		"a match input that is nested deeply": {func(p *catalogUpload) {
			p.matchInput = compressed(t, []byte(`{"a":`+strings.Repeat("[", maxNesting+1)))
		},
			http.StatusUnprocessableEntity, "levels of lists and objects"},
		"a match input with an endless text": {func(p *catalogUpload) { p.matchInput = compressed(t, []byte(`{"a":"`+strings.Repeat("x", 3<<20))) }, http.StatusRequestEntityTooLarge, "a part of the document"},
		"a match input that is too large": {func(p *catalogUpload) {
			p.matchInput = compressed(t, []byte(`{"x":[1`+strings.Repeat(",1", 3<<20)+"]}"))
		},
			http.StatusRequestEntityTooLarge, "the body is too large"},
		"an additional format": {func(p *catalogUpload) { p.additional = []additionalSBOM{{"spdx-json", whole}} }, http.StatusNoContent, ""},
		"an unknown format":    {func(p *catalogUpload) { p.additional = []additionalSBOM{{"syft-json", whole}} }, http.StatusUnprocessableEntity, `"syft-json" is no additional format`},
		"a format twice": {func(p *catalogUpload) { p.additional = []additionalSBOM{{"spdx-json", whole}, {"spdx-json", whole}} },
			http.StatusUnprocessableEntity, "comes twice"},
		"an additional format that is damaged": {func(p *catalogUpload) { p.additional = []additionalSBOM{{"spdx-json", damaged(whole)}} }, http.StatusBadRequest, "not whole zstd"},
		"an additional format that is too large": {func(p *catalogUpload) { p.additional = []additionalSBOM{{"spdx-json", bomb}} },
			http.StatusRequestEntityTooLarge, "the body is too large"},
		"an additional format of more bytes than it says": {func(p *catalogUpload) {
			p.additional = []additionalSBOM{{"spdx-json", whole}}
			p.corruptHeader = func(r *workerapi.CatalogResult) { r.Additional[0].Size-- }
		}, http.StatusUnprocessableEntity, "1 bytes more"},
		"an additional format of less than nothing": {func(p *catalogUpload) {
			p.additional = []additionalSBOM{{"spdx-json", whole}}
			p.corruptHeader = func(r *workerapi.CatalogResult) { r.Additional[0].Size = -1 }
		}, http.StatusUnprocessableEntity, "does not fit"},
		"more than it says": {wrong(func(r *workerapi.CatalogResult) { r.SBOMSize-- }), http.StatusUnprocessableEntity, "1 bytes more"},
		"less than it says": {wrong(func(r *workerapi.CatalogResult) { r.MatchInputSize++ }), http.StatusUnprocessableEntity, "-1 bytes more"},
		"a document of less than nothing": {wrong(func(r *workerapi.CatalogResult) { r.SBOMSize, r.MatchInputSize = r.SBOMSize+r.MatchInputSize+9, -9 }),
			http.StatusUnprocessableEntity, "does not fit"},
		"no manifests":       {func(p *catalogUpload) { p.manifests = nil }, http.StatusUnprocessableEntity, "0 documents"},
		"too many manifests": {func(p *catalogUpload) { p.manifests = make([][]byte, workerapi.MaxManifests+1) }, http.StatusUnprocessableEntity, "34 documents"},
		"a very long line":   {func(p *catalogUpload) { p.result.Tool = strings.Repeat("x", maxHeader) }, http.StatusBadRequest, "does not begin with a line of JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{Catalog: 512 << 10, SBOMContent: 1 << 20, MatchInputContent: 4 << 20, JSON: 1 << 10})
			w := a.job(store.JobCatalog, "catalog")
			w.want(w.uploadResult(newCatalogUpload(t, tt.change)), tt.status, tt.text)
			if got := a.cataloged(store.Cluster); got != (tt.status == http.StatusNoContent) {
				t.Errorf("the image is cataloged: %v", got)
			}
			a.spoolHolds(0, 0)
		})
	}
}

// inputOf returns a match input with this many packages of minimal size, and with other lists that do not count.
func inputOf(t *testing.T, packages int) []byte {
	t.Helper()
	return compressed(t, []byte(`{"source":{"artifacts":[1,2,3]},"artifacts":[`+strings.Repeat(`{"a":[{}]},`, packages-1)+`{}],"artifactRelationships":[{},{}]}`))
}

// TestDamagedUploads: a body that does not have the announced digest is refused, whatever its content.
func TestDamagedUploads(t *testing.T) {
	body := newCatalogUpload(t).body(t)
	for name, tt := range map[string]struct {
		body   []byte
		digest string
		text   string
	}{
		"truncated":          {body[:len(body)-5], digest(string(body)), "damaged on the way"},
		"for another digest": {body, digest("another"), "damaged on the way"},
		"no digest":          {body, "-", "damaged on the way"},
		"no JSON":            {[]byte("{\n"), digest("{\n"), "does not begin with a line of JSON"},
		"no line":            {[]byte("{}"), digest("{}"), "does not begin with a line of JSON"},
		"empty":              {nil, digest(""), "does not begin with a line of JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{})
			w := a.job(store.JobCatalog, "catalog")
			w.want(w.send(http.MethodPut, workerapi.PathCatalogResult, bytes.NewReader(tt.body), workerapi.DigestHeader, tt.digest), http.StatusBadRequest, tt.text)
			a.spoolHolds(0, 0)
		})
	}
}

// damaged flips one bit.
func damaged(body []byte) []byte {
	body = bytes.Clone(body)
	body[len(body)/2] ^= 1
	return body
}

// windowOf returns a frame that requires 2^power bytes of decoder memory
// (https://datatracker.ietf.org/doc/html/rfc8878#name-window-descriptor).
func windowOf(power byte) []byte {
	body := binary.LittleEndian.AppendUint32(nil, 0xFD2FB528) // magic number
	body = append(body, 0)                                    // frame header: a window descriptor follows, no size
	body = append(body, (power-10)<<3)
	return append(body, 1, 0, 0) // a last, empty, raw block
}

// TestBrokenConnection: a worker whose connection breaks leaves nothing behind.
func TestBrokenConnection(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	reader, writer := io.Pipe()
	answered := a.job(store.JobCatalog, "catalog").startUpload(reader)
	_, err := writer.Write(make([]byte, 1<<20))
	a.must(err)
	writer.CloseWithError(errUnavailable)
	if got := <-answered; got.status != 0 {
		t.Errorf("the answer is %s, want none", got)
	}
	a.eventuallyHolds(0)
}

// TestResultsThatAreRefused: results that cannot be about the Job's image, or are too much for a match worker, are refused.
func TestResultsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*workerapi.CatalogResult)
		status int
		text   string
	}{
		"another platform":      {func(r *workerapi.CatalogResult) { r.Platform = "linux/arm64" }, http.StatusUnprocessableEntity, "platform: linux/arm64 was cataloged, linux/amd64 runs"},
		"another system":        {func(r *workerapi.CatalogResult) { r.Platform = "windows/amd64" }, http.StatusUnprocessableEntity, "platform:"},
		"no platform":           {func(r *workerapi.CatalogResult) { r.Platform = "" }, http.StatusUnprocessableEntity, "platform:"},
		"a variant":             {func(r *workerapi.CatalogResult) { r.Platform = "linux/amd64/v2" }, http.StatusNoContent, ""},
		"less than no packages": {func(r *workerapi.CatalogResult) { r.Packages = -1 }, http.StatusUnprocessableEntity, "packages:"},
		"all packages that fit": {func(r *workerapi.CatalogResult) { r.Packages = workerapi.MaxPackages }, http.StatusNoContent, ""},
		"too many packages":     {func(r *workerapi.CatalogResult) { r.Packages = workerapi.MaxPackages + 1 }, http.StatusUnprocessableEntity, "exclude the image"},
		"a very long tool":      {func(r *workerapi.CatalogResult) { r.Tool = "a" + strings.Repeat("ü", 300) }, http.StatusNoContent, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{})
			w := a.job(store.JobCatalog, "catalog")
			w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) { tt.change(&p.result) })), tt.status, tt.text)
			cataloged, err := a.store.Catalog(t.Context(), "grype", web, store.Cluster)
			if (err == nil) != (tt.status == http.StatusNoContent) {
				t.Errorf("the catalog: %v", err)
			}
			if len(cataloged.Tool) > maxText || !utf8.ValidString(cataloged.Tool) {
				t.Errorf("the tool is %q, want at most %d bytes of text", cataloged.Tool, maxText)
			}
		})
	}
}

// TestManifestsThatAreRefused: an SBOM is stored for the platform manifest that the manager itself reaches from the pod's digest.
func TestManifestsThatAreRefused(t *testing.T) {
	nested := index(grandchildren(webIndex))
	victim, victims := manifest("victim"), index(child(manifest("victim"), "amd64"))
	for name, tt := range map[string]struct {
		root      []byte // the image of the Job
		manifests [][]byte
		want      string // the platform's digest; empty if the upload is refused
	}{
		"the index's manifest":                   {webIndex, [][]byte{webIndex, webManifest}, webPlatform},
		"the manifest itself":                    {webManifest, [][]byte{webManifest}, webPlatform},
		"an index in an index":                   {nested, [][]byte{nested, webIndex, webManifest}, webPlatform},
		"another image's manifest":               {webIndex, [][]byte{webIndex, victim}, ""},
		"another image's index":                  {webIndex, [][]byte{victims, victim}, ""},
		"another image":                          {webManifest, [][]byte{victim}, ""},
		"an index that holds another image's":    {webIndex, [][]byte{webIndex, victims, victim}, ""},
		"the manifest of another platform":       {webIndex, [][]byte{webIndex, manifest("web for arm64")}, ""},
		"an index without what it holds":         {webIndex, [][]byte{webIndex}, ""},
		"a manifest with something after it":     {webManifest, [][]byte{webManifest, victim}, ""},
		"what an index holds, without the index": {webIndex, [][]byte{webManifest}, ""},
		"no document":                            {[]byte("hello"), [][]byte{[]byte("hello")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{})
			key := image.Key{Digest: digest(string(tt.root)), Platform: amd64}
			w := a.tenant("shop", "catalog", key)
			status, text := http.StatusNoContent, ""
			if tt.want == "" {
				status, text = http.StatusUnprocessableEntity, "the manifest is not one of the image"
			}
			w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) { p.manifests = tt.manifests })), status, text)
			if got, _ := a.store.Catalog(t.Context(), "grype", key, "shop"); got.PlatformDigest != tt.want {
				t.Errorf("the platform's manifest is %q, want %q", got.PlatformDigest, tt.want)
			}
		})
	}
}

// TestSharedManifestKeepsFirstSBOM: a second image with the same platform manifest uses the SBOM that the first image's Job stored.
func TestSharedManifestKeepsFirstSBOM(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	a.job(store.JobCatalog, "victim").uploadValidResult()
	hostile := index(child(webManifest, "amd64"), child(manifest("hostile"), "arm64"))
	key := image.Key{Digest: digest(string(hostile)), Platform: amd64}
	a.must(a.store.SaveJob(t.Context(), store.Job{Namespace: operatorNamespace, Name: "hostile", UID: "uid-of-hostile", Purpose: store.JobCatalog, Key: key, CreatedAt: noon, Worker: workerImage}))
	w := a.worker(operatorNamespace, "hostile-pod", "uid-of-hostile")
	w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) {
		p.manifests, p.result.Packages = [][]byte{hostile, webManifest}, 0
		p.sbom = compressed(t, []byte("poisoned SBOM"))
	})), http.StatusNoContent, "")
	for _, k := range []image.Key{web, key} {
		got, err := a.store.Catalog(t.Context(), "grype", k, store.Cluster)
		if err != nil || got.PlatformDigest != webPlatform || got.Packages != 7 {
			t.Errorf("%s leads to %+v, %v; want what the victim's Job stored", k, got, err)
		}
	}
	if stored := a.stored(webPlatform, store.Cluster, store.ArtifactSBOM); !bytes.Equal(stored, compressed(t, []byte("SBOM"))) {
		t.Error("the victim's SBOM is another one")
	}
}

// TestOneResult: a Job has one result. An identical upload gets the same answer and changes nothing, because the first answer may have got
// lost.
func TestOneResult(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	for range 3 {
		w.uploadValidResult()
	}
	if len(a.woken) != 1 {
		t.Errorf("the backend gets %d results, want one", len(a.woken))
	}
	w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) { p.result.Packages = 0 })), http.StatusConflict, "has brought another result")
	if got, err := a.store.Catalog(t.Context(), "grype", web, store.Cluster); err != nil || got.Packages != 7 {
		t.Errorf("the catalog is %+v, %v", got, err)
	}
}

// TestRefusedUploads: after a few refused uploads of a Job, further ones are not read. Other Jobs are not affected.
func TestRefusedUploads(t *testing.T) {
	a := newIngestAPI(t, Limits{Catalog: 512 << 10, SBOMContent: 1 << 20, MatchInputContent: 4 << 20, JSON: 1 << 10})
	w := a.job(store.JobCatalog, "catalog")
	w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) { p.sbom = make([]byte, 1<<20) })), http.StatusRequestEntityTooLarge, "the body is too large")
	for range maxRefused - 1 {
		w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) { p.sbom = []byte("plain text") })), http.StatusBadRequest, "not whole zstd")
	}
	w.want(w.uploadResult(newCatalogUpload(t)), http.StatusForbidden, "no further one is read")
	a.job(store.JobCatalog, "other").uploadValidResult()
	a.must(a.store.EndJob(t.Context(), operatorNamespace, "catalog", noon, true))
	a.must(a.ingest.Sweep(t.Context()))
	if known := a.ingest.spool.jobs(); len(known) > 0 {
		t.Errorf("the spool remembers %v, want no Job that has ended", known)
	}
}

// fill takes slots of a pool.
func (a *ingestAPI) fill(pool *limits.Pool, slots int) (releases []func()) {
	a.t.Helper()
	for i := range slots {
		release, err := pool.Acquire(a.t.Context(), fmt.Sprint("other-", i))
		a.must(err)
		releases = append(releases, release)
	}
	return releases
}

// TestUploadsWithoutASender: an upload is checked, and counts as refused, although its sender hangs up after the last byte.
func TestUploadsWithoutASender(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	body := newCatalogUpload(t, func(p *catalogUpload) { p.sbom = []byte("plain text") }).body(t)
	for range maxRefused {
		releases := a.fill(a.ingest.checking, maxChecking) // the check waits until the sender is gone
		ctx, hangUp := context.WithCancel(t.Context())
		answered := w.beginsWithin(ctx, bytes.NewReader(body), workerapi.DigestHeader, digest(string(body)))
		a.eventuallyHolds(int64(len(body)))
		hangUp()
		<-answered
		for _, release := range releases {
			release()
		}
		a.eventuallyReceivesNothing()
	}
	w.want(w.uploadResult(newCatalogUpload(t)), http.StatusForbidden, "no further one is read")
}

// TestAfterTheJob: when the manager has removed the Job, its pod has nothing more to say.
func TestAfterTheJob(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	w.uploadValidResult()
	a.must(a.store.DeleteJob(t.Context(), operatorNamespace, "catalog"))
	w.want(w.uploadResult(newCatalogUpload(t)), http.StatusForbidden, "has ended")
}

// TestSpoolIsEmptiedAtStart: files of an earlier process are deleted.
func TestSpoolIsEmptiedAtStart(t *testing.T) {
	s := newSpool(t.TempDir()+"/spool", 1, 1, newMetrics(nil, 1, 1).spooled)
	for range 2 {
		if err := s.reset(); err != nil {
			t.Fatal(err)
		}
		if files, err := os.ReadDir(s.dir); err != nil || len(files) != 0 {
			t.Fatalf("files %v, %v, want none", files, err)
		}
		if err := os.WriteFile(s.dir+"/upload-1", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMemory: an SBOM of 100 MB is uploaded and read without ever being in memory as a whole.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("uploads 100 MB")
	}
	const size, bound = 100 << 20, 32 << 20
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	length, err := io.Copy(io.Discard, &frames{left: size / frameSize})
	a.must(err)
	before := newCatalogUpload(t, func(p *catalogUpload) {
		p.sbom, p.corruptHeader = nil, func(r *workerapi.CatalogResult) { r.SBOMSize = length }
	}).body(t)
	input := newMatchInput(t)
	body := func() io.Reader {
		return io.MultiReader(bytes.NewReader(before[:len(before)-len(input)]), &frames{left: size / frameSize}, bytes.NewReader(input))
	}
	sum := sha256.New()
	_, err = io.Copy(sum, body())
	a.must(err)

	defer debug.SetGCPercent(debug.SetGCPercent(10)) // keeps the heap close to what is needed
	peak := watchHeap(t)
	w.want(w.send(http.MethodPut, workerapi.PathCatalogResult, body(), workerapi.DigestHeader, digestOf(sum)), http.StatusNoContent, "")
	content, stored, err := a.store.OpenArtifact(t.Context(), webPlatform, store.Cluster, store.ArtifactSBOM)
	a.must(err)
	read, err := io.Copy(io.Discard, content)
	a.must(err)
	_ = content.Close()
	if most := peak(); most > bound {
		t.Errorf("%d MiB of memory are needed for an SBOM of %d MiB, want at most %d", most>>20, length>>20, bound>>20)
	}
	if read != length || stored != length {
		t.Errorf("%d bytes come back of %d", read, length)
	}
}

// frameSize is the size of one frame with a raw block.
const frameSize = 64 << 10

// frames generates incompressible zstd while it is read, frame after frame.
type frames struct {
	left int
	rest []byte
	rand *rand.ChaCha8
}

func (f *frames) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if f.left == 0 {
			return 0, io.EOF
		}
		f.left--
		if f.rand == nil {
			f.rand = rand.NewChaCha8([32]byte{1})
		}
		content := make([]byte, frameSize)
		_, _ = f.rand.Read(content)
		f.rest = encoder.EncodeAll(content, nil)
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

var encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))

// watchHeap returns a function that returns the maximum growth of the heap since the call.
func watchHeap(t *testing.T) (peak func() uint64) {
	t.Helper()
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	before, most := stats.HeapAlloc, uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				if now.HeapAlloc > before {
					most = max(most, now.HeapAlloc-before)
				}
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-stopped
		return most
	}
}
