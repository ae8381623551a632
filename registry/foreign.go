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

// ownLayers is an image whose layers come from its registry and from nowhere else. The client library also asks the addresses
// that a manifest names: who wrote it decides where they lead, and what is answered there would count as the registry's answer.
type ownLayers struct {
	v1.Image
	guard *guard
	// foreign are the layers for which the manifest names addresses, or which do not have to be in the registry.
	foreign map[v1.Hash]v1.Descriptor
	// get returns a layer by its digest alone.
	get func(v1.Hash) (v1.Layer, error)
}

// withOwnLayers drops all addresses that a manifest names for its layers.
func withOwnLayers(image v1.Image, manifest *v1.Manifest, guard *guard, get func(v1.Hash) (v1.Layer, error)) v1.Image {
	foreign := map[v1.Hash]v1.Descriptor{}
	for _, layer := range manifest.Layers {
		if isForeign(layer) {
			foreign[layer.Digest] = layer
		}
	}
	if len(foreign) == 0 {
		return image
	}
	return &ownLayers{Image: image, guard: guard, foreign: foreign, get: get}
}

func isForeign(layer v1.Descriptor) bool {
	return len(layer.URLs) > 0 || !layer.MediaType.IsDistributable()
}

// Layers implements v1.Image.
func (i *ownLayers) Layers() ([]v1.Layer, error) {
	layers, err := i.Image.Layers()
	if err != nil {
		return nil, err
	}
	for n := range layers {
		if layers[n], err = i.own(layers[n]); err != nil {
			return nil, err
		}
	}
	return layers, nil
}

// LayerByDigest implements v1.Image.
func (i *ownLayers) LayerByDigest(digest v1.Hash) (v1.Layer, error) {
	layer, err := i.Image.LayerByDigest(digest)
	if err != nil {
		return nil, err
	}
	return i.own(layer)
}

// LayerByDiffID implements v1.Image.
func (i *ownLayers) LayerByDiffID(diffID v1.Hash) (v1.Layer, error) {
	layer, err := i.Image.LayerByDiffID(diffID)
	if err != nil {
		return nil, err
	}
	return i.own(layer)
}

// own returns the layer as the registry has it.
func (i *ownLayers) own(layer v1.Layer) (v1.Layer, error) {
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

// foreignLayer has the content of the registry, and all else from the manifest.
type foreignLayer struct {
	v1.Layer
	inRegistry v1.Layer
	descriptor v1.Descriptor
	guard      *guard
}

// Compressed implements v1.Layer.
func (l *foreignLayer) Compressed() (io.ReadCloser, error) {
	content, err := l.inRegistry.Compressed()
	return content, l.explain(err)
}

// Uncompressed implements v1.Layer.
func (l *foreignLayer) Uncompressed() (io.ReadCloser, error) {
	content, err := l.inRegistry.Uncompressed()
	return content, l.explain(err)
}

// explain gives the error its reason: that the registry does not have such a layer says something else than of other layers.
func (l *foreignLayer) explain(err error) error {
	if err = l.guard.classify(err); !hasReason(err, workerapi.ReasonImageNotFound) {
		return err
	}
	return errForeign(l.descriptor)
}

// errForeign is about a layer that is not in its registry.
func errForeign(layer v1.Descriptor) error {
	at := ""
	if len(layer.URLs) > 0 {
		address, err := url.Parse(layer.URLs[0])
		if err == nil {
			at = address.Host
		}
		at = fmt.Sprintf(" but at %.100q, which is not asked", cmp.Or(at, "another address"))
	}
	return failure.New(workerapi.ReasonForeignLayer, fmt.Errorf("layer %s (%.100s) is foreign: it is not in the registry%s; "+
		"push the image with all its layers (Docker: allow-nondistributable-artifacts in daemon.json)", layer.Digest, layer.MediaType, at))
}
