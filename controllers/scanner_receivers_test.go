package controllers

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// withReceivers sets a pod's receivers annotation.
func withReceivers(text string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations = map[string]string{v1alpha1.AnnotationReceiver: text} }
}

// deployed makes a pod belong to a Deployment.
func deployed(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		labelled("pod-template-hash", "5d4f8c7b9")(pod)
		ownedBy("apps/v1", "ReplicaSet", name+"-5d4f8c7b9", "uid")(pod)
	}
}

func namespaceNaming(text string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fixtureNamespace, Annotations: map[string]string{v1alpha1.AnnotationReceiver: text}}}
}

// useRecordingStore is a store that remembers the last recorded workloads of each Scanner.
type useRecordingStore struct {
	*store.Store
	mu   sync.Mutex
	last map[string][]store.Workload
}

func (s *useRecordingStore) SetUsage(ctx context.Context, u store.ImageUsage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[string][]store.Workload{}
	}
	s.last[u.Scanner] = u.Workloads
	return s.Store.SetUsage(ctx, u)
}

// receivers returns the recorded receivers of a Scanner's workloads, by the workload's name.
func (s *useRecordingStore) receivers(scanner *v1alpha1.Scanner) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := map[string]string{}
	for _, w := range s.last[string(scanner.UID)] {
		named[w.Name] = w.Receivers
	}
	return named
}

