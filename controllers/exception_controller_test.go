package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// anException returns an exception in namespace shop that does not expire.
func anException(name string, ids ...string) *v1alpha1.VulnerabilityException {
	return &v1alpha1.VulnerabilityException{
		ObjectMeta: metav1.ObjectMeta{Namespace: fixtureNamespace, Name: name, UID: types.UID("uid of " + name), Generation: 1},
		Spec:       v1alpha1.ExceptionSpec{Status: v1alpha1.VEXFixed, Reason: "patched", Vulnerabilities: ids},
	}
}

// aClusterException returns a ClusterVulnerabilityException for the namespaces of a selector.
func aClusterException(name string, selector *metav1.LabelSelector, ids ...string) *v1alpha1.ClusterVulnerabilityException {
	return &v1alpha1.ClusterVulnerabilityException{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Generation: 1},
		Spec:       v1alpha1.ClusterExceptionSpec{ExceptionSpec: anException(name, ids...).Spec, NamespaceSelector: selector},
	}
}

func labelledWith(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

var wrongSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "stage", Operator: "Like"}}}

func in(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(d)} }

// exceptionReconciler returns an ExceptionReconciler for the unit.
func (u *unit) exceptionReconciler() *ExceptionReconciler {
	return &ExceptionReconciler{
		Client: u.client, Exceptions: u.exceptions, Clock: u.clock, Events: u.events, Suppressed: u.scanners.Suppressed, Wakeups: &Wakeups{},
	}
}

// reconcileException reconciles an exception once, reads it again, and returns the requeue delay.
func (u *unit) reconcileException(r *ExceptionReconciler, o client.Object) time.Duration {
	u.t.Helper()
	kind := exceptionObjectOf(o).object
	result, err := r.reconcilerOf(kind).Reconcile(u.t.Context(), requestFor(o))
	u.must(err)
	u.must(u.client.Get(u.t.Context(), client.ObjectKeyFromObject(o), o))
	return result.RequeueAfter
}

// TestExceptionConditions: the conditions and the event of an exception, and its requeue delay.
func TestExceptionConditions(t *testing.T) {
	ends := func(o client.Object, end *metav1.Time) client.Object {
		exceptionObjectOf(o).spec.ExpirationTime = end
		return o
	}
	for name, tt := range map[string]struct {
		object  client.Object
		want    []string
		message string
		event   string
		next    time.Duration
	}{
		"for ever":            {anException("a", "CVE-1"), []string{"Ready=True InForce"}, "in force; it does not expire", "", 0},
		"for a while":         {ends(anException("a", "CVE-1"), in(time.Hour)), []string{"Ready=True InForce"}, "in force until 2026-03-01T13:00:00Z", "", time.Hour},
		"of the cluster":      {ends(aClusterException("a", nil, "CVE-1"), in(time.Hour)), []string{"Ready=True InForce"}, "in force until 2026-03-01T13:00:00Z", "", time.Hour},
		"nearly over":         {ends(anException("a", "CVE-1"), in(time.Second)), []string{"Ready=True InForce"}, "in force until 2026-03-01T12:00:01Z", "", time.Second},
		"in the far future":   {ends(anException("a", "CVE-1"), &metav1.Time{Time: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}), []string{"Ready=True InForce"}, "in force until 9999-01-01T00:00:00Z", "", 1<<63 - 1},
		"over at this moment": {ends(anException("a", "CVE-1"), in(0)), []string{"Ready=False Expired"}, "it ended at 2026-03-01T12:00:00Z, and its findings are news again: set spec.expirationTime to a later time, or delete it", "Warning Expired it ended", 0},
		"over, and wrong":     {ends(aClusterException("a", wrongSelector, "CVE-1"), in(-time.Hour)), []string{"Ready=False Expired"}, "it ended at 2026-03-01T11:00:00Z, and its findings are news again: set spec.expirationTime to a later time, or delete it", "Warning Expired it ended", 0},
		"wrong": {
			aClusterException("a", wrongSelector, "CVE-1"), []string{"Ready=False InvalidSelector", "Stalled=True InvalidSelector"},
			`spec.namespaceSelector: "Like" is not a valid label selector operator; nothing is covered until it is corrected`, "Warning InvalidSelector spec.namespaceSelector", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, theScanner(), tt.object)
			r := u.exceptionReconciler()
			for range 2 { // the second reconciliation must not change anything
				if next := u.reconcileException(r, tt.object); next != tt.next {
					t.Errorf("it is looked at again after %s, want %s", next, tt.next)
				}
			}
			status := exceptionObjectOf(tt.object).status
			if diff := cmp.Diff(tt.want, conditionsOf(status.Conditions)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if got := status.Conditions[0].Message; got != tt.message {
				t.Errorf("it says %q, want %q", got, tt.message)
			}
			if status.ObservedGeneration != 1 || u.writes != 1 {
				t.Errorf("generation %d was observed and the status written %d times, want both to be 1", status.ObservedGeneration, u.writes)
			}
			events := u.takeEvents()
			if (tt.event == "") != (len(events) == 0) || len(events) > 1 || len(events) == 1 && !strings.HasPrefix(events[0], tt.event) {
				t.Errorf("events %q, want %q", events, tt.event)
			}
		})
	}
}

