package vexfile

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// FuzzDrafts: whatever a document says, a draft is about named vulnerabilities in named images or packages. It has a valid name that no other draft has, and
// texts that the API accepts. The same document gives the same drafts.
func FuzzDrafts(f *testing.F) {
	for _, seed := range []string{
		statement(web, notAffected), statement(`{"@id": "pkg:deb/debian/bash"}`, `"status": "fixed"`), statement(`{"@id": "pkg:oci/web@`+digest+`"}`, notAffected), statement(`{"@id": "pkg:oci/*?repository_url=*"}`, notAffected),
		statement(`{"@id": "pkg:oci/web?repository_url=ghcr.io/shop/web", "subcomponents": [{"@id": "pkg:npm/%2A@%3F"}]}`, `"status": "affected", "action_statement": "a"`),
		statement(`{"@id": "pkg:oci/web@%2A?repository_url=/"}`, `"status": "under_investigation", "status_notes": "`+strings.Repeat("ü", maxTextBytes)+`"`),
	} {
		f.Add(documentOf(seed))
		f.Add(documentOf(seed, seed, statement(web, `"status": "fixed"`)))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		drafts, err := Drafts(document, Defaults{Expires: end})
		if err != nil {
			if drafts != nil {
				t.Errorf("%d drafts beside the error %v", len(drafts), err)
			}
			return
		}
		names := map[string]bool{}
		for _, draft := range drafts {
			spec := draft.Spec
			text, err := json.Marshal(draft)
			if err != nil {
				t.Fatal(err)
			}
			if len(spec.Vulnerabilities) == 0 || len(spec.Images)+len(spec.Packages) == 0 || spec.ExpirationTime == nil {
				t.Errorf("it would suppress too much: %s", text)
			}
			for _, glob := range spec.Images {
				// Only a digest stands for an image by itself.
				if strings.ContainsAny(strings.TrimPrefix(glob, "*@sha256:"), "*?") || glob == "" {
					t.Errorf("it is about more than one image: %s", text)
				}
			}
			for _, selector := range spec.Packages {
				if !strings.HasPrefix(selector.Name, "pkg:") || strings.ContainsAny(selector.Name+selector.Version, "*?") {
					t.Errorf("it is about more than one package: %s", text)
				}
			}
			if names[draft.Name] || len(validation.IsDNS1123Subdomain(draft.Name)) > 0 {
				t.Errorf("it has the name of another draft, or one that is not valid: %s", text)
			}
			names[draft.Name] = true
			if spec.Reason == "" || len(spec.Reason) > maxTextBytes || len(spec.Action) > maxTextBytes || !utf8.ValidString(spec.Reason+spec.Action) || (spec.Status == v1alpha1.VEXAffected) != (spec.Action != "") {
				t.Errorf("the API does not accept its texts: %s", text)
			}
		}
		again, err := Drafts(document, Defaults{Expires: end})
		if diff := cmp.Diff(drafts, again); err != nil || diff != "" {
			t.Errorf("the same document again: %v (-first +again):\n%s", err, diff)
		}
	})
}
