package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestArtifactHubAnnotations: the annotations of Chart.yaml are what Artifact Hub reads, and their addresses within the repository exist. Those
// with images, changes and examples are added when a release is made.
func TestArtifactHubAnnotations(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var metadata struct {
		Icon        string            `json:"icon"`
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"artifacthub.io/category": "security", "artifacthub.io/license": "Apache-2.0", "artifacthub.io/operator": "true",
		"artifacthub.io/operatorCapabilities": "Full Lifecycle",
	} {
		if got := metadata.Annotations[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	addresses := []string{metadata.Icon}
	for name, key := range map[string]string{"artifacthub.io/links": "name", "artifacthub.io/screenshots": "title"} {
		var entries []map[string]string
		if err := yaml.UnmarshalStrict([]byte(metadata.Annotations[name]), &entries); err != nil || len(entries) == 0 {
			t.Errorf("%s has %d entries: %v", name, len(entries), err)
		}
		for _, entry := range entries {
			if len(entry) != 2 || entry[key] == "" || !strings.HasPrefix(entry["url"], "https://") {
				t.Errorf("%s: %v, want %s and url", name, entry, key)
			}
			addresses = append(addresses, entry["url"])
		}
	}
	for _, address := range addresses {
		_, file, inRepository := strings.Cut(address, "/main/")
		if !inRepository {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}
