package images

import (
	"fmt"
	"io/fs"
)

// Names of the images, which are also their repositories below a registry, WebUpdated excepted.
const (
	// Web holds packages of Debian 12 as of June 2023.
	Web = "shop/web"
	// WebUpdated is Web built again, with FixedOpenSSL: another tag in the repository of Web.
	WebUpdated = "shop/web-updated"
	// API is a Go program with old modules.
	API = "shop/api"
	// Migrate is another one, that runs and ends.
	Migrate = "shop/migrate"
	// Cache holds packages of Alpine 3.18.
	Cache = "shop/cache"
	// Static is a Go program without modules: nothing is known to be wrong with it.
	Static = "shop/static"
	// Rocky holds an RPM database of Rocky Linux 9.2.
	Rocky = "test/rocky"
	// Bastion is a Go program with a module from before its versions had tags.
	Bastion = "test/bastion"
	// Slack is the stand-in for Slack.
	Slack = "demo-infra/slack"
	// Files serves the files below FilesDir, of which it has none: add them as a layer.
	Files = "demo-infra/files"
	// Clair stands for quay.io/projectquay/clair, with the same settings.
	Clair = "demo-infra/clair"
	// PostgreSQL stands for docker.io/library/postgres, of whose settings it knows what its entrypoint.sh names.
	PostgreSQL = "demo-infra/postgresql"
	// OLM stands for quay.io/operator-framework/olm: both operators of the Operator Lifecycle Manager, and what they put into
	// the pods that unpack bundles.
	OLM = "demo-infra/olm"
	// OPM stands for quay.io/operator-framework/opm, on which catalogs are built: it serves what is in CatalogDir, from the
	// cache in CatalogCache. It has neither: add both as a layer.
	OPM = "demo-infra/opm"
)

// Where the image OPM has what it serves, as in the Dockerfile that "opm generate dockerfile" writes.
const (
	CatalogDir   = "/configs"
	CatalogCache = "/tmp/cache"
)

// FilesDir is what the image Files serves.
const FilesDir = "/srv"

// FixedOpenSSL is the version of OpenSSL in WebUpdated: all is fixed in it that has a fix.
const FixedOpenSSL = "3.0.19-1~deb12u9"

// Scanned lists the images that have something to scan, or nothing on purpose.
func Scanned() []string { return []string{Web, API, Migrate, Cache, Static, Rocky, Bastion} }

// Story lists the images of every story, whatever its engine.
func Story() []string { return append(Scanned(), WebUpdated, Slack, Files) }

// ForClair lists what a story takes besides, whose engine is Clair. Building them takes minutes and downloads the first time.
func ForClair() []string { return []string{Clair, PostgreSQL} }

// ForOLM lists what the tests of installing with the Operator Lifecycle Manager take besides.
func ForOLM() []string { return []string{OLM, OPM} }

// Missing is an image that is never pushed: whoever runs it cannot pull it.
const Missing = "shop/ghost"

// definition says what is in an image: files of a distribution, if any, below one program.
type definition struct {
	name string
	// distribution is a directory of files; see distributionFiles.
	distribution string
	// upgrades are versions of packages of Debian by source package, in place of those in the distribution's files.
	upgrades map[string]string
	// program is the name of the program in the image; the last part of name if empty.
	program string
	// dir is the Go module and pkg the command in it, relative to the project's root.
	dir, pkg string
	// args follow the program in the image's entry point.
	args []string
	// tags are the build tags of the program and of those in bin.
	tags string
	// bin are further programs, each at /bin/<name>; the program has a link there, too.
	bin []tool
	// packages of Debian lie below everything else; see debianPackages. The entry point is then entrypoint.sh of the
	// distribution, run by user; there is no program.
	packages []string
	user     string
}

// tool is a further program of an image: the command pkg in the Go module dir.
type tool struct{ name, dir, pkg string }

// Where OLM and opm are pinned, and how they are built by their own projects, without C.
const (
	olmDir  = "hack/tools/olm"
	olmCmd  = "github.com/operator-framework/operator-lifecycle-manager/"
	opmDir  = "hack/tools/opm"
	olmTags = "json1,containers_image_openpgp,exclude_graphdriver_btrfs"
)

// definitions is every image. Several have the same program under another name, so that each image has an entry point
// that tells what it plays.
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

// packageDatabases says where each distribution keeps its list of installed packages, and the directories beside it by
// which Clair knows it.
var packageDatabases = map[string]struct {
	file, path string
	beside     []string
}{
	"debian-12":   {"status", "/var/lib/dpkg/status", []string{"/var/lib/dpkg/info"}},
	"alpine-3.18": {"installed", "/lib/apk/db/installed", nil},
	"rocky-9":     {"rpmdb.sqlite.gz", "/var/lib/rpm/rpmdb.sqlite", nil},
}

// directoryMode is that of the directories which images bring along.
const directoryMode = fs.ModeDir | 0o755
