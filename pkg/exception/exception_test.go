package exception_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

// web is registry.example.com/shop/web:1.4 with the digest that its node reports.
var web = exception.Image{Reference: image.Reference{Repository: "registry.example.com/shop/web", Tag: "1.4"}, Digest: digest}

// openssl is a finding with an alias.
var openssl = finding.Finding{
	ID: "CVE-2026-0001", Aliases: []string{"GHSA-aaaa-bbbb-cccc"},
	Package: finding.Package{Name: "openssl", Version: "3.0.11-1~deb12u2", Type: "deb"},
}

func packages(selectors ...exception.Package) exception.Exception {
	return exception.Exception{Packages: selectors}
}

func images(globs ...string) exception.Exception {
	return exception.Exception{Vulnerabilities: []string{"CVE-2026-0001"}, Images: globs}
}

func ids(ids ...string) exception.Exception { return exception.Exception{Vulnerabilities: ids} }

// TestSuppressedBy: which exceptions suppress openssl in web.
func TestSuppressedBy(t *testing.T) {
	for name, tt := range map[string]struct {
		exception exception.Exception
		want      bool
	}{
		"neither ids nor packages":       {exception.Exception{Images: []string{"*"}}, false},
		"its id":                         {ids("CVE-2026-0001"), true},
		"its id in lower case":           {ids("cve-2026-0001"), true},
		"its alias":                      {ids("CVE-2000-0001", "ghsa-AAAA-bbbb-cccc"), true},
		"another id":                     {ids("CVE-2026-00011"), false},
		"the beginning of its id":        {ids("CVE-2026-000"), false},
		"an id is no glob":               {ids("CVE-2026-*"), false},
		"its package":                    {packages(exception.Package{Name: "openssl"}), true},
		"packages are case sensitive":    {packages(exception.Package{Name: "OpenSSL"}), false},
		"one of several packages":        {packages(exception.Package{Name: "zlib"}, exception.Package{Name: "open*"}), true},
		"its package in its version":     {packages(exception.Package{Name: "openssl", Version: "3.0.*"}), true},
		"its package in another version": {packages(exception.Package{Name: "openssl", Version: "3.1.*"}), false},
		"its package of its type":        {packages(exception.Package{Name: "openssl", Type: "deb"}), true},
		"its package of another type":    {packages(exception.Package{Name: "openssl", Type: "rpm"}), false},
		"a type is no glob":              {packages(exception.Package{Type: "*"}), false},
		"each of two selectors half fits": {
			packages(exception.Package{Name: "openssl", Type: "rpm"}, exception.Package{Name: "zlib", Type: "deb"}), false,
		},
		"its id in another package":     {exception.Exception{Vulnerabilities: []string{"CVE-2026-0001"}, Packages: []exception.Package{{Name: "zlib"}}}, false},
		"another id in its package":     {exception.Exception{Vulnerabilities: []string{"CVE-1"}, Packages: []exception.Package{{Name: "openssl"}}}, false},
		"its repository":                {images("registry.example.com/shop/web"), true},
		"its reference":                 {images("registry.example.com/shop/web:1.4"), true},
		"another tag":                   {images("registry.example.com/shop/web:1.5"), false},
		"a glob over slashes":           {images("registry.example.com/*"), true},
		"a glob in the middle":          {images("*/shop/*:1.?"), true},
		"another registry":              {images("registry.example.org/*"), false},
		"what the registry begins with": {images("registry.example.com"), false},
		"its digest":                    {images("*@" + digest), true},
		"another digest":                {images("*@sha256:2*"), false},
		"the second of two globs":       {images("x", "*/web"), true},
	} {
		t.Run(name, func(t *testing.T) {
			set := exception.NewSet([]exception.Exception{tt.exception}, noon)
			if got := set.SuppressedBy(web, openssl) != nil; got != tt.want {
				t.Errorf("it is covered: %v, want %v", got, tt.want)
			}
		})
	}
}

// TestWithoutDigest: while an image's digest is not known, no glob for a digest matches it.
func TestWithoutDigest(t *testing.T) {
	set := exception.NewSet([]exception.Exception{images("*@*")}, noon)
	if e := set.SuppressedBy(exception.Image{Reference: web.Reference}, openssl); e != nil {
		t.Error("an image without a digest is covered by one")
	}
}

