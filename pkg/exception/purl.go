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

// architectures maps names of architectures to those in manifests. It has "" for packages that are not built for one, and for sources, of which every
// build is meant.
var architectures = map[string]string{
	"amd64": "amd64", "x86_64": "amd64", "x64": "amd64", "arm64": "arm64", "aarch64": "arm64", "386": "386", "i386": "386", "i486": "386", "i586": "386",
	"i686": "386", "x86": "386", "arm": "arm", "armhf": "arm", "armel": "arm", "armv6": "arm", "armv7": "arm", "armv7l": "arm", "armv7hl": "arm",
	"ppc64le": "ppc64le", "ppc64el": "ppc64le", "s390x": "s390x", "riscv64": "riscv64", "mips64le": "mips64le", "mips64el": "mips64le", "loong64": "loong64",
	"loongarch64": "loong64", "all": "", "any": "", "noarch": "", "source": "", "src": "", "nosrc": "",
}

// codenames maps releases that some tools name without a number.
var codenames = map[string]string{
	"stretch": "debian-9", "buster": "debian-10", "bullseye": "debian-11", "bookworm": "debian-12", "trixie": "debian-13", "forky": "debian-14",
	"trusty": "ubuntu-14.04", "xenial": "ubuntu-16.04", "bionic": "ubuntu-18.04", "focal": "ubuntu-20.04", "jammy": "ubuntu-22.04", "noble": "ubuntu-24.04",
	"questing": "ubuntu-25.10", "resolute": "ubuntu-26.04",
}

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
	variant
}

// variant is what package URLs say by qualifiers about the build of a package. What they do not say is empty.
type variant struct {
	// arch is the architecture as manifests name it, and release that of the distribution, such as debian-12.
	arch, release string
}

// variantOf returns the variant that a package URL names.
func variantOf(purl packageurl.PackageURL) (v variant) {
	q := purl.Qualifiers.Map()
	v.arch = strings.ToLower(cmp.Or(q["arch"], q["goarch"]))
	if arch, known := architectures[v.arch]; known {
		v.arch = arch
	}
	release := cmp.Or(q["distro"], q["os_distro"]) // the latter is Docker's
	if release == "" && q["os_version"] != "" {
		release = cmp.Or(q["os_name"], purl.Namespace) + "-" + q["os_version"]
	}
	release = strings.ToLower(release)
	if end := strings.IndexAny(release, " +("); end >= 0 { // Trivy writes "amazon-2 (karoo)"
		release = release[:end]
	}
	id, number, hasNumber := strings.Cut(release, "-")
	switch {
	case codenames[release] != "":
		release = codenames[release]
	case codenames[number] != "":
		release = codenames[number]
	case hasNumber && distributions[id] != "":
		release = distributions[id] + "-" + number
	case release != "" && strings.Trim(release, ".0123456789") == "":
		release = cmp.Or(distributions[purl.Namespace], purl.Namespace) + "-" + release
	}
	v.release = release
	return v
}

// overlaps reports whether there may be a build that is of both variants. One release contains another one with more parts in its number.
func (v variant) overlaps(other variant) bool {
	contains := func(a, b string) bool {
		rest, found := strings.CutPrefix(b, a)
		return found && (a == "" || rest == "" || rest[0] == '.' || rest[0] == '-')
	}
	return (v.arch == other.arch || v.arch == "" || other.arch == "") && (contains(v.release, other.release) || contains(other.release, v.release))
}

// ArchitectureOf returns the architecture that a package URL is about, as manifests name it; empty if it is about every one, or not known.
func ArchitectureOf(purl packageurl.PackageURL) string { return architectures[variantOf(purl).arch] }

// PackageOf returns the selector of the package that a package URL names. Its name is the package URL without version and qualifiers. Its qualifiers are
// the architecture and the distribution's release. Without a version, the selector is about every version.
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
	var qualifiers packageurl.Qualifiers
	if named.arch != "" {
		qualifiers = append(qualifiers, packageurl.Qualifier{Key: "arch", Value: named.arch})
	}
	if named.release != "" {
		qualifiers = append(qualifiers, packageurl.Qualifier{Key: "distro", Value: named.release})
	}
	return Package{Name: named.String(), Version: named.version, Qualifiers: qualifiers.String()}, nil
}

// identityOf returns the identity of the package that a package URL names.
func identityOf(purl packageurl.PackageURL) identity {
	id := identity{kind: purl.Type, name: purl.Name, version: purl.Version, variant: variantOf(purl)}
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
		if purl.Subpath != "" { // tools put the end of a module's path there
			id.name += "/" + purl.Subpath
		}
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

// String returns the package URL without version and qualifiers.
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
	return id.kind == pkg.kind && id.name == pkg.name && sameDistribution && (id.version == "" || id.version == pkg.version) && id.overlaps(pkg.variant)
}

// Build is which builds of a package a selector selects. Empty parts select all.
type Build struct {
	version string
	variant
}

// Overlaps reports whether there may be a build that both select.
func (b Build) Overlaps(other Build) bool {
	return (b.version == other.version || b.version == "" || other.version == "") && b.overlaps(other.variant)
}

// Subject returns what selectors of the same package by its package URL have in common, and the builds of it that this one selects.
func (p Package) Subject() (subject string, of Build) {
	s := p.compiled()
	if s.named == nil {
		return p.Name, Build{version: p.Version}
	}
	return s.named.kind + "/" + s.named.name, Build{s.named.version, s.named.variant}
}

// RepositoriesOf returns the repositories that a package URL of an image may name by its repository_url, as image references name them. Some tools
// leave out the image's name there. A package URL of the type docker has a namespace, and names Docker Hub without a repository_url.
func RepositoriesOf(purl packageurl.PackageURL) (repositories []string) {
	url := strings.TrimSuffix(purl.Qualifiers.Map()["repository_url"], "/")
	for _, scheme := range []string{"https://", "http://", "docker://", "oci://"} {
		url = strings.TrimPrefix(url, scheme)
	}
	if url == "" && purl.Type == packageurl.TypeDocker {
		url = "docker.io"
	}
	host, path, _ := strings.Cut(url, "/")
	host = workerapi.CanonicalHost(host)
	whole := strings.TrimSuffix(host+"/"+path, "/")
	name := strings.TrimPrefix(purl.Namespace+"/"+purl.Name, "/")
	candidates := []string{whole, whole + "/" + name}
	if strings.EqualFold(path, name) || strings.HasSuffix(strings.ToLower(path), "/"+strings.ToLower(name)) {
		candidates = candidates[:1]
	}
	for _, candidate := range candidates {
		if ref, err := image.ParseReference(candidate); err == nil && host != "" && strings.Contains(candidate, "/") {
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
	purl, err := packageurl.FromString(p.FullName())
	if err != nil {
		return s
	}
	if !s.anyVersion && !image.IsGlob(p.Version) {
		purl.Version, s.anyVersion = p.Version, true // it is compared as part of the identity
	}
	named := identityOf(purl)
	if purl.Subpath != "" && purl.Type != packageurl.TypeGolang {
		named = identity{} // a part of a package, which no finding is about
	}
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
