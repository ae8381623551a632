package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of an ImageScan, which together keep it within 4 KiB in etcd.
const (
	MaxReferences      = 3
	MaxReferenceBytes  = 384 // of one
	MaxReferencesBytes = 512 // of all
	MaxTopFindings     = 5
	MaxWorkloads       = 10
	MaxMessageBytes    = 512
	MaxNotCovered      = 14
	MaxNotCoveredBytes = 20 // of one
)

// DigestType says what a digest is of.
// +kubebuilder:validation:Enum=Manifest;ImageID
type DigestType string

// Types of digests.
const (
	// DigestManifest is the digest of an index or a manifest, by which a registry knows the image.
	DigestManifest DigestType = "Manifest"
	// DigestImageID is the digest of the image's configuration, by which only its node knows it.
	DigestImageID DigestType = "ImageID"
)

// ImageScanSpec identifies an image as it runs on nodes of one platform. The operator writes it.
type ImageScanSpec struct {
	// digest that the nodes report for the image.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="digest is immutable"
	// +required
	Digest string `json:"digest,omitempty"`

	// digestType says what the digest is of.
	// +kubebuilder:default=Manifest
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="digestType is immutable"
	// +optional
	DigestType DigestType `json:"digestType,omitempty"`

	// platform of the nodes that run the image: os/architecture or os/architecture/variant.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="platform is immutable"
	// +required
	Platform string `json:"platform,omitempty"`

	// scanner is the name of the Scanner that it belongs to.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="scanner is immutable"
	// +required
	Scanner string `json:"scanner,omitempty"`

	// references are some of those by which pods name the image, in full (docker.io/library/nginx:1.25).
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MaxLength=384
	// +optional
	References []string `json:"references,omitempty"`
}

// ImageScanPhase is the state of an image in one word.
// +kubebuilder:validation:Enum=Pending;Cataloging;Matching;Scanned;Failed
type ImageScanPhase string

// Phases. Scanned stays while an image is matched again with newer data: the result is still there.
const (
	PhasePending    ImageScanPhase = "Pending"
	PhaseCataloging ImageScanPhase = "Cataloging"
	PhaseMatching   ImageScanPhase = "Matching"
	PhaseScanned    ImageScanPhase = "Scanned"
	PhaseFailed     ImageScanPhase = "Failed"
)

// ImageScanStatus summarises what was found. Details are in the operator's store, not in etcd.
type ImageScanStatus struct {
	// phase in one word.
	// +optional
	Phase ImageScanPhase `json:"phase,omitempty"`

	// conditions: Ready, Reconciling, Stalled.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// platformDigest is the digest of the platform's own manifest, when it is known.
	// +optional
	PlatformDigest string `json:"platformDigest,omitempty"`

	// engine that found the findings.
	// +optional
	Engine BackendType `json:"engine,omitempty"`

	// engineInstance tells instances of an engine apart, such as one Clair from another: what one found is not what another
	// found. Opaque; empty if there is only one.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	EngineInstance string `json:"engineInstance,omitempty"`

	// packages is the number of packages that the engine found in the image; unset until there is a result. With 0 nothing
	// is known about the image.
	// +optional
	Packages *int32 `json:"packages,omitempty"`

	// notCovered lists what the engine has no findings for in any case: first what this image holds, such as packages of its
	// distribution, then ecosystems whose packages it may hold. Empty if the engine says nothing of the kind.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=14
	// +kubebuilder:validation:items:MaxLength=20
	// +optional
	NotCovered []string `json:"notCovered,omitempty"`

	// scanTime is when the findings last changed, or were first found.
	// +optional
	ScanTime *metav1.Time `json:"scanTime,omitempty"`

	// findings by severity; unset until there is a result.
	// +optional
	Findings *FindingCounts `json:"findings,omitempty"`

	// topFindings are the worst, at most five; fewer when their names are long.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +optional
	TopFindings []TopFinding `json:"topFindings,omitempty"`

	// workloads that run the image, such as "Deployment/web", at most ten; fewer when their names are long.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Workloads []string `json:"workloads,omitempty"`

	// workloadCount is the number of all workloads that run the image.
	// +optional
	WorkloadCount int32 `json:"workloadCount,omitempty"`

	// unusedSinceTime is set when no pod uses the image any more.
	// +optional
	UnusedSinceTime *metav1.Time `json:"unusedSinceTime,omitempty"`

	// attempts that failed in a row; 0 after a success.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// failedSinceTime is when the first of these attempts failed.
	// +optional
	FailedSinceTime *metav1.Time `json:"failedSinceTime,omitempty"`

	// handledRequest stands for the last value of the Scanner's annotation scanner-operator.io/requested-at that was followed for this
	// image. Opaque.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	HandledRequest string `json:"handledRequest,omitempty"`

	// nextAttemptTime is when a failed image is tried again.
	// +optional
	NextAttemptTime *metav1.Time `json:"nextAttemptTime,omitempty"`
}

// TopFinding is one of the worst findings.
type TopFinding struct {
	// id of the vulnerability.
	// +required
	ID string `json:"id,omitempty"`
	// severity in one word.
	// +required
	Severity string `json:"severity,omitempty"`
	// package that is affected, with its version.
	// +required
	Package string `json:"package,omitempty"`
	// fixedIn is the version that fixes it; empty if there is none.
	// +optional
	FixedIn string `json:"fixedIn,omitempty"`
}

// AnnotationMatchRequested on an ImageScan has the operator ask its engine for newer vulnerability data at once. If there is
// some, all images are matched again in their turn, this one among them. The value says what it was that asked. The operator
// takes the annotation away once it has looked.
const AnnotationMatchRequested = "scanner-operator.io/match-requested"

// ImageScan is what one Scanner knows about one image. The operator makes and removes it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=iscan
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.references[0]`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Critical",type=integer,JSONPath=`.status.findings.critical`
// +kubebuilder:printcolumn:name="High",type=integer,JSONPath=`.status.findings.high`
// +kubebuilder:printcolumn:name="Medium",type=integer,JSONPath=`.status.findings.medium`
// +kubebuilder:printcolumn:name="Fixable",type=integer,JSONPath=`.status.findings.fixable`
// +kubebuilder:printcolumn:name="Workloads",type=integer,JSONPath=`.status.workloadCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Suppressed",type=integer,priority=1,JSONPath=`.status.findings.suppressed`
// +kubebuilder:printcolumn:name="Scanner",type=string,priority=1,JSONPath=`.spec.scanner`
// +kubebuilder:printcolumn:name="Platform",type=string,priority=1,JSONPath=`.spec.platform`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type ImageScan struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is a standard object metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// spec defines the desired state of ImageScan.
	// +required
	Spec ImageScanSpec `json:"spec,omitzero"`
	// status defines the observed state of ImageScan.
	// +optional
	Status ImageScanStatus `json:"status,omitzero"`
}

// ImageScanList is a list of ImageScans.
// +kubebuilder:object:root=true
type ImageScanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ImageScan `json:"items"`
}
