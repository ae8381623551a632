package match_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/anchore/syft/syft/format"
	"github.com/anchore/syft/syft/format/cyclonedxjson"
	"github.com/anchore/syft/syft/format/spdxjson"
	"github.com/anchore/syft/syft/sbom"
	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/match"
)

// TestOtherFormatsGiveGrypesReport checks that an SBOM in SPDX or CycloneDX, decoded and made compact, gives the report that Grype gives for the
// document itself.
func TestOtherFormatsGiveGrypesReport(t *testing.T) {
	db := store(t, fixture.Advisories(t, ownAdvisories))
	spdx, err := spdxjson.NewFormatEncoderWithConfig(spdxjson.DefaultEncoderConfig())
	if err != nil {
		t.Fatal(err)
	}
	cyclonedx, err := cyclonedxjson.NewFormatEncoderWithConfig(cyclonedxjson.DefaultEncoderConfig())
	if err != nil {
		t.Fatal(err)
	}
	all := images(t)
	for _, name := range []string{"debian", "alpine", "rocky", "go"} {
		s := contents(t, all[name].image)
		for _, encoder := range []sbom.FormatEncoder{spdx, cyclonedx} {
			t.Run(name+"/"+encoder.ID().String(), func(t *testing.T) {
				raw, err := format.Encode(*s, encoder)
				if err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(t.TempDir(), "sbom.json")
				if err := os.WriteFile(file, raw, 0o600); err != nil {
					t.Fatal(err)
				}
				want, err := match.SBOMWithGrypeReader(t.Context(), db, file)
				if err != nil {
					t.Fatal(err)
				}
				if len(want.Findings) == 0 {
					t.Error("Grype finds nothing, want findings to compare")
				}
				decoded, _, _, err := format.Decode(bytes.NewReader(raw))
				if err != nil {
					t.Fatal(err)
				}
				got, err := match.SBOM(t.Context(), db, input.Open(write(t, input.Compact(decoded))))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(fixture.Lines(want.Findings), fixture.Lines(got.Findings)); diff != "" {
					t.Errorf("findings (-Grype's +got):\n%s", diff)
				}
			})
		}
	}
}
