package build

import (
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// Save writes an image or an index to dir as an OCI layout and replaces the directory's content. Saving separates building from pushing:
// compiling needs the internet, which the local cluster's network cannot reach.
func Save(dir string, image Pushable) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	into, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	switch saved := image.(type) {
	case v1.ImageIndex:
		return into.AppendIndex(saved)
	case v1.Image:
		return into.AppendImage(saved)
	default:
		return fmt.Errorf("%T is neither an image nor an index", image)
	}
}

// Load reads an image or an index that Save wrote.
func Load(dir string) (Pushable, error) {
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("no saved image in %s (build it first): %w", dir, err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s holds %d images; expected one", dir, len(manifest.Manifests))
	}
	only := manifest.Manifests[0]
	if only.MediaType.IsIndex() {
		return root.ImageIndex(only.Digest)
	}
	return root.Image(only.Digest)
}
