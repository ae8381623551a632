package catalog

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/anchore/syft/syft/format/common/cyclonedxhelpers"
	"github.com/anchore/syft/syft/format/spdxjson"
	"github.com/anchore/syft/syft/sbom"

	"github.com/scanner-operator/scanner-operator/worker/version"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// WriteFormat does what Write does with the SBOM in an additional format, one of workerapi.AdditionalFormats. As with Syft's command line, each
// document has a serial number of its own and the present time.
func WriteFormat(dir, format string, contents *sbom.SBOM, contentLimit int64) (Artifact, error) {
	// Both formats say that the tool is by Anchore.
	described := *contents
	described.Descriptor.Name, described.Descriptor.Version, _ = strings.Cut(version.Syft(), " ")
	artifact, err := write(dir, contentLimit, func(to io.Writer) error {
		switch format {
		case workerapi.FormatCycloneDX:
			return encodeCycloneDX(to, described)
		case workerapi.FormatSPDX:
			return encodeSPDX(to, described)
		}
		return fmt.Errorf("unknown format %q", format)
	})
	if err != nil {
		return Artifact{}, withReason(workerapi.ReasonCatalogFailed, fmt.Errorf("the SBOM as %s: %w", format, err))
	}
	return artifact, nil
}

func encodeSPDX(to io.Writer, s sbom.SBOM) error {
	encoder, err := spdxjson.NewFormatEncoderWithConfig(spdxjson.EncoderConfig{Version: "2.3"})
	if err != nil {
		return err
	}
	return encoder.Encode(to, s)
}

// encodeCycloneDX writes what Syft does, without what makes a strict reader such as Dependency-Track refuse the whole document. Images choose the
// texts of their packages.
func encodeCycloneDX(to io.Writer, s sbom.SBOM) error {
	bom := cyclonedxhelpers.ToFormatModel(s)
	for i := range *bom.Components {
		component := &(*bom.Components)[i]
		component.ExternalReferences = validReferences(component.ExternalReferences)
		nameUnknownLicenses(component.Licenses)
	}
	return cdx.NewBOMEncoder(to, cdx.BOMFileFormatJSON).SetEscapeHTML(false).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// validReferences returns the references whose addresses are URIs, escaped where that makes them one.
func validReferences(all *[]cdx.ExternalReference) *[]cdx.ExternalReference {
	if all == nil {
		return nil
	}
	var valid []cdx.ExternalReference
	for _, reference := range *all {
		address, err := url.Parse(reference.URL)
		if err != nil || !uriText.MatchString(address.String()) {
			continue
		}
		reference.URL = address.String()
		valid = append(valid, reference)
	}
	if valid == nil {
		return nil
	}
	return &valid
}

// uriText matches the characters of a URI (RFC 3986, appendix A) without brackets, which belong into a host only. url.Parse accepts others in a query.
var uriText = regexp.MustCompile(`^(?:[A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*$`)

// nameUnknownLicenses writes licenses by name that a reader may not know by their SPDX identifier. Readers have the identifiers of some version of the
// list, and the schema allows no others.
func nameUnknownLicenses(licenses *cdx.Licenses) {
	if licenses == nil {
		return
	}
	for _, choice := range *licenses {
		if l := choice.License; l != nil && l.ID != "" && !slices.Contains(knownLicenses(), l.ID) {
			l.Name, l.ID = l.ID, ""
		}
	}
}

// licensesText is the list of SPDX licenses that was published with CycloneDX 1.6 (version 3.17, http://cyclonedx.org/schema/spdx.schema.json).
//
//go:embed licenses.json
var licensesText []byte

// knownLicenses returns the SPDX identifiers of licenses that every reader of CycloneDX 1.6 knows.
var knownLicenses = sync.OnceValue(func() []string {
	var list struct{ Enum []string }
	if err := json.Unmarshal(licensesText, &list); err != nil {
		panic(err) // the file is part of the program
	}
	return list.Enum
})
