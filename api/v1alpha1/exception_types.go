package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VEXStatus is a status of OpenVEX (https://github.com/openvex/spec/blob/main/OPENVEX-SPEC.md#status-labels), spelled as there.
// +kubebuilder:validation:Enum=not_affected;affected;fixed;under_investigation
type VEXStatus string

// Statuses of OpenVEX.
const (
	// VEXNotAffected means that nothing needs to be done, for the reason that the justification gives.
	VEXNotAffected VEXStatus = "not_affected"
	// VEXAffected means that the risk is known and accepted for a time.
	VEXAffected VEXStatus = "affected"
	// VEXFixed means that the package contains a fix that its version does not show.
	VEXFixed VEXStatus = "fixed"
	// VEXUnderInvestigation means that somebody is investigating the vulnerability.
	VEXUnderInvestigation VEXStatus = "under_investigation"
)

// VEXJustification is a justification of OpenVEX (https://github.com/openvex/spec/blob/main/OPENVEX-SPEC.md#status-justifications).
// +kubebuilder:validation:Enum=component_not_present;vulnerable_code_not_present;vulnerable_code_not_in_execute_path;vulnerable_code_cannot_be_controlled_by_adversary;inline_mitigations_already_exist
type VEXJustification string

// ExceptionSpec defines which findings need no action, why, and until when.
// +kubebuilder:validation:XValidation:rule="has(self.vulnerabilities) || has(self.packages)",message="vulnerabilities or packages are needed: an exception for everything in an image is spec.images.exclude of the Scanner"
// +kubebuilder:validation:XValidation:rule="self.status != 'not_affected' || has(self.justification)",message="justification is needed when status is not_affected"
// +kubebuilder:validation:XValidation:rule="self.status == 'not_affected' || !has(self.justification)",message="justification may be set only when status is not_affected"
// +kubebuilder:validation:XValidation:rule="self.status != 'affected' || has(self.action)",message="action is needed when status is affected: what is done about the risk"
// +kubebuilder:validation:XValidation:rule="self.status == 'not_affected' || self.status == 'fixed' || has(self.expirationTime)",message="expirationTime is needed when status is affected or under_investigation: neither may be forgotten"
type ExceptionSpec struct {
	// status as OpenVEX defines it. The findings are suppressed whatever the status is.
	// +required
	Status VEXStatus `json:"status,omitempty"`

	// justification as OpenVEX defines it. It is needed when status is not_affected, and allowed only then.
	// +optional
	Justification VEXJustification `json:"justification,omitempty"`

	// reason explains to people why the findings need no action. It becomes the impact statement in OpenVEX.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Reason string `json:"reason,omitempty"`

	// action describes what is done about the risk. It is needed when status is affected. It becomes the action statement in OpenVEX.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Action string `json:"action,omitempty"`

	// vulnerabilities are IDs or aliases (CVE-2024-3094, GHSA-rxwq-x6h5-x525), in upper or lower case. Unset: all vulnerabilities in the
	// selected packages.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[!-~]+$`
	// +optional
	Vulnerabilities []string `json:"vulnerabilities,omitempty"`

	// packages that the exception applies to. Unset: all packages with one of the vulnerabilities.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Packages []PackageSelector `json:"packages,omitempty"`

	// images that the exception applies to, as globs such as "registry.example.com/shop/*" or "*@sha256:…". A glob is compared with the
	// repository, the full reference with its tag (docker.io/library/nginx:1.25), and the repository with the digest that runs. "*" matches
	// any characters, including "/". Unset: all images.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Images []string `json:"images,omitempty"`

	// expirationTime is when the exception ends. Its findings are then announced again. Receivers get a health notice a week before.
	// +optional
	ExpirationTime *metav1.Time `json:"expirationTime,omitempty"`
}

// PackageSelector selects packages. An unset field selects all.
// +kubebuilder:validation:MinProperties=1
type PackageSelector struct {
	// name of the package as findings show it, a glob such as "linux-*", or a package URL such as "pkg:maven/org.dom4j/dom4j".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Name string `json:"name,omitempty"`

	// version that is installed, or a glob such as "3.0.*".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Version string `json:"version,omitempty"`

	// type of the package: deb, apk, rpm, go-module, npm, python, …
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Type string `json:"type,omitempty"`
}

// ClusterExceptionSpec defines an exception for several namespaces.
type ClusterExceptionSpec struct {
	ExceptionSpec `json:",inline"`

	// namespaceSelector limits the exception to namespaces with these labels. Unset or empty: all namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// ExceptionStatus is the observed state of an exception.
type ExceptionStatus struct {
	// conditions: Ready, Stalled. Ready is true with the reason InForce, and false with the reason Expired,
	// InvalidSelector or TooManyExceptions.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// findings is how many findings the exception suppresses now. Each vulnerability in each package of each image repository of each
	// Scanner counts once.
	// +optional
	Findings *int32 `json:"findings,omitempty"`

	// columns are the texts that kubectl get prints. They repeat other fields.
	// +kubebuilder:default={}
	// +optional
	Columns ExceptionColumns `json:"columns,omitzero"`
}

// ExceptionColumns are texts for tables. A value that is not known is "-".
type ExceptionColumns struct {
	// findings is the field of the same name.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Findings string `json:"findings,omitempty"`
	// expires is spec.expirationTime in UTC, or never.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=20
	// +optional
	Expires string `json:"expires,omitempty"`
	// ready is the status of the condition Ready.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=8
	// +optional
	Ready string `json:"ready,omitempty"`
	// reason is the reason of the condition Ready.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=20
	// +optional
	Reason string `json:"reason,omitempty"`
	// why is the beginning of spec.reason.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=80
	// +optional
	Why string `json:"why,omitempty"`
}

// VulnerabilityException declares which findings in its namespace need no action. They are left out of counts and messages, and shown as
// suppressed.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vulnex
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.spec.status`
// +kubebuilder:printcolumn:name="Findings",type=string,JSONPath=`.status.columns.findings`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.columns.expires`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.columns.ready`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.columns.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.columns.why`
type VulnerabilityException struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is a standard object metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// spec defines the desired state of VulnerabilityException.
	// +required
	Spec ExceptionSpec `json:"spec,omitzero"`
	// status defines the observed state of VulnerabilityException.
	// +kubebuilder:default={columns: {}}
	// +optional
	Status ExceptionStatus `json:"status,omitzero"`
}

// VulnerabilityExceptionList is a list of VulnerabilityExceptions.
// +kubebuilder:object:root=true
type VulnerabilityExceptionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VulnerabilityException `json:"items"`
}

// ClusterVulnerabilityException is a VulnerabilityException for all namespaces, or for namespaces with certain labels.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cvulnex
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.spec.status`
// +kubebuilder:printcolumn:name="Findings",type=string,JSONPath=`.status.columns.findings`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.columns.expires`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.columns.ready`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.columns.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.columns.why`
type ClusterVulnerabilityException struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is a standard object metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// spec defines the desired state of ClusterVulnerabilityException.
	// +required
	Spec ClusterExceptionSpec `json:"spec,omitzero"`
	// status defines the observed state of ClusterVulnerabilityException.
	// +kubebuilder:default={columns: {}}
	// +optional
	Status ExceptionStatus `json:"status,omitzero"`
}

// ClusterVulnerabilityExceptionList is a list of ClusterVulnerabilityExceptions.
// +kubebuilder:object:root=true
type ClusterVulnerabilityExceptionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ClusterVulnerabilityException `json:"items"`
}
