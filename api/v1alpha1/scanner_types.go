package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackendType is the name of an engine.
// +kubebuilder:validation:Enum=Grype;Clair
type BackendType string

// Engines.
const (
	// BackendGrype catalogs and matches with Grype, in Jobs.
	BackendGrype BackendType = "Grype"
	// BackendClair uses a Clair, which indexes images and matches them.
	BackendClair BackendType = "Clair"
)

// ScanSettings define what to scan, and with which engine.
// +kubebuilder:validation:XValidation:rule="!has(self.exports) || !has(self.backend) || !has(self.backend.type) || self.backend.type != 'Clair' || !self.exports.exists(e, has(e.dependencyTrack))",message="exports[].dependencyTrack needs backend.type Grype: Clair makes no SBOMs"
type ScanSettings struct {
	// backend is the engine that finds vulnerabilities. Unset: Grype.
	// +kubebuilder:default={type: Grype}
	// +optional
	Backend Backend `json:"backend,omitzero"`

	// podSelector limits the scanner to pods with these labels, in the namespaces that it covers. Unset or empty: all pods.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// ignoreLabel is a label key. Pods that carry it with the value "true" are not scanned.
	// +kubebuilder:default="scanner-operator.io/ignore"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +optional
	IgnoreLabel string `json:"ignoreLabel,omitempty"`

	// images narrows down which images of the selected pods are scanned.
	// +optional
	Images ImageFilter `json:"images,omitzero"`

	// externalReports defines which reports of other tools on the scanned images are shown beside the results of the engine, and which of them
	// are announced. Unset: all are shown, and none is announced.
	// +optional
	ExternalReports ExternalReports `json:"externalReports,omitzero"`

	// exports send what each workload has now to other tools: its findings, or the SBOMs of its containers. Each export is independent of the others, and of notifications.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Exports []Export `json:"exports,omitempty"`

	// suspend stops all new work, all messages and all exports of this scanner. Existing results stay.
	// +kubebuilder:default=false
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// addPodAnnotation specifies whether each selected pod gets an annotation with a JSON map of container name to the image digest that was
	// handled. Its key is <name>.scanner-operator.io/image-hashes for a Scanner, and <name>.cluster.scanner-operator.io/image-hashes for a
	// ClusterScanner. The annotation is output only: the operator makes no decision by it.
	// +kubebuilder:default=true
	// +optional
	AddPodAnnotation *bool `json:"addPodAnnotation,omitempty"`

	// unusedImageRetention is how long an image is still matched with new vulnerability data after the last pod that used it is gone. The
	// next run of a CronJob then needs no new catalog. The image is not counted with the images that run. If its pods ended (they succeeded
	// or failed), changes in it are announced for the same time, unless one of its workloads runs another image of the repository in the
	// meantime. Between 0s and 720h.
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="must be between 0s and 720h"
	// +optional
	UnusedImageRetention *metav1.Duration `json:"unusedImageRetention,omitempty"`
}

// ScannerSpec defines what to scan in the Scanner's namespace, with which engine, and which receivers get messages.
type ScannerSpec struct {
	ScanSettings `json:",inline"`

	// addPodFinalizer specifies whether each selected pod gets the finalizer <scanner>.scanner-operator.io/release. It delays the pod's
	// deletion until the operator has recorded that the pod no longer uses its images, which takes one API call. While the operator does
	// not run, such pods cannot be deleted: "scanner-operator cleanup" removes the finalizers.
	// +kubebuilder:default=false
	// +optional
	AddPodFinalizer *bool `json:"addPodFinalizer,omitempty"`

	// notifications are the receivers of messages about new findings and other changes. Each receiver is independent of the others.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Notifications []Receiver `json:"notifications,omitempty"`
}

// Backend is a union: only the member that type names may be set.
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

