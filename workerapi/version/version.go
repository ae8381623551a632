// Package version says which build of the project a program is. All programs of the project are released together, with one
// version.
package version

import (
	"runtime"
	"strings"
)

// Set by the linker when an image is built: -X …/workerapi/version.Version=0.1.0
var (
	// Version is that of the release, such as 0.1.0, or "dev".
	Version = "dev"
	// Commit is what a build between two releases was made from, or empty: a release is made from the tag with its version.
	Commit = ""
)

// Line is what "PROGRAM version" prints, for example "scanner-operator 0.1.0 (go1.26.8)". Parts are the versions of what
// the program is made of besides.
func Line(program string, parts ...string) string {
	made := make([]string, 0, len(parts)+2)
	if Commit != "" {
		made = append(made, "commit "+Commit)
	}
	made = append(append(made, runtime.Version()), parts...)
	return program + " " + Version + " (" + strings.Join(made, ", ") + ")"
}
