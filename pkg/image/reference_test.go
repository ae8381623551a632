package image

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseReference checks that the implied registry and tag are written out, and that tags are kept.
func TestParseReference(t *testing.T) {
	for text, want := range map[string]struct {
		ref   Reference
		whole string
	}{
		"nginx":                       {Reference{Repository: "docker.io/library/nginx", Tag: "latest"}, "docker.io/library/nginx:latest"},
		"nginx:1.25":                  {Reference{Repository: "docker.io/library/nginx", Tag: "1.25"}, "docker.io/library/nginx:1.25"},
		"bitnami/redis":               {Reference{Repository: "docker.io/bitnami/redis", Tag: "latest"}, "docker.io/bitnami/redis:latest"},
		"index.docker.io/bitnami/x:1": {Reference{Repository: "docker.io/bitnami/x", Tag: "1"}, "docker.io/bitnami/x:1"},
		"ghcr.io/a/b@" + digestA:      {Reference{Repository: "ghcr.io/a/b", Digest: digestA}, "ghcr.io/a/b@" + digestA},
		"ghcr.io/a/b:v1@" + digestA:   {Reference{Repository: "ghcr.io/a/b", Tag: "v1", Digest: digestA}, "ghcr.io/a/b:v1"},
		"localhost:5000/a:v1":         {Reference{Repository: "localhost:5000/a", Tag: "v1"}, "localhost:5000/a:v1"},
		"198.51.100.10:5000/shop/api": {Reference{Repository: "198.51.100.10:5000/shop/api", Tag: "latest"}, "198.51.100.10:5000/shop/api:latest"},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := ParseReference(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.ref, got); diff != "" {
				t.Errorf("ParseReference(%q) (-want +got):\n%s", text, diff)
			}
			if got.String() != want.whole {
				t.Errorf("%q in full is %q, want %q", text, got, want.whole)
			}
		})
	}
}

// TestShort: a table has room for the end of the repository and the tag. Registry, "library" and, if necessary, further parts go first.
func TestShort(t *testing.T) {
	for text, want := range map[string]string{
		"nginx":                                  "nginx:latest",
		"nginx:1.25":                             "nginx:1.25",
		"registry.example.com:5000/shop/web:1.4": "shop/web:1.4",
		"ghcr.io/a/b:v1@" + digestA:              "a/b:v1",
		"nginx@" + digestA:                       "nginx@" + hexA[:12],
		"registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.9.0":       "csi-node-driver-registrar:v2.9.0",
		"ecr.example.com/team/a/payments-service:2024.11.3":                  "team/a/payments-service:2024.11.3",
		"ecr.example.com/payments-service:2024.11.23-build.4711-a1b2c3d4e5f": "payments-service:2024.11.23-build.471…",
	} {
		ref, err := ParseReference(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := ref.Short(40); got != want {
			t.Errorf("%s is %q in short, want %q", text, got, want)
		}
	}
}

// TestParseReferenceRefuses checks that an invalid reference gives an error that repeats it.
func TestParseReferenceRefuses(t *testing.T) {
	for _, text := range []string{"", "Nginx", "a b", "https://ghcr.io/a", "nginx:", "nginx@sha256:short", ":1.25", "-/x", hexA} {
		got, err := ParseReference(text)
		if err == nil {
			t.Errorf("ParseReference(%q) = %+v, want an error", text, got)
			continue
		}
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error for %q does not repeat it: %v", text, err)
		}
	}
}

// FuzzParseReference checks that an accepted reference is complete, and that parsing it again changes nothing.
func FuzzParseReference(f *testing.F) {
	for _, seed := range []string{"nginx", "nginx:1", "a/b@" + digestA, "ghcr.io/a/b:v1@" + digestA, "localhost/x", "[::1]:5000/a:b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := ParseReference(text)
		if err != nil {
			return
		}
		if !strings.Contains(ref.Repository, "/") || (ref.Tag == "" && ref.Digest == "") {
			t.Fatalf("ParseReference(%q) = %+v: registry, tag or digest is missing", text, ref)
		}
		again, err := ParseReference(ref.String())
		if err != nil {
			t.Fatalf("%q in full is %q, which is not accepted: %v", text, ref, err)
		}
		if again.String() != ref.String() || again.Repository != ref.Repository {
			t.Errorf("%q in full is %q, and that in full is %q", text, ref, again)
		}
	})
}
