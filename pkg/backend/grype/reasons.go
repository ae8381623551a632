package grype

// Reasons that the manager finds, beside those that a worker reports (package workerapi). Some are also shown while
// the Job still waits for better times.
const (
	ReasonJobRejected       = "JobRejected"          // the API server did not take the Job
	ReasonNoPod             = "NoPod"                // no pod was made for the Job
	ReasonResourceQuota     = "ResourceQuota"        // the namespace's ResourceQuota has no room for it
	ReasonLimitRange        = "LimitRange"           // the namespace's LimitRange does not allow it
	ReasonPodSecurity       = "PodSecurity"          // the namespace's pod security level does not allow it
	ReasonPolicyDenied      = "PolicyDenied"         // a policy engine or webhook does not allow it
	ReasonPolicyUnavailable = "PolicyUnavailable"    // a webhook that is to decide does not answer
	ReasonUnschedulable     = "Unschedulable"        // no node has room, or may run it
	ReasonWorkerNotPulled   = "WorkerImageNotPulled" // the worker's own image cannot be pulled
	ReasonNotStarted        = "NotStarted"           // its pod waits for something else
	ReasonOutOfMemory       = "OutOfMemory"          // the worker was killed for its memory
	ReasonDeadline          = "DeadlineExceeded"     // it took too long
	ReasonEvicted           = "Evicted"              // its node or the scheduler wanted it gone
	ReasonNodeLost          = "NodeLost"             // its node does not report any more
	ReasonPodDeleted        = "PodDeleted"           // somebody deleted its pod
	ReasonJobDeleted        = "JobDeleted"           // somebody deleted it
	ReasonUploadMissing     = "UploadMissing"        // it ended well and brought nothing
	ReasonWorkerSilent      = "WorkerSilent"         // it runs, and has made no request for longer than a lease
	ReasonWorkerCrashed     = "WorkerCrashed"        // it died without a word
)