// TestTooManyExceptions: an exception that exceeds the bound of its namespace says so. When an older one is deleted, it is reconciled and in force.
func TestTooManyExceptions(t *testing.T) {
	var all []client.Object
	for i := range active.MaxPerNamespace + 1 {
		e := anException(fmt.Sprintf("e%04d", i), "CVE-1")
		e.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(i-1000) * time.Minute))
		all = append(all, e)
	}
	u := newUnit(t, all...)
	r := u.exceptionReconciler()
	oldest, youngest := all[0], all[len(all)-1].(*v1alpha1.VulnerabilityException)
	if asked := r.misjudged(t.Context(), oldest); len(asked) != 1 || asked[0].Name != youngest.Name {
		t.Errorf("%v are reconciled, want the youngest", asked)
	}
	u.reconcileException(r, youngest)
	want := []string{"Ready=False TooManyExceptions", "Stalled=True TooManyExceptions"}
	if got := conditionsOf(youngest.Status.Conditions); !cmp.Equal(want, got) || !strings.Contains(youngest.Status.Conditions[0].Message, "at most 500") {
		t.Errorf("conditions %q, want %q with the bound: %+v", got, want, youngest.Status.Conditions)
	}
	if asked := r.misjudged(t.Context(), oldest); len(asked) != 0 {
		t.Errorf("%v are reconciled, want none", asked)
	}
	u.must(u.client.Delete(t.Context(), oldest))
	if asked := r.misjudged(t.Context(), oldest); len(asked) != 1 || asked[0].Name != youngest.Name {
		t.Errorf("%v are reconciled after the oldest was deleted, want the youngest", asked)
	}
	u.reconcileException(r, youngest)
	if got := conditionsOf(youngest.Status.Conditions); !cmp.Equal([]string{"Ready=True InForce"}, got) {
		t.Errorf("conditions %q, want it to be in force", got)
	}
}

// TestExceptionEnds: when an exception expires, its status and one event say so, and other reconcilers are triggered once.
func TestExceptionEnds(t *testing.T) {
	e := anException("a", "CVE-1")
	e.Spec.ExpirationTime = in(time.Minute)
	u := newUnit(t, e)
	r := u.exceptionReconciler()
	u.advanceClock(u.reconcileException(r, e))
	u.reconcileException(r, e)
	if got := conditionsOf(e.Status.Conditions); len(got) != 1 || got[0] != "Ready=False Expired" || len(u.takeEvents()) != 1 {
		t.Errorf("conditions %q, want one that says that it has expired, and an event", got)
	}
	before := e.DeepCopy()
	before.Status.Conditions[0].Reason = v1alpha1.ReasonInForce
	if !suppressionChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: e}) || suppressionChanged.Update(event.UpdateEvent{ObjectOld: e, ObjectNew: e}) {
		t.Error("others do not look again when it ends, or look all the time")
	}
	e.Spec.ExpirationTime, e.Generation = in(time.Hour), 2
	u.update(e)
	if next := u.reconcileException(r, e); next != time.Hour-time.Minute || e.Status.Conditions[0].Reason != v1alpha1.ReasonInForce {
		t.Errorf("it is %s and looked at after %s, want it to be in force again for 59m", e.Status.Conditions[0].Reason, next)
	}
}

