package pods

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache is a manager's cache with compact pods. It handles all other objects as the cache that it wraps does. It is safe for concurrent use.
type Cache struct {
	cache.Cache
	// keep returns a pod with only the fields to keep.
	keep func(*corev1.Pod) *corev1.Pod
	// namespaces are the only ones that are watched; empty for all.
	namespaces map[string]cache.Config
	decoder    decoder

	mutex sync.RWMutex
	// informers has the informer of each watched namespace, or the one of all.
	informers []toolscache.SharedIndexInformer
	// synced is true once all informers have their pods.
	synced bool
}

// NewCache returns a function for the manager's options. keep returns a new pod with only the fields that readers need. It may share lists
// and maps with its argument, and must not change them.
func NewCache(keep func(*corev1.Pod) *corev1.Pod) cache.NewCacheFunc {
	return func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		c := &Cache{keep: keep, namespaces: options.DefaultNamespaces}
		newInformer := options.NewInformer
		if newInformer == nil {
			newInformer = toolscache.NewSharedIndexInformer
		}
		options.NewInformer = func(
			source toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers,
		) toolscache.SharedIndexInformer {
			if _, ok := o.(*corev1.Pod); !ok {
				return newInformer(source, o, resync, indexers)
			}
			compact := compactSource{source: toolscache.ToListerWatcherWithContext(source), keep: keep}
			informer := newInformer(&toolscache.ListWatch{ListWithContextFunc: compact.list, WatchFuncWithContext: compact.watch}, &Pod{}, resync, indexers)
			c.mutex.Lock()
			defer c.mutex.Unlock()
			c.informers, c.synced = append(c.informers, informer), false
			return informer
		}
		var err error
		c.Cache, err = cache.New(config, options)
		return c, err
	}
}

// GetInformer implements cache.Informers. The informer of pods passes complete pods to its handlers.
func (c *Cache) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := c.Cache.GetInformer(ctx, o, opts...)
	if _, ok := o.(*corev1.Pod); !ok || err != nil {
		return informer, err
	}
	return podInformer{informer, &c.decoder}, nil
}

// GetInformerForKind implements cache.Informers.
func (c *Cache) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if kind == corev1.SchemeGroupVersion.WithKind("Pod") {
		return c.GetInformer(ctx, &corev1.Pod{}, opts...)
	}
	return c.Cache.GetInformerForKind(ctx, kind, opts...)
}

// RemoveInformer implements cache.Informers.
func (c *Cache) RemoveInformer(ctx context.Context, o client.Object) error {
	if _, ok := o.(*corev1.Pod); ok {
		c.mutex.Lock()
		c.informers, c.synced = nil, false
		c.mutex.Unlock()
	}
	return c.Cache.RemoveInformer(ctx, o)
}

// IndexField implements client.FieldIndexer. An index of pods is for lists in one namespace.
func (c *Cache) IndexField(ctx context.Context, o client.Object, field string, values client.IndexerFunc) error {
	if _, ok := o.(*corev1.Pod); !ok {
		return c.Cache.IndexField(ctx, o, field, values)
	}
	informer, err := c.Cache.GetInformer(ctx, o, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	index := fieldIndex(&c.decoder, func(pod *corev1.Pod) []string { return values(pod) })
	return informer.AddIndexers(toolscache.Indexers{indexName(field): index})
}

// fieldIndex returns the function of an index for lists in one namespace.
func fieldIndex(d *decoder, values func(*corev1.Pod) []string) toolscache.IndexFunc {
	return func(o any) ([]string, error) {
		pod, err := d.pod(o)
		if err != nil {
			return nil, err
		}
		keys := values(pod)
		for i, value := range keys {
			keys[i] = indexKey(pod.Namespace, value)
		}
		return keys, nil
	}
}

func indexName(field string) string { return "field:" + field }

func indexKey(namespace, value string) string { return namespace + "/" + value }

// Get implements client.Reader.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	out, ok := o.(*corev1.Pod)
	if !ok {
		return c.Cache.Get(ctx, key, o, opts...)
	}
	informers, err := c.informersFor(ctx, key.Namespace)
	if err != nil {
		return err
	}
	var options client.GetOptions
	options.ApplyOptions(opts)
	for _, informer := range informers {
		found, exists, err := informer.GetIndexer().GetByKey(key.String())
		if err != nil {
			return err
		}
		if !exists {
			continue
		}
		pod, err := c.decoder.pod(found)
		if err != nil {
			return err
		}
		copyPod(pod, out, options.UnsafeDisableDeepCopy)
		return nil
	}
	return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
}

