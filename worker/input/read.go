package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"

	grypepkg "github.com/anchore/grype/grype/pkg"
	"github.com/anchore/syft/syft/artifact"
	"github.com/anchore/syft/syft/cpe"
	"github.com/anchore/syft/syft/file"
	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/anchore/syft/syft/pkg"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// maxOverlaps bounds the relationships between packages. An image has at most about one for each package.
const maxOverlaps = workerapi.MaxPackages

// Packages returns what Grype matches: the distribution, and the packages without those that belong to another package. The packages
// are those of Grype's own reader, in the same order. Unlike that reader, Packages needs time and memory in proportion to the
// document, and omits what matchers do not read, such as the lists of files that packages own.
//
// It reads match inputs of every version of this worker. Their format is a subset of syft-json.
func (f *File) Packages(config grypepkg.ProviderConfig) ([]grypepkg.Package, grypepkg.Context, error) {
	content, err := os.Open(f.path)
	if err != nil {
		return nil, grypepkg.Context{}, err
	}
	defer content.Close()
	var in documentParts
	if err := in.decode(content); err != nil {
		return nil, grypepkg.Context{}, err
	}
	kept, about, err := in.applyOwnership(config)
	if err != nil {
		return nil, grypepkg.Context{}, err
	}
	var urls packageURLs
	if in.isForeign() {
		if urls, err = in.readPackageURLs(config, about.Distro != nil); err != nil {
			return nil, grypepkg.Context{}, err
		}
	}
	if about.Distro == nil && urls.distro != nil {
		in.distro = model.LinuxRelease{ID: urls.distro.ID(), VersionID: urls.distro.Version, VersionCodename: urls.distro.Codename}
		if kept, _, err = in.applyOwnership(config); err != nil {
			return nil, grypepkg.Context{}, err
		}
		about.Distro = urls.distro
	}
	packages := grypepkg.FromPackages(in.packages, in.relationships(), config.SynthesisConfig)
	packages = slices.DeleteFunc(packages, func(p *grypepkg.Package) bool {
		return in.owned[string(p.ID)] && !kept[p.ID]
	})
	for _, p := range packages {
		p.Distro = about.Distro
		urls.complete(p)
	}
	return grypepkg.FromPtrs(packages), about, nil
}

// documentParts are the parts of a document that are read.
type documentParts struct {
	packages []pkg.Package
	// overlaps are the relationships of packages whose files belong to another package. owned are the children in them.
	overlaps []overlap
	owned    map[string]bool
	distro   model.LinuxRelease
	schema   model.Schema
	// descriptor has the mark of MarkForeign.
	descriptor struct {
		Configuration foreignMark `json:"configuration"`
	}
}

// overlap means that files of the package Child belong to the package Parent.
type overlap struct {
	Parent string `json:"parent"`
	Child  string `json:"child"`
	Type   string `json:"type"`
}

// decode reads a document piece by piece, so that the whole document is never in memory.
func (c *documentParts) decode(from io.Reader) error {
	c.owned = map[string]bool{}
	decoder := json.NewDecoder(from)
	decoder.UseNumber() // a number that is not read may have any value
	if err := expect(decoder, '{'); err != nil {
		return err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		switch key {
		case "artifacts":
			err = each(decoder, c.addPackage)
		case "artifactRelationships":
			err = each(decoder, c.addOverlap)
		case "distro":
			err = decoder.Decode(&c.distro)
		case "descriptor":
			err = decoder.Decode(&c.descriptor)
		case "schema":
			err = decoder.Decode(&c.schema)
		default:
			err = skip(decoder)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", key, err)
		}
	}
	if err := expect(decoder, '}'); err != nil {
		return err
	}
	if !strings.Contains(c.schema.URL, "anchore/syft") {
		return errors.New("the document is not syft-json: it has no schema")
	}
	return c.sort()
}

