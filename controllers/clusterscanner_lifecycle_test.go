package controllers

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// coveredBy is the key of the label by which the ClusterScanner of a test selects namespaces. The value is the ClusterScanner's name.
const coveredBy = "test.scanner-operator.io/covered-by"

// clusterEnv is a testEnv with a ClusterScanner and further namespaces.
type clusterEnv struct {
	*testEnv
	scanner *v1alpha1.ClusterScanner
}

// newClusterEnv creates a ClusterScanner with one receiver. It selects the namespaces that label has labelled.
func newClusterEnv(t *testing.T, changes ...func(*v1alpha1.ClusterScanner)) *clusterEnv {
	t.Helper()
	p := &clusterEnv{testEnv: newTestEnv(t)}
	p.scanner = &v1alpha1.ClusterScanner{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + p.namespace},
		Spec: v1alpha1.ClusterScannerSpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{coveredBy: "of-" + p.namespace}},
			Notifications:     []v1alpha1.ClusterReceiver{{Receiver: immediately(slackReceiver("security"))}},
		},
	}
	for _, change := range changes {
		change(p.scanner)
	}
	p.create(p.scanner)
	t.Cleanup(func() {
		if err := p.client.Delete(context.Background(), p.scanner); client.IgnoreNotFound(err) != nil {
			t.Errorf("removing the ClusterScanner: %v", err)
		}
	})
	return p
}

// immediately returns a receiver that gets messages without delay.
func immediately(receiver v1alpha1.Receiver) v1alpha1.Receiver {
	receiver.GroupWait, receiver.GroupInterval = &metav1.Duration{}, &metav1.Duration{Duration: time.Second}
	return receiver
}

// addNamespace creates another namespace, which the ClusterScanner does not select yet.
func (p *clusterEnv) addNamespace() string {
	p.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	p.must(p.client.Create(p.t.Context(), namespace))
	own := *p.testEnv
	own.namespace = namespace.Name
	p.t.Cleanup(own.empty)
	return namespace.Name
}

// label makes the ClusterScanner select a namespace; unlabel undoes that.
func (p *clusterEnv) label(namespace string)   { p.patchLabel(namespace, `"`+p.scanner.Name+`"`) }
func (p *clusterEnv) unlabel(namespace string) { p.patchLabel(namespace, "null") }

func (p *clusterEnv) patchLabel(namespace, value string) {
	p.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+coveredBy+`":`+value+`}}}`))
	p.must(p.client.Patch(p.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, patch))
}

// status reads the ClusterScanner's status.
func (p *clusterEnv) status() v1alpha1.ClusterScannerStatus {
	return refresh(p.testEnv, p.scanner.DeepCopy()).Status
}

// imagesIn returns a function that lists the references of the ClusterScanner's ImageScans in a namespace.
func (p *clusterEnv) imagesIn(namespace string) func() []string {
	return func() (references []string) {
		var all v1alpha1.ImageScanList
		p.must(p.client.List(p.t.Context(), &all, client.InNamespace(namespace)))
		for _, scan := range all.Items {
			if metav1.IsControlledBy(&scan, p.scanner) {
				references = append(references, scan.Spec.References...)
			}
		}
		return references
	}
}

// titles returns a function that lists the titles of the ClusterScanner's messages.
func (p *clusterEnv) titles() func() []string {
	return func() (titles []string) {
		for _, d := range p.slack.ofScanner(p.scanner.Name) {
			titles = append(titles, d.Message.Title())
		}
		return titles
	}
}

// TestClusterScanner: a ClusterScanner covers the namespaces that it selects, from their labels to its status and one first message.
func TestClusterScanner(t *testing.T) {
	p := newClusterEnv(t)
	shop, blog := p.namespace, p.addNamespace()
	p.label(shop)
	p.label(blog)
	mine := p.unique("vulnerable")
	pod := aPod(shop, "web", running("main", mine))
	p.create(pod, aPod(blog, "web", running("main", web), running("sidecar", mine)))
	p.Eventually(p.imagesIn(shop), eventuallyTimeout).Should(ConsistOf(mine))
	p.Eventually(p.imagesIn(blog), eventuallyTimeout).Should(ConsistOf(web, mine))
	p.Eventually(func(g Gomega) {
		status := p.status()
		g.Expect(status.Namespaces).To(Equal(v1alpha1.NamespaceCounts{Selected: 2, Covered: 2}))
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{Total: 2, Scanned: 2}), "an image in two namespaces counts once")
		g.Expect(status.Findings).To(Equal(v1alpha1.FindingCounts{Critical: 1, High: 1, Fixable: 1}))
		g.Expect(status.TopNamespaces).To(HaveLen(2))
		g.Expect(conditionsOf(status.Conditions)).To(ContainElements("Ready=True Scanned", "NotificationsDelivered=True Delivered"))
	}, eventuallyTimeout).Should(Succeed())
	p.Eventually(p.annotations(pod), eventuallyTimeout).Should(HaveKey(p.scanner.Name + podmark.ClusterAnnotationSuffix))
	p.Eventually(p.titles(), eventuallyTimeout).Should(HaveLen(1), "one summary for the whole cluster")
	p.Expect(p.slack.ofScanner(p.scanner.Name)[0].Receiver.Namespace).To(Equal(operatorNamespace), "where the Secret is")
}

