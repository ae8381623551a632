package clair

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestPlaces: packages have the same names and locations as with Syft.
func TestPlaces(t *testing.T) {
	binary := func(name, version, arch, source, sourceVersion string) claircore.Package {
		return claircore.Package{Name: name, Version: version, Arch: arch, Source: &claircore.Package{Name: source, Version: sourceVersion}}
	}
	debian, alpine := claircore.Distribution{DID: "debian", VersionID: "12", Version: "12 (bookworm)"}, claircore.Distribution{DID: "alpine", Version: "3.19"}
	for name, tt := range map[string]struct {
		database     string
		found        claircore.Package
		distribution *claircore.Distribution
		want         finding.Package
		path         string
	}{
		"deb": {"var/lib/dpkg/status", binary("bash", "5.2.15-2+b13", "amd64", "bash", "5.2.15-2"), &debian,
			finding.Package{Name: "bash", Version: "5.2.15-2+b13", Type: "deb", PURL: "pkg:deb/debian/bash@5.2.15-2%2Bb13?arch=amd64&distro=debian-12&upstream=bash%405.2.15-2"}, "/var/lib/dpkg/status"},
		"deb, with a plus in its name": {"var/lib/dpkg/status.d/libstdc", binary("libstdc++6", "12.2.0-14", "amd64", "gcc-12", "12.2.0-14"), &debian,
			finding.Package{Name: "libstdc++6", Version: "12.2.0-14", Type: "deb", PURL: "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14?arch=amd64&distro=debian-12&upstream=gcc-12"}, "/var/lib/dpkg/status.d/libstdc"},
		"deb, distribution unknown": {"var/lib/dpkg/status", binary("bash", "5", "amd64", "bash", "5"), nil, finding.Package{Name: "bash", Version: "5", Type: "deb"}, "/var/lib/dpkg/status"},
		"apk": {"lib/apk/db/installed", binary("busybox", "1.36.1-r15", "x86_64", "busybox", "1.36.1-r15"), &alpine,
			finding.Package{Name: "busybox", Version: "1.36.1-r15", Type: "apk", PURL: "pkg:apk/alpine/busybox@1.36.1-r15?arch=x86_64&distro=alpine-3.19"}, "/lib/apk/db/installed"},
		"rpm of Red Hat": {"sqlite:usr/lib/sysimage/rpm", binary("openssl-libs", "1:3.0.7-27.el9", "x86_64", "openssl", "3.0.7-27.el9"), &claircore.Distribution{DID: "rhel", VersionID: "9"},
			finding.Package{Name: "openssl-libs", Version: "1:3.0.7-27.el9", Type: "rpm", PURL: "pkg:rpm/redhat/openssl-libs@3.0.7-27.el9?arch=x86_64&distro=rhel-9&epoch=1&upstream=openssl%403.0.7-27.el9"}, "/usr/lib/sysimage/rpm"},
		"rpm of openSUSE": {"ndb:usr/lib/sysimage/rpm", binary("zlib", "1.2-3", "x86_64", "zlib", "1.2-3"), &claircore.Distribution{DID: "opensuse-leap", VersionID: "15.5"},
			finding.Package{Name: "zlib", Version: "1.2-3", Type: "rpm", PURL: "pkg:rpm/opensuse/zlib@1.2-3?arch=x86_64&distro=opensuse-leap-15.5"}, "/usr/lib/sysimage/rpm"},
		"Go module": {"go:usr/bin/app", binary("github.com/Masterminds/semver/v3", "v3.2.0", "", "", ""), nil,
			finding.Package{Name: "github.com/Masterminds/semver/v3", Version: "v3.2.0", Type: "go-module", PURL: "pkg:golang/github.com/Masterminds/semver/v3@v3.2.0"}, "/usr/bin/app"},
		"Go's standard library": {"go:usr/bin/app", binary("stdlib", "1.26.3", "", "", ""), nil,
			finding.Package{Name: "stdlib", Version: "go1.26.3", Type: "go-module", PURL: "pkg:golang/stdlib@1.26.3"}, "/usr/bin/app"},
		"Python": {"python:usr/lib/python3/dist-packages", binary("zope.interface_x", "5.4.0", "", "", ""), nil,
			finding.Package{Name: "zope-interface-x", Version: "5.4.0", Type: "python", PURL: "pkg:pypi/zope-interface-x@5.4.0"}, "/usr/lib/python3/dist-packages"},
		"Java": {"maven:opt/app.jar", binary("org.apache.logging.log4j:log4j-core", "2.14.1", "", "", ""), nil,
			finding.Package{Name: "log4j-core", Version: "2.14.1", Type: "java-archive", PURL: "pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1"}, "/opt/app.jar"},
		"Java, by the file's name": {"file:opt/log4j-core-2.14.1.jar", binary("log4j-core", "2.14.1", "", "", ""), nil,
			finding.Package{Name: "log4j-core", Version: "2.14.1", Type: "java-archive", PURL: "pkg:maven/log4j-core/log4j-core@2.14.1"}, "/opt/log4j-core-2.14.1.jar"},
		"Java, an archive in an archive": {"jar:opt/app.jar:BOOT-INF/lib/x.jar", binary("g:x", "1", "", "", ""), nil,
			finding.Package{Name: "x", Version: "1", Type: "java-archive", PURL: "pkg:maven/g/x@1"}, "/opt/app.jar /opt/app.jar:BOOT-INF/lib/x.jar"},
		"Ruby": {"ruby:usr/lib/ruby/gems/3.1.0/specifications/rack-2.2.3.gemspec", binary("rack", "2.2.3", "", "", ""), nil,
			finding.Package{Name: "rack", Version: "2.2.3", Type: "gem", PURL: "pkg:gem/rack@2.2.3"}, "/usr/lib/ruby/gems/3.1.0/specifications/rack-2.2.3.gemspec"},
		"a container of Red Hat": {"root/buildinfo/Dockerfile-ubi8-toolbox-8.5", binary("ubi8/toolbox", "8.5-10", "x86_64", "toolbox-container", "8.5-10"), nil,
			finding.Package{Name: "ubi8/toolbox", Version: "8.5-10", Type: "oci"}, "/root/buildinfo/Dockerfile-ubi8-toolbox-8.5"},
		"something else":     {"", binary("x", "1", "", "", ""), &debian, finding.Package{Name: "x", Version: "1", Type: "UnknownPackage"}, ""},
		"a path that climbs": {"go:../../etc/app", binary("x", "1", "", "", ""), nil, finding.Package{Name: "x", Version: "1", Type: "go-module", PURL: "pkg:golang/x@1"}, "/etc/app"},
	} {
		t.Run(name, func(t *testing.T) {
			n := normaliser{report: &claircore.VulnerabilityReport{Distributions: map[string]*claircore.Distribution{"1": tt.distribution}}}
			got := n.locatePackage(&tt.found, &claircore.Environment{PackageDB: tt.database, DistributionID: "1"})
			if diff := cmp.Diff(tt.want, got.Package); diff != "" {
				t.Errorf("package (-want +got):\n%s", diff)
			}
			if paths := joined(got.paths); paths != tt.path {
				t.Errorf("paths: got %q, want %q", paths, tt.path)
			}
		})
	}
}

