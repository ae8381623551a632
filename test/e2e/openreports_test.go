package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// The manager writes a Report for a workload with its own permissions, past its admission policy. The Report goes with its workload.
func TestOpenReports(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "reports")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "api", Image: env.Reference(images.API)}))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	var pod corev1.Pod
	must(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "api"}, &pod))
	stored, err := env.Findings(t.Context(), ns)
	must(t, err)
	want := map[string]bool{}
	for _, f := range imageNamed(t, stored, images.API).Findings {
		want[f.ID+" "+f.Package.Name] = true
	}
	waitFor(t, "the Report", func(ctx context.Context) error {
		report, err := reportOf(ctx, ns)
		switch {
		case err != nil:
			return err
		case report.Summary.Fail != len(want) || report.Summary.Error != 0:
			return fmt.Errorf("want %d findings, the Report has %+v", len(want), report.Summary)
		case len(report.OwnerReferences) != 1 || report.OwnerReferences[0].UID != pod.UID:
			return fmt.Errorf("want the pod as the Report's owner, it has %+v", report.OwnerReferences)
		}
		return nil
	})
	_, err = env.Kubectl(t.Context(), "--namespace", ns, "delete", "pod", "api")
	must(t, err)
	waitFor(t, "the Report to go with its pod", func(ctx context.Context) error {
		listed, err := env.Kubectl(ctx, "--namespace", ns, "get", "reports.openreports.io", "--output", "name")
		if err == nil && strings.TrimSpace(listed) != "" {
			err = errors.New(listed)
		}
		return err
	})
}

// reportOf returns the Report of the pod api.
func reportOf(ctx context.Context, ns string) (*reports.Report, error) {
	text, err := env.Kubectl(ctx, "--namespace", ns, "get", "reports.openreports.io", "scanner-pod-api", "--output", "json")
	if err != nil {
		return nil, err
	}
	var report reports.Report
	return &report, json.Unmarshal([]byte(text), &report)
}