// ClairBackend defines how to reach a Clair.
type ClairBackend struct {
	// url of Clair's API, such as https://clair.example.com. It must be one of the URLs that the operator's configuration lists in
	// clair.instances.
	// +kubebuilder:validation:Pattern=`^https?://`
	// +kubebuilder:validation:MaxLength=512
	// +required
	URL string `json:"url,omitempty"`

	// authSecretRef names a Secret in this namespace with Clair's pre-shared key. The Secret's key "key" holds the base64 value of
	// auth.psk.key in Clair's configuration. Its optional key "issuer" holds one of the issuers in auth.psk.iss (default
	// "scanner-operator"). Unset: Clair needs no authentication. The operator needs permission to read this one Secret.
	// +optional
	AuthSecretRef *SecretReference `json:"authSecretRef,omitempty"`

	// webhookTokenSecretRef names the key of a Secret in this namespace that holds the token which Clair's webhooks carry in the header
	// X-Scanner-Operator-Token. Unset: webhooks must be signed with the key of authSecretRef. The notifier needs permission to read this
	// one Secret.
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
	// job configures the Jobs that catalog images in this namespace: images that need its pull secrets, or its cloud identity. All other
	// images are cataloged in the operator's namespace, for all namespaces, with the settings of the operator's configuration.
	// +optional
	Job CatalogJob `json:"job,omitzero"`
}

// CatalogJob configures the Jobs that catalog images in a Scanner's namespace.
type CatalogJob struct {
	// resources of the Job's container. Unset: those of the operator's configuration. If the memory limit is missing, it is that of the
	// operator's configuration, or the memory request if that is higher.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// memoryLadder lists memory limits in ascending order. An image whose Job was killed for exceeding its memory limit is retried with the
	// next higher one. The operator remembers which limit an image needed. Unset: the ladder of the operator's configuration.
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

	// identity is whose cloud identity pulls images from registries that have a provider in the operator's configuration. Operator: that of
	// the operator, in its namespace, and results count for all namespaces. Namespace: that of the ServiceAccount scanner-operator-catalog of
	// this namespace; the Jobs run here under that ServiceAccount, and results count here only. Unset: Operator.
	// +optional
	Identity CatalogIdentity `json:"identity,omitempty"`
}

// CatalogIdentity is whose cloud identity pulls images.
// +kubebuilder:validation:Enum=Operator;Namespace
type CatalogIdentity string

// Identities of catalog Jobs.
const (
	IdentityOperator  CatalogIdentity = "Operator"
	IdentityNamespace CatalogIdentity = "Namespace"
)

// ImageFilter defines which images are not scanned.
type ImageFilter struct {
	// exclude lists globs of images that are not scanned, such as "registry.example.com/base/*" or "*:dev-*". A glob is compared with the
	// full reference (docker.io/library/nginx:1.25) and with its repository. "*" matches any characters, including "/". Excluded images are
	// counted as excluded.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Exclude []string `json:"exclude,omitempty"`
}

// OtherSourcesPolicy defines what happens to the reports of sources that are not listed.
// +kubebuilder:validation:Enum=Show;Ignore
type OtherSourcesPolicy string

// Policies for sources that are not listed.
const (
	OtherSourcesShow   OtherSourcesPolicy = "Show"
	OtherSourcesIgnore OtherSourcesPolicy = "Ignore"
)

// ExternalReports defines what happens to reports of other tools, which are saved over the REST API.
type ExternalReports struct {
	// sources lists sources of reports. The reports of a listed source are shown.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Sources []ReportSource `json:"sources,omitempty"`

	// others defines what happens to reports of sources that are not listed: they are shown and not announced (Show), or ignored (Ignore).
	// +kubebuilder:default=Show
	// +optional
	Others OtherSourcesPolicy `json:"others,omitempty"`
}

// ReportSource is a source of reports.
type ReportSource struct {
	// name of the source, which is the last part of the path to which its reports are saved.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name,omitempty"`

	// announce specifies whether receivers get messages about the findings in reports of the source, as about those of the engine. A finding that
	// several reports have is announced once. An image needs a result of the engine first.
	// +kubebuilder:default=false
	// +optional
	Announce *bool `json:"announce,omitempty"`
}

// SeverityThreshold is the lowest severity that is announced to a receiver.
// +kubebuilder:validation:Enum=Critical;High;Medium;Low;Negligible
type SeverityThreshold string

// UnknownSeverityPolicy defines what happens to findings whose severity is not known (yet).
// +kubebuilder:validation:Enum=AnnounceFixable;Announce;Hold
type UnknownSeverityPolicy string

// Policies for findings of unknown severity.
const (
	UnknownAnnounceFixable UnknownSeverityPolicy = "AnnounceFixable"
	UnknownAnnounce        UnknownSeverityPolicy = "Announce"
	UnknownHold            UnknownSeverityPolicy = "Hold"
)

// Change is a kind of change of a finding or an image.
// +kubebuilder:validation:Enum=New;FixAvailable;Escalated;Regressed;Fixed;NewImage
type Change string

