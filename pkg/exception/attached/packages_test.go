package attached

import (
	"testing"
	"time"

	"github.com/openvex/go-vex/pkg/vex"
	"github.com/package-url/packageurl-go"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// suppresses reports whether a document with one statement about a product suppresses CVE-1 in a package of the image.
func suppresses(t *testing.T, product string, in finding.Package) (suppressed bool, problems []string) {
	t.Helper()
	found, problems := Exceptions([]Document{{openVEX("doc", about(notAffected, products(product))), "jane"}}, false, web)
	for i := range found {
		found[i].Manifest = 1
	}
	set := exception.NewSet(found, time.Now())
	return set.SuppressedBy(exception.Image{Manifest: 1}, finding.Finding{ID: "CVE-1", Package: in}) != nil, problems
}

// TestOwnPURL: a statement whose subcomponent or product is the very package URL that the operator shows with a finding must suppress that finding.
// Names, versions and URLs are those that Syft 1.57 writes.
func TestOwnPURL(t *testing.T) {
	for what, p := range map[string]finding.Package{
		"deb":                      {Name: "zlib1g", Version: "1:1.2.13.dfsg-1", Type: "deb", PURL: "pkg:deb/debian/zlib1g@1%3A1.2.13.dfsg-1?arch=amd64&distro=debian-12&upstream=zlib"},
		"rpm with an epoch":        {Name: "openssl-libs", Version: "1:3.0.7-6.el9_2", Type: "rpm", PURL: "pkg:rpm/redhat/openssl-libs@3.0.7-6.el9_2?arch=x86_64&epoch=1&distro=rhel-9.2"},
		"rpm in upper case":        {Name: "NetworkManager", Version: "1:1.40.0-1.el9", Type: "rpm", PURL: "pkg:rpm/redhat/NetworkManager@1.40.0-1.el9?arch=x86_64&epoch=1&distro=rhel-9.2"},
		"apk":                      {Name: "libcrypto3", Version: "3.1.0-r4", Type: "apk", PURL: "pkg:apk/alpine/libcrypto3@3.1.0-r4?arch=x86_64&distro=alpine-3.18.0"},
		"npm with a scope":         {Name: "@angular/core", Version: "16.0.0", Type: "npm", PURL: "pkg:npm/%40angular/core@16.0.0"},
		"Go":                       {Name: "golang.org/x/net", Version: "v0.7.0", Type: "go-module", PURL: "pkg:golang/golang.org/x/net@v0.7.0"},
		"Go in upper case":         {Name: "github.com/Masterminds/goutils", Version: "v1.1.0", Type: "go-module", PURL: "pkg:golang/github.com/Masterminds/goutils@v1.1.0"},
		"Go, a name in upper case": {Name: "github.com/BurntSushi/toml", Version: "v1.2.0", Type: "go-module", PURL: "pkg:golang/github.com/BurntSushi/toml@v1.2.0"},
		"Go's standard library":    {Name: "stdlib", Version: "go1.22.0", Type: "go-module", PURL: "pkg:golang/stdlib@1.22.0"},
		"Python":                   {Name: "pyyaml", Version: "6.0", Type: "python", PURL: "pkg:pypi/pyyaml@6.0"},
		"Python, of another tool":  {Name: "PyYAML", Version: "6.0", Type: "python", PURL: "pkg:pypi/pyyaml@6.0"},
		"Java":                     {Name: "log4j-core", Version: "2.14.1", Type: "java-archive", PURL: "pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1"},
		"a plugin of Jenkins":      {Name: "git", Version: "4.0", Type: "jenkins-plugin", PURL: "pkg:maven/org.jenkins-ci.plugins/git@4.0"},
		"a gem":                    {Name: "nokogiri", Version: "1.15.0", Type: "gem", PURL: "pkg:gem/nokogiri@1.15.0"},
		".NET":                     {Name: "Newtonsoft.Json", Version: "12.0.1", Type: "dotnet", PURL: "pkg:nuget/Newtonsoft.Json@12.0.1"},
		"PHP":                      {Name: "symfony/http-kernel", Version: "v5.0.0", Type: "php-composer", PURL: "pkg:composer/symfony/http-kernel@v5.0.0"},
		"Rust":                     {Name: "openssl-src", Version: "111.0.0", Type: "rust-crate", PURL: "pkg:cargo/openssl-src@111.0.0"},
		"a binary":                 {Name: "node", Version: "18.0.0", Type: "binary", PURL: "pkg:generic/node@18.0.0"},
		"a package of Bitnami":     {Name: "redis", Version: "7.0.0-1", Type: "bitnami", PURL: "pkg:bitnami/redis@7.0.0-1?arch=amd64&distro=debian-12"},
		"an action of GitHub":      {Name: "actions/checkout", Version: "v3", Type: "github-action", PURL: "pkg:github/actions/checkout@v3"},
		"the kernel":               {Name: "linux-kernel", Version: "6.0.7", Type: "linux-kernel", PURL: "pkg:generic/linux-kernel@6.0.7"},
	} {
		t.Run(what, func(t *testing.T) {
			if _, err := packageurl.FromString(p.PURL); err != nil {
				t.Fatal(err)
			}
			for _, product := range []string{`{"@id": "pkg:oci/web@` + digest + `", "subcomponents": [{"@id": "` + p.PURL + `"}]}`, `{"@id": "` + p.PURL + `"}`} {
				if ok, problems := suppresses(t, product, p); !ok {
					t.Errorf("%s does not suppress %s %s (%s); problems %q", product, p.Name, p.Version, p.Type, problems)
				}
			}
		})
	}
}

// TestPackageURLsOfOtherTools: the same packages, as the tools that make OpenVEX documents write them.
func TestPackageURLsOfOtherTools(t *testing.T) {
	for what, tt := range map[string]struct {
		subcomponent string
		in           finding.Package
	}{
		"govulncheck, a module":             {"pkg:golang/golang.org%2Fx%2Fnet@v0.7.0", finding.Package{Name: "golang.org/x/net", Version: "v0.7.0", Type: "go-module"}},
		"govulncheck, the standard library": {"pkg:golang/stdlib@v1.22.0", finding.Package{Name: "stdlib", Version: "go1.22.0", Type: "go-module"}},
		"pip-audit, a name with a dot":      {"pkg:pypi/ruamel.yaml@0.17.0", finding.Package{Name: "ruamel-yaml", Version: "0.17.0", Type: "python"}},
		"cyclonedx-gomod":                   {"pkg:golang/std@go1.22.0?type=module", finding.Package{Name: "stdlib", Version: "go1.22.0", Type: "go-module", PURL: "pkg:golang/stdlib@1.22.0"}},
		"Trivy, Red Hat":                    {"pkg:rpm/rhel/openssl-libs@3.0.7-6.el9_2?epoch=1", finding.Package{Name: "openssl-libs", Version: "1:3.0.7-6.el9_2", Type: "rpm", PURL: "pkg:rpm/redhat/openssl-libs@3.0.7-6.el9_2?epoch=1"}},
		"Trivy, a point release":            {"pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12.5", finding.Package{Name: "libc6", Version: "2.36", Type: "deb", PURL: "pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12"}},
		"Trivy, Amazon Linux":               {"pkg:rpm/amazon/curl@8.0?arch=x86_64&distro=amazon-2+%28Karoo%29", finding.Package{Name: "curl", Version: "8.0", Type: "rpm", PURL: "pkg:rpm/amzn/curl@8.0?arch=x86_64&distro=amzn-2"}},
		"Docker Scout":                      {"pkg:deb/debian/libc6@2.36?os_distro=bookworm&os_name=debian&os_version=12", finding.Package{Name: "libc6", Version: "2.36", Type: "deb", PURL: "pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12"}},
		"Ubuntu, a release by its name":     {"pkg:deb/ubuntu/libc6@2.35?arch=source&distro=jammy", finding.Package{Name: "libc6", Version: "2.35", Type: "deb", PURL: "pkg:deb/ubuntu/libc6@2.35?arch=amd64&distro=ubuntu-22.04"}},
		"a minor release of Red Hat":        {"pkg:rpm/redhat/a@1?arch=noarch&distro=rhel-9", finding.Package{Name: "a", Version: "1", Type: "rpm", PURL: "pkg:rpm/redhat/a@1?arch=x86_64&distro=rhel-9.4"}},
		"a number alone":                    {"pkg:apk/alpine/musl@1.2?distro=3.18", finding.Package{Name: "musl", Version: "1.2", Type: "apk", PURL: "pkg:apk/alpine/musl@1.2?arch=x86_64&distro=alpine-3.18.0"}},
		"a finding without qualifiers":      {"pkg:apk/alpine/musl@1.2?arch=x86_64&distro=alpine-3.18.0", finding.Package{Name: "musl", Version: "1.2", Type: "apk"}},
		"a 32-bit build":                    {"pkg:deb/debian/libc6@2.36?arch=i386", finding.Package{Name: "libc6", Version: "2.36", Type: "deb", PURL: "pkg:deb/debian/libc6@2.36?arch=i386&distro=debian-12"}},
		"a scope that is not escaped":       {"pkg:npm/@angular/core@16.0.0", finding.Package{Name: "@angular/core", Version: "16.0.0", Type: "npm", PURL: "pkg:npm/%40angular/core@16.0.0"}},
		"a scope with an escaped slash":     {"pkg:npm/%40angular%2Fcore@16.0.0", finding.Package{Name: "@angular/core", Version: "16.0.0", Type: "npm", PURL: "pkg:npm/%40angular/core@16.0.0"}},
		"a scope and no package URL":        {"pkg:npm/%40angular/core", finding.Package{Name: "@angular/core", Version: "16.0.0", Type: "npm"}},
		"Maven with a type":                 {"pkg:maven/org.dom4j/dom4j@2.1.0?type=jar", finding.Package{Name: "dom4j", Version: "2.1.0", Type: "java-archive", PURL: "pkg:maven/org.dom4j/dom4j@2.1.0"}},
		"Maven with a classifier":           {"pkg:maven/org.dom4j/dom4j@2.1.0?classifier=jar", finding.Package{Name: "dom4j", Version: "2.1.0", Type: "java-archive", PURL: "pkg:maven/org.dom4j/dom4j@2.1.0"}},
		"Maven, a plugin of Jenkins":        {"pkg:maven/org.jenkins-ci.plugins/git@4.0?type=hpi", finding.Package{Name: "git", Version: "4.0", Type: "jenkins-plugin", PURL: "pkg:maven/org.jenkins-ci.plugins/git@4.0"}},
		"a plugin of Jenkins by its group":  {"pkg:maven/io.jenkins.plugins/configuration-as-code@1.0", finding.Package{Name: "io.jenkins.plugins:configuration-as-code", Version: "1.0", Type: "jenkins-plugin"}},
		"Go, +incompatible":                 {"pkg:golang/github.com/docker/docker@v24.0.0%2Bincompatible", finding.Package{Name: "github.com/docker/docker", Version: "v24.0.0+incompatible", Type: "go-module", PURL: "pkg:golang/github.com/docker/docker@v24.0.0%2Bincompatible"}},
		"Go in upper case, no package URL":  {"pkg:golang/github.com/masterminds/goutils@v1.1.0", finding.Package{Name: "github.com/Masterminds/goutils", Version: "v1.1.0", Type: "go-module"}},
		"Go's standard library, std@v":      {"pkg:golang/std@v1.22.0", finding.Package{Name: "stdlib", Version: "go1.22.0", Type: "go-module", PURL: "pkg:golang/stdlib@1.22.0"}},
		"Go's standard library, no version": {"pkg:golang/std", finding.Package{Name: "stdlib", Version: "go1.22.0", Type: "go-module"}},
		"Python, underscores":               {"pkg:pypi/zope_interface@5.0", finding.Package{Name: "zope.interface", Version: "5.0", Type: "python"}},
		"Python, several separators":        {"pkg:pypi/Zope.-Interface@5.0", finding.Package{Name: "zope-interface", Version: "5.0", Type: "python", PURL: "pkg:pypi/zope.interface@5.0"}},
		"a group of Maven in the name":      {"pkg:maven/org.dom4j/dom4j@2.1.0", finding.Package{Name: "org.dom4j:dom4j", Version: "2.1.0", Type: "java-archive"}},
		"vexctl, a name in upper case":      {"pkg:pypi/PyYAML@6.0", finding.Package{Name: "pyyaml", Version: "6.0", Type: "python"}},
	} {
		t.Run(what, func(t *testing.T) {
			product := `{"@id": "pkg:oci/web@` + digest + `", "subcomponents": [{"@id": "` + tt.subcomponent + `"}]}`
			if ok, problems := suppresses(t, product, tt.in); !ok {
				t.Errorf("%s does not suppress %s %s; problems %q", tt.subcomponent, tt.in.Name, tt.in.Version, problems)
			}
		})
	}
}

// TestDockerHubRepositories: the same repository of Docker Hub, as tools write it.
func TestDockerHubRepositories(t *testing.T) {
	nginx := Image{Digests: []string{digest}, Architecture: "amd64", Repository: "docker.io/library/nginx"}
	for id, want := range map[string]bool{
		"pkg:oci/nginx?repository_url=index.docker.io/library/nginx":                  true,
		"pkg:oci/nginx?repository_url=index.docker.io/library":                        true,
		"pkg:oci/nginx?repository_url=registry-1.docker.io%2Flibrary%2Fnginx":         true,
		"pkg:oci/nginx?repository_url=https://registry.hub.docker.com/library/nginx/": true,
		"pkg:oci/nginx?repository_url=INDEX.docker.io/nginx":                          true,
		"pkg:oci/nginx?repository_url=docker.io":                                      true,
		"pkg:docker/nginx":                                                            true,
		"pkg:docker/library/nginx":                                                    true,
		"pkg:docker/library/nginx?repository_url=index.docker.io":                     true,
		"pkg:docker/shop/nginx":                                                       false,
		"pkg:docker/nginx@1":                                                          false,
		"pkg:oci/nginx":                                                               false,
		"pkg:oci/nginx?repository_url=ghcr.io/library/nginx":                          false,
		"pkg:oci/nginx?repository_url=index.docker.io/shop":                           false,
	} {
		if got := nginx.is(&vex.Component{ID: id}); got != want {
			t.Errorf("%s is %s: %v, want %v", id, nginx.Repository, got, want)
		}
	}
}

// TestOtherPackagesOfTheSameName: a statement about one package must not suppress the same vulnerability in another package with the same name.
// CVE-2020-10683 is in both org.dom4j:dom4j and dom4j:dom4j; jQuery is in org.webjars, org.webjars.npm and org.webjars.bower.
func TestOtherPackagesOfTheSameName(t *testing.T) {
	for what, tt := range map[string]struct {
		subcomponent string
		in           finding.Package
	}{
		"any version":                                    {"pkg:maven/org.dom4j/dom4j", finding.Package{Name: "dom4j", Version: "1.6.1", Type: "java-archive", PURL: "pkg:maven/dom4j/dom4j@1.6.1"}},
		"an unknown group":                               {"pkg:maven/org.dom4j/dom4j", finding.Package{Name: "dom4j", Version: "1.6.1", Type: "java-archive"}},
		"another scope of npm":                           {"pkg:npm/%40a/core@1.0.0", finding.Package{Name: "@b/core", Version: "1.0.0", Type: "npm", PURL: "pkg:npm/%40b/core@1.0.0"}},
		"another ecosystem":                              {"pkg:generic/node@18.0.0", finding.Package{Name: "node", Version: "18.0.0", Type: "npm", PURL: "pkg:npm/node@18.0.0"}},
		"another distribution":                           {"pkg:deb/debian/zlib1g@1", finding.Package{Name: "zlib1g", Version: "1", Type: "deb", PURL: "pkg:deb/ubuntu/zlib1g@1"}},
		"another release":                                {"pkg:deb/debian/libc6@2.36?distro=debian-11", finding.Package{Name: "libc6", Version: "2.36", Type: "deb", PURL: "pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12"}},
		"a release by its name":                          {"pkg:deb/debian/libc6@2.36?distro=bullseye", finding.Package{Name: "libc6", Version: "2.36", Type: "deb", PURL: "pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12"}},
		"a release of Docker's":                          {"pkg:deb/debian/libc6@2.36?os_distro=bullseye&os_name=debian&os_version=11", finding.Package{Name: "libc6", Version: "2.36", Type: "deb", PURL: "pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12"}},
		"a minor release":                                {"pkg:rpm/redhat/a@1?distro=rhel-9.2", finding.Package{Name: "a", Version: "1", Type: "rpm", PURL: "pkg:rpm/redhat/a@1?distro=rhel-9.4"}},
		"a longer number":                                {"pkg:rpm/opensuse/a@1?distro=opensuse-leap-1", finding.Package{Name: "a", Version: "1", Type: "rpm", PURL: "pkg:rpm/opensuse/a@1?distro=opensuse-leap-15.5"}},
		"a derived distribution":                         {"pkg:bitnami/redis@7?distro=photon-5", finding.Package{Name: "redis", Version: "7", Type: "bitnami", PURL: "pkg:bitnami/redis@7?distro=debian-12"}},
		"another architecture":                           {"pkg:deb/debian/libc6@2.36?arch=arm64", finding.Package{Name: "libc6", Version: "2.36", Type: "deb", PURL: "pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12"}},
		"an architecture that the finding does not have": {"pkg:deb/debian/libc6@2.36?arch=arm64", finding.Package{Name: "libc6", Version: "2.36", Type: "deb"}},
		"a 32-bit build":                                 {"pkg:deb/debian/libc6@2.36?arch=i386", finding.Package{Name: "libc6", Version: "2.36", Type: "deb", PURL: "pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12"}},
		"a build of Go":                                  {"pkg:golang/example.com/a@v1.0.0?goarch=arm64&goos=linux&type=module", finding.Package{Name: "example.com/a", Version: "v1.0.0", Type: "go-module", PURL: "pkg:golang/example.com/a@v1.0.0"}},
		"a module in a module":                           {"pkg:golang/github.com/azure/azure-sdk-for-go@v1.0.0", finding.Package{Name: "github.com/Azure/azure-sdk-for-go/sdk/azcore", Version: "v1.0.0", Type: "go-module", PURL: "pkg:golang/github.com/Azure/azure-sdk-for-go@v1.0.0#sdk/azcore"}},
		"another epoch":                                  {"pkg:rpm/redhat/a@1?epoch=1", finding.Package{Name: "a", Version: "2:1", Type: "rpm", PURL: "pkg:rpm/redhat/a@1?epoch=2"}},
		"the same version":                               {"pkg:maven/org.webjars/jquery@3.4.0", finding.Package{Name: "jquery", Version: "3.4.0", Type: "java-archive", PURL: "pkg:maven/org.webjars.npm/jquery@3.4.0"}},
	} {
		t.Run(what, func(t *testing.T) {
			product := `{"@id": "pkg:oci/web@` + digest + `", "subcomponents": [{"@id": "` + tt.subcomponent + `"}]}`
			if ok, _ := suppresses(t, product, tt.in); ok {
				t.Errorf("a statement about %s suppresses %s", tt.subcomponent, tt.in.PURL)
			}
		})
	}
}
