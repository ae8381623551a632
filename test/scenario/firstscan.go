package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// FirstScan returns the steps of the first scan of the application.
func (e *Environment) FirstScan() []Step {
	return []Step{
		{"Workloads in the namespaces " + e.Production() + " and " + e.Staging(), e.startWorkloads},
		{"A Scanner in each of them", e.startScanners},
		{"Every running image is scanned, or the reason is shown", e.checkCoverage},
		{"Vulnerabilities that are known to be there are found", e.checkFindings},
		{"What runs in both namespaces is listed once", e.checkShared},
		{"Each pod says which of its images were handled", e.checkAnnotations},
		{"One summary per Scanner arrives in Slack", e.checkSummaries},
		{"Slack, kubectl, metrics and web UI have the same numbers", e.checkNumbers},
	}
}

// Numbers of images: productionImages run in production, productionNotPulled in production cannot be pulled, stagingImages run in staging.
const (
	productionImages    = 5
	productionNotPulled = 1
	stagingImages       = 2
)

func (e *Environment) checkCoverage(ctx context.Context) (string, error) {
	if err := e.WaitForCoverage(ctx, e.Production(), productionImages, productionNotPulled); err != nil {
		return "", err
	}
	if err := e.WaitForCoverage(ctx, e.Staging(), stagingImages, 0); err != nil {
		return "", err
	}
	scanner, err := e.Scanner(ctx, e.Production())
	if err != nil {
		return "", err
	}
	ready := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionReady)
	if ghost := e.missingImage(); !strings.Contains(ready.Message, ghost) {
		return "", fmt.Errorf("expected the Scanner's message to name %s, which cannot be pulled; it says: %s", ghost, ready.Message)
	}
	return fmt.Sprintf("%s: %d scanned, %d failed (ghost); %s: %d scanned", e.Production(), productionImages, productionNotPulled, e.Staging(), stagingImages), nil
}

// known are findings that must be found: at least one for each way of cataloging packages.
var known = []struct{ image, id, pkg string }{
	{images.Web, "CVE-2023-4911", "libc6"},
	{images.Web, "CVE-2024-5535", "openssl"},
	{images.API, "CVE-2023-39325", "golang.org/x/net"},
	{images.API, "CVE-2024-45337", "golang.org/x/crypto"},
	{images.API, "CVE-2020-28483", "github.com/gin-gonic/gin"},
	{images.Migrate, "CVE-2021-38561", "golang.org/x/text"},
	{images.Migrate, "CVE-2022-28948", "gopkg.in/yaml.v3"},
	{images.Cache, "CVE-2022-48174", "busybox"},
}

// checkFindings checks that known vulnerabilities are found, and that the clean image has none.
func (e *Environment) checkFindings(ctx context.Context) (string, error) {
	found, err := e.Findings(ctx, e.Production())
	if err != nil {
		return "", err
	}
	all := AllLines(found)
	if e.Upstream {
		return fmt.Sprintf("%d findings in production", len(all)), nil // the findings depend on the upstream database of the day
	}
	for _, want := range known {
		if !slices.ContainsFunc(all, func(l Line) bool {
			return l.Repository == e.repository(want.image) && l.ID == want.id && l.Package == want.pkg
		}) {
			return "", fmt.Errorf("expected %s in %s of %s, which is missing among %d findings", want.id, want.pkg, want.image, len(all))
		}
	}
	scan, err := e.ImageScanOf(ctx, e.Production(), e.repository(images.Static))
	if err != nil {
		return "", err
	}
	if counts := scan.Status.Findings; counts == nil || *counts != (v1alpha1.FindingCounts{}) {
		return "", fmt.Errorf("expected no finding in the clean image %s, its ImageScan says %+v", images.Static, counts)
	}
	return fmt.Sprintf("%d findings in production, none of them in static", len(all)), nil
}

// checkShared checks that there is one Job for each image, even if several namespaces run it. With Clair there is no Job; it receives
// one index request for each image.
func (e *Environment) checkShared(ctx context.Context) (string, error) {
	if e.Backend == v1alpha1.BackendClair {
		return e.checkIndexedOnce(ctx)
	}
	names := []string{images.Web, images.API, images.Migrate, images.Cache, images.Static}
	for _, name := range names {
		if jobs := e.Jobs.Of(e.repository(name)); len(jobs) != 1 {
			return "", fmt.Errorf("expected one Job to list what is in %s, there were %d: %v", name, len(jobs), jobs)
		}
	}
	return fmt.Sprintf("%d Jobs for %d images", len(names), len(names)), nil
}

