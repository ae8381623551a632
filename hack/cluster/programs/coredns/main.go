// Command coredns is CoreDNS with the few plugins that a one-node cluster without internet needs.
//
// The full CoreDNS links the client libraries of several clouds. This one answers for the cluster's Services and pods
// (kubernetes), for names that a test adds to a file (hosts), and says "no such name" to all else (template), so that
// a program that looks up a name on the internet gets this answer at once instead of waiting for a timeout.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// The order in which a query passes the plugins; template is last, since it
	// answers everything that reaches it.
	dnsserver.Directives = []string{"errors", "cache", "hosts", "kubernetes", "template"}
	coremain.Run()
}
