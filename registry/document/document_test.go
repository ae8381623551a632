package document_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry/document"
)

// list returns a JSON list of n elements.
func list(element string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
}

// TestBounds checks that a document beyond a bound is refused, and one at the bound is not.
func TestBounds(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	longest := list("0", document.MaxElements)
	for what, c := range map[string]struct {
		raw     string
		refused bool
	}{
		"nothing":                      {"", false},
		"as many descriptors as may":   {`{"manifests": ` + list("{}", document.MaxElements) + `}`, false},
		"one descriptor more":          {`{"manifests": ` + list("{}", document.MaxElements+1) + `}`, true},
		"layers":                       {`{"layers": ` + list("{}", document.MaxElements+1) + `}`, true},
		"a history":                    {`{"history": ` + list("{}", document.MaxElements+1) + `}`, true},
		"labels":                       {`{"config": {"Labels": {` + strings.TrimPrefix(strings.Repeat(`,"a":""`, document.MaxElements+1), ",") + `}}}`, true},
		"a list in a list":             {`{"a": [[` + strings.TrimSuffix(strings.Repeat("{},", document.MaxElements+1), ",") + `]]}`, true},
		"many lists":                   {list(longest, document.MaxValues/document.MaxElements+1), true},
		"as deep as may be":            {deep(document.MaxDepth), false},
		"one level more":               {deep(document.MaxDepth + 1), true},
		"as large as may be":           {`"` + strings.Repeat("x", document.MaxBytes-2) + `"`, false},
		"one byte more":                {`"` + strings.Repeat("x", document.MaxBytes-1) + `"`, true},
		"a text that looks like lists": {`{"comment": "` + strings.Repeat(`[,\"{`, document.MaxElements) + `"}`, false},
		"a text that ends in escapes":  {`["\\", "\\\"", ` + strings.Repeat(`{},`, document.MaxElements) + `{}]`, true},
		"what is no JSON":              {strings.Repeat("]", 100) + strings.Repeat(",", document.MaxValues), false},
	} {
		t.Run(what, func(t *testing.T) {
			if err := document.Check([]byte(c.raw)); errors.Is(err, document.ErrTooLarge) != c.refused {
				t.Errorf("got %v, want that it is refused: %t", err, c.refused)
			}
			if got := inPieces(c.raw, 7); errors.Is(got, document.ErrTooLarge) != c.refused {
				t.Errorf("in pieces of 7 bytes: got %v, want that it is refused: %t", got, c.refused)
			}
		})
	}
}

// inPieces returns the error of Shape for a document that arrives in pieces of size bytes.
func inPieces(raw string, size int) error {
	var shape document.BoundsChecker
	for len(raw) > 0 {
		n := min(size, len(raw))
		if _, err := shape.Write([]byte(raw[:n])); err != nil {
			return err
		}
		raw = raw[n:]
	}
	return nil
}

// TestDecoding checks the decoded values, and the errors of documents that are too large or not JSON.
func TestDecoding(t *testing.T) {
	index, err := document.Index([]byte(`{"manifests": [{"size": 7}]} and more`))
	if err != nil || len(index.Manifests) != 1 || index.Manifests[0].Size != 7 {
		t.Errorf("index %+v, error %v", index, err)
	}
	manifest, err := document.Manifest([]byte(`{"layers": [{"size": 7}]}`))
	if err != nil || len(manifest.Layers) != 1 || manifest.Layers[0].Size != 7 {
		t.Errorf("manifest %+v, error %v", manifest, err)
	}
	config, err := document.Config([]byte(`{"os": "linux", "history": [{}]}`))
	if err != nil || config.OS != "linux" || len(config.History) != 1 {
		t.Errorf("configuration %+v, error %v", config, err)
	}
	if _, err := document.Config([]byte(`{"history": ` + list("{}", document.MaxElements+1) + `}`)); !errors.Is(err, document.ErrTooLarge) {
		t.Errorf("too long a history: got %v", err)
	}
	if _, err := document.Index([]byte("<html>")); err == nil || errors.Is(err, document.ErrTooLarge) {
		t.Errorf("a page: got %v, want another error", err)
	}
}

// index returns an index with a descriptor for each platform, written "os/architecture/variant", "" for none. The digest of a
// descriptor is its position.
func index(children ...string) *v1.IndexManifest {
	made := &v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for n, child := range children {
		descriptor := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%064d", n)}}
		if child != "" {
			descriptor.Platform = new(platform(child))
		}
		made.Manifests = append(made.Manifests, descriptor)
	}
	return made
}

