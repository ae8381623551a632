package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of an ImageScan. Together they keep it within 4 KiB in etcd.
const (
	MaxReferences      = 3
	MaxReferenceBytes  = 384 // of one reference
	MaxReferencesBytes = 448 // of all references together
	MaxTopFindings     = 5
	MaxWorkloads       = 10
	MaxMessageBytes    = 512
	MaxNotCovered      = 14
	MaxNotCoveredBytes = 64 // of one entry
	MaxImageBytes      = 40
	MaxWorstBytes      = 168
	MaxSignerBytes     = 200
	MaxProblemBytes    = 256
)

// DigestType is what a digest identifies.
// +kubebuilder:validation:Enum=Manifest;ImageID
type DigestType string

// Types of digests.
const (
	// DigestManifest is the type of a digest of an image index or a manifest, by which a registry identifies the image.
	DigestManifest DigestType = "Manifest"
	// DigestImageID is the type of a digest of an image's configuration, by which only the image's node identifies it.
	DigestImageID DigestType = "ImageID"
)

// ImageScanSpec identifies an image as it runs on nodes of one platform. The operator writes it.
// +kubebuilder:validation:XValidation:rule="has(self.scannerRef) || has(self.scanner)",message="scannerRef is required"
type ImageScanSpec struct {
	// digest that the nodes report for the image.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="digest is immutable"
	// +required
	Digest string `json:"digest,omitempty"`

	// digestType is what the digest identifies: an image index or manifest (Manifest), or the image's configuration (ImageID).
	// +kubebuilder:default=Manifest
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="digestType is immutable"
	// +optional
	DigestType DigestType `json:"digestType,omitempty"`

	// platform of the nodes that run the image: os/architecture, os/architecture/variant or, on Windows, os/architecture:version.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="platform is immutable"
	// +required
	Platform string `json:"platform,omitempty"`

	// scannerRef is the Scanner of the namespace, or the ClusterScanner, that the ImageScan belongs to.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="scannerRef is immutable"
	// +optional
	ScannerRef ScannerReference `json:"scannerRef,omitzero"`

	// scanner is the name of the Scanner in ImageScans that builds before version 0.1 wrote, instead of scannerRef. It is only read.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Scanner string `json:"scanner,omitempty"`

	// references are some of the references by which pods name the image, in full (docker.io/library/nginx:1.25).
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MaxLength=384
	// +optional
	References []string `json:"references,omitempty"`
}

// ScannerReference names a Scanner of the same namespace, or a ClusterScanner.
type ScannerReference struct {
	// kind is Scanner or ClusterScanner.
	// +kubebuilder:default=Scanner
	// +optional
	Kind ScannerKind `json:"kind,omitempty"`
	// name of the Scanner or ClusterScanner.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name,omitempty"`
}

// UnmarshalJSON sets scannerRef from scanner if only that is given.
func (s *ImageScanSpec) UnmarshalJSON(data []byte) error {
	type plain ImageScanSpec
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return err
	}
	if s.ScannerRef == (ScannerReference{}) && s.Scanner != "" {
		s.ScannerRef = ScannerReference{Kind: KindScanner, Name: s.Scanner}
	}
	return nil
}

// ImageScanPhase is the state of an image in one word.
// +kubebuilder:validation:Enum=Pending;Cataloging;Matching;Scanned;Failed
type ImageScanPhase string

// Phases. An image that is matched again with newer data stays Scanned, since it still has a result.
const (
	PhasePending    ImageScanPhase = "Pending"
	PhaseCataloging ImageScanPhase = "Cataloging"
	PhaseMatching   ImageScanPhase = "Matching"
	PhaseScanned    ImageScanPhase = "Scanned"
	PhaseFailed     ImageScanPhase = "Failed"
)

