// Package images defines the container images of the demonstration and of the end-to-end tests: small, really running,
// with package databases and Go modules of which vulnerabilities are known.
//
// It promises that every image runs without anything from outside, as a user without rights, and that the same source
// gives the same digest. Compile needs the Go module proxy the first time; Load needs only what Compile has written.
//
// It must not know Kubernetes, nor who uses the images for what.
package images
