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
// same format. What it keeps follows from Grype 0.110's grype/pkg (dataFromPkg, removePackagesByOverlap),
// grype/matcher (location and file rules) and the fields of workerapi.Finding.
//
// Package ids are kept, so that relationships still hold: the decoder prefers the ids that it reads.
func Compact(s *sbom.SBOM) model.Document {
	full := syftjson.ToFormatModel(*s, syftjson.DefaultEncoderConfig())
	anyApk := false
	for i := range full.Artifacts {
		anyApk = anyApk || full.Artifacts[i].Type == pkg.ApkPkg
	}
	// In the same order: Grype's result follows from it where packages are otherwise equal.
	packages := make([]model.Package, len(full.Artifacts))
	known := make(map[string]bool, len(full.Artifacts))
	for i, p := range full.Artifacts {
		packages[i] = compactPackage(p, anyApk)
		known[p.ID] = true
	}
	return model.Document{
		Artifacts:             packages,
		ArtifactRelationships: overlaps(full.ArtifactRelationships, known),
		Source:                compactSource(full.Source),
		Distro:                full.Distro,
		Descriptor:            model.Descriptor{Name: full.Descriptor.Name, Version: full.Descriptor.Version},
		Schema:                full.Schema,
	}
}

// overlaps keeps the only relationships that matching reads: packages whose files belong to another one.
// Their order stays, since the last of several owners decides. The list of shared files goes.
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

// compactSource drops the image's manifest and configuration.
func compactSource(s model.Source) model.Source {
	return model.Source{ID: s.ID, Name: s.Name, Version: s.Version}
}

// compactPackage keeps name, version, type, language and package URL as they are: findings repeat them.
func compactPackage(p model.Package, anyApk bool) model.Package {
	p.FoundBy = ""
	p.Licenses = []model.License{}
	// Without metadata the decoder invents some for Java and RPM packages: theirs stays, of whatever kind.
	if kept := compactMetadata(p.Metadata); kept != nil || p.Type != pkg.JavaPkg && p.Type != pkg.RpmPkg {
		p.Metadata = kept
	}
	if p.Metadata == nil {
		p.MetadataType = ""
	}
	// Rules that ignore matches by location come from Alpine packages only. Without any, the places that
	// are not reported (documentation, configuration, file lists) mean nothing.
	if !anyApk {
		p.Locations = primary(p.Locations)
	}
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
		return pkg.RpmDBEntry{Epoch: m.Epoch, SourceRpm: m.SourceRpm, ModularityLabel: m.ModularityLabel}
	case pkg.RpmArchive:
		return pkg.RpmArchive{Epoch: m.Epoch, SourceRpm: m.SourceRpm, ModularityLabel: m.ModularityLabel}
	case pkg.ApkDBEntry:
		return pkg.ApkDBEntry{OriginPackage: m.OriginPackage, Files: apkPaths(m.Files)}
	case pkg.JavaArchive:
		return compactJava(m)
	case pkg.GolangBinaryBuildinfoEntry, pkg.GolangModuleEntry, pkg.GolangSourceEntry, pkg.JavaVMInstallation:
		return m
	}
	// Licences, dependencies, checksums of all other kinds: nothing that a matcher looks at.
	return nil
}

// apkPaths keeps the paths: where Alpine says that a package is not affected, they tell which other
// packages' matches are hidden with it.
func apkPaths(files []pkg.ApkFileRecord) []pkg.ApkFileRecord {
	paths := make([]pkg.ApkFileRecord, len(files))
	for i, f := range files {
		paths[i].Path = f.Path
	}
	return paths
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
