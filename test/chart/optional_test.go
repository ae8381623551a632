package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/config"
)

// Each switch adds its objects when it is on, and none of them when it is off.
func TestSwitches(t *testing.T) {
	for name, test := range map[string]struct {
		on, off string
		keys    []string
	}{
		"crds": {"", "crds: {enabled: false}", []string{"CustomResourceDefinition scanners.scanner-operator.io"}},
		"admission policies": {"", "admissionPolicies: {enabled: false}", []string{
			"ValidatingAdmissionPolicy scanner-operator-manager-pods", "ValidatingAdmissionPolicyBinding scanner-operator-manager-pods",
		}},
		"clean-up": {"", "cleanup: {enabled: false}", []string{
			cleanupKey, "ClusterRole scanner-operator-cleanup", "ClusterRoleBinding scanner-operator-cleanup",
			"ClusterRole scanner-operator-cleanup-cluster", "ClusterRoleBinding scanner-operator-cleanup-cluster",
			"Role " + namespace + "/scanner-operator-cleanup", "ServiceAccount " + namespace + "/scanner-operator-cleanup",
		}},
		"network policies": {"networkPolicy: {enabled: true}", "", []string{
			"NetworkPolicy " + namespace + "/scanner-operator-manager", "NetworkPolicy " + namespace + "/scanner-operator-notifier",
			"NetworkPolicy " + namespace + "/scanner-operator-workers",
		}},
		"ClusterScanner": {"clusterScanner: {enabled: true}", "", []string{
			"Job " + namespace + "/scanner-operator-apply", "ConfigMap " + namespace + "/scanner-operator-apply",
			"ClusterRole scanner-operator-apply", "ClusterRoleBinding scanner-operator-apply", "ServiceAccount " + namespace + "/scanner-operator-apply",
		}},
		"disruption budgets": {"manager: &on {podDisruptionBudget: {enabled: true}}\nnotifier: *on", "", []string{
			"PodDisruptionBudget " + namespace + "/scanner-operator-manager", "PodDisruptionBudget " + namespace + "/scanner-operator-notifier",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			on, off := rendered(t, test.on), rendered(t, test.off)
			for _, key := range test.keys {
				if on[key] == nil || off[key] != nil {
					t.Errorf("%s: want it when it is on (%t) and not when it is off (%t)", key, on[key] != nil, off[key] != nil)
				}
			}
		})
	}
}

