package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// deniesPodChanges installs an admission policy that denies finalizers and annotations on pods in the test's namespace.
func (p *testEnv) deniesPodChanges(probe *corev1.Pod) {
	p.t.Helper()
	name := metav1.ObjectMeta{Name: "pods-stay-" + p.namespace}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: p.namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		Validations: []admissionv1.Validation{{
			Expression: "!has(object.metadata.finalizers) && !has(object.metadata.annotations)", Message: "pods are nobody's notebook",
		}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	p.create(policy, binding)
	p.t.Cleanup(func() {
		p.must(errors.Join(p.client.Delete(context.Background(), binding), p.client.Delete(context.Background(), policy)))
	})
	p.Eventually(func() error {
		changed := refresh(p, probe.DeepCopy())
		changed.Annotations = map[string]string{"example.com/probe": "true"}
		return p.client.Update(p.t.Context(), changed, client.DryRunAll)
	}, eventuallyTimeout).Should(MatchError(ContainSubstring("notebook")), "the policy is in force")
}

// TestPolicyEngineDeniesPodChanges: the images of the pods are still scanned, and one event of the Scanner reports the refusal, whatever
// the number of pods.
func TestPolicyEngineDeniesPodChanges(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all", holdingPods)
	one, two := aPod(p.namespace, "one", running("main", web)), aPod(p.namespace, "two", running("main", vulnerable))
	p.create(one, two)
	p.deniesPodChanges(one)
	p.create(scanner)
	p.waitForPhases(scanner, phasesOf{web: v1alpha1.PhaseScanned, vulnerable: v1alpha1.PhaseScanned})
	events := func() (events []eventsv1.Event) {
		var all eventsv1.EventList
		p.must(p.client.List(t.Context(), &all, client.InNamespace(p.namespace)))
		for _, event := range all.Items {
			if event.Reason == v1alpha1.ReasonPodChangeRefused {
				events = append(events, event)
			}
		}
		return events
	}
	p.Eventually(func() bool { return len(events()) > 0 && events()[0].Series != nil }, eventuallyTimeout).Should(BeTrue(), "it was refused for the second pod too")
	p.Expect(events()).To(HaveLen(1))
	event := events()[0]
	p.Expect(event.Regarding.UID).To(Equal(scanner.UID), "it is an event of the Scanner")
	p.Expect(event.Type).To(Equal(corev1.EventTypeWarning))
	p.Expect(event.Note).To(And(ContainSubstring("notebook"), ContainSubstring("spec.addPodFinalizer")))
}

// TestStoreFailsToRecordRelease: the images of a running pod are scanned even if its release cannot be recorded.
func TestStoreFailsToRecordRelease(t *testing.T) {
	pod := aPod(fixtureNamespace, "a", running("main", web), running("other", vulnerable), finalizedBy(releaseOf("all")))
	u := newUnit(t, theScanner(), scanOf(theScanner(), web), pod)
	u.inventory.Store = &usageRecorder{Store: u.store, err: errors.New("the disk is full")}
	_, err := u.pods.Reconcile(t.Context(), requestFor(pod))
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("error %v, want that of the store", err)
	}
	if u.read(scanOf(theScanner(), vulnerable)) == nil {
		t.Error("the other image has no ImageScan")
	}
	u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if len(pod.Finalizers) != 1 {
		t.Errorf("the pod has %q, want it held until its release is recorded", pod.Finalizers)
	}
}