// TestClusterScannerNamespaceJoinsAndLeaves: the label of a namespace takes effect within seconds, in both directions. A namespace that leaves is
// released, and no message says that anything is fixed.
func TestClusterScannerNamespaceJoinsAndLeaves(t *testing.T) {
	p := newClusterEnv(t, func(s *v1alpha1.ClusterScanner) {
		s.Spec.Notifications[0].Announce = []v1alpha1.Change{
			v1alpha1.ChangeNew, v1alpha1.ChangeFixAvailable, v1alpha1.ChangeEscalated, v1alpha1.ChangeRegressed, v1alpha1.ChangeFixed,
		}
	})
	stays, moves := p.namespace, p.addNamespace()
	p.label(stays)
	first, theirs := p.unique("first/vulnerable"), p.unique("vulnerable")
	p.create(aPod(stays, "web", running("main", first)), aPod(moves, "web", running("main", theirs), running("other", p.unique("web"))))
	p.Eventually(p.imagesIn(stays), eventuallyTimeout).Should(ConsistOf(first))
	p.Eventually(p.titles(), eventuallyTimeout).Should(HaveLen(1))
	p.label(moves)
	p.Eventually(p.imagesIn(moves), eventuallyTimeout).Should(HaveLen(2), "a label is effective")
	p.Eventually(p.titles(), eventuallyTimeout).Should(HaveLen(2), "one message about the namespace that joined")
	for range 3 {
		p.unlabel(moves)
		p.Eventually(p.imagesIn(moves), eventuallyTimeout).Should(BeEmpty())
		p.label(moves)
		p.Eventually(p.imagesIn(moves), eventuallyTimeout).Should(HaveLen(2))
	}
	p.unlabel(moves)
	p.Eventually(func() v1alpha1.NamespaceCounts { return p.status().Namespaces }, eventuallyTimeout).
		Should(Equal(v1alpha1.NamespaceCounts{Selected: 1, Covered: 1}))
	p.Consistently(p.titles(), "3s").Should(HaveLen(2), "nothing is fixed, and nothing is announced twice")
}

// TestClusterScannerRespectsOwnScanner: a Scanner of the same engine takes its namespace over, and gives it back when it is deleted.
func TestClusterScannerRespectsOwnScanner(t *testing.T) {
	p := newClusterEnv(t)
	p.label(p.namespace)
	image := p.unique("vulnerable")
	p.create(aPod(p.namespace, "web", running("main", image)))
	p.Eventually(p.imagesIn(p.namespace), eventuallyTimeout).Should(ConsistOf(image))
	p.Eventually(p.titles(), eventuallyTimeout).Should(HaveLen(1))
	own := aScanner(p.namespace, "own")
	p.create(own)
	p.Eventually(p.imagesIn(p.namespace), eventuallyTimeout).Should(BeEmpty())
	p.waitForPhases(own, phasesOf{image: v1alpha1.PhaseScanned})
	p.Eventually(func() v1alpha1.NamespaceCounts { return p.status().Namespaces }, eventuallyTimeout).
		Should(Equal(v1alpha1.NamespaceCounts{Selected: 1, Own: 1}))
	p.delete(own)
	p.Eventually(p.imagesIn(p.namespace), eventuallyTimeout).Should(ConsistOf(image))
	p.Consistently(p.titles(), "2s").Should(HaveLen(1))
}

