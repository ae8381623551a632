// Package v1alpha1 is the API of Scanner Operator. Scanner and ClusterScanner define what to scan and which receivers get messages, ImageScan
// shows what was found in one image, and VulnerabilityException and ClusterVulnerabilityException declare findings that need no action. The
// package imports nothing else of the project.
//
// +kubebuilder:object:generate=true
// +groupName=scanner-operator.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "scanner-operator.io", Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Scanner{}, &ScannerList{}, &ClusterScanner{}, &ClusterScannerList{}, &ImageScan{}, &ImageScanList{},
		&VulnerabilityException{}, &VulnerabilityExceptionList{},
		&ClusterVulnerabilityException{}, &ClusterVulnerabilityExceptionList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the kinds of this package with a scheme.
var AddToScheme = schemeBuilder.AddToScheme
