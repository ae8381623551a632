package exception

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/package-url/packageurl-go"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// purlPrefix begins a name that is a package URL.
const purlPrefix = "pkg:"

// engineTypes are the types of package URLs, by the engine's names of package types. They serve for findings without a package URL.
var engineTypes = map[string]string{
	"deb": packageurl.TypeDebian, "apk": packageurl.TypeApk, "rpm": packageurl.TypeRPM, "alpm": packageurl.TypeAlpm, "go-module": packageurl.TypeGolang,
	"npm": packageurl.TypeNPM, "python": packageurl.TypePyPi, "gem": packageurl.TypeGem, "java-archive": packageurl.TypeMaven,
	"jenkins-plugin": packageurl.TypeMaven, "rust-crate": packageurl.TypeCargo, "dotnet": packageurl.TypeNuget, "php-composer": packageurl.TypeComposer,
	"binary": packageurl.TypeGeneric, "linux-kernel": packageurl.TypeGeneric, "github-action": packageurl.TypeGithub, "bitnami": packageurl.TypeBitnami,
}

// distributions maps other tools' names of distributions, in the namespaces of package URLs, to Syft's.
var distributions = map[string]string{"rhel": "redhat", "amazon": "amzn", "oracle": "ol", "oraclelinux": "ol"}

// pythonSeparators are equivalent in names (https://packaging.python.org/en/latest/specifications/name-normalization/).
var pythonSeparators = regexp.MustCompile(`[-_.]+`)

// identity is which package a package URL names, in a spelling that is the same for all tools.
type identity struct {
	// kind is the type of the package URL.
	kind string
	// distribution is the namespace of an operating system package; empty if the tool does not say it.
	distribution string
	// name is the whole name, such as @angular/core or org.dom4j/dom4j.
	name string
	// version is empty for every version.
	version string
}

// PackageOf returns the selector of the package that a package URL names. Its name is the package URL without version and qualifiers. Without a
// version, the selector is about every version.
func PackageOf(purl packageurl.PackageURL) (Package, error) {
	for _, part := range []string{purl.Namespace, purl.Name, purl.Version} {
		if strings.ContainsAny(part, "*?") {
			return Package{}, fmt.Errorf("%s has * or ? in it, which an exception takes for a glob", purl.ToString())
		}
	}
	_, isKnown := packageurl.KnownTypes[purl.Type]
	_, isCandidate := packageurl.CandidateTypes[purl.Type]
	if !isKnown && !isCandidate {
		return Package{}, fmt.Errorf("%s has a type that is not known", purl.ToString())
	}
	if purl.Subpath != "" {
		return Package{}, fmt.Errorf("%s names a part of a package, and an exception is about whole packages", purl.ToString())
	}
	if purl.Type == packageurl.TypeMaven && purl.Namespace == "" {
		return Package{}, fmt.Errorf("%s has no group, without which it names no package of Maven", purl.ToString())
	}
	named := identityOf(purl)
	return Package{Name: named.String(), Version: named.version}, nil
}

// identityOf returns the identity of the package that a package URL names.
func identityOf(purl packageurl.PackageURL) identity {
	id := identity{kind: purl.Type, name: purl.Name, version: purl.Version}
	switch purl.Type {
	case packageurl.TypeDebian, packageurl.TypeApk, packageurl.TypeRPM, packageurl.TypeAlpm:
		id.distribution = cmp.Or(distributions[purl.Namespace], purl.Namespace)
		if epoch := purl.Qualifiers.Map()["epoch"]; epoch != "" && id.version != "" {
			id.version = epoch + ":" + id.version
		}
		id.version = strings.TrimPrefix(id.version, "0:")
	default:
		if purl.Namespace != "" {
			id.name = purl.Namespace + "/" + purl.Name
		}
	}
	switch purl.Type {
	case packageurl.TypeGolang:
		id.name, id.version = strings.ToLower(id.name), strings.TrimPrefix(id.version, "v")
		if id.name == "std" || id.name == "stdlib" {
			id.name, id.version = "stdlib", strings.TrimPrefix(id.version, "go")
		}
	case packageurl.TypeComposer, packageurl.TypeGithub:
		id.name, id.version = strings.ToLower(id.name), strings.TrimPrefix(id.version, "v")
	case packageurl.TypePyPi:
		id.name = strings.ToLower(pythonSeparators.ReplaceAllString(id.name, "-"))
	case packageurl.TypeNuget, packageurl.TypeBitnami:
		id.name = strings.ToLower(id.name)
	}
	return id
}

