package v1alpha1

// Condition types. Ready, Reconciling and Stalled have the meaning that kstatus gives them
// (https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md). Reconciling and Stalled are present only while they are
// true.
const (
	// ConditionReady is true when the operator has done everything that the object asks for.
	ConditionReady = "Ready"
	// ConditionReconciling is true while the operator works on the object.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is true when the operator cannot continue until somebody changes something.
	ConditionStalled = "Stalled"
	// ConditionBackendAvailable reports whether the engine of a Scanner can work.
	ConditionBackendAvailable = "BackendAvailable"
	// ConditionNotificationsDelivered is false when a message to a receiver of a Scanner could not be delivered.
	ConditionNotificationsDelivered = "NotificationsDelivered"
	// ConditionExported is false when findings could not be exported. It is present only on a Scanner with exports.
	ConditionExported = "Exported"
	// ConditionOverlap is true while other ClusterScanners with the same engine cover namespaces of a ClusterScanner as well, so that findings there
	// are announced twice. ConditionOverlap, ConditionNamespacesNotWatched and ConditionNamespacesUnknown are present only while they are true.
	ConditionOverlap = "Overlap"
	// ConditionNamespacesNotWatched is true while a ClusterScanner selects namespaces that the operator is not allowed to watch.
	ConditionNamespacesNotWatched = "NamespacesNotWatched"
	// ConditionNamespacesUnknown is true while a ClusterScanner excludes namespaces that do not exist.
	ConditionNamespacesUnknown = "NamespacesUnknown"
	// ConditionReceiverNotAllowed is true while workloads that run an image name a receiver of a ClusterScanner that their namespace may not use.
	// It is present on an ImageScan only while it is true.
	ConditionReceiverNotAllowed = "ReceiverNotAllowed"
	// ConditionReportsNotWritten is true while the operator cannot write Reports for other tools, as its configuration demands. It is present on a
	// Scanner only while it is true.
	ConditionReportsNotWritten = "ReportsNotWritten"
	// ConditionStoreDurable reports whether findings survive the operator's pod.
	ConditionStoreDurable = "StoreDurable"
)

