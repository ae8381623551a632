package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

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

// matchRequested selects updates that request a new match of an image, and rescanRequested those that request a rescan of all images.
var (
	matchRequested  = requestedBy(v1alpha1.AnnotationMatchRequested)
	rescanRequested = requestedBy(v1alpha1.AnnotationRequestedAt)
)

// requestedBy returns a predicate for updates that set an annotation, or change its value. The annotation requests something of an object.
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

// prompt has the engine look for newer data, and takes the request away. It comes after the image is
// listed and before it is matched: while the Scanner is suspended, the image unused, failed or not listed, the request stays.
func (r *ImageScanReconciler) prompt(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	request, asked := s.scan.Annotations[v1alpha1.AnnotationMatchRequested]
	if !asked {
		return 0, nil
	}
	if err := promptEngine(ctx, s.backend); err != nil {
		return 0, err
	}
	return 0, r.forgetRequest(ctx, s.scan, request)
}

// promptEngine has an engine check for newer data. Engines that cannot be prompted check often enough by themselves.
func promptEngine(ctx context.Context, engine backend.Backend) error {
	if prompted, ok := engine.(backend.Prompted); ok {
		if err := prompted.Prompt(ctx); err != nil {
			return fmt.Errorf("prompt the engine: %w", err)
		}
	}
	return nil
}

// forgetRequest takes a request away, unless there is another one by now, which comes with an event of its own.
func (r *ImageScanReconciler) forgetRequest(ctx context.Context, scan *v1alpha1.ImageScan, request string) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationMatchRequested, "/", "~1") // RFC 6901
	patch, err := json.Marshal([]map[string]string{{"op": "test", "path": path, "value": request}, {"op": "remove", "path": path}})
	if err != nil {
		return err
	}
	// Of an object of its own: the answer holds the status as it was before this reconciliation.
	bare := &v1alpha1.ImageScan{ObjectMeta: metav1.ObjectMeta{Namespace: scan.Namespace, Name: scan.Name}}
	err = r.Client.Patch(ctx, bare, client.RawPatch(types.JSONPatchType, patch))
	if apierrors.IsInvalid(err) {
		// The test failed, or so an admission policy says no.
		log.FromContext(ctx).V(1).Info("the request for a new match stays", "request", request, "reason", err.Error())
		return nil
	}
	return client.IgnoreNotFound(err)
}
