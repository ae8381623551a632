package workerapi

import "strings"

// CanonicalHost returns the form in which hosts of registries are compared: in lower case, and for Docker Hub its name
// in image references. Docker Hub has several names: that one, those of its API, and those that old tools wrote into credentials.
func CanonicalHost(host string) string {
	switch host = strings.ToLower(host); host {
	case "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com", "www.docker.com":
		return "docker.io"
	}
	return host
}
