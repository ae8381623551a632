package document

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// MaxIndexDepth is how many nested indexes may lead to a manifest, the first one included.
const MaxIndexDepth = 3

// Verify returns the digest of the platform manifest that the documents lead to.
//
// The first document has the digest root. It is either the platform's manifest, and then the only document, or an index. An index is
// followed by its children for the platform, in the order of Children; a child is an index or a manifest. A manifest that no runtime
// runs is followed by its configuration, if it names one. The configuration proves that runtimes skip the manifest. The last
// document is the platform's manifest.
//
// An index therefore leads to one manifest for a platform, and the sender of the documents cannot choose another one.
// Each document is read once, and is bounded as described at Check.
func Verify(root v1.Hash, platform v1.Platform, documents [][]byte) (v1.Hash, error) {
	c := chain{platform: platform, documents: documents}
	raw, err := c.next(root)
	if err != nil {
		return v1.Hash{}, err
	}
	isIndex, err := IsIndex(raw)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("document 1 of %d: %w", len(documents), err)
	}
	found := root
	if isIndex {
		if found, err = c.findInIndex(raw, 1); err != nil {
			return v1.Hash{}, err
		}
	}
	if found == (v1.Hash{}) {
		return v1.Hash{}, fmt.Errorf("the %d documents lead from %s to no manifest for %s", len(documents), root, platform.String())
	}
	if c.read != len(documents) {
		return v1.Hash{}, fmt.Errorf("%d of %d documents come after the manifest for %s", len(documents)-c.read, len(documents), platform.String())
	}
	return found, nil
}

// chain reads documents in their order.
type chain struct {
	platform  v1.Platform
	documents [][]byte
	read      int
}

// next returns the next document. It is an error if that document does not have the wanted digest.
func (c *chain) next(wanted v1.Hash) ([]byte, error) {
	if c.read == len(c.documents) {
		return nil, fmt.Errorf("after %d documents, %s is missing", c.read, wanted)
	}
	raw := c.documents[c.read]
	c.read++
	if digest := Digest(raw); digest != wanted {
		return nil, fmt.Errorf("document %d of %d has the digest %s, want %s, which runs on %s before any other", c.read, len(c.documents), digest, wanted, c.platform.String())
	}
	return raw, nil
}

// findInIndex returns the digest of the manifest that an index holds for the platform, found in the same order as by a puller. The digest is
// zero if the index holds none. depth is how many indexes led here, this one included.
func (c *chain) findInIndex(raw []byte, depth int) (v1.Hash, error) {
	index, err := Index(raw)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("document %d of %d: %w", c.read, len(c.documents), err)
	}
	children, _ := Children(index, c.platform)
	for _, child := range children {
		if child.MediaType.IsIndex() && depth == MaxIndexDepth {
			continue
		}
		document, err := c.next(child.Digest)
		if err != nil {
			return v1.Hash{}, err
		}
		if child.MediaType.IsIndex() {
			found, err := c.findInIndex(document, depth+1)
			if err != nil || found != (v1.Hash{}) {
				return found, err
			}
			continue
		}
		runs, err := c.isPlatformManifest(child, document)
		if err != nil || runs {
			return child.Digest, err
		}
	}
	return v1.Hash{}, nil
}

// isPlatformManifest reports whether a manifest of an index is the platform's. The last document is, and needs no configuration. Any other
// manifest was skipped: it is an error if its configuration does not prove that runtimes skip it, too.
func (c *chain) isPlatformManifest(child v1.Descriptor, raw []byte) (bool, error) {
	if c.read == len(c.documents) {
		return true, nil
	}
	manifest, err := Manifest(raw)
	if err != nil {
		return false, fmt.Errorf("document %d of %d: %w", c.read, len(c.documents), err)
	}
	var config []byte
	if manifest.Config.Digest != (v1.Hash{}) {
		if config, err = c.next(manifest.Config.Digest); err != nil {
			return false, err
		}
	}
	declared, isImage, err := Declared(manifest, config)
	if err != nil || isImage && (child.Platform != nil || Runs(c.platform, declared)) {
		return false, fmt.Errorf("%s is skipped, although it runs on %s (%w)", child.Digest, c.platform.String(), cmp.Or(err, errIsImage))
	}
	return false, nil
}

var errIsImage = errors.New("it is an image")

// Declared returns the platform that the configuration of a manifest names, and whether the manifest is an image rather than an
// artifact. config is empty if the manifest names none. An error means that the configuration of an image cannot be read. A
// runtime parses less of the configuration, and may still run that image.
func Declared(manifest *v1.Manifest, config []byte) (declared v1.Platform, isImage bool, err error) {
	if len(manifest.Layers) == 0 && manifest.Config.Digest == (v1.Hash{}) {
		return v1.Platform{}, false, nil
	}
	isConfig := Essence(manifest.Config.MediaType).IsConfig()
	file, err := Config(config)
	switch {
	case errors.Is(err, ErrTooLarge), err != nil && isConfig:
		return v1.Platform{}, false, err
	case err != nil || len(config) == 0:
		return v1.Platform{}, false, nil //nolint:nilerr // an artefact may bring what it likes
	}
	// Old builders also use other media types for configurations, but those configurations name a platform.
	if (file.OS == "" || file.Architecture == "") && !isConfig {
		return v1.Platform{}, false, nil
	}
	return v1.Platform{OS: file.OS, Architecture: file.Architecture, Variant: file.Variant, OSVersion: file.OSVersion}, true, nil
}

// Digest returns the SHA-256 digest of a document.
func Digest(raw []byte) v1.Hash {
	sum := sha256.Sum256(raw)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}
