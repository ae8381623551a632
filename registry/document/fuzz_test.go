package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

// FuzzCheck: the bounds of a document do not depend on the pieces in which it arrives. A JSON document is refused exactly if the decoder, which has
// no bounds, finds too many elements or levels in it.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"", `{"manifests":[{"size":7},{}]}`, `["\\","\\\"",{}]`, "]]],,,", `{"a":"[,\"{"}`, strings.Repeat("[", 40), `[1,2] {"b":[[],[]]}`} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, raw []byte, size uint8) {
		err := Check(raw)
		if err != nil && !errors.Is(err, ErrTooLarge) {
			t.Fatalf("%q: %v, which does not say that it is too large", raw, err)
		}
		var pieces BoundsChecker
		var inPieces error
		for piece := range slices.Chunk(raw, int(size)+1) {
			if _, inPieces = pieces.Write(piece); inPieces != nil {
				break
			}
		}
		if (inPieces == nil) != (err == nil) {
			t.Errorf("%q: %v, and in pieces of %d bytes: %v", raw, err, int(size)+1, inPieces)
		}
		if json.Valid(raw) && (err != nil) != exceeds(raw) {
			t.Errorf("%q: %v, but the decoder finds it too large: %v", raw, err, exceeds(raw))
		}
	})
}

// exceeds counts the elements and levels of a JSON document. An empty list or object counts as one element.
func exceeds(raw []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	values := 0
	// Of each open list or object: its elements, and whether it is an object.
	type level struct {
		elements int
		isObject bool
	}
	var open []level
	for {
		token, err := decoder.Token()
		if err != nil {
			return len(raw) > MaxBytes
		}
		isEnd := token == json.Delim(']') || token == json.Delim('}')
		if !isEnd && len(open) > 0 {
			open[len(open)-1].elements++
		}
		switch {
		case token == json.Delim('['), token == json.Delim('{'):
			if open = append(open, level{isObject: token == json.Delim('{')}); len(open) > MaxDepth {
				return true
			}
		case isEnd:
			closed := open[len(open)-1]
			open = open[:len(open)-1]
			if closed.isObject { // its keys were counted like its values
				closed.elements /= 2
			}
			if values += max(closed.elements, 1); closed.elements > MaxElements || values > MaxValues {
				return true
			}
		}
	}
}

// FuzzVerify: documents are accepted only if each is named by an earlier one, from the requested digest to the last, which is the platform's manifest.
// Then none of them can be changed.
func FuzzVerify(f *testing.F) {
	const (
		index      = `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"@1","platform":{"os":"linux","architecture":"amd64"}}]}`
		both       = `{"schemaVersion":2,"manifests":[{"digest":"@1"},{"digest":"@3"}]}`
		ofIndex    = `{"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"@1"}]}`
		manifest   = `{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"@2"},"layers":[{}]}`
		artifact   = `{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"@2"},"layers":[{}]}`
		of2        = `{"manifests":[{"digest":"@2"}]}`
		config     = `{"os":"linux","architecture":"amd64"}`
		otherImage = `{"os":"linux","architecture":"arm64"}`
	)
	for _, seed := range [][]string{
		{manifest}, {index, manifest}, {both, artifact, `{}`, manifest}, {both, manifest, otherImage, manifest}, {both, manifest, config, manifest}, {ofIndex, of2, manifest},
	} {
		f.Add([]byte(strings.Join(seed, "\n---\n")), "linux", "amd64")
	}
	f.Fuzz(func(t *testing.T, text []byte, os, architecture string) {
		documents := registrytest.Linked(text)
		if documents == nil {
			t.Skip("too many documents")
		}
		root, platform := Digest(documents[0]), v1.Platform{OS: os, Architecture: architecture}
		found, err := Verify(root, platform, documents)
		if err != nil {
			if found != (v1.Hash{}) {
				t.Errorf("%s beside the error %v", found, err)
			}
			return
		}
		if last := Digest(documents[len(documents)-1]); found != last {
			t.Errorf("%q lead to %s, want the last one, %s", documents, found, last)
		}
		for n, document := range documents[1:] {
			name := []byte(Digest(document).Hex)
			if !slices.ContainsFunc(documents[:n+1], func(earlier []byte) bool { return bytes.Contains(earlier, name) }) {
				t.Errorf("no document before document %d of %q names it", n+1, documents)
			}
		}
		for n := range documents {
			changed := slices.Clone(documents)
			changed[n] = append(slices.Clone(changed[n]), ' ')
			if _, err := Verify(root, platform, changed); err == nil {
				t.Errorf("%q are accepted, and also with a space after document %d", documents, n)
			}
		}
	})
}

// FuzzChildren: the children that run on a node and the platforms of those that do not are all children. Those without a platform come last. The same
// rule decides about the platform in an image's configuration.
func FuzzChildren(f *testing.F) {
	for _, seed := range [][2]string{
		{"linux/amd64", "linux/arm64 linux/amd64 linux/386 linux/amd64/v3"}, {"linux/arm64", "linux/arm/v7 linux/arm64/v8 - linux/arm64"}, {"windows/amd64", "windows/amd64 - /amd64"},
		{"linux/arm", "linux/arm/v5 Linux/ARM linux/arm/v9 unknown/unknown"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, node, offers string) {
		index := &v1.IndexManifest{}
		for n, offer := range strings.Fields(offers) {
			child := v1.Descriptor{Size: int64(n)}
			if offer != "-" {
				child.Platform = platformOf(offer)
			}
			index.Manifests = append(index.Manifests, child)
		}
		before := slices.Clone(index.Manifests)
		children, offered := Children(index, *platformOf(node))
		if len(children)+len(offered) != len(index.Manifests) || !reflect.DeepEqual(before, index.Manifests) {
			t.Fatalf("%d children and %d others of %d in %q", len(children), len(offered), len(index.Manifests), offers)
		}
		withPlatform := true
		for _, child := range children {
			if child.Platform != nil && (!withPlatform || !Runs(*platformOf(node), *child.Platform)) {
				t.Errorf("on %s, of %q: %s is among the children that may run, after those without a platform: %v", node, offers, child.Platform, !withPlatform)
			}
			withPlatform = child.Platform != nil
		}
		for _, other := range offered {
			if Runs(*platformOf(node), other) {
				t.Errorf("on %s, of %q: %s runs, and is not among the children", node, offers, other.String())
			}
		}
		if again, _ := Children(&v1.IndexManifest{Manifests: children}, *platformOf(node)); !reflect.DeepEqual(children, again) {
			t.Errorf("on %s, of %q: the order of the children depends on the order in which they come", node, offers)
		}
	})
}

// platformOf reads os/architecture/variant. Missing parts are empty.
func platformOf(text string) *v1.Platform {
	parts := append(strings.SplitN(text, "/", 3), "", "")
	return &v1.Platform{OS: parts[0], Architecture: parts[1], Variant: parts[2]}
}
