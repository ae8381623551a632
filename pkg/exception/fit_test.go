package exception

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestFit: an exception fits if, and only if, it would suppress a finding in one of the packages.
func TestFit(t *testing.T) {
	packages := []finding.Package{
		{Name: "libssl3", Version: "3.0.9-1", Type: "deb", PURL: "pkg:deb/debian/libssl3@3.0.9-1?distro=debian-12&upstream=openssl"},
		{Name: "zlib", Version: "1", Type: "deb"},
		{Name: "golang.org/x/net", Version: "v0.7.0", Type: "go-module"},
		{Name: "dom4j", Version: "1.6.1", Type: "java-archive"},
	}
	selectors := []Package{
		{Name: "pkg:deb/debian/libssl3", Version: "3.0.9-1"}, {Name: "pkg:deb/debian/libssl3"}, {Name: "pkg:deb/libssl3"}, {Name: "pkg:deb/ubuntu/libssl3"},
		{Name: "pkg:deb/debian/libssl3", Version: "3.0.8"}, {Name: "pkg:deb/debian/openssl"}, {Name: "pkg:npm/libssl3"},
		{Name: "pkg:deb/debian/zlib"}, {Name: "pkg:deb/ubuntu/zlib", Version: "1"}, {Name: "pkg:deb/debian/zlib", Version: "2"},
		{Name: "pkg:deb/debian/libssl3", Version: "3.0.9-1", Qualifiers: "distro=debian-12"}, {Name: "pkg:deb/debian/libssl3?distro=debian-11"},
		{Name: "pkg:deb/debian/libssl3?arch=arm64&distro=bookworm"}, {Name: "pkg:golang/golang.org/x/net#html"}, {Name: "pkg:maven/org.dom4j/dom4j#a"},
		{Name: "pkg:deb/debian/libssl3#usr"}, {Name: "pkg:golang/golang.org/x/net", Version: "0.7.0"}, {Name: "pkg:golang/golang.org/x/text"}, {Name: "pkg:maven/org.dom4j/dom4j"},
	}
	var exceptions []Exception
	var want []int
	for i, s := range selectors {
		exceptions = append(exceptions, Exception{UID: fmt.Sprint(i), Vulnerabilities: []string{"CVE-1"}, Packages: []Package{s}})
		suppresses := false
		for _, pkg := range packages {
			compiled := s.compiled()
			suppresses = suppresses || compiled.selects(pkg)
		}
		if !suppresses {
			want = append(want, i)
		}
	}
	exceptions = append(exceptions, Exception{}, Exception{Packages: []Package{{Name: "openssl"}}}, Exception{Packages: selectors})
	fit := NewFit(exceptions)
	for _, pkg := range packages {
		fit.Add(pkg)
	}
	if diff := cmp.Diff(want, fit.Unfitting()); diff != "" || len(want) != 11 {
		t.Errorf("unfitting (-want +got):\n%s", diff)
	}
}