// copyPod copies a pod, only its top level with unsafe.
func copyPod(pod, out *corev1.Pod, unsafe *bool) {
	if unsafe != nil && *unsafe {
		*out = *pod
		return
	}
	pod.DeepCopyInto(out)
	out.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
}

// List implements client.Reader.
func (c *Cache) List(ctx context.Context, o client.ObjectList, opts ...client.ListOption) error {
	out, ok := o.(*corev1.PodList)
	if !ok {
		return c.Cache.List(ctx, o, opts...)
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	out.Items = nil
	return c.VisitPods(ctx, func(pod *corev1.Pod) error {
		out.Items = append(out.Items, corev1.Pod{})
		copyPod(pod, &out.Items[len(out.Items)-1], options.UnsafeDisableDeepCopy)
		return nil
	}, opts...)
}

// VisitPods calls visit with each pod that the options select, as List would return it with UnsafeDisableDeepCopy: visit may keep the pod,
// and must not modify its lists and maps. An error of visit ends the visits. A list of all pods of a large namespace needs far more memory.
func (c *Cache) VisitPods(ctx context.Context, visit func(*corev1.Pod) error, opts ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(opts)
	if options.Continue != "" {
		return errors.New("the cache of pods does not support the list option continue")
	}
	informers, err := c.informersFor(ctx, options.Namespace)
	if err != nil {
		return err
	}
	var visited int64
	for _, informer := range informers {
		selected, err := selectFrom(informer.GetIndexer(), options)
		if err != nil {
			return err
		}
		for _, o := range selected {
			if options.Limit > 0 && visited >= options.Limit {
				return nil
			}
			pod, err := c.decoder.pod(o)
			if err != nil {
				return err
			}
			if options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			visited++
			if err := visit(pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// selectFrom returns the compact pods that the namespace and the field of the options select.
func selectFrom(indexer toolscache.Indexer, options client.ListOptions) ([]any, error) {
	switch {
	case options.FieldSelector != nil && !options.FieldSelector.Empty():
		requirements := options.FieldSelector.Requirements()
		value, exact := options.FieldSelector.RequiresExactMatch(requirements[0].Field)
		if len(requirements) > 1 || !exact || options.Namespace == "" {
			return nil, fmt.Errorf("the cache of pods supports one exact field in one namespace, not %q in %q", options.FieldSelector, options.Namespace)
		}
		return indexer.ByIndex(indexName(requirements[0].Field), indexKey(options.Namespace, value))
	case options.Namespace != "":
		return indexer.ByIndex(toolscache.NamespaceIndex, options.Namespace)
	}
	return indexer.List(), nil
}

// informersFor returns the informers that may have pods of a namespace; all if it is empty. It waits until they have their pods. Like the cache
// that it wraps, it returns an error before the start and for a namespace that is not watched.
func (c *Cache) informersFor(ctx context.Context, namespace string) ([]toolscache.SharedIndexInformer, error) {
	if _, watched := c.namespaces[namespace]; len(c.namespaces) > 0 && namespace != "" && !watched {
		return nil, fmt.Errorf("unable to read pods of namespace %s, which is not watched", namespace)
	}
	c.mutex.RLock()
	informers, synced := c.informers, c.synced
	c.mutex.RUnlock()
	if synced {
		return informers, nil
	}
	informer, err := c.Cache.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	if !informer.HasSynced() {
		return nil, &cache.ErrCacheNotStarted{}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.synced = true
	return c.informers, nil
}
