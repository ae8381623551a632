// Package egress decides which servers may be requested on behalf of a namespace, such as the receivers of its messages.
//
// Whoever controls a namespace decides the addresses of its receivers, and the administrator which hosts these may be. A host is checked by its
// name, and once more by its address when a connection is made: whoever controls a DNS name can let it point to any address, and change that at
// any time. The package reads no configuration and makes no connections.
package egress

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// Policy is the administrator's list of hosts and networks. The zero value allows nothing. It is safe for concurrent use.
type Policy struct {
	hosts    []host
	networks []netip.Prefix
}

// host is an entry for a host.
type host struct {
	// scheme is https for a host that may be connected to over TLS, with any protocol; or http or smtp for one that may be without TLS.
	scheme string
	// name is a DNS name or an IP address in lower case. With a wildcard, it is the domain with a leading dot.
	name     string
	wildcard bool
	port     string
}

// defaultPorts are the ports of a URL that has none, by scheme.
var defaultPorts = map[string]string{"https": "443", "http": "80", "smtp": "25"}

// namePattern matches DNS names of ASCII letters in lower case. Names in other scripts must be listed in their ASCII form.
var namePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// NewPolicy returns the Policy for a list of entries. Each is one of these:
//
//	hooks.example.com        the host, over https at port 443
//	hooks.example.com:8443   the host at another port
//	*.example.com            all hosts below the domain, but not the domain itself
//	http://hooks.example.com the host over plain HTTP, at port 80 or the one that is named
//	smtp://mail.example.com  the mail server without TLS, at port 25 or the one that is named
//	10.0.0.0/8               a network: listed hosts may have addresses in it that are not public
//
// Empty entries are ignored. The error names the invalid entry.
func NewPolicy(entries []string) (*Policy, error) {
	p := &Policy{}
	for _, entry := range entries {
		entry = strings.ToLower(strings.TrimSpace(entry))
		if entry == "" {
			continue
		}
		if network, err := netip.ParsePrefix(entry); err == nil {
			p.networks = append(p.networks, network.Masked())
			continue
		}
		h, err := parseHost(entry)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", entry, err)
		}
		p.hosts = append(p.hosts, h)
	}
	return p, nil
}

func parseHost(entry string) (host, error) {
	h := host{scheme: "https"}
	for _, plain := range []string{"http", "smtp"} {
		if name, isPlain := strings.CutPrefix(entry, plain+"://"); isPlain {
			entry, h.scheme = name, plain
		}
	}
	name, port, err := net.SplitHostPort(entry)
	if err != nil {
		name, port = strings.Trim(entry, "[]"), ""
	}
	h.name, h.wildcard = strings.CutPrefix(name, "*.")
	h.port = cmp.Or(port, defaultPorts[h.scheme])
	_, notIP := netip.ParseAddr(h.name)
	isDomain := notIP != nil && namePattern.MatchString(h.name)
	_, notPort := strconv.ParseUint(h.port, 10, 16)
	switch {
	case h.wildcard && h.scheme != "https":
		return h, errors.New("without TLS, the full name of a host is needed, and no wildcard")
	case notPort != nil, notIP != nil && !isDomain, h.wildcard && (!isDomain || !strings.Contains(h.name, ".")):
		return h, errors.New("want a host such as hooks.example.com, hooks.example.com:8443 or *.example.com, http:// or smtp:// before " +
			"a host without TLS, or a network such as 10.0.0.0/8")
	}
	if h.wildcard {
		h.name = "." + h.name
	}
	return h, nil
}

// Target is the URL of a server that may be requested. The zero value is no target.
type Target struct {
	url     string
	control func(network, address string, c syscall.RawConn) error
}

// URL returns the target's URL, which may be a secret; empty for the zero value.
func (t Target) URL() string { return t.url }

// Join returns the target for a path below the target's URL. It may have the same addresses.
func (t Target) Join(path string) Target {
	// The URL of a target is valid, so that there is no error.
	t.url, _ = url.JoinPath(t.url, path)
	return t
}

// Control is a net.Dialer's Control. It returns an error that matches ErrAddress unless the target may have the address.
func (t Target) Control(network, address string, c syscall.RawConn) error {
	if t.control == nil {
		return nil
	}
	if err := t.control(network, address, c); err != nil {
		return fmt.Errorf("%w: %s", ErrAddress, address)
	}
	return nil
}

// ErrAddress is the error of connections to addresses that are not allowed.
var ErrAddress = errors.New("not a public address")

// Trusted returns a target for a URL that the administrator has configured. It may have any address.
func Trusted(address string) Target { return Target{url: address} }

// Target returns the target for a URL, if the policy allows the URL's scheme, host and port. The schemes of mail servers are smtps with TLS, be it
// from the start or by STARTTLS, and smtp without. A URL with either needs a port.
//
// A target with a DNS name may have any public address, and those in listed networks. A Service of the cluster may also have private addresses,
// if its name is listed without a wildcard (alertmanager.monitoring.svc). A listed IP address may be requested whether it is public or not.
func (p *Policy) Target(u *url.URL) (Target, bool) {
	name, port := strings.ToLower(u.Hostname()), cmp.Or(u.Port(), defaultPorts[u.Scheme])
	address, notIP := netip.ParseAddr(name)
	if notIP != nil && !namePattern.MatchString(name) {
		return Target{}, false
	}
	i := slices.IndexFunc(p.hosts, func(h host) bool { return h.matches(u.Scheme, name, port) })
	if i < 0 {
		return Target{}, false
	}
	allowed := slices.Clone(p.networks)
	switch {
	case notIP == nil:
		allowed = append(allowed, netip.PrefixFrom(address.WithZone(""), address.BitLen()))
	case p.hosts[i].isService():
		allowed = append(allowed, privateNetworks...)
	}
	var v4, v6 []netip.Prefix
	for _, network := range allowed {
		if network.Addr().Is4() {
			v4 = append(v4, network)
		} else {
			v6 = append(v6, network)
		}
	}
	guard := ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...))
	return Target{url: u.String(), control: guard.Safe}, true
}

func (h host) matches(scheme, name, port string) bool {
	isName := h.name == name
	if h.wildcard {
		isName = strings.HasSuffix(name, h.name)
	}
	if scheme == "smtps" {
		scheme = "https"
	}
	return isName && h.scheme == scheme && h.port == port
}

// isService reports whether a host is a Service of the cluster, whose name the cluster's own DNS resolves
// (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service).
func (h host) isService() bool {
	return !h.wildcard && (strings.HasSuffix(h.name, ".svc") || strings.HasSuffix(h.name, ".svc.cluster.local"))
}

// privateNetworks are those from which clusters take the addresses of pods and Services (RFC 1918, RFC 6598, RFC 4193). Loopback and link-local
// addresses are not among them.
var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
}
