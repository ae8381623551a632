package image

import (
	"strings"
	"testing"
	"time"
)

// TestMatch checks the globs of spec.images.exclude as the API describes them.
func TestMatch(t *testing.T) {
	tagged := Reference{Repository: "docker.io/library/nginx", Tag: "1.25"}
	pinned := Reference{Repository: "registry.example.com/base/web", Digest: digestA}
	both := Reference{Repository: "ghcr.io/a/b", Tag: "dev-7", Digest: digestA}
	for _, tt := range []struct {
		glob string
		ref  Reference
		want bool
	}{
		{"docker.io/library/nginx:1.25", tagged, true},
		{"docker.io/library/nginx", tagged, true},
		{"docker.io/library/nginx:*", tagged, true},
		{"docker.io/*", tagged, true},
		{"*nginx*", tagged, true},
		{"*", tagged, true},
		{"docker.io/library/nginx:1.2?", tagged, true},
		{"docker.io/library/nginx:1.?", tagged, false},
		{"nginx", tagged, false},                        // a glob must match the whole normalized reference
		{"nginx:1.25", tagged, false},                   // the same with its tag
		{"docker.io/library/ngin", tagged, false},       // a prefix does not match
		{"docker-io/library/nginx:1.25", tagged, false}, // "." is not a wildcard
		{"", tagged, false},
		{"registry.example.com/base/*", pinned, true}, // "*" matches "/"
		{"*@" + digestA, pinned, true},
		{"registry.example.com/base/web", pinned, true},
		{"*:dev-*", both, true},
		{"ghcr.io/a/b@" + digestA, both, true},
		{"[a-z]*", tagged, false}, // there are no character classes
		{"docker.io/(library)/nginx", tagged, false},
		{"**/nginx*", tagged, true},
	} {
		if got := Match(tt.glob, tt.ref); got != tt.want {
			t.Errorf("Match(%q, %+v) = %v, want %v", tt.glob, tt.ref, got, tt.want)
		}
	}
}

// TestMatchIsQuick checks that no glob that the API accepts takes the operator long.
func TestMatchIsQuick(t *testing.T) {
	glob := strings.Repeat("*a", 255) + "b"
	ref := Reference{Repository: strings.Repeat("a", 400), Tag: strings.Repeat("a", 128)}
	begin := time.Now()
	if Match(glob, ref) {
		t.Error("a glob that ends in b fits a reference without one")
	}
	if spent := time.Since(begin); spent > time.Second {
		t.Errorf("matching took %s, want milliseconds", spent)
	}
}

// FuzzMatch compares Match with the definition, written as a recursion.
func FuzzMatch(f *testing.F) {
	for _, seed := range [][2]string{{"*", "a"}, {"a?c", "abc"}, {"*:dev-*", "x:dev-1"}, {"\xff*", "\xff"}, {"?", "é"}, {"a*b*c", "aXbYc"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, glob, repository string) {
		if len(glob) > 24 || len(repository) > 24 || strings.ToValidUTF8(glob, "") != glob || strings.ToValidUTF8(repository, "") != repository {
			t.Skip("the recursion takes too long, or the API server would not take it")
		}
		ref := Reference{Repository: repository}
		if got, want := Match(glob, ref), fits([]rune(glob), []rune(repository)); got != want {
			t.Errorf("Match(%q, %q) = %v, want %v", glob, repository, got, want)
		}
	})
}

func fits(glob, text []rune) bool {
	switch {
	case len(glob) == 0:
		return len(text) == 0
	case glob[0] == '*':
		return fits(glob[1:], text) || (len(text) > 0 && fits(glob, text[1:]))
	case len(text) == 0:
		return false
	}
	return (glob[0] == '?' || glob[0] == text[0]) && fits(glob[1:], text[1:])
}

func BenchmarkMatch(b *testing.B) {
	ref := Reference{Repository: "registry.example.com/team/application/backend", Tag: "1.25.3-alpine"}
	for b.Loop() {
		Match("registry.example.com/base/*:dev-*", ref)
	}
}