// checkAnnotations compares each pod's annotation with the digests that its node reports.
func (e *Environment) checkAnnotations(ctx context.Context) (string, error) {
	checked := 0
	err := wait.Eventually(ctx, shortTimeout, wait.Normally, func(ctx context.Context) error {
		checked = 0
		for _, namespace := range e.namespaces() {
			var pods corev1.PodList
			if err := e.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
				return err
			}
			for i := range pods.Items {
				if err := checkAnnotation(&pods.Items[i]); err != nil {
					return err
				}
				checked++
			}
		}
		return nil
	})
	return fmt.Sprintf("%d pods have the annotation %s, or run nothing", checked, Annotation), err
}

// Annotation is the annotation that the demo's Scanners write to pods.
const Annotation = ScannerName + ".scanner-operator.io/image-hashes"

func checkAnnotation(pod *corev1.Pod) error {
	want, got := running(pod), map[string]string{}
	text, found := pod.Annotations[Annotation]
	if found {
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			return fmt.Errorf("pod %s/%s: annotation %s: %w", pod.Namespace, pod.Name, Annotation, err)
		}
	}
	if !maps.Equal(want, got) {
		return fmt.Errorf("pod %s/%s: expected the annotation %s to be %v, it is %v", pod.Namespace, pod.Name, Annotation, want, got)
	}
	return nil
}

// checkSummaries waits for the first message of each Scanner and compares its numbers with the Scanner's and the store's.
func (e *Environment) checkSummaries(ctx context.Context) (string, error) {
	failures := map[string]string{e.Production(): "1 image failed (NotPulled 1)", e.Staging(): ""}
	headlines := []string{}
	for _, namespace := range e.namespaces() {
		summary, err := e.firstMessage(ctx, namespace)
		if err != nil {
			return "", err
		}
		if err := e.checkSummary(ctx, namespace, summary, failures[namespace]); err != nil {
			return "", err
		}
		headlines = append(headlines, fmt.Sprintf("%q", summary.Headline))
	}
	return strings.Join(headlines, " and "), nil
}

func (e *Environment) firstMessage(ctx context.Context, namespace string) (Message, error) {
	var first Message
	err := wait.Eventually(ctx, 2*shortTimeout, wait.Normally, func(ctx context.Context) error {
		messages, err := e.Messages(ctx, namespace)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			return fmt.Errorf("no message about %s in Slack%s", namespace, e.receiverProblem(ctx, namespace))
		}
		first = messages[0]
		return nil
	})
	return first, err
}

// receiverProblem returns the Scanner's condition about its receiver, as an appendix to a sentence.
func (e *Environment) receiverProblem(ctx context.Context, namespace string) string {
	scanner, err := e.Scanner(ctx, namespace)
	if err != nil {
		return ": " + err.Error()
	}
	condition := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionNotificationsDelivered)
	if condition == nil {
		return ""
	}
	return fmt.Sprintf("; the Scanner says %s: %s", condition.Reason, condition.Message)
}

func (e *Environment) checkSummary(ctx context.Context, namespace string, summary Message, remaining string) error {
	scanner, err := e.Scanner(ctx, namespace)
	if err != nil {
		return err
	}
	found, err := e.Findings(ctx, namespace)
	if err != nil {
		return err
	}
	all := AllLines(found)
	counted := scanner.Status.Findings
	total := int(counted.Critical + counted.High + counted.Medium + counted.Low + counted.Negligible + counted.Unknown)
	switch {
	case !summary.Summary || !strings.Contains(summary.Headline, "First scan of "+namespace):
		return fmt.Errorf("expected a summary of %s, the first message is %q", namespace, summary.Headline)
	case summary.Findings != len(all) || total != len(all):
		return fmt.Errorf("%s: the store has %d findings, the Scanner says %d, the summary %d", namespace, len(all), total, summary.Findings)
	case !strings.Contains(summary.Text, fmt.Sprintf("%d Critical · 🔶 %d High", counted.Critical, counted.High)):
		return fmt.Errorf("%s: expected %d critical and %d high in the summary:\n%s", namespace, counted.Critical, counted.High, summary.Text)
	case remaining != "" && !strings.Contains(summary.Text, remaining):
		return fmt.Errorf("%s: expected %q in the summary:\n%s", namespace, remaining, summary.Text)
	case len(summary.Lines) == 0:
		return fmt.Errorf("%s: the summary names no finding:\n%s", namespace, summary.Text)
	}
	return nil
}

// CheckLimits returns an error if a message to a namespace's webhook violates one of Slack's limits.
func (e *Environment) CheckLimits(ctx context.Context, namespace string) error {
	messages, err := e.Messages(ctx, namespace)
	if err != nil {
		return err
	}
	var errs []error
	for _, message := range messages {
		for _, violation := range message.Violations {
			errs = append(errs, fmt.Errorf("message %q: %s %s", message.Headline, violation.Error, violation.Detail))
		}
	}
	return errors.Join(errs...)
}