// ImageScanStatus summarises what was found. Details are in the operator's store, not in etcd.
type ImageScanStatus struct {
	// phase is the state of the image in one word.
	// +optional
	Phase ImageScanPhase `json:"phase,omitempty"`

	// conditions: Ready, Reconciling, Stalled, ReceiverNotAllowed.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// platformDigest is the digest of the platform's own manifest. Empty until it is known.
	// +optional
	PlatformDigest string `json:"platformDigest,omitempty"`

	// engine that found the findings.
	// +optional
	Engine BackendType `json:"engine,omitempty"`

	// engineInstance distinguishes instances of an engine, such as two Clairs, since findings of one instance are not findings of another.
	// Opaque. Empty if the engine has only one instance.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	EngineInstance string `json:"engineInstance,omitempty"`

	// packages is the number of packages that the engine found in the image. Unset until there is a result. 0 means that nothing is known
	// about the image.
	// +optional
	Packages *int32 `json:"packages,omitempty"`

	// sbom is where the list of packages comes from, if an attested SBOM is preferred for the image or was used, or if an uploaded SBOM was used.
	// Unset for other images: they were cataloged.
	// +optional
	SBOM *SBOMOrigin `json:"sbom,omitempty"`

	// vex is what the OpenVEX documents that are attached to the image amount to, if they are read for the image's registry. Unset for other images.
	// +optional
	VEX *ImageVEX `json:"vex,omitempty"`

	// notCovered lists what the engine has no findings for. Packages that this image contains come first, such as those of its distribution if that
	// is not known or has no data, and a distribution without security updates with the day since when. Ecosystems whose packages the image may contain
	// follow. Empty if the engine reports no such gaps.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=14
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	NotCovered []string `json:"notCovered,omitempty"`

	// image is a short name of the image for tables: the end of the repository, with the tag or a part of the digest.
	// +kubebuilder:validation:MaxLength=40
	// +optional
	Image string `json:"image,omitempty"`

	// worstFinding is the first of topFindings in one line: the vulnerability, its severity, the package with its version, and the version that
	// fixes it. A known exploited vulnerability is marked, and one whose probability of exploitation (EPSS) puts it before more severe ones.
	// If there are no findings that need action, it says what the image contains and the report does not cover; empty if that is nothing.
	// +kubebuilder:validation:MaxLength=168
	// +optional
	WorstFinding string `json:"worstFinding,omitempty"`

	// scanTime is when the findings last changed, or were first found.
	// +optional
	ScanTime *metav1.Time `json:"scanTime,omitempty"`

	// findings by severity. Unset until there is a result.
	// +optional
	Findings *FindingCounts `json:"findings,omitempty"`

	// topFindings are the worst findings, at most five. There are fewer if their names are long.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +optional
	TopFindings []TopFinding `json:"topFindings,omitempty"`

	// workloads that run the image, such as "Deployment/web", at most ten. There are fewer if their names are long.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Workloads []string `json:"workloads,omitempty"`

	// workloadCount is the number of all workloads that run the image.
	// +optional
	WorkloadCount int32 `json:"workloadCount,omitempty"`

	// unusedSinceTime is since when no pod uses the image. Unset while a pod uses it.
	// +optional
	UnusedSinceTime *metav1.Time `json:"unusedSinceTime,omitempty"`

	// attempts is the number of failed attempts in a row. 0 after a success.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// failedSinceTime is when the first of the failed attempts in a row failed.
	// +optional
	FailedSinceTime *metav1.Time `json:"failedSinceTime,omitempty"`

	// handledRequest identifies the last rescan request that was handled for this image: a value of the Scanner's annotation
	// scanner-operator.io/requested-at. Opaque.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	HandledRequest string `json:"handledRequest,omitempty"`

	// nextAttemptTime is when a failed image is retried.
	// +optional
	NextAttemptTime *metav1.Time `json:"nextAttemptTime,omitempty"`

	// columns are the texts that kubectl get prints. They repeat other fields.
	// +kubebuilder:default={}
	// +optional
	Columns ImageScanColumns `json:"columns,omitzero"`
}

