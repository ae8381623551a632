package registrytest

import (
	"encoding/json"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// RawImage returns an image for linux/amd64 with the layers unchanged, whether they can be unpacked or not.
func RawImage(t testing.TB, mediaType types.MediaType, layers ...[]byte) v1.Image {
	t.Helper()
	image := v1.Image(empty.Image)
	for _, layer := range layers {
		var err error
		if image, err = mutate.AppendLayers(image, static.NewLayer(layer, mediaType)); err != nil {
			t.Fatal(err)
		}
	}
	return WithPlatform(t, image, v1.Platform{OS: "linux", Architecture: "amd64"})
}

// Chart returns a Helm chart as registries store it.
func Chart(t testing.TB) v1.Image {
	t.Helper()
	chart := RawImage(t, "application/vnd.cncf.helm.chart.content.v1.tar+gzip", []byte("a chart"))
	chart = WithPlatform(t, chart, v1.Platform{})
	return mutate.ConfigMediaType(chart, "application/vnd.cncf.helm.config.v1+json")
}

// manifest is a manifest that can be pushed without an image.
type manifest struct {
	raw       []byte
	mediaType types.MediaType
}

func (m manifest) RawManifest() ([]byte, error)        { return m.raw, nil }
func (m manifest) MediaType() (types.MediaType, error) { return m.mediaType, nil }

// PushManifest pushes a manifest of any content, and returns its reference.
func (r *Registry) PushManifest(t testing.TB, repository string, mediaType types.MediaType, raw []byte) string {
	t.Helper()
	reference := r.Host + "/" + repository
	if err := remote.Put(r.parse(t, reference), manifest{raw: raw, mediaType: mediaType}); err != nil {
		t.Fatal(err)
	}
	return reference
}

// PushModified pushes an image with the manifest that lie has changed, and returns its reference.
func (r *Registry) PushModified(t testing.TB, repository string, image v1.Image, modify func(*v1.Manifest)) string {
	t.Helper()
	r.Push(t, repository, image)
	original, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	changed := original.DeepCopy()
	modify(changed)
	raw, err := json.Marshal(changed)
	if err != nil {
		t.Fatal(err)
	}
	return r.PushManifest(t, repository, original.MediaType, raw)
}
