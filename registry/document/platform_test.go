package document_test

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/containerd/platforms"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	specs "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/scanner-operator/scanner-operator/registry/document"
)

// TestOrderOfChildren checks that the child that a node would run comes first, and that children it would not run are omitted.
func TestOrderOfChildren(t *testing.T) {
	for what, c := range map[string]struct {
		node     string
		children []string
		want     []string
	}{
		"the platform":                       {"linux/amd64", []string{"linux/arm64", "linux/amd64"}, []string{"linux/amd64"}},
		"the first of several":               {"linux/amd64", []string{"linux/amd64", "linux/amd64/v1"}, []string{"linux/amd64", "linux/amd64/v1"}},
		"a variant that no node has":         {"linux/amd64", []string{"linux/amd64/v9", "linux/amd64"}, []string{"linux/amd64"}},
		"only variants that no node has":     {"linux/amd64", []string{"linux/amd64/v9", "linux/amd64/x"}, nil},
		"a level of amd64":                   {"linux/amd64", []string{"linux/amd64/v3", "linux/amd64/v2", "linux/amd64"}, []string{"linux/amd64"}},
		"386 where there is no amd64":        {"linux/amd64", []string{"linux/386", "linux/arm/v7"}, []string{"linux/386"}},
		"386 after amd64":                    {"linux/amd64", []string{"linux/386", "linux/amd64"}, []string{"linux/amd64", "linux/386"}},
		"other names":                        {"linux/amd64", []string{"Linux/X86_64"}, []string{"Linux/X86_64"}},
		"those without a platform":           {"linux/amd64", []string{"", "linux/386", "linux/amd64"}, []string{"linux/amd64", "linux/386", ""}},
		"without an operating system":        {"linux/amd64", []string{"/amd64"}, []string{"/amd64"}},
		"arm64":                              {"linux/arm64", []string{"linux/arm/v7", "linux/arm64/v8", "linux/arm64/v9"}, []string{"linux/arm64/v8", "linux/arm/v7"}},
		"arm64 runs the newest arm":          {"linux/arm64", []string{"linux/arm/v5", "linux/arm/v6", "linux/arm/v8"}, []string{"linux/arm/v8", "linux/arm/v6", "linux/arm/v5"}},
		"arm is v7":                          {"linux/arm", []string{"linux/arm/v5", "linux/arm/v8", "linux/arm", "linux/arm/v6"}, []string{"linux/arm", "linux/arm/v6", "linux/arm/v5"}},
		"the version of Windows":             {"windows/amd64//10.0.20348", []string{"windows/amd64//10.0.17763.1", "windows/amd64//10.0.20348.9", "linux/amd64"}, []string{"windows/amd64//10.0.20348.9"}},
		"no version of Windows fits":         {"windows/amd64//10.0.17763", []string{"windows/amd64//10.0.20348.9"}, nil},
		"attestations":                       {"linux/amd64", []string{"unknown/unknown", "linux/amd64"}, []string{"linux/amd64"}},
		"another operating system":           {"windows/amd64", []string{"linux/amd64", "windows/amd64"}, []string{"windows/amd64"}},
		"an architecture with no other name": {"linux/s390x", []string{"linux/s390x/z13", "linux/s390x"}, []string{"linux/s390x"}},
	} {
		t.Run(what, func(t *testing.T) {
			made := index(c.children...)
			children, offered := document.Children(made, platform(c.node))
			if diff := cmp.Diff(c.want, names(children)); diff != "" {
				t.Errorf("children (-want +got):\n%s", diff)
			}
			if len(children)+len(offered) != len(c.children) {
				t.Errorf("%d children and %d others of %d", len(children), len(offered), len(c.children))
			}
		})
	}
}

