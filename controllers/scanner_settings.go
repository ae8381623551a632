package controllers

import (
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// Settings of a Scanner, with the defaults that the API server sets.

// isSuspended reports whether the Scanner starts no new work and sends nothing.
func isSuspended(s v1alpha1.GenericScanner) bool { return ptr.Deref(s.Settings().Suspend, false) }

// addsPodAnnotation reports whether selected pods get the annotation with their images' digests.
func addsPodAnnotation(s v1alpha1.GenericScanner) bool {
	return ptr.Deref(s.Settings().AddPodAnnotation, true)
}

// addsPodFinalizer reports whether selected pods get the Scanner's finalizer. A ClusterScanner has none: while the operator does not run, no pod
// of the cluster could be deleted.
func addsPodFinalizer(s v1alpha1.GenericScanner) bool {
	scanner, ok := s.(*v1alpha1.Scanner)
	return ok && ptr.Deref(scanner.Spec.AddPodFinalizer, false)
}

// podAnnotation returns the key of the annotation with the images' digests.
func podAnnotation(s v1alpha1.GenericScanner) string {
	if s.ScannerKind() == v1alpha1.KindClusterScanner {
		return s.GetName() + podmark.ClusterAnnotationSuffix
	}
	return s.GetName() + podmark.AnnotationSuffix
}
