package vexfile

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/openvex"
)

var end = &metav1.Time{Time: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}

const digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

func documentOf(statements ...string) []byte {
	return []byte(`{"@context": "https://openvex.dev/ns/v0.2.0", "@id": "https://example.com/vex", "author": "jane", "timestamp": "2026-01-01T00:00:00Z", "version": 1,
		"statements": [` + strings.Join(statements, ",") + `]}`)
}

// statement returns a statement about CVE-1 with these products and members.
func statement(products, members string) string {
	return `{"vulnerability": {"name": "CVE-1", "aliases": ["GHSA-a"]}, "products": [` + products + `], ` + members + `}`
}

const (
	notAffected = `"status": "not_affected", "justification": "component_not_present", "impact_statement": "not there"`
	web         = `{"@id": "pkg:oci/web?repository_url=ghcr.io/shop/web"}`
)

// TestDrafts: what statements become.
func TestDrafts(t *testing.T) {
	inWeb := v1alpha1.ExceptionSpec{
		Status: "not_affected", Justification: "component_not_present", Reason: "not there", Vulnerabilities: []string{"CVE-1", "GHSA-a"}, Images: []string{"ghcr.io/shop/web"},
		ExpirationTime: end,
	}
	with := func(change func(*v1alpha1.ExceptionSpec)) v1alpha1.ExceptionSpec {
		spec := *inWeb.DeepCopy()
		change(&spec)
		return spec
	}
	images := func(globs ...string) v1alpha1.ExceptionSpec {
		return with(func(s *v1alpha1.ExceptionSpec) { s.Images = globs })
	}
	packages := func(selectors ...v1alpha1.PackageSelector) v1alpha1.ExceptionSpec {
		return with(func(s *v1alpha1.ExceptionSpec) { s.Images, s.Packages = nil, selectors })
	}
	for name, tt := range map[string]struct {
		statement string
		want      v1alpha1.ExceptionSpec
	}{
		"an image":              {statement(web, notAffected), inWeb},
		"by digest":             {statement(`{"@id": "pkg:oci/web@sha256%3A`+digest[7:]+`?repository_url=ghcr.io/shop/web"}`, notAffected), images("ghcr.io/shop/web@" + digest)},
		"by digest alone":       {statement(`{"@id": "pkg:oci/web@`+digest+`"}`, notAffected), images("*@" + digest)},
		"by tag":                {statement(`{"@id": "pkg:oci/web?repository_url=ghcr.io/shop/web&tag=1.4"}`, notAffected), images("ghcr.io/shop/web:1.4")},
		"repository without it": {statement(`{"@id": "pkg:oci/web?repository_url=ghcr.io/shop"}`, notAffected), images("ghcr.io/shop/web")},
		"two images":            {statement(web+`, {"@id": "pkg:oci/api?repository_url=ghcr.io/shop/api"}`, notAffected), images("ghcr.io/shop/web", "ghcr.io/shop/api")},
		"an identifier":         {statement(`{"@id": "https://example.com/web", "identifiers": {"purl": "pkg:oci/web?repository_url=ghcr.io/shop/web"}}`, notAffected), inWeb},
		"a package of an image": {
			statement(`{"@id": "pkg:oci/web?repository_url=ghcr.io/shop/web", "subcomponents": [{"@id": "pkg:deb/debian/openssl@3.0.11-1"}]}`, notAffected),
			with(func(s *v1alpha1.ExceptionSpec) {
				s.Packages = []v1alpha1.PackageSelector{{Name: "pkg:deb/debian/openssl", Version: "3.0.11-1"}}
			}),
		},
		"a package":    {statement(`{"@id": "pkg:apk/wolfi/git@2.39.0-r1"}`, notAffected), packages(v1alpha1.PackageSelector{Name: "pkg:apk/wolfi/git", Version: "2.39.0-r1"})},
		"a release":    {statement(`{"@id": "pkg:apk/wolfi/git@2.39.0-r1?arch=x86_64&distro=wolfi-20230201&upstream=x"}`, notAffected), packages(v1alpha1.PackageSelector{Name: "pkg:apk/wolfi/git?arch=amd64&distro=wolfi-20230201", Version: "2.39.0-r1"})},
		"a Go module":  {statement(`{"@id": "pkg:golang/golang.org/x/net@v0.17.0"}`, notAffected), packages(v1alpha1.PackageSelector{Name: "pkg:golang/golang.org/x/net", Version: "0.17.0"})},
		"an epoch":     {statement(`{"@id": "pkg:rpm/redhat/openssl@3.0.7-1.el9?epoch=1"}`, notAffected), packages(v1alpha1.PackageSelector{Name: "pkg:rpm/redhat/openssl", Version: "1:3.0.7-1.el9"})},
		"an npm scope": {statement(`{"@id": "pkg:npm/%40types/node"}`, notAffected), packages(v1alpha1.PackageSelector{Name: "pkg:npm/%40types/node"})},
		"affected": {statement(web, `"status": "affected", "action_statement": "it is firewalled", "status_notes": "accepted"`), with(func(s *v1alpha1.ExceptionSpec) {
			s.Status, s.Justification, s.Action, s.Reason = "affected", "", "it is firewalled", "accepted"
		})},
		"no justification": {statement(web, `"status": "not_affected", "impact_statement": "not there"`), with(func(s *v1alpha1.ExceptionSpec) { s.Justification = "inline_mitigations_already_exist" })},
		"no reason": {
			statement(web, `"status": "fixed"`),
			with(func(s *v1alpha1.ExceptionSpec) {
				s.Status, s.Justification, s.Reason = "fixed", "", "OpenVEX document of jane: https://example.com/vex"
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			drafts, err := Drafts(documentOf(tt.statement), Defaults{Justification: "inline_mitigations_already_exist", Expires: end})
			if err != nil || len(drafts) != 1 {
				t.Fatalf("%d drafts, %v", len(drafts), err)
			}
			if diff := cmp.Diff(tt.want, drafts[0].Spec); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !regexp.MustCompile(`^cve-1-[0-9a-f]{8}$`).MatchString(drafts[0].Name) {
				t.Errorf("its name is %q", drafts[0].Name)
			}
		})
	}
}

// TestRefusals: a statement that would suppress more than it says, or that needs what is not there, is refused with a reason.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct{ document, want string }{
		"no JSON":                   {`statements:`, "no OpenVEX"},
		"no statements":             {string(documentOf()), "no statements"},
		"no products":               {string(documentOf(statement("", notAffected))), "no products"},
		"a product without a URL":   {string(documentOf(statement(`{"@id": "https://example.com/web"}`, notAffected))), "no package URL"},
		"a tag of any image":        {string(documentOf(statement(`{"@id": "pkg:docker/library/nginx@1.25"}`, notAffected))), "neither a digest nor a repository_url"},
		"a glob as the repository":  {string(documentOf(statement(`{"@id": "pkg:oci/web?repository_url=*/web"}`, notAffected))), "takes for a glob"},
		"a glob as the tag":         {string(documentOf(statement(`{"@id": "pkg:oci/web?repository_url=ghcr.io/shop/web&tag=1.%3F"}`, notAffected))), "takes for a glob"},
		"an image without a name":   {string(documentOf(statement(`{"@id": "pkg:oci/web"}`, notAffected))), "neither a digest nor a repository_url"},
		"an address without an ID":  {strings.Replace(string(documentOf(statement(web, notAffected))), `"name": "CVE-1", "aliases": ["GHSA-a"]`, `"@id": "https://example.com/7"`, 1), "no ID of a known form"},
		"an unknown type":           {string(documentOf(statement(`{"@id": "pkg:thing/thing@1"}`, notAffected))), "type that is not known"},
		"a glob":                    {string(documentOf(statement(`{"@id": "pkg:deb/debian/%2A"}`, notAffected))), "glob"},
		"images and packages":       {string(documentOf(statement(web+`, {"@id": "pkg:deb/debian/bash"}`, notAffected))), "images and packages"},
		"packages of packages":      {string(documentOf(statement(`{"@id": "pkg:deb/debian/bash", "subcomponents": [{"@id": "pkg:deb/debian/bash"}]}`, notAffected))), "no image, and has subcomponents"},
		"different packages":        {string(documentOf(statement(web+`, {"@id": "pkg:oci/api?repository_url=ghcr.io/shop/api", "subcomponents": [{"@id": "pkg:deb/debian/bash"}]}`, notAffected))), "different subcomponents"},
		"no justification":          {string(documentOf(statement(web, `"status": "not_affected", "impact_statement": "x"`))), "--justification"},
		"no end of affected":        {string(documentOf(statement(web, `"status": "affected", "action_statement": "x"`))), "--until"},
		"no end of investigation":   {string(documentOf(statement(web, `"status": "under_investigation"`))), "--until"},
		"an unknown status":         {string(documentOf(statement(web, `"status": "fine"`))), "invalid status"},
		"a subcomponent without it": {string(documentOf(statement(`{"@id": "pkg:oci/web?repository_url=ghcr.io/shop/web", "subcomponents": [{"@id": "bash"}]}`, notAffected))), "no package URL"},
	} {
		if drafts, err := Drafts([]byte(tt.document), Defaults{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v; want an error with %q", name, drafts, err, tt.want)
		}
	}
}

