package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// reasonTimeout is the maximum time until the reason is in the ImageScan's condition.
const reasonTimeout = 2 * time.Minute

// Each obstacle that a namespace's administrator can create for a Job has a reason in the ImageScan's condition, and the scan succeeds
// when the obstacle is removed.
func TestNamespaceRefusesJobs(t *testing.T) {
	for _, tt := range []struct {
		name, obstacle, reason string
		words                  []string
		// inForce is a command that is refused once the obstacle is effective: the API server applies a new policy with a delay.
		inForce []string
	}{
		{
			name: "ResourceQuota below the ladder", reason: "ResourceQuota", words: []string{"quota"},
			obstacle: "{apiVersion: v1, kind: ResourceQuota, metadata: {name: obstacle, namespace: NS}, spec: {hard: {pods: '1'}}}",
		},
		{
			name: "LimitRange below the ladder", reason: "LimitRange", words: []string{"memory"},
			obstacle: "{apiVersion: v1, kind: LimitRange, metadata: {name: obstacle, namespace: NS}, spec: {limits: [{type: Container, max: {memory: 64Mi}}]}}",
		},
		{name: "a policy engine rejects the Job", reason: "PolicyDenied", words: []string{"cost-center"}, obstacle: policyOn("jobs", "batch"), inForce: []string{"create", "job"}},
		{name: "a policy engine rejects the Job's pod", reason: "PolicyDenied", words: []string{"cost-center"}, obstacle: policyOn("pods", ""), inForce: []string{"run"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := namespaceWithSecret(t)
			obstacle := strings.ReplaceAll(tt.obstacle, "NS", ns)
			must(t, env.ApplyText(t.Context(), obstacle))
			t.Cleanup(func() { must(t, env.DeleteText(context.Background(), obstacle)) })
			if tt.inForce != nil {
				waitFor(t, "the policy to be in force", func(ctx context.Context) error {
					if _, err := env.Kubectl(ctx, append(tt.inForce, "probe", "--image=probe", "--dry-run=server", "--namespace", ns)...); err == nil {
						return errors.New("it lets everything pass")
					}
					return nil
				})
			}
			must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
			requireFailure(t, ns, tt.reason, tt.words...)
			requireOthersScanned(t)
			must(t, env.DeleteText(t.Context(), obstacle))
			// Deleting the ImageScan causes a retry before the operator's backoff ends.
			_, err := env.Kubectl(t.Context(), "--namespace", ns, "delete", "imagescans", "--all")
			must(t, err)
			must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
		})
	}
}

// policyOn returns an admission policy that requires a label on new Jobs or pods, as policy engines do.
func policyOn(resource, group string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NS}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [%q], apiVersions: [v1], operations: [CREATE], resources: [%s]}]}
  validations:
  - expression: "has(object.metadata.labels) && 'cost-center' in object.metadata.labels"
    message: "the label cost-center is missing"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NS}
spec:
  policyName: NS
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}}
`, group, resource)
}

// A namespace that enforces the restricted Pod Security Standard accepts the Jobs unchanged.
func TestRestrictedPodSecurity(t *testing.T) {
	t.Parallel()
	ns := namespaceWithSecret(t)
	_, err := env.Kubectl(t.Context(), "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
	must(t, err)
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
}

// With a sidecar that never ends in every pod of the namespace, the Job's pod keeps running. Its result still counts, and the Job is
// deleted.
func TestSidecarInjection(t *testing.T) {
	ns := namespaceWithSecret(t)
	mutatePods(t, ns, fmt.Sprintf(`JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "sidecar", image: %q}}`,
		env.Reference(images.Static)), "sidecar")
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	must(t, wait.Eventually(t.Context(), deletionTimeout, wait.Normally, func(ctx context.Context) error { return noJobs(ctx, ns) }))
}

// mutatePods mutates new pods of a namespace, as service meshes and policy engines do, and waits until the mutation is effective.
func mutatePods(t *testing.T, ns, change, sign string) {
	t.Helper()
	served, err := env.Kubectl(t.Context(), "get", "--raw", "/apis/admissionregistration.k8s.io/v1")
	must(t, err)
	if !strings.Contains(served, `"mutatingadmissionpolicies"`) {
		t.Skip("pods are changed by a MutatingAdmissionPolicy, which this Kubernetes does not serve: from 1.36 on")
	}
	policy := strings.ReplaceAll(fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NS}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[%s]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NS}
spec:
  policyName: NS
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}}
`, change), "NS", ns)
	must(t, env.ApplyText(t.Context(), policy))
	t.Cleanup(func() { must(t, env.DeleteText(context.Background(), policy)) })
	waitFor(t, "the policy to be in force", func(ctx context.Context) error {
		made, err := env.Kubectl(ctx, "run", "probe", "--image=probe", "--dry-run=server", "--namespace", ns, "--output=yaml")
		if err == nil && !strings.Contains(made, sign) {
			err = errors.New("it changes nothing")
		}
		return err
	})
}

