package controllers

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// waitForFindings waits until an image and its Scanner show these counts.
func (p *testEnv) waitForFindings(what string, scanner *v1alpha1.Scanner, reference string, want v1alpha1.FindingCounts) {
	p.t.Helper()
	p.Eventually(func(g Gomega) {
		scan := p.scan(scanner, reference)
		g.Expect(scan).NotTo(BeNil())
		g.Expect(scan.Status.Findings).To(HaveValue(Equal(want)))
		g.Expect(refresh(p, scanner).Status.Findings).To(Equal(want))
	}, eventuallyTimeout, "100ms").Should(Succeed(), what)
}

// setExpiration changes the expiration of an exception; nil removes it.
func (p *testEnv) setExpiration(e *v1alpha1.VulnerabilityException, end *metav1.Time) {
	p.t.Helper()
	before := e.DeepCopy()
	e.Spec.ExpirationTime = end
	p.must(p.client.Patch(p.t.Context(), e, client.MergeFrom(before)))
}

// TestExceptionLifecycle: when an exception is created, expires, is renewed and is deleted, the counts follow.
func TestExceptionLifecycle(t *testing.T) {
	p := newTestEnv(t)
	image := p.unique("vulnerable")
	scanner := aScanner(p.namespace, "all")
	all, some := v1alpha1.FindingCounts{Critical: 1, High: 1, Fixable: 1}, v1alpha1.FindingCounts{High: 1, Suppressed: 1}
	p.create(scanner, aPod(p.namespace, "a", running("main", image)))
	p.waitForFindings("before", scanner, image, all)

	e := anException("openssl", "cve-2024-0001")
	e.Namespace, e.UID = p.namespace, ""
	p.create(e)
	p.waitForFindings("made", scanner, image, some)
	p.Eventually(func() *int32 { return refresh(p, e).Status.Findings }, eventuallyTimeout, "100ms").Should(HaveValue(BeEquivalentTo(1)))

	end := metav1.NewTime(time.Now().Add(2 * time.Second).Truncate(time.Second))
	p.setExpiration(e, &end)
	p.Eventually(func() []string { return conditionsOf(refresh(p, e).Status.Conditions) }, eventuallyTimeout, "100ms").Should(ConsistOf("Ready=False Expired"))
	p.Expect(time.Now()).To(BeTemporally(">=", end.Time))
	p.Expect(e.Status.Findings).To(HaveValue(BeEquivalentTo(0)))
	p.waitForFindings("ended", scanner, image, all)
	p.Eventually(func() (notes []string) {
		var events eventsv1.EventList
		p.must(p.client.List(t.Context(), &events, client.InNamespace(p.namespace)))
		for _, event := range events.Items {
			if event.Regarding.Name == e.Name {
				notes = append(notes, event.Reason)
			}
		}
		return notes
	}, eventuallyTimeout, "100ms").Should(ConsistOf("Expired"))

	p.setExpiration(e, nil)
	p.waitForFindings("renewed", scanner, image, some)
	p.delete(e)
	p.waitForFindings("gone", scanner, image, all)
}

// TestExceptionByLabel: a ClusterVulnerabilityException applies to a namespace exactly while the namespace has the label.
func TestExceptionByLabel(t *testing.T) {
	p := newTestEnv(t)
	image := p.unique("vulnerable")
	scanner := aScanner(p.namespace, "all")
	all, none := v1alpha1.FindingCounts{Critical: 1, High: 1, Fixable: 1}, v1alpha1.FindingCounts{Suppressed: 2}
	p.create(scanner, aPod(p.namespace, "a", running("main", image)))
	p.waitForFindings("before", scanner, image, all)

	e := aClusterException("by-label-"+p.namespace, labelledWith("stage", p.namespace), "CVE-2024-0001", "CVE-2024-0002")
	e.UID = ""
	p.create(e)
	p.deleteOnCleanup(e)
	p.Eventually(func() *int32 { return refresh(p, e).Status.Findings }, eventuallyTimeout, "100ms").Should(HaveValue(BeEquivalentTo(0)))
	p.Expect(p.scan(scanner, image).Status.Findings).To(HaveValue(Equal(all)))

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	label := func(value string) {
		before := refresh(p, namespace).DeepCopy()
		namespace.Labels["stage"] = value
		p.must(p.client.Patch(t.Context(), namespace, client.MergeFrom(before)))
	}
	label(p.namespace)
	p.waitForFindings("labelled", scanner, image, none)
	p.Eventually(func() *int32 { return refresh(p, e).Status.Findings }, eventuallyTimeout, "100ms").Should(HaveValue(BeEquivalentTo(2)))
	label("another")
	p.waitForFindings("labelled otherwise", scanner, image, all)
	p.Eventually(func() *int32 { return refresh(p, e).Status.Findings }, eventuallyTimeout, "100ms").Should(HaveValue(BeEquivalentTo(0)))
}

// TestExceptionColumns: the columns that kubectl get shows for exceptions.
func TestExceptionColumns(t *testing.T) {
	p := newTestEnv(t)
	e := anException("openssl", "CVE-2024-0001")
	e.Namespace, e.UID, e.Spec.ExpirationTime = p.namespace, "", &metav1.Time{Time: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)}
	p.create(e)
	p.Eventually(func() *int32 { return refresh(p, e).Status.Findings }, eventuallyTimeout, "100ms").Should(HaveValue(BeEquivalentTo(0)))
	table := p.table("vulnerabilityexceptions")
	p.Expect(table.columns).To(Equal([]string{"Name", "Status", "Findings", "Expires", "Ready", "Reason", "Age", "Why"}))
	p.Expect(table.rows[0][:6]).To(Equal([]any{"openssl", "fixed", "0", "2099-01-01T00:00:00Z", "True", "InForce"}))
	p.Expect(table.rows[0][7]).To(Equal("patched"))
}