// TestAddress: a vulnerability that is named by the address of its advisory has the ID in that.
func TestAddress(t *testing.T) {
	document := strings.Replace(string(documentOf(statement(web, notAffected))), `"name": "CVE-1"`, `"@id": "https://nvd.nist.gov/vuln/detail/CVE-2024-1234"`, 1)
	drafts, err := Drafts([]byte(document), Defaults{})
	if err != nil || len(drafts) != 1 {
		t.Fatalf("%d drafts, %v", len(drafts), err)
	}
	if diff := cmp.Diff([]string{"CVE-2024-1234", "GHSA-a"}, drafts[0].Spec.Vulnerabilities); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLatestStatementCounts: a later statement about the same replaces an earlier one, wherever it is in the document.
func TestLatestStatementCounts(t *testing.T) {
	early := statement(web, `"status": "under_investigation", "timestamp": "2026-01-02T00:00:00Z"`)
	late := statement(web, notAffected+`, "timestamp": "2026-01-03T00:00:00Z"`)
	changed := statement(web, notAffected+`, "timestamp": "2026-01-01T00:00:00Z", "last_updated": "2026-01-03T00:00:00Z"`)
	for _, document := range [][]byte{documentOf(early, late), documentOf(late, early), documentOf(changed, early)} {
		drafts, err := Drafts(document, Defaults{Expires: end})
		if err != nil || len(drafts) != 1 || drafts[0].Spec.Status != "not_affected" {
			t.Errorf("%+v, %v; want one with the later status", drafts, err)
		}
	}
}

// TestOwnDocuments: the document that the REST API makes of exceptions leads to exceptions that suppress the same findings and no others.
func TestOwnDocuments(t *testing.T) {
	reference := image.Reference{Repository: "ghcr.io/shop/web", Tag: "1.4"}
	named := func(id, pkg, kind, purl string) finding.Finding {
		return finding.Finding{ID: id, Package: finding.Package{Name: pkg, Version: "1:3.0.11-1~deb12u2", Type: kind, PURL: purl}}
	}
	decided := named("CVE-1", "openssl", "deb", "pkg:deb/debian/openssl@1%3A3.0.11-1~deb12u2?arch=amd64")
	var document bytes.Buffer
	err := openvex.Write(&document, openvex.Report{
		Namespace: "shop", Repositories: []string{reference.Repository}, Key: image.Key{Digest: digest, Platform: image.Platform{OS: "linux", Architecture: "amd64"}},
		MatchedAt: end.Time, Suppressed: []openvex.SuppressedFinding{{Finding: decided, Exception: exception.Exception{
			UID: "1", Namespace: "shop", Name: "e", Status: "not_affected", Justification: "component_not_present", Reason: "not there", Created: end.Time,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	drafts, err := Drafts(document.Bytes(), Defaults{})
	if err != nil || len(drafts) != 1 {
		t.Fatalf("%d drafts, %v", len(drafts), err)
	}
	spec := drafts[0].Spec
	e := exception.Exception{Vulnerabilities: spec.Vulnerabilities, Images: spec.Images}
	for _, p := range spec.Packages {
		e.Packages = append(e.Packages, exception.Package{Name: p.Name, Version: p.Version, Type: p.Type})
	}
	set := exception.NewSet([]exception.Exception{e}, end.Time)
	here, elsewhere := exception.Image{Reference: reference, Digest: digest}, exception.Image{Reference: image.Reference{Repository: "ghcr.io/shop/api"}, Digest: digest}
	if set.SuppressedBy(here, decided) == nil {
		t.Errorf("it does not suppress its finding: %+v", spec)
	}
	for name, suppressed := range map[string]*exception.Exception{
		"another image":   set.SuppressedBy(elsewhere, decided),
		"another digest":  set.SuppressedBy(exception.Image{Reference: reference, Digest: "sha256:2"}, decided),
		"another id":      set.SuppressedBy(here, named("CVE-2", "openssl", "deb", "")),
		"another package": set.SuppressedBy(here, named("CVE-1", "libssl3", "deb", "")),
	} {
		if suppressed != nil {
			t.Errorf("%s is suppressed by %+v", name, spec)
		}
	}
}

func TestName(t *testing.T) {
	for id, want := range map[string]string{"CVE-2016-2781": "cve-2016-2781", "@types/node": "types-node", "***": "exception", strings.Repeat("a", 300): strings.Repeat("a", maxNameBytes)} {
		if got := Name(id); got != want {
			t.Errorf("the name for %q is %q, want %q", id, got, want)
		}
	}
}