// The worker's own image cannot be pulled: a mutation replaces it by one of a registry that does not exist.
func TestWorkerImageIsNotPulled(t *testing.T) {
	ns := namespaceWithSecret(t)
	mutatePods(t, ns, `JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "registry.invalid/mirror/scanner-grype:v1"}`, "registry.invalid")
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	requireFailure(t, ns, "WorkerImageNotPulled", "the worker's image cannot be pulled", "registry.invalid")
	requireOthersScanned(t)
}

// A namespace that is deleted during a scan is deleted promptly and does not delay other namespaces.
func TestNamespaceIsDeleted(t *testing.T) {
	ns := namespaceWithSecret(t)
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	waitFor(t, "a catalog Job", func(ctx context.Context) error {
		if noJobs(ctx, ns) == nil {
			return fmt.Errorf("there is none in %s", ns)
		}
		return nil
	})
	_, err := env.Kubectl(t.Context(), "delete", "namespace", ns, "--timeout=90s")
	must(t, err)
	requireOthersScanned(t)
}

// No node has enough memory for the Job.
func TestNoNodeWithRoom(t *testing.T) {
	ns := namespace(t, "refusing")
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	_, err := env.Kubectl(t.Context(), "--namespace", ns, "patch", "scanner", scenario.ScannerName, "--type=merge",
		"--patch", `{"spec":{"backend":{"grype":{"job":{"resources":{"requests":{"memory":"900Ti"}}}}}}}`)
	must(t, err)
	// The pod comes after the manager has read the change. A Job with the earlier request would scan the image.
	_, err = env.Kubectl(t.Context(), "--namespace", ns, "wait", "scanner", scenario.ScannerName, "--for=jsonpath={.status.observedGeneration}=2", "--timeout=60s")
	must(t, err)
	runPodWithSecret(t, ns)
	requireFailure(t, ns, "Unschedulable", "memory")
	requireOthersScanned(t)
}

// namespaceWithSecret creates a namespace with the pod of runPodWithSecret.
func namespaceWithSecret(t *testing.T) string {
	t.Helper()
	ns := namespace(t, "refusing")
	runPodWithSecret(t, ns)
	return ns
}

// runPodWithSecret runs a pod that names a pull secret it does not need. Because of the secret, the image is cataloged in the pod's own
// namespace.
func runPodWithSecret(t *testing.T, ns string) {
	t.Helper()
	pod := variants(t, ns, 1)[0]
	pod.PullSecrets = []string{"not-there"}
	must(t, env.RunPods(t.Context(), ns, pod))
}

// requireOthersScanned runs a pod in another namespace and waits for its result.
func requireOthersScanned(t *testing.T) {
	t.Helper()
	ns := namespace(t, "other")
	must(t, env.RunPods(t.Context(), ns, variants(t, ns, 1)...))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
}

// readyMessage returns the message of an image that is not scanned for a reason; an error unless the message contains the words.
func readyMessage(scan *v1alpha1.ImageScan, reason string, words []string) (string, error) {
	ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case scan.Status.Phase == v1alpha1.PhaseScanned || scan.Status.Findings != nil:
		return "", wait.Final(fmt.Errorf("an image that cannot be scanned has a result: %+v", scan.Status))
	case ready == nil || ready.Reason != reason:
		return "", fmt.Errorf("Ready is %+v", ready)
	}
	for _, word := range words {
		if !strings.Contains(ready.Message, word) {
			return "", fmt.Errorf("the message does not speak of %q: %s", word, ready.Message)
		}
	}
	return ready.Message, nil
}