// TestLatestExpiryWins: of several exceptions, the one that expires last is returned. Expired ones are ignored.
func TestLatestExpiryWins(t *testing.T) {
	named := func(namespace, name string, ends time.Duration) exception.Exception {
		e := exception.Exception{UID: name, Namespace: namespace, Name: name, Vulnerabilities: []string{"CVE-2026-0001"}}
		if ends != 0 {
			e.Expires = noon.Add(ends)
		}
		return e
	}
	over, now, soon, late, never := named("shop", "over", -time.Hour), named("shop", "now", 0), named("shop", "soon", 1), named("shop", "late", time.Hour), named("shop", "never", 0)
	now.Expires = noon
	for name, tt := range map[string]struct {
		given []exception.Exception
		want  []string // all that are in force, in order
	}{
		"none":                      {nil, nil},
		"only such that have ended": {[]exception.Exception{over, now}, nil},
		"the one that never ends":   {[]exception.Exception{soon, over, never, late}, []string{"never", "late", "soon"}},
		"the one that ends last":    {[]exception.Exception{soon, late, now}, []string{"late", "soon"}},
		"the cluster's first":       {[]exception.Exception{never, named("", "wide", 0)}, []string{"wide", "never"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := exception.NewSet(tt.given, noon)
			var got []string
			for _, e := range set.All() {
				got = append(got, e.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("in force (-want +got):\n%s", diff)
			}
			covering := set.SuppressedBy(web, openssl)
			if (covering == nil) != (len(tt.want) == 0) || covering != nil && covering.Name != tt.want[0] {
				t.Errorf("%+v covers it, want the first of %q", covering, tt.want)
			}
		})
	}
}

// TestSuppressedUnderAllNames: a finding in an image with several names is suppressed only if it is under each of them.
func TestSuppressedUnderAllNames(t *testing.T) {
	mirror := exception.Image{Reference: image.Reference{Repository: "mirror.example.com/web", Tag: "1.4"}, Digest: digest}
	ours, theirs := images("registry.example.com/*"), images("mirror.example.com/*")
	ours.Name, theirs.Name = "ours", "theirs"
	for name, tt := range map[string]struct {
		exceptions []exception.Exception
		images     []exception.Image
		want       string
	}{
		"no name":                 {[]exception.Exception{ours}, nil, ""},
		"one name":                {[]exception.Exception{ours}, []exception.Image{web}, "ours"},
		"one of two names":        {[]exception.Exception{ours}, []exception.Image{web, mirror}, ""},
		"each by one of its own":  {[]exception.Exception{ours, theirs}, []exception.Image{mirror, web}, "theirs"},
		"the same name twice":     {[]exception.Exception{ours}, []exception.Image{web, web}, "ours"},
		"nothing is in the way":   {nil, []exception.Image{web}, ""},
		"the other one of two":    {[]exception.Exception{theirs}, []exception.Image{web, mirror}, ""},
		"a third that none names": {[]exception.Exception{ours, theirs}, []exception.Image{web, mirror, {}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			covering := exception.NewSet(tt.exceptions, noon).SuppressedUnderAllNames(tt.images, openssl)
			if got := covering; (got == nil) != (tt.want == "") || got != nil && got.Name != tt.want {
				t.Errorf("%+v covers it, want %q", got, tt.want)
			}
		})
	}
}

// TestStatements: a statement of an attached document suppresses findings of the image with its manifest, and of no other.
func TestStatements(t *testing.T) {
	in := func(manifest int64, repository string) exception.Image {
		return exception.Image{Namespace: "shop", Reference: image.Reference{Repository: repository}, Digest: digest, Manifest: manifest}
	}
	statement := func(manifest int64, change func(*exception.Exception)) exception.Exception {
		e := exception.Exception{
			UID: "statement", Name: "doc", Signer: "jane", Manifest: manifest, Namespaces: map[string]bool{"shop": true}, Images: []string{"registry.example.com/*"},
			Vulnerabilities: []string{"CVE-2026-0001"},
		}
		if change != nil {
			change(&e)
		}
		return e
	}
	ours := in(7, "registry.example.com/shop/web")
	accepted, ending := ids("CVE-2026-0001"), ids("CVE-2026-0001")
	accepted.Name, ending.Name, ending.Expires = "accepted", "ending", noon.Add(time.Hour)
	for name, tt := range map[string]struct {
		exceptions []exception.Exception
		image      exception.Image
		want       string
	}{
		"its image":                       {[]exception.Exception{statement(7, nil)}, ours, "doc"},
		"another manifest":                {[]exception.Exception{statement(7, nil)}, in(8, "registry.example.com/shop/web"), ""},
		"a manifest that is not known":    {[]exception.Exception{statement(7, nil)}, in(0, "registry.example.com/shop/web"), ""},
		"another registry":                {[]exception.Exception{statement(7, nil)}, in(7, "registry.example.org/shop/web"), ""},
		"another namespace":               {[]exception.Exception{statement(7, func(e *exception.Exception) { e.Namespaces = map[string]bool{"blog": true} })}, ours, ""},
		"another vulnerability":           {[]exception.Exception{statement(7, func(e *exception.Exception) { e.Vulnerabilities = []string{"CVE-2"} })}, ours, ""},
		"another package":                 {[]exception.Exception{statement(7, func(e *exception.Exception) { e.Packages = []exception.Package{{Name: "zlib", Type: "deb"}} })}, ours, ""},
		"a resource goes first":           {[]exception.Exception{statement(7, nil), accepted}, ours, "accepted"},
		"what does not expire goes first": {[]exception.Exception{ending, statement(7, nil)}, ours, "doc"},
		"a resource alone":                {[]exception.Exception{ending, statement(8, nil)}, ours, "ending"},
	} {
		t.Run(name, func(t *testing.T) {
			set := exception.NewSet(tt.exceptions, noon)
			for what, set := range map[string]exception.Set{
				"the set": set, "the part about the image": set.About(map[int64]bool{tt.image.Manifest: true}), "the part in the namespace": set.In(map[string]bool{"shop": true}),
			} {
				by := set.SuppressedBy(tt.image, openssl)
				if (by == nil) != (tt.want == "") || by != nil && by.Name != tt.want {
					t.Errorf("of %s, %+v suppresses it, want %q", what, by, tt.want)
				}
				if ids, _, _ := set.SearchBounds(); by != nil && !slices.Contains(ids, "CVE-2026-0001") {
					t.Errorf("a search for %q does not find what %s suppresses", ids, what)
				}
			}
		})
	}
	both := exception.NewSet([]exception.Exception{accepted, statement(7, nil), statement(8, nil)}, noon)
	one, none := both.About(map[int64]bool{7: true}), both.About(nil)
	if len(both.All()) != 3 || len(one.All()) != 2 || len(none.All()) != 1 {
		t.Errorf("%d, %d and %d exceptions, want 3, 2 and 1", len(both.All()), len(one.All()), len(none.All()))
	}
	if keys := map[string]bool{both.Key(): true, one.Key(): true, none.Key(): true}; len(keys) != 3 {
		t.Error("sets that suppress different findings have the same key")
	}
	if alone := exception.NewSet([]exception.Exception{accepted}, noon); alone.Key() != none.Key() {
		t.Error("statements about other images change the key")
	}
}

// Generators with few values, so that exceptions match findings.
var (
	someID      = rapid.SampledFrom([]string{"CVE-1", "cve-1", "CVE-2", "GHSA-a", "ghsa-A", "CVE-3"})
	someName    = rapid.SampledFrom([]string{"openssl", "zlib", "libssl"})
	somePattern = rapid.SampledFrom([]string{"", "openssl", "zlib", "*ssl", "z?ib", "*"})
	someType    = rapid.SampledFrom([]string{"", "deb", "rpm"})
	someVersion = rapid.SampledFrom([]string{"", "1", "2", "1*"})
	someGlob    = rapid.SampledFrom([]string{"*", "registry.example.com/*", "*/web", "*:1.4", "*@sha256:*", "other"})
)

func drawException(t *rapid.T) exception.Exception {
	e := exception.Exception{
		UID:             rapid.StringMatching(`[a-c]`).Draw(t, "uid"),
		Vulnerabilities: rapid.SliceOfN(someID, 0, 3).Draw(t, "ids"),
		Images:          rapid.SliceOfN(someGlob, 0, 2).Draw(t, "images"),
		Expires:         noon.Add(time.Duration(rapid.IntRange(-1, 3).Draw(t, "hours")) * time.Hour),
	}
	for range rapid.IntRange(0, 2).Draw(t, "packages") {
		e.Packages = append(e.Packages, exception.Package{
			Name: somePattern.Draw(t, "name"), Version: someVersion.Draw(t, "version"), Type: someType.Draw(t, "type"),
		})
	}
	return e
}

func drawFinding(t *rapid.T) finding.Finding {
	return finding.Finding{
		ID: someID.Draw(t, "id"), Aliases: rapid.SliceOfN(someID, 0, 2).Draw(t, "aliases"),
		Package: finding.Package{Name: someName.Draw(t, "package"), Version: "1", Type: "deb"},
	}
}

// TestSearchBounds: the bounds of Narrowing include everything that is suppressed.
func TestSearchBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := exception.NewSet(rapid.SliceOfN(rapid.Custom(drawException), 0, 4).Draw(t, "exceptions"), noon)
		f := drawFinding(t)
		ids, packages, every := set.SearchBounds()
		found := every || slices.Contains(packages, f.Package.Name)
		for _, id := range append(f.Aliases, f.ID) {
			found = found || slices.Contains(ids, strings.ToUpper(id))
		}
		if set.SuppressedBy(web, f) != nil && !found {
			t.Fatalf("%+v is covered, and not among the ids %q and packages %q", f, ids, packages)
		}
		if every && (len(ids) > 0 || len(packages) > 0) {
			t.Fatalf("there is no bound, and there are ids %q and packages %q", ids, packages)
		}
	})
}

