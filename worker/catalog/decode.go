package catalog

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/anchore/syft/syft/format"
	"github.com/anchore/syft/syft/format/cyclonedxjson"
	"github.com/anchore/syft/syft/format/spdxjson"
	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/sbom"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// decoders are those of the formats in which an SBOM may come from somebody else, the most precise first.
var decoders = format.NewDecoderCollection(syftjson.NewFormatDecoder(), cyclonedxjson.NewFormatDecoder(), spdxjson.NewFormatDecoder())

// Decode returns the SBOM in a document that somebody else made, in syft-json, CycloneDX or SPDX (JSON), and its format. An SBOM without packages, or
// with more than workerapi.MaxPackages, is an error. The text of an error follows the name of the SBOM in a sentence.
func Decode(document []byte) (*sbom.SBOM, sbom.FormatID, error) {
	contents, id, _, err := decoders.Decode(bytes.NewReader(document))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("cannot be decoded: %w", err)
	case contents == nil:
		return nil, "", errors.New("is none in syft-json, CycloneDX or SPDX (JSON)")
	case contents.Artifacts.Packages.PackageCount() == 0:
		return nil, "", errors.New("lists no packages")
	case contents.Artifacts.Packages.PackageCount() > workerapi.MaxPackages:
		return nil, "", fmt.Errorf("lists %d packages, more than the limit of %d", contents.Artifacts.Packages.PackageCount(), workerapi.MaxPackages)
	}
	return contents, id, nil
}
