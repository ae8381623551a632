package registry

import (
	"errors"
	"io"
	"log/slog"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// loggedImage logs which layer is being pulled, and classifies the errors of pulling.
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
	// The wrapper changes nothing for readers of the layers: only Uncompressed logs a line.
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
	// Both are in the manifest. Without them, only the log line lacks details.
	size, _ := l.Layer.Size()
	digest, _ := l.Layer.Digest()
	l.image.log.Info("pulling layer", "number", l.number, "of", l.of, "digest", digest.String(), "compressedBytes", size)
	content, err := l.Layer.Uncompressed()
	if err != nil {
		return nil, l.image.guard.classify(err)
	}
	return &classifiedReader{ReadCloser: content, guard: l.image.guard}, nil
}

// classifiedReader classifies errors in the middle of a layer while their type is still known.
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
