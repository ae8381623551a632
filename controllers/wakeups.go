package controllers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Wakeups notifies reconcilers of changes outside the Kubernetes API: an image was cataloged, a report was saved, a message was delivered,
// an exception suppresses more findings. A lost wake-up only causes a delay: work in progress is also requeued, and a restart reconciles
// all objects.
type Wakeups struct {
	images, scanners, exceptions []chan event.GenericEvent
}

// Subscribe returns a new channel for the wake-ups of Image. It must not be called after the first call of Image.
func (w *Wakeups) Subscribe() <-chan event.GenericEvent { return subscribe(&w.images) }

// SubscribeScanners returns a new channel for the wake-ups of Scanner. It must not be called after the first call of Scanner.
func (w *Wakeups) SubscribeScanners() <-chan event.GenericEvent { return subscribe(&w.scanners) }

// SubscribeExceptions returns a new channel for the wake-ups of Exception. It must not be called after the first call of Exception.
func (w *Wakeups) SubscribeExceptions() <-chan event.GenericEvent { return subscribe(&w.exceptions) }

func subscribe(to *[]chan event.GenericEvent) <-chan event.GenericEvent {
	// The buffer takes the burst of a match worker. A full buffer blocks the sender.
	events := make(chan event.GenericEvent, 1024)
	*to = append(*to, events)
	return events
}

// Image wakes the subscribers for an image, given by the digest that nodes report or by the platform digest. It blocks while a channel is
// full, until ctx is done.
func (w *Wakeups) Image(ctx context.Context, digest string) {
	send(ctx, w.images, &v1alpha1.ImageScan{Spec: v1alpha1.ImageScanSpec{Digest: digest}})
}

// Scanner wakes the subscribers for a Scanner. It blocks like Image.
func (w *Wakeups) Scanner(ctx context.Context, scanner v1alpha1.GenericScanner) {
	send(ctx, w.scanners, scanner)
}

// Exception wakes the subscribers for an exception. A name without a namespace is a ClusterVulnerabilityException. It blocks like Image.
func (w *Wakeups) Exception(ctx context.Context, name types.NamespacedName) {
	send(ctx, w.exceptions, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}})
}

func send(ctx context.Context, to []chan event.GenericEvent, object client.Object) {
	for _, events := range to {
		select {
		case events <- event.GenericEvent{Object: object}:
		case <-ctx.Done():
		}
	}
}
