package image

import (
	"fmt"
	"slices"

	"github.com/distribution/reference"
)

// Reference is an image reference with everything implied written out.
type Reference struct {
	// Repository with its registry, such as "docker.io/library/nginx". This is what announcements group by.
	Repository string
	// Tag is empty when the reference has only a digest.
	Tag string
	// Digest is empty when the reference has only a tag.
	Digest string
}

// ParseReference reads what a pod's spec may say: "nginx", "nginx:1.25", "ghcr.io/a/b@sha256:…", "repo:tag@sha256:…".
func ParseReference(s string) (Reference, error) {
	named, err := reference.ParseDockerRef(s)
	if err != nil {
		return Reference{}, fmt.Errorf("image reference %q: %w", s, err)
	}
	ref := Reference{Repository: named.Name()}
	// ParseDockerRef drops a tag beside a digest; it is kept here, since people know images by their tags.
	if full, err := reference.ParseNormalizedNamed(s); err == nil {
		if tagged, ok := full.(reference.Tagged); ok {
			ref.Tag = tagged.Tag()
		}
	}
	if tagged, ok := named.(reference.Tagged); ok {
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

// PullReferences returns where to pull the image with the given digest from, best first: the repositories
// that pod specs name, then the one that the container runtime reported. The latter may be another
// repository that happens to hold the same digest, so it only comes last (kubernetes/kubernetes#95385).
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