// ImageScanColumns are texts for tables. A value that is not known is "-", such as the counts of an image without a result.
type ImageScanColumns struct {
	// reason says why the image has no result, Unused if no pod uses the image, or PartlyCovered if it contains packages that the result does not cover.
	// It is "-" for another image that runs and has a result.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=21
	// +optional
	Reason string `json:"reason,omitempty"`
	// exploited is findings.knownExploited.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Exploited string `json:"exploited,omitempty"`
	// critical is findings.critical.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Critical string `json:"critical,omitempty"`
	// high is findings.high.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	High string `json:"high,omitempty"`
	// fixable is findings.fixable.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Fixable string `json:"fixable,omitempty"`
	// suppressed is findings.suppressed.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Suppressed string `json:"suppressed,omitempty"`
	// detail is the beginning of worstFinding or, without a result, of the message of the condition Ready.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Detail string `json:"detail,omitempty"`
}

// SBOMSource is where a list of packages comes from.
// +kubebuilder:validation:Enum=Attestation;Image;Upload
type SBOMSource string

// Sources of lists of packages.
const (
	// SBOMFromAttestation is an SBOM that the image's publisher attached and signed. Its content is the publisher's claim.
	SBOMFromAttestation SBOMSource = "Attestation"
	// SBOMFromImage is a catalog of the image's content.
	SBOMFromImage SBOMSource = "Image"
	// SBOMFromUpload is an SBOM that a user uploaded for an image that could not be cataloged. Its content is the user's claim.
	SBOMFromUpload SBOMSource = "Upload"
)

// SBOMOrigin is where a list of packages comes from.
type SBOMOrigin struct {
	// source is Attestation if the packages are what the signer of an attached SBOM claims, Upload if they are what a user claims who uploaded an
	// SBOM, and Image if the operator cataloged the image.
	// +required
	Source SBOMSource `json:"source,omitempty"`
	// signer of the attached SBOM: the identity and issuer in the signer's certificate, or the digest of the key.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Signer string `json:"signer,omitempty"`
	// uploader is the user who uploaded the SBOM.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Uploader string `json:"uploader,omitempty"`
	// uploadTime is when the SBOM was uploaded.
	// +optional
	UploadTime *metav1.Time `json:"uploadTime,omitempty"`
	// message says why the image was cataloged although an attested SBOM is preferred. With an uploaded SBOM, it says why the image could not be
	// cataloged.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// ImageVEX is what the OpenVEX documents that are attached to an image amount to.
type ImageVEX struct {
	// statements is the number of statements that count as exceptions: those with the status not_affected or fixed by a signer who is trusted for
	// the registry. 0 if there are none.
	// +kubebuilder:validation:Minimum=0
	// +required
	Statements *int32 `json:"statements,omitempty"`
	// message says why documents or statements do not count. Empty if all do.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
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
	// fixedIn is the version that fixes the vulnerability. Empty if there is none.
	// +optional
	FixedIn string `json:"fixedIn,omitempty"`
}

// AnnotationMatchRequested on an ImageScan makes the operator check at once whether its engine has newer vulnerability data. If it has, all
// images are queued to be matched again, including this one. The value describes the origin of the request. The operator removes the
// annotation once it has passed the request to the engine.
const AnnotationMatchRequested = "scanner-operator.io/match-requested"

// ImageScan is what one Scanner or ClusterScanner knows about one image. The operator creates and deletes it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=iscan
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.status.image`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.columns.reason`
// +kubebuilder:printcolumn:name="Exploited",type=string,JSONPath=`.status.columns.exploited`
// +kubebuilder:printcolumn:name="Critical",type=string,JSONPath=`.status.columns.critical`
// +kubebuilder:printcolumn:name="High",type=string,JSONPath=`.status.columns.high`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Fixable",type=string,priority=1,JSONPath=`.status.columns.fixable`
// +kubebuilder:printcolumn:name="Suppressed",type=string,priority=1,JSONPath=`.status.columns.suppressed`
// +kubebuilder:printcolumn:name="Detail",type=string,priority=1,JSONPath=`.status.columns.detail`
type ImageScan struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is a standard object metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// spec defines the desired state of ImageScan.
	// +required
	Spec ImageScanSpec `json:"spec,omitzero"`
	// status defines the observed state of ImageScan.
	// +kubebuilder:default={columns: {}}
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
