// Package controllers turns running pods into ImageScans, ImageScans into reports, and reports into the
// status that users read.
//
//	PodReconciler          pod → one ImageScan per Scanner and image; annotation and finalizer on the pod
//	PodReconciler.Release  pod being deleted → its use is recorded as over, and its finalizer goes
//	ImageScanReconciler    ImageScan → indexed and matched by a backend; its summary
//	ScannerReconciler      Scanner → coverage, findings, conditions
//	NotificationReconciler Scanner → messages to its receivers
//	ExceptionReconciler    exception → whether it is in force, and how many findings it covers
//
// Everything is level-triggered: each reconciler computes what should be from the cache and the store, and
// nothing is lost when a step is missed or done twice.
package controllers