// Kinds of changes.
const (
	// ChangeNew means that a package of an image has a vulnerability that was not announced to the receiver.
	ChangeNew Change = "New"
	// ChangeFixAvailable means that there is a fix for an announced finding that had none.
	ChangeFixAvailable Change = "FixAvailable"
	// ChangeEscalated means that the severity has reached minSeverity, or that the vulnerability is now known to be exploited.
	ChangeEscalated Change = "Escalated"
	// ChangeRegressed means that a fixed finding is back.
	ChangeRegressed Change = "Regressed"
	// ChangeFixed means that no running image of the repository has the finding any more.
	ChangeFixed Change = "Fixed"
	// ChangeNewImage means that an image repository runs in the namespace for the first time.
	ChangeNewImage Change = "NewImage"
)

// WorkloadPolicy defines which workloads a receiver gets messages about.
// +kubebuilder:validation:Enum=OwnAndUnassigned;Own;All
type WorkloadPolicy string

// Policies for workloads.
const (
	// WorkloadsOwnAndUnassigned selects workloads that name the receiver, and workloads that name none.
	WorkloadsOwnAndUnassigned WorkloadPolicy = "OwnAndUnassigned"
	// WorkloadsOwn selects workloads that name the receiver.
	WorkloadsOwn WorkloadPolicy = "Own"
	// WorkloadsAll selects all workloads, whichever receivers they name.
	WorkloadsAll WorkloadPolicy = "All"
)

// AnnotationReceiver on a pod names the receivers of messages about its workload, separated by commas. Without it, the annotation of the
// pod's namespace applies.
const AnnotationReceiver = "scanner-operator.io/receiver"

// FirstScanPolicy defines what a receiver gets about its baseline: the findings that are present when the receiver is added.
// +kubebuilder:validation:Enum=Summary;Silent;All
type FirstScanPolicy string

// Policies for the first scan.
const (
	FirstScanSummary FirstScanPolicy = "Summary"
	FirstScanSilent  FirstScanPolicy = "Silent"
	FirstScanAll     FirstScanPolicy = "All"
)

// Receiver is a destination of messages.
// +kubebuilder:validation:XValidation:rule="[has(self.slack), has(self.webhook), has(self.teams), has(self.email), has(self.alertmanager)].exists_one(is, is)",message="a receiver needs exactly one of slack, webhook, teams, email and alertmanager"
type Receiver struct {
	// name identifies the receiver within the Scanner. The operator records under this name what it has announced to the receiver.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name,omitempty"`

	// slack posts to a Slack incoming webhook, or as a Slack app.
	// +optional
	Slack *SlackReceiver `json:"slack,omitempty"`

	// webhook posts each message as a CloudEvent to a URL.
	// +optional
	Webhook *WebhookReceiver `json:"webhook,omitempty"`

	// teams posts each message to Microsoft Teams, as an Adaptive Card.
	// +optional
	Teams *TeamsReceiver `json:"teams,omitempty"`

	// email sends each message as a mail.
	// +optional
	Email *EmailReceiver `json:"email,omitempty"`

	// alertmanager keeps alerts for all findings that are present, and posts no messages.
	// +optional
	Alertmanager *AlertmanagerReceiver `json:"alertmanager,omitempty"`

	// minSeverity is the lowest severity that is announced. A vulnerability that is known to be exploited is always announced.
	// +kubebuilder:default=High
	// +optional
	MinSeverity SeverityThreshold `json:"minSeverity,omitempty"`

	// unknownSeverity defines what happens to findings whose severity is not known (yet): those with a fix are announced (AnnounceFixable),
	// all are announced (Announce), or none is announced until its severity is known (Hold).
	// +kubebuilder:default=AnnounceFixable
	// +optional
	UnknownSeverity UnknownSeverityPolicy `json:"unknownSeverity,omitempty"`

	// onlyFixable leaves out findings without a fixed version. A vulnerability that is known to be exploited is announced anyway.
	// +kubebuilder:default=false
	// +optional
	OnlyFixable *bool `json:"onlyFixable,omitempty"`

	// announce lists the changes that are announced to the receiver. Unset: New, FixAvailable, Escalated and Regressed. Fixed and NewImage
	// can be added.
	// +kubebuilder:default={New,FixAvailable,Escalated,Regressed}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=6
	// +optional
	Announce []Change `json:"announce,omitempty"`

	// workloads defines which workloads the receiver gets messages about. A workload names its receivers with the annotation
	// scanner-operator.io/receiver on its pods or their namespace.
	// +kubebuilder:default=OwnAndUnassigned
	// +optional
	Workloads WorkloadPolicy `json:"workloads,omitempty"`

	// healthNotices specifies whether the receiver gets health notices about the Scanner itself: failing scans, old vulnerability data,
	// exceptions that are about to expire.
	// +kubebuilder:default=true
	// +optional
	HealthNotices *bool `json:"healthNotices,omitempty"`

	// groupWait is how long to wait after the first change, so that later changes go into the same message. Up to 1h.
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be between 0s and 1h"
	// +optional
	GroupWait *metav1.Duration `json:"groupWait,omitempty"`

	// groupInterval is the minimum time between two messages. Between 1s and 168h.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="must be between 1s and 168h"
	// +optional
	GroupInterval *metav1.Duration `json:"groupInterval,omitempty"`

	// schedule is when the receiver gets a summary of what is present, in addition to messages about changes. Unset: never.
	// +optional
	Schedule *SummarySchedule `json:"schedule,omitempty"`

	// quietHours are times at which the receiver gets only messages about vulnerabilities that are known to be exploited. All else waits: when the
	// quiet hours end, one message has it.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	QuietHours []QuietHours `json:"quietHours,omitempty"`

	// firstScan defines what the receiver gets about the findings that are present when the Scanner is created or the receiver is added:
	// one summary (Summary), nothing (Silent), or every finding as new (All).
	// +kubebuilder:default=Summary
	// +optional
	FirstScan FirstScanPolicy `json:"firstScan,omitempty"`
}

