package openreports

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

func vulnerability(id string, severity finding.Severity) finding.Finding {
	return inOpenSSL(id, severity).Finding
}

func (w *world) reason() string {
	reason, _ := w.writer.Problem()
	return reason
}

// TestReportsWithoutCRD: without the CRD, the problem is reported once and nothing fails. Once the cluster has it, all Reports are written. It runs
// first, since the other tests install the CRD.
func TestReportsWithoutCRD(t *testing.T) {
	w := newWorld(t)
	w.scan("web", vulnerability("CVE-2026-0001", finding.High))
	w.run("web", "Deployment", "web")
	w.round()
	w.round()
	w.Expect(w.reason()).To(Equal(v1alpha1.ReasonOpenReportsMissing))
	w.Expect(w.problems).To(Equal(1))
	w.installCRD()
	w.round()
	w.Expect(w.reason()).To(BeEmpty())
	w.Expect(w.problems).To(Equal(2))
	w.Expect(w.summaries()).To(Equal([]string{"scanner-deployment-web: CVE-2026-0001 fail"}))
}

// TestReportsFollowTheStore: Reports follow findings, exceptions and workloads, and are written only when they change.
func TestReportsFollowTheStore(t *testing.T) {
	w := newWorld(t)
	w.installCRD()
	deployment := w.createDeployment("web")
	w.scan("web", vulnerability("CVE-2026-0001", finding.High), vulnerability("CVE-2026-0002", finding.Low))
	w.run("web", "Deployment", "web")
	w.run("worker", "StatefulSet", "worker") // has no result yet
	w.round()
	w.Expect(w.summaries()).To(Equal([]string{"scanner-deployment-web: CVE-2026-0001 fail, CVE-2026-0002 fail", "scanner-statefulset-worker: image-scanned error"}))
	web := w.reports()["scanner-deployment-web"]
	w.Expect(web.OwnerReferences).To(Equal([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: deployment.UID}}))
	w.Expect(w.reports()["scanner-statefulset-worker"].OwnerReferences).To(BeEmpty(), "the StatefulSet does not exist")

	// The same findings with newer data are no change.
	w.scan("web", vulnerability("CVE-2026-0001", finding.High), vulnerability("CVE-2026-0002", finding.Low))
	w.scanPartly("worker", []string{"OS packages (deb)"})
	w.round()
	w.Expect(w.summaries()).To(Equal([]string{"scanner-deployment-web: CVE-2026-0001 fail, CVE-2026-0002 fail", "scanner-statefulset-worker: image-scanned warn"}))
	w.Expect(w.reports()["scanner-deployment-web"].ResourceVersion).To(Equal(web.ResourceVersion))

	// An exception suppresses a finding, and expires.
	w.exceptions = []exception.Exception{{UID: "1", Namespace: w.namespace, Name: "accepted", Vulnerabilities: []string{"CVE-2026-0001"}, Expires: w.clock.Now().Add(time.Minute)}}
	w.round()
	w.Expect(w.summaries()[0]).To(Equal("scanner-deployment-web: CVE-2026-0002 fail, CVE-2026-0001 skip"))
	w.round()
	w.round()
	w.Expect(w.summaries()[0]).To(Equal("scanner-deployment-web: CVE-2026-0001 fail, CVE-2026-0002 fail"))

	// A workload ends, and a Scanner is deleted.
	w.run("worker", "", "")
	w.round()
	w.Expect(w.summaries()).To(HaveLen(1))
	w.Expect(w.store.DeleteScanners(t.Context(), []string{"scanner"})).To(Succeed())
	w.round()
	w.Expect(w.summaries()).To(BeEmpty())
}