// skip reads a value of any size and discards it.
func skip(decoder *json.Decoder) error {
	for depth := 0; ; {
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// expect reads one token. It is an error if that is not the delimiter.
func expect(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("the document has %v at byte %d, expected %v", token, decoder.InputOffset(), want)
	}
	return err
}

// each decodes the entries of a list one by one; null is an empty list.
func each[T any](decoder *json.Decoder, add func(T) error) error {
	token, err := decoder.Token()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('[') {
		return fmt.Errorf("it is %v, expected a list", token)
	}
	for decoder.More() {
		var entry T
		if err := decoder.Decode(&entry); err != nil {
			return err
		}
		if err := add(entry); err != nil {
			return err
		}
	}
	_, err = decoder.Token()
	return err
}

// addOverlap keeps a relationship that decides whether a package is matched, and ignores others. More than maxOverlaps are an error.
func (c *documentParts) addOverlap(o overlap) error {
	if o.Type != string(artifact.OwnershipByFileOverlapRelationship) {
		return nil
	}
	if len(c.overlaps) == maxOverlaps {
		return fmt.Errorf("the image has more than %d packages that belong to another one", maxOverlaps)
	}
	c.overlaps = append(c.overlaps, o)
	c.owned[o.Child] = true
	return nil
}

// packageJSON is a package of the document with the fields that Grype reads.
type packageJSON struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Version      string          `json:"version"`
	Type         pkg.Type        `json:"type"`
	Locations    []file.Location `json:"locations"`
	Language     pkg.Language    `json:"language"`
	CPEs         []model.CPE     `json:"cpes"`
	PURL         string          `json:"purl"`
	MetadataType string          `json:"metadataType"`
	Metadata     json.RawMessage `json:"metadata"`
}

// addPackage adds a package. More than MaxPackages are an error.
func (c *documentParts) addPackage(p packageJSON) error {
	if len(c.packages) == workerapi.MaxPackages {
		return fmt.Errorf("the image has more than %d packages", workerapi.MaxPackages)
	}
	metadata, err := decodeMetadata(p)
	if err != nil {
		return fmt.Errorf("package %s %s: %w", p.Name, p.Version, err)
	}
	out := pkg.Package{
		Name: p.Name, Version: p.Version, Type: p.Type, Language: p.Language, PURL: p.PURL,
		Locations: file.NewLocationSet(p.Locations...), Metadata: metadata,
	}
	for _, c := range p.CPEs {
		// Grype omits CPEs that it cannot parse, too.
		if parsed, err := cpe.New(c.Value, cpe.Source(c.Source)); err == nil {
			out.CPEs = append(out.CPEs, parsed)
		}
	}
	out.OverrideID(artifact.ID(p.ID))
	c.packages = append(c.packages, out)
	return nil
}

// metadataKinds are the kinds of metadata that matchers read, by their names in syft-json.
var metadataKinds = map[string]func(json.RawMessage) (any, error){
	"apk-db-entry":              decodeAs[pkg.ApkDBEntry],
	"dpkg-archive-entry":        decodeAs[pkg.DpkgArchiveEntry],
	"dpkg-db-entry":             decodeAs[pkg.DpkgDBEntry],
	"go-module-buildinfo-entry": decodeAs[pkg.GolangBinaryBuildinfoEntry],
	"java-archive":              decodeAs[pkg.JavaArchive],
	"java-jvm-installation":     decodeAs[pkg.JavaVMInstallation],
	"rpm-archive":               decodeAs[pkg.RpmArchive],
	"rpm-db-entry":              decodeAs[pkg.RpmDBEntry],
}

func decodeAs[T any](raw json.RawMessage) (any, error) {
	var metadata T
	if err := json.Unmarshal(raw, &metadata); err != nil {
		return nil, err
	}
	return metadata, nil
}