// SummarySchedule is when summaries are due, by the clock of a time zone.
type SummarySchedule struct {
	// cron has the five fields of a CronJob's schedule: minute, hour, day of the month, month and day of the week, such as "0 8 * * MON". The minute
	// is one number, so that a summary is due at most once an hour. @hourly, @daily, @weekly, @monthly and @yearly are names of such schedules.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[0-5]?[0-9]( +[0-9A-Za-z*/,?-]+){4})$')",message="must have five fields (minute, hour, day of the month, month, day of the week) of which the minute is one number, such as 0 8 * * MON, or be one of @hourly, @daily, @weekly, @monthly and @yearly; the time zone belongs in timeZone"
	// +required
	Cron string `json:"cron,omitempty"`

	// timeZone is that of cron, by its name in the IANA database, such as Europe/Berlin.
	// +kubebuilder:default=UTC
	// +optional
	TimeZone TimeZone `json:"timeZone,omitempty"`
}

// QuietHours recur on days of the week, by the clock of a time zone.
type QuietHours struct {
	// days are the days on which the quiet hours begin. Unset: every day.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	// +optional
	Days []Weekday `json:"days,omitempty"`

	// startTime is when the quiet hours begin, such as 20:00.
	// +required
	StartTime TimeOfDay `json:"startTime,omitempty"`

	// endTime is when the quiet hours end, such as 08:00: on the same day if it is after startTime, otherwise on the next day. If it equals
	// startTime, the quiet hours last a whole day.
	// +required
	EndTime TimeOfDay `json:"endTime,omitempty"`

	// timeZone is that of startTime and endTime, by its name in the IANA database, such as Europe/Berlin.
	// +kubebuilder:default=UTC
	// +optional
	TimeZone TimeZone `json:"timeZone,omitempty"`
}

// Weekday is a day of the week.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type Weekday string

// Days of the week.
const (
	Monday    Weekday = "Monday"
	Tuesday   Weekday = "Tuesday"
	Wednesday Weekday = "Wednesday"
	Thursday  Weekday = "Thursday"
	Friday    Weekday = "Friday"
	Saturday  Weekday = "Saturday"
	Sunday    Weekday = "Sunday"
)

// TimeOfDay is a time of day from 00:00 to 23:59.
// +kubebuilder:validation:MinLength=5
// +kubebuilder:validation:MaxLength=5
// +kubebuilder:validation:XValidation:rule="self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')",message="must be a time of day from 00:00 to 23:59, such as 08:30"
type TimeOfDay string

// TimeZone is the name of a time zone in the IANA database.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$') && self.lowerAscii() != 'local'",message="must be the name of a time zone in the IANA database, such as Europe/Berlin or UTC"
type TimeZone string