// A disruption budget selects the pods of its component.
func TestDisruptionBudget(t *testing.T) {
	all := rendered(t, "manager: {podDisruptionBudget: {enabled: true, maxUnavailable: 0}}")
	budget := into[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget "+namespace+"/scanner-operator-manager")
	if diff := cmp.Diff(into[appsv1.Deployment](t, all, managerKey).Spec.Selector, budget.Spec.Selector); diff != "" || budget.Spec.MaxUnavailable.String() != "0" {
		t.Errorf("budget %v, pods of the Deployment (-) and of the budget (+):\n%s", budget.Spec.MaxUnavailable, diff)
	}
}

// Several replicas have a disruption budget, prefer different nodes and are replaced one by one. A single pod ends before the next one starts.
func TestReplicas(t *testing.T) {
	const server = "store: {type: PostgreSQL, dsnSecretRef: {name: a}}\n"
	for name, test := range map[string]struct {
		values   string
		replicas map[string]int32 // of manager and notifier
		lease    bool
	}{
		"one of each":      {"", map[string]int32{managerKey: 1, notifierKey: 1}, false},
		"with a server":    {server, map[string]int32{managerKey: 1, notifierKey: 1}, false},
		"two notifiers":    {"notifier: {replicas: 2}", map[string]int32{managerKey: 1, notifierKey: 2}, true},
		"three managers":   {server + "manager: {replicas: 3}", map[string]int32{managerKey: 3, notifierKey: 1}, true},
		"two of each":      {server + "manager: {replicas: 2}\nnotifier: {replicas: 2}", map[string]int32{managerKey: 2, notifierKey: 2}, true},
		"a budget for one": {"manager: {podDisruptionBudget: {enabled: true}}", map[string]int32{managerKey: 1, notifierKey: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			all := rendered(t, test.values)
			for key, replicas := range test.replicas {
				deployment := into[appsv1.Deployment](t, all, key).Spec
				spread, several := deployment.Template.Spec.TopologySpreadConstraints, replicas > 1
				if *deployment.Replicas != replicas || (deployment.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType) != several || (len(spread) == 1) != several {
					t.Errorf("%s: %d replicas, strategy %+v, constraints %+v, want %d replicas", key, *deployment.Replicas, deployment.Strategy, spread, replicas)
				}
				if several && (deployment.Strategy.RollingUpdate.MaxUnavailable.String() != "0" || !cmp.Equal(spread[0].LabelSelector, deployment.Selector) || spread[0].WhenUnsatisfiable != corev1.ScheduleAnyway) {
					t.Errorf("%s: strategy %+v, constraint %+v, want that no pod is missing during an update", key, deployment.Strategy.RollingUpdate, spread[0])
				}
				budget := strings.Replace(key, "Deployment", "PodDisruptionBudget", 1)
				if want := several || strings.Contains(test.values, "enabled: true") && key == managerKey; (all[budget] != nil) != want {
					t.Errorf("%s exists: %t, want %t", budget, !want, want)
				}
				if all[budget] != nil {
					checkDrain(t, into[policyv1.PodDisruptionBudget](t, all, budget).Spec)
				}
			}
			checkLease(t, all, test.lease)
		})
	}
	own := rendered(t, "notifier: {replicas: 2, topologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}")
	if got := podOf(t, own, notifierKey).TopologySpreadConstraints; len(got) != 1 || got[0].TopologyKey != "zone" {
		t.Errorf("constraints of the notifier are %+v, want those of the values", got)
	}
}

// checkDrain checks that a budget lets a drain evict a pod also if there is only one, and any pod that is not ready.
func checkDrain(t *testing.T, budget policyv1.PodDisruptionBudgetSpec) {
	t.Helper()
	policy := budget.UnhealthyPodEvictionPolicy
	if budget.MinAvailable != nil || budget.MaxUnavailable.String() != "1" || policy == nil || *policy != policyv1.AlwaysAllow {
		t.Errorf("budget %+v, want maxUnavailable 1, no minAvailable and unhealthyPodEvictionPolicy AlwaysAllow", budget)
	}
}

// checkLease checks that the notifier competes for a Lease, and may, exactly if it has to.
func checkLease(t *testing.T, all objects, want bool) {
	t.Helper()
	pod := podOf(t, all, notifierKey)
	_, hasIP := environment(pod)["POD_IP"]
	role := all["Role "+namespace+"/scanner-operator-notifier-lease"]
	for what, has := range map[string]bool{"the flag": slices.Contains(pod.Containers[0].Args, "--leader-elect"), "its address": hasIP, "the Role": role != nil} {
		if has != want {
			t.Errorf("the notifier has %s: %t, want %t", what, has, want)
		}
	}
	if !want {
		return
	}
	for _, rule := range into[rbacv1.Role](t, all, key(role)).Rules {
		if !slices.Equal(rule.Verbs, []string{"create"}) && !slices.Equal(rule.ResourceNames, []string{"scanner-operator-notifier"}) {
			t.Errorf("the notifier may %q Leases with the names %q, want only its own", rule.Verbs, rule.ResourceNames)
		}
	}
}

// A hook applies the ClusterScanner of the values, and is allowed to change no other. The clean-up deletes it.
func TestClusterScanner(t *testing.T) {
	all := rendered(t, "clusterScanner: {enabled: true, name: all, spec: {namespaceSelector: {matchLabels: {scan: 'yes'}}, excludeNamespaces: [lab]}}")
	applied := decode(t, into[corev1.ConfigMap](t, all, "ConfigMap "+namespace+"/scanner-operator-apply").Data["clusterscanner.yaml"])["ClusterScanner all"]
	if applied == nil || all["ClusterScanner all"] != nil {
		t.Fatal("the ClusterScanner must be in the ConfigMap, and not in the release")
	}
	var scanner v1alpha1.ClusterScanner
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(applied.Object, &scanner, true); err != nil {
		t.Error(err)
	}
	want := v1alpha1.ClusterScannerSpec{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"scan": "yes"}}, ExcludeNamespaces: []string{"lab"},
	}
	if diff := cmp.Diff(want, scanner.Spec); diff != "" {
		t.Errorf("the spec (-values +applied):\n%s", diff)
	}
	for _, rule := range into[rbacv1.ClusterRole](t, all, "ClusterRole scanner-operator-apply").Rules {
		if !slices.Equal(rule.Verbs, []string{"create"}) && !slices.Equal(rule.ResourceNames, []string{"all"}) {
			t.Errorf("the hook may %q %q with the names %q, want only the ClusterScanner", rule.Verbs, rule.Resources, rule.ResourceNames)
		}
	}
	if args := into[batchv1.Job](t, all, cleanupKey).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--cluster-scanner=all") {
		t.Errorf("the clean-up does not delete the ClusterScanner: %v", args)
	}
}

