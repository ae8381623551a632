package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackendType names an engine.
// +kubebuilder:validation:Enum=Grype;Clair
type BackendType string

// Engines.
const (
	// BackendGrype catalogs and matches with Grype, in Jobs.
	BackendGrype BackendType = "Grype"
	// BackendClair has a Clair index images and match them.
	BackendClair BackendType = "Clair"
)

// ScannerSpec says what to scan, with which engine, and whom to tell.
type ScannerSpec struct {
	// backend is the engine that finds vulnerabilities. Grype unless it is set.
	// +kubebuilder:default={type: Grype}
	// +optional
	Backend Backend `json:"backend,omitzero"`

	// podSelector limits the Scanner to pods of its namespace with these labels. Unset or empty: all pods.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// ignoreLabel is a label key: pods that carry it with the value "true" are left out.
	// +kubebuilder:default="scanner-operator.io/ignore"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +optional
	IgnoreLabel string `json:"ignoreLabel,omitempty"`

	// images narrows down which images of the selected pods are scanned.
	// +optional
	Images ImageFilter `json:"images,omitzero"`

	// suspend stops all new work of this Scanner, and its messages. What was found stays.
	// +kubebuilder:default=false
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// addPodAnnotation specifies whether each selected pod gets the annotation <scanner>.scanner-operator.io/image-hashes,
	// a JSON map of container name to the image digest that was handled. It is output only: nothing is decided by it.
	// +kubebuilder:default=true
	// +optional
	AddPodAnnotation *bool `json:"addPodAnnotation,omitempty"`

	// addPodFinalizer specifies whether each selected pod gets the finalizer <scanner>.scanner-operator.io/release, which holds
	// its deletion until it is recorded that the pod no longer uses its images: for one API call while the operator
	// runs. Without the operator such pods cannot go: "manager cleanup" takes the finalizers away.
	// +kubebuilder:default=false
	// +optional
	AddPodFinalizer *bool `json:"addPodFinalizer,omitempty"`

	// unusedImageRetention is how long an image is still matched with new vulnerability data after the last pod
	// that used it has gone, so that it need not be cataloged again for the next run of a CronJob. It is not
	// counted. If its pods ended (they succeeded or failed), what is new in it is announced as long, unless one
	// of its workloads runs another image of the repository meanwhile. Between 0s and 720h.
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="must be between 0s and 720h"
	// +optional
	UnusedImageRetention *metav1.Duration `json:"unusedImageRetention,omitempty"`

	// notifications are the receivers that are told about new findings. Each is independent of the others.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Notifications []Receiver `json:"notifications,omitempty"`
}

// Backend is a union: the member named by type may be set, no other.
// +kubebuilder:validation:XValidation:rule="self.type == 'Grype' || !has(self.grype)",message="grype may be set only when type is Grype"
// +kubebuilder:validation:XValidation:rule="self.type == 'Clair' || !has(self.clair)",message="clair may be set only when type is Clair"
// +kubebuilder:validation:XValidation:rule="self.type != 'Clair' || has(self.clair)",message="clair.url is needed when type is Clair"
// +union
type Backend struct {
	// type is the engine.
	// +unionDiscriminator
	// +kubebuilder:default=Grype
	// +optional
	Type BackendType `json:"type,omitempty"`

	// grype holds settings for type Grype.
	// +optional
	Grype *GrypeBackend `json:"grype,omitempty"`

	// clair holds settings for type Clair.
	// +optional
	Clair *ClairBackend `json:"clair,omitempty"`
}

// ClairBackend says where Clair is and how to speak with it.
type ClairBackend struct {
	// url of Clair's API, such as https://clair.example.com. It must be one of those that the operator's configuration
	// lists in clair.instances.
	// +kubebuilder:validation:Pattern=`^https?://`
	// +kubebuilder:validation:MaxLength=512
	// +required
	URL string `json:"url,omitempty"`

	// authSecretRef names a Secret in this namespace with the key that Clair's configuration has in auth.psk.key, in
	// base64, under "key", and perhaps under "issuer" one of those in auth.psk.iss (default "scanner-operator"). Unset:
	// Clair wants no authentication. The operator needs the right to read this one Secret.
	// +optional
	AuthSecretRef *SecretReference `json:"authSecretRef,omitempty"`

	// webhookTokenSecretRef names the key of a Secret in this namespace with the token that Clair's webhooks carry in the
	// header X-Scanner-Operator-Token. Unset: they must be signed with the key of authSecretRef. The notifier needs the
	// right to read this one Secret.
	// +optional
	WebhookTokenSecretRef *TokenSecretReference `json:"webhookTokenSecretRef,omitempty"`
}

