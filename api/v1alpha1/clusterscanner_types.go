package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OwnScannerPolicy defines what a ClusterScanner does in a namespace that has a Scanner of its own.
// +kubebuilder:validation:Enum=Respect;Ignore
type OwnScannerPolicy string

// Policies for namespaces with a Scanner.
const (
	// OwnScannersRespect leaves a namespace to its Scanner, if that has the same engine.
	OwnScannersRespect OwnScannerPolicy = "Respect"
	// OwnScannersIgnore covers a namespace whatever Scanners it has.
	OwnScannersIgnore OwnScannerPolicy = "Ignore"
)

// AnnotationSlackChannel on a namespace names the Slack channel for messages about the namespace. It has an effect for receivers of a
// ClusterScanner whose allowedChannels contain the channel.
const AnnotationSlackChannel = "scanner-operator.io/slack-channel"

// ClusterScannerSpec defines which namespaces to scan, with which engine, and which receivers get messages. Secrets that it names are in the
// operator's namespace.
// +kubebuilder:validation:XValidation:rule="!has(self.backend) || !has(self.backend.clair) || !has(self.backend.clair.webhookTokenSecretRef)",message="backend.clair.webhookTokenSecretRef may be set only in a Scanner: the operator polls Clair for a ClusterScanner"
type ClusterScannerSpec struct {
	// namespaceSelector selects the namespaces to scan by their labels. Empty ({}): all namespaces.
	// +required
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// excludeNamespaces are names of namespaces that are not scanned, although namespaceSelector selects them. They are complete names, not
	// patterns.
	// +listType=set
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`

	// ownScanners defines what happens in a namespace with a Scanner of the same engine: that Scanner covers the namespace and this one does
	// not (Respect), or both do (Ignore).
	// +kubebuilder:default=Respect
	// +optional
	OwnScanners OwnScannerPolicy `json:"ownScanners,omitempty"`

	ScanSettings `json:",inline"`

	// notifications are the receivers of messages about new findings and other changes. Each receiver is independent of the others. Their
	// Secrets are in the operator's namespace.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Notifications []ClusterReceiver `json:"notifications,omitempty"`
}

// ClusterReceiver is a destination of a ClusterScanner's messages. Its Secrets are in the operator's namespace.
// +kubebuilder:validation:XValidation:rule="!has(self.allowedChannels) || has(self.slack) && has(self.slack.tokenSecretRef)",message="allowedChannels needs slack.tokenSecretRef: a webhook has one fixed channel"
type ClusterReceiver struct {
	Receiver `json:",inline"`

	// fromNamespaces selects the namespaces whose workloads may name this receiver with the annotation scanner-operator.io/receiver. Empty
	// ({}): all namespaces. Unset: none, so that the receiver gets messages about workloads that name none, or about all.
	// +optional
	FromNamespaces *metav1.LabelSelector `json:"fromNamespaces,omitempty"`

	// allowedChannels are the Slack channels that a namespace may choose for messages about itself, with its annotation
	// scanner-operator.io/slack-channel. Each is an ID or a name with #, as in slack.channel. Any other channel is not used: messages about
	// such a namespace go to slack.channel.
	// +listType=set
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=81
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([CDGUW][A-Z0-9]{7,}|#[^[:cntrl:][:space:]#@<>&,]+)$')",message="must be the channel's ID, such as C0123456789, or its name with #, such as #security"
	// +optional
	AllowedChannels []string `json:"allowedChannels,omitempty"`
}

// ClusterScannerStatus is the observed state of a ClusterScanner. It takes at most 4 KiB.
type ClusterScannerStatus struct {
	ScannerStatus `json:",inline"`

	// namespaces counts the namespaces that namespaceSelector selects, each in exactly one of the numbers besides selected.
	// +optional
	Namespaces NamespaceCounts `json:"namespaces,omitzero"`

	// topNamespaces are the namespaces with most to act on, at most five: those with known exploited vulnerabilities come first, then those
	// with more critical and more high findings.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=5
	// +optional
	TopNamespaces []NamespaceFindings `json:"topNamespaces,omitempty"`
}

// NamespaceCounts counts namespaces: selected = covered + own + excluded + terminating + notWatched.
type NamespaceCounts struct {
	// selected namespaces match spec.namespaceSelector.
	// +required
	Selected int32 `json:"selected"`
	// covered namespaces are scanned by this ClusterScanner.
	// +required
	Covered int32 `json:"covered"`
	// own namespaces have a Scanner of the same engine, which covers them instead.
	// +required
	Own int32 `json:"own"`
	// excluded namespaces are in spec.excludeNamespaces.
	// +required
	Excluded int32 `json:"excluded"`
	// terminating namespaces are being deleted.
	// +required
	Terminating int32 `json:"terminating"`
	// notWatched namespaces are not among those that the operator is limited to.
	// +required
	NotWatched int32 `json:"notWatched"`
}

// NamespaceFindings are the findings of a namespace that are most urgent.
type NamespaceFindings struct {
	// name of the namespace.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name,omitempty"`
	// knownExploited findings of any severity are listed by CISA as exploited.
	// +required
	KnownExploited int32 `json:"knownExploited"`
	// critical findings.
	// +required
	Critical int32 `json:"critical"`
	// high findings.
	// +required
	High int32 `json:"high"`
	// fixable findings of any severity have a fixed version.
	// +required
	Fixable int32 `json:"fixable"`
}

// ClusterScanner scans the images that run in the namespaces that it selects.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cscn
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.columns.ready`
// +kubebuilder:printcolumn:name="Namespaces",type=string,JSONPath=`.status.columns.namespaces`
// +kubebuilder:printcolumn:name="Images",type=string,JSONPath=`.status.columns.images`
// +kubebuilder:printcolumn:name="Scanned",type=string,JSONPath=`.status.columns.scanned`
// +kubebuilder:printcolumn:name="Failed",type=string,JSONPath=`.status.columns.failed`
// +kubebuilder:printcolumn:name="Critical",type=string,JSONPath=`.status.columns.critical`
// +kubebuilder:printcolumn:name="High",type=string,JSONPath=`.status.columns.high`
// +kubebuilder:printcolumn:name="Exploited",type=string,JSONPath=`.status.columns.exploited`
// +kubebuilder:printcolumn:name="Messages",type=string,JSONPath=`.status.columns.messages`
// +kubebuilder:printcolumn:name="Data Age",type=string,JSONPath=`.status.columns.dataAge`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Suppressed",type=string,priority=1,JSONPath=`.status.columns.suppressed`
// +kubebuilder:printcolumn:name="Engine",type=string,priority=1,JSONPath=`.spec.backend.type`
// +kubebuilder:printcolumn:name="Selector",type=string,priority=1,JSONPath=`.status.columns.selector`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.columns.message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be at most 63 characters, since it is part of a pod annotation's key"
type ClusterScanner struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is a standard object metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// spec defines the desired state of ClusterScanner.
	// +required
	Spec ClusterScannerSpec `json:"spec,omitzero"`
	// status defines the observed state of ClusterScanner.
	// +kubebuilder:default={columns: {}}
	// +optional
	Status ClusterScannerStatus `json:"status,omitzero"`
}

// ClusterScannerList is a list of ClusterScanners.
// +kubebuilder:object:root=true
type ClusterScannerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ClusterScanner `json:"items"`
}