// Reasons of conditions and events.
const (
	ReasonScanned             = "Scanned"                   // all images have a result
	ReasonSomeFailed          = "SomeImagesFailed"          // all images were handled, some without a result
	ReasonScanning            = "Scanning"                  // some images have no result yet
	ReasonSuspended           = "Suspended"                 // spec.suspend is true
	ReasonNoImages            = "NoImages"                  // no running pod is selected
	ReasonBackendDisabled     = "BackendDisabled"           // the operator runs without this backend
	ReasonAvailable           = "Available"                 // the engine works
	ReasonNoVulnerabilityData = "NoVulnerabilityData"       // the engine has no vulnerability data yet
	ReasonDataOutdated        = "VulnerabilityDataOutdated" // the data is too old, or newer data cannot be fetched
	ReasonBackendError        = "BackendError"              // the engine does not work
	ReasonDelivered           = "Delivered"                 // all receivers are up to date
	ReasonDeliveryPending     = "DeliveryPending"           // findings wait for the next message
	ReasonDeliveryFailed      = "DeliveryFailed"            // a message could not be delivered
	ReasonInvalidTime         = "InvalidTime"               // a receiver's quiet hours or schedule have a time or a time zone that does not exist
	ReasonNoReceivers         = "NoReceivers"               // spec.notifications is empty
	ReasonExported            = "Exported"                  // all tools have the present findings
	ReasonExportPending       = "ExportPending"             // findings wait to be sent to a tool
	ReasonExportFailed        = "ExportFailed"              // findings could not be exported
	ReasonVolumeMounted       = "VolumeMounted"             // the store is on a volume that outlives the pod
	ReasonDatabaseServer      = "DatabaseServer"            // the store is on a database server
	ReasonEphemeralVolume     = "EphemeralVolume"           // the store is lost with the pod
	ReasonVolumeFull          = "VolumeFull"                // the store's volume has too little free space
	ReasonVolumeReadOnly      = "VolumeReadOnly"            // the store cannot be written
	ReasonVolumeFailed        = "VolumeFailed"              // the store's volume returns I/O errors
	ReasonStoreCorrupt        = "StoreCorrupt"              // the store's file is damaged
	ReasonStoreMovedAway      = "StoreMovedAway"            // the store's file was moved away while the manager had it open
	ReasonStoreUnavailable    = "StoreUnavailable"          // the store's database server cannot be reached, or does not answer
	ReasonStoreFull           = "StoreFull"                 // the disk of the store's database server is full
	ReasonTooManyConnections  = "TooManyConnections"        // the store's database server accepts no more connections
	ReasonStoreReadOnly       = "StoreReadOnly"             // the store's database server takes no writes
	ReasonStorePermission     = "StorePermission"           // the store's database server refuses the user
	ReasonStoreTooOld         = "StoreTooOld"               // the version of the store's database server is not supported
	ReasonStoreWrongCollation = "StoreWrongCollation"       // the encoding of the store's database cannot hold every text
	ReasonStorePacketTooSmall = "StorePacketTooSmall"       // the store's database server takes too short statements (max_allowed_packet)
	ReasonDataAnomaly         = "VulnerabilityDataAnomaly"  // too many findings disappeared with one version of the data
	ReasonInForce             = "InForce"                   // the exception suppresses what it selects
	ReasonExpired             = "Expired"                   // the exception has expired
	ReasonInvalidSelector     = "InvalidSelector"           // the exception's selector is invalid and selects nothing
	ReasonTooManyExceptions   = "TooManyExceptions"         // the namespace has more exceptions, or globs in them, than the operator compares
	ReasonUnknownReceiver     = "UnknownReceiver"           // pods name a receiver that the Scanner does not have
	ReasonAnotherOperator     = "AnotherOperator"           // two operators work on the same Scanner
	ReasonInvalidPodSelector  = "InvalidPodSelector"        // spec.podSelector is invalid and selects nothing
	ReasonTooManyScanners     = "TooManyScanners"           // the namespace has more Scanners than the operator handles
	ReasonMissingPermissions  = "MissingPermissions"        // the operator lacks permissions that it needs in the namespace
	ReasonExcessPermissions   = "ExcessPermissions"         // the operator has permissions in all namespaces that it needs in some only
	ReasonOutdatedKinds       = "OutdatedKinds"             // the cluster's CustomResourceDefinitions are older than the operator
	ReasonWaitingForManager   = "WaitingForManager"         // no manager has reported on the object yet

	ReasonOpenReportsMissing   = "OpenReportsMissing"   // the cluster does not have the CustomResourceDefinition of Reports
	ReasonOpenReportsForbidden = "OpenReportsForbidden" // the operator lacks the permissions for Reports

	ReasonInvalidNamespaceSelector = "InvalidNamespaceSelector" // spec.namespaceSelector, or fromNamespaces of a receiver, is invalid and selects nothing
	ReasonNoNamespaces             = "NoNamespaces"             // spec.namespaceSelector selects no namespace
	ReasonNamespacesNotWatched     = "NamespacesNotWatched"     // the operator does not watch some of the selected namespaces
	ReasonOverlap                  = "OverlappingScanners"      // another ClusterScanner covers the same namespaces
	ReasonExcludedNamespaceUnknown = "ExcludedNamespaceUnknown" // spec.excludeNamespaces names a namespace that does not exist
	ReasonReceiverNotAllowed       = "ReceiverNotAllowed"       // a namespace names a receiver of a ClusterScanner that it may not use

	ReasonPending    = "Pending"    // waiting for a free slot
	ReasonCataloging = "Cataloging" // the image is being cataloged
	ReasonMatching   = "Matching"   // the image is being matched with vulnerability data
	ReasonUnused     = "Unused"     // no pod uses the image any more

	// ReasonNotPulled means that a node could not pull the image. No container of the image runs, and its digest is unknown.
	ReasonNotPulled = "NotPulled"
	// ReasonBareImageID means that the node knows the image only by the digest of its configuration: the image was built or loaded there.
	ReasonBareImageID = "BareImageID"
	// ReasonVolumeDigestUnknown means that a pod has the image as a volume and the node does not report its digest, whatever the pod's spec pins.
	ReasonVolumeDigestUnknown = "VolumeDigestUnknown"
	// ReasonPodUnschedulable means that no node can take any of the pods with the image.
	ReasonPodUnschedulable = "PodUnschedulable"
	// ReasonNodeUnknown means that the platform of the pods' node is not known (yet): the node is gone, or reports no platform.
	ReasonNodeUnknown = "NodeUnknown"
	// ReasonTooManyImages means that the namespace has the maximum number of ImageScans. The operator creates no more there.
	ReasonTooManyImages = "TooManyImages"
	// ReasonStoreBudgetExceeded means that the namespace's images have used up their share of the operator's store. New images are not
	// scanned.
	ReasonStoreBudgetExceeded = "StoreBudgetExceeded"
	// ReasonLeftBehind is the reason of an event: what an engine such as Clair keeps for a Scanner could not be deleted in time and stays
	// there.
	ReasonLeftBehind = "LeftBehind"
	// ReasonPodChangeRefused is the reason of an event: the API server rejects the operator's changes to pods (annotation, finalizer).
	ReasonPodChangeRefused = "PodChangeRefused"
)
