// Package cyclonedx writes an image's report as a CycloneDX 1.6 document (https://cyclonedx.org/docs/1.6/json/): the vulnerabilities, their
// severities and the versions to update to.
//
// The same report gives the same document, including serial number and references. It is valid against the published schema, whatever the
// image contains. The package knows no store and no HTTP.
package cyclonedx

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// MediaType is the media type of the document that Write writes.
const MediaType = "application/vnd.cyclonedx+json"

// property is the prefix for the names of this project's own properties.
const property = "scanner-operator:"

// Report is the input for a document.
type Report struct {
	// Reference is an image reference of a pod; may be empty.
	Reference string
	// Digest is the one that nodes report. PlatformDigest is that of the platform's own manifest.
	Digest, PlatformDigest string
	Platform               image.Platform
	// Scope distinguishes reports on the same image that were made from different SBOMs.
	Scope string
	// Engine is the name under which the store keeps the engine's reports. Tool is the engine with its version, if known.
	Engine, Tool string
	DataVersion  string
	MatchedAt    time.Time
	Distro       string
	// NotCovered are the ecosystems that the engine does not analyze.
	NotCovered []string
	// Revision identifies the findings: it differs between reports on the same image. May be empty.
	Revision string
	Findings []finding.Finding
	// Exceptions maps the keys of suppressed findings to their exceptions.
	Exceptions map[string]*exception.Exception
}

// Write writes the document to w. It returns only errors of w.
func Write(w io.Writer, r Report) error {
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetEscapeHTML(false).Encode(document(r))
}

// document returns the whole document. Empty lists are included: an empty list of vulnerabilities states that none is known.
func document(r Report) *cdx.BOM {
	bom := cdx.NewBOM()
	bom.SpecVersion, bom.JSONSchema = cdx.SpecVersion1_6, "http://cyclonedx.org/schema/bom-1.6.schema.json"
	bom.SerialNumber = r.serialNumber()
	subject := r.subject()
	bom.Metadata = &cdx.Metadata{
		Timestamp:  r.MatchedAt.UTC().Format(time.RFC3339),
		Tools:      &cdx.ToolsChoice{Components: &[]cdx.Component{r.tool()}},
		Component:  &subject,
		Properties: properties(r.reportProperties()...),
	}
	components, vulnerabilities := group(r)
	bom.Components, bom.Vulnerabilities = &components, &vulnerabilities
	// The list of components is incomplete: it contains only packages with findings.
	bom.Compositions = &[]cdx.Composition{{
		Aggregate: cdx.CompositionAggregateIncomplete, Assemblies: &[]cdx.BOMReference{cdx.BOMReference(subject.BOMRef)},
	}}
	return bom
}

// serialNumber returns a UUID of version 8 (RFC 9562), a hash of everything that distinguishes a report.
func (r Report) serialNumber() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{r.Reference, r.PlatformDigest, r.Digest, r.Scope, r.Engine, r.DataVersion, r.Revision}, "\x00")))
	id := sum[:16]
	// Version and variant have fixed bits.
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// subject returns the component for the image. It has no package URL if the repository is not known.
func (r Report) subject() cdx.Component {
	component := cdx.Component{
		Type: cdx.ComponentTypeContainer, Name: r.Digest, Version: clip(r.Digest),
		BOMRef:     "image:" + r.PlatformDigest,
		Properties: properties("platform", r.Platform.String(), "platformDigest", r.PlatformDigest, "reference", r.Reference),
	}
	if ref, err := image.ParseReference(r.Reference); err == nil {
		component.Name = ref.Repository
		component.PackageURL = image.PURL(ref.Repository, image.Key{Digest: r.Digest, Platform: r.Platform})
	}
	if hash, found := strings.CutPrefix(r.Digest, "sha256:"); found && image.ValidDigest(r.Digest) {
		component.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hash}}
	}
	return component
}

// tool returns the component for the engine, with its version if known for this report.
func (r Report) tool() cdx.Component {
	name, version, _ := strings.Cut(r.Tool, " ")
	if name == "" {
		name = r.Engine
	}
	return cdx.Component{Type: cdx.ComponentTypeApplication, Name: name, Version: clip(version)}
}

// reportProperties returns the properties of the report: its data, its engine, and the ecosystems that are not covered.
func (r Report) reportProperties() []string {
	pairs := []string{"dataVersion", r.DataVersion, "distro", r.Distro, "engine", r.Engine}
	for _, ecosystem := range r.NotCovered {
		pairs = append(pairs, "notCovered", ecosystem)
	}
	return pairs
}

// properties builds properties from pairs of name and value. It skips empty values and returns nil if none is left.
func properties(pairs ...string) *[]cdx.Property {
	var all []cdx.Property
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, cdx.Property{Name: property + pairs[i], Value: pairs[i+1]})
		}
	}
	if all == nil {
		return nil
	}
	return &all
}