// String returns the package URL without its version.
func (id identity) String() string {
	namespace, name := id.distribution, id.name
	if at := strings.LastIndex(name, "/"); at >= 0 {
		namespace, name = name[:at], name[at+1:]
	}
	return packageurl.NewPackageURL(id.kind, namespace, name, "", nil, "").ToString()
}

// identityOfFinding returns the identity of a finding's package. Without a package URL it is derived from the type and the name. known is false if
// they do not identify a package: an artifact of Maven without its group is none.
func identityOfFinding(pkg finding.Package) (id identity, known bool) {
	if purl, err := packageurl.FromString(pkg.PURL); err == nil {
		id := identityOf(purl)
		if id.version == "" {
			purl.Version, purl.Qualifiers = pkg.Version, nil
			id.version = identityOf(purl).version
		}
		return id, true
	}
	kind, known := engineTypes[pkg.Type]
	purl := packageurl.PackageURL{Type: kind, Name: pkg.Name, Version: pkg.Version}
	if kind == packageurl.TypeMaven {
		purl.Namespace, purl.Name, known = strings.Cut(pkg.Name, ":")
	}
	return identityOf(purl), known
}

// names reports whether the identity of a selector is that of a package.
func (id identity) names(pkg identity) bool {
	sameDistribution := id.distribution == pkg.distribution || id.distribution == "" || pkg.distribution == ""
	return id.kind == pkg.kind && id.name == pkg.name && sameDistribution && (id.version == "" || id.version == pkg.version)
}

// Subject returns what selectors of the same package by its package URL have in common, whichever version and distribution they name.
func (p Package) Subject() string {
	s := p.compiled()
	if s.named == nil {
		return p.Name
	}
	return s.named.kind + "/" + s.named.name
}

// RepositoriesOf returns the repositories that a package URL of an image may name by its repository_url, as image references name them. Some tools
// leave out the image's name there.
func RepositoriesOf(purl packageurl.PackageURL) (repositories []string) {
	url := strings.TrimSuffix(purl.Qualifiers.Map()["repository_url"], "/")
	for _, scheme := range []string{"https://", "http://", "docker://"} {
		url = strings.TrimPrefix(url, scheme)
	}
	host, path, _ := strings.Cut(url, "/")
	host = workerapi.CanonicalHost(host)
	whole := strings.TrimSuffix(host+"/"+path, "/")
	candidates := []string{whole, whole + "/" + purl.Name}
	if strings.EqualFold(path[strings.LastIndex(path, "/")+1:], purl.Name) {
		candidates = candidates[:1]
	}
	for _, candidate := range candidates {
		if ref, err := image.ParseReference(candidate); err == nil && strings.Contains(candidate, "/") {
			repositories = append(repositories, ref.Repository)
		}
	}
	return repositories
}

// selector is a compiled Package.
type selector struct {
	name, version       image.Glob
	anyName, anyVersion bool
	kind                string
	// named is set if the name is a package URL; nil otherwise.
	named *identity
}

// compiled returns the compiled selector. A name that begins like a package URL and is none is a glob.
func (p Package) compiled() selector {
	s := selector{
		name: image.CompileGlob(p.Name), version: image.CompileGlob(p.Version), anyName: p.Name == "", anyVersion: p.Version == "", kind: p.Type,
	}
	purl, err := packageurl.FromString(p.Name)
	if err != nil {
		return s
	}
	if !s.anyVersion && !image.IsGlob(p.Version) {
		purl.Version, s.anyVersion = p.Version, true // it is compared as part of the identity
	}
	named := identityOf(purl)
	s.named = &named
	return s
}

// selects reports whether the selector selects a package.
func (s *selector) selects(pkg finding.Package) bool {
	switch {
	case s.kind != "" && s.kind != pkg.Type:
		return false
	case s.named != nil:
		if id, known := identityOfFinding(pkg); !known || !s.named.names(id) {
			return false
		}
	case !s.anyName && !s.name.Match(pkg.Name):
		return false
	}
	return s.anyVersion || s.version.Match(pkg.Version)
}
