package document

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// MaxIndexDepth is how many indexes may lead to a manifest, the first one included.
const MaxIndexDepth = 3

// Verify returns the digest of the platform manifest that the documents lead to. The first document has the digest root. It is
// a manifest and the only one, or an index: then the indexes in it follow, if any, and at last the manifest. Each is what the
// one before it holds for the platform, by its digest. Whoever brings the documents can therefore only choose among the
// manifests that an index has for the platform.
func Verify(root v1.Hash, platform v1.Platform, documents [][]byte) (v1.Hash, error) {
	if len(documents) == 0 || len(documents) > MaxIndexDepth+1 {
		return v1.Hash{}, fmt.Errorf("%d documents lead from %s to a manifest, want 1 to %d", len(documents), root, MaxIndexDepth+1)
	}
	wanted := []v1.Hash{root}
	for n, raw := range documents {
		if digest := Digest(raw); !slices.Contains(wanted, digest) {
			return v1.Hash{}, fmt.Errorf("document %d of %d has the digest %s, by which nothing names it for %s", n+1, len(documents), digest, platform.String())
		}
		isIndex, err := IsIndex(raw)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("document %d of %d: %w", n+1, len(documents), err)
		}
		if isLast := n == len(documents)-1; isIndex == isLast {
			return v1.Hash{}, fmt.Errorf("document %d of %d: the last one and no other is to be a manifest", n+1, len(documents))
		}
		if !isIndex {
			break
		}
		if wanted, err = digestsFor(platform, raw); err != nil {
			return v1.Hash{}, fmt.Errorf("document %d of %d: %w", n+1, len(documents), err)
		}
	}
	return Digest(documents[len(documents)-1]), nil
}

// digestsFor lists what an index holds for a platform.
func digestsFor(platform v1.Platform, raw []byte) (digests []v1.Hash, err error) {
	index, err := Index(raw)
	if err != nil {
		return nil, err
	}
	children, _ := Children(index, platform)
	for _, child := range children {
		digests = append(digests, child.Digest)
	}
	return digests, nil
}

// Digest of a document.
func Digest(raw []byte) v1.Hash {
	sum := sha256.Sum256(raw)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}
