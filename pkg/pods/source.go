package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// pageSize is how many pods one request lists. Only the pods of one page are in memory in their complete form.
const pageSize = 500

// compactSource lists and watches pods, and returns their compact form.
type compactSource struct {
	source toolscache.ListerWatcherWithContext
	// keep returns a pod with only the fields that the operator reads. The result must not share memory with the cache or be used elsewhere.
	keep func(*corev1.Pod) *corev1.Pod
}

// list is a toolscache.ListWithContextFunc. It lists page by page. If the list expires between two pages, it begins again, once.
func (s compactSource) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	listed, err := s.listPages(ctx, options)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return s.listPages(ctx, options)
	}
	return listed, err
}

// listPages lists all pods. It reads the latest state: the API server ignores the limit of a request that accepts an older one.
func (s compactSource) listPages(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch, options.Limit, options.Continue = "", "", pageSize, ""
	all := &list{}
	for {
		object, err := s.source.ListWithContext(ctx, options)
		if err != nil {
			return nil, err
		}
		page, ok := object.(*corev1.PodList)
		if !ok {
			return nil, fmt.Errorf("the list of pods is a %T", object)
		}
		for i := range page.Items {
			pod, err := newPod(s.keep(&page.Items[i]))
			if err != nil {
				return nil, err
			}
			all.Items = append(all.Items, pod)
		}
		if all.ResourceVersion == "" {
			all.ResourceVersion = page.ResourceVersion
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return all, nil
		}
	}
}

// watch is a toolscache.WatchFuncWithContext. Events without a pod pass unchanged. A bookmark keeps all its metadata.
func (s compactSource) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := s.source.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return event, true
		}
		if event.Type != watch.Bookmark {
			pod = s.keep(pod)
		}
		compact, err := newPod(pod)
		if err != nil {
			status := apierrors.NewInternalError(fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)).Status()
			return watch.Event{Type: watch.Error, Object: &status}, true
		}
		event.Object = compact
		return event, true
	}), nil
}
