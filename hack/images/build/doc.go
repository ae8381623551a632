// Package build builds container images without Docker. It compiles Go programs, puts them and other files into layers, combines layers
// to images, and writes images to a registry or a directory.
//
// The same input gives the same digest: files are sorted, times are fixed, and nothing depends on the machine that builds. Images have
// an empty base and run as an unprivileged user unless their Config sets another one.
//
// It must not know the project's images (package main above it does) nor anything about Kubernetes.
package build
