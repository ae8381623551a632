// Package document decodes the documents that describe an image: indexes, manifests and configurations. Their content is
// untrusted: registries and their users control it.
//
// It promises that
//   - no document is decoded before Check has found it within bounds: JSON can take a hundred times its size when decoded,
//   - the platform manifest of an index is the one that containerd would run on the platform.
//
// It deliberately knows no registry and fetches nothing, so that code that received the documents elsewhere can use it as well.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Bounds of one document. Real documents are far below: an image has at most a few hundred layers, since no kernel mounts more.
const (
	// MaxBytes is the size that registries have to accept for a manifest, and the most that containerd reads
	// (https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#pushing-manifests).
	MaxBytes = 4 << 20
	// MaxElements is how many elements one list or object may have: descriptors, layers, steps of a history, labels.
	MaxElements = 2_000
	// MaxValues is how many elements all lists and objects may have together.
	MaxValues = 50_000
	// MaxDepth is how deeply lists and objects may be nested.
	MaxDepth = 32
)

// ErrTooLarge is wrapped by the errors about documents that exceed a bound.
var ErrTooLarge = errors.New("the document is too large")

// Check returns an error that wraps ErrTooLarge if the document exceeds a bound. It needs no additional memory. It accepts
// invalid JSON, which the decoder rejects.
func Check(raw []byte) error {
	var shape BoundsChecker
	_, err := shape.Write(raw)
	return err
}

// BoundsChecker does the same as Check for a document that arrives in pieces. The zero value is ready for one document.
type BoundsChecker struct {
	size, values, depth int
	elements            [MaxDepth]int
	inString, escaped   bool
}

// Write implements io.Writer. It fails at the first byte beyond a bound.
func (s *BoundsChecker) Write(piece []byte) (int, error) {
	if s.size += len(piece); s.size > MaxBytes {
		return 0, fmt.Errorf("%w: larger than %d MiB", ErrTooLarge, MaxBytes>>20)
	}
	for i, b := range piece {
		if s.inString {
			s.inString, s.escaped = s.escaped || b != '"', !s.escaped && b == '\\'
			continue
		}
		if err := s.add(b); err != nil {
			return i, err
		}
	}
	return len(piece), nil
}

// add counts a byte outside of strings. A list or object with elements has one element more than commas. An empty one
// counts as if it had one element.
func (s *BoundsChecker) add(b byte) error {
	switch b {
	case '"':
		s.inString = true
	case '[', '{':
		if s.depth == MaxDepth {
			return fmt.Errorf("%w: more than %d levels of lists and objects", ErrTooLarge, MaxDepth)
		}
		s.elements[s.depth] = 0
		s.depth++
		return s.count()
	case ']', '}':
		s.depth = max(s.depth-1, 0)
	case ',':
		return s.count()
	}
	return nil
}

// count adds an element to the innermost list or object.
func (s *BoundsChecker) count() error {
	if s.values++; s.values > MaxValues {
		return fmt.Errorf("%w: more than %d elements", ErrTooLarge, MaxValues)
	}
	if s.depth == 0 {
		return nil
	}
	if s.elements[s.depth-1]++; s.elements[s.depth-1] > MaxElements {
		return fmt.Errorf("%w: a list or object of more than %d elements", ErrTooLarge, MaxElements)
	}
	return nil
}

// Index decodes an image index.
func Index(raw []byte) (*v1.IndexManifest, error) {
	index, err := decode[v1.IndexManifest](raw)
	if err != nil {
		return nil, err
	}
	for i := range index.Manifests {
		index.Manifests[i].MediaType = Essence(index.Manifests[i].MediaType)
	}
	return index, nil
}

// Essence returns a media type without its parameters, in lower case.
func Essence(mediaType types.MediaType) types.MediaType {
	bare, _, _ := strings.Cut(string(mediaType), ";")
	return types.MediaType(strings.ToLower(strings.TrimSpace(bare)))
}

// Manifest decodes the manifest of an image for one platform.
func Manifest(raw []byte) (*v1.Manifest, error) { return decode[v1.Manifest](raw) }

// Config decodes the configuration of an image.
func Config(raw []byte) (*v1.ConfigFile, error) { return decode[v1.ConfigFile](raw) }

func decode[T any](raw []byte) (*T, error) {
	if err := Check(raw); err != nil {
		return nil, err
	}
	var decoded T
	// Like the client library, ignore what comes after the document.
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&decoded); err != nil {
		return nil, err
	}
	return &decoded, nil
}

// IsIndex reports whether a document is an index rather than a manifest. The document's own media type decides or, without
// one, whether it has a list of manifests.
func IsIndex(raw []byte) (bool, error) {
	kind, err := decode[struct {
		MediaType types.MediaType   `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
	}](raw)
	if err != nil {
		return false, err
	}
	// The media type is optional in OCI documents.
	return Essence(kind.MediaType).IsIndex() || kind.MediaType == "" && kind.Manifests != nil, nil
}
