package restapi

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// problemOrder is the order in which people should look at problems.
var problemOrder = []restv1.ScannerProblem{
	restv1.ProblemStalled, restv1.ProblemSuspended, restv1.ProblemEngineUnavailable, restv1.ProblemDataOutdated, restv1.ProblemFailedImages,
	restv1.ProblemMessagesFailing, restv1.ProblemNoReceiver,
}

// problemsOf returns what keeps a scanner's results from being complete, current or announced, in problemOrder. A condition that is not known
// yet is no problem: the coverage of a response counts new scanners.
func problemsOf(status *v1alpha1.ScannerStatus, suspend *bool) []restv1.ScannerProblem {
	engine := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionBackendAvailable)
	messages := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionNotificationsDelivered)
	has := map[restv1.ScannerProblem]bool{
		restv1.ProblemStalled:         meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled),
		restv1.ProblemSuspended:       ptr.Deref(suspend, false),
		restv1.ProblemFailedImages:    status.Images.Failed > 0,
		restv1.ProblemMessagesFailing: messages != nil && messages.Status == metav1.ConditionFalse,
		restv1.ProblemNoReceiver:      messages != nil && messages.Reason == v1alpha1.ReasonNoReceivers,
	}
	switch {
	case engine == nil || engine.Status == metav1.ConditionTrue && engine.Reason == v1alpha1.ReasonAvailable:
	case engine.Status == metav1.ConditionTrue:
		has[restv1.ProblemDataOutdated] = true
	default:
		has[restv1.ProblemEngineUnavailable] = true
	}
	problems := []restv1.ScannerProblem{}
	for _, problem := range problemOrder {
		if has[problem] {
			problems = append(problems, problem)
		}
	}
	return problems
}

// healthOf counts the problems of the scanners that the caller sees, and the namespaces that are not scanned.
func (a operations) healthOf(ctx context.Context, seen sight) (restv1.Health, error) {
	own, clusterWide := map[restv1.ScannerProblem]int{}, map[restv1.ScannerProblem]int{}
	for i := range seen.scanners {
		if s := &seen.scanners[i]; seen.includes(s.Namespace) {
			for _, problem := range problemsOf(&s.Status, s.Spec.Suspend) {
				own[problem]++
			}
		}
	}
	for _, s := range seen.clusterWide {
		if seen.all && seen.namespace == "" || slices.ContainsFunc(s.covered, seen.includes) {
			for _, problem := range problemsOf(&s.Status.ScannerStatus, s.Spec.Suspend) {
				clusterWide[problem]++
			}
		}
	}
	health := restv1.Health{Scanners: []restv1.ProblemCount{}}
	for _, problem := range problemOrder {
		if own[problem]+clusterWide[problem] > 0 {
			health.Scanners = append(health.Scanners, restv1.ProblemCount{Problem: problem, Scanners: own[problem], ClusterScanners: clusterWide[problem]})
		}
	}
	names, err := a.unscannedNamespaces(ctx, seen)
	if err != nil || seen.namespace != "" {
		return health, err
	}
	scanned := seen.scannedNamespaces()
	for _, name := range names {
		if _, isScanned := slices.BinarySearch(scanned, name); !isScanned && !seen.clusterWide.exclude(name) {
			health.UnscannedNamespaces++
		}
	}
	return health, nil
}

// exclude reports whether a ClusterScanner names a namespace as one that it does not scan.
func (all coveringScanners) exclude(namespace string) bool {
	return slices.ContainsFunc(all, func(scanner coveringScanner) bool {
		return slices.Contains(scanner.Spec.ExcludeNamespaces, namespace)
	})
}