func joined(paths []string) (text string) {
	for i, path := range paths {
		if i > 0 {
			text += " "
		}
		text += path
	}
	return text
}

// TestFixVersions: the format of fixed_in_version depends on the ecosystem.
func TestFixVersions(t *testing.T) {
	for name, tt := range map[string]struct {
		text, kind string
		want       []string
	}{
		"Debian":                       {"1:2.36-9+deb12u3", typeDeb, []string{"1:2.36-9+deb12u3"}},
		"Go":                           {"0.17.0", typeGo, []string{"0.17.0"}},
		"PyPI":                         {"fixed=2.31.0&introduced=2.3.0", typePython, []string{"2.31.0"}},
		"RubyGems, with characters":    {"fixed=2.0.0%2Bbuild~1&introduced=1", typeGem, []string{"2.0.0+build~1"}},
		"Maven, without a fix":         {"introduced=2.0&lastAffected=2.14.1", typeJava, nil},
		"Maven, an empty fix":          {"fixed=&introduced=2.0", typeJava, nil},
		"Maven, a plain version":       {"2.15.0", typeJava, []string{"2.15.0"}},
		"PyPI, partly unreadable":      {"fixed=1.0&introduced=%zz", typePython, []string{"1.0"}},
		"none":                         {"", typeRPM, nil},
		"an equals sign elsewhere":     {"1=2", typeRPM, []string{"1=2"}},
		"PyPI: no version is affected": {"fixed=0", typePython, []string{"0"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := fixVersions(tt.text, tt.kind)
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("fixed versions (-want +got):\n%s", diff)
			}
		})
	}
}
