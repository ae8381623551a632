package v1alpha1

// Finalizers of a Scanner.
const (
	// FinalizerPods blocks the deletion of a Scanner until the Scanner's finalizers are removed from all pods.
	FinalizerPods = "scanner-operator.io/pod-finalizers"
	// FinalizerManifests blocks the deletion of a Scanner until no engine holds anything on the Scanner's behalf, or until a timeout.
	FinalizerManifests = "scanner-operator.io/backend-manifests"
)
