package input

import (
	"bytes"
	"regexp"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/anchore/grype/grype/distro"
	grypepkg "github.com/anchore/grype/grype/pkg"
	"github.com/anchore/syft/syft/sbom"
)

// foreignMark is the configuration of the tool in the descriptor of an SBOM. Syft's own configuration has no such field.
type foreignMark struct {
	// ReadPackageURLs is true if Grype reads distributions and source packages in package URLs; nil in a match input of an earlier worker.
	ReadPackageURLs *bool `json:"readPackageURLs"`
}

// MarkForeign marks an SBOM that was decoded from another format than syft-json. Grype reads the distribution and the source package in the
// package URLs of such an SBOM (qualifiers distro and upstream), and not in those of syft-json, which has other fields for both.
func MarkForeign(s *sbom.SBOM) { s.Descriptor.Configuration = foreignMark{new(true)} }

// isForeign reports whether the configuration in a descriptor has the mark. In a decoded document it is a map.
func isForeign(configuration any) bool {
	switch c := configuration.(type) {
	case foreignMark:
		return c.ReadPackageURLs != nil && *c.ReadPackageURLs
	case map[string]any:
		return c["readPackageURLs"] == true
	}
	return false
}

// syftID is an ID that Syft gives to a package. An SBOM of another format has IDs of its own.
var syftID = regexp.MustCompile("^[0-9a-f]{16}$")

// isForeign reports whether Grype reads the package URLs of the document. Without a mark, its packages show who made it: Syft gives each an ID, and
// says where it found it.
func (c *documentParts) isForeign() bool {
	if marked := c.descriptor.Configuration.ReadPackageURLs; marked != nil {
		return *marked
	}
	located := false
	for _, p := range c.packages {
		if !syftID.MatchString(string(p.ID())) {
			return true
		}
		located = located || len(p.Locations.ToSlice()) > 0
	}
	return !located
}

// packageURLs are what Grype reads in the package URLs of an SBOM.
type packageURLs struct {
	packages map[grypepkg.ID]*grypepkg.Package
	// distro is the only distribution that they name; nil if they name several or none.
	distro *distro.Distro
}

// readPackageURLs returns what Grype reads in the package URLs. Grype does not export its rules, so readPackageURLs applies Grype to a CycloneDX
// document with only the names, versions, types and package URLs. If hasDistro is true, the SBOM itself names a distribution.
func (c *documentParts) readPackageURLs(config grypepkg.ProviderConfig, hasDistro bool) (packageURLs, error) {
	components := []cdx.Component{}
	if hasDistro {
		// Grype then gives this distribution to packages that name none, by which they are recognized.
		components = append(components, cdx.Component{Type: cdx.ComponentTypeOS, Name: "gentoo"})
	}
	for _, p := range c.packages {
		if p.PURL == "" {
			continue
		}
		components = append(components, cdx.Component{
			BOMRef: string(p.ID()), Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: p.PURL,
			Properties: &[]cdx.Property{{Name: "syft:package:type", Value: string(p.Type)}},
		})
	}
	document := cdx.NewBOM()
	document.Components = &components
	var raw bytes.Buffer
	if err := cdx.NewBOMEncoder(&raw, cdx.BOMFileFormatJSON).EncodeVersion(document, cdx.SpecVersion1_6); err != nil {
		return packageURLs{}, err
	}
	packages, about, _, err := grypepkg.ProvideFromReader(bytes.NewReader(raw.Bytes()), config)
	if err != nil {
		return packageURLs{}, err
	}
	urls := packageURLs{packages: make(map[grypepkg.ID]*grypepkg.Package, len(packages)), distro: about.Distro}
	for i := range packages {
		if hasDistro && packages[i].Distro == about.Distro {
			packages[i].Distro = nil
		}
		urls.packages[packages[i].ID] = &packages[i]
	}
	if hasDistro {
		urls.distro = nil
	}
	return urls, nil
}

// complete sets what only the URL of a package says. The distribution in the URL goes before that of the SBOM, as in Grype.
func (u packageURLs) complete(p *grypepkg.Package) {
	read, known := u.packages[p.ID]
	if !known {
		return
	}
	if len(p.Upstreams) == 0 {
		p.Upstreams = read.Upstreams
	}
	if read.Distro != nil {
		p.Distro = read.Distro
	}
}
