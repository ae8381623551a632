package clair

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// Sizes of the images and of the advisories.
const (
	// imageCount images have baseCount bases. A base has two layers, and each image adds one layer of its own.
	imageCount = 500
	baseCount  = 10
	// Each image has packageCount Debian packages out of poolSize. The packages of different bases overlap.
	packageCount = 120
	poolSize     = packageCount + (baseCount-1)*12
	// vulnerable of every stride packages have advisoriesEach advisories: 100 findings in an image. Each later version of the advisories
	// adds advisoriesEach advisories to one more package of every stride.
	stride, vulnerable, advisoriesEach = 12, 5, 2
	// addedFindings is the number of findings that each version adds to an image.
	addedFindings = packageCount / stride * advisoriesEach
	// baseBytes and ownBytes are the sizes of the random data in a base layer and in an image's own layer.
	baseBytes, ownBytes = 2 << 20, 256 << 10
)

const debianRelease = `PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
NAME="Debian GNU/Linux"
VERSION_ID="12"
VERSION="12 (bookworm)"
VERSION_CODENAME=bookworm
ID=debian
`

// platform is the platform of all images, that of this machine.
var platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// content holds all images, and the digests of their layers: shared by several images, or own.
type content struct {
	images      []v1.Image
	shared, own []string
}

// newContent builds the images.
func newContent() (*content, error) {
	c := &content{}
	for base := range baseCount {
		system, err := c.layer(&c.shared, debian(base), baseBytes)
		if err != nil {
			return nil, err
		}
		libraries, err := c.layer(&c.shared, nil, baseBytes)
		if err != nil {
			return nil, err
		}
		for range imageCount / baseCount {
			service, err := c.layer(&c.own, nil, ownBytes)
			if err != nil {
				return nil, err
			}
			image, err := build.Image(build.Config{Platform: platform, Entrypoint: []string{"/service"}}, system, libraries, service)
			if err != nil {
				return nil, err
			}
			c.images = append(c.images, image)
		}
	}
	return c, nil
}

// layer returns a layer with the given number of unique random bytes and appends its digest to digests.
func (c *content) layer(digests *[]string, files map[string]build.File, bytes int) (v1.Layer, error) {
	noise := make([]byte, bytes)
	random := rand.NewChaCha8([32]byte{byte(len(c.shared)), byte(len(c.own)), byte(len(c.own) >> 8)})
	_, _ = random.Read(noise) // never fails
	all := map[string]build.File{fmt.Sprintf("/usr/share/data/%d-%d", len(c.shared), len(c.own)): {Content: noise}}
	for name, file := range files {
		all[name] = file
	}
	layer, err := build.Files(all)
	if err != nil {
		return nil, err
	}
	digest, err := layer.Digest()
	*digests = append(*digests, digest.String())
	return layer, err
}

// debian returns the files from which Clair reads the packages of a base.
func debian(base int) map[string]build.File {
	var status strings.Builder
	for n := range packageCount {
		fmt.Fprintf(&status, "Package: %s\nStatus: install ok installed\nPriority: optional\nSection: libs\nInstalled-Size: 100\n"+
			"Maintainer: Nobody <nobody@example.com>\nArchitecture: %s\nVersion: 1.2.3-1\nDescription: an invented library\n it is in no distribution\n\n",
			libraryName(base*stride+n), runtime.GOARCH)
	}
	return map[string]build.File{
		"/etc/os-release":      {Content: []byte(debianRelease)},
		"/var/lib/dpkg/status": {Content: []byte(status.String())},
		"/var/lib/dpkg/info":   {Mode: fs.ModeDir | 0o755},
	}
}

func libraryName(n int) string { return fmt.Sprintf("libinvented-%03d", n) }

// advisory is one advisory in the format of test/fixtures/advisories.
type advisory struct {
	ID          string `json:"id"`
	Package     string `json:"package"`
	Fixed       string `json:"fixed"`
	Severity    string `json:"severity"`
	Description string `json:"description"`
}

// writeAdvisories writes a directory of advisories for the invented packages. Each version contains those of the versions before.
func writeAdvisories(dir string, version int) error {
	severities := []string{"Critical", "High", "Medium", "Low", "Negligible"}
	var all []advisory
	for n := range poolSize {
		if n%stride >= vulnerable+version {
			continue
		}
		for k := range advisoriesEach {
			number := n*advisoriesEach + k
			all = append(all, advisory{
				ID: fmt.Sprintf("CVE-2025-9%04d", number), Package: libraryName(n), Fixed: "1.2.3-1+deb12u1", Severity: severities[number%len(severities)],
				Description: "A flaw was found in the way that the library reads its input, which lets a remote attacker do what it should not.",
			})
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "debian-12.json"), text, 0o600)
}
