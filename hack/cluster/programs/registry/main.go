// Command registry is the CNCF Distribution registry with storage on disk and nothing else linked.
//
// The upstream command also links the clients of three clouds, which would triple the time to build it. The behaviour
// that a client sees (API, access log, basic and token authentication) is the real one.
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/auth/token"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	if err := registry.RootCmd.Execute(); err != nil {
		os.Exit(1)
	}
}