// TestExceptionFindings: status.findings has the number of findings that an exception suppresses in all Scanners to which it applies. It is
// set once all are counted, and updated at most once per recountInterval.
func TestExceptionFindings(t *testing.T) {
	play := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "play", Labels: map[string]string{"stage": "test"}}}
	own, all, test := anException("own", "CVE-1"), aClusterException("all", nil, "CVE-1"), aClusterException("test", labelledWith("stage", "test"), "CVE-1")
	u := newUnit(t, play, theScanner(), aScanner("play", "other"), own, all, test)
	r := u.exceptionReconciler()
	count := func(namespace, scanner string, counts map[string]int) {
		t.Helper()
		set, _, err := u.exceptions.InForce(t.Context(), namespace)
		u.must(err)
		r.Suppressed.record(types.NamespacedName{Namespace: namespace, Name: scanner}, set, counts)
	}
	want := func(what string, wantOwn, wantAll, wantTest int32) {
		t.Helper()
		for o, want := range map[client.Object]int32{own: wantOwn, all: wantAll, test: wantTest} {
			u.reconcileException(r, o)
			got := exceptionObjectOf(o).status.Findings
			if got == nil && want >= 0 || got != nil && *got != want {
				t.Errorf("%s: %s covers %v findings, want %d", what, o.GetName(), got, want)
			}
		}
	}
	want("nothing is counted", -1, -1, -1)
	count(fixtureNamespace, "all", map[string]int{"uid of own": 2, "uid of all": 3})
	want("one Scanner of two is counted", 2, -1, -1)
	count("play", "other", map[string]int{"uid of all": 4, "uid of test": 5})
	want("all are counted", 2, 7, 5)
	count(fixtureNamespace, "all", map[string]int{"uid of own": 1})
	want("too early", 2, 7, 5)
	u.advanceClock(recountInterval)
	want("later", 1, 4, 5)
	u.advanceClock(recountInterval)
	r.Suppressed.remove(types.NamespacedName{Namespace: "play", Name: "other"})
	u.must(u.client.Delete(t.Context(), aScanner("play", "other")))
	want("a Scanner has gone", 1, 0, 0)
	if wait := u.reconcileException(r, own); wait != 0 {
		t.Errorf("nothing has changed and it is looked at again after %s", wait)
	}
	count(fixtureNamespace, "all", map[string]int{"uid of own": 9})
	u.advanceClock(time.Second)
	if wait := u.reconcileException(r, own); wait != 0 { // the last change was long ago
		t.Errorf("it is looked at again after %s, want it to be written at once", wait)
	}
	count(fixtureNamespace, "all", map[string]int{"uid of own": 10})
	if wait := u.reconcileException(r, own); wait != recountInterval {
		t.Errorf("it is looked at again after %s, want %s", wait, recountInterval)
	}
}

// TestSuppressionCounts: only exceptions whose number has changed are woken.
func TestSuppressionCounts(t *testing.T) {
	var c SuppressionCounts
	scanner := types.NamespacedName{Namespace: fixtureNamespace, Name: "all"}
	set := exception.NewSet([]exception.Exception{{UID: "1", Namespace: fixtureNamespace, Name: "a"}, {UID: "2", Name: "b"}}, noon)
	a, b := types.NamespacedName{Namespace: fixtureNamespace, Name: "a"}, types.NamespacedName{Name: "b"}
	for _, step := range []struct {
		what   string
		counts map[string]int
		want   []types.NamespacedName
	}{
		{"they are new", nil, []types.NamespacedName{b, a}},
		{"nothing has changed", map[string]int{"1": 0}, nil},
		{"one covers more", map[string]int{"1": 3}, []types.NamespacedName{a}},
		{"the other one does instead", map[string]int{"2": 3}, []types.NamespacedName{b, a}},
	} {
		if diff := cmp.Diff(step.want, c.record(scanner, set, step.counts)); diff != "" {
			t.Errorf("%s: woken up (-want +got):\n%s", step.what, diff)
		}
	}
	if diff := cmp.Diff([]types.NamespacedName{b}, c.record(scanner, exception.Set{}, nil)); diff != "" {
		t.Errorf("they are about another namespace now: woken up (-want +got):\n%s", diff)
	}
	c.record(scanner, set, map[string]int{"2": 3})
	if diff := cmp.Diff([]types.NamespacedName{b}, c.remove(scanner)); diff != "" {
		t.Errorf("the Scanner has gone: woken up (-want +got):\n%s", diff)
	}
}

