package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/anchore/syft/syft/format"
	"github.com/anchore/syft/syft/format/cyclonedxjson"
	"github.com/anchore/syft/syft/format/spdxjson"
	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/sbom"

	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// decoders are those of the formats in which an SBOM may come from somebody else, the most precise first.
var decoders = format.NewDecoderCollection(syftjson.NewFormatDecoder(), cyclonedxjson.NewFormatDecoder(), spdxjson.NewFormatDecoder())

// Decode returns the SBOM in a document that somebody else made, in syft-json, CycloneDX or SPDX (JSON), and its format. An SBOM without packages, or
// with more than workerapi.MaxPackages, is an error. The text of an error follows the name of the SBOM in a sentence.
func Decode(document []byte) (*sbom.SBOM, sbom.FormatID, error) {
	contents, id, err := decode(document)
	switch {
	case err != nil && id == "":
		return nil, "", fmt.Errorf("cannot be decoded: %w; it must be syft-json, CycloneDX or SPDX 2 (JSON)", err)
	case err != nil:
		return nil, "", fmt.Errorf("cannot be decoded: %w", err)
	case contents == nil:
		return nil, "", errors.New("is none in syft-json, CycloneDX or SPDX (JSON)")
	case contents.Artifacts.Packages.PackageCount() == 0:
		return nil, "", errors.New("lists no packages")
	case contents.Artifacts.Packages.PackageCount() > workerapi.MaxPackages:
		return nil, "", fmt.Errorf("lists %d packages, more than the limit of %d", contents.Artifacts.Packages.PackageCount(), workerapi.MaxPackages)
	}
	if id != syftjson.ID {
		input.MarkForeign(contents)
	}
	return contents, id, nil
}

// decode is Decode without the bounds. A panic of a decoder becomes an error.
func decode(document []byte) (contents *sbom.SBOM, id sbom.FormatID, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			contents, err = nil, fmt.Errorf("the decoder panicked: %v", cause)
		}
	}()
	contents, id, _, err = decoders.Decode(bytes.NewReader(withComponents(document)))
	return contents, id, err
}

// withComponents returns a CycloneDX document without a list of components with an empty one: the list is optional, and Syft's decoder panics
// without it. Other documents are returned unchanged.
func withComponents(document []byte) []byte {
	var shape struct {
		BOMFormat  string
		Components *[]struct{}
	}
	if json.Unmarshal(document, &shape) != nil || shape.BOMFormat != "CycloneDX" || shape.Components != nil {
		return document
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(document, &fields) != nil {
		return document
	}
	for name := range fields {
		if strings.EqualFold(name, "components") {
			delete(fields, name)
		}
	}
	fields["components"] = json.RawMessage("[]")
	completed, err := json.Marshal(fields)
	if err != nil {
		return document
	}
	return completed
}
