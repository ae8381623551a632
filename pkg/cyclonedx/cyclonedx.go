// Package cyclonedx writes an image's report as a CycloneDX 1.6 document (https://cyclonedx.org/docs/1.6/json/), for
// tools that read such: what is vulnerable, how bad it is, and what to update to.
//
// A document is the same, serial number and references included, for the same report. It is valid against the published
// schema whatever is in the image. It knows no store and no HTTP.
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

// MediaType of what Write writes.
const MediaType = "application/vnd.cyclonedx+json"

// property prefixes the names of properties that are this project's own.
const property = "scanner-operator:"

// Report is what a document is about.
type Report struct {
	// Reference is one by which pods name the image; may be empty.
	Reference string
	// Digest is what nodes report, PlatformDigest the platform's own manifest.
	Digest, PlatformDigest string
	Platform               image.Platform
	// Scope tells apart reports of one image that were found from different SBOMs.
	Scope string
	// Engine is the name under which the store has its reports. Tool is the engine with its version, as far as it is known.
	Engine, Tool string
	DataVersion  string
	MatchedAt    time.Time
	Distro       string
	// NotCovered are the ecosystems that the engine does not analyse.
	NotCovered []string
	// Revision names what was found: another report of the same image has another one. May be empty.
	Revision string
	Findings []finding.Finding
	// Excepted has the exceptions that cover findings, by the finding's key.
	Excepted map[string]*exception.Exception
}

// Write writes the document. The only errors are those of w.
func Write(w io.Writer, r Report) error {
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetEscapeHTML(false).Encode(document(r))
}

// document makes the whole of it. Lists are there also when they are empty: "nothing is known to be wrong" is said.
func document(r Report) *cdx.BOM {
	bom := cdx.NewBOM()
	bom.SpecVersion, bom.JSONSchema = cdx.SpecVersion1_6, "http://cyclonedx.org/schema/bom-1.6.schema.json"
	bom.SerialNumber = r.serialNumber()
	subject := r.subject()
	bom.Metadata = &cdx.Metadata{
		Timestamp:  r.MatchedAt.UTC().Format(time.RFC3339),
		Tools:      &cdx.ToolsChoice{Components: &[]cdx.Component{r.tool()}},
		Component:  &subject,
		Properties: properties(r.about()...),
	}
	components, vulnerabilities := group(r)
	bom.Components, bom.Vulnerabilities = &components, &vulnerabilities
	// Only packages with findings are here: nobody should take the list for all that is in the image.
	bom.Compositions = &[]cdx.Composition{{
		Aggregate: cdx.CompositionAggregateIncomplete, Assemblies: &[]cdx.BOMReference{cdx.BOMReference(subject.BOMRef)},
	}}
	return bom
}

// serialNumber is a UUID of version 8 (RFC 9562), made of all that makes a report another one.
func (r Report) serialNumber() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{r.Reference, r.PlatformDigest, r.Digest, r.Scope, r.Engine, r.DataVersion, r.Revision}, "\x00")))
	id := sum[:16]
	// Version and variant are bits of their own.
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// subject is the image.
func (r Report) subject() cdx.Component {
	component := cdx.Component{
		Type: cdx.ComponentTypeContainer, Name: r.Digest, Version: clip(r.Digest),
		PackageURL: r.imagePURL(), BOMRef: "image:" + r.PlatformDigest,
		Properties: properties("platform", r.Platform.String(), "platformDigest", r.PlatformDigest, "reference", r.Reference),
	}
	if ref, err := image.ParseReference(r.Reference); err == nil {
		component.Name = ref.Repository
	}
	if hash, found := strings.CutPrefix(r.Digest, "sha256:"); found && image.ValidDigest(r.Digest) {
		component.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hash}}
	}
	return component
}

// imagePURL is empty if the image's repository is not known.
func (r Report) imagePURL() string {
	ref, err := image.ParseReference(r.Reference)
	if err != nil {
		return ""
	}
	return image.PURL(ref.Repository, image.Key{Digest: r.Digest, Platform: r.Platform})
}

// tool is the engine, with its version if that is known for this report.
func (r Report) tool() cdx.Component {
	name, version, _ := strings.Cut(r.Tool, " ")
	if name == "" {
		name = r.Engine
	}
	return cdx.Component{Type: cdx.ComponentTypeApplication, Name: name, Version: clip(version)}
}

// about says where the report comes from, and what it does not speak of.
func (r Report) about() []string {
	pairs := []string{"dataVersion", r.DataVersion, "distro", r.Distro, "engine", r.Engine}
	for _, ecosystem := range r.NotCovered {
		pairs = append(pairs, "notCovered", ecosystem)
	}
	return pairs
}

// properties pairs names and values; those without a value are left out.
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
