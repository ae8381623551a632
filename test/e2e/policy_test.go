package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// thief returns a client with a token of the manager, like an attacker who read the token from the manager's pod.
func thief(t *testing.T) client.Client {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: scenario.SystemNamespace, Name: managerAccount}}
	request := &authenticationv1.TokenRequest{}
	must(t, env.Client.SubResource("token").Create(t.Context(), account, request))
	settings, err := config.GetConfig()
	must(t, err)
	settings = rest.AnonymousClientConfig(settings)
	settings.BearerToken = request.Status.Token
	made, err := client.New(settings, client.Options{})
	must(t, err)
	return made
}

// A stolen manager token cannot change a pod's image or create another kind of Job. All other tests on the same cluster show that the
// manager itself can work.
func TestStolenManagerToken(t *testing.T) {
	ns := namespace(t, "stolen")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "static", Image: env.Reference(images.Static)}))
	stolen := thief(t)

	var pods corev1.PodList
	must(t, env.Client.List(t.Context(), &pods, client.InNamespace(ns)))
	if len(pods.Items) == 0 {
		t.Fatal("no pod runs")
	}
	pod := &pods.Items[0]
	name := pod.Spec.Containers[0].Name
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":%q}]}}`, name, env.Reference(images.API))
	refused(t, "pods", stolen.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	must(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if image := pod.Spec.Containers[0].Image; image != env.Reference(images.Static) {
		t.Errorf("the pod's image is now %s", image)
	}

	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "scan-catalog-stolen", Labels: map[string]string{"app.kubernetes.io/managed-by": "scanner-operator"}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "worker", Image: env.Reference(images.Static), Args: []string{"catalog"}}},
		}}},
	}
	refused(t, "jobs", stolen.Create(t.Context(), job))
}

func refused(t *testing.T, policy string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'scanner-operator-manager-"+policy+"'") {
		t.Errorf("want the admission policy for %s to refuse it, got: %v", policy, err)
	}
}

// The API server's type check of the policies reports no warnings.
func TestPoliciesAreWellTyped(t *testing.T) {
	waitFor(t, "the policies to be checked", func(ctx context.Context) error {
		var policies admissionv1.ValidatingAdmissionPolicyList
		if err := env.Client.List(ctx, &policies); err != nil {
			return err
		}
		checked := 0
		for _, policy := range policies.Items {
			if !strings.HasPrefix(policy.Name, "scanner-operator-") {
				continue
			}
			checked++
			switch result := policy.Status.TypeChecking; {
			case policy.Status.ObservedGeneration != policy.Generation || result == nil:
				return fmt.Errorf("policy %s is not checked yet", policy.Name)
			case len(result.ExpressionWarnings) > 0:
				return wait.Final(fmt.Errorf("policy %s: %+v", policy.Name, result.ExpressionWarnings))
			}
		}
		if checked == 0 {
			return errors.New("there are none")
		}
		return nil
	})
}