// TestSuppressedFindings: suppressed findings are in no count of an ImageScan, without another scan. An exception must apply to all names by
// which the image is run.
func TestSuppressedFindings(t *testing.T) {
	const other = "mirror.example.com/web:1"
	about := func(images ...string) *v1alpha1.VulnerabilityException {
		e := anException("a", "CVE-1")
		e.Spec.Images = images
		return e
	}
	ended := anException("a", "CVE-1")
	ended.Spec.ExpirationTime = in(-time.Second)
	const unused = "no pod uses the image any more: its findings are not counted. "
	both := v1alpha1.FindingCounts{Critical: 1, High: 1, Fixable: 2}
	one := v1alpha1.FindingCounts{High: 1, Fixable: 1, Suppressed: 1}
	pods := []client.Object{aPod(fixtureNamespace, "p", running("c", web)), aPod(fixtureNamespace, "q", containerWith("c", other, corev1.ContainerStatus{ImageID: imageID(web)}))}
	for name, tt := range map[string]struct {
		objects []client.Object
		want    v1alpha1.FindingCounts
		top     string
		message string
	}{
		"no exception":                      {pods, both, "CVE-1", "2 findings: 1 critical, 1 high; 2 fixable, 0 known exploited"},
		"for all images":                    {append(pods, about()), one, "CVE-2", "1 finding: 0 critical, 1 high; 1 fixable, 0 known exploited; 1 more suppressed"},
		"for one of its names":              {append(pods, about("registry.example.com/*")), both, "CVE-1", "2 findings: 1 critical, 1 high; 2 fixable, 0 known exploited"},
		"for both of its names":             {append(pods, about("*.example.com/*web:1")), one, "CVE-2", "1 finding: 0 critical, 1 high; 1 fixable, 0 known exploited; 1 more suppressed"},
		"for its digest":                    {append(pods, about("*@"+keyOfImage(web).Digest)), one, "CVE-2", "1 finding: 0 critical, 1 high; 1 fixable, 0 known exploited; 1 more suppressed"},
		"for each name its own":             {append(pods, about("registry.example.com/*"), func() client.Object { e := about("mirror.*"); e.Name = "b"; return e }()), one, "CVE-2", "1 finding: 0 critical, 1 high; 1 fixable, 0 known exploited; 1 more suppressed"},
		"all of them":                       {append(pods, anException("a", "CVE-1", "cve-2")), v1alpha1.FindingCounts{Suppressed: 2}, "", "all findings suppressed: 2"},
		"of the cluster":                    {append(pods, aClusterException("a", nil, "CVE-1")), one, "CVE-2", "1 finding: 0 critical, 1 high; 1 fixable, 0 known exploited; 1 more suppressed"},
		"of the cluster, for other places":  {append(pods, aClusterException("a", labelledWith("stage", "test"), "CVE-1")), both, "CVE-1", "2 findings: 1 critical, 1 high; 2 fixable, 0 known exploited"},
		"ended":                             {append(pods, ended), both, "CVE-1", "2 findings: 1 critical, 1 high; 2 fixable, 0 known exploited"},
		"unused, by the name that it had":   {[]client.Object{about("registry.example.com/*")}, one, "CVE-2", unused + "1 finding: 0 critical, 1 high; 1 fixable, 0 known exploited; 1 more suppressed"},
		"unused, by a name that it had not": {[]client.Object{about("mirror.*")}, both, "CVE-1", unused + "2 findings: 1 critical, 1 high; 2 fixable, 0 known exploited"},
	} {
		t.Run(name, func(t *testing.T) {
			scan := scanOf(theScanner(), web, scanned)
			scan.Status.PlatformDigest = subjectOf(web, "").PlatformDigest
			scan.Status.Findings = &v1alpha1.FindingCounts{Low: 7} // from before
			u := newUnit(t, append([]client.Object{theScanner(), scan}, tt.objects...)...)
			u.saveReport(web, vulnerability("CVE-1", finding.Critical), vulnerability("CVE-2", finding.High))
			after, _ := u.reconcile(scan)
			if diff := cmp.Diff(&tt.want, after.Status.Findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if calls := u.engine.calls(); len(calls) > 0 {
				t.Errorf("the engine was called %d times, want none", len(calls))
			}
			top := ""
			if len(after.Status.TopFindings) > 0 {
				top = after.Status.TopFindings[0].ID
			}
			if worst, _, _ := strings.Cut(after.Status.WorstFinding, " "); worst != tt.top {
				t.Errorf("the worst finding for tables is %q, want %q", after.Status.WorstFinding, tt.top)
			}
			if top != tt.top || after.Status.Conditions[0].Message != tt.message {
				t.Errorf("the worst is %q of %q, want %q of %q", top, after.Status.Conditions[0].Message, tt.top, tt.message)
			}
		})
	}
}

// TestSuppressedWhileSuspended: the counts follow the exceptions even if the Scanner is suspended.
func TestSuppressedWhileSuspended(t *testing.T) {
	scanner := theScanner(func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) })
	scan := scanOf(scanner, web, scanned)
	scan.Status.PlatformDigest, scan.Status.Findings = subjectOf(web, "").PlatformDigest, &v1alpha1.FindingCounts{Critical: 1, Fixable: 1}
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "p", running("c", web)), anException("a", "CVE-1"))
	u.saveReport(web, vulnerability("CVE-1", finding.Critical))
	after, _ := u.reconcile(scan)
	if diff := cmp.Diff(&v1alpha1.FindingCounts{Suppressed: 1}, after.Status.Findings); diff != "" || len(u.engine.indexCalls) > 0 {
		t.Errorf("the engine was asked %d times, and findings (-want +got):\n%s", len(u.engine.indexCalls), diff)
	}
}

