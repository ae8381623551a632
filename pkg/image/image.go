// Package image identifies container images: what a node runs, where it can be pulled from, and for which platform.
//
// It only computes. It accesses no registry and knows no Kubernetes objects.
package image

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Key identifies one image as a node runs it. Two pods with equal keys run the same bytes.
type Key struct {
	// Digest is the digest in the pod's imageID: usually of an index, sometimes of the platform's manifest.
	Digest string
	// Platform is the node's platform.
	Platform Platform
}

// String returns digest and platform, "sha256:…;linux/amd64".
func (k Key) String() string { return k.Digest + ";" + k.Platform.String() }

// Platform is the operating system and CPU architecture that a node runs or an image is built for.
type Platform struct {
	OS, Architecture, Variant string
	// OSVersion is the version of Windows that a node runs, such as 10.0.20348: a node runs only images for its own version. Empty for any other system.
	OSVersion string
}

// windowsVersion is the part of a version of Windows that decides which images a node runs. Updates change what follows.
var windowsVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+`)

// NewPlatform returns a platform of an operating system and an architecture, as Go names them. osVersion is that of the system or of its kernel, of
// which only what decides about images is kept.
func NewPlatform(os, architecture, osVersion string) Platform {
	p := Platform{OS: os, Architecture: architecture}
	if os == "windows" {
		p.OSVersion = windowsVersion.FindString(osVersion)
	}
	return p
}

// ParsePlatform parses os/architecture[/variant][:osversion].
func ParsePlatform(s string) (Platform, error) {
	bare, osVersion, hasVersion := strings.Cut(s, ":")
	parts := strings.Split(bare, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") || hasVersion && osVersion == "" {
		return Platform{}, fmt.Errorf("platform %q: want os/architecture, os/architecture/variant or, with a version of Windows, os/architecture:version", s)
	}
	p := Platform{OS: parts[0], Architecture: parts[1], OSVersion: osVersion}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	return p, nil
}

// String returns os/architecture[/variant][:osversion].
func (p Platform) String() string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	if p.OSVersion != "" {
		s += ":" + p.OSVersion
	}
	return s
}

var (
	digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	hexPattern    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ValidDigest reports whether s is a SHA-256 digest as registries write it.
func ValidDigest(s string) bool { return digestPattern.MatchString(s) }

// ID is a parsed imageID of a container.
type ID struct {
	// Repository that the container runtime reports; empty for a bare image ID.
	Repository string
	// Digest of an index or manifest, or of the image's configuration if Bare is true.
	Digest string
	// Bare means that Digest is an image ID: it identifies an image on the node, but nothing in a registry.
	Bare bool
}

// ParseID parses the forms of status.containerStatuses[].imageID that container runtimes write:
//
//	repo@sha256:…                    containerd, CRI-O (usually the digest of an index)
//	docker-pullable://repo@sha256:…  dockershim
//	docker://sha256:…, sha256:…      built or loaded on the node: an image ID
//	64 hexadecimal digits            CRI-O, for an image without a repository digest: an image ID
func ParseID(s string) (ID, error) {
	rest := s
	if _, after, found := strings.Cut(s, "://"); found {
		rest = after
	}
	repository, digest, found := strings.Cut(rest, "@")
	if !found {
		repository, digest = "", rest
	}
	if repository == "" && hexPattern.MatchString(digest) {
		digest = "sha256:" + digest
	}
	if !ValidDigest(digest) {
		return ID{}, fmt.Errorf("imageID %q: no SHA-256 digest in it", s)
	}
	return ID{Repository: repository, Digest: digest, Bare: repository == ""}, nil
}
