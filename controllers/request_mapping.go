package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// requestsFor returns a request for each object in the cache that the options select. list is an empty list of the kind.
func requestsFor(ctx context.Context, cache client.Reader, list client.ObjectList, opts ...client.ListOption) []reconcile.Request {
	var requests []reconcile.Request
	err := cache.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...) // only names are read
	if err == nil {
		err = meta.EachListItem(list, func(o runtime.Object) error {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
			return nil
		})
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing objects from the cache")
	}
	return requests
}
