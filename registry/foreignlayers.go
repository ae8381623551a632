package registry

import (
	"cmp"
	"fmt"
	"io"
	"net/url"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// registryOnlyImage is an image whose layers are pulled only from its registry. The client library would also try the URLs that the manifest
// names for its layers. The author of the manifest chooses those URLs, and their answers would count as the registry's.
type registryOnlyImage struct {
	v1.Image
	guard *guard
	// foreign are the layers that have URLs in the manifest, or that a registry need not have.
	foreign map[v1.Hash]v1.Descriptor
	// get returns a layer of the image's repository, by its digest alone.
	get func(v1.Hash) (v1.Layer, error)
}

// withoutForeignURLs returns the image without the URLs that its manifest names for layers.
func withoutForeignURLs(image v1.Image, manifest *v1.Manifest, guard *guard, get func(v1.Hash) (v1.Layer, error)) v1.Image {
	foreign := map[v1.Hash]v1.Descriptor{}
	for _, layer := range manifest.Layers {
		if isForeign(layer) {
			foreign[layer.Digest] = layer
		}
	}
	if len(foreign) == 0 {
		return image
	}
	return &registryOnlyImage{Image: image, guard: guard, foreign: foreign, get: get}
}

func isForeign(layer v1.Descriptor) bool {
	return len(layer.URLs) > 0 || !layer.MediaType.IsDistributable()
}

// Layers implements v1.Image.
func (i *registryOnlyImage) Layers() ([]v1.Layer, error) {
	layers, err := i.Image.Layers()
	if err != nil {
		return nil, err
	}
	for n := range layers {
		if layers[n], err = i.fromRegistry(layers[n]); err != nil {
			return nil, err
		}
	}
	return layers, nil
}

// LayerByDigest implements v1.Image.
func (i *registryOnlyImage) LayerByDigest(digest v1.Hash) (v1.Layer, error) {
	layer, err := i.Image.LayerByDigest(digest)
	if err != nil {
		return nil, err
	}
	return i.fromRegistry(layer)
}

// LayerByDiffID implements v1.Image.
func (i *registryOnlyImage) LayerByDiffID(diffID v1.Hash) (v1.Layer, error) {
	layer, err := i.Image.LayerByDiffID(diffID)
	if err != nil {
		return nil, err
	}
	return i.fromRegistry(layer)
}

// fromRegistry returns the layer with the registry's content.
func (i *registryOnlyImage) fromRegistry(layer v1.Layer) (v1.Layer, error) {
	digest, err := layer.Digest()
	if err != nil {
		return nil, err
	}
	descriptor, found := i.foreign[digest]
	if !found {
		return layer, nil
	}
	inRegistry, err := i.get(digest)
	if err != nil {
		return nil, err
	}
	return &foreignLayer{Layer: layer, inRegistry: inRegistry, descriptor: descriptor, guard: i.guard}, nil
}

// foreignLayer reads its content from the registry, and everything else from the manifest.
type foreignLayer struct {
	v1.Layer
	inRegistry v1.Layer
	descriptor v1.Descriptor
	guard      *guard
}

// Compressed implements v1.Layer.
func (l *foreignLayer) Compressed() (io.ReadCloser, error) {
	content, err := l.inRegistry.Compressed()
	return content, l.classifyForeign(err)
}

// Uncompressed implements v1.Layer.
func (l *foreignLayer) Uncompressed() (io.ReadCloser, error) {
	content, err := l.inRegistry.Uncompressed()
	return content, l.classifyForeign(err)
}

// classifyForeign classifies an error. It replaces "not found" by ForeignLayer: unlike other layers, a foreign one need not be in the registry.
func (l *foreignLayer) classifyForeign(err error) error {
	if err = l.guard.classify(err); reason(err) != workerapi.ReasonImageNotFound {
		return err
	}
	return newForeignLayerError(l.descriptor)
}

// newForeignLayerError returns the error for a foreign layer that is not in its registry.
func newForeignLayerError(layer v1.Descriptor) error {
	at := ""
	if len(layer.URLs) > 0 {
		address, err := url.Parse(layer.URLs[0])
		if err == nil {
			at = address.Host
		}
		at = fmt.Sprintf(" but at %.100q, which is not used", cmp.Or(at, "another address"))
	}
	return failure.New(workerapi.ReasonForeignLayer, fmt.Errorf("layer %s (%.100s) is foreign: it is not in the registry%s; "+
		"push the image with all its layers (Docker: allow-nondistributable-artifacts in daemon.json)", layer.Digest, layer.MediaType, at))
}