// SlackReceiver posts to a Slack incoming webhook, or as a Slack app with chat.postMessage. Only an app can reply in threads.
// +kubebuilder:validation:XValidation:rule="has(self.webhookURLSecretRef) != has(self.tokenSecretRef)",message="set either webhookURLSecretRef (an incoming webhook), or tokenSecretRef and channel (a Slack app)"
// +kubebuilder:validation:XValidation:rule="!has(self.channel) || has(self.tokenSecretRef)",message="channel may be set only with tokenSecretRef: a webhook has its own channel"
// +kubebuilder:validation:XValidation:rule="!has(self.tokenSecretRef) || has(self.channel)",message="channel is needed with tokenSecretRef: the channel's ID, such as C0123456789, or its name, such as #security"
type SlackReceiver struct {
	// webhookURLSecretRef names the key of a Secret that holds the webhook's URL, in the Scanner's namespace; for a ClusterScanner, in the
	// operator's. The URL is itself a secret. The notifier needs permission to read this one Secret.
	// +optional
	WebhookURLSecretRef SecretKeyReference `json:"webhookURLSecretRef,omitzero"`

	// tokenSecretRef names the key of a Secret that holds the bot token of a Slack app (xoxb-…), in the Scanner's namespace; for a
	// ClusterScanner, in the operator's. The app needs the scope chat:write and must be a member of the channel. The notifier needs permission to
	// read this one Secret.
	// +optional
	TokenSecretRef TokenSecretReference `json:"tokenSecretRef,omitzero"`

	// channel that the app posts to: the ID of a public or private channel (C0123456789), or the name of a public channel (#security). The ID
	// is better: it stays when the channel is renamed. In Slack, it is at the end of the channel's details. Where the administrator allows direct
	// messages, it can be the ID of a person (U0123456789), or of a person's conversation with the app (D0123456789).
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=81
	// +kubebuilder:validation:XValidation:rule="self.matches('^([CDGUW][A-Z0-9]{7,}|#[^[:cntrl:][:space:]#@<>&,]+)$')",message="must be the channel's ID, such as C0123456789, or its name with #, such as #security"
	// +optional
	Channel string `json:"channel,omitempty"`
}

// WebhookReceiver posts each message as a CloudEvent (https://cloudevents.io) of the type io.scanner-operator.changes.v1.
type WebhookReceiver struct {
	// secretRef names a Secret in the Scanner's namespace; for a ClusterScanner, in the operator's. Its key "address" holds the https URL, whose
	// host the administrator allows. Its optional key "token" signs the requests: the header X-Signature is "sha256=" and the HMAC-SHA256 of the
	// body in hexadecimal digits. Its optional key "headers" holds further headers, as a YAML map of names to texts. The notifier needs
	// permission to read this one Secret.
	// +required
	SecretRef SecretReference `json:"secretRef,omitzero"`
}

// TeamsReceiver posts each message as an Adaptive Card to a Workflow of Microsoft Teams.
type TeamsReceiver struct {
	// secretRef names a Secret in the Scanner's namespace; for a ClusterScanner, in the operator's. Its key "address" holds the URL of a Workflow
	// that begins with "When a Teams webhook request is received". The administrator allows its host. The notifier needs permission to read this
	// one Secret.
	// +required
	SecretRef SecretReference `json:"secretRef,omitzero"`
}

// AlertmanagerReceiver keeps an alert of Prometheus' Alertmanager for each finding in each workload. It gets all findings that are present and pass
// minSeverity, unknownSeverity, onlyFixable and workloads. The fields about messages do not apply: announce, healthNotices, groupWait,
// groupInterval and firstScan.
type AlertmanagerReceiver struct {
	// secretRef names a Secret in the Scanner's namespace; for a ClusterScanner, in the operator's. Its key "address" holds the address of the
	// Alertmanager, which the administrator allows. Its optional keys are "username" and "password", or "token" for a bearer token, and "headers"
	// for further headers, as a YAML map of names to texts. The notifier needs permission to read this one Secret.
	// +required
	SecretRef SecretReference `json:"secretRef,omitzero"`
}

