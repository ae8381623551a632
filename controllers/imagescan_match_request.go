package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

// matchRequested passes updates that request a new match of an image. rescanRequested passes those that request a rescan of all images of a
// Scanner.
var (
	matchRequested  = requestedBy(v1alpha1.AnnotationMatchRequested)
	rescanRequested = requestedBy(v1alpha1.AnnotationRequestedAt)
)

// requestedBy returns a predicate for updates that set an annotation or change its value.
func requestedBy(annotation string) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			now, requested := e.ObjectNew.GetAnnotations()[annotation]
			before, had := e.ObjectOld.GetAnnotations()[annotation]
			return requested && (!had || now != before)
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// handleMatchRequest makes the engine check for newer data and removes the request annotation.
func (r *ImageScanReconciler) handleMatchRequest(ctx context.Context, s *imageScanScope) error {
	s.matchRequestHandled = true
	if err := promptEngine(ctx, s.backend); err != nil {
		return err
	}
	return r.removeMatchRequest(ctx, s.scan, s.scan.Annotations[v1alpha1.AnnotationMatchRequested])
}

// promptEngine makes an engine check for newer data. Engines that cannot be prompted check often enough by themselves.
func promptEngine(ctx context.Context, engine backend.Backend) error {
	if prompted, ok := engine.(backend.DataPoller); ok {
		if err := prompted.RequestDataPoll(ctx); err != nil {
			return fmt.Errorf("prompt the engine: %w", err)
		}
	}
	return nil
}

// removeMatchRequest removes a request annotation, unless its value has changed. A newer request has an event of its own.
func (r *ImageScanReconciler) removeMatchRequest(ctx context.Context, scan *v1alpha1.ImageScan, request string) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationMatchRequested, "/", "~1") // RFC 6901
	patch, err := json.Marshal([]map[string]string{{"op": "test", "path": path, "value": request}, {"op": "remove", "path": path}})
	if err != nil {
		return err
	}
	// The patch gets an object of its own, since the response overwrites the object, and has the status from before this reconciliation.
	bare := &v1alpha1.ImageScan{ObjectMeta: metav1.ObjectMeta{Namespace: scan.Namespace, Name: scan.Name}}
	err = r.Client.Patch(ctx, bare, client.RawPatch(types.JSONPatchType, patch))
	if apierrors.IsInvalid(err) {
		// Either the test operation failed, or an admission policy refuses the change.
		log.FromContext(ctx).V(1).Info("the request for a new match stays", "request", request, "reason", err.Error())
		return nil
	}
	return client.IgnoreNotFound(err)
}
