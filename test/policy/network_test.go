package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// restricted returns the objects of an installation with network policies and Clair, which has all connections of the table in
// docs/understand/security-networks.md.
func restricted(t *testing.T, namespace string) []unstructured.Unstructured {
	t.Helper()
	objects, err := decode(render(t, above(t, overlay(t, namespace), "components/network-policy", "components/clair-trial")))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// ends returns the ends of connections: the pods of Deployments by name, and examples of others.
func ends(t *testing.T, objects []unstructured.Unstructured, namespace string) map[string]end {
	t.Helper()
	found := map[string]end{
		"catalog worker":     {namespace: shop, labels: golden(t, "catalog-job-private.yaml").Spec.Template.Labels},
		"worker":             {namespace: namespace, labels: golden(t, public).Spec.Template.Labels},
		"match worker":       {namespace: namespace, labels: golden(t, match).Spec.Template.Labels},
		"tenant":             {namespace: shop, labels: map[string]string{"app": "web"}},
		"tenant as operator": {namespace: shop, labels: map[string]string{"app.kubernetes.io/name": "scanner-operator", "app.kubernetes.io/component": "manager"}},
		"neighbour":          {namespace: namespace, labels: map[string]string{"app": "web"}},
		"dns":                {namespace: "kube-system", labels: map[string]string{"k8s-app": "kube-dns"}},
		"internet":           {address: "203.0.113.7"}, "internet v6": {address: "2001:db8::7"},
		"inside": {address: "10.1.2.3"}, "inside v6": {address: "fd00::7"}, "metadata": {address: "169.254.169.254"},
	}
	for i := range objects {
		if objects[i].GetKind() == "Deployment" {
			template := deployment(t, &objects[i]).Spec.Template
			found[objects[i].GetName()] = end{namespace: objects[i].GetNamespace(), labels: template.Labels, ports: template.Spec.Containers[0].Ports}
		}
	}
	return found
}

// kubeletOnly are ports that only the kubelet connects to.
var kubeletOnly = map[string]bool{"probes": true}

// traffic lists for each row of the table the allowed connections, as "from to port".
var traffic = map[string][]string{
	"workers, in the operator's and in Scanners' namespaces → manager (`scanner-operator-ingest`)": {
		"worker scanner-operator-manager 9443", "match worker scanner-operator-manager 9443", "catalog worker scanner-operator-manager 9443"},
	"workers → registries, mirrors, proxies; match workers: the vulnerability database": {
		"worker internet 443", "match worker internet 443", "worker internet v6 443"},
	"callers of the REST API → manager (`scanner-operator-api`)": {"tenant scanner-operator-manager 8444"},
	"manager → the database's listing (`grype.database.url`), the Kubernetes API": {
		"scanner-operator-manager internet 443", "scanner-operator-manager inside 443", "scanner-operator-manager inside 6443", "scanner-operator-manager inside v6 6443"},
	"manager → notifier (`scanner-operator-notifier`)": {"scanner-operator-manager scanner-operator-notifier 8443"},
	"notifier → the Kubernetes API, the hosts of `--allowed-webhook-hosts` and `--slack-api-url`": {
		"scanner-operator-notifier internet 443", "scanner-operator-notifier inside 6443"},
	"Clair, where its webhooks are enabled → notifier": {"clair scanner-operator-notifier 8444"},
	"manager, with Clair → the Clairs of `clair.instances`, and the registries and mirrors of images": {
		"scanner-operator-manager clair 6060", "scanner-operator-manager internet 443"},
	"Clair → the registries and mirrors of images, the sources of its advisories": {"clair internet 443"},
	"Clair → its database": {"clair clair-database 5432"},
	"notifier, where Clair's webhooks are enabled → the Clairs of `clair.instances`": {"scanner-operator-notifier clair 6060"},
	"Prometheus → manager, notifier":                                                 {"tenant scanner-operator-manager 8443", "tenant scanner-operator-notifier 8080"},
	"all of them → the cluster's DNS": {
		"worker dns 53", "match worker dns 53", "scanner-operator-manager dns 53", "scanner-operator-notifier dns 53", "clair dns 53"},
}

// forbidden are connections that the network policies must prevent.
var forbidden = []string{
	"tenant scanner-operator-manager 9443", "neighbour scanner-operator-manager 9443", "tenant scanner-operator-notifier 8443",
	"neighbour scanner-operator-notifier 8443", "tenant as operator scanner-operator-notifier 8443", "tenant clair 6060", "tenant as operator clair 6060",
	"tenant clair-database 5432", "scanner-operator-manager clair-database 5432", "worker clair 6060",
	"worker inside 443", "match worker inside 443", "worker inside v6 443", "worker metadata 443", "worker internet 80", "worker scanner-operator-notifier 8443",
	"worker scanner-operator-manager 8444", "worker tenant 443", "tenant worker 8080",
	"scanner-operator-manager internet 80", "scanner-operator-manager metadata 443", "scanner-operator-notifier metadata 443",
	"scanner-operator-notifier scanner-operator-manager 9443", "scanner-operator-notifier tenant 8080", "scanner-operator-manager tenant 8080",
	"scanner-operator-manager inside 80", "scanner-operator-notifier inside 80",
	"clair inside 443", "clair metadata 443", "clair scanner-operator-manager 8444", "clair-database internet 443",
}

// connection parses "from to port", in which the names of ends may contain spaces.
func connection(t *testing.T, text string, known map[string]end) (from, to end, port networkingv1.NetworkPolicyPort) {
	t.Helper()
	last := strings.LastIndex(text, " ")
	names, number := text[:last], text[last+1:]
	port = networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.Parse(number))}
	for name := range known {
		rest, begins := strings.CutPrefix(names, name+" ")
		if other, there := known[rest]; begins && there {
			return known[name], other, port
		}
	}
	t.Fatalf("who is meant by %q?", text)
	return end{}, end{}, port
}

