package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// claimedPackage has known vulnerabilities in the version of claimedSBOM. The images of the test do not contain it.
const claimedPackage = "golang.org/x/net"

// The findings of an image with a signed SBOM are those of the SBOM, and its ImageScan names the signer. An image whose attached SBOM is about another
// image is cataloged, and its ImageScan says why.
func TestAttestedSBOM(t *testing.T) {
	t.Parallel()
	if !env.HasAttestedHost() {
		t.Skip("only nodes of the local cluster pull images of any registry from the local one")
	}
	ns := namespace(t, "attested")
	own, others := attestedImage(t, ns+"-own"), attestedImage(t, ns+"-others")
	for _, image := range []testImage{own, others} {
		must(t, env.AttachSBOM(t.Context(), image.pushed, own.digest, claimedSBOM(t)))
	}
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "own", Image: own.reference}, scenario.Pod{Name: "others", Image: others.reference}))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, 2, 0))

	signer, err := env.SBOMSigner()
	must(t, err)
	checkOrigin(t, ns, own, v1alpha1.SBOMOrigin{Source: v1alpha1.SBOMFromAttestation, Signer: signer})
	checkOrigin(t, ns, others, v1alpha1.SBOMOrigin{
		Source: v1alpha1.SBOMFromImage, Message: fmt.Sprintf("it is about %s, and not about %s", own.digest, others.digest),
	})
	found, err := env.Findings(t.Context(), ns)
	must(t, err)
	packages := map[string][]string{}
	for _, image := range found {
		for _, f := range image.Findings {
			packages[image.References[0]] = append(packages[image.References[0]], f.Package.Name)
		}
	}
	for reference, names := range packages {
		packages[reference] = slices.Compact(names)
	}
	if diff := cmp.Diff(map[string][]string{own.reference: {claimedPackage}}, packages); diff != "" {
		t.Errorf("packages with findings by image (-want +got):\n%s", diff)
	}
}

// checkOrigin checks where the packages of an image come from. The message needs only to contain the one that is wanted.
func checkOrigin(t *testing.T, ns string, image testImage, want v1alpha1.SBOMOrigin) {
	t.Helper()
	scan, err := env.ImageScanOf(t.Context(), ns, image.reference)
	must(t, err)
	if scan.Status.SBOM == nil {
		t.Fatalf("the ImageScan of %s does not say where its packages come from", image.reference)
	}
	got := *scan.Status.SBOM
	if want.Message != "" && strings.Contains(got.Message, want.Message) {
		got.Message = want.Message
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("where the packages of %s come from (-want +got):\n%s", image.reference, diff)
	}
}

// testImage is an image without packages that have findings. pushed is its reference in the local registry, reference that of its pods.
type testImage struct {
	pushed, reference string
	digest            v1.Hash
}

func attestedImage(t *testing.T, repository string) testImage {
	t.Helper()
	pushed, err := env.PushVariant(t.Context(), images.Static, "test/"+repository)
	must(t, err)
	reference, err := env.AttestedReference(pushed)
	must(t, err)
	parsed, err := name.NewDigest(reference)
	must(t, err)
	digest, err := v1.NewHash(parsed.DigestStr())
	must(t, err)
	return testImage{pushed: pushed, reference: reference, digest: digest}
}

// claimedSBOM returns a CycloneDX document with claimedPackage alone.
func claimedSBOM(t *testing.T) []byte {
	t.Helper()
	bom := cdx.NewBOM()
	bom.Components = &[]cdx.Component{{
		BOMRef: "net", Type: cdx.ComponentTypeLibrary, Name: claimedPackage, Version: "v0.10.0", PackageURL: "pkg:golang/" + claimedPackage + "@v0.10.0",
	}}
	var document bytes.Buffer
	must(t, cdx.NewBOMEncoder(&document, cdx.BOMFileFormatJSON).EncodeVersion(bom, cdx.SpecVersion1_6))
	return document.Bytes()
}
