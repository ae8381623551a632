package grype

// Reasons that the manager determines, in addition to those that workers report (package workerapi). Some are also shown while a Job still
// waits to start.
const (
	ReasonJobRejected       = "JobRejected"          // the API server rejected the Job
	ReasonNoPod             = "NoPod"                // the Job controller made no pod
	ReasonResourceQuota     = "ResourceQuota"        // the namespace's ResourceQuota is exhausted
	ReasonLimitRange        = "LimitRange"           // the namespace's LimitRange forbids the Job's resources
	ReasonPodSecurity       = "PodSecurity"          // the namespace's pod security level forbids the pod
	ReasonPolicyDenied      = "PolicyDenied"         // a policy engine or webhook denied the Job or its pod
	ReasonPolicyUnavailable = "PolicyUnavailable"    // a webhook that has to decide does not answer
	ReasonUnschedulable     = "Unschedulable"        // no node fits the pod
	ReasonWorkerNotPulled   = "WorkerImageNotPulled" // the worker image cannot be pulled
	ReasonNotStarted        = "NotStarted"           // the pod waits for something else
	ReasonOutOfMemory       = "OutOfMemory"          // the worker was OOM-killed
	ReasonDeadline          = "DeadlineExceeded"     // the Job took longer than its deadline
	ReasonEvicted           = "Evicted"              // the node or the scheduler evicted the pod
	ReasonNodeLost          = "NodeLost"             // the pod's node does not report any more
	ReasonPodDeleted        = "PodDeleted"           // somebody deleted the pod
	ReasonJobDeleted        = "JobDeleted"           // somebody deleted the Job
	ReasonUploadMissing     = "UploadMissing"        // the worker succeeded but delivered no result
	ReasonWorkerSilent      = "WorkerSilent"         // a running worker has made no request for longer than a lease
	ReasonWorkerCrashed     = "WorkerCrashed"        // the worker exited without reporting a reason
)
