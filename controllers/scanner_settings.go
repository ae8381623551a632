package controllers

import (
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Settings of a Scanner, with the defaults that the API server sets.

// isSuspended reports whether the Scanner starts no new work and sends nothing.
func isSuspended(s *v1alpha1.Scanner) bool { return ptr.Deref(s.Spec.Suspend, false) }

// addsPodAnnotation reports whether selected pods get the annotation with their images' digests.
func addsPodAnnotation(s *v1alpha1.Scanner) bool { return ptr.Deref(s.Spec.AddPodAnnotation, true) }

// addsPodFinalizer reports whether selected pods get the Scanner's finalizer.
func addsPodFinalizer(s *v1alpha1.Scanner) bool { return ptr.Deref(s.Spec.AddPodFinalizer, false) }
