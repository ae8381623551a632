// Package version returns the versions of the tools in the worker. They come from the modules that are
// linked into the binary, so they cannot differ from the code that runs.
package version

import (
	"runtime/debug"
	"strings"
)

// Syft returns the name and version of the cataloger, such as "syft 1.57.0".
func Syft() string { return "syft " + module("github.com/anchore/syft") }

// Grype returns the name and version of the matcher, such as "grype 0.121.2".
func Grype() string { return "grype " + module("github.com/anchore/grype") }

// module returns the version of a linked module without its "v", or "unknown".
func module(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return "unknown"
}