// TestKey: the key changes with everything that decides what is suppressed, and with nothing else.
func TestKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		exceptions := rapid.SliceOfN(rapid.Custom(drawException), 0, 4).Draw(t, "exceptions")
		set := exception.NewSet(exceptions, noon)
		if (set.Key() == "") != (len(set.All()) == 0) {
			t.Fatalf("%d exceptions have the key %q", len(set.All()), set.Key())
		}
		reworded := slices.Clone(exceptions)
		for i := range reworded { // text for people decides nothing
			reworded[i].Status, reworded[i].Justification, reworded[i].Reason, reworded[i].Action, reworded[i].Created = "fixed", "x", "y", "z", noon
		}
		if exception.NewSet(reworded, noon).Key() != set.Key() {
			t.Fatal("another reason makes another key")
		}
		if len(set.All()) == 0 {
			return
		}
		changed := set.All()
		one := &changed[rapid.IntRange(0, len(changed)-1).Draw(t, "changed")]
		switch rapid.IntRange(0, 4).Draw(t, "change") {
		case 0:
			one.UID += "'"
		case 1:
			one.Vulnerabilities = append(slices.Clone(one.Vulnerabilities), `CVE-9" "CVE-8`)
		case 2:
			one.Packages = append(slices.Clone(one.Packages), exception.Package{Name: `a" "b`})
		case 3:
			one.Images = append(slices.Clone(one.Images), "x")
		case 4:
			one.Expires = noon
		}
		if exception.NewSet(changed, noon).Key() == set.Key() {
			t.Fatalf("%+v and %+v have the same key", set.All(), changed)
		}
	})
}