// Helm keeps the CRDs on uninstall, unless crds.keep is false.
func TestKeptCRDs(t *testing.T) {
	for values, want := range map[string]string{"": "keep", "crds: {keep: false}": ""} {
		kinds := 0
		for _, object := range rendered(t, values) {
			if object.GetKind() == "CustomResourceDefinition" {
				kinds++
				if got := object.GetAnnotations()["helm.sh/resource-policy"]; got != want {
					t.Errorf("values %q: %s: want the policy %q, got %q", values, object.GetName(), want, got)
				}
			}
		}
		if kinds != 5 {
			t.Errorf("values %q: want 5 kinds, got %d", values, kinds)
		}
	}
}

// If the addresses of the API servers are given, no other private address is reachable.
func TestNetworkPolicies(t *testing.T) {
	all := rendered(t, `
networkPolicy:
  enabled: true
  kubernetesAPI: {peers: [{ipBlock: {cidr: 192.0.2.1/32}}], ports: [6443]}
  dns: {namespaceLabels: {kubernetes.io/metadata.name: openshift-dns}, ports: [5353]}
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  workerEgress: [{to: [{ipBlock: {cidr: 10.1.2.3/32}}], ports: [{port: 5000}]}]
`)
	manager := into[networkingv1.NetworkPolicy](t, all, "NetworkPolicy "+namespace+"/scanner-operator-manager").Spec
	for _, rule := range manager.Egress {
		for _, peer := range rule.To {
			if peer.IPBlock != nil && peer.IPBlock.CIDR == "0.0.0.0/0" && !slices.Contains(peer.IPBlock.Except, "10.0.0.0/8") {
				t.Errorf("the manager may reach private addresses: %v", rule)
			}
		}
	}
	workers := into[networkingv1.NetworkPolicy](t, all, "NetworkPolicy "+namespace+"/scanner-operator-workers").Spec
	last := workers.Egress[len(workers.Egress)-1]
	if len(workers.Ingress) != 0 || len(workers.PolicyTypes) != 2 || last.To[0].IPBlock.CIDR != "10.1.2.3/32" {
		t.Errorf("workers: want no ingress and the rule of the values, got %+v", workers)
	}
}

// If the API servers listen on another port than 443, the internet's port 443 is still reachable, for Slack and the vulnerability
// database.
func TestInternetIsReachableWithAnyAPIPort(t *testing.T) {
	for _, api := range []string{"ports: [443, 6443]", "ports: [6443]", "ports: [6443], peers: [{ipBlock: {cidr: 192.0.2.1/32}}]"} {
		all := rendered(t, "networkPolicy: {enabled: true, kubernetesAPI: {"+api+"}}")
		for _, name := range []string{"manager", "notifier", "workers"} {
			policy := into[networkingv1.NetworkPolicy](t, all, "NetworkPolicy "+namespace+"/scanner-operator-"+name)
			if !slices.ContainsFunc(policy.Spec.Egress, toInternet) {
				t.Errorf("kubernetesAPI: {%s}: %s does not reach the internet's port 443", api, policy.Name)
			}
		}
	}
}