// TestReceiversOfWorkloads: the receivers that pods and their namespace name are recorded in the store.
func TestReceiversOfWorkloads(t *testing.T) {
	many := make([]string, 0, 30)
	for i := range 30 {
		many = append(many, "team-"+string(rune('a'+i%26))+strings.Repeat("x", i))
	}
	for name, tt := range map[string]struct {
		namespace string
		pods      []*corev1.Pod
		want      map[string]string
	}{
		"nobody says anything":       {"", []*corev1.Pod{aPod(fixtureNamespace, "a")}, map[string]string{"a": ""}},
		"the pod":                    {"", []*corev1.Pod{aPod(fixtureNamespace, "a", withReceivers("team"))}, map[string]string{"a": "team"}},
		"the namespace":              {"team", []*corev1.Pod{aPod(fixtureNamespace, "a")}, map[string]string{"a": "team"}},
		"the pod, not the namespace": {"platform", []*corev1.Pod{aPod(fixtureNamespace, "a", withReceivers("team")), aPod(fixtureNamespace, "b")}, map[string]string{"a": "team", "b": "platform"}},
		"the pod wants none":         {"platform", []*corev1.Pod{aPod(fixtureNamespace, "a", withReceivers(""))}, map[string]string{"a": ""}},
		"several, badly written":     {"", []*corev1.Pod{aPod(fixtureNamespace, "a", withReceivers(" team ,, platform,team,\n"))}, map[string]string{"a": "platform,team"}},
		"no names":                   {"", []*corev1.Pod{aPod(fixtureNamespace, "a", withReceivers("Team A,-x,a_b,team,"+strings.Repeat("a", 64)))}, map[string]string{"a": "team"}},
		"two pods of one workload": {
			"", []*corev1.Pod{aPod(fixtureNamespace, "a", deployed("web"), withReceivers("b")), aPod(fixtureNamespace, "b", deployed("web"), withReceivers("a,b")), aPod(fixtureNamespace, "c", deployed("web"))},
			map[string]string{"web": "a,b"},
		},
		"more than a Scanner may have": {"", []*corev1.Pod{aPod(fixtureNamespace, "a", withReceivers(strings.Join(many[:20], ",")))}, map[string]string{"a": strings.Join(many[:16], ",")}},
		"more than is read":            {"", []*corev1.Pod{aPod(fixtureNamespace, "a", withReceivers(strings.Repeat(" ", 2000)+"team"))}, map[string]string{"a": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			scanner := theScanner()
			scan := scanOf(scanner, web)
			objects := []client.Object{scanner, scan}
			if tt.namespace != "" {
				objects = append(objects, namespaceNaming(tt.namespace))
			}
			for _, pod := range tt.pods {
				running("main", web)(pod)
				objects = append(objects, inventory.StripPod(pod))
			}
			u := newUnit(t, objects...)
			u.saveReport(web)
			reported := &useRecordingStore{Store: u.store}
			u.inventory.Store = reported
			u.reconcile(scan)
			if diff := cmp.Diff(tt.want, reported.receivers(scanner)); diff != "" {
				t.Errorf("receivers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnknownReceivers: a name that is no receiver is in the Scanner's condition, and in one event per change.
func TestUnknownReceivers(t *testing.T) {
	const counts = ". Such a name counts as none"
	says := func(names string) string {
		return "the annotation scanner-operator.io/receiver names receivers that no scanner lets the workloads use: " + names + counts
	}
	pod := func(name, names string) *corev1.Pod {
		return aPod(fixtureNamespace, name, running("c", web), withReceivers(names))
	}
	for name, tt := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"nobody names any": {[]client.Object{aPod(fixtureNamespace, "a", running("c", web))}, ""},
		"known":            {[]client.Object{pod("a", "team, other")}, ""},
		"misspelt":         {[]client.Object{pod("b", "taem,team"), pod("a", "taem")}, says(`"taem" (Pod/a)`)},
		"by the namespace": {[]client.Object{namespaceNaming("taem"), aPod(fixtureNamespace, "a", running("c", web)), aPod(fixtureNamespace, "b", running("c", web))}, says(`"taem" (namespace shop)`)},
		"no name":          {[]client.Object{pod("a", "Team A")}, says(`"Team A" (Pod/a)`)},
		"hostile":          {[]client.Object{pod("a", "x\"\n\xff<!channel>"+strings.Repeat("y", 900))}, says(`"x\" �<!channel>` + strings.Repeat("y", 44) + `…" (Pod/a)`)},
		"many":             {[]client.Object{pod("a", "e,d,c"), pod("b", "b,a")}, says(`"a" (Pod/b), "b" (Pod/b), "c" (Pod/a) and 2 more`)},
		"of another Scanner, which is about the pod": {
			[]client.Object{pod("a", "elsewhere"), aScanner(fixtureNamespace, "second", notifying("elsewhere"))}, "",
		},
		"of another Scanner, which is not": {
			[]client.Object{pod("a", "elsewhere"), aScanner(fixtureNamespace, "second", notifying("elsewhere"), selecting("a", "b"))}, says(`"elsewhere" (Pod/a)`),
		},
		"not selected": {[]client.Object{aPod(fixtureNamespace, "a", running("c", web), withReceivers("taem"), labelled("scanner-operator.io/ignore", "true"))}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, append(tt.objects, theScanner(notifying("team", "other")))...)
			condition := meta.FindStatusCondition(u.reconcileScanner().Status.Conditions, v1alpha1.ConditionNotificationsDelivered)
			want := metav1.Condition{Reason: v1alpha1.ReasonDelivered}
			if tt.want != "" {
				want = metav1.Condition{Reason: v1alpha1.ReasonUnknownReceiver, Message: tt.want}
			}
			if condition.Status != metav1.ConditionTrue || condition.Reason != want.Reason || condition.Message != want.Message {
				t.Errorf("the condition is %s %s: %q\nwant True %s: %q", condition.Status, condition.Reason, condition.Message, want.Reason, want.Message)
			}
			for round, want := range []bool{tt.want != "", false} {
				reported := strings.Contains(strings.Join(u.takeEvents(), "\n"), "Warning UnknownReceiver "+tt.want)
				if reported != want {
					t.Errorf("reconciliation %d: an event: %v, want %v", round+1, reported, want)
				}
				u.reconcileScanner()
			}
		})
	}
}

// TestUnknownReceiverBesideFailure: an unknown receiver does not hide pending or failed deliveries, and causes another event when the
// unknown names change.
func TestUnknownReceiverBesideFailure(t *testing.T) {
	pod := aPod(fixtureNamespace, "a", running("c", web), withReceivers("taem"))
	u := newUnit(t, pod, theScanner(notifying("team")))
	u.saveReceiverState("team", announce.State{Baseline: announce.Baseline{Phase: announce.BaselineDone}, Pending: 2})
	check := func(reason, beginning, event string) {
		t.Helper()
		condition := meta.FindStatusCondition(u.reconcileScanner().Status.Conditions, v1alpha1.ConditionNotificationsDelivered)
		if condition.Reason != reason || !strings.HasPrefix(condition.Message, beginning) || !strings.Contains(condition.Message, `"taem" (Pod/a)`) {
			t.Errorf("the condition is %s: %q, want %s: %q and the unknown name", condition.Reason, condition.Message, reason, beginning)
		}
		if got := strings.Join(u.takeEvents(), "\n"); strings.Contains(got, v1alpha1.ReasonUnknownReceiver) != (event != "") || !strings.Contains(got, event) {
			t.Errorf("events %q, want %q", got, event)
		}
	}
	check(v1alpha1.ReasonDeliveryPending, "waiting for the next message: 2 findings; the annotation", `"taem" (Pod/a)`)
	u.saveReceiverState("team", announce.State{Baseline: announce.Baseline{Phase: announce.BaselineDone}, LastError: &announce.DeliveryError{Reason: announce.ReasonNetwork, Message: "no way"}})
	check(announce.ReasonNetwork, "team: Network: no way; the annotation", "")
	pod.Annotations[v1alpha1.AnnotationReceiver] = "taem,plattform"
	u.update(pod)
	check(announce.ReasonNetwork, "team: Network: no way; the annotation", `"plattform" (Pod/a), "taem" (Pod/a)`)
}

// TestUnknownReceiverInCutMessage: unknown receivers cause one event, even if the ClusterScanner's status has no room for their names.
func TestUnknownReceiverInCutMessage(t *testing.T) {
	u := newUnit(t)
	s := &scannerScope{scanner: &v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: "platform"}}}
	s.coverage.UnknownReceivers = map[string]string{"taem": "Deployment/web"}
	for range 2 {
		before := copyOf(s.scanner)
		before.ScannerStatus().Conditions = []metav1.Condition{{Type: v1alpha1.ConditionNotificationsDelivered, Message: "team:…"}}
		u.scanners.emitUnknownReceivers(before, s)
	}
	if got := u.takeEvents(); len(got) != 1 {
		t.Errorf("events %q, want one", got)
	}
}

// TestReceiverAnnotationsAreFollowed: a changed annotation on a pod or its namespace is recorded in the store without any other event.
func TestReceiverAnnotationsAreFollowed(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all", notifying("team", "platform"))
	own, other := aPod(p.namespace, "own", running("main", web), withReceivers("team")), aPod(p.namespace, "other", running("main", web))
	p.create(scanner, own, other)
	named := func() map[string]string { return p.uses.receivers(scanner) }
	p.Eventually(named, eventuallyTimeout, "100ms").Should(gomega.Equal(map[string]string{"own": "team", "other": ""}))

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	annotate := func(o client.Object, text string) {
		t.Helper()
		before := refresh(p, o).DeepCopyObject().(client.Object)
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationReceiver: text})
		p.must(p.client.Patch(t.Context(), o, client.MergeFrom(before)))
	}
	annotate(namespace, "platform")
	p.Eventually(named, eventuallyTimeout, "100ms").Should(gomega.Equal(map[string]string{"own": "team", "other": "platform"}))
	annotate(own, "team,platform")
	p.Eventually(named, eventuallyTimeout, "100ms").Should(gomega.Equal(map[string]string{"own": "platform,team", "other": "platform"}))
	annotate(namespace, "nobody")
	p.waitForStatus(scanner, func(g gomega.Gomega, status v1alpha1.ScannerStatus) {
		condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionNotificationsDelivered)
		g.Expect(condition).To(gomega.HaveField("Message", gomega.ContainSubstring(`"nobody" (namespace `+p.namespace+`)`)))
	})
}

