package input

import (
	"github.com/anchore/syft/syft/artifact"
	"github.com/anchore/syft/syft/file"
	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/anchore/syft/syft/pkg"
	"github.com/anchore/syft/syft/sbom"
)

// Compact returns the parts of an SBOM that Grype reads for matching and reporting, as a smaller document of the
// same format. The kept parts follow from Grype 0.121's grype/pkg (dataFromPkg, FromPackages),
// grype/matcher (qualifiers, ownership) and the fields of workerapi.Finding.
//
// Package IDs are kept, so that relationships still hold.
func Compact(s *sbom.SBOM) model.Document {
	full := syftjson.ToFormatModel(*s, syftjson.DefaultEncoderConfig())
	// The order is kept, since Grype's result depends on it where packages are otherwise equal.
	packages := make([]model.Package, len(full.Artifacts))
	known := make(map[string]bool, len(full.Artifacts))
	for i, p := range full.Artifacts {
		packages[i] = compactPackage(p)
		known[p.ID] = true
	}
	relationships := overlaps(full.ArtifactRelationships, known)
	if len(relationships) == 0 {
		relationships = owners(full.Artifacts)
	}
	return model.Document{
		Artifacts:             packages,
		ArtifactRelationships: relationships,
		Source:                compactSource(full.Source),
		Distro:                full.Distro,
		Descriptor:            compactDescriptor(full.Descriptor),
		Schema:                full.Schema,
	}
}

// compactDescriptor returns the tool that made the SBOM, with the mark of MarkForeign or its absence instead of the tool's configuration.
func compactDescriptor(d model.Descriptor) model.Descriptor {
	return model.Descriptor{Name: d.Name, Version: d.Version, Configuration: foreignMark{new(isForeign(d.Configuration))}}
}

// overlaps returns the only relationships that matching reads: packages whose files belong to another package. It drops
// the lists of shared files.
func overlaps(all []model.Relationship, known map[string]bool) []model.Relationship {
	kept := []model.Relationship{}
	for _, r := range all {
		if r.Type == string(artifact.OwnershipByFileOverlapRelationship) && known[r.Parent] && known[r.Child] {
			r.Metadata = nil
			kept = append(kept, r)
		}
	}
	return kept
}

// owners derives relationships from the packages' lists of files. Grype derives the same ones for an SBOM that has no relationships,
// but could not do so without the lists.
func owners(packages []model.Package) []model.Relationship {
	byFile := map[string][]string{}
	for _, p := range packages {
		owner, ok := p.Metadata.(pkg.FileOwner)
		if !ok {
			continue
		}
		for _, path := range owner.OwnedFiles() {
			byFile[path] = append(byFile[path], p.ID)
		}
	}
	made := []model.Relationship{}
	for _, p := range packages {
		seen := map[string]bool{p.ID: true}
		for _, l := range p.Locations {
			for _, owner := range byFile[l.RealPath] {
				if !seen[owner] {
					seen[owner] = true
					made = append(made, model.Relationship{
						Parent: owner, Child: p.ID, Type: string(artifact.OwnershipByFileOverlapRelationship),
					})
				}
			}
		}
	}
	return made
}

// compactSource returns the source without the image's manifest and configuration.
func compactSource(s model.Source) model.Source {
	return model.Source{ID: s.ID, Name: s.Name, Version: s.Version}
}

// compactPackage keeps name, version, type, language and package URL, since findings repeat them.
func compactPackage(p model.Package) model.Package {
	p.FoundBy = ""
	p.Licenses = []model.License{}
	if p.Metadata = compactMetadata(p.Metadata); p.Metadata == nil {
		p.MetadataType = ""
	}
	// Matchers do not read other locations (documentation, configuration, file lists), and findings do not contain them.
	p.Locations = primary(p.Locations)
	// Debian and RPM packages are matched by their distribution's advisories, never by CPE.
	if p.Type == pkg.DebPkg || p.Type == pkg.RpmPkg {
		p.CPEs = []model.CPE{}
	}
	return p
}

// primary returns the locations where the package was found.
func primary(all []file.Location) []file.Location {
	kept := []file.Location{}
	for _, l := range all {
		if IsPrimary(l) {
			kept = append(kept, l)
		}
	}
	return kept
}

// IsPrimary reports whether a package was found at the location. Other locations, such as a copyright file, only
// support the finding. Locations without an annotation count as primary.
func IsPrimary(l file.Location) bool {
	evidence := l.Annotations[pkg.EvidenceAnnotationKey]
	return evidence == "" || evidence == pkg.PrimaryEvidenceAnnotation
}

// compactMetadata returns the parts that Grype reads of each kind of metadata. Grype reads nothing of the kinds that are not
// listed.
func compactMetadata(metadata any) any {
	switch m := metadata.(type) {
	case pkg.DpkgDBEntry:
		return pkg.DpkgDBEntry{Source: m.Source, SourceVersion: m.SourceVersion}
	case pkg.DpkgArchiveEntry:
		return pkg.DpkgArchiveEntry{Source: m.Source, SourceVersion: m.SourceVersion}
	case pkg.RpmDBEntry:
		return pkg.RpmDBEntry{Epoch: m.Epoch, SourceRpm: m.SourceRpm, ModularityLabel: m.ModularityLabel, Arch: m.Arch}
	case pkg.RpmArchive:
		return pkg.RpmArchive{Epoch: m.Epoch, SourceRpm: m.SourceRpm, ModularityLabel: m.ModularityLabel, Arch: m.Arch}
	case pkg.ApkDBEntry:
		return pkg.ApkDBEntry{OriginPackage: m.OriginPackage, Architecture: m.Architecture}
	case pkg.JavaArchive:
		return compactJava(m)
	case pkg.GolangBinaryBuildinfoEntry:
		return pkg.GolangBinaryBuildinfoEntry{MainModule: m.MainModule, Symbols: m.Symbols}
	case pkg.JavaVMInstallation:
		return pkg.JavaVMInstallation{Release: pkg.JavaVMRelease{
			JavaRuntimeVersion: m.Release.JavaRuntimeVersion, JavaVersion: m.Release.JavaVersion,
			FullVersion: m.Release.FullVersion, SemanticVersion: m.Release.SemanticVersion,
		}}
	}
	// Matchers read nothing of the other kinds, such as licenses, dependencies and checksums.
	return nil
}

// compactJava keeps the coordinates, the digests and the manifest's "Name" entries.
func compactJava(m pkg.JavaArchive) pkg.JavaArchive {
	kept := pkg.JavaArchive{VirtualPath: m.VirtualPath, ArchiveDigests: m.ArchiveDigests}
	if m.PomProperties != nil {
		kept.PomProperties = &pkg.JavaPomProperties{GroupID: m.PomProperties.GroupID, ArtifactID: m.PomProperties.ArtifactID}
	}
	if m.Manifest != nil {
		kept.Manifest = &pkg.JavaManifest{}
		for _, entry := range m.Manifest.Main {
			if entry.Key == "Name" {
				kept.Manifest.Main = append(kept.Manifest.Main, entry)
			}
		}
	}
	return kept
}
