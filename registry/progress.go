package registry

import (
	"errors"
	"io"
	"log/slog"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// loggedImage says which layer is being pulled, and gives the errors of pulling their reasons.
type loggedImage struct {
	v1.Image
	log   *slog.Logger
	guard *guard
}

// Layers implements v1.Image.
func (i *loggedImage) Layers() ([]v1.Layer, error) {
	layers, err := i.Image.Layers()
	if err != nil {
		return nil, i.guard.classify(err)
	}
	// The wrapping is invisible to who reads the layers: only Uncompressed says a word.
	logged := make([]v1.Layer, len(layers))
	for n, layer := range layers {
		logged[n] = &loggedLayer{Layer: layer, image: i, number: n + 1, of: len(layers)}
	}
	return logged, nil
}

type loggedLayer struct {
	v1.Layer
	image      *loggedImage
	number, of int
}

// Uncompressed implements v1.Layer.
func (l *loggedLayer) Uncompressed() (io.ReadCloser, error) {
	// Both are in the manifest; without them the line is less telling, no more.
	size, _ := l.Layer.Size()
	digest, _ := l.Layer.Digest()
	l.image.log.Info("pulling layer", "number", l.number, "of", l.of, "digest", digest.String(), "compressedBytes", size)
	content, err := l.Layer.Uncompressed()
	if err != nil {
		return nil, l.image.guard.classify(err)
	}
	return &classifiedReader{ReadCloser: content, guard: l.image.guard}, nil
}

// classifiedReader gives errors in the middle of a layer their reason while their type is still known.
type classifiedReader struct {
	io.ReadCloser
	guard *guard
}

// Read implements io.Reader.
func (r *classifiedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.guard.classify(err)
	}
	return n, err
}