// EmailReceiver sends each message as a mail, over SMTP.
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || self.tls != 'None' || !has(self.secretRef)",message="secretRef needs TLS: without it, anybody in between can read the password"
type EmailReceiver struct {
	// server is the host of the mail server, with the port unless it is 587 (StartTLS), 465 (Implicit) or 25 (None). The administrator allows it.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*(:[0-9]{1,5})?$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=259
	// +required
	Server string `json:"server,omitempty"`

	// tls defines when the connection becomes a TLS connection: by STARTTLS, without which nothing is sent (StartTLS), from the start (Implicit), or
	// never (None), which the administrator must allow for the server.
	// +kubebuilder:default=StartTLS
	// +optional
	TLS EmailTLS `json:"tls,omitempty"`

	// from is the sender's address, without a name. The server must let the user send as this address.
	// +required
	From EmailAddress `json:"from,omitempty"`

	// helo is the name that the notifier gives to the server in EHLO, such as scanner.example.com. Unset: the domain of from. Some servers refuse
	// a name that has no address in DNS.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Helo string `json:"helo,omitempty"`

	// to are the addresses of the recipients, without names. Each recipient sees the others.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +required
	To []EmailAddress `json:"to,omitempty"`

	// secretRef names a Secret in the Scanner's namespace; for a ClusterScanner, in the operator's. Its keys "username" and "password" are those of
	// the mail server. Instead of "password", "token" is an access token of OAuth 2.0, or "tokenURL", "clientID", "clientSecret" and "scope" say how
	// the notifier gets one. The notifier needs permission to read this one Secret. Unset: the server requires no password.
	// +optional
	SecretRef SecretReference `json:"secretRef,omitzero"`
}

// EmailAddress is the address of a mailbox, of ASCII characters, without a name.
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+)*@[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`
// +kubebuilder:validation:MinLength=3
// +kubebuilder:validation:MaxLength=254
type EmailAddress string

// EmailTLS is when the connection to a mail server becomes a TLS connection.
// +kubebuilder:validation:Enum=StartTLS;Implicit;None
type EmailTLS string

// Values of EmailTLS.
const (
	EmailStartTLS    EmailTLS = "StartTLS"
	EmailImplicitTLS EmailTLS = "Implicit"
	EmailWithoutTLS  EmailTLS = "None"
)

// Export is a tool that gets what each workload has now.
// +kubebuilder:validation:XValidation:rule="has(self.defectDojo) != has(self.dependencyTrack)",message="an export needs exactly one of defectDojo, dependencyTrack"
type Export struct {
	// name identifies the export within the Scanner. The operator records under this name what the tool has: under another name, everything is
	// sent again.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name,omitempty"`

	// defectDojo sends findings to a DefectDojo.
	// +optional
	DefectDojo *DefectDojoExport `json:"defectDojo,omitempty"`

	// dependencyTrack sends SBOMs to a Dependency-Track. It needs the engine Grype, and cyclonedx-json in grype.catalog.additionalFormats of the
	// operator's configuration.
	// +optional
	DependencyTrack *DependencyTrackExport `json:"dependencyTrack,omitempty"`
}

// DefectDojoExport sends the findings of each workload to a test of its own: the product is the namespace, the engagement the cluster.
type DefectDojoExport struct {
	// secretRef names a Secret in the Scanner's namespace; for a ClusterScanner, in the operator's. Its key "address" holds the https URL of
	// DefectDojo, whose host the administrator allows. Its key "token" holds an API v2 key. The notifier needs permission to read this one Secret.
	// +required
	SecretRef SecretReference `json:"secretRef,omitzero"`

	// engagement is the name of the engagement in each product, such as the name of this cluster. Each cluster needs another one: an import closes
	// the findings of the same workload that it does not have. Unset: clusterName of the operator's configuration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:cntrl:]]')",message="must not have control characters"
	// +optional
	Engagement string `json:"engagement,omitempty"`

	// productType is the product type of a product that does not exist yet. A product that exists must have this type.
	// +kubebuilder:default=Kubernetes
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:cntrl:]]')",message="must not have control characters"
	// +optional
	ProductType string `json:"productType,omitempty"`
}