// recordingQueue records the delay of each request.
type recordingQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	after map[string]time.Duration
}

func (d *recordingQueue) AddAfter(r reconcile.Request, after time.Duration) {
	d.after[r.String()] = after
}

// TestExceptionWatch: a change of an exception enqueues the objects to which it applies or applied, one after the other.
func TestExceptionWatch(t *testing.T) {
	production := labelledWith("stage", "production")
	wide, narrow := aClusterException("a", nil, "CVE-1"), aClusterException("a", production, "CVE-1")
	u := newUnit(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fixtureNamespace, Labels: production.MatchLabels}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "play"}},
		theScanner(), aScanner(fixtureNamespace, "more"), aScanner("play", "other"),
	)
	w := exceptionWatch{u.exceptions, scannersFor(u.inventory)}
	for name, tt := range map[string]struct {
		versions []client.Object
		want     []string
	}{
		"of a namespace":              {[]client.Object{anException("a", "CVE-1")}, []string{"shop/all", "shop/more"}},
		"of the cluster":              {[]client.Object{wide}, []string{"play/other", "shop/all", "shop/more"}},
		"of the cluster, selecting":   {[]client.Object{narrow}, []string{"shop/all", "shop/more"}},
		"selecting less than before":  {[]client.Object{wide, narrow}, []string{"play/other", "shop/all", "shop/more"}},
		"that never selects anything": {[]client.Object{aClusterException("a", wrongSelector, "CVE-1")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			q := &recordingQueue{after: map[string]time.Duration{}}
			w.changed(t.Context(), q, tt.versions...)
			want := map[string]time.Duration{}
			for i, request := range tt.want {
				want[request] = eventDelay + time.Duration(i)*recountPace
			}
			if diff := cmp.Diff(want, q.after); diff != "" {
				t.Errorf("looked at after (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExceptionPredicates: events that cannot change the suppressed findings or the receivers enqueue nothing.
func TestExceptionPredicates(t *testing.T) {
	before := anException("a", "CVE-1")
	edited, shown := before.DeepCopy(), before.DeepCopy()
	edited.Generation = 2
	shown.Status.Findings = new(int32)
	plain := &metav1.PartialObjectMetadata{}
	namespace := func(labels, annotations map[string]string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
	}
	for name, tt := range map[string]struct{ got, want bool }{
		"made":                     {suppressionChanged.Create(event.CreateEvent{Object: before}), true},
		"there when it starts":     {suppressionChanged.Create(event.CreateEvent{Object: before, IsInInitialList: true}), false},
		"edited":                   {suppressionChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: edited}), true},
		"its own status":           {suppressionChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: shown}), false},
		"deleted":                  {suppressionChanged.Delete(event.DeleteEvent{Object: before}), true},
		"a namespace's label":      {namespaceChanged.Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: namespace(map[string]string{"a": "b"}, nil)}), true},
		"a namespace's receivers":  {namespaceChanged.Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: namespace(nil, map[string]string{v1alpha1.AnnotationReceiver: "b"})}), true},
		"a namespace's annotation": {namespaceChanged.Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: namespace(nil, map[string]string{"a": "b"})}), false},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: everything is looked at: %v, want %v", name, tt.got, tt.want)
		}
	}
}

