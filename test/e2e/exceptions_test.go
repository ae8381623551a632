package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Vulnerabilities of the test image, and an alias of one of them.
const (
	inNet                   = "CVE-2023-39325"
	inCrypto, inCryptoAlias = "CVE-2024-45337", "GHSA-v778-237x-gjrc"
)

// shortDelays are settings with short delays, for tests that wait for messages.
var shortDelays = scenario.ScannerSettings{FirstScan: "All", GroupWait: time.Second, GroupInterval: 2 * time.Second}

// Findings that an exception of the namespace or of the cluster covers are counted as suppressed and not announced, until the exception
// is deleted.
func TestExceptions(t *testing.T) {
	t.Parallel()
	ns, other := namespace(t, "suppressed"), namespace(t, "not-suppressed")
	inNamespace := exception("VulnerabilityException", "name: accepted, namespace: "+ns, inNet, "")
	inCluster := exception("ClusterVulnerabilityException", "name: "+ns, strings.ToLower(inCryptoAlias), "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+ns+"}}")
	t.Cleanup(func() { must(t, env.DeleteText(context.Background(), inCluster)) })
	must(t, env.ApplyText(t.Context(), inNamespace))
	for _, in := range []string{ns, other} {
		must(t, env.RunPods(t.Context(), in, variants(t, in, 1)...))
		must(t, env.MakeScanner(t.Context(), in, shortDelays))
	}
	for _, in := range []string{ns, other} {
		must(t, env.WaitForCoverage(t.Context(), in, 1, 0))
	}
	found, err := env.Findings(t.Context(), ns)
	must(t, err)
	all := scenario.AnnouncedLines(found)
	net, crypto := linesAbout(all, inNet), linesAbout(all, inCrypto)
	if len(net) == 0 || len(crypto) == 0 || len(all) == len(net)+len(crypto) {
		t.Fatalf("%s and %s and others are not all among %v", inNet, inCrypto, all)
	}

	// The exception existed before the first scan.
	announced := without(named(all), net)
	requireMessages(t, ns, announced)
	requireSuppressed(t, ns, len(net))
	requireSuppressed(t, other, 0)

	// The cluster's exception names an announced vulnerability by its alias.
	must(t, env.ApplyText(t.Context(), inCluster))
	requireSuppressed(t, ns, len(net)+len(crypto))
	requireMessages(t, ns, announced)
	requireShownSuppressed(t, ns, map[string]string{inNet: "VulnerabilityException", inCrypto: "ClusterVulnerabilityException"})

	must(t, env.DeleteText(t.Context(), inNamespace))
	requireSuppressed(t, ns, len(crypto))
	announced = append(announced, net...)
	requireMessages(t, ns, announced)

	must(t, env.DeleteText(t.Context(), inCluster))
	requireSuppressed(t, ns, 0)
	for _, line := range crypto {
		announced = append(announced, line+", an exception has ended")
	}
	requireMessages(t, ns, announced)
	requireSuppressed(t, other, 0)
}

// exception returns the YAML of an exception, with additional fields for its metadata and its spec.
func exception(kind, metadata, vulnerability, spec string) string {
	return fmt.Sprintf(`apiVersion: scanner-operator.io/v1alpha1
kind: %s
metadata: {%s}
spec:
  status: not_affected
  justification: vulnerable_code_not_in_execute_path
  reason: The program calls nothing of it.
  vulnerabilities: [%s]
  %s
`, kind, metadata, vulnerability, spec)
}

// requireSuppressed waits until the Scanner, and its ImageScans together, count the given number of suppressed findings.
func requireSuppressed(t *testing.T, ns string, want int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d suppressed findings in %s", want, ns), func(ctx context.Context) error {
		scanner, err := env.Scanner(ctx, ns)
		if err != nil {
			return err
		}
		scans, err := env.ImageScans(ctx, ns)
		if err != nil {
			return err
		}
		of := 0
		for _, scan := range scans {
			if scan.Status.Findings != nil {
				of += int(scan.Status.Findings.Suppressed)
			}
		}
		if got := int(scanner.Status.Findings.Suppressed); got != want || of != want {
			return fmt.Errorf("the Scanner counts %d, its ImageScans %d", got, of)
		}
		return nil
	})
}

