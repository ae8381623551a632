package v1alpha1

// Types of conditions. Ready, Reconciling and Stalled have the meaning that kstatus gives them
// (https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md): Reconciling and Stalled
// are there only while they are true.
const (
	// ConditionReady is true when everything asked for is done.
	ConditionReady = "Ready"
	// ConditionReconciling is true while work is going on.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is true when nothing goes on until somebody changes something.
	ConditionStalled = "Stalled"
	// ConditionBackendAvailable says whether the engine of a Scanner can work.
	ConditionBackendAvailable = "BackendAvailable"
	// ConditionNotificationsDelivered says whether all receivers of a Scanner were told what there is to tell.
	ConditionNotificationsDelivered = "NotificationsDelivered"
	// ConditionStoreDurable says whether findings outlive the operator's pod.
	ConditionStoreDurable = "StoreDurable"
)

// Reasons of conditions.
const (
	ReasonScanned             = "Scanned"                   // all images have a result
	ReasonSomeFailed          = "SomeImagesFailed"          // all images were handled, some without a result
	ReasonScanning            = "Scanning"                  // some images have no result yet
	ReasonSuspended           = "Suspended"                 // spec.suspend
	ReasonNoImages            = "NoImages"                  // no pod is selected
	ReasonBackendDisabled     = "BackendDisabled"           // the operator runs without this backend
	ReasonAvailable           = "Available"                 // the engine works
	ReasonNoVulnerabilityData = "NoVulnerabilityData"       // the engine has no vulnerability data yet
	ReasonDataOutdated        = "VulnerabilityDataOutdated" // the data is old, or newer data cannot be had
	ReasonBackendError        = "BackendError"              // the engine does not work
	ReasonDelivered           = "Delivered"                 // receivers are up to date
	ReasonDeliveryPending     = "DeliveryPending"           // something is waiting to be told
	ReasonDeliveryFailed      = "DeliveryFailed"            // a receiver could not be told
	ReasonNoReceivers         = "NoReceivers"               // spec.notifications is empty
	ReasonVolumeMounted       = "VolumeMounted"             // the store is on a volume that outlives the pod
	ReasonEphemeralVolume     = "EphemeralVolume"           // the store goes with the pod
	ReasonVolumeFull          = "VolumeFull"                // the store's volume has no room left
	ReasonVolumeReadOnly      = "VolumeReadOnly"            // the store cannot be written
	ReasonVolumeFailed        = "VolumeFailed"              // the store's volume answers with errors
	ReasonStoreCorrupt        = "StoreCorrupt"              // the store's file is damaged
	ReasonStoreMovedAway      = "StoreMovedAway"            // the store's file was moved away under the running manager
	ReasonDataAnomaly         = "VulnerabilityDataAnomaly"  // too many findings went with one version of the data
	ReasonInForce             = "InForce"                   // the exception covers what it selects
	ReasonExpired             = "Expired"                   // the exception has ended
	ReasonInvalidSelector     = "InvalidSelector"           // the exception selects nothing, since it is wrong
	ReasonUnknownReceiver     = "UnknownReceiver"           // pods name a receiver that the Scanner does not have
	ReasonAnotherOperator     = "AnotherOperator"           // two operators work on the same Scanner
	ReasonInvalidPodSelector  = "InvalidPodSelector"        // spec.podSelector selects nothing, since it is wrong
	ReasonTooManyScanners     = "TooManyScanners"           // the namespace has more Scanners than the operator works for
	ReasonMissingRights       = "MissingRights"             // the operator may not do all that it needs to in the namespace
	ReasonOutdatedKinds       = "OutdatedKinds"             // the cluster's definitions of the operator's kinds are older than the operator

	ReasonPending    = "Pending"    // waiting for a free place
	ReasonCataloging = "Cataloging" // the image's content is being listed
	ReasonMatching   = "Matching"   // the content is being matched with vulnerability data
	ReasonUnused     = "Unused"     // no pod uses the image any more

	// ReasonNotPulled says that a node could not pull the image, so that nothing of it runs and its digest is not known.
	ReasonNotPulled = "NotPulled"
	// ReasonBareImageID says that the node knows the image only by the id of its configuration: built or loaded there.
	ReasonBareImageID = "BareImageID"
	// ReasonVolumeDigestUnknown says that a pod mounts the image, and the node does not report which one that is.
	ReasonVolumeDigestUnknown = "VolumeDigestUnknown"
	// ReasonPodUnschedulable says that no node can take the only pods with the image.
	ReasonPodUnschedulable = "PodUnschedulable"
	// ReasonNodeUnknown says that the platform of the pods' node is not known (yet): the node has gone, or reports none.
	ReasonNodeUnknown = "NodeUnknown"
	// ReasonTooManyImages says that the namespace has as many ImageScans as it may: no more are made for its images.
	ReasonTooManyImages = "TooManyImages"
	// ReasonStoreBudgetExceeded says that the namespace's images have used up their room in the operator's store: new ones are not scanned.
	ReasonStoreBudgetExceeded = "StoreBudgetExceeded"
	// ReasonLeftBehind is that of an event: what an engine keeps elsewhere could not be undone in time, and stays there.
	ReasonLeftBehind = "LeftBehind"
	// ReasonPodChangeRefused is that of an event: the API server does not let the operator mark pods.
	ReasonPodChangeRefused = "PodChangeRefused"
)
