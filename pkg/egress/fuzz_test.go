package egress

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// FuzzPolicy: an entry is refused with an error that names it, or it allows only URLs of its scheme with its host, or a host below its domain. Their
// requests go to the host that was checked, and no name leads to an address of the machine or of the cloud's metadata.
func FuzzPolicy(f *testing.F) {
	for _, entry := range []string{
		"hooks.example.com", "hooks.example.com:8443", "*.example.com", "http://hooks.example.com", "smtp://mail.example.com:25", "10.0.0.0/8", "a.shop.svc", "192.0.2.1", "[2001:db8::1]:443",
		"fe80::1%eth0", "::ffff:10.0.0.1", "*.com", "*.shop.svc", "HOOKS.example.com.", "0x7f.1", "",
	} {
		for _, address := range []string{
			"https://hooks.example.com/a", "https://x.hooks.example.com:8443/", "https://hooks.example.com@evil.example.com/", "http://hooks.example.com:80/", "smtps://mail.example.com:25",
			"https://a.shop.svc/", "https://192.0.2.1/", "https://[2001:db8::1]/", "https://[fe80::1%25eth0]/", "https://[::ffff:10.0.0.1]/", "https://hooks.example.com.evil.com/", "https://0x7f.1/",
		} {
			f.Add(entry, address)
		}
	}
	// never are addresses of the machine and of the cloud's metadata, and private is one of a cluster.
	never, private := []string{"127.0.0.1", "::1", "0.0.0.0", "169.254.169.254", "::ffff:169.254.169.254", "fe80::1"}, "10.0.0.1"
	f.Fuzz(func(t *testing.T, entry, address string) {
		p, err := NewPolicy([]string{entry})
		name := strings.ToLower(strings.TrimSpace(entry))
		if err != nil {
			if !strings.Contains(err.Error(), strconv.Quote(name)) {
				t.Errorf("%q is refused with %q", entry, err)
			}
			return
		}
		u, err := url.Parse(address)
		if err != nil {
			return
		}
		to, allowed := p.Target(u)
		if !allowed {
			if to.URL() != "" {
				t.Errorf("%q refuses %q, and has the target %q", entry, address, to.URL())
			}
			return
		}
		scheme, name := cutScheme(name)
		host := strings.ToLower(u.Hostname())
		domain, isWildcard := strings.CutPrefix(name, "*")
		if isWildcard {
			domain, _, _ = strings.Cut(domain, ":")
		}
		if !slices.Contains(scheme, u.Scheme) || host == "" || !isWildcard && !strings.Contains(name, host) || isWildcard && !strings.HasSuffix(host, domain) {
			t.Fatalf("%q allows %q", entry, address)
		}
		if checked, err := url.Parse(to.URL()); err != nil || !strings.EqualFold(checked.Hostname(), host) || checked.Port() != u.Port() || checked.Scheme != u.Scheme {
			t.Errorf("%q allows %q, and the request goes to %q: %v", entry, address, to.URL(), err)
		}
		own, _ := netip.ParseAddr(host)
		for _, at := range append(never, private) {
			ip := netip.MustParseAddr(at)
			network := "tcp6"
			if ip.Is4() {
				network = "tcp4"
			}
			isOwn := own.IsValid() && own.WithZone("").Unmap() == ip.Unmap()
			isService := at == private && !isWildcard && (strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".svc.cluster.local"))
			if err := to.Control(network, netip.AddrPortFrom(ip, 443).String(), nil); err == nil && !isOwn && !isService {
				t.Errorf("%q allows %q to have the address %s", entry, address, at)
			}
		}
	})
}

// cutScheme returns the schemes of the URLs that an entry allows, and the entry without its own.
func cutScheme(entry string) (schemes []string, rest string) {
	for _, plain := range []string{"http", "smtp"} {
		if rest, isPlain := strings.CutPrefix(entry, plain+"://"); isPlain {
			return []string{plain}, rest
		}
	}
	return []string{"https", "smtps"}, entry
}