// anomalous is a store whose data has an anomaly.
type anomalous struct {
	*store.Store
	anomaly *store.DataAnomaly
}

func (s *anomalous) DataAnomaly(context.Context, string, string) (*store.DataAnomaly, error) {
	return s.anomaly, nil
}

// TestDataAnomalyCondition: an anomaly is reported with numbers, as a warning, takes precedence over outdated data, and is cleared when it is
// over.
func TestDataAnomalyCondition(t *testing.T) {
	u := newUnit(t, theScanner())
	data := &anomalous{u.store, &store.DataAnomaly{DataVersion: "2", Missing: 312, Total: 1020, Since: noon.Add(-time.Hour)}}
	u.scanners.Store, u.engine.problem = data, "the listing cannot be read"
	condition := meta.FindStatusCondition(u.reconcileScanner().Status.Conditions, v1alpha1.ConditionBackendAvailable)
	const want = "312 of 1020 findings went with one version of the vulnerability data, on 2026-03-01T11:00:00Z: "
	if condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonDataAnomaly || !strings.HasPrefix(condition.Message, want) {
		t.Errorf("BackendAvailable is %s %s: %s", condition.Status, condition.Reason, condition.Message)
	}
	if events := u.takeEvents(); !strings.Contains(strings.Join(events, "\n"), "Warning VulnerabilityDataAnomaly "+want) {
		t.Errorf("events %q, want a warning", events)
	}
	data.anomaly = nil
	if got := conditionsOf(u.reconcileScanner().Status.Conditions)[0]; got != "BackendAvailable=True VulnerabilityDataOutdated" {
		t.Errorf("after that the condition is %s", got)
	}
}

// TestRoutingChangeWakesSubscribers: the subscribers of an image are woken when its workloads are routed to other receivers, since no status
// changes then.
func TestRoutingChangeWakesSubscribers(t *testing.T) {
	scanner, pod := theScanner(notifying("team", "platform")), aPod(fixtureNamespace, "web-1", running("main", web), withReceivers("team"))
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, pod)
	u.saveReport(web)
	woken := u.scans.Wakeups.Subscribe()
	check := func(want int) {
		t.Helper()
		u.reconcile(scan)
		if len(woken) != want {
			t.Errorf("woken %d times, want %d", len(woken), want)
		}
	}
	check(0)
	check(0)
	pod.Annotations[v1alpha1.AnnotationReceiver] = "platform"
	u.update(pod)
	check(1)
	check(1)
	u.must(u.client.Delete(t.Context(), scan))
	u.reconcile(scan)
	if held := maps.Collect(u.scans.routedReceivers.Range); len(held) != 0 {
		t.Errorf("of a deleted ImageScan %v is kept", held)
	}
}