// TestClusterScannerReceiverNotAllowed: a namespace that names a receiver which it may not use learns that, and nothing is sent there. Once the
// receiver selects the namespace, the messages go there.
func TestClusterScannerReceiverNotAllowed(t *testing.T) {
	team := immediately(slackReceiver("team"))
	team.Workloads = v1alpha1.WorkloadsOwn
	p := newClusterEnv(t, func(s *v1alpha1.ClusterScanner) {
		s.Spec.Notifications = []v1alpha1.ClusterReceiver{{Receiver: team, FromNamespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}}}
	})
	p.label(p.namespace)
	pod := aPod(p.namespace, "web", running("main", p.unique("vulnerable")))
	pod.Annotations = map[string]string{v1alpha1.AnnotationReceiver: "team"}
	p.create(pod)
	p.Eventually(func(g Gomega) {
		var all v1alpha1.ImageScanList
		g.Expect(p.client.List(t.Context(), &all, client.InNamespace(p.namespace))).To(Succeed())
		g.Expect(all.Items).To(HaveLen(1))
		g.Expect(conditionsOf(all.Items[0].Status.Conditions)).To(ConsistOf("Ready=True Scanned", "ReceiverNotAllowed=True ReceiverNotAllowed"))
		var events eventsv1.EventList
		g.Expect(p.client.List(t.Context(), &events, client.InNamespace(p.namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(HaveField("Reason", v1alpha1.ReasonReceiverNotAllowed)))
	}, eventuallyTimeout).Should(Succeed())
	p.Consistently(p.titles(), "2s").Should(BeEmpty())
	p.must(p.client.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}},
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"shop"}}}`))))
	p.Eventually(p.titles(), eventuallyTimeout).Should(HaveLen(1))
	p.Eventually(func() []string {
		var all v1alpha1.ImageScanList
		p.must(p.client.List(t.Context(), &all, client.InNamespace(p.namespace)))
		return conditionsOf(all.Items[0].Status.Conditions)
	}, eventuallyTimeout).Should(ConsistOf("Ready=True Scanned"))
}

// TestReceiverNotAllowedEvents: the images of a namespace have one event in all about a receiver that it may not use, and one about the next.
func TestReceiverNotAllowedEvents(t *testing.T) {
	u := newUnit(t)
	scanner := &v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: "platform"}}
	scans := make([]*v1alpha1.ImageScan, 3)
	for i := range scans {
		scans[i] = &v1alpha1.ImageScan{ObjectMeta: metav1.ObjectMeta{Namespace: fixtureNamespace}}
	}
	for _, refused := range []string{"receiver team", "receiver team", "Slack channel #everyone", "", "Slack channel #everyone"} {
		for _, scan := range scans {
			before, s := scan.DeepCopy(), &imageScanScope{scan: scan, scanner: scanner}
			if refused != "" {
				s.uses.NotAllowed = []string{refused}
			}
			s.setReceiverNotAllowed()
			u.scans.emitReceiverNotAllowed(before, s)
		}
	}
	if got := u.takeEvents(); len(got) != 3 {
		t.Errorf("%d events, want one for each change: %q", len(got), got)
	}
}

// TestClusterScannerSlackChannel: the messages of a namespace go to the allowed channel that it chooses, wherever it moves. A channel that is not
// allowed is in a condition, and gets nothing.
func TestClusterScannerSlackChannel(t *testing.T) {
	p := newClusterEnv(t, func(s *v1alpha1.ClusterScanner) {
		teams := immediately(slackReceiver("teams"))
		teams.Slack = &v1alpha1.SlackReceiver{TokenSecretRef: v1alpha1.TokenSecretReference{Name: "slack-app"}, Channel: "#security"}
		s.Spec.Notifications = []v1alpha1.ClusterReceiver{{Receiver: teams, AllowedChannels: []string{"#shop", "#bank"}}}
	})
	choose := func(channel string) {
		p.must(p.client.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationSlackChannel+`":"`+channel+`"}}}`))))
	}
	channels := func() (channels []string) {
		for _, d := range p.slack.ofScanner(p.scanner.Name) {
			channels = append(channels, d.Receiver.Channel)
		}
		return channels
	}
	conditions := func() []string {
		var all v1alpha1.ImageScanList
		p.must(p.client.List(t.Context(), &all, client.InNamespace(p.namespace)))
		p.Expect(all.Items).To(HaveLen(1))
		return conditionsOf(all.Items[0].Status.Conditions)
	}
	choose("#shop")
	p.label(p.namespace)
	p.create(aPod(p.namespace, "web", running("main", p.unique("vulnerable"))))
	p.Eventually(channels, eventuallyTimeout).Should(Equal([]string{"#shop"}))
	choose("#bank")
	p.Eventually(channels, eventuallyTimeout).Should(Equal([]string{"#shop", "#bank"}))
	p.Expect(conditions()).To(ConsistOf("Ready=True Scanned"))
	choose("#everyone")
	p.Eventually(conditions, eventuallyTimeout).Should(ConsistOf("Ready=True Scanned", "ReceiverNotAllowed=True ReceiverNotAllowed"))
	p.Eventually(channels, eventuallyTimeout).Should(Equal([]string{"#shop", "#bank", "#security"}))
	choose("#shop")
	p.Eventually(conditions, eventuallyTimeout).Should(ConsistOf("Ready=True Scanned"))
	p.Consistently(channels, "2s").Should(HaveLen(3), "it continues where it was")
}

// TestClusterScannerBadInput: what a ClusterScanner cannot do is in its conditions.
func TestClusterScannerBadInput(t *testing.T) {
	p := newClusterEnv(t, func(s *v1alpha1.ClusterScanner) { s.Spec.ExcludeNamespaces = []string{"no-such-namespace"} })
	p.Eventually(func() []string { return conditionsOf(p.status().Conditions) }, eventuallyTimeout).Should(ContainElements(
		"Ready=False NoNamespaces", "Stalled=True NoNamespaces", "NamespacesUnknown=True ExcludedNamespaceUnknown"))
	p.label(p.namespace)
	other := p.scanner.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Name: "second-" + p.namespace}
	p.create(other)
	t.Cleanup(func() { _ = p.client.Delete(context.Background(), other) })
	p.Eventually(func() []string { return conditionsOf(p.status().Conditions) }, eventuallyTimeout).Should(ContainElements(
		"Ready=True NoImages", "Overlap=True OverlappingScanners"))
	p.delete(other)
	p.Eventually(func() []string { return conditionsOf(p.status().Conditions) }, eventuallyTimeout).ShouldNot(ContainElement(ContainSubstring("Overlap")))
}
