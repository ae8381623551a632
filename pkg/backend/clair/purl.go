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

// Types of packages, named as Grype names them, so that a finding of both engines has one key.
const (
	typeDeb    = "deb"
	typeApk    = "apk"
	typeRPM    = "rpm"
	typeGo     = "go-module"
	typePython = "python"
	typeJava   = "java-archive"
	typeGem    = "gem"
	// typeContainer is for Red Hat's own containers, which Clair takes for packages and Grype does not know.
	typeContainer = "oci"
	typeUnknown   = "UnknownPackage"
)

// databases says what a package is from the prefix of the database that Clair found it in (claircore: gobin, python, java,
// ruby, internal/rpm).
var databases = map[string]string{
	"go": typeGo, "python": typePython, "ruby": typeGem,
	"maven": typeJava, "jar": typeJava, "file": typeJava,
	"bdb": typeRPM, "sqlite": typeRPM, "ndb": typeRPM,
}

// place is a package where it was found.
type place struct {
	finding.Package
	paths []string
	// layer is the digest of the layer that brought it, as the registry has it; empty if the report does not say.
	layer string
}

func (n *normaliser) placeOf(found *claircore.Package, environment *claircore.Environment) place {
	if environment == nil {
		environment = &claircore.Environment{}
	}
	at := place{layer: environment.IntroducedIn.String()}
	var location string
	at.Type, location = packageDatabase(environment.PackageDB)
	if location != "" {
		at.paths = pathsOf(at.Type, location)
	}
	at.Package = packageOf(at.Type, found, n.report.Distributions[environment.DistributionID])
	return at
}

// packageDatabase tells the type of a package and where in the image it is from an environment's package_db, such as
// "go:usr/bin/app" or "var/lib/dpkg/status".
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

// pathsOf gives the path that Grype gives. Clair writes archives in archives as "outer.jar:inner.jar"; Grype names the file
// that is in the image. What Clair says more comes second, where it is no part of the identity.
func pathsOf(kind, location string) []string {
	full := path.Join("/", location)
	if outer, _, nested := strings.Cut(full, ":"); nested && kind == typeJava {
		return []string{outer, full}
	}
	return []string{full}
}

// separators of Python names are all the same (https://packaging.python.org/en/latest/specifications/name-normalization/).
var separators = regexp.MustCompile(`[-_.]+`)

// packageOf names a package as Syft does, which makes what Grype matches. Operating systems' packages have a package URL
// only where their distribution is known.
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

// osPURL is the package URL of an operating system's package.
func osPURL(p finding.Package, found *claircore.Package, distribution *claircore.Distribution) string {
	if distribution == nil || distribution.DID == "" {
		return ""
	}
	namespace, version := strings.ToLower(distribution.DID), p.Version
	// Alpine's release is in version, the others' in version_id.
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

// upstream is the source package where it is not called as the package is, in the form that Syft gives it.
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

// purl writes a package URL (https://github.com/package-url/purl-spec); qualifiers without a value are left out.
func purl(kind, namespace, name, version string, qualifiers map[string]string) string {
	for key, value := range qualifiers {
		if value == "" {
			delete(qualifiers, key)
		}
	}
	return packageurl.NewPackageURL(kind, namespace, name, version, packageurl.QualifiersFromMap(qualifiers), "").ToString()
}

// fixVersions reads fixed_in_version. OSV's records for Maven, PyPI and RubyGems have a range there, as the query of a URL
// ("fixed=2.31.0&introduced=2.3.0"; claircore, updater/osv); all others the version itself. Empty means that none is known.
func fixVersions(text, kind string) []string {
	switch kind {
	case typePython, typeJava, typeGem:
		if strings.Contains(text, "=") {
			values, _ := url.ParseQuery(text) // what cannot be read names no version
			return slices.DeleteFunc(values["fixed"], func(version string) bool { return version == "" })
		}
	}
	if text == "" {
		return nil
	}
	return []string{text}
}
