// Package build makes container images without Docker: it compiles Go programs, puts them and other files into layers,
// layers into images, and images into a registry or a directory.
//
// It promises that the same input gives the same digest: files are sorted, times are fixed, nothing of the machine that
// builds gets in. Images have an empty base and run as a user without rights unless their Config says otherwise.
//
// It must not know which images the project has (that is package main above it) nor anything about Kubernetes.
package build
