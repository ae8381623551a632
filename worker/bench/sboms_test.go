package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/attestation"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// predicateCycloneDX is the predicate type of an SBOM in CycloneDX.
const predicateCycloneDX = "https://cyclonedx.org/bom"

// TestSBOMs measures the worker with SBOMs that are attached to an image, and the sizes of an SBOM in each format.
func TestSBOMs(t *testing.T) {
	s := setUp(t)
	memory, err := strconv.ParseInt(os.Getenv("BENCH_JOB_MEMORY"), 10, 64)
	if err != nil {
		t.Fatalf("BENCH_JOB_MEMORY is the memory limit of a Job in bytes: %v", err)
	}
	formats, bounds := s.formats(t)
	attested, more := s.attested(t, memory)
	s.write(t, section{
		Text: "`scanner-grype catalog` with an [attested SBOM](../operate/attestations.md) of a small image. The registry is on this machine. Requests are those to the " +
			"registry. An attestation that is not accepted has the image cataloged instead.\n\n" + attested +
			"\nOne image's [SBOM in each format](../integrate/sboms.md): Debian 12, full, with two large Go programs. It is stored as it is uploaded.\n\n" + formats,
		Bounds: append(more, bounds...),
	})
}

// attachedSBOM is what is attached to an image.
type attachedSBOM struct {
	name string
	// attach attaches envelopes to an image in a repository. nil attaches nothing.
	attach func(t *testing.T, to *registrytest.Registry, repository string, image v1.Image, envelope []byte)
	// otherDigest has the SBOM be about another digest.
	otherDigest bool
	sbom        []byte
	// packages is how many packages the SBOM has if it is accepted. problem is in the reason why it is not.
	packages int
	problem  string
}

// attested catalogs an image with several attachments. memory is the memory limit of a Job in bytes.
func (s settings) attested(t *testing.T, memory int64) (string, []bound) {
	t.Helper()
	rows := [][]string{{"attached", "size of an attestation", "packages", "time", "peak memory", "requests", "read from the registry"}}
	var bounds []bound
	for i, c := range []attachedSBOM{
		{name: "nothing", problem: "no SBOM of"},
		{name: "an SBOM of 500 packages", attach: attachByTag, sbom: components(500, 0), packages: 500},
		{name: "an SBOM at the limits", attach: attachByTag, sbom: largestSBOM(), packages: workerapi.MaxPackages},
		{name: "an SBOM of 200 MB", attach: attachByTag, sbom: components(500, 300_000), problem: "more than the limit of"},
		{name: "a thousand attestations about another digest", attach: attachThousand, otherDigest: true, sbom: components(500, 0), problem: "1000 attestations are attached"},
	} {
		var requests, read atomic.Int64
		registry := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				next.ServeHTTP(&countingWriter{w, &read}, r)
			})
		})
		repository := fmt.Sprintf("bench/attested%d", i)
		image := load(t, filepath.Join(s.bin, "fixtures", "images", "shop_web"))
		reference, about := registry.Push(t, repository+":1", image), registrytest.Digest(t, image)
		if c.otherDigest {
			about = "sha256:" + strings.Repeat("ab", 32)
		}
		envelope, key := fixture.SignedEnvelope(t, about, predicateCycloneDX, c.sbom)
		size := ""
		if c.attach != nil {
			c.attach(t, registry, repository, image, envelope)
			size = megabytes(int64(len(envelope)))
		}
		requests.Store(0)
		read.Store(0)
		result, took := s.runAttested(t, registry.Host, reference, key)
		isAccepted := result.SBOMSigner != ""
		kept := isAccepted == (c.problem == "") && strings.Contains(result.SBOMProblem, c.problem) && (!isAccepted || result.Packages == c.packages)
		if !kept {
			t.Errorf("%s: the result is %+v, want %d packages or the problem %q", c.name, result, c.packages, c.problem)
		}
		rows = append(rows, []string{
			c.name, size, fmt.Sprint(result.Packages), fmt.Sprintf("%.1f s", took.Wall.Seconds()), fmt.Sprintf("%d MiB", took.PeakRSS>>20), fmt.Sprint(requests.Load()),
			megabytes(read.Load()),
		})
		bounds = append(bounds, bound{
			fmt.Sprintf("%s: within the memory limit of a Job, and accepted or not as documented: %d MiB, %d MiB", c.name, memory>>20, took.PeakRSS>>20),
			kept && took.PeakRSS <= memory,
		})
	}
	return table(rows...), bounds
}

// countingWriter counts the bytes of responses.
type countingWriter struct {
	http.ResponseWriter
	written *atomic.Int64
}

