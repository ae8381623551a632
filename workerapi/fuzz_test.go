package workerapi

import (
	"strings"
	"testing"
)

// FuzzCanonicalHost: all spellings of a host have one canonical form, and that is its own.
func FuzzCanonicalHost(f *testing.F) {
	for _, seed := range []string{"", "docker.io", "INDEX.docker.io", "registry-1.docker.io", "www.docker.com", "Registry.Example.com:5000", "[::1]:5000", "ü"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		canonical := CanonicalHost(host)
		if again := CanonicalHost(canonical); again != canonical {
			t.Errorf("%q becomes %q, and that %q", host, canonical, again)
		}
		// Names of hosts are ASCII: references and certificates have no others.
		isASCII := !strings.ContainsFunc(host, func(r rune) bool { return r > '~' })
		if upper := CanonicalHost(strings.ToUpper(host)); isASCII && upper != canonical {
			t.Errorf("%q becomes %q, and in upper case %q", host, canonical, upper)
		}
	})
}
