package document

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/containerd/platforms"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// Runs reports whether containerd on a node of one platform runs an image for another one. An arm64 node also runs images for arm,
// and an amd64 node those for 386. Neither runs a variant that it does not know.
func Runs(node, image v1.Platform) bool { return orderOf(node).runs(image) }

// Children returns the children of an index that may run on a node's platform, in containerd's order of preference: containerd runs
// the first (images.Manifest, https://github.com/containerd/containerd/blob/v2.2.0/core/images/image.go). Children without a
// platform come last: only the configuration of such an image shows whether it runs. offered are the platforms of the children that
// do not run on the node.
func Children(index *v1.IndexManifest, node v1.Platform) (children []v1.Descriptor, offered []v1.Platform) {
	order := orderOf(node)
	for _, child := range index.Manifests {
		if child.Platform == nil || order.runs(*child.Platform) {
			children = append(children, child)
		} else {
			offered = append(offered, *child.Platform)
		}
	}
	sort.SliceStable(children, func(a, b int) bool { return order.prefers(children[a].Platform, children[b].Platform) })
	return children, offered
}

// order is containerd's order of preference on one node.
type order struct {
	preferred platforms.MatchComparer
	os        string
}

// maxVersion is above the versions of all architectures. containerd lists each version below that of a node, and the user who creates an ImageScan
// decides about a number that would take all memory.
const maxVersion = 99

func orderOf(node v1.Platform) order {
	o := order{os: node.OS}
	if version, err := strconv.Atoi(strings.TrimPrefix(node.Variant, "v")); err == nil && version > maxVersion {
		o.preferred = platforms.OnlyStrict(o.spec(node))
	} else {
		o.preferred = platforms.Only(o.spec(node))
	}
	return o
}

func (o order) runs(image v1.Platform) bool { return o.preferred.Match(o.spec(image)) }

// prefers reports whether containerd takes the first of two platforms rather than the second. Nil means that a child has no platform.
func (o order) prefers(first, second *v1.Platform) bool {
	if first == nil || second == nil {
		return first != nil
	}
	return o.preferred.Less(o.spec(*first), o.spec(*second))
}

// spec converts a platform to containerd's type. It sets a missing operating system to the node's, since containerd would
// assume that of the machine that this code runs on.
func (o order) spec(p v1.Platform) specs.Platform {
	return specs.Platform{
		OS: cmp.Or(p.OS, o.os), Architecture: p.Architecture, Variant: p.Variant, OSVersion: p.OSVersion, OSFeatures: slices.Clone(p.OSFeatures),
	}
}
