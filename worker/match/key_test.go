package match_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/anchore/grype/grype/distro"
	"github.com/anchore/grype/grype/pkg"
	"github.com/anchore/syft/syft/artifact"
	"github.com/anchore/syft/syft/cpe"
	"github.com/anchore/syft/syft/file"
	syftpkg "github.com/anchore/syft/syft/pkg"

	"github.com/scanner-operator/scanner-operator/worker/match"
)

// notInKey are the fields that no matcher of Grype 0.121 reads. Everything that a later Grype adds must be in the key, or here.
var notInKey = map[string]bool{
	"ID": true, "Locations": true, "Licenses": true, "Annotations": true, "RelatedPackages": true, "Metadata.VirtualPath": true,
}

// fullPackage returns a package that has a value in every field of the key.
func fullPackage(metadata any) pkg.Package {
	release := distro.New(distro.Debian, "12.5.1", "bookworm", "debian")
	release.Channels, release.SupportEnd = []string{"eus"}, &time.Time{}
	return pkg.Package{
		ID: "id", Name: "libssl3", Version: "3.0.9-1", Language: "go", Type: "deb", PURL: "pkg:deb/debian/libssl3@3.0.9-1",
		Distro: release, Upstreams: []pkg.UpstreamPackage{{Name: "openssl", Version: "3.0.9"}}, Metadata: metadata,
		CPEs: []cpe.CPE{{Attributes: cpe.Attributes{Part: "a", Vendor: "openssl", Product: "openssl", Version: "3.0.9"}}},
	}
}

// TestKeyHasEveryField changes each field of a package, its distribution and its metadata alone. Each change must lead to another key or
// to none, except for fields that matchers do not read.
func TestKeyHasEveryField(t *testing.T) {
	epoch, module := 1, "nodejs:18"
	for name, metadata := range map[string]any{
		"none": nil, "apk": pkg.ApkMetadata{Arch: "x86_64"}, "go": pkg.GolangBinMetadata{MainModule: "example.org/server"},
		"java": pkg.JavaMetadata{VirtualPath: "/app.jar", ArchiveDigests: []pkg.Digest{{Algorithm: "sha1", Value: "abc"}}},
		"jvm":  pkg.JavaVMInstallationMetadata{}, "rpm": pkg.RpmMetadata{Epoch: &epoch, ModularityLabel: &module},
	} {
		t.Run(name, func(t *testing.T) {
			p := fullPackage(metadata)
			original := match.KeyOf(p)
			if original == "" {
				t.Fatal("the package has no key")
			}
			fields := 0
			change(t, reflect.ValueOf(&p).Elem(), "", func(field string) {
				fields++
				key := match.KeyOf(p)
				if differs := key != original; differs == notInKey[field] {
					t.Errorf("%s was changed: the key differs: %t, want %t", field, differs, !notInKey[field])
				}
			})
			if match.KeyOf(p) != original || fields < 35 {
				t.Errorf("%d fields were changed and restored, want at least 35", fields)
			}
		})
	}
	if match.KeyOf(fullPackage(pkg.GolangModMetadata{})) != "" {
		t.Error("metadata of an unknown kind has a key")
	}
}

// change changes each part of an addressable value, one after the other, and restores it after visit.
func change(t *testing.T, v reflect.Value, field string, visit func(field string)) {
	t.Helper()
	set := func(changed reflect.Value) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(changed.Convert(v.Type()))
		visit(field)
		v.Set(old)
	}
	switch {
	case notInKey[field] && v.Kind() != reflect.String:
		set(map[string]reflect.Value{
			"Locations": reflect.ValueOf(file.NewLocationSet(file.NewLocation("/usr/bin/openssl"))), "Licenses": reflect.ValueOf([]string{"MIT"}),
			"Annotations":     reflect.ValueOf(map[string][]string{"a": {"b"}}),
			"RelatedPackages": reflect.ValueOf(map[artifact.RelationshipType][]*pkg.Package{"contains": {{}}}),
		}[field])
	case v.Type() == reflect.TypeFor[time.Time]():
		set(reflect.ValueOf(time.Unix(1, 0)))
	case v.Kind() == reflect.String:
		set(reflect.ValueOf(v.String() + "x"))
	case v.Kind() == reflect.Int:
		set(reflect.ValueOf(int(v.Int() + 1)))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name := f.Name
			if field != "" {
				name = field + "." + f.Name
			}
			switch {
			case f.IsExported():
				change(t, v.Field(i), name, visit)
			case v.Type() != reflect.TypeFor[distro.Distro]():
				t.Errorf("%s is not exported: is it in the key?", name)
			}
		}
		if v.Type() == reflect.TypeFor[distro.Distro]() {
			// The parts of a version that are not exported.
			for _, version := range []string{"13.5.1", "12.6.1", "12.5.2"} {
				other := *distro.New(distro.Debian, version, "bookworm", "debian")
				other.Version, other.Channels, other.SupportEnd = "12.5.1", []string{"eus"}, &time.Time{}
				set(reflect.ValueOf(other))
			}
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			change(t, v.Index(i), field, visit)
		}
		set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case v.Kind() == reflect.Map:
		one := reflect.MakeMap(v.Type())
		one.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem())
		set(one)
	case v.Kind() == reflect.Pointer:
		change(t, v.Elem(), field, visit)
		set(reflect.Zero(v.Type()))
	case v.Kind() == reflect.Interface:
		if v.IsNil() {
			return
		}
		inner := reflect.New(v.Elem().Type()).Elem()
		inner.Set(v.Elem())
		change(t, inner, field, func(field string) {
			old := v.Elem()
			v.Set(inner)
			visit(field)
			v.Set(old)
		})
	default:
		t.Errorf("%s has a %s: is it in the key?", field, v.Kind())
	}
}

// TestKeyKeepsFieldsApart checks that values in neighbouring fields are not mixed.
func TestKeyKeepsFieldsApart(t *testing.T) {
	one, other := fullPackage(nil), fullPackage(nil)
	one.Name, one.Version = "ab", "c"
	other.Name, other.Version = "a", "bc"
	if match.KeyOf(one) == match.KeyOf(other) {
		t.Error("ab c and a bc have the same key")
	}
}

// TestEachTypeHasOneMatcher checks that the type of a package, which is in the key, decides on the matcher, which is not.
func TestEachTypeHasOneMatcher(t *testing.T) {
	seen := map[syftpkg.Type]bool{}
	for _, m := range match.Matchers() {
		for _, packageType := range m.PackageTypes() {
			if seen[packageType] {
				t.Errorf("%s has two matchers", packageType)
			}
			seen[packageType] = true
		}
	}
}
