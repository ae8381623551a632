package scale

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Requests of a period are counted, without those for the lease and without an incomplete last line.
func TestRequestsAreCounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	lines := `{"verb":"patch","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T10:00:01.5Z"}
{"verb":"patch","objectRef":{"resource":"imagescans","subresource":"status"},"requestReceivedTimestamp":"2026-01-01T10:00:02Z"}
{"verb":"update","objectRef":{"resource":"leases"},"requestReceivedTimestamp":"2026-01-01T10:00:02Z"}
{"verb":"patch","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T10:00:03Z"}
{"verb":"patch","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T09:59:59Z"}
{"verb":"patch","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T10:01:00Z"}
{"verb":"patch","objec`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	requests, err := (&auditLog{file: file}).between(from, from.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"patch pods": 2, "patch imagescans/status": 1}, byVerb(requests)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got := last(requests); !got.Equal(from.Add(3 * time.Second)) {
		t.Errorf("the last request was at %s, want 10:00:03", got)
	}
	if got, want := perPod(byVerb(requests), 4), "patch pods 0.500, patch imagescans/status 0.250"; got != want {
		t.Errorf("per pod: %q, want %q", got, want)
	}
}

// The numbers of pods and images are those on the page, and every image reference is valid.
func TestNumbersOfPodsAndImages(t *testing.T) {
	references, names := map[string]bool{}, map[string]bool{}
	for _, d := range allDeployments() {
		for _, pod := range d.pods(2, 1) {
			reference, err := image.ParseReference(pod.Spec.Containers[0].Image)
			if err != nil {
				t.Fatal(err)
			}
			references[reference.String()] = true
			names[pod.Namespace+"/"+pod.Name] = true
		}
	}
	if len(references) != images || len(names) != 2*images*namespaces {
		t.Errorf("%d pods of %d images, want %d of %d", len(names), len(references), 2*images*namespaces, images)
	}
}