// TestOrderMatchesContainerd checks that the first child is the one that containerd takes. It tries combinations of common and of
// irregular platforms.
func TestOrderMatchesContainerd(t *testing.T) {
	all := []string{
		"", "/amd64", "linux/amd64", "linux/amd64/v1", "linux/amd64/v2", "linux/amd64/v3", "linux/amd64/v9", "linux/386", "linux/x86_64",
		"linux/arm", "linux/arm/v5", "linux/arm/v6", "linux/arm/v7", "linux/arm/v8", "linux/arm/v9", "linux/arm/7", "linux/armhf", "linux/aarch64",
		"linux/arm64", "linux/arm64/v8", "linux/arm64/v8.1", "linux/arm64/v9", "linux/arm64/x", "linux/ppc64le", "linux/s390x", "windows/amd64", "unknown/unknown",
		"windows/amd64//10.0.17763.1", "windows/amd64//10.0.20348.5", "windows/amd64//10.0.20348.9", "linux/amd64//10.0.20348.5",
	}
	nodes := []string{
		"linux/amd64", "linux/amd64/v3", "linux/386", "linux/arm", "linux/arm/v6", "linux/arm/v8", "linux/arm64", "linux/arm64/v8.2", "linux/s390x", "windows/amd64", "windows/amd64//10.0.20348.7",
	}
	for _, node := range nodes {
		for _, a := range all {
			for _, b := range all {
				for _, c := range []string{"linux/amd64", "linux/arm/v6", "windows/amd64//10.0.20348.5", ""} {
					made := index(a, b, c)
					children, _ := document.Children(made, platform(node))
					if want := containerd(platform(node), made); !slices.Equal(digests(children[:min(1, len(children))]), want) {
						t.Errorf("a node of %s takes %v of %q, %q and %q, want %v", node, digests(children), a, b, c, want)
					}
				}
			}
		}
	}
}

// containerd returns the digest of the manifest that containerd takes from an index. It repeats the steps of containerd's
// images.Manifest (https://github.com/containerd/containerd/blob/v2.2.0/core/images/image.go).
func containerd(node v1.Platform, index *v1.IndexManifest) []string {
	type child struct {
		platform *specs.Platform
		digest   string
	}
	asSpec := func(p v1.Platform) *specs.Platform {
		if p.OS == "" {
			p.OS = node.OS // containerd's default: the system that it runs on
		}
		return &specs.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant, OSVersion: p.OSVersion}
	}
	matcher := platforms.Only(*asSpec(node))
	var matching []child
	for _, d := range index.Manifests {
		if d.Platform == nil {
			matching = append(matching, child{nil, d.Digest.String()})
		} else if p := asSpec(*d.Platform); matcher.Match(*p) {
			matching = append(matching, child{p, d.Digest.String()})
		}
	}
	sort.SliceStable(matching, func(a, b int) bool {
		first, second := matching[a].platform, matching[b].platform
		return first != nil && (second == nil || matcher.Less(*first, *second))
	})
	if len(matching) == 0 {
		return nil
	}
	return []string{matching[0].digest}
}

// TestRuns checks that the platform of a configuration follows the same rules.
func TestRuns(t *testing.T) {
	for image, want := range map[string]bool{"linux/amd64": true, "linux/386": true, "linux/amd64/v9": false, "linux/arm64": false, "": false, "linux/": false} {
		if got := document.Runs(platform("linux/amd64"), platform(image)); got != want {
			t.Errorf("an amd64 node runs an image for %q: %t, want %t", image, got, want)
		}
	}
}

// platform parses os/architecture/variant/os.version. Parts at the end may be missing.
func platform(text string) v1.Platform {
	parts := strings.Split(text+"///", "/")
	return v1.Platform{OS: parts[0], Architecture: parts[1], Variant: parts[2], OSVersion: parts[3]}
}

// digests returns the digests of the descriptors, which identify descriptors of one platform.
func digests(children []v1.Descriptor) (digests []string) {
	for _, child := range children {
		digests = append(digests, child.Digest.String())
	}
	return digests
}

// names returns the platforms of descriptors in the form that index accepts.
func names(children []v1.Descriptor) (names []string) {
	for _, child := range children {
		if child.Platform == nil {
			names = append(names, "")
			continue
		}
		names = append(names, strings.TrimRight(fmt.Sprintf("%s/%s/%s/%s", child.Platform.OS, child.Platform.Architecture, child.Platform.Variant, child.Platform.OSVersion), "/"))
	}
	return names
}
