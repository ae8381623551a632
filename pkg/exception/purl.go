package exception

import (
	"fmt"
	"strings"

	"github.com/package-url/packageurl-go"
)

// packageTypes are the engine's names of the types of package URLs.
var packageTypes = map[string]string{
	packageurl.TypeDebian: "deb", packageurl.TypeApk: "apk", packageurl.TypeRPM: "rpm", packageurl.TypeGolang: "go-module", packageurl.TypeNPM: "npm",
	packageurl.TypePyPi: "python", packageurl.TypeGem: "gem", packageurl.TypeMaven: "java-archive", packageurl.TypeCargo: "rust-crate",
	packageurl.TypeNuget: "dotnet", packageurl.TypeComposer: "php-composer", packageurl.TypeAlpm: "alpm",
}

// PackageOf returns the package that a package URL names, as findings name it. Without a version, that is every version.
func PackageOf(purl packageurl.PackageURL) (Package, error) {
	kind, known := packageTypes[purl.Type]
	if !known {
		return Package{}, fmt.Errorf("%s has a type that is not known", purl.ToString())
	}
	name := purl.Name
	switch purl.Type {
	case packageurl.TypeGolang, packageurl.TypeNPM, packageurl.TypeComposer:
		if purl.Namespace != "" {
			name = purl.Namespace + "/" + purl.Name
		}
	}
	version := purl.Version
	if epoch := purl.Qualifiers.Map()["epoch"]; epoch != "" && version != "" {
		version = epoch + ":" + version
	}
	for _, part := range []string{name, version} {
		if strings.ContainsAny(part, "*?") {
			return Package{}, fmt.Errorf("%s has * or ? in it, which an exception takes for a glob", purl.ToString())
		}
	}
	return Package{Name: name, Version: version, Type: kind}, nil
}
