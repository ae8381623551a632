package backend

// Reasons of worker Jobs that the manager determines, in addition to those that workers report (package workerapi). Some are also shown while a Job still
// waits to start.
const (
	ReasonJobRejected       = "JobRejected"           // the API server rejected the Job
	ReasonNoPod             = "NoPod"                 // the Job controller made no pod
	ReasonAccountMissing    = "ServiceAccountMissing" // the namespace has no ServiceAccount for the Job
	ReasonResourceQuota     = "ResourceQuota"         // the namespace's ResourceQuota is exhausted
	ReasonLimitRange        = "LimitRange"            // the namespace's LimitRange forbids the Job's resources
	ReasonPodSecurity       = "PodSecurity"           // the namespace's pod security level forbids the pod
	ReasonPolicyDenied      = "PolicyDenied"          // a policy engine or webhook denied the Job or its pod
	ReasonPolicyUnavailable = "PolicyUnavailable"     // a webhook that has to decide does not answer
	ReasonUnschedulable     = "Unschedulable"         // no node fits the pod
	ReasonWorkerNotPulled   = "WorkerImageNotPulled"  // the worker image cannot be pulled
	ReasonNotStarted        = "NotStarted"            // the pod waits for something else
	ReasonOutOfMemory       = "OutOfMemory"           // the worker was OOM-killed
	ReasonDeadline          = "DeadlineExceeded"      // the Job took longer than its deadline
	ReasonEvicted           = "Evicted"               // the node or the scheduler evicted the pod
	ReasonNodeLost          = "NodeLost"              // the pod's node does not report any more
	ReasonPodDeleted        = "PodDeleted"            // somebody deleted the pod
	ReasonJobDeleted        = "JobDeleted"            // somebody deleted the Job
	ReasonUploadMissing     = "UploadMissing"         // the worker succeeded but delivered no result
	ReasonWorkerSilent      = "WorkerSilent"          // a running worker has made no request for longer than a lease
	ReasonWorkerCrashed     = "WorkerCrashed"         // the worker exited without reporting a reason
)

// Reasons of the backend for Clair, in addition to those of registries (package workerapi). Reasons about Clair itself appear in the Scanner's
// condition, and on its images while they wait.
const (
	ReasonClairNotAllowed      = "ClairNotAllowed"      // the operator's configuration does not list this Clair
	ReasonClairSettings        = "ClairSettingsInvalid" // the Scanner's settings for Clair are invalid
	ReasonClairUnavailable     = "ClairUnavailable"     // Clair cannot be reached or is broken, or the server is not Clair
	ReasonClairUnauthorized    = "ClairUnauthorized"    // Clair rejects the Scanner's pre-shared key
	ReasonClairSecretMissing   = "ClairSecretMissing"   // the Secret with the pre-shared key is missing or invalid
	ReasonClairSecretForbidden = "ClairSecretForbidden" // the operator may not read the Secret with the pre-shared key
	ReasonPullSecretForbidden  = "PullSecretForbidden"  // the registry requires credentials, and the operator may not read the pull secrets
	ReasonClairIndexFailed     = "ClairIndexFailed"     // Clair works but cannot index the image
	ReasonClairReportFailed    = "ClairReportFailed"    // Clair works but returns no usable report of the image
	ReasonClairImageLost       = "ClairLostImage"       // Clair repeatedly does not know an image that it indexed before
)
