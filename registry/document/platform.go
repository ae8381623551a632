package document

import (
	"cmp"
	"slices"
	"sort"

	"github.com/containerd/platforms"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// Runs says whether containerd on a node of one platform runs an image for another one: an arm64 node runs images for arm,
// too, an amd64 node those for 386, and neither runs a variant that it does not know.
func Runs(node, image v1.Platform) bool { return orderOf(node).runs(image) }

// Children returns what an index holds that may run on a node's platform, in the order of containerd, which runs the first
// (images.Manifest, https://github.com/containerd/containerd/blob/v2.2.0/core/images/image.go). Those without a platform
// come last: the configuration of such an image says whether it runs. Offered are the platforms of all others.
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

// order is containerd's for one node.
type order struct {
	preferred platforms.MatchComparer
	os        string
}

func orderOf(node v1.Platform) order {
	o := order{os: node.OS}
	o.preferred = platforms.Only(o.spec(node))
	return o
}

func (o order) runs(image v1.Platform) bool { return o.preferred.Match(o.spec(image)) }

// prefers says whether containerd takes the first of two platforms rather than the second. Nil stands for none.
func (o order) prefers(first, second *v1.Platform) bool {
	if first == nil || second == nil {
		return first != nil
	}
	return o.preferred.Less(o.spec(*first), o.spec(*second))
}

// spec has the type that containerd wants. Where no operating system is named, containerd takes the one that it runs on.
func (o order) spec(p v1.Platform) specs.Platform {
	return specs.Platform{
		OS: cmp.Or(p.OS, o.os), Architecture: p.Architecture, Variant: p.Variant, OSVersion: p.OSVersion, OSFeatures: slices.Clone(p.OSFeatures),
	}
}
