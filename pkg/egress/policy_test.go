package egress

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

func target(t *testing.T, p *Policy, address string) (Target, bool) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return p.Target(u)
}

func policy(t *testing.T, entries ...string) *Policy {
	t.Helper()
	p, err := NewPolicy(entries)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestHosts: a URL is allowed if an entry has its scheme, host and port.
func TestHosts(t *testing.T) {
	p := policy(t, " hooks.Example.com ", "", "other.example.com:8443", "*.teams.example.com", "*.ports.example.com:8443", "http://plain.example.com",
		"http://plain.example.com:8080", "mail.example.com:587", "smtp://relay.example.com", "192.0.2.1:9093", "[2001:db8::1]:443", "2001:db8::2")
	for address, want := range map[string]bool{
		"https://hooks.example.com/a?b=c":     true,
		"https://HOOKS.example.com:443/":      true,
		"https://hooks.example.com:8443/":     false,
		"http://hooks.example.com/":           false,
		"http://hooks.example.com:443/":       false,
		"https://hooks.example.com.evil.com/": false,
		"https://evil.com/hooks.example.com":  false,
		"https://hooks.example.com./":         false,
		"https://hooks。example.com/":          false,
		"https://xhooks.example.com/":         false,
		"https://other.example.com:8443/":     true,
		"https://other.example.com/":          false,
		"https://a.teams.example.com/":        true,
		"https://a.b.teams.example.com/":      true,
		"https://teams.example.com/":          false,
		"https://ateams.example.com/":         false,
		"https://.teams.example.com/":         false,
		"https://a_b/x.teams.example.com":     false,
		"https://a.ports.example.com:8443/":   true,
		"https://a.ports.example.com/":        false,
		"http://plain.example.com/":           true,
		"http://plain.example.com:8080/":      true,
		"https://plain.example.com/":          false,
		"https://192.0.2.1:9093/":             true,
		"https://192.0.2.2:9093/":             false,
		"https://[2001:db8::1]/":              true,
		"https://[2001:DB8::2]/":              true,
		"ftp://hooks.example.com/":            false,
		"smtps://mail.example.com:587":        true,
		"smtps://mail.example.com:465":        false,
		"smtp://mail.example.com:587":         false,
		"smtp://relay.example.com:25":         true,
		"smtps://relay.example.com:25":        false,
		"http://relay.example.com:25":         false,
		"smtp://plain.example.com:80":         false,
	} {
		got, allowed := target(t, p, address)
		if allowed != want {
			t.Errorf("%s is allowed: %t, want %t", address, allowed, want)
		}
		if allowed && got.URL() == "" {
			t.Errorf("%s: the target has no URL", address)
		}
	}
	if _, allowed := target(t, &Policy{}, "https://hooks.example.com/"); allowed {
		t.Error("a policy without entries allows a host")
	}
}

// TestAddresses: a target may have public addresses, and those that its entry or a listed network allows.
func TestAddresses(t *testing.T) {
	p := policy(t, "hooks.example.com", "*.example.net", "http://plain.example.com", "alertmanager.monitoring.svc:9093", "a.b.svc.cluster.local",
		"a.svc.example.com", "*.shop.svc", "127.0.0.1:8443", "10.20.0.0/16", "fd00:20::/32")
	public := []string{"93.184.215.14:443", "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:443"}
	listed := []string{"10.20.0.1:443", "[fd00:20::1]:443"}
	private := []string{"10.96.0.1:443", "172.16.0.1:443", "192.168.0.1:443", "100.64.0.1:443", "[fd00::1]:443"}
	never := []string{
		"127.0.0.1:443", "127.1.2.3:443", "0.0.0.0:443", "169.254.169.254:80", "224.0.0.1:443", "255.255.255.255:443",
		"[::1]:443", "[::]:443", "[fe80::1]:443", "[ff02::1]:443", "[::ffff:127.0.0.1]:443", "[::ffff:10.96.0.1]:443", "[64:ff9b::a9fe:a9fe]:443",
	}
	for address, want := range map[string][][]string{
		"https://hooks.example.com/":                {public, listed},
		"https://a.example.net/":                    {public, listed},
		"http://plain.example.com/":                 {public, listed},
		"https://alertmanager.monitoring.svc:9093/": {public, listed, private},
		"https://a.b.svc.cluster.local/":            {public, listed, private},
		"https://a.svc.example.com/":                {public, listed},
		"https://a.shop.svc/":                       {public, listed},
		"https://127.0.0.1:8443/":                   {public, listed, {"127.0.0.1:443"}},
	} {
		to, allowed := target(t, p, address)
		if !allowed {
			t.Fatalf("%s is not allowed", address)
		}
		may := map[string]bool{}
		for _, group := range want {
			for _, at := range group {
				may[at] = true
			}
		}
		for _, group := range [][]string{public, listed, private, never} {
			for _, at := range group {
				network := "tcp4"
				if strings.HasPrefix(at, "[") {
					network = "tcp6"
				}
				if err := to.Control(network, at, nil); (err == nil) != may[at] {
					t.Errorf("%s may have the address %s: %v, want %t", address, at, err, may[at])
				} else if err != nil && !errors.Is(err, ErrAddress) {
					t.Errorf("%s at %s: error %v, want ErrAddress", address, at, err)
				}
			}
		}
	}
	if err := Trusted("https://slack.example.com/api").Control("tcp4", "10.0.0.1:443", nil); err != nil {
		t.Errorf("an address that the administrator has configured is refused: %v", err)
	}
}

// TestInvalidEntries: the error names the entry.
func TestInvalidEntries(t *testing.T) {
	for _, entry := range []string{
		"https://hooks.example.com", "hooks.example.com/path", "*", "*.com", "a*.example.com", "*.*.example.com", "http://*.example.com", "*.10.0.0.1",
		"user@example.com", "a b", "10.0.0.0/33", "hooks。example.com", "http://",
	} {
		if _, err := NewPolicy([]string{"hooks.slack.com", entry}); err == nil || !strings.Contains(err.Error(), entry) {
			t.Errorf("%q: error %v, want one that names it", entry, err)
		}
	}
}
