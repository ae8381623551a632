package images

import (
	"fmt"
	"io/fs"
)

// Names of the images. They are also their repositories below a registry, except for WebUpdated.
const (
	// Web contains packages of Debian 12 as of June 2023.
	Web = "shop/web"
	// WebUpdated is Web rebuilt with FixedOpenSSL. It is pushed as another tag of the repository of Web.
	WebUpdated = "shop/web-updated"
	// API is a Go program with old modules.
	API = "shop/api"
	// Migrate is a Go program with old modules that exits after its work.
	Migrate = "shop/migrate"
	// Cache contains packages of Alpine 3.18.
	Cache = "shop/cache"
	// Static is a Go program without modules. It has no known vulnerabilities.
	Static = "shop/static"
	// Rocky contains an RPM database of Rocky Linux 9.2.
	Rocky = "test/rocky"
	// Bastion is a Go program with a module version from before the module was tagged.
	Bastion = "test/bastion"
	// Slack is the stand-in for Slack.
	Slack = "demo-infra/slack"
	// Receivers is the stand-in for the other programs that receive messages and exports.
	Receivers = "demo-infra/receivers"
	// Files serves the files below FilesDir. The image has no files there: add them as a layer.
	Files = "demo-infra/files"
	// Clair replaces quay.io/projectquay/clair and accepts the same settings.
	Clair = "demo-infra/clair"
	// PostgreSQL replaces docker.io/library/postgres. It supports only the settings that its entrypoint.sh names.
	PostgreSQL = "demo-infra/postgresql"
	// OLM replaces quay.io/operator-framework/olm. It contains both operators of the Operator Lifecycle Manager, and the programs that
	// they copy into the pods that unpack bundles.
	OLM = "demo-infra/olm"
	// OPM replaces quay.io/operator-framework/opm, the base image of catalogs. It serves the catalog in CatalogDir from the cache in
	// CatalogCache. The image contains neither: add both as a layer.
	OPM = "demo-infra/opm"
)

// Directories of the image OPM, as in the Dockerfile that "opm generate dockerfile" writes.
const (
	CatalogDir   = "/configs"
	CatalogCache = "/tmp/cache"
)

// FilesDir is the directory that the image Files serves.
const FilesDir = "/srv"

// FixedOpenSSL is the version of OpenSSL in WebUpdated, in which every vulnerability with a fix is fixed.
const FixedOpenSSL = "3.0.19-1~deb12u9"

// Scanned returns the names of the images that are scanned.
func Scanned() []string { return []string{Web, API, Migrate, Cache, Static, Rocky, Bastion} }

// Demo returns the names of the images of every demo, with any engine.
func Demo() []string { return append(Scanned(), WebUpdated, Slack, Files) }

// ForClair returns the names of the additional images of a demo with Clair. The first build takes minutes and downloads packages.
func ForClair() []string { return []string{Clair, PostgreSQL} }

// ForIntegrations returns the names of the additional images of an environment with other programs (scenario.Options.Integrations).
func ForIntegrations() []string { return []string{Receivers} }

// ForOLM returns the names of the additional images of the tests with the Operator Lifecycle Manager.
func ForOLM() []string { return []string{OLM, OPM} }

// Missing is an image that is never pushed, so it cannot be pulled.
const Missing = "shop/ghost"

// definition is the content of an image: files of a distribution, if any, below one program.
type definition struct {
	name string
	// distribution is a directory of files; see distributionFiles.
	distribution string
	// upgrades maps source packages of Debian to versions that replace those in the distribution's files.
	upgrades map[string]string
	// program is the name of the program in the image; empty means the last part of name.
	program string
	// dir is the Go module and pkg the command in it, relative to the project's root.
	dir, pkg string
	// args are the program's arguments in the image's entry point.
	args []string
	// tags are the build tags of the program and of those in bin.
	tags string
	// bin are additional programs, each at /bin/<name>. The program itself has a link there, too.
	bin []tool
	// packages are Debian packages below everything else; see debianPackages. With packages, there is no program: the entry point is the
	// distribution's entrypoint.sh, run as user.
	packages []string
	user     string
}

// tool is an additional program of an image: the command pkg in the Go module dir.
type tool struct{ name, dir, pkg string }

// Modules in which OLM and opm are pinned, and the build tags of their own projects for builds without C.
const (
	olmDir  = "hack/tools/olm"
	olmCmd  = "github.com/operator-framework/operator-lifecycle-manager/"
	opmDir  = "hack/tools/opm"
	olmTags = "json1,containers_image_openpgp,exclude_graphdriver_btrfs"
)

// definitions are all images. Several contain the same program under different names, so that the entry point shows the image's role.
var definitions = []definition{
	{name: Web, distribution: "debian-12", dir: ".", pkg: "./test/images/serve"},
	{
		name: WebUpdated, program: "web", distribution: "debian-12", dir: ".", pkg: "./test/images/serve",
		upgrades: map[string]string{"openssl": FixedOpenSSL},
	},
	{name: API, dir: "test/images/api", pkg: "."},
	{name: Migrate, dir: "test/images/migrate", pkg: "."},
	{name: Cache, distribution: "alpine-3.18", dir: ".", pkg: "./test/images/serve"},
	{name: Static, dir: ".", pkg: "./test/images/serve"},
	{name: Bastion, dir: "test/images/bastion", pkg: "."},
	{name: Rocky, distribution: "rocky-9", dir: ".", pkg: "./test/images/serve"},
	{name: Slack, dir: ".", pkg: "./test/slackstandin"},
	{name: Receivers, dir: ".", pkg: "./test/receiverstandin"},
	{name: Files, dir: ".", pkg: "./test/images/serve", args: []string{FilesDir}},
	{name: Clair, dir: "hack/tools/clair", pkg: "github.com/quay/clair/v4/cmd/clair"},
	{name: PostgreSQL, distribution: "postgresql-15", packages: postgreSQLPackages, user: "999:999"},
	{
		name: OLM, dir: olmDir, pkg: olmCmd + "cmd/olm", tags: olmTags,
		bin: []tool{
			{"catalog", olmDir, olmCmd + "cmd/catalog"},
			{"copy-content", olmDir, olmCmd + "cmd/copy-content"},
			{"cpb", olmDir, olmCmd + "util/cpb"},
			{"cp", ".", "./test/images/cp"},
		},
	},
	{
		name: OPM, dir: opmDir, pkg: "github.com/operator-framework/operator-registry/cmd/opm", tags: olmTags,
		args: []string{"serve", CatalogDir, "--cache-dir=" + CatalogCache},
		bin:  []tool{{"grpc_health_probe", opmDir, "github.com/grpc-ecosystem/grpc-health-probe"}},
	},
}

func find(name string) (definition, error) {
	for _, d := range definitions {
		if d.name == name {
			return d, nil
		}
	}
	return definition{}, fmt.Errorf("no image is called %q", name)
}

// packageDatabases holds for each distribution the path of its package database, and the directories beside it by which Clair identifies
// it.
var packageDatabases = map[string]struct {
	file, path string
	beside     []string
}{
	"debian-12":   {"status", "/var/lib/dpkg/status", []string{"/var/lib/dpkg/info"}},
	"alpine-3.18": {"installed", "/lib/apk/db/installed", nil},
	"rocky-9":     {"rpmdb.sqlite.gz", "/var/lib/rpm/rpmdb.sqlite", nil},
}

// directoryMode is the mode of the directories in images.
const directoryMode = fs.ModeDir | 0o755
