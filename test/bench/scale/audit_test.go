package scale

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// A user's requests of a period are counted, without those for the lease. An incomplete last line counts when it is complete.
func TestRequestsAreCounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	lines := `{"user":{"username":"manager"},"verb":"patch","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T10:00:01.5Z"}
{"user":{"username":"manager"},"verb":"patch","objectRef":{"resource":"imagescans","subresource":"status"},"requestReceivedTimestamp":"2026-01-01T10:00:02Z"}
{"user":{"username":"manager"},"verb":"update","objectRef":{"resource":"leases"},"requestReceivedTimestamp":"2026-01-01T10:00:02Z"}
{"user":{"username":"manager"},"verb":"patch","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T10:00:03Z"}
{"user":{"username":"manager"},"verb":"patch","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T09:59:59Z"}
{"user":{"username":"manager"},"verb":"patch","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T10:01:00Z"}
{"user":{"username":"other"},"verb":"patch","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T10:00:04Z"}
{"user":{"username":"manager"},"verb":"patch","objec`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	log := &auditLog{file: file}
	requests, err := log.between("manager", from, from.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"patch pods": 2, "patch imagescans/status": 1}, byVerb(requests)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	lines += `tRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-01-01T10:00:05Z"}` + "\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if later, err := log.between("manager", from, from.Add(time.Minute)); err != nil || len(later) != len(requests)+1 {
		t.Errorf("after another line there are %d requests, %v; want one more than %d", len(later), err, len(requests))
	}
	if got := last(requests, from); !got.Equal(from.Add(3 * time.Second)) {
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
		for _, pod := range d.pods(2, d.uid()) {
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