// requireShownSuppressed compares the suppressed findings of a namespace's only image in the REST API, each with the kind of its exception, and
// checks the export.
func requireShownSuppressed(t *testing.T, ns string, want map[string]string) {
	t.Helper()
	url, client := forwarded(t)
	api := restAPI(t, url, client, viewerOf(t, ns))
	scans, err := env.ImageScans(t.Context(), ns)
	must(t, err)
	suppressed := true
	page, err := api.ListFindingsWithResponse(t.Context(), ns, scans[0].Name, &restv1.ListFindingsParams{Suppressed: &suppressed})
	must(t, err)
	if page.JSON200 == nil {
		t.Fatalf("suppressed findings: %s", page.Body)
	}
	got := map[string]string{}
	for _, f := range page.JSON200.Items {
		if f.Exception == nil {
			t.Fatalf("%s in %s is listed as suppressed without the exception", f.ID, f.Package.Name)
		}
		got[f.ID] = f.Exception.Kind
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("suppressed findings in the REST API (-expected +got):\n%s", diff)
	}
	vex, err := api.GetOpenVEXWithResponse(t.Context(), ns, scans[0].Name, nil)
	must(t, err)
	for id := range want {
		if !strings.Contains(string(vex.Body), id) {
			t.Errorf("the OpenVEX document has no statement about %s:\n%s", id, vex.Body)
		}
	}
}

// requireMessages waits until all messages to a channel contain exactly these lines, and checks that this stays so for a while.
func requireMessages(t *testing.T, channel string, want []string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	check := func(ctx context.Context) error {
		messages, err := env.Messages(ctx, channel)
		if err != nil {
			return err
		}
		got := []string{}
		for _, message := range messages {
			got = append(got, named(message.Lines)...)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("what was announced to %s in %d messages (-expected +got):\n%s", channel, len(messages), diff)
		}
		return nil
	}
	waitFor(t, "messages to "+channel, check)
	must(t, wait.Consistently(t.Context(), 5*time.Second, wait.Normally, check))
	must(t, env.CheckLimits(t.Context(), channel))
}

// named returns lines in the form that tests expect.
func named(lines []scenario.Line) []string {
	names := []string{}
	for _, line := range lines {
		name := line.String()
		if line.ExceptionEnded {
			name += ", an exception has ended"
		}
		names = append(names, name)
	}
	return names
}

// linesAbout returns the lines of one vulnerability.
func linesAbout(lines []scenario.Line, id string) []string {
	return named(slices.DeleteFunc(slices.Clone(lines), func(line scenario.Line) bool { return line.ID != id }))
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(line string) bool { return slices.Contains(some, line) })
}

// Two teams share a namespace. Each receives messages about its own pods, and one of them also about pods without another receiver.
func TestReceiversOfTeams(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "teams")
	pods := variants(t, ns, 4)
	pods[0].Receivers, pods[1].Receivers, pods[2].Receivers = "red", "blue, red", "green"
	must(t, env.RunPods(t.Context(), ns, pods...))
	settings := shortDelays
	settings.Receivers = []scenario.Receiver{{Name: "red", Channel: ns + "-red"}, {Name: "blue", Channel: ns + "-blue", Workloads: "Own"}}
	must(t, env.MakeScanner(t.Context(), ns, settings))
	must(t, env.WaitForCoverage(t.Context(), ns, int32(len(pods)), 0))
	found, err := env.Findings(t.Context(), ns)
	must(t, err)
	all := scenario.AnnouncedLines(found)

	requireMessages(t, ns+"-red", named(all))
	requireMessages(t, ns+"-blue", linesIn(all, pods[1]))
	waitFor(t, "the receiver that does not exist", func(ctx context.Context) error {
		scanner, err := env.Scanner(ctx, ns)
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionNotificationsDelivered)
		if condition == nil || condition.Reason != v1alpha1.ReasonUnknownReceiver || !strings.Contains(condition.Message, "green") {
			return fmt.Errorf("the Scanner's condition %s is %+v", v1alpha1.ConditionNotificationsDelivered, condition)
		}
		return nil
	})

	// The namespace's annotation applies to pods without an annotation.
	_, err = env.Kubectl(t.Context(), "annotate", "namespace", ns, v1alpha1.AnnotationReceiver+"=blue")
	must(t, err)
	requireMessages(t, ns+"-blue", append(linesIn(all, pods[1]), linesIn(all, pods[3])...))
	requireMessages(t, ns+"-red", named(all))
}

// linesIn returns the lines about the image of a pod.
func linesIn(lines []scenario.Line, pod scenario.Pod) []string {
	repository, _, _ := strings.Cut(pod.Image, "@")
	return named(slices.DeleteFunc(slices.Clone(lines), func(line scenario.Line) bool { return line.Repository != repository }))
}
