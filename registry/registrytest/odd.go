package registrytest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
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

// Linked returns the documents in a fuzzed text, which lines of three hyphens separate. In each document, "@2" stands for the digest of the third
// document, and so on for all later ones. Linked returns nil if there are more than eight documents: it would take too long to link them.
func Linked(text []byte) [][]byte {
	const most = 8
	documents := bytes.Split(text, []byte("\n---\n"))
	if len(documents) > most {
		return nil
	}
	for n := len(documents) - 1; n >= 0; n-- {
		for later := n + 1; later < len(documents); later++ {
			documents[n] = bytes.ReplaceAll(documents[n], fmt.Appendf(nil, "@%d", later), fmt.Appendf(nil, "sha256:%x", sha256.Sum256(documents[later])))
		}
	}
	return documents
}
