package restapi

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// WatchedReader reads from a cache of some namespaces. Objects of other namespaces are not found. The cache itself would
// return another error for them, although the caller has made no mistake.
type WatchedReader struct {
	client.Reader
	// Namespaces are those of the cache; empty means all.
	Namespaces []string
}

func (r WatchedReader) isWatched(namespace string) bool {
	return namespace == "" || len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, namespace)
}

// Get implements client.Reader.
func (r WatchedReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if !r.isWatched(key.Namespace) {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("").GroupResource(), key.String())
	}
	return r.Reader.Get(ctx, key, into, opts...)
}

// List implements client.Reader.
func (r WatchedReader) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if asked := (&client.ListOptions{}).ApplyOptions(opts); !r.isWatched(asked.Namespace) {
		return nil
	}
	return r.Reader.List(ctx, into, opts...)
}
