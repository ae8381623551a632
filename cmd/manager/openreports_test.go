package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestOpenReports: a manager that is to write Reports reports in a condition that the cluster has none, and works. Once the CRD is there, each workload
// has a Report, and the condition is gone.
func TestOpenReports(t *testing.T) {
	c := newCluster(t)
	c.createPod("web")
	settings := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(settings, []byte("openReports: {mode: Write}\n"), 0o600))
	c.startWith([]string{"SCANNER_CONFIG=" + settings}, "first", t.TempDir())
	c.waitScanned(1)
	reason := func() string {
		var scanner v1alpha1.Scanner
		c.Expect(c.client.Get(t.Context(), client.ObjectKey{Namespace: c.shop, Name: "default"}, &scanner)).To(Succeed())
		if condition := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionReportsNotWritten); condition != nil {
			return condition.Reason
		}
		return ""
	}
	c.Eventually(reason, waitTimeout, "250ms").Should(Equal(v1alpha1.ReasonOpenReportsMissing))
	_, err := envtest.InstallCRDs(sharedServer.Config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join("..", "..", "pkg", "openreports", "testdata")}, ErrorIfPathMissing: true,
	})
	c.Expect(err).NotTo(HaveOccurred())
	var report reports.Report
	c.Eventually(func() error {
		return c.client.Get(t.Context(), client.ObjectKey{Namespace: c.shop, Name: "scanner-pod-web"}, &report)
	}, waitTimeout, "250ms").Should(Succeed())
	c.Expect(*report.Scope).To(Equal(corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: c.shop, Name: "web"}))
	c.Expect(report.OwnerReferences).To(HaveLen(1))
	c.Expect(report.Summary.Error).To(BeZero())
	c.Expect(report.Summary.Fail).To(Equal(len(report.Results)))
	c.Eventually(reason, waitTimeout, "250ms").Should(BeEmpty())
}
