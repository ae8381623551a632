package workerapi

import "strings"

// CanonicalHost is the one way in which hosts of registries are compared: in lower case, and Docker Hub as it stands
// in image references. It has several names: that one, those of its API, and those that old tools wrote into credentials.
func CanonicalHost(host string) string {
	switch host = strings.ToLower(host); host {
	case "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com", "www.docker.com":
		return "docker.io"
	}
	return host
}
