package controllers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// TestPodChanged: only changes of a pod that Scanners and ImageScans read trigger them. Other changes by the operator or the
// kubelet do not.
func TestPodChanged(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"another version": {func(p *corev1.Pod) { p.ResourceVersion, p.Generation = "2", 2 }, false},
		"the operator's annotation": {
			func(p *corev1.Pod) { p.Annotations = map[string]string{"default" + podmark.AnnotationSuffix: "{}"} }, false,
		},
		"a condition": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastProbeTime: metav1.Now()}}
		}, false},
		"a restart":      {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }, false},
		"a label":        {func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }, true},
		"receivers":      {func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationReceiver: "team"} }, true},
		"another image":  {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ImageID = "" }, true},
		"a node":         {func(p *corev1.Pod) { p.Spec.NodeName = nodeARM }, true},
		"its end":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, true},
		"its deletion":   {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon.Add(time.Hour)} }, true},
		"a finalizer":    {func(p *corev1.Pod) { p.Finalizers = []string{"default" + podmark.FinalizerSuffix} }, true},
		"a pod replaced": {func(p *corev1.Pod) { p.UID = "another" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := aPod(fixtureNamespace, "web-1", running("main", web))
			after := before.DeepCopy()
			tt.change(after)
			if got := podChanged.Update(event.UpdateEvent{ObjectOld: inventory.StripPod(before), ObjectNew: inventory.StripPod(after)}); got != tt.want {
				t.Errorf("it passes: %t, want %t", got, tt.want)
			}
		})
	}
}

// TestNewReplicasMakeOneImageScan: replicas are reconciled concurrently, and one of them creates the ImageScan.
func TestNewReplicasMakeOneImageScan(t *testing.T) {
	objects := []client.Object{theScanner()}
	for i := range 2 * podsAtOnce {
		objects = append(objects, aPod(fixtureNamespace, fmt.Sprint("web-", i), running("main", web)))
	}
	u := newUnit(t, objects...)
	var mutex sync.Mutex
	created := 0
	u.pods.Client = interceptor.NewClient(u.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			mutex.Lock()
			created++
			mutex.Unlock()
			return c.Create(ctx, o, opts...)
		},
	})
	var working sync.WaitGroup
	for _, pod := range objects[1:] {
		working.Go(func() {
			if _, err := u.pods.Reconcile(t.Context(), requestFor(pod)); err != nil {
				t.Error(err)
			}
		})
	}
	working.Wait()
	if created != 1 {
		t.Errorf("the API server was asked for %d ImageScans, want 1", created)
	}
}
