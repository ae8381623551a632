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

// What there is to scan.
const (
	// imageCount images are on baseCount bases of two layers each, and have one layer of their own.
	imageCount = 500
	baseCount  = 10
	// packageCount packages of Debian are in each image, of poolSize that there are; bases overlap.
	packageCount = 120
	poolSize     = packageCount + (baseCount-1)*12
	// Of every stride packages, vulnerable have advisoriesEach advisories: 100 findings in an image. Each later version of
	// the advisories adds advisoriesEach to another one.
	stride, vulnerable, advisoriesEach = 12, 5, 2
	// addedFindings are those of an image with each version.
	addedFindings = packageCount / stride * advisoriesEach
	// baseBytes and ownBytes are how large layers are besides their packages.
	baseBytes, ownBytes = 2 << 20, 256 << 10
)

const debianRelease = `PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
NAME="Debian GNU/Linux"
VERSION_ID="12"
VERSION="12 (bookworm)"
VERSION_CODENAME=bookworm
ID=debian
`

// platform of all images is that of this machine.
var platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// content is all images, and their layers' digests by whether several images share them.
type content struct {
	images      []v1.Image
	shared, own []string
}

// newContent makes the images.
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

// layer makes one with so many bytes that no other one has, and notes its digest.
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

// debian are the files by which Clair knows the packages of a base.
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

// advisory is one as test/fixtures/advisories has them.
type advisory struct {
	ID          string `json:"id"`
	Package     string `json:"package"`
	Fixed       string `json:"fixed"`
	Severity    string `json:"severity"`
	Description string `json:"description"`
}

// writeAdvisories writes a directory of advisories about the invented packages. Every version has those before.
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