// TestReportsBesideWhatIsNotProven: a finding that the newest data lacks does not end silently, and neither do many in an anomaly.
func TestReportsBesideWhatIsNotProven(t *testing.T) {
	w := newWorld(t)
	w.installCRD()
	var many []finding.Finding
	for n := range 60 {
		many = append(many, vulnerability(fmt.Sprintf("CVE-2026-%04d", n), finding.High))
	}
	w.run("web", "Deployment", "web")
	w.scan("web", many[:2]...)
	w.round()
	w.scan("web", many[0])
	w.round()
	w.Expect(w.summaries()).To(Equal([]string{"scanner-deployment-web: image-scanned warn, CVE-2026-0000 fail"}))
	w.scan("web", many[0])
	w.round()
	w.Expect(w.summaries()).To(Equal([]string{"scanner-deployment-web: CVE-2026-0000 fail"}), "two versions of the data lack it")
	w.scan("web", many...)
	w.round()
	for range 2 {
		w.scan("web")
		w.round()
		w.Expect(w.summaries()).To(Equal([]string{"scanner-deployment-web: image-scanned warn"}), "an anomaly")
	}
}

// TestReportsAreRepaired: a Report that somebody has deleted is written again within an hour, and a Report that is left from a lost store is deleted
// at the start. Reports of others stay, also one that has the name of the operator's.
func TestReportsAreRepaired(t *testing.T) {
	w := newWorld(t)
	w.installCRD()
	left := &reports.Report{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "scanner-deployment-left", Labels: map[string]string{labelManagedBy: managedBy}}}
	foreign := &reports.Report{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "scanner-deployment-foreign"}, Source: "kyverno"}
	w.Expect(w.client.Create(t.Context(), left)).To(Succeed())
	w.Expect(w.client.Create(t.Context(), foreign)).To(Succeed())
	w.scan("web", vulnerability("CVE-2026-0001", finding.High))
	w.run("web", "Deployment", "web")
	w.run("foreign", "Deployment", "foreign")
	w.round()
	want := []string{"scanner-deployment-foreign: ", "scanner-deployment-web: CVE-2026-0001 fail"}
	w.Expect(w.summaries()).To(Equal(want))
	web := w.reports()["scanner-deployment-web"]
	w.Expect(w.client.Delete(t.Context(), &web)).To(Succeed())
	w.clock.SetTime(w.clock.Now().Add(fullInterval))
	w.round()
	w.Expect(w.summaries()).To(Equal(want))

	w.writer = &Writer{Client: w.writer.Client, Clock: w.clock, Log: w.writer.Log, Watched: w.writer.Watched, OnProblem: w.writer.OnProblem, Remove: true}
	w.round()
	w.Expect(w.summaries()).To(Equal(want[:1]), "after Remove")
}

// TestReportsForbidden: without permissions the problem is reported. What a quota of the namespace refuses is an error of the round, delays no other Report,
// and is no problem of all Scanners.
func TestReportsForbidden(t *testing.T) {
	w := newWorld(t)
	w.installCRD()
	w.scan("old", vulnerability("CVE-2026-0001", finding.Low))
	w.run("old", "Deployment", "old")
	w.round()
	// envtest runs no controller that would count what is used.
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/reports.openreports.io": resource.MustParse("1")}},
	}
	w.Expect(w.client.Create(t.Context(), quota)).To(Succeed())
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard}
	w.Expect(w.client.Status().Update(t.Context(), quota)).To(Succeed())
	w.scan("web", vulnerability("CVE-2026-0001", finding.Critical)) // comes first
	w.run("web", "Deployment", "web")
	w.scan("old", vulnerability("CVE-2026-0002", finding.Low))
	w.Expect(fmt.Sprint(w.writer.Run(t.Context()))).To(ContainSubstring("exceeded quota"))
	w.Expect(w.reason()).To(BeEmpty())
	w.Expect(w.summaries()).To(Equal([]string{"scanner-deployment-old: image-scanned warn, CVE-2026-0002 fail"}))
	w.Expect(w.client.Delete(t.Context(), quota)).To(Succeed())
	w.Eventually(func() error { return w.writer.Run(t.Context()) }, time.Minute).Should(Succeed())

	w.Expect(w.client.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "writer"}})).To(Succeed())
	w.run("web", "", "")
	w.Eventually(func() string { _ = w.writer.Run(t.Context()); return w.reason() }, time.Minute).Should(Equal(v1alpha1.ReasonOpenReportsForbidden))
	_, message := w.writer.Problem()
	w.Expect(message).NotTo(ContainSubstring(w.namespace), "the condition is on Scanners of other namespaces, too")
}