// chain holds documents that refer to each other. top is an index of nested, nested an index for amd64 of manifest, and config the
// configuration of manifest. two is an index of manifest and other for the same platform. signed is an index of artefact and manifest;
// empty is the configuration of artefact.
type chain struct{ top, nested, manifest, config, other, two, signed, artifact, empty []byte }

func newChain(t *testing.T) chain {
	t.Helper()
	encode := func(value any) []byte {
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	naming := func(platform *v1.Platform, mediaType types.MediaType, raws ...[]byte) []byte {
		made := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
		for _, raw := range raws {
			made.Manifests = append(made.Manifests, v1.Descriptor{MediaType: mediaType, Digest: document.Digest(raw), Size: int64(len(raw)), Platform: platform})
		}
		return encode(made)
	}
	configured := func(mediaType types.MediaType, config []byte) []byte {
		return encode(v1.Manifest{SchemaVersion: 2, Config: v1.Descriptor{MediaType: mediaType, Digest: document.Digest(config)}, Layers: []v1.Descriptor{{MediaType: types.OCILayer, Digest: document.Digest(nil)}}})
	}
	c := chain{config: []byte(`{"os": "linux", "architecture": "amd64"}`), empty: []byte(`{}`), other: []byte(`{"schemaVersion": 2, "layers": [{}]}`)}
	c.manifest, c.artifact = configured(types.OCIConfigJSON, c.config), configured("application/vnd.oci.empty.v1+json", c.empty)
	amd64 := &v1.Platform{OS: "linux", Architecture: "amd64"}
	c.nested = naming(amd64, types.OCIManifestSchema1, c.manifest)
	c.two = naming(amd64, types.OCIManifestSchema1, c.manifest, c.other)
	c.signed = naming(amd64, types.OCIManifestSchema1, c.artifact, c.manifest)
	c.top = naming(nil, types.OCIImageIndex, c.nested)
	return c
}

// TestVerify checks which lists of documents prove the platform manifest of a digest.
func TestVerify(t *testing.T) {
	c := newChain(t)
	amd64, arm64 := v1.Platform{OS: "linux", Architecture: "amd64"}, v1.Platform{OS: "linux", Architecture: "arm64"}
	for what, tt := range map[string]struct {
		root      []byte
		platform  v1.Platform
		documents [][]byte
		want      []byte
	}{
		"a manifest":                     {c.manifest, arm64, [][]byte{c.manifest}, c.manifest},
		"an index and its manifest":      {c.nested, amd64, [][]byte{c.nested, c.manifest}, c.manifest},
		"an index in an index":           {c.top, amd64, [][]byte{c.top, c.nested, c.manifest}, c.manifest},
		"nothing":                        {c.manifest, amd64, nil, nil},
		"another manifest":               {c.manifest, amd64, [][]byte{c.other}, nil},
		"a manifest the index has not":   {c.nested, amd64, [][]byte{c.nested, c.other}, nil},
		"one for another platform":       {c.nested, arm64, [][]byte{c.nested, c.manifest}, nil},
		"an index alone":                 {c.nested, amd64, [][]byte{c.nested}, nil},
		"an index that is passed over":   {c.top, amd64, [][]byte{c.top, c.manifest}, nil},
		"more after the manifest":        {c.manifest, amd64, [][]byte{c.manifest, c.manifest}, nil},
		"more documents than may be":     {c.top, amd64, [][]byte{c.top, c.nested, c.nested, c.nested, c.manifest}, nil},
		"too large a document":           {[]byte(list("{}", 5000)), amd64, [][]byte{[]byte(list("{}", 5000))}, nil},
		"an index without the last step": {c.top, amd64, [][]byte{c.top, c.nested}, nil},
		"the first of two":               {c.two, amd64, [][]byte{c.two, c.manifest}, c.manifest},
		"the second of two":              {c.two, amd64, [][]byte{c.two, c.other}, nil},
		"the second, the first shown":    {c.two, amd64, [][]byte{c.two, c.manifest, c.config, c.other}, nil},
		"an image after an artefact":     {c.signed, amd64, [][]byte{c.signed, c.artifact, c.empty, c.manifest}, c.manifest},
		"an artefact without its proof":  {c.signed, amd64, [][]byte{c.signed, c.artifact, c.manifest}, nil},
		"an artefact left out":           {c.signed, amd64, [][]byte{c.signed, c.manifest}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := document.Verify(document.Digest(tt.root), tt.platform, tt.documents)
			switch {
			case tt.want == nil && err == nil:
				t.Errorf("got %s, want an error", got)
			case tt.want != nil && (err != nil || got != document.Digest(tt.want)):
				t.Errorf("got %s and error %v, want %s", got, err, document.Digest(tt.want))
			}
		})
	}
}
