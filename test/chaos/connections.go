package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/proxy"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// podRange are the addresses of the local cluster's pods (POD_RANGE in hack/cluster/lib/settings.sh).
const podRange = "10.244.0.0/24"

// link is a way from pods to a server. All connections of pods to the server lead through a proxy.
type link struct {
	// name is what the faults call the server.
	name string
	// service is the Service of the server. Without one, address is the server's address, host:port.
	service client.ObjectKey
	address string
	// delivery is true if messages, their answers or their records take this way. answers is true if Slack's answers do.
	delivery, answers bool
	// plainHTTP is true if the proxy can answer in the server's place.
	plainHTTP bool
	proxy     *proxy.Proxy
}

// linksOf returns all ways from the operator's pods.
func linksOf(registry string, postgreSQL bool) []*link {
	system := func(name string) client.ObjectKey {
		return client.ObjectKey{Namespace: scenario.SystemNamespace, Name: name}
	}
	infra := func(name string) client.ObjectKey {
		return client.ObjectKey{Namespace: scenario.InfraNamespace, Name: name}
	}
	links := []*link{
		{name: "API server", service: client.ObjectKey{Namespace: "default", Name: "kubernetes"}, delivery: true},
		{name: "notifier", service: system("scanner-operator-notifier"), delivery: true},
		{name: "Slack", service: infra("slack"), delivery: true, answers: true},
		{name: "ingest API", service: system("scanner-operator-ingest")},
		{name: "registry", address: registry, plainHTTP: true},
		{name: "vulnerability data", service: infra("vulnerability-database"), plainHTTP: true},
	}
	if postgreSQL {
		links = append(links, &link{name: "database", service: system("scanner-operator-postgresql"), delivery: true})
	}
	return links
}

// redirect starts the proxies on the node's address and leads the connections of pods through them. Connections that exist already stay as they
// are.
func redirect(ctx context.Context, api client.Client, node string, links []*link) error {
	rules := ""
	for _, l := range links {
		if l.address == "" {
			var service corev1.Service
			if err := api.Get(ctx, l.service, &service); err != nil {
				return err
			}
			l.address = net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(service.Spec.Ports[0].Port)))
		}
		var err error
		if l.proxy, err = proxy.New(net.JoinHostPort(node, "0"), l.address); err != nil {
			return err
		}
		host, port, err := net.SplitHostPort(l.address)
		if err != nil {
			return err
		}
		rules += fmt.Sprintf("    ip saddr %s ip daddr %s tcp dport %s dnat to %s:%d\n", podRange, host, port, node, l.proxy.Port)
	}
	// Before kube-proxy, which replaces the addresses of Services at the priority -100.
	return nft(ctx, removeTable+"table ip "+table+" {\n  chain pods {\n    type nat hook prerouting priority -110;\n"+rules+"  }\n}\n")
}

// table is the name of the rules in the node's packet filter.
const table = "scanner-chaos"

// removeTable removes the rules, also if there are none.
const removeTable = "table ip " + table + "\ndelete table ip " + table + "\n"

// restoreConnections leads connections past the proxies again, and stops the proxies.
func restoreConnections(ctx context.Context, links []*link) error {
	err := nft(ctx, removeTable)
	for _, l := range links {
		if l.proxy != nil {
			l.proxy.Close()
		}
	}
	return err
}

// nft changes the packet filter of the node, in whose network namespace the program runs.
func nft(ctx context.Context, rules string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin, command.Stderr = strings.NewReader(rules), os.Stderr
	return command.Run()
}

const (
	// shortestDelay and longestDelay bound the delay of each piece of a connection.
	shortestDelay = 50 * time.Millisecond
	longestDelay  = 600 * time.Millisecond
	// throttled is the answer of a server that throttles.
	throttled = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// connectionFaults returns the faults of all links.
func connectionFaults(links []*link, draws *rand.Rand) (faults []fault) {
	for _, l := range links {
		faults = append(faults,
			l.fault("delayed", func() { l.proxy.Delay(between(draws, shortestDelay, longestDelay)) }, func() { l.proxy.Delay(0) }),
			l.fault("held", func() { l.proxy.Hold(true) }, func() { l.proxy.Hold(false) }),
			l.fault("away", func() { l.proxy.Refuse(true); l.proxy.CutAll() }, func() { l.proxy.Refuse(false) }),
			fault{name: l.name + " cut", delivery: l.delivery, begin: func(context.Context) error { l.proxy.CutAll(); return nil }},
		)
		if l.plainHTTP {
			faults = append(faults, l.fault("throttles", func() { l.proxy.Answer([]byte(throttled)) }, func() { l.proxy.Answer(nil) }))
		}
	}
	return faults
}

func (l *link) fault(what string, begin, end func()) fault {
	return fault{
		name: l.name + " " + what, delivery: l.delivery, lasts: true,
		begin:  func(context.Context) error { begin(); return nil },
		end:    func(context.Context) error { end(); return nil },
		exists: func() bool { return l.proxy != nil },
	}
}

// losesAnswers returns the names of the faults that may lose an answer of Slack.
func losesAnswers(links []*link) map[string]bool {
	names := map[string]bool{}
	for _, l := range links {
		if l.answers {
			for _, what := range []string{"held", "away", "cut"} {
				names[l.name+" "+what] = true
			}
		}
	}
	return names
}

// nodeAddress returns the address of the local cluster's node, which is that of its registry.
func nodeAddress() (node, registry string, err error) {
	registry = os.Getenv("SCANNER_REGISTRY")
	if node, _, err = net.SplitHostPort(registry); err != nil || os.Getenv("SCANNER_CLUSTER") == "" {
		return "", "", errors.New("only the local cluster has processes that can be killed here: unset KUBECONFIG and use make e2e-chaos")
	}
	return node, registry, nil
}