// TestKeyIsUnambiguous: values of different fields never give the same key.
func TestKeyIsUnambiguous(t *testing.T) {
	different := []exception.Exception{
		ids("a", "b"), ids("a b"), ids(`a" "b`), ids("a"), packages(exception.Package{Name: "a"}), packages(exception.Package{Version: "a"}),
		packages(exception.Package{Type: "a"}), packages(exception.Package{Name: "a"}, exception.Package{}), packages(exception.Package{Name: `a" "`}),
		{Images: []string{"a"}}, {Images: []string{"a", "b"}}, {Images: []string{`a" "b`}}, {UID: "a"}, {UID: `a" ["b"]`},
	}
	keys := map[string]int{}
	for i, e := range different {
		key := exception.NewSet([]exception.Exception{e}, noon).Key()
		if other, found := keys[key]; found {
			t.Errorf("%+v and %+v have the same key", different[other], e)
		}
		keys[key] = i
	}
}

// TestHostileLengths: the longest globs that the API server accepts are compared fast with any names.
func TestHostileLengths(t *testing.T) {
	stars := strings.Repeat("*a", 256)
	e := exception.Exception{}
	for range 50 {
		e.Packages = append(e.Packages, exception.Package{Name: stars[:256], Version: stars[:256]})
		e.Images = append(e.Images, stars+"b")
	}
	set := exception.NewSet([]exception.Exception{e}, noon)
	hostile := finding.Finding{ID: strings.Repeat("C", 10_000), Package: finding.Package{Name: strings.Repeat("a", 1000), Version: strings.Repeat("a", 1000)}}
	named := exception.Image{Reference: image.Reference{Repository: strings.Repeat("a", 1000)}, Digest: strings.Repeat("a", 1000)}
	if set.SuppressedBy(named, hostile) != nil {
		t.Error("an image is covered whose name does not end as the glob does")
	}
}

