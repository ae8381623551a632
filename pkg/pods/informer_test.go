package pods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// TestUpdatesThatMatter: handlers get an update only if it changes a field that is kept, and at a resync.
func TestUpdatesThatMatter(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"a restart": {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }, false},
		"a probe": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}, false},
		"an address":     {func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.7" }, false},
		"an annotation":  {func(p *corev1.Pod) { p.Annotations["team"] = "a" }, false},
		"our annotation": {func(p *corev1.Pod) { p.Annotations["default"+podmark.AnnotationSuffix] = "{}" }, true},
		"a label":        {func(p *corev1.Pod) { p.Labels["app"] = "web" }, true},
		"an image":       {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ImageID = "" }, true},
		"a node":         {func(p *corev1.Pod) { p.Spec.NodeName = "another" }, true},
		"another pod":    {func(p *corev1.Pod) { p.UID = "00000000-0000-0000-0000-000000000001" }, true},
		"a resync":       {func(p *corev1.Pod) { p.ResourceVersion = replica(1).ResourceVersion }, true},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := replica(1), replica(1)
			after.ResourceVersion = "7000000"
			tt.change(after)
			got := false
			handler := completingHandler{toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { got = true }}, &decoder{}}
			handler.OnUpdate(compactOf(t, inventory.StripPod(before)), compactOf(t, inventory.StripPod(after)))
			if got != tt.want {
				t.Errorf("the handler gets it: %t, want %t", got, tt.want)
			}
		})
	}
}

// TestMissedDeletion: a handler gets the last known state of a pod whose deletion was missed, and nothing that cannot be decoded.
func TestMissedDeletion(t *testing.T) {
	var got []any
	handler := completingHandler{toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { got = append(got, o) }, DeleteFunc: func(o any) { got = append(got, o) },
	}, &decoder{}}
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: compactOf(t, replica(1))})
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "b", Obj: nil})
	handler.OnAdd("no pod", true)
	if len(got) != 1 {
		t.Fatalf("%d events, want 1", len(got))
	}
	tombstone, ok := got[0].(toolscache.DeletedFinalStateUnknown)
	if !ok || tombstone.Key != "a" || tombstone.Obj.(*corev1.Pod).Name != replica(1).Name {
		t.Errorf("event %v", got[0])
	}
}