// Write implements io.Writer.
func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.written.Add(int64(n))
	return n, err
}

func megabytes(n int64) string { return fmt.Sprintf("%.2f MB", float64(n)/1e6) }

// components returns an SBOM in CycloneDX with so many packages, each with a description of so many bytes.
func components(n, description int) []byte {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"type":"library","name":"package%d","version":"1.%d","purl":"pkg:npm/package%d@1.%d","bom-ref":"%d","description":%q}`,
			i, i, i, i, i, strings.Repeat("x", description)))
	}
	return []byte(`{"bomFormat":"CycloneDX","specVersion":"1.6","version":1,"components":[{"type":"operating-system","name":"debian","version":"12","bom-ref":"os"},` +
		strings.Join(all, ",") + `]}`)
}

// largestSBOM returns an SBOM with as many packages as are accepted, whose attestation is as large as is accepted.
func largestSBOM() []byte {
	room := attestation.MaxBytes/4*3 - 1<<10 // an envelope is base64
	return components(workerapi.MaxPackages, (room-len(components(workerapi.MaxPackages, 0)))/workerapi.MaxPackages)
}

// attachByTag attaches an envelope as cosign before version 3 does.
func attachByTag(t *testing.T, to *registrytest.Registry, repository string, image v1.Image, envelope []byte) {
	t.Helper()
	to.Push(t, repository+":"+strings.Replace(registrytest.Digest(t, image), ":", "-", 1)+".att", fixture.Attestation(t, envelope))
}

// attachThousand attaches an envelope a thousand times, as referrers.
func attachThousand(t *testing.T, to *registrytest.Registry, repository string, image v1.Image, envelope []byte) {
	t.Helper()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		annotated, isImage := mutate.Annotations(fixture.Attestation(t, envelope), map[string]string{"number": strconv.Itoa(i)}).(v1.Image)
		referrer, isReferrer := mutate.Subject(annotated, v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: 1}).(v1.Image)
		if !isImage || !isReferrer {
			t.Fatal("the referrer is no image")
		}
		to.Push(t, fmt.Sprintf("%s:referrer%d", repository, i), referrer)
	}
}

// runAttested runs the worker as a Job that prefers attested SBOMs, and returns what it uploads about the image.
func (s settings) runAttested(t *testing.T, host, reference, key string) (workerapi.CatalogResult, usage) {
	t.Helper()
	registries, err := json.Marshal([]workerapi.Registry{{
		Host: host, PlainHTTP: true, SBOM: workerapi.SBOMSource{Prefer: workerapi.PreferAttestation, Signers: []workerapi.Signer{{PublicKey: key}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	server := fixture.NewIngest(t)
	took := s.measureCatalog(t, server, string(registries), reference, "--prefer-attestation")
	return server.Results[0], took
}

// formats catalogs an image in all formats, and returns their sizes.
func (s settings) formats(t *testing.T) (string, []bound) {
	t.Helper()
	registry := registrytest.NewRegistry(t, nil)
	reference, server := registry.Push(t, "bench/formats:1", large(t, s)), fixture.NewIngest(t)
	var args []string
	for _, format := range workerapi.AdditionalFormats {
		args = append(args, "--format", format)
	}
	s.measureCatalog(t, server, fmt.Sprintf(`[{"host": %q, "plainHTTP": true}]`, registry.Host), reference, args...)
	uploads := []struct {
		name    string
		content []byte
	}{{"syft-json", server.SBOM}}
	for _, format := range workerapi.AdditionalFormats {
		uploads = append(uploads, struct {
			name    string
			content []byte
		}{format, server.Additional[format]})
	}
	rows, all, largest := [][]string{{"format", "size", "as stored"}}, 0, 0
	for _, upload := range uploads {
		raw, err := fixture.Decompress(upload.content)
		if err != nil || len(raw) == 0 {
			t.Fatalf("%s: %d bytes (%v), want a document", upload.name, len(raw), err)
		}
		rows = append(rows, []string{upload.name, megabytes(int64(len(raw))), megabytes(int64(len(upload.content)))})
		all, largest = all+len(upload.content), max(largest, len(raw))
	}
	return table(rows...), []bound{
		{fmt.Sprintf("the largest format: at most %s: %s", megabytes(workerapi.MaxSBOMContentBytes), megabytes(int64(largest))), largest <= workerapi.MaxSBOMContentBytes},
		{fmt.Sprintf("all formats as stored: at most %s: %s", megabytes(workerapi.MaxCatalogBytes), megabytes(int64(all))), all <= workerapi.MaxCatalogBytes},
	}
}
