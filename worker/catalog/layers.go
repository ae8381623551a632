package catalog

import (
	"archive/tar"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	stereoscopefile "github.com/anchore/stereoscope/pkg/file"
	"github.com/anchore/stereoscope/pkg/filetree"
	"github.com/anchore/stereoscope/pkg/image"
	"github.com/anchore/syft/syft/source"
	"github.com/anchore/syft/syft/source/stereoscopesource"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/document"
)

// open pulls and indexes all layers. The result is the same as that of Syft's "oci-registry" source after its own pull.
func (l Limits) open(ctx context.Context, img *registry.Image, temp *stereoscopefile.TempDirGenerator) (source.Source, error) {
	dir, err := temp.NewDirectory("layers")
	if err != nil {
		return nil, err
	}
	content := image.New(img.Content, temp, dir)
	if err := l.read(ctx, img, content, dir); err != nil {
		return nil, errors.Join(err, content.Cleanup())
	}
	return stereoscopesource.New(content, stereoscopesource.ImageConfig{Reference: img.Reference.String()}), nil
}

// read does what the library's Image.Read does, with one file tree for all layers. The library keeps a tree of the whole
// image for each layer, which takes gigabytes for a few hundred layers on top of a distribution.
func (l Limits) read(ctx context.Context, img *registry.Image, content *image.Image, dir string) (err error) {
	if content.Metadata, err = metadata(img); err != nil {
		return err
	}
	layers, err := boundLayers(img.Content, l.Scratch)
	if err != nil {
		return err
	}
	catalog := image.NewFileCatalog()
	unpacked := unpacked{}
	for i, layer := range layers {
		// Reading an empty layer does not check the context.
		if err := ctx.Err(); err != nil {
			return err
		}
		read := image.NewLayer(layer)
		if err := unpacked.add(layer, i, dir); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		}
		if err := read.Read(catalog, i, dir); err != nil {
			return err
		}
		content.Metadata.Size += read.Metadata.Size
		content.Layers = append(content.Layers, read)
	}
	tree, err := squash(content.Layers)
	if err != nil {
		return err
	}
	// Catalogers search the squashed tree of the last layer, which is the image as it runs.
	if len(content.Layers) > 0 {
		top := content.Layers[len(content.Layers)-1]
		top.SquashedTree, top.SquashedSearchContext = tree, filetree.NewSearchContext(tree, catalog.Index)
	}
	content.FileCatalog = catalog
	content.SquashedSearchContext = filetree.NewSearchContext(tree, catalog)
	return nil
}

// maxPath is the length in bytes from which no kernel accepts a path (PATH_MAX of Linux). Each directory of a path
// costs memory and time here. Paths of a few ten thousand directories would take practically forever.
const maxPath = 4096

// unpacked holds the files of unpacked layers by their diff IDs.
type unpacked map[v1.Hash]string

// add unpacks a layer to the file where the library expects it (stereoscope v0.4, pkg/image/layer.go). It returns an error for
// content that the library cannot handle.
func (u unpacked) add(layer v1.Layer, index int, dir string) error {
	// The library rejects other types, or reads them in another way.
	if mediaType, err := layer.MediaType(); err != nil || !strings.Contains(string(mediaType), ".tar") {
		return err
	}
	digest, err := layer.DiffID()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, fmt.Sprintf("%d-%s-%s", index, digest.Algorithm, digest.Hex))
	if below, known := u[digest]; known {
		return os.Link(below, path)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := copyVerified(file, layer, digest); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	u[digest] = path
	return checkPaths(file)
}

// copyVerified copies a layer and checks its diff ID against the image's configuration. Nodes do the same: they do not start an
// image with another diff ID.
func copyVerified(to io.Writer, layer v1.Layer, want v1.Hash) error {
	digest, err := v1.Hasher(want.Algorithm)
	if err != nil {
		return fmt.Errorf("the image's configuration has the diff ID %s: %w", want, err)
	}
	content, err := layer.Uncompressed()
	if err != nil {
		return err
	}
	defer content.Close()
	if _, err := io.Copy(io.MultiWriter(to, digest), content); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != want.Hex {
		return fmt.Errorf("its content has the digest %s:%s, and the image's configuration has %s", want.Algorithm, got, want)
	}
	return nil
}

// checkPaths returns an error if an archive has a path of maxPath bytes or more.
func checkPaths(archive io.Reader) error {
	entries := tar.NewReader(archive)
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if longest := max(len(entry.Name), len(entry.Linkname)); longest >= maxPath {
			return fmt.Errorf("the archive has a path of %d bytes, which no node can unpack: %.40q…", longest, entry.Name)
		}
	}
}

// squash merges the trees of all layers, from the lowest to the top.
func squash(layers []*image.Layer) (filetree.Reader, error) {
	if len(layers) == 0 {
		return filetree.New(), nil
	}
	// Squashing the lowest layer removes its own whiteouts, which a copy of its tree would keep.
	lowest := filetree.NewUnionFileTree()
	own, ok := layers[0].Tree.(filetree.ReadWriter)
	if !ok {
		return nil, fmt.Errorf("the tree of a layer is a %T, which cannot be changed", layers[0].Tree)
	}
	lowest.PushTree(own)
	tree, err := lowest.Squash()
	if err != nil {
		return nil, err
	}
	for i, layer := range layers[1:] {
		if err := tree.Merge(layer.Tree); err != nil {
			return nil, fmt.Errorf("putting layer %d of %d on those below: %w", i+2, len(layers), err)
		}
	}
	return tree, nil
}

// metadata returns the metadata of an image with its digests. It sets neither platform nor tags, so that an odd configuration of the
// image does not prevent packages from being found.
func metadata(img *registry.Image) (image.Metadata, error) {
	manifest, err := img.Content.RawManifest()
	if err != nil {
		return image.Metadata{}, err
	}
	raw, err := img.Content.RawConfigFile()
	if err != nil {
		return image.Metadata{}, err
	}
	config, err := img.Content.ConfigFile()
	if err != nil {
		return image.Metadata{}, err
	}
	id, err := img.Content.ConfigName()
	if err != nil {
		return image.Metadata{}, err
	}
	mediaType, err := img.Content.MediaType()
	if err != nil {
		return image.Metadata{}, err
	}
	return image.Metadata{
		ID: id.String(), Config: *config, RawConfig: raw, MediaType: mediaType,
		RawManifest: manifest, ManifestDigest: document.Digest(manifest).String(),
		RepoDigests: []string{fmt.Sprintf("%s@%s", img.Reference.Context().Name(), img.Root)},
	}, nil
}

// boundLayers returns the layers with a common limit. Reading them fails once they have more than limit uncompressed bytes together.
func boundLayers(content v1.Image, limit int64) ([]v1.Layer, error) {
	layers, err := content.Layers()
	if err != nil {
		return nil, err
	}
	budget := &budget{limit: limit}
	var compressed int64
	bounded := make([]v1.Layer, len(layers))
	for i, layer := range layers {
		size, err := layer.Size()
		if err != nil {
			return nil, err
		}
		// A negative size would disable the check that a registry sends no more bytes than that.
		if size < 0 {
			return nil, fmt.Errorf("layer %d has a size of %d bytes in the manifest", i+1, size)
		}
		if compressed += size; limit > 0 && (compressed > limit || compressed < 0) {
			return nil, tooLarge(limit, "its compressed layers have")
		}
		bounded[i] = &boundedLayer{Layer: layer, budget: budget}
	}
	return bounded, nil
}