// decodeMetadata decodes the parts that compactMetadata keeps. Older inputs have no architecture of a package: it is then taken
// from the package URL.
func decodeMetadata(p packageJSON) (any, error) {
	decode, known := metadataKinds[p.MetadataType]
	if !known || len(p.Metadata) == 0 {
		return nil, nil
	}
	metadata, err := decode(p.Metadata)
	if err != nil {
		return nil, err
	}
	switch m := compactMetadata(metadata).(type) {
	case pkg.RpmDBEntry:
		m.Arch = architecture(m.Arch, p.PURL)
		return m, nil
	case pkg.RpmArchive:
		m.Arch = architecture(m.Arch, p.PURL)
		return m, nil
	case pkg.ApkDBEntry:
		m.Architecture = architecture(m.Architecture, p.PURL)
		return m, nil
	default:
		return m, nil
	}
}

// architecture returns the given one or, if that is empty, the one in the package URL.
func architecture(given, purl string) string {
	if given != "" {
		return given
	}
	_, qualifiers, _ := strings.Cut(purl, "?")
	for qualifier := range strings.SplitSeq(qualifiers, "&") {
		if value, found := strings.CutPrefix(qualifier, pkg.PURLQualifierArch+"="); found {
			return value
		}
	}
	return ""
}

// sort puts the packages into the order in which Grype matches them. Most inputs have that order already. A package without an ID
// or with the ID of another one is an error.
func (c *documentParts) sort() error {
	if !sort.SliceIsSorted(c.packages, func(i, j int) bool { return pkg.Less(c.packages[i], c.packages[j]) }) {
		pkg.Sort(c.packages)
	}
	seen := make(map[artifact.ID]bool, len(c.packages))
	for _, p := range c.packages {
		if p.ID() == "" || seen[p.ID()] {
			return fmt.Errorf("package %s %s has the id %q, which is empty or another package's", p.Name, p.Version, p.ID())
		}
		seen[p.ID()] = true
	}
	return nil
}

// identifier identifies a package in a relationship.
type identifier string

// ID implements artifact.Identifiable.
func (i identifier) ID() artifact.ID { return artifact.ID(i) }

// relationships returns the overlaps in Grype's type.
func (c *documentParts) relationships() []artifact.Relationship {
	all := make([]artifact.Relationship, 0, len(c.overlaps))
	for _, o := range c.overlaps {
		all = append(all, artifact.Relationship{
			From: identifier(o.Parent), To: identifier(o.Child), Type: artifact.OwnershipByFileOverlapRelationship,
		})
	}
	return all
}

// applyOwnership returns the packages in overlaps that Grype keeps, and the distribution as Grype determines it. Grype does not export its
// rule, so unowned applies Grype to a document with only these packages. Real images have few of them.
func (c *documentParts) applyOwnership(config grypepkg.ProviderConfig) (kept map[grypepkg.ID]bool, about grypepkg.Context, err error) {
	involved := make(map[string]bool, 2*len(c.owned))
	for _, o := range c.overlaps {
		involved[o.Parent], involved[o.Child] = true, true
	}
	document := model.Document{Artifacts: []model.Package{}, Distro: c.distro, Schema: c.schema}
	for _, p := range c.packages {
		if involved[string(p.ID())] {
			document.Artifacts = append(document.Artifacts, model.Package{PackageBasicData: model.PackageBasicData{
				ID: string(p.ID()), Name: p.Name, Version: p.Version, Type: p.Type,
			}})
		}
	}
	for _, o := range c.overlaps {
		document.ArtifactRelationships = append(document.ArtifactRelationships, model.Relationship{Parent: o.Parent, Child: o.Child, Type: o.Type})
	}
	raw, err := json.Marshal(&document)
	if err != nil {
		return nil, about, err
	}
	packages, about, _, err := grypepkg.ProvideFromReader(bytes.NewReader(raw), config)
	if err != nil {
		return nil, about, err
	}
	// No finding contains the source of the document.
	about.Source = nil
	kept = make(map[grypepkg.ID]bool, len(packages))
	for _, p := range packages {
		kept[p.ID] = true
	}
	return kept, about, nil
}
