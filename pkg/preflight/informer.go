package preflight

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/pods"
)

// relistInterval is how often a forbidden list is tried again.
const relistInterval = 10 * time.Second

// NewInformer is for the cache's options. Pods are in the compact form of pkg/pods. Without it, the manager would wait until each informer has its first list, and end after a
// timeout: one namespace that forbids a list would stop everything. With it, an informer whose first list is forbidden stays empty until
// the list is allowed. An informer that has listed once keeps its content when the permission is revoked.
//
// Lists of kinds without namespaces must be allowed, as usual.
func NewInformer(source cache.ListerWatcher, o runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	switch o.(type) {
	case *pods.Pod, *v1alpha1.Scanner, *v1alpha1.ImageScan, *v1alpha1.VulnerabilityException:
		s := &emptyListSource{source: cache.ToListerWatcherWithContext(source)}
		source = &cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}
	}
	return cache.NewSharedIndexInformer(source, o, resync, indexers)
}

// emptyListSource returns an empty list in place of a forbidden one. It is used by one reflector, which makes one call at a time.
type emptyListSource struct {
	source cache.ListerWatcherWithContext
	// succeeded means that a list or watch has succeeded. forbidden means that the last list was an empty one in place of a forbidden one.
	succeeded, forbidden bool
}

// list is a cache.ListWithContextFunc.
func (s *emptyListSource) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := s.source.ListWithContext(ctx, options)
	s.succeeded = s.succeeded || err == nil
	if s.forbidden = apierrors.IsForbidden(err) && !s.succeeded; s.forbidden {
		return &metav1.PartialObjectMetadataList{}, nil
	}
	return list, err
}

// watch is a cache.WatchFuncWithContext.
func (s *emptyListSource) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if s.forbidden && options.SendInitialEvents == nil {
		return expiringWatch(relistInterval), nil
	}
	events, err := s.source.WatchWithContext(ctx, options)
	s.succeeded = s.succeeded || err == nil
	return events, err
}

// expiringWatch returns a watch that reports after a while that the list is too old. A reflector then lists again.
func expiringWatch(after time.Duration) watch.Interface {
	events := make(chan watch.Event, 1)
	timer := time.AfterFunc(after, func() {
		events <- watch.Event{Type: watch.Error, Object: &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "the list was forbidden",
		}}
	})
	return timedWatch{watch.NewProxyWatcher(events), timer}
}

type timedWatch struct {
	watch.Interface
	timer *time.Timer
}

// Stop implements watch.Interface.
func (s timedWatch) Stop() {
	s.timer.Stop()
	s.Interface.Stop()
}
