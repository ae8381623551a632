package controllers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Wakeups tells reconcilers that something has changed outside the Kubernetes API: an image was cataloged, a
// report was saved, a receiver was told, an exception covers more. They only make things faster: reconcilers also look by themselves.
type Wakeups struct {
	images, scanners, exceptions []chan event.GenericEvent
}

// Subscribe returns a channel of its own for Image. All calls come before the first Image call.
func (w *Wakeups) Subscribe() <-chan event.GenericEvent { return subscribe(&w.images) }

// SubscribeScanners returns a channel of its own for Scanner. All calls come before the first Scanner call.
func (w *Wakeups) SubscribeScanners() <-chan event.GenericEvent { return subscribe(&w.scanners) }

// SubscribeExceptions returns a channel of its own for Exception. All calls come before the first Exception call.
func (w *Wakeups) SubscribeExceptions() <-chan event.GenericEvent { return subscribe(&w.exceptions) }

func subscribe(to *[]chan event.GenericEvent) <-chan event.GenericEvent {
	// The buffer takes the burst of a match worker; a full one makes the sender wait.
	events := make(chan event.GenericEvent, 1024)
	*to = append(*to, events)
	return events
}

// Image wakes up whoever is concerned with an image, by the digest that nodes report or by the platform digest.
func (w *Wakeups) Image(ctx context.Context, digest string) {
	send(ctx, w.images, &v1alpha1.ImageScan{Spec: v1alpha1.ImageScanSpec{Digest: digest}})
}

// Scanner wakes up whoever shows a Scanner's state.
func (w *Wakeups) Scanner(ctx context.Context, scanner *v1alpha1.Scanner) {
	send(ctx, w.scanners, scanner)
}

// Exception wakes up whoever shows what an exception covers. Without a namespace it is one of the cluster.
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