// The documented connections are allowed, and the forbidden ones are not, in any namespace.
func TestOnlyDocumentedConnectionsAreAllowed(t *testing.T) {
	for _, namespace := range []string{home, "scanning"} {
		objects := restricted(t, namespace)
		policies, known := networkOf(t, objects), ends(t, objects, namespace)
		if len(policies) != 5 {
			t.Fatalf("want policies for manager, notifier, workers, Clair and its database, got %d", len(policies))
		}
		for row, connections := range traffic {
			for _, text := range connections {
				if from, to, port := connection(t, text, known); !policies.allows(t, from, to, port) {
					t.Errorf("in %s: %s: %q is shut", namespace, row, text)
				}
			}
		}
		for _, text := range forbidden {
			if from, to, port := connection(t, text, known); policies.allows(t, from, to, port) {
				t.Errorf("in %s: %q is open", namespace, text)
			}
		}
	}
}

// The documented table and this test have the same rows.
func TestDocumentedNetworksAreTested(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "understand", "security-networks.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Networks\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]bool{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && !strings.HasPrefix(line, "|---") && !strings.HasPrefix(line, "| from") {
			rows[strings.TrimSpace(cells[1])+" → "+strings.TrimSpace(cells[2])] = true
		}
	}
	for row := range traffic {
		if !rows[row] {
			t.Errorf("docs/understand/security-networks.md has no row %q", row)
		}
	}
	for row := range rows {
		if traffic[row] == nil {
			t.Errorf("nothing tests the network policies for %q", row)
		}
	}
}

// Each container port and each target of a Service is reachable from at least one end, except for ports of the kubelet.
func TestEachPortIsReached(t *testing.T) {
	objects := restricted(t, home)
	policies, known := networkOf(t, objects), ends(t, objects, home)
	reached := func(to end, number int32) bool {
		port := networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(number))}
		for _, from := range known {
			if from.address == "" && policies.allows(t, from, to, port) {
				return true
			}
		}
		return false
	}
	for _, name := range []string{manager, notifier} {
		for _, port := range known[name].ports {
			if reached(known[name], port.ContainerPort) == kubeletOnly[port.Name] {
				t.Errorf("that somebody may reach port %s of %s is %v", port.Name, name, kubeletOnly[port.Name])
			}
		}
	}
	services := 0
	for _, object := range objects {
		var service corev1.Service
		if object.GetKind() != "Service" || object.GetNamespace() != home {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &service); err != nil {
			t.Fatal(err)
		}
		services++
		for _, port := range service.Spec.Ports {
			if !hasTarget(t, service, port, known) || kubeletOnly[port.TargetPort.StrVal] {
				t.Errorf("Service %s: port %s leads nowhere", service.Name, port.Name)
			}
		}
	}
	if services < 4 {
		t.Errorf("only %d Services were looked at", services)
	}
}

func hasTarget(t *testing.T, service corev1.Service, port corev1.ServicePort, known map[string]end) bool {
	t.Helper()
	for _, to := range known {
		for _, has := range to.ports {
			if to.namespace == service.Namespace && has.Name == port.TargetPort.StrVal && selected(t, &metav1.LabelSelector{MatchLabels: service.Spec.Selector}, to.labels) {
				return true
			}
		}
	}
	return false
}

// The API server accepts the policies, and each selects the pods of one component.
func TestNetworkPoliciesSelectTheOperatorsPods(t *testing.T) {
	c := sharedCluster(t)
	objects := restricted(t, home)
	known := ends(t, objects, home)
	strict := client.WithFieldValidation(c.admin, metav1.FieldValidationStrict)
	for _, policy := range networkOf(t, objects) {
		if policy.Namespace != home {
			continue
		}
		if err := strict.Create(t.Context(), policy.DeepCopy(), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", policy.Name, err)
		}
		for what, name := range map[string]string{manager: manager, notifier: notifier, "worker": home, "match worker": home, "neighbour": "", "clair": ""} {
			if name == home {
				name = "scanner-operator-workers"
			}
			if got := selected(t, &policy.Spec.PodSelector, known[what].labels); got != (policy.Name == name) {
				t.Errorf("%s: that network policy %s selects it is %v", what, policy.Name, got)
			}
		}
	}
}
