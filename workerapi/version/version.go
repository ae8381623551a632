// Package version holds the version of the project that a program was built from. All programs of the project are released together,
// with one version.
package version

import (
	"runtime"
	"strings"
)

// Set by the linker when an image is built: -X …/workerapi/version.Version=0.1.0
var (
	// Version is the version of the release, such as 0.1.0, or "dev".
	Version = "dev"
	// Commit is the source of a build between two releases. It is empty for a release, which is built from the tag with its version.
	Commit = ""
)

// Line returns the output of "PROGRAM version", for example "scanner-operator 0.1.0 (go1.26.8)". parts are the versions of
// further components of the program.
func Line(program string, parts ...string) string {
	made := make([]string, 0, len(parts)+2)
	if Commit != "" {
		made = append(made, "commit "+Commit)
	}
	made = append(append(made, runtime.Version()), parts...)
	return program + " " + Version + " (" + strings.Join(made, ", ") + ")"
}
