package vexfile

import (
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// TestDockerHub: the exception that is made of a document must apply to the image that the document names. Tools write Docker Hub as
// index.docker.io (Trivy's own .vex/oci.openvex.json).
func TestDockerHub(t *testing.T) {
	drafts, err := Drafts([]byte(`{"@context": "https://openvex.dev/ns/v0.2.0", "@id": "x", "author": "a", "timestamp": "2026-01-01T00:00:00Z", "version": 1, "statements": [
		{"vulnerability": {"name": "CVE-2026-0001"}, "products": [{"@id": "pkg:oci/trivy?repository_url=index.docker.io%2Faquasec%2Ftrivy"}],
		"status": "not_affected", "justification": "vulnerable_code_not_in_execute_path"}]}`), Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	running, err := image.ParseReference("aquasec/trivy:0.60")
	if err != nil {
		t.Fatal(err)
	}
	spec := drafts[0].Spec
	set := exception.NewSet([]exception.Exception{{UID: "u", Name: "n", Vulnerabilities: spec.Vulnerabilities, Images: spec.Images}}, end.Time)
	if set.SuppressedBy(exception.Image{Reference: running}, finding.Finding{ID: "CVE-2026-0001"}) == nil {
		t.Errorf("the exception for the images %q does not apply to %s", spec.Images, running)
	}
}