// SecretReference names a Secret in the same namespace.
type SecretReference struct {
	// name of the Secret.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`
}

// TokenSecretReference names one key of a Secret in the same namespace.
type TokenSecretReference struct {
	// name of the Secret.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`

	// key in the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default=token
	// +optional
	Key string `json:"key,omitempty"`
}

// GrypeBackend holds the settings of the Grype engine.
type GrypeBackend struct {
	// job shapes the Jobs that catalog images in this namespace: those that need its pull secrets. All others
	// are cataloged in the operator's namespace, for all namespaces, as the operator's configuration says.
	// +optional
	Job CatalogJob `json:"job,omitzero"`
}

// CatalogJob shapes the Jobs that catalog images in a Scanner's namespace.
type CatalogJob struct {
	// resources of the Job's container. Unset: the operator's configuration decides. Without a memory limit, the operator's
	// is taken, or the memory request if that is more.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// memoryLadder lists memory limits, in rising order, that an image is tried again with after its Job was killed for
	// its memory. Which one an image needed is remembered. Unset: the operator's configuration decides.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	MemoryLadder []resource.Quantity `json:"memoryLadder,omitempty"`

	// nodeSelector limits the nodes that the Jobs run on.
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations of the Jobs.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// priorityClassName of the Jobs.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// ImageFilter narrows down images.
type ImageFilter struct {
	// exclude lists globs of images that are not scanned, such as "registry.example.com/base/*" or "*:dev-*".
	// They are compared with the full reference (docker.io/library/nginx:1.25) and with its repository; "*"
	// stands for any characters, "/" included. Excluded images are counted as such.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Exclude []string `json:"exclude,omitempty"`
}

// SeverityThreshold is the least severity that a receiver is told about.
// +kubebuilder:validation:Enum=Critical;High;Medium;Low;Negligible
type SeverityThreshold string

// UnknownSeverityPolicy says what to do with findings that have no severity (yet).
// +kubebuilder:validation:Enum=AnnounceFixable;Announce;Hold
type UnknownSeverityPolicy string

// Policies for findings of unknown severity.
const (
	UnknownAnnounceFixable UnknownSeverityPolicy = "AnnounceFixable"
	UnknownAnnounce        UnknownSeverityPolicy = "Announce"
	UnknownHold            UnknownSeverityPolicy = "Hold"
)

// Change is a kind of news.
// +kubebuilder:validation:Enum=New;FixAvailable;Escalated;Regressed;Fixed;NewImage
type Change string

// Kinds of news.
const (
	// ChangeNew: a vulnerability in a package of an image that the receiver has not been told of.
	ChangeNew Change = "New"
	// ChangeFixAvailable: a fix has appeared for something that was told.
	ChangeFixAvailable Change = "FixAvailable"
	// ChangeEscalated: the severity has reached minSeverity, or it has become known exploited.
	ChangeEscalated Change = "Escalated"
	// ChangeRegressed: it was fixed and is back.
	ChangeRegressed Change = "Regressed"
	// ChangeFixed: no running image of the repository has it any more.
	ChangeFixed Change = "Fixed"
	// ChangeNewImage: an image repository runs here for the first time.
	ChangeNewImage Change = "NewImage"
)

// WorkloadPolicy says which workloads concern a receiver.
// +kubebuilder:validation:Enum=OwnAndUnassigned;Own;All
type WorkloadPolicy string

// Policies for workloads.
const (
	// WorkloadsOwnAndUnassigned: those that name the receiver, and those that name none.
	WorkloadsOwnAndUnassigned WorkloadPolicy = "OwnAndUnassigned"
	// WorkloadsOwn: those that name the receiver.
	WorkloadsOwn WorkloadPolicy = "Own"
	// WorkloadsAll: all, whomever they name.
	WorkloadsAll WorkloadPolicy = "All"
)

// AnnotationReceiver on a pod, or else on its namespace, names the receivers that its workload concerns, separated by commas.
const AnnotationReceiver = "scanner-operator.io/receiver"

// FirstScanPolicy says how a receiver learns of what is there at the beginning.
// +kubebuilder:validation:Enum=Summary;Silent;All
type FirstScanPolicy string

// Policies for the first scan.
const (
	FirstScanSummary FirstScanPolicy = "Summary"
	FirstScanSilent  FirstScanPolicy = "Silent"
	FirstScanAll     FirstScanPolicy = "All"
)

// Receiver is somebody who is told about new findings.
// +kubebuilder:validation:XValidation:rule="has(self.slack)",message="a receiver needs slack, the only kind there is so far"
type Receiver struct {
	// name identifies the receiver within the Scanner. What a receiver was told is remembered under its name.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name,omitempty"`

	// slack posts to a Slack incoming webhook.
	// +optional
	Slack *SlackReceiver `json:"slack,omitempty"`

	// minSeverity is the least severity that is announced. A known exploited vulnerability always is.
	// +kubebuilder:default=High
	// +optional
	MinSeverity SeverityThreshold `json:"minSeverity,omitempty"`

	// unknownSeverity says what to do with findings whose severity is not known (yet): announce those that have
	// a fix (AnnounceFixable), all (Announce), or none until they get one (Hold).
	// +kubebuilder:default=AnnounceFixable
	// +optional
	UnknownSeverity UnknownSeverityPolicy `json:"unknownSeverity,omitempty"`

	// onlyFixable leaves out findings without a fixed version. A known exploited vulnerability is announced anyway.
	// +kubebuilder:default=false
	// +optional
	OnlyFixable *bool `json:"onlyFixable,omitempty"`

	// announce lists the changes that the receiver is told of. New, FixAvailable, Escalated and Regressed unless it is set; Fixed and
	// NewImage can be added.
	// +kubebuilder:default={New,FixAvailable,Escalated,Regressed}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=6
	// +optional
	Announce []Change `json:"announce,omitempty"`

	// workloads says which workloads concern the receiver. A workload names receivers with the annotation scanner-operator.io/receiver on
	// its pods or their namespace.
	// +kubebuilder:default=OwnAndUnassigned
	// +optional
	Workloads WorkloadPolicy `json:"workloads,omitempty"`

	// healthNotices specifies whether the receiver gets notices about the Scanner itself: scans that fail, old vulnerability data, exceptions that
	// are about to expire.
	// +kubebuilder:default=true
	// +optional
	HealthNotices *bool `json:"healthNotices,omitempty"`

	// groupWait is how long to wait after a first new finding for others to go into the same message. Up to 1h.
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be between 0s and 1h"
	// +optional
	GroupWait *metav1.Duration `json:"groupWait,omitempty"`

	// groupInterval is the least time between two messages. Between 1s and 168h.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="must be between 1s and 168h"
	// +optional
	GroupInterval *metav1.Duration `json:"groupInterval,omitempty"`

	// firstScan says how the receiver learns of what is there when the Scanner is made, or the receiver added:
	// one Summary, nothing (Silent), or everything as news (All).
	// +kubebuilder:default=Summary
	// +optional
	FirstScan FirstScanPolicy `json:"firstScan,omitempty"`
}

// SlackReceiver posts to a Slack incoming webhook.
type SlackReceiver struct {
	// webhookURLSecretRef names the key of a Secret in the Scanner's namespace that holds the webhook's URL. The
	// URL is a secret itself. The notifier needs the right to read this one Secret.
	// +required
	WebhookURLSecretRef SecretKeyReference `json:"webhookURLSecretRef,omitzero"`
}

// SecretKeyReference names one key of a Secret in the same namespace.
type SecretKeyReference struct {
	// name of the Secret.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`

	// key in the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default=url
	// +optional
	Key string `json:"key,omitempty"`
}

// ScannerStatus is what the operator knows of a Scanner.
type ScannerStatus struct {
	// conditions: Ready, Reconciling, Stalled, BackendAvailable, NotificationsDelivered, StoreDurable.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// images counts the distinct images of the selected pods; each is exactly one of the rest.
	// +optional
	Images ImageCounts `json:"images,omitzero"`

	// findings counts each vulnerability in each package of each image repository once.
	// +optional
	Findings FindingCounts `json:"findings,omitzero"`

	// vulnerabilityData says which data the findings were found with.
	// +optional
	VulnerabilityData *VulnerabilityData `json:"vulnerabilityData,omitempty"`

	// lastHandledRequestedAt is the value of the annotation scanner-operator.io/requested-at for which all images that run were
	// scanned again, or tried; at most 64 bytes of it.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	LastHandledRequestedAt string `json:"lastHandledRequestedAt,omitempty"`

	// storeID identifies the operator's store. When it changes, the store was lost and everything is found again.
	// +optional
	StoreID string `json:"storeID,omitempty"`

	// receivers says for each receiver what became of its messages.
	// +listType=map
	// +listMapKey=name
	// +optional
	Receivers []ReceiverStatus `json:"receivers,omitempty"`
}

// ImageCounts adds up: total = scanned + pending + failed + excluded.
type ImageCounts struct {
	// total number of distinct images.
	// +required
	Total int32 `json:"total"`
	// scanned images have a result. It stays while an image is matched again.
	// +required
	Scanned int32 `json:"scanned"`
	// pending images have no result yet.
	// +required
	Pending int32 `json:"pending"`
	// failed images could not be scanned; their ImageScan says why. An image that its node could not pull is one of them.
	// +required
	Failed int32 `json:"failed"`
	// excluded images are left out by spec.images.exclude.
	// +required
	Excluded int32 `json:"excluded"`
	// recentlyUsed is the number of further images that nothing runs now and whose last pods ended within
	// spec.unusedImageRetention. They are in none of the other numbers, nor in findings. What is new in them is announced.
	// +optional
	RecentlyUsed int32 `json:"recentlyUsed,omitempty"`
}

// FindingCounts counts findings by severity.
type FindingCounts struct {
	// critical findings.
	// +required
	Critical int32 `json:"critical"`
	// high findings.
	// +required
	High int32 `json:"high"`
	// medium findings.
	// +required
	Medium int32 `json:"medium"`
	// low findings.
	// +required
	Low int32 `json:"low"`
	// negligible findings.
	// +required
	Negligible int32 `json:"negligible"`
	// unknown is the number of findings whose severity is not known.
	// +required
	Unknown int32 `json:"unknown"`
	// fixable findings of any severity have a fixed version.
	// +required
	Fixable int32 `json:"fixable"`
	// knownExploited findings of any severity are listed by CISA as exploited.
	// +required
	KnownExploited int32 `json:"knownExploited"`
	// suppressed is the number of findings that exceptions cover. They are in none of the other numbers.
	// +optional
	Suppressed int32 `json:"suppressed,omitempty"`
}

// VulnerabilityData identifies vulnerability data.
type VulnerabilityData struct {
	// buildTime is when the data was made.
	// +optional
	BuildTime metav1.Time `json:"buildTime,omitzero"`
	// tool is the engine and its version.
	// +optional
	Tool string `json:"tool,omitempty"`
}

// ReceiverStatus is about one receiver.
type ReceiverStatus struct {
	// name of the receiver.
	// +required
	Name string `json:"name,omitempty"`
	// lastDeliveryTime is when it last took a message.
	// +optional
	LastDeliveryTime *metav1.Time `json:"lastDeliveryTime,omitempty"`
	// lastMessage is the title of that message.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	LastMessage string `json:"lastMessage,omitempty"`
	// pending is the number of findings that are waiting to be told.
	// +optional
	Pending int32 `json:"pending,omitempty"`
	// lastError is what it (or the notifier) last said when a message could not be delivered; empty after a success.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	LastError string `json:"lastError,omitempty"`
}

// AnnotationRequestedAt on a Scanner requests one rescan of all its images that run, whenever its value changes: failed ones are tried
// again at once, and the others are matched again. The value is any text, such as the time of the request.
const AnnotationRequestedAt = "scanner-operator.io/requested-at"

// MaxRequestBytes is how much of such a request counts.
const MaxRequestBytes = 64

// Scanner scans the images that run in its namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all,shortName=scn
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Images",type=integer,JSONPath=`.status.images.total`
// +kubebuilder:printcolumn:name="Scanned",type=integer,JSONPath=`.status.images.scanned`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.images.failed`
// +kubebuilder:printcolumn:name="Critical",type=integer,JSONPath=`.status.findings.critical`
// +kubebuilder:printcolumn:name="High",type=integer,JSONPath=`.status.findings.high`
// +kubebuilder:printcolumn:name="Exploited",type=integer,JSONPath=`.status.findings.knownExploited`
// +kubebuilder:printcolumn:name="Data Age",type=date,JSONPath=`.status.vulnerabilityData.buildTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Suppressed",type=integer,priority=1,JSONPath=`.status.findings.suppressed`
// +kubebuilder:printcolumn:name="Engine",type=string,priority=1,JSONPath=`.spec.backend.type`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be at most 63 characters, since it is part of a pod annotation's key"
type Scanner struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is a standard object metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// spec defines the desired state of Scanner.
	// +required
	Spec ScannerSpec `json:"spec,omitzero"`
	// status defines the observed state of Scanner.
	// +optional
	Status ScannerStatus `json:"status,omitzero"`
}

// ScannerList is a list of Scanners.
// +kubebuilder:object:root=true
type ScannerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Scanner `json:"items"`
}
