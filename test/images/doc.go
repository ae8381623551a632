// Package images defines the container images of the demo and of the end-to-end tests: small images that really run, with package
// databases and Go modules that have known vulnerabilities.
//
// Every image runs without external dependencies, as an unprivileged user. The same source gives the same digest. Compile needs the Go
// module proxy the first time; Load needs only what Compile has written.
//
// The package must not know Kubernetes nor the users of the images.
package images
