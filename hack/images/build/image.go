package build

import (
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// NonRoot is the default user and group of images: the number that distroless images established. It is numeric so that Kubernetes can
// verify runAsNonRoot.
const NonRoot = "65532:65532"

// Config is the runtime configuration and the labels of an image.
type Config struct {
	// Platform is required: container runtimes reject an image without a platform.
	Platform v1.Platform
	// Entrypoint is the program and its first arguments.
	Entrypoint []string
	// Cmd holds the default arguments.
	Cmd []string
	// Env is the default environment, each entry "KEY=value". PATH is set unless given.
	Env []string
	// User is "uid:gid"; empty means NonRoot.
	User string
	// WorkingDir is absolute; empty means /.
	WorkingDir string
	// Labels are the labels of the image (org.opencontainers.image.…).
	Labels map[string]string
}

// Image returns an image of the layers, base first, with the given configuration.
func Image(config Config, layers ...v1.Layer) (v1.Image, error) {
	if config.Platform.OS == "" || config.Platform.Architecture == "" {
		return nil, fmt.Errorf("image without a platform: give at least os and architecture")
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, additions(layers)...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant = config.Platform.OS, config.Platform.Architecture, config.Platform.Variant
	file.Created = v1.Time{Time: timestamp}
	file.Config = config.runtime()
	return mutate.ConfigFile(image, file)
}

func additions(layers []v1.Layer) []mutate.Addendum {
	added := make([]mutate.Addendum, 0, len(layers))
	for _, layer := range layers {
		added = append(added, mutate.Addendum{
			Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: timestamp}, CreatedBy: "hack/images"},
		})
	}
	return added
}

// runtime returns the part of the configuration that a container runtime reads.
func (c Config) runtime() v1.Config {
	env := slices.Clone(c.Env)
	if !slices.ContainsFunc(env, func(entry string) bool { return len(entry) > 5 && entry[:5] == "PATH=" }) {
		env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	runtime := v1.Config{Entrypoint: c.Entrypoint, Cmd: c.Cmd, Env: env, User: c.User, WorkingDir: c.WorkingDir, Labels: c.Labels}
	if runtime.User == "" {
		runtime.User = NonRoot
	}
	if runtime.WorkingDir == "" {
		runtime.WorkingDir = "/"
	}
	return runtime
}

// Index returns an index of the images, one for each platform.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		file, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: file.Platform()}})
	}
	return index, nil
}