// DependencyTrackExport sends the SBOM of each container to a project of its own: namespace/kind/workload/container.
type DependencyTrackExport struct {
	// secretRef names a Secret in the Scanner's namespace; for a ClusterScanner, in the operator's. Its key "address" holds the https URL of
	// Dependency-Track's API server, whose host the administrator allows. Its key "token" holds an API key of a team with the permissions BOM_UPLOAD
	// and PROJECT_CREATION_UPLOAD. The notifier needs permission to read this one Secret.
	// +required
	SecretRef SecretReference `json:"secretRef,omitzero"`

	// projectVersion is the version of each project, such as the name of this cluster. Each cluster needs another one: an upload replaces the SBOM
	// of the same container. Unset: clusterName of the operator's configuration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^[:cntrl:][:space:]]+$')",message="must not have spaces or control characters"
	// +optional
	ProjectVersion string `json:"projectVersion,omitempty"`
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

// ScannerStatus is the observed state of a Scanner.
type ScannerStatus struct {
	// conditions: Ready, Reconciling, Stalled, BackendAvailable, NotificationsDelivered, Exported, StoreDurable.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// images counts the distinct images of the selected pods. Each image is exactly one of scanned, pending, failed and excluded.
	// +optional
	Images ImageCounts `json:"images,omitzero"`

	// findings counts each vulnerability in each package of each image repository once.
	// +optional
	Findings FindingCounts `json:"findings,omitzero"`

	// vulnerabilityData identifies the vulnerability data that the findings were found with.
	// +optional
	VulnerabilityData *VulnerabilityData `json:"vulnerabilityData,omitempty"`

	// lastHandledRequestedAt is the last value of the annotation scanner-operator.io/requested-at that was handled: a rescan of all running
	// images was started. At most 64 bytes of the value.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	LastHandledRequestedAt string `json:"lastHandledRequestedAt,omitempty"`

	// storeID identifies the operator's store. It changes when the store was lost and everything is scanned again, and when the store was
	// restored or rolled back.
	// +optional
	StoreID string `json:"storeID,omitempty"`

	// receivers is the delivery state of each receiver.
	// +listType=map
	// +listMapKey=name
	// +optional
	Receivers []ReceiverStatus `json:"receivers,omitempty"`

	// testMessage is what became of the test message that the annotation scanner-operator.io/test-message requests.
	// +optional
	TestMessage *TestMessageStatus `json:"testMessage,omitempty"`

	// exports is the state of each export.
	// +listType=map
	// +listMapKey=name
	// +optional
	Exports []ExportStatus `json:"exports,omitempty"`

	// columns are the texts that kubectl get prints. They repeat other fields.
	// +kubebuilder:default={}
	// +optional
	Columns ScannerColumns `json:"columns,omitzero"`
}

// ScannerColumns are texts for tables. A table leaves out a number that is missing, so that 0 and unknown would look the same: a value that is
// not known is "-".
type ScannerColumns struct {
	// ready is the status of the condition Ready.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=8
	// +optional
	Ready string `json:"ready,omitempty"`
	// namespaces is the number of covered namespaces of a ClusterScanner.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Namespaces string `json:"namespaces,omitempty"`
	// images is images.total.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Images string `json:"images,omitempty"`
	// scanned is images.scanned.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Scanned string `json:"scanned,omitempty"`
	// failed is images.failed.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Failed string `json:"failed,omitempty"`
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
	// exploited is findings.knownExploited.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Exploited string `json:"exploited,omitempty"`
	// suppressed is findings.suppressed.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=10
	// +optional
	Suppressed string `json:"suppressed,omitempty"`
	// messages is Delivered, None if the scanner has no receiver, or Failing if a message could not be delivered.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=9
	// +optional
	Messages string `json:"messages,omitempty"`
	// dataAge is the age of the vulnerability data when the operator last looked, in hours and then in days, such as 6h or 12d.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=8
	// +optional
	DataAge string `json:"dataAge,omitempty"`
	// selector is the beginning of a ClusterScanner's namespaceSelector.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=20
	// +optional
	Selector string `json:"selector,omitempty"`
	// message is the beginning of the message of the condition Ready, or of BackendAvailable if only that says that something is wrong.
	// +kubebuilder:default="-"
	// +kubebuilder:validation:MaxLength=80
	// +optional
	Message string `json:"message,omitempty"`
}

// Values of ScannerColumns.Messages.
const (
	MessagesDelivered = "Delivered"
	MessagesNone      = "None"
	MessagesFailing   = "Failing"
)

// ColumnUnknown is the text of a column whose value is not known.
const ColumnUnknown = "-"

// ColumnPartlyCovered is the reason in a table of an image that contains packages which its result does not cover (status.notCovered).
const ColumnPartlyCovered = "PartlyCovered"

// ImageCounts counts images by state: total = scanned + pending + failed + excluded.
type ImageCounts struct {
	// total number of distinct images.
	// +required
	Total int32 `json:"total"`
	// scanned images have a result. An image that is matched again stays scanned.
	// +required
	Scanned int32 `json:"scanned"`
	// pending images have no result yet.
	// +required
	Pending int32 `json:"pending"`
	// failed images could not be scanned. Their ImageScans have the reason. An image that a node could not pull counts as failed.
	// +required
	Failed int32 `json:"failed"`
	// excluded images are left out by spec.images.exclude.
	// +required
	Excluded int32 `json:"excluded"`
	// recentlyUsed is the number of further images that no pod runs now and whose last pods ended within spec.unusedImageRetention. They
	// are in none of the other numbers, nor in findings. Changes in them are announced.
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
	// suppressed is the number of findings that exceptions suppress. They are in none of the other numbers.
	// +optional
	Suppressed int32 `json:"suppressed,omitempty"`
}

// VulnerabilityData identifies vulnerability data.
type VulnerabilityData struct {
	// buildTime is when the data was built.
	// +optional
	BuildTime metav1.Time `json:"buildTime,omitzero"`
	// tool is the engine and its version.
	// +optional
	Tool string `json:"tool,omitempty"`
}

// ReceiverStatus is the delivery state of one receiver.
type ReceiverStatus struct {
	// name of the receiver.
	// +required
	Name string `json:"name,omitempty"`
	// lastDeliveryTime is when the receiver last accepted a message.
	// +optional
	LastDeliveryTime *metav1.Time `json:"lastDeliveryTime,omitempty"`
	// lastMessage is the title of the last message that the receiver accepted.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	LastMessage string `json:"lastMessage,omitempty"`
	// pending is the number of findings that wait to be announced.
	// +optional
	Pending int32 `json:"pending,omitempty"`
	// lastError is the last error of a delivery, from the receiver or the notifier. Empty after a success.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	LastError string `json:"lastError,omitempty"`
}

// TestMessageStatus is what became of a test message.
type TestMessageStatus struct {
	// request is the value of the annotation that requested the message. At most 128 bytes of the value.
	// +kubebuilder:validation:MaxLength=128
	// +required
	Request string `json:"request,omitempty"`
	// outcome is Delivered if the receiver took the message, Failed if not, and Pending until that is known.
	// +required
	Outcome TestMessageOutcome `json:"outcome,omitempty"`
	// time is when the message was last sent.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// message is why the message was not delivered, or is still pending, from the receiver or the notifier.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// TestMessageOutcome is what became of a test message.
// +kubebuilder:validation:Enum=Delivered;Failed;Pending
type TestMessageOutcome string

// Outcomes of test messages.
const (
	TestMessageDelivered TestMessageOutcome = "Delivered"
	TestMessageFailed    TestMessageOutcome = "Failed"
	TestMessagePending   TestMessageOutcome = "Pending"
)

// ExportStatus is the state of one export.
type ExportStatus struct {
	// name of the export.
	// +required
	Name string `json:"name,omitempty"`
	// lastSuccessTime is when the tool last accepted findings or an SBOM.
	// +optional
	LastSuccessTime *metav1.Time `json:"lastSuccessTime,omitempty"`
	// workloads is the number of workloads whose present findings or SBOMs the tool has.
	// +optional
	Workloads int32 `json:"workloads,omitempty"`
	// pending is the number of workloads whose findings or SBOMs wait to be sent.
	// +optional
	Pending int32 `json:"pending,omitempty"`
	// waiting is the number of workloads with an image that has no result yet, or no SBOM that the tool accepts. The tool keeps what it has of that
	// image's container; a DefectDojo, of the workload.
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
	// lastError is the last error, from the tool or the notifier. Empty after a success.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	LastError string `json:"lastError,omitempty"`
}

// AnnotationRequestedAt on a Scanner requests one rescan of all its running images, whenever its value changes. Failed images are retried
// at once, and the others are matched again. The value is any text, such as the time of the request.
const AnnotationRequestedAt = "scanner-operator.io/requested-at"

// MaxRequestBytes is the number of bytes of a rescan request that are compared.
const MaxRequestBytes = 64

// AnnotationTestMessage on a Scanner requests one test message to a receiver, whenever its value changes. The value is the receiver's name and, after a
// space, any text, such as the time of the request.
const AnnotationTestMessage = "scanner-operator.io/test-message"

// MaxTestMessageBytes is the number of bytes of a request for a test message that are compared.
const MaxTestMessageBytes = 128

// Scanner scans the images that run in its namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all,shortName=scn
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.columns.ready`
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
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.columns.message`
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
	// +kubebuilder:default={columns: {}}
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
