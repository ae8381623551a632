package scenario

import (
	"context"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
	"github.com/scanner-operator/scanner-operator/test/images"
)

func (e *Environment) pushWorkloads(ctx context.Context) (string, error) {
	for _, name := range images.Scanned() {
		if err := e.PushBuilt(ctx, name); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d images in %s", len(images.Scanned()), e.repository("shop")), nil
}

func (e *Environment) loadImage(name string) (v1.Image, error) {
	image, err := images.Load(ImagesDir(e.Root), name)
	if err != nil {
		return nil, fmt.Errorf("%w (make fixture-images)", err)
	}
	return image, nil
}

// PushBuilt pushes an image of package images under its own name.
func (e *Environment) PushBuilt(ctx context.Context, name string) error {
	image, err := e.loadImage(name)
	if err != nil {
		return err
	}
	_, err = e.Push(ctx, name, image)
	return err
}

// Push pushes an image and returns its reference by digest.
func (e *Environment) Push(ctx context.Context, name string, image v1.Image) (string, error) {
	digest, err := build.Push(ctx, e.Reference(name), image)
	if err != nil {
		return "", err
	}
	return digest.String(), nil
}

// PushVariant pushes an image of the demo with one more file under another name. The result is a different image with the same
// vulnerabilities.
func (e *Environment) PushVariant(ctx context.Context, of, name string) (string, error) {
	base, err := e.loadImage(of)
	if err != nil {
		return "", err
	}
	layer, err := build.Files(map[string]build.File{"/etc/variant": {Content: []byte(name + "\n")}})
	if err != nil {
		return "", err
	}
	variant, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return "", err
	}
	return e.Push(ctx, name, variant)
}

// pushFiles pushes an image that serves the files of a directory.
func (e *Environment) pushFiles(ctx context.Context, name, dir string) (string, error) {
	base, err := e.loadImage(images.Files)
	if err != nil {
		return "", err
	}
	files, err := filesBelow(os.DirFS(dir), images.FilesDir)
	if err != nil {
		return "", err
	}
	layer, err := build.Files(files)
	if err != nil {
		return "", err
	}
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return "", err
	}
	return e.Push(ctx, name, image)
}