func toInternet(rule networkingv1.NetworkPolicyEgressRule) bool {
	return slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool {
		return peer.IPBlock != nil && peer.IPBlock.CIDR == "0.0.0.0/0"
	}) &&
		slices.ContainsFunc(rule.Ports, func(port networkingv1.NetworkPolicyPort) bool { return port.Port.IntValue() == 443 })
}

// Labels and annotations by which Prometheus and Grafana find objects come from the values.
func TestMonitoring(t *testing.T) {
	all := rendered(t, `
monitoring:
  serviceMonitor: {enabled: true, labels: {release: prometheus}, interval: 30s}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
  dashboards: {enabled: true, labels: {grafana: "yes"}, annotations: {folder: Security}}
`)
	for _, key := range []string{
		"ServiceMonitor " + namespace + "/scanner-operator-manager", "ServiceMonitor " + namespace + "/scanner-operator-notifier",
		"PrometheusRule " + namespace + "/scanner-operator",
	} {
		if all[key] == nil || all[key].GetLabels()["release"] != "prometheus" {
			t.Errorf("there is no %s that a Prometheus finds", key)
			continue
		}
		endpoints, _, _ := unstructured.NestedSlice(all[key].Object, "spec", "endpoints")
		for _, endpoint := range endpoints {
			if got := endpoint.(map[string]any)["interval"]; got != "30s" {
				t.Errorf("%s: interval: want 30s, got %v", key, got)
			}
		}
	}
	dashboards := into[corev1.ConfigMap](t, all, "ConfigMap "+namespace+"/scanner-operator-dashboards")
	if dashboards.Labels["grafana"] != "yes" || dashboards.Annotations["folder"] != "Security" {
		t.Errorf("Grafana does not find the dashboards: %v %v", dashboards.Labels, dashboards.Annotations)
	}
	for name, text := range dashboards.Data {
		if !json.Valid([]byte(text)) || !strings.HasSuffix(name, ".json") {
			t.Errorf("%s is no dashboard", name)
		}
	}
	if len(dashboards.Data) == 0 {
		t.Error("there are no dashboards")
	}
}

// With a store on a server, nothing asks for a volume. The pod mounts the Secrets, and the manager's configuration has the server.
func TestStoreOnServer(t *testing.T) {
	all := rendered(t, `
store: {type: PostgreSQL, maxConnections: 20, dsnSecretRef: {name: shop-app}, caSecretRef: {name: shop-ca}}
networkPolicy: {enabled: true, storeServer: {peers: [{podSelector: {matchLabels: {cnpg.io/cluster: shop}}}]}}
`)
	for key := range all {
		if strings.HasPrefix(key, "PersistentVolumeClaim ") {
			t.Errorf("there is a %s", key)
		}
	}
	pod := into[appsv1.Deployment](t, all, managerKey).Spec.Template.Spec
	at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "store-server" })
	if at < 0 || pod.Volumes[at].Projected == nil {
		t.Fatalf("no volume has the Secrets: %+v", pod.Volumes)
	}
	secret := func(name, key, path string) corev1.VolumeProjection {
		return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: []corev1.KeyToPath{{Key: key, Path: path}},
		}}
	}
	want := []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "scanner-operator-store"}}},
		secret("shop-app", "uri", "dsn"), secret("shop-ca", "ca.crt", "ca.crt"),
	}
	if diff := cmp.Diff(want, pod.Volumes[at].Projected.Sources); diff != "" {
		t.Errorf("the volume's sources (-want +got):\n%s", diff)
	}
	if !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "store-server" && m.MountPath == "/etc/scanner-operator/store" && m.ReadOnly
	}) {
		t.Errorf("the manager does not mount that volume: %+v", pod.Containers[0].VolumeMounts)
	}

	loaded := load(t, all, "scanner-operator-store")
	if diff := cmp.Diff(config.Store{
		Type: config.PostgreSQL, DSNFile: "/etc/scanner-operator/store/dsn", MaxConnections: 20, TLS: config.StoreTLS{CAFile: "/etc/scanner-operator/store/ca.crt"},
	}, loaded.Store); diff != "" {
		t.Errorf("the manager's configuration (-want +got):\n%s", diff)
	}

	egress := into[networkingv1.NetworkPolicy](t, all, "NetworkPolicy "+namespace+"/scanner-operator-manager").Spec.Egress
	if !slices.ContainsFunc(egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
		return len(rule.To) == 1 && rule.To[0].PodSelector != nil && rule.To[0].PodSelector.MatchLabels["cnpg.io/cluster"] == "shop" && rule.Ports[0].Port.IntValue() == 5432
	}) {
		t.Errorf("the manager may not reach the server: %+v", egress)
	}
}

