package bench

import (
	"encoding/json"
	"fmt"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
)

// Sizes of the generated images: about those of slim and full images that distributions publish, and of
// programs that run in them.
const (
	perBase      = 25
	slimDebs     = 80
	fullDebs     = 230
	rpms         = 150
	smallApks    = 12
	largeApks    = 60
	filesOfADeb  = 30
	filesOfAnApk = 15
	modules      = 40
	npmPackages  = 150
	pyPackages   = 60
	// allModules is the number of modules that programs choose from.
	allModules = 100
	// oldAdvisories is how many vulnerabilities each generated package had, all fixed before the installed
	// version. They are looked up and compared, but never match, like most of a published database.
	oldAdvisories = 6
)

// base is the common part of several images.
type base struct {
	name  string
	files registrytest.Files
	// npm and python are the numbers of packages of these languages in each image, beside Go modules.
	npm, python int
}

// bases returns eight bases: three distributions and none, small and large, with and without packages of other languages.
func bases(t *testing.T) []base {
	t.Helper()
	debian := func(n int) registrytest.Files {
		return fixture.Merge(fixture.Debian(), withStatusOf(fixture.Debian(), fixture.Dpkg(debs(n)...)))
	}
	return []base{
		{name: "Debian 12, slim", files: debian(slimDebs)},
		{name: "Debian 12, full", files: debian(fullDebs)},
		{name: "Debian 12 with Node.js packages", files: debian(slimDebs), npm: npmPackages},
		{name: "Debian 12 with Python packages", files: debian(slimDebs), python: pyPackages},
		{name: "Alpine 3.18, small", files: alpine(smallApks)},
		{name: "Alpine 3.18, large", files: alpine(largeApks)},
		{name: "Rocky Linux 9", files: rocky(t)},
		{name: "no distribution", files: registrytest.Files{"etc/hostname": "static\n"}},
	}
}

// withStatusOf merges two lists of Debian packages.
func withStatusOf(first, second registrytest.Files) registrytest.Files {
	const status = "var/lib/dpkg/status"
	return fixture.Merge(second, registrytest.Files{status: first[status] + second[status]})
}

// alpine returns the fixture's files with n more packages.
func alpine(n int) registrytest.Files {
	const installed = "lib/apk/db/installed"
	files, more := fixture.Alpine(), fixture.ApkDB(apks(n)...)
	return fixture.Merge(files, registrytest.Files{installed: files[installed] + more[installed]})
}

// rocky returns the fixture's release with packages of its own, since an RPM database is one file.
func rocky(t *testing.T) registrytest.Files {
	t.Helper()
	all := []fixture.Rpm{
		{Name: "openssl-libs", Version: "3.0.7", Release: "6.el9_2", SourceRPM: "openssl-3.0.7-6.el9_2.src.rpm", Epoch: 1},
		{Name: "glibc", Version: "2.34", Release: "60.el9", SourceRPM: "glibc-2.34-60.el9.src.rpm", Epoch: -1},
		{Name: "libcurl-minimal", Version: "7.76.1", Release: "23.el9", SourceRPM: "curl-7.76.1-23.el9.src.rpm", Epoch: -1},
	}
	for i := range rpms {
		all = append(all, fixture.Rpm{
			Name: packageName(i) + "-libs", Version: "2.4.1", Release: "3.el9", SourceRPM: packageName(i) + "-2.4.1-3.el9.src.rpm", Epoch: -1,
		})
	}
	return fixture.Merge(fixture.Rocky(t), fixture.RpmDB(t, all...))
}

func packageName(i int) string { return fmt.Sprintf("package%03d", i) }

func moduleName(i int) string { return fmt.Sprintf("example.org/team%02d/module%03d", i%7, i) }

// owned returns n paths of files of a package.
func owned(dir string, n int) []string {
	files := make([]string, n)
	for i := range files {
		files[i] = fmt.Sprintf("usr/share/%s/section-%02d/file-%04d", dir, i%5, i)
	}
	return files
}

func debs(n int) []fixture.Deb {
	all := make([]fixture.Deb, n)
	for i := range all {
		all[i] = fixture.Deb{
			Name: fmt.Sprintf("lib%s1", packageName(i)), Version: "2.4.1-3+deb12u1", Source: packageName(i), Owns: owned(packageName(i), filesOfADeb),
		}
	}
	return all
}

