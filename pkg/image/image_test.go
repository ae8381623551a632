package image

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	hexA    = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestA = "sha256:" + hexA
)

// TestParseID checks the forms that container runtimes write into status.containerStatuses[].imageID.
func TestParseID(t *testing.T) {
	for name, tt := range map[string]struct {
		imageID string
		want    ID
	}{
		"containerd and CRI-O":         {"docker.io/library/nginx@" + digestA, ID{Repository: "docker.io/library/nginx", Digest: digestA}},
		"registry with a port":         {"registry:5000/a/b@" + digestA, ID{Repository: "registry:5000/a/b", Digest: digestA}},
		"dockershim":                   {"docker-pullable://nginx@" + digestA, ID{Repository: "nginx", Digest: digestA}},
		"Docker, built on the node":    {"docker://" + digestA, ID{Digest: digestA, Bare: true}},
		"containerd, loaded by import": {digestA, ID{Digest: digestA, Bare: true}},
		"no repository before the @":   {"@" + digestA, ID{Digest: digestA, Bare: true}},
		"CRI-O, built on the node":     {hexA, ID{Digest: digestA, Bare: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseID(tt.imageID)
			if err != nil {
				t.Fatalf("ParseID(%q): %v", tt.imageID, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ParseID(%q) (-want +got):\n%s", tt.imageID, diff)
			}
		})
	}
}

// TestParseIDRefuses checks that a text without a SHA-256 digest gives an error that says that it is about an imageID.
func TestParseIDRefuses(t *testing.T) {
	for name, imageID := range map[string]string{
		"nothing":               "",
		"a tag":                 "docker.io/library/nginx:1.25",
		"a scheme and no more":  "docker-pullable://",
		"a digest cut short":    "nginx@sha256:" + hexA[1:],
		"a digest too long":     "nginx@sha256:" + hexA + "a",
		"capitals":              "nginx@sha256:" + strings.ToUpper(hexA),
		"digits without sha256": "nginx@" + hexA,
		"digits cut short":      hexA[1:],
		"another algorithm":     "nginx@sha512:" + hexA + hexA,
		"something after it":    digestA + "\n",
		"two digests":           "nginx@" + digestA + "@" + digestA,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseID(imageID)
			if err == nil {
				t.Fatalf("ParseID(%q) = %+v, want an error", imageID, got)
			}
			if want := "imageID"; !strings.Contains(err.Error(), want) {
				t.Errorf("the error %q does not say that it is about the %s", err, want)
			}
		})
	}
}

// TestNodePlatforms checks what decides about images of what a node reports: on Windows, the version without the number of the update.
func TestNodePlatforms(t *testing.T) {
	for _, tt := range []struct{ os, kernel, want string }{
		{"linux", "6.8.0-45-generic", "linux/amd64"},
		{"windows", "10.0.20348.2340", "windows/amd64:10.0.20348"},
		{"windows", "10.0.26100", "windows/amd64:10.0.26100"},
		{"windows", "", "windows/amd64"},
		{"windows", "Windows Server 2022", "windows/amd64"},
	} {
		if got := NewPlatform(tt.os, "amd64", tt.kernel).String(); got != tt.want {
			t.Errorf("a node of %s with the kernel %q is %s, want %s", tt.os, tt.kernel, got, tt.want)
		}
	}
}

// TestPlatforms checks that a platform is parsed as it is written, with a third part as the variant.
func TestPlatforms(t *testing.T) {
	for text, want := range map[string]Platform{
		"windows/amd64:10.0.20348": {OS: "windows", Architecture: "amd64", OSVersion: "10.0.20348"},
		"linux/amd64":              {OS: "linux", Architecture: "amd64"},
		"linux/arm/v7":             {OS: "linux", Architecture: "arm", Variant: "v7"},
		"windows/amd64":            {OS: "windows", Architecture: "amd64"},
	} {
		got, err := ParsePlatform(text)
		if err != nil || got != want {
			t.Errorf("ParsePlatform(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("%+v is written %q, want %q", got, got.String(), text)
		}
	}
	for _, text := range []string{"", "linux", "/", "linux/", "/amd64", "linux/arm/", "linux/arm/v7/x"} {
		if got, err := ParsePlatform(text); err == nil {
			t.Errorf("ParsePlatform(%q) = %+v, want an error", text, got)
		}
	}
}

// TestKeyString checks that the text of a key has both digest and platform.
func TestKeyString(t *testing.T) {
	key := Key{Digest: digestA, Platform: Platform{OS: "linux", Architecture: "arm", Variant: "v7"}}
	if want := digestA + ";linux/arm/v7"; key.String() != want {
		t.Errorf("the key is written %q, want %q", key, want)
	}
}

// TestPullReferences checks the order of the references, without empty and duplicate ones.
func TestPullReferences(t *testing.T) {
	for name, tt := range map[string]struct {
		repositories, want []string
	}{
		"none":           {nil, nil},
		"in order":       {[]string{"ghcr.io/b", "docker.io/library/a"}, []string{"ghcr.io/b@" + digestA, "docker.io/library/a@" + digestA}},
		"repeated":       {[]string{"ghcr.io/b", "ghcr.io/c", "ghcr.io/b"}, []string{"ghcr.io/b@" + digestA, "ghcr.io/c@" + digestA}},
		"bare image ids": {[]string{"", "ghcr.io/b", ""}, []string{"ghcr.io/b@" + digestA}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, PullReferences(digestA, tt.repositories...)); diff != "" {
				t.Errorf("references to pull (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseID(f *testing.F) {
	for _, seed := range []string{"", digestA, "docker-pullable://nginx@" + digestA, "a@" + digestA, "docker://" + digestA, "x://y://z@" + digestA} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, imageID string) {
		id, err := ParseID(imageID)
		if err != nil {
			if id != (ID{}) {
				t.Errorf("ParseID(%q) gives %+v beside the error %v", imageID, id, err)
			}
			return
		}
		if !ValidDigest(id.Digest) {
			t.Errorf("ParseID(%q) accepts the digest %q", imageID, id.Digest)
		}
		if id.Bare != (id.Repository == "") {
			t.Errorf("ParseID(%q) = %+v: an id without a repository is bare, any other is not", imageID, id)
		}
		if !strings.HasSuffix(imageID, strings.TrimPrefix(id.Digest, "sha256:")) {
			t.Errorf("ParseID(%q) gives a digest that is not its end: %q", imageID, id.Digest)
		}
	})
}
