package input

import (
	"github.com/anchore/syft/syft/artifact"
	"github.com/anchore/syft/syft/file"
	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/anchore/syft/syft/pkg"
	"github.com/anchore/syft/syft/sbom"
)

// Compact returns what Grype reads of an SBOM when it matches and reports, as a smaller document of the
// same format. What it keeps follows from Grype 0.121's grype/pkg (dataFromPkg, FromPackages),
// grype/matcher (qualifiers, ownership) and the fields of workerapi.Finding.
//
// Package ids are kept, so that relationships still hold.
func Compact(s *sbom.SBOM) model.Document {
	full := syftjson.ToFormatModel(*s, syftjson.DefaultEncoderConfig())
	// In the same order: Grype's result follows from it where packages are otherwise equal.
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
		Descriptor:            model.Descriptor{Name: full.Descriptor.Name, Version: full.Descriptor.Version},
		Schema:                full.Schema,
	}
}

// overlaps keeps the only relationships that matching reads: packages whose files belong to another one.
// The list of shared files goes.
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

// owners makes the relationships that Grype makes of the lists of files where an SBOM has none: its own, since the
// lists are not kept.
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

// compactSource drops the image's manifest and configuration.
func compactSource(s model.Source) model.Source {
	return model.Source{ID: s.ID, Name: s.Name, Version: s.Version}
}

// compactPackage keeps name, version, type, language and package URL as they are: findings repeat them.
func compactPackage(p model.Package) model.Package {
	p.FoundBy = ""
	p.Licenses = []model.License{}
	if p.Metadata = compactMetadata(p.Metadata); p.Metadata == nil {
		p.MetadataType = ""
	}
	// What is not reported (documentation, configuration, file lists) means nothing to matchers.
	p.Locations = primary(p.Locations)
	// Debian and RPM packages are matched by their distribution's advisories, never by CPE.
	if p.Type == pkg.DebPkg || p.Type == pkg.RpmPkg {
		p.CPEs = []model.CPE{}
	}
	return p
}

// primary keeps the locations where the package was found.
func primary(all []file.Location) []file.Location {
	kept := []file.Location{}
	for _, l := range all {
		if IsPrimary(l) {
			kept = append(kept, l)
		}
	}
	return kept
}

// IsPrimary says that a package was found at the location, rather than being supported by it, as by its
// copyright file. Locations without an annotation count as primary.
func IsPrimary(l file.Location) bool {
	evidence := l.Annotations[pkg.EvidenceAnnotationKey]
	return evidence == "" || evidence == pkg.PrimaryEvidenceAnnotation
}

// compactMetadata keeps what Grype takes from each kind of metadata. Of a kind that is not listed it takes
// nothing.
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
	// Licences, dependencies, checksums of all other kinds: nothing that a matcher looks at.
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
