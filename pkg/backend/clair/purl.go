package clair

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/package-url/packageurl-go"
	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Package types, in Grype's spelling, so that findings of both engines have the same key.
const (
	typeDeb    = "deb"
	typeApk    = "apk"
	typeRPM    = "rpm"
	typeGo     = "go-module"
	typePython = "python"
	typeJava   = "java-archive"
	typeGem    = "gem"
	// typeContainer is for Red Hat's own containers. Clair treats them as packages, and Grype does not know them.
	typeContainer = "oci"
	typeUnknown   = "UnknownPackage"
)

// databases maps the prefix of the package database in which Clair found a package to the package's type (claircore: gobin, python, java,
// ruby, internal/rpm).
var databases = map[string]string{
	"go": typeGo, "python": typePython, "ruby": typeGem,
	"maven": typeJava, "jar": typeJava, "file": typeJava,
	"bdb": typeRPM, "sqlite": typeRPM, "ndb": typeRPM,
}

// locatedPackage is a package and the location where it was found.
type locatedPackage struct {
	finding.Package
	paths []string
	// layer is the digest, in the registry, of the layer that added the package; empty if the report has none.
	layer string
}

func (n *normaliser) locatePackage(found *claircore.Package, environment *claircore.Environment) locatedPackage {
	if environment == nil {
		environment = &claircore.Environment{}
	}
	at := locatedPackage{layer: environment.IntroducedIn.String()}
	var location string
	at.Type, location = packageDatabase(environment.PackageDB)
	if location != "" {
		at.paths = pathsOf(at.Type, location)
	}
	at.Package = packageOf(at.Type, found, n.report.Distributions[environment.DistributionID])
	return at
}

// packageDatabase returns the package type and the location in the image. It reads an environment's package_db, such as "go:usr/bin/app"
// or "var/lib/dpkg/status".
func packageDatabase(database string) (kind, location string) {
	if prefix, rest, found := strings.Cut(database, ":"); found && databases[prefix] != "" {
		return databases[prefix], rest
	}
	switch {
	case strings.Contains(database, "dpkg/status"):
		return typeDeb, database
	case strings.Contains(database, "apk/db/"):
		return typeApk, database
	case strings.HasPrefix(database, "root/buildinfo/"):
		return typeContainer, database
	}
	return typeUnknown, database
}

// pathsOf returns the path as Grype reports it. Clair writes nested archives as "outer.jar:inner.jar", while Grype names the file in the
// image. Clair's full path comes second, where it is not part of the finding's identity.
func pathsOf(kind, location string) []string {
	full := path.Join("/", location)
	if outer, _, nested := strings.Cut(full, ":"); nested && kind == typeJava {
		return []string{outer, full}
	}
	return []string{full}
}

// separators in Python package names are equivalent (https://packaging.python.org/en/latest/specifications/name-normalization/).
var separators = regexp.MustCompile(`[-_.]+`)

// packageOf names a package as Syft does, which supplies Grype's input. Operating system packages have a package URL only if their
// distribution is known.
func packageOf(kind string, found *claircore.Package, distribution *claircore.Distribution) finding.Package {
	p := finding.Package{Name: found.Name, Version: found.Version, Type: kind}
	switch kind {
	case typeGo:
		namespace, name := path.Split(p.Name)
		p.PURL = purl(packageurl.TypeGolang, namespace, name, p.Version, nil)
		if p.Name == "stdlib" && !strings.HasPrefix(p.Version, "go") {
			p.Version = "go" + p.Version
		}
	case typePython:
		p.Name = strings.ToLower(separators.ReplaceAllString(p.Name, "-"))
		p.PURL = purl(packageurl.TypePyPi, "", p.Name, p.Version, nil)
	case typeJava:
		group, artifact, hasGroup := strings.Cut(p.Name, ":")
		if !hasGroup {
			artifact = group
		}
		p.Name = artifact
		p.PURL = purl(packageurl.TypeMaven, group, artifact, p.Version, nil)
	case typeGem:
		p.PURL = purl(packageurl.TypeGem, "", p.Name, p.Version, nil)
	case typeDeb, typeApk, typeRPM:
		p.PURL = osPURL(p, found, distribution)
	}
	return p
}

// osPURL returns the package URL of an operating system package.
func osPURL(p finding.Package, found *claircore.Package, distribution *claircore.Distribution) string {
	if distribution == nil || distribution.DID == "" {
		return ""
	}
	namespace, version := strings.ToLower(distribution.DID), p.Version
	// Alpine's release is in version, that of the others in version_id.
	release := cmp.Or(distribution.VersionID, distribution.Version)
	qualifiers := map[string]string{
		"arch": found.Arch, "distro": strings.TrimSuffix(namespace+"-"+release, "-"), "upstream": upstream(found),
	}
	if p.Type == typeRPM {
		if epoch, rest, hasEpoch := strings.Cut(version, ":"); hasEpoch {
			qualifiers["epoch"], version = epoch, rest
		}
		switch {
		case namespace == "rhel":
			namespace = "redhat"
		case strings.HasPrefix(namespace, "opensuse"):
			namespace = "opensuse"
		}
	}
	return purl(p.Type, namespace, p.Name, version, qualifiers)
}

// upstream returns the source package in Syft's format, or "" if its name and version are those of the package.
func upstream(found *claircore.Package) string {
	source := found.Source
	switch {
	case source == nil || source.Name == "":
		return ""
	case source.Version != "" && source.Version != found.Version:
		return source.Name + "@" + source.Version
	case source.Name != found.Name:
		return source.Name
	}
	return ""
}

// purl returns a package URL (https://github.com/package-url/purl-spec). Qualifiers without a value are omitted.
func purl(kind, namespace, name, version string, qualifiers map[string]string) string {
	for key, value := range qualifiers {
		if value == "" {
			delete(qualifiers, key)
		}
	}
	return packageurl.NewPackageURL(kind, namespace, name, version, packageurl.QualifiersFromMap(qualifiers), "").ToString()
}

// fixVersions parses fixed_in_version. OSV records for Maven, PyPI and RubyGems have a range there, as the query of a URL
// ("fixed=2.31.0&introduced=2.3.0"; claircore, updater/osv). All others have the version itself. An empty result means that no fix is
// known.
func fixVersions(text, kind string) []string {
	switch kind {
	case typePython, typeJava, typeGem:
		if strings.Contains(text, "=") {
			values, _ := url.ParseQuery(text) // an unreadable range names no version
			return slices.DeleteFunc(values["fixed"], func(version string) bool { return version == "" })
		}
	}
	if text == "" {
		return nil
	}
	return []string{text}
}