// load returns the configuration in a ConfigMap as the manager reads it.
func load(t *testing.T, all objects, configMap string) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := into[corev1.ConfigMap](t, all, "ConfigMap "+namespace+"/"+configMap).Data["config.yaml"]
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// The values of the web UI are in the manager's configuration, and a change of them replaces its pod. The pod mounts the certificate's Secret
// where the configuration says.
func TestWebUI(t *testing.T) {
	checksums := map[string]bool{}
	for _, test := range []struct {
		values, secret string
		optional       bool
		want           config.UI
	}{
		{"", "scanner-operator-ui-tls", true, config.UI{Enabled: true}},
		{"ui: {enabled: false}", "scanner-operator-ui-tls", true, config.UI{}},
		{"ui: {url: 'https://example.com/scanner', basePath: /scanner, tlsSecretRef: {name: certificate}}", "certificate", false, config.UI{
			Enabled: true, URL: "https://example.com/scanner", BasePath: "/scanner",
			TLS: config.UITLS{CertFile: "/etc/scanner-operator/ui-tls/tls.crt", KeyFile: "/etc/scanner-operator/ui-tls/tls.key"},
		}},
	} {
		all := rendered(t, test.values)
		if diff := cmp.Diff(test.want, load(t, all, "scanner-operator-config").UI); diff != "" {
			t.Errorf("%s: the manager's configuration (-want +got):\n%s", test.values, diff)
		}
		template := into[appsv1.Deployment](t, all, managerKey).Spec.Template
		checksums[template.Annotations["checksum/config"]] = true
		if !slices.ContainsFunc(template.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "ui-tls" && m.MountPath == "/etc/scanner-operator/ui-tls" && m.ReadOnly
		}) {
			t.Errorf("%s: mounts are %+v", test.values, template.Spec.Containers[0].VolumeMounts)
		}
		if !slices.ContainsFunc(template.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == "ui-tls" && v.Secret.SecretName == test.secret && (v.Secret.Optional != nil) == test.optional
		}) {
			t.Errorf("%s: want the Secret %s, optional %t, volumes are %+v", test.values, test.secret, test.optional, template.Spec.Volumes)
		}
	}
	if len(checksums) != 3 {
		t.Errorf("another setting of the web UI does not replace the manager's pod: %v", checksums)
	}
	all := rendered(t, "networkPolicy: {enabled: true, apiFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}]}")
	ingress := into[networkingv1.NetworkPolicy](t, all, "NetworkPolicy "+namespace+"/scanner-operator-manager").Spec.Ingress
	if n := slices.IndexFunc(ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool { return rule.Ports[0].Port.String() == "api" }); n < 0 ||
		len(ingress[n].From) != 1 || ingress[n].From[0].NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != "ingress-nginx" {
		t.Errorf("want that only the ingress controller reaches the web UI: %+v", ingress)
	}
}
