package install

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// scannedAndAnnounced creates a namespace with a Scanner as in docs/use/scanner.md and one image, and waits until the image is scanned and Slack
// has the summary. It returns the namespace.
func scannedAndAnnounced(t *testing.T) string {
	t.Helper()
	return scannedAndAnnouncedWith(t, scenario.ScannerSettings{})
}

// scannedAndAnnouncedWith is scannedAndAnnounced with other settings of the Scanner.
func scannedAndAnnouncedWith(t *testing.T, settings scenario.ScannerSettings) string {
	t.Helper()
	ns := namespace(t, "team")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "api", Image: env.Reference(images.API)}))
	must(t, env.MakeScanner(t.Context(), ns, settings))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	messages := waitForMessages(t, ns, 1)
	found := findings(t, ns)
	if len(found) == 0 || messages[0].Findings == 0 {
		t.Fatalf("expected a message about the %d findings that the store has, Slack got %q with %d", len(found), messages[0].Headline, messages[0].Findings)
	}
	return ns
}

// messageTimeout is the maximum time until a message, including the longest groupWait of a test.
const messageTimeout = 2 * time.Minute

// waitForMessages waits until a namespace's channel has count messages and returns them. More messages are an error.
func waitForMessages(t *testing.T, ns string, count int) []scenario.Message {
	t.Helper()
	var messages []scenario.Message
	must(t, wait.Eventually(t.Context(), messageTimeout, wait.Normally, func(ctx context.Context) error {
		var err error
		if messages, err = env.Messages(ctx, ns); err == nil && len(messages) < count {
			err = fmt.Errorf("expected %d messages of %s in Slack, there are %d", count, ns, len(messages))
		}
		return err
	}))
	if len(messages) > count {
		t.Fatalf("expected %d messages of %s in Slack, there are %d; the last: %s", count, ns, len(messages), messages[len(messages)-1].Text)
	}
	return messages
}

// shortenDelays shortens the delays of a namespace's receiver to seconds.
func shortenDelays(t *testing.T, ns string) {
	t.Helper()
	kubectl(t, "--namespace", ns, "patch", "scanner", scenario.ScannerName, "--type=json", "--patch",
		`[{"op": "add", "path": "/spec/notifications/0/groupWait", "value": "5s"}, {"op": "add", "path": "/spec/notifications/0/groupInterval", "value": "10s"}]`)
}

// findings returns the stored findings of a namespace, one line each.
func findings(t *testing.T, ns string) []string {
	t.Helper()
	stored, err := env.Findings(t.Context(), ns)
	must(t, err)
	var lines []string
	for _, img := range stored {
		for _, f := range img.Findings {
			lines = append(lines, fmt.Sprintf("%s %s in %s %s of %s", f.ID, f.Severity, f.Package.Name, f.Package.Version, img.Digest))
		}
	}
	slices.Sort(lines)
	return lines
}

// waitForCondition waits until a condition of a namespace's Scanner has the given status.
func waitForCondition(t *testing.T, ns, kind, status string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		scanner, err := env.Scanner(ctx, ns)
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(scanner.Status.Conditions, kind)
		if condition == nil || string(condition.Status) != status {
			return fmt.Errorf("expected the Scanner's condition %s to be %s, it is %+v", kind, status, condition)
		}
		return nil
	})
}
