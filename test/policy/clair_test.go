package policy

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// withClair writes the documented kustomization of the operator with Clair.
func withClair(t *testing.T) string {
	t.Helper()
	dir := above(t, filepath.Join(config, "default"), "components/clair-trial")
	write(t, filepath.Join(dir, "config.yaml"), "clair: {instances: [{url: http://clair.clair.svc:6060}]}\n")
	add(t, dir, `
configMapGenerator:
- {name: scanner-operator-config, namespace: scanner-operator-system, behavior: replace, files: [config.yaml]}
`)
	return dir
}

// The component's objects are valid, and its pods satisfy the Pod Security Standard of their namespace.
func TestClairComponentIsValid(t *testing.T) {
	c := sharedCluster(t)
	objects, err := decode(render(t, withClair(t)))
	if err != nil {
		t.Fatal(err)
	}
	strict := client.WithFieldValidation(c.admin, metav1.FieldValidationStrict)
	deployments := 0
	for i := range objects {
		object := &objects[i]
		switch {
		case object.GetKind() == "Namespace" && object.GetName() == "clair":
			if err := c.admin.Create(t.Context(), object.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		case object.GetNamespace() == "clair":
			if err := strict.Create(t.Context(), object.DeepCopy(), client.DryRunAll); err != nil {
				t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
			}
		}
		if object.GetKind() == "Deployment" && object.GetNamespace() == "clair" {
			deployments++
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "clair", Name: object.GetName()}, Spec: deployment(t, object).Spec.Template.Spec}
			if err := c.admin.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Errorf("a pod of %s: %v", object.GetName(), err)
			}
		}
	}
	if deployments != 2 {
		t.Errorf("want Clair and its database, got %d Deployments", deployments)
	}
}

// The notifier listens for Clair's webhooks and has the manager's configuration.
func TestClairComponentConfiguresTheNotifier(t *testing.T) {
	objects, err := decode(render(t, withClair(t)))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for i := range objects {
		for _, volume := range podVolumes(t, &objects[i]) {
			if volume.ConfigMap != nil && strings.HasPrefix(volume.ConfigMap.Name, "scanner-operator-config") {
				names[objects[i].GetName()] = volume.ConfigMap.Name
			}
		}
		if objects[i].GetName() != "scanner-operator-notifier" || objects[i].GetKind() != "Deployment" {
			continue
		}
		notifier := deployment(t, &objects[i]).Spec.Template.Spec.Containers[0]
		for _, want := range []string{"--clair-webhook-listen=:8444", "--clair-webhook-plain-http", "--config=/etc/scanner-operator-config/config.yaml"} {
			if !slices.Contains(notifier.Args, want) {
				t.Errorf("the notifier has the arguments %q, and not %s", notifier.Args, want)
			}
		}
	}
	if manager := names["scanner-operator-manager"]; manager == "" || names["scanner-operator-notifier"] != manager {
		t.Errorf("manager and notifier read different configurations: %v", names)
	}
}

func podVolumes(t *testing.T, object *unstructured.Unstructured) []corev1.Volume {
	t.Helper()
	if object.GetKind() != "Deployment" {
		return nil
	}
	return deployment(t, object).Spec.Template.Spec.Volumes
}

func deployment(t *testing.T, object *unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	var converted appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &converted); err != nil {
		t.Fatal(err)
	}
	return &converted
}

// Only the operator can reach Clair, from whatever namespace the operator is in. Clair cannot reach internal addresses that it does not
// need, since images determine the hosts that it connects to.
func TestClairComponentRestrictsNetworks(t *testing.T) {
	objects, err := decode(render(t, above(t, overlay(t, "scanning"), "components/clair-trial")))
	if err != nil {
		t.Fatal(err)
	}
	var policy networkingv1.NetworkPolicy
	for _, object := range objects {
		if object.GetKind() == "NetworkPolicy" && object.GetName() == "clair" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &policy); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(policy.Spec.PolicyTypes) != 2 || len(policy.Spec.Ingress) != 1 || len(policy.Spec.Ingress[0].From) != 1 || len(policy.Spec.Ingress[0].Ports) != 1 {
		t.Fatalf("want both ways shut but for one rule that leads in, got %+v", policy.Spec)
	}
	peers := policy.Spec.Ingress[0].From
	for _, rule := range policy.Spec.Egress {
		if len(rule.Ports) == 0 {
			t.Errorf("all ports of %v are open", rule.To)
		}
		peers = append(peers, rule.To...)
	}
	namespaces := []string{}
	for _, peer := range peers {
		if peer.NamespaceSelector != nil {
			namespaces = append(namespaces, peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"])
		}
		if block := peer.IPBlock; block != nil && block.CIDR == "0.0.0.0/0" && !slices.Contains(block.Except, "169.254.0.0/16") {
			t.Errorf("the metadata service is not left out of %v", block)
		}
	}
	if want := []string{"scanning", "kube-system", "scanning"}; !slices.Equal(namespaces, want) {
		t.Errorf("namespaces are %q, want %q", namespaces, want)
	}
}