func apks(n int) []fixture.Apk {
	all := make([]fixture.Apk, n)
	for i := range all {
		all[i] = fixture.Apk{Name: packageName(i) + "-libs", Version: "2.4.1-r3", Origin: packageName(i), Owns: owned(packageName(i), filesOfAnApk)}
	}
	return all
}

// image returns the image with that number on a base: a Go program, and packages of the base's languages, whose versions depend on
// the number.
func (b base) image(t *testing.T, number int) v1.Image {
	t.Helper()
	return registrytest.Image(t, b.files, fixture.Merge(b.npmFiles(number), b.pythonFiles(number), goProgram(number)))
}

// goProgram returns a program with a few modules that have advisories, some of them in an affected version, and many others.
func goProgram(number int) registrytest.Files {
	used := []fixture.Module{
		{Path: "golang.org/x/net", Version: fmt.Sprintf("v0.%d.0", 5+number)},
		{Path: "golang.org/x/text", Version: fmt.Sprintf("v0.3.%d", number%10)},
		{Path: "golang.org/x/crypto", Version: fmt.Sprintf("v0.%d.0", 10+number)},
		{Path: "gopkg.in/yaml.v3", Version: "v3.0.0"},
		{Path: "github.com/gin-gonic/gin", Version: fmt.Sprintf("v1.%d.0", 6+number%4)},
	}
	for i := range modules {
		used = append(used, fixture.Module{Path: moduleName((number*3 + i) % allModules), Version: fmt.Sprintf("v1.%d.%d", number, i)})
	}
	return registrytest.Files{"app/server": fixture.GoBinary(fmt.Sprintf("go1.%d.%d", 19+number%4, number%10), "example.org/server", used...)}
}

func (b base) npmFiles(number int) registrytest.Files {
	files := registrytest.Files{}
	for i := range b.npm {
		name := fmt.Sprintf("node-package-%03d", i)
		files["app/node_modules/"+name+"/package.json"] = fmt.Sprintf(
			`{"name": %q, "version": "3.%d.%d", "license": "MIT", "description": "a package of the benchmark", "author": "Nobody <nobody@example.org>"}`, name, number, i)
	}
	return files
}

func (b base) pythonFiles(number int) registrytest.Files {
	files := registrytest.Files{}
	for i := range b.python {
		name, version := fmt.Sprintf("python_package_%03d", i), fmt.Sprintf("1.%d.%d", number, i)
		dir := fmt.Sprintf("usr/lib/python3/dist-packages/%s-%s.dist-info/", name, version)
		files[dir+"METADATA"] = fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\nLicense: MIT\n", name, version)
		files[dir+"RECORD"] = fmt.Sprintf("%s/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n", name)
	}
	return files
}

// writeOldAdvisories writes advisories about the generated packages, in addition to those of the fixture, and returns their directory.
func writeOldAdvisories(t *testing.T) string {
	t.Helper()
	type advisory struct {
		ID          string `json:"id"`
		Package     string `json:"package"`
		Fixed       string `json:"fixed"`
		Severity    string `json:"severity"`
		Description string `json:"description"`
	}
	var all []advisory
	files := map[string]string{}
	for i := range fullDebs {
		for n := range oldAdvisories {
			all = append(all, advisory{
				ID: fmt.Sprintf("CVE-2019-%05d", 10000+i*oldAdvisories+n), Package: packageName(i), Fixed: fmt.Sprintf("1.%d.0", n), Severity: "Medium",
				Description: "A flaw was found in the way that the library reads its input, which lets a remote attacker do what it should not.",
			})
		}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range []string{"debian-12", "alpine-3.18", "rhel-9"} {
		files[release+".json"] = string(raw)
	}
	for i := range allModules {
		files[fmt.Sprintf("golang/GO-2019-%04d.json", i)] = fmt.Sprintf(`{"id": "GO-2019-%04[1]d", "aliases": ["CVE-2019-%[2]d"],
			"summary": "Denial of service in %[3]s", "details": "Parsing may take very long in %[3]s.",
			"affected": [{"package": {"name": %[3]q, "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "0.9.0"}]}]}]}`,
			i, 90000+i, moduleName(i))
	}
	return fixture.Advisories(t, files)
}
