// Package controllers turns running pods into ImageScans, ImageScans into reports, and reports into the status that users read.
//
//	PodReconciler          pod → one ImageScan per Scanner and image; annotation and finalizer on the pod
//	PodReconciler.Release  deleted pod → records that the pod no longer uses its images; removes its finalizer
//	ImageScanReconciler    ImageScan → indexed and matched by a backend; its summary
//	ScannerReconciler      Scanner → coverage, findings, conditions
//	NotificationReconciler Scanner → messages to its receivers
//	ExceptionReconciler    exception → whether it is in force, and how many findings it suppresses
//
// All reconcilers are level-triggered: each computes the desired state from the cache and the store. A step that is missed or repeated
// loses nothing.
package controllers
