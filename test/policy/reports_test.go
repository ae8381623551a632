package policy

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func aReport(name string, labels map[string]string) *unstructured.Unstructured {
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(schema.GroupVersionKind{Group: "openreports.io", Version: "v1alpha1", Kind: "Report"})
	report.SetNamespace(shop)
	report.SetName(name)
	report.SetLabels(labels)
	return report
}

// Whatever RBAC permits, the manager writes and deletes only its own Reports.
func TestManagerChangesOnlyItsOwnReports(t *testing.T) {
	c, g := sharedCluster(t), gomega.NewWithT(t)
	_, err := envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join("..", "..", "pkg", "openreports", "testdata")}, ErrorIfPathMissing: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]string{"app.kubernetes.io/managed-by": "scanner-operator"}
	foreign := aReport("foreign", map[string]string{"app.kubernetes.io/managed-by": "kyverno"})
	g.Eventually(func() error { return c.admin.Create(background, foreign) }, policyTimeout, "100ms").Should(gomega.Succeed())
	g.Eventually(func() string {
		return fmt.Sprint(c.privileged.Delete(background, foreign.DeepCopy(), client.DryRunAll))
	}, policyTimeout, "100ms").
		Should(gomega.ContainSubstring("ValidatingAdmissionPolicy 'scanner-operator-manager-reports'"))
	const others, labelled = "changes and deletes only its own Reports", "has its label"
	denied(t, c.privileged.Delete(background, foreign.DeepCopy()), "reports", others)
	denied(t, c.privileged.Patch(background, foreign.DeepCopy(), merge(`{"source":"evil"}`)), "reports", others)
	denied(t, c.privileged.Patch(background, foreign.DeepCopy(), merge(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"scanner-operator"}}}`)), "reports", others)
	denied(t, c.privileged.Create(background, aReport("unlabelled", nil)), "reports", labelled)
	mine := aReport("mine", own)
	g.Expect(c.privileged.Create(background, mine)).To(gomega.Succeed())
	denied(t, c.privileged.Patch(background, mine.DeepCopy(), merge(`{"metadata":{"labels":null}}`)), "reports", labelled)
	g.Expect(c.privileged.Patch(background, mine, merge(`{"source":"Scanner Operator"}`))).To(gomega.Succeed())
	g.Expect(c.privileged.Delete(background, mine)).To(gomega.Succeed())
	deniedByRBAC(t, c.thief.Create(background, aReport("stolen", own))) // without the component
}
