package image

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Reference is a normalized image reference: the default registry and the default tag are written out.
type Reference struct {
	// Repository with its registry, such as "docker.io/library/nginx". Announcements are grouped by it.
	Repository string
	// Tag is empty when the reference has only a digest.
	Tag string
	// Digest is empty when the reference has only a tag.
	Digest string
}

// ParseReference parses the image of a container in a pod spec: "nginx", "nginx:1.25", "ghcr.io/a/b@sha256:…",
// "repo:tag@sha256:…".
func ParseReference(s string) (Reference, error) {
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return Reference{}, fmt.Errorf("image reference %q: %w", s, err)
	}
	ref := Reference{Repository: named.Name()}
	// A tag beside a digest is kept, since people know images by their tags.
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok {
		ref.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		ref.Digest = digested.Digest().String()
	}
	return ref, nil
}

// String returns repository[:tag], or repository@digest without a tag.
func (r Reference) String() string {
	switch {
	case r.Tag != "":
		return r.Repository + ":" + r.Tag
	case r.Digest != "":
		return r.Repository + "@" + r.Digest
	}
	return r.Repository
}

// ShortDigestLength is the number of hexadecimal digits that identify a digest to people.
const ShortDigestLength = 12

// Short returns the reference for people, in at most limit bytes: without its registry and without the first parts of its repository as long as
// it is longer than limit. A digest is cut to ShortDigestLength digits. What is still too long loses its end.
func (r Reference) Short(limit int) string {
	version := ""
	if _, digits, ok := strings.Cut(r.Digest, ":"); ok {
		version = "@" + digits[:min(len(digits), ShortDigestLength)]
	}
	if r.Tag != "" {
		version = ":" + r.Tag
	}
	name := r.Repository
	if named, err := reference.WithName(r.Repository); err == nil {
		name = reference.Path(named)
	}
	name = strings.TrimPrefix(name, "library/")
	for len(name)+len(version) > limit {
		_, rest, ok := strings.Cut(name, "/")
		if !ok {
			break
		}
		name = rest
	}
	return text.Truncate(name+version, limit)
}

// PullReferences returns the references to pull the image with this digest from, best first. The repositories come in the order
// given: callers pass those of pod specs first, then the one that the container runtime reported. The latter comes last, since it
// may be another repository that happens to hold the same digest (kubernetes/kubernetes#95385). Empty and duplicate repositories
// are skipped.
func PullReferences(digest string, repositories ...string) []string {
	var refs []string
	for _, repository := range repositories {
		ref := repository + "@" + digest
		if repository != "" && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}
