package pods

import (
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// podInformer passes complete pods to its handlers and indexes.
type podInformer struct {
	cache.Informer
	decoder *decoder
}

// AddEventHandler implements cache.Informer.
func (i podInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(completingHandler{handler, i.decoder})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i podInformer) AddEventHandlerWithResyncPeriod(
	handler toolscache.ResourceEventHandler, resync time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(completingHandler{handler, i.decoder}, resync)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i podInformer) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(completingHandler{handler, i.decoder}, options)
}

// AddIndexers implements cache.Informer.
func (i podInformer) AddIndexers(indexers toolscache.Indexers) error {
	completing := toolscache.Indexers{}
	for name, index := range indexers {
		completing[name] = func(o any) ([]string, error) {
			pod, err := i.decoder.pod(o)
			if err != nil {
				return nil, err
			}
			return index(pod)
		}
	}
	return i.Informer.AddIndexers(completing)
}

// completingHandler passes complete pods to a handler. Several handlers of one pod share its lists and maps, as with any informer.
type completingHandler struct {
	handler toolscache.ResourceEventHandler
	decoder *decoder
}

// OnAdd implements toolscache.ResourceEventHandler.
func (h completingHandler) OnAdd(o any, isInInitialList bool) {
	if pod, ok := h.complete(o); ok {
		h.handler.OnAdd(pod, isInInitialList)
	}
}

// OnUpdate implements toolscache.ResourceEventHandler. It leaves out updates of fields that are not kept, such as a node's reports of probes and
// restarts. An informer's periodic resync, which has the same version twice, passes.
func (h completingHandler) OnUpdate(before, after any) {
	if isHeartbeat(before, after) {
		return
	}
	old, ok := h.complete(before)
	pod, alsoOK := h.complete(after)
	if ok && alsoOK {
		h.handler.OnUpdate(old, pod)
	}
}

// isHeartbeat reports whether two versions of a pod differ in nothing that is kept.
func isHeartbeat(before, after any) bool {
	old, isPod := before.(*Pod)
	pod, alsoPod := after.(*Pod)
	if !isPod || !alsoPod || old.version == pod.version {
		return false
	}
	same := *old
	same.version = pod.version
	return same == *pod
}

// OnDelete implements toolscache.ResourceEventHandler.
func (h completingHandler) OnDelete(o any) {
	tombstone, missed := o.(toolscache.DeletedFinalStateUnknown)
	if missed {
		o = tombstone.Obj
	}
	pod, ok := h.complete(o)
	if ok && missed {
		h.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: tombstone.Key, Obj: pod})
	} else if ok {
		h.handler.OnDelete(pod)
	}
}

// complete returns the complete pod of an event. It reports a pod that cannot be decoded.
func (h completingHandler) complete(o any) (any, bool) {
	pod, err := h.decoder.pod(o)
	if err != nil {
		utilruntime.HandleError(err)
		return nil, false
	}
	return pod, true
}
