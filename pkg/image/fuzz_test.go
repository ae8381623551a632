package image

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/package-url/packageurl-go"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// FuzzPullReferences: the registry client pulls from the repository that findings are shown for. Otherwise, a pod could have its findings shown for
// another image.
func FuzzPullReferences(f *testing.F) {
	for _, seed := range []string{"nginx", "library/nginx:1", "index.docker.io/nginx", "ghcr.io/a/b@" + digestA, "localhost/x1", "[::1]:5000/a/b:c", "A.example.com:443/b/c", "a.b/c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := ParseReference(text)
		if err != nil {
			return
		}
		references := PullReferences(digestA, ref.Repository, "", ref.Repository)
		if len(references) != 1 || !strings.HasSuffix(references[0], "@"+digestA) {
			t.Fatalf("%q is pulled from %q, want one reference by digest", text, references)
		}
		pulled, err := name.ParseReference(references[0])
		if err != nil {
			return // such as a name of one letter, or an address that is none: the image fails with that as the reason
		}
		if got := workerapi.CanonicalHost(pulled.Context().RegistryStr()) + "/" + pulled.Context().RepositoryStr(); !strings.EqualFold(got, ref.Repository) || pulled.Identifier() != digestA {
			t.Errorf("%q is shown as %q, but pulled from %q, %s", text, ref.Repository, got, pulled.Identifier())
		}
	})
}

// FuzzShort: a reference for people fits into its limit, and is a part of the reference unless its end was cut.
func FuzzShort(f *testing.F) {
	for _, seed := range []string{"nginx", "ghcr.io/team/application/web:1.2.3", "a.example.com/b@" + digestA, "registry:5000/" + strings.Repeat("x/", 50) + "y:1"} {
		f.Add(seed, uint8(20))
	}
	f.Fuzz(func(t *testing.T, text string, room uint8) {
		ref, err := ParseReference(text)
		limit := int(room) + 3 // the length of an ellipsis
		if err != nil {
			return
		}
		_, digits, _ := strings.Cut(ref.Digest, ":")
		full := ref.Repository + "@" + digits
		if ref.Tag != "" {
			full = ref.Repository + ":" + ref.Tag
		}
		short := ref.Short(limit)
		if beginning, cut := strings.CutSuffix(short, "…"); len(short) > limit || short == "" || !cut && !strings.Contains(full, short) || cut && !strings.Contains(full, beginning) {
			t.Errorf("%q is %q in %d bytes", full, short, limit)
		}
	})
}

// FuzzParsePlatform: a platform is accepted only in its canonical form.
func FuzzParsePlatform(f *testing.F) {
	for _, seed := range []string{"linux/amd64", "linux/arm/v7", "linux/arm/", "linux", "//", "a/b/c/d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if platform, err := ParsePlatform(text); err == nil && platform.String() != text {
			t.Errorf("%q is read as %+v, which is written %q", text, platform, platform)
		}
	})
}

// FuzzPURL: a package URL of an image is read by others as that image.
func FuzzPURL(f *testing.F) {
	for _, seed := range []string{"docker.io/library/nginx", "registry.example.com:5000/Team/app+x", "a b/c%d?e#f", "", "ü/ö", "a/", "host/x:y"} {
		f.Add(seed, "amd64")
	}
	f.Fuzz(func(t *testing.T, repository, architecture string) {
		text := PURL(repository, Key{Digest: digestA, Platform: Platform{OS: "linux", Architecture: architecture}})
		last := strings.ToLower(repository[strings.LastIndex(repository, "/")+1:])
		if last == "" || repository != strings.ToValidUTF8(repository, "") || architecture != strings.ToValidUTF8(architecture, "") {
			return // no reference has such a repository
		}
		purl, err := packageurl.FromString(text)
		if err != nil {
			t.Fatalf("the package URL of %q is %q, which is none: %v", repository, text, err)
		}
		qualifiers := purl.Qualifiers.Map()
		if purl.Type != packageurl.TypeOCI || purl.Namespace != "" || purl.Name != last || purl.Version != digestA || qualifiers["repository_url"] != repository || qualifiers["arch"] != architecture {
			t.Errorf("the package URL of %q for %q is %q, which is read as %+v", repository, architecture, text, purl)
		}
	})
}
