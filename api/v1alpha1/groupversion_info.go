// Package v1alpha1 is the API of Scanner Operator: what to scan and whom to tell (Scanner), and what was found
// in one image (ImageScan). It imports nothing else of the project.
//
// +kubebuilder:object:generate=true
// +groupName=scanner-operator.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all kinds here.
var GroupVersion = schema.GroupVersion{Group: "scanner-operator.io", Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Scanner{}, &ScannerList{}, &ImageScan{}, &ImageScanList{},
		&VulnerabilityException{}, &VulnerabilityExceptionList{},
		&ClusterVulnerabilityException{}, &ClusterVulnerabilityExceptionList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the kinds.
var AddToScheme = schemeBuilder.AddToScheme