// TestStripNamespace: only the fields that are read are kept.
func TestStripNamespace(t *testing.T) {
	full := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: fixtureNamespace, UID: "uid", ResourceVersion: "1", Labels: map[string]string{"a": "b"},
		Annotations:   map[string]string{v1alpha1.AnnotationReceiver: "team", "kubectl.kubernetes.io/last-applied-configuration": "long"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}}
	want := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: fixtureNamespace, UID: "uid", ResourceVersion: "1", Labels: full.Labels, Annotations: map[string]string{v1alpha1.AnnotationReceiver: "team"},
	}}
	got, err := inventory.StripNamespace(full)
	if diff := cmp.Diff(any(want), got); diff != "" || err != nil {
		t.Errorf("error %v, kept (-want +got):\n%s", err, diff)
	}
}

// TestNotifiedWithExceptions: messages use the exceptions in force, and the Scanner is requeued when the first of them expires.
func TestNotifiedWithExceptions(t *testing.T) {
	w := newNotifyWorld(t, nil)
	e := anException("a", "CVE-2026-0001")
	e.Spec.ExpirationTime = &metav1.Time{Time: notifyNoon.Add(7 * time.Second)}
	w.must(w.client.Create(context.Background(), e))
	set, _, err := w.reconciler.Exceptions.InForce(t.Context(), fixtureNamespace)
	w.must(err)
	if got := w.reconciler.settings(&notificationScope{scanner: w.scanner, exceptions: set}, destination{ClusterReceiver: v1alpha1.ClusterReceiver{Receiver: slackReceiver("team")}}).Filter.Exceptions; got.Key() != set.Key() || set.Key() == "" {
		t.Errorf("a receiver is defined by the exceptions %q, want %q", got.Key(), set.Key())
	}
	result, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.scanner)})
	w.must(err)
	if result.RequeueAfter <= 0 || result.RequeueAfter > 7*time.Second {
		t.Errorf("it is looked at again after %s, want 7s at most", result.RequeueAfter)
	}
}

// TestNotifiedBeforeExceptionsOfNamespacesEnd: if two namespaces that a ClusterScanner covers run one image and each has its own exception, both
// exceptions suppress findings, and there is a notice before each of them expires.
func TestNotifiedBeforeExceptionsOfNamespacesEnd(t *testing.T) {
	scanner := &v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "all-uid"}, Spec: v1alpha1.ClusterScannerSpec{
		ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}, NamespaceSelector: &metav1.LabelSelector{},
	}}
	u := newUnit(t, scanner)
	u.saveReport(web, vulnerability("CVE-2026-0001", finding.High))
	for _, namespace := range []string{"blog", "shop"} {
		e := anException("of-"+namespace, "CVE-2026-0001")
		e.Namespace, e.Spec.ExpirationTime = namespace, in(72*time.Hour)
		u.must(u.client.Create(t.Context(), e))
		u.must(u.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		u.must(u.store.SetUsage(t.Context(), store.ImageUsage{
			Scanner: "all-uid", Cluster: true, Namespace: namespace, Key: keyOfImage(web), Scope: store.Cluster, Engine: u.engine.Engine(),
			Workloads: []store.Workload{{Namespace: namespace, Kind: "Deployment", Name: "web", Container: "web", Repository: "web", Reference: web}},
		}))
	}
	notifications := &NotificationReconciler{
		Client: u.client, Store: u.store, Backends: u.scanners.Backends, Clock: u.clock, Exceptions: u.exceptions, Inventory: u.inventory,
	}
	scope, err := notifications.newScope(t.Context(), scanner)
	u.must(err)
	var names []string
	for _, notice := range scope.coverage.Notices {
		if notice.Kind == announce.NoticeExceptionExpires && notice.Count == 1 {
			names = append(names, notice.Name)
		}
	}
	if diff := cmp.Diff([]string{"blog/of-blog", "shop/of-shop"}, names); diff != "" {
		t.Errorf("notices about the end of exceptions (-want +got):\n%s", diff)
	}
}
