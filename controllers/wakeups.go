package controllers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Wakeups tells reconcilers that something about an image has changed outside the Kubernetes API: it was
// catalogued, or a report was saved. They only make things faster: reconcilers also look by themselves.
type Wakeups struct {
	subscribers []chan event.GenericEvent
}

// Subscribe returns a channel of its own. All calls come before the first Image call.
func (w *Wakeups) Subscribe() <-chan event.GenericEvent {
	// The buffer takes the burst of a match worker; a full one makes the sender wait.
	events := make(chan event.GenericEvent, 1024)
	w.subscribers = append(w.subscribers, events)
	return events
}

// Image wakes up whoever is concerned with an image, by the digest that nodes report or by the platform digest.
func (w *Wakeups) Image(ctx context.Context, digest string) {
	for _, events := range w.subscribers {
		scan := &v1alpha1.ImageScan{Spec: v1alpha1.ImageScanSpec{Digest: digest}}
		select {
		case events <- event.GenericEvent{Object: scan}:
		case <-ctx.Done():
		}
	}
}