// TestByName: each name of an image has the exception that suppresses the finding under it.
func TestByName(t *testing.T) {
	in := func(namespace string) exception.Image {
		img := web
		img.Namespace = namespace
		return img
	}
	of := func(namespace string) exception.Exception {
		e := ids("CVE-2026-0001")
		e.UID, e.Name, e.Namespace = namespace, namespace, namespace
		return e
	}
	some := of("")
	some.Namespaces = map[string]bool{"shop": true, "kitchen": true}
	for name, tt := range map[string]struct {
		given []exception.Exception
		want  []string // of blog, shop and kitchen
		all   bool
	}{
		"none":                  {nil, nil, false},
		"of another namespace":  {[]exception.Exception{of("bank")}, nil, false},
		"of one namespace":      {[]exception.Exception{of("shop")}, []string{"-", "shop", "-"}, false},
		"of each":               {[]exception.Exception{of("shop"), of("blog"), of("kitchen")}, []string{"blog", "shop", "kitchen"}, true},
		"of the cluster":        {[]exception.Exception{of("")}, []string{"", "", ""}, true},
		"of selected ones":      {[]exception.Exception{some}, []string{"-", "", ""}, false},
		"together with another": {[]exception.Exception{some, of("blog")}, []string{"blog", "", ""}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for what, set := range map[string]exception.Set{
				"one set": exception.NewSet(tt.given, noon),
				"joined":  exception.NewSet(tt.given[:len(tt.given)/2], noon).With(exception.NewSet(tt.given[len(tt.given)/2:], noon)),
			} {
				by, all := set.Compare([]exception.Image{in("blog"), in("shop"), in("kitchen")}).ByName(openssl)
				var got []string
				for _, e := range by {
					if e == nil {
						got = append(got, "-")
					} else {
						got = append(got, e.Name)
					}
				}
				if diff := cmp.Diff(tt.want, got); diff != "" || all != tt.all {
					t.Errorf("%s: under all names %t, want %t; by name (-want +got):\n%s", what, all, tt.all, diff)
				}
			}
		})
	}
}

// TestCostOfFindings: what a finding costs does not grow with the globs of many exceptions, however they are made: as long as the API server accepts, and
// almost as the names that they are compared with.
func TestCostOfFindings(t *testing.T) {
	long := strings.Repeat("a", 220)
	img := exception.Image{Namespace: "shop", Reference: image.Reference{Repository: "registry.example.com/" + long, Tag: strings.Repeat("a", 128)}, Digest: digest}
	glob := func(fill string, length int) string { return "*" + strings.Repeat(fill, length/len(fill)) + "!*" }
	for name, about := range map[string]func(n, i int) (images string, pkg exception.Package){
		"images":             func(_, i int) (string, exception.Package) { return glob("a", 90+i), exception.Package{Name: "*"} },
		"images with ?":      func(_, i int) (string, exception.Package) { return glob("a?", 200+i), exception.Package{Name: "*"} },
		"images with many *": func(_, i int) (string, exception.Package) { return glob("*a", 400+i), exception.Package{Name: "*"} },
		"packages":           func(_, i int) (string, exception.Package) { return "*", exception.Package{Name: glob("a", 90+i)} },
		"packages with ?":    func(_, i int) (string, exception.Package) { return "*", exception.Package{Name: glob("?a", 100+i)} },
		"versions with many *": func(_, i int) (string, exception.Package) {
			return "*", exception.Package{Name: "*", Version: glob("*?a", 200+i)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all []exception.Exception
			for n := range 100 {
				e := exception.Exception{UID: name, Namespace: "shop", Name: name}
				for i := range 50 {
					glob, pkg := about(n, i)
					e.Images, e.Packages = append(e.Images, glob), append(e.Packages, pkg)
				}
				all = append(all, e)
			}
			compared := exception.NewSet(all, noon).Compare([]exception.Image{img})
			f := finding.Finding{Package: finding.Package{Name: long, Version: long, Type: "deb"}}
			began := time.Now()
			for i := range 10_000 {
				f.ID = fmt.Sprint("CVE-2026-", i)
				if compared.SuppressedBy(f) != nil {
					t.Fatal("suppressed")
				}
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("10,000 findings took %s, want at most 2 s", took)
			}
		})
	}
}
