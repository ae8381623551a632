package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Keys of the most used objects.
const (
	managerKey  = "Deployment " + namespace + "/scanner-operator-manager"
	notifierKey = "Deployment " + namespace + "/scanner-operator-notifier"
	cleanupKey  = "Job " + namespace + "/scanner-operator-cleanup"
	claimKey    = "PersistentVolumeClaim " + namespace + "/scanner-operator-store"
	trustKey    = "ConfigMap " + namespace + "/scanner-operator-notifier-trust"
)

const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// podOf returns the pod spec of a Deployment.
func podOf(t *testing.T, all objects, key string) corev1.PodSpec {
	t.Helper()
	return into[appsv1.Deployment](t, all, key).Spec.Template.Spec
}

// images returns all images that the release may run.
func images(t *testing.T, all objects) map[string]string {
	t.Helper()
	return map[string]string{
		"manager": podOf(t, all, managerKey).Containers[0].Image, "notifier": podOf(t, all, notifierKey).Containers[0].Image,
		"worker":  environment(podOf(t, all, managerKey))["RELATED_IMAGE_WORKER"],
		"cleanup": into[batchv1.Job](t, all, cleanupKey).Spec.Template.Spec.Containers[0].Image,
		"policy":  workerOfPolicy(t, all),
	}
}

func workerOfPolicy(t *testing.T, all objects) string {
	t.Helper()
	policy := into[admissionv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy scanner-operator-manager-jobs")
	for _, variable := range policy.Spec.Variables {
		if variable.Name == "workerImage" {
			return strings.Trim(variable.Expression, "'")
		}
	}
	t.Fatal("the policy for Jobs has no variable workerImage")
	return ""
}

func environment(pod corev1.PodSpec) map[string]string {
	values := map[string]string{}
	for _, variable := range pod.Containers[0].Env {
		values[variable.Name] = variable.Value
	}
	return values
}

// One value sets the registry of all images, a digest takes precedence over a tag, and the policy allows the worker's image.
func TestImages(t *testing.T) {
	for name, test := range map[string]struct {
		values string
		want   map[string]string
	}{
		"by default, those of the release": {"", map[string]string{
			"manager": "ghcr.io/scanner-operator/scanner-operator:0.1.0", "notifier": "ghcr.io/scanner-operator/scanner-notifier:0.1.0",
			"worker": "ghcr.io/scanner-operator/scanner-grype:0.1.0",
		}},
		"from a mirror": {`image: {registry: "mirror.example.com:5000/ghcr", tag: v7}`, map[string]string{
			"manager": "mirror.example.com:5000/ghcr/scanner-operator:v7", "notifier": "mirror.example.com:5000/ghcr/scanner-notifier:v7",
			"worker": "mirror.example.com:5000/ghcr/scanner-grype:v7",
		}},
		"by digest": {`image: {manager: {digest: "` + digest + `"}, worker: {repository: grype, digest: "` + digest + `"}}`, map[string]string{
			"manager": "ghcr.io/scanner-operator/scanner-operator@" + digest, "notifier": "ghcr.io/scanner-operator/scanner-notifier:0.1.0",
			"worker": "ghcr.io/scanner-operator/grype@" + digest,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			test.want["cleanup"], test.want["policy"] = test.want["manager"], test.want["worker"]
			if diff := cmp.Diff(test.want, images(t, rendered(t, test.values))); diff != "" {
				t.Errorf("images (-want +got):\n%s", diff)
			}
		})
	}
}

// The pod settings of a component apply only to its pod.
func TestPods(t *testing.T) {
	all := rendered(t, `
image: {pullSecrets: [mirror], pullPolicy: Always}
manager: &pod
  args: [--log-level=debug]
  env: [{name: SEEN, value: "yes"}]
  resources: {limits: {memory: 2Gi, cpu: 2}}
  podAnnotations: {example.com/a: b}
  podLabels: {example.com/c: d}
  nodeSelector: {disk: fast}
  tolerations: [{key: scanning, operator: Exists}]
  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {}}]}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
  priorityClassName: important
  volumes: [{name: more, emptyDir: {}}]
  volumeMounts: [{name: more, mountPath: /more}]
notifier:
  priorityClassName: less-important
`)
	manager := into[appsv1.Deployment](t, all, managerKey).Spec.Template
	container := manager.Spec.Containers[0]
	for what, is := range map[string]bool{
		"args":        slices.Contains(container.Args, "--log-level=debug") && slices.Contains(container.Args, "--config=/etc/scanner-operator/config.yaml"),
		"env":         environment(manager.Spec)["SEEN"] == "yes",
		"resources":   container.Resources.Limits.Memory().String() == "2Gi" && container.Resources.Limits.Cpu().String() == "2",
		"annotations": manager.Annotations["example.com/a"] == "b", "labels": manager.Labels["example.com/c"] == "d",
		"nodeSelector": manager.Spec.NodeSelector["disk"] == "fast", "tolerations": len(manager.Spec.Tolerations) == 1,
		"affinity": manager.Spec.Affinity.PodAntiAffinity != nil, "spread": len(manager.Spec.TopologySpreadConstraints) == 1,
		"priority": manager.Spec.PriorityClassName == "important", "pull policy": container.ImagePullPolicy == corev1.PullAlways,
		"volume": slices.ContainsFunc(manager.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "more" }),
		"mount":  slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/more" }),
	} {
		if !is {
			t.Errorf("%s of the manager's pod are not what the values say", what)
		}
	}
	notifier := podOf(t, all, notifierKey)
	if notifier.PriorityClassName != "less-important" || len(notifier.NodeSelector) != 1 || len(notifier.Tolerations) != 0 {
		t.Errorf("the notifier's pod has what the manager's was to have: %+v", notifier)
	}
	for key, pod := range map[string]corev1.PodSpec{
		"manager": manager.Spec, "notifier": notifier, "cleanup": into[batchv1.Job](t, all, cleanupKey).Spec.Template.Spec,
	} {
		if pod.NodeSelector[corev1.LabelOSStable] != "linux" {
			t.Errorf("the %s may run on nodes %v, want those with Linux only", key, pod.NodeSelector)
		}
		if len(pod.ImagePullSecrets) != 1 || pod.ImagePullSecrets[0].Name != "mirror" {
			t.Errorf("pull secrets of the %s: want mirror, got %v", key, pod.ImagePullSecrets)
		}
	}
}

// The values are in the file that the manager reads, and a change restarts its pod.
func TestConfiguration(t *testing.T) {
	const key = "ConfigMap " + namespace + "/scanner-operator-config"
	checksums := map[string]bool{}
	for _, test := range []struct{ values, want string }{
		{"", "grype:\n  database:\n    url: https://grype.anchore.io/databases"},
		{`config: {grype: {database: {url: "http://mirror/db", volume: {claimName: databases}}, catalog: {maxJobs: 9, memoryLadder: [4Gi]}}, registries: [{host: "a:5000", plainHTTP: true}]}`,
			"grype:\n  catalog:\n    maxJobs: 9\n    memoryLadder:\n    - 4Gi\n  database:\n    url: http://mirror/db\n    volume:\n      claimName: databases\n" +
				"registries:\n- host: a:5000\n  plainHTTP: true"},
	} {
		all := rendered(t, test.values)
		if diff := cmp.Diff(test.want, strings.TrimSpace(into[corev1.ConfigMap](t, all, key).Data["config.yaml"])); diff != "" {
			t.Errorf("config.yaml (-want +got):\n%s", diff)
		}
		checksums[into[appsv1.Deployment](t, all, managerKey).Spec.Template.Annotations["checksum/config"]] = true
	}
	if len(checksums) != 2 {
		t.Errorf("another configuration does not replace the manager's pod: %v", checksums)
	}
}

// All processes get the proxy settings, and reach the cluster without a proxy.
func TestProxy(t *testing.T) {
	all := rendered(t, `proxy: {httpsProxy: "http://proxy:3128", noProxy: [registry.internal]}`)
	for _, key := range []string{managerKey, notifierKey} {
		got := environment(podOf(t, all, key))
		if got["HTTPS_PROXY"] != "http://proxy:3128" || got["HTTP_PROXY"] != "" {
			t.Errorf("%s: proxies are %v", key, got)
		}
		if want := "registry.internal,localhost,127.0.0.1,.svc,.cluster.local,$(KUBERNETES_SERVICE_HOST)"; got["NO_PROXY"] != want {
			t.Errorf("%s: NO_PROXY: want %s, got %s", key, want, got["NO_PROXY"])
		}
	}
	if got := environment(podOf(t, rendered(t, ""), managerKey)); got["NO_PROXY"] != "" {
		t.Errorf("without a proxy there is NO_PROXY=%s", got["NO_PROXY"])
	}
}

// The store is on a PersistentVolumeClaim of the chart, on an existing one of the user, or in an emptyDir.
func TestStore(t *testing.T) {
	volume := func(all objects) corev1.Volume { return podOf(t, all, managerKey).Volumes[0] }
	own := rendered(t, `store: {size: 20Gi, storageClassName: fast}`)
	claim := into[corev1.PersistentVolumeClaim](t, own, claimKey)
	if claim.Spec.Resources.Requests.Storage().String() != "20Gi" || *claim.Spec.StorageClassName != "fast" || claim.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Errorf("the claim is not what the values say: %+v %v", claim.Spec, claim.Annotations)
	}
	deleted := into[corev1.PersistentVolumeClaim](t, rendered(t, `store: {keep: false}`), claimKey)
	if policy, set := deleted.Annotations["helm.sh/resource-policy"]; set {
		t.Errorf("with keep=false the claim has the policy %q, want it to go with the release", policy)
	}
	existing := rendered(t, `store: {existingClaim: mine}`)
	if existing[claimKey] != nil || volume(existing).PersistentVolumeClaim.ClaimName != "mine" {
		t.Errorf("with existingClaim, want that one and no other: %+v", volume(existing))
	}
	jobs := into[admissionv1.ValidatingAdmissionPolicy](t, existing, "ValidatingAdmissionPolicy scanner-operator-manager-jobs")
	if !slices.ContainsFunc(jobs.Spec.Validations, func(v admissionv1.Validation) bool { return strings.Contains(v.Expression, "claimName != 'mine'") }) {
		t.Error("the policy lets workers mount the claim that the store is on")
	}
	none := rendered(t, `store: {persistent: false}`)
	if none[claimKey] != nil || volume(none).EmptyDir == nil {
		t.Errorf("with persistent=false, want an emptyDir: %+v", volume(none))
	}
}

// Permissions in workloads' namespaces are granted only there, also those of the notifier and of the clean-up.
func TestNamespaced(t *testing.T) {
	all := rendered(t, "watchNamespaces: [shop, bank]\nnotifier: {clairWebhooks: {enabled: true}}\nconfig: {openReports: {mode: Write}}")
	if args := podOf(t, all, managerKey).Containers[0].Args; !slices.Contains(args, "--watch-namespaces=shop,bank") {
		t.Errorf("the manager does not get the setting: %v", args)
	}
	if args := into[batchv1.Job](t, all, cleanupKey).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--namespace=shop,bank,"+namespace) {
		t.Errorf("the clean-up does not get the setting: %v", args)
	}
	var bound []string
	for _, object := range all {
		if kind := object.GetKind(); kind == "RoleBinding" || kind == "ClusterRoleBinding" {
			binding := into[rbacv1.RoleBinding](t, all, key(object))
			if binding.RoleRef.Kind == "ClusterRole" {
				bound = append(bound, strings.TrimSpace(binding.Namespace+" "+binding.RoleRef.Name))
			}
		}
	}
	slices.Sort(bound)
	want := []string{
		"bank scanner-operator-cleanup", "bank scanner-operator-manager", "bank scanner-operator-notifier-clair-webhooks", "bank scanner-operator-openreports",
		"scanner-operator-cleanup-cluster", "scanner-operator-manager-cluster", "scanner-operator-notifier",
		namespace + " scanner-operator-cleanup", namespace + " scanner-operator-manager",
		"shop scanner-operator-cleanup", "shop scanner-operator-manager", "shop scanner-operator-notifier-clair-webhooks", "shop scanner-operator-openreports",
	}
	if diff := cmp.Diff(want, bound); diff != "" {
		t.Errorf("ClusterRoles that are bound (-want +got):\n%s", diff)
	}
}

// Policies, bindings and the notifier use the ServiceAccounts and the namespace of the release.
func TestIdentities(t *testing.T) {
	text, err := template(t, "manager: {serviceAccount: {name: boss, annotations: {a: b}}}\nnotifier: {serviceAccount: {name: herald}}", "--namespace", "scanning")
	if err != nil {
		t.Fatal(err)
	}
	all := decode(t, text)
	if strings.Contains(text, namespace) {
		t.Error("the chart names another namespace than the release's")
	}
	if got := into[corev1.ServiceAccount](t, all, "ServiceAccount scanning/boss").Annotations; got["a"] != "b" {
		t.Errorf("annotations of the ServiceAccount: %v", got)
	}
	if args := podOf(t, all, "Deployment scanning/scanner-operator-notifier").Containers[0].Args; !slices.Contains(args, "--manager-service-account=system:serviceaccount:scanning:boss") {
		t.Errorf("the notifier does not know the manager: %v", args)
	}
	if got := environment(podOf(t, all, "Deployment scanning/scanner-operator-manager"))["NOTIFIER_SERVICE_ACCOUNT"]; got != "herald" {
		t.Errorf("the manager's command grant takes %q for the notifier's ServiceAccount", got)
	}
	for _, object := range all {
		if object.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		condition := into[admissionv1.ValidatingAdmissionPolicy](t, all, key(object)).Spec.MatchConditions[0]
		want := "'system:serviceaccount:scanning:" + map[string]string{"manager": "boss", "notifier": "herald"}[condition.Name] + "'"
		if !strings.HasSuffix(condition.Expression, want) {
			t.Errorf("%s: want it for %s, is %s", object.GetName(), want, condition.Expression)
		}
	}
}

// The ServiceAccount of Jobs with a cloud identity is that of the kustomizations, with the annotations of the values, and without a token.
func TestWorkerIdentity(t *testing.T) {
	values := `
config: {registries: [{host: 123456789012.dkr.ecr.eu-central-1.amazonaws.com, provider: aws}]}
worker: {serviceAccount: {annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::123456789012:role/scanner"}, labels: {team: platform}}}
`
	account := into[corev1.ServiceAccount](t, rendered(t, values), "ServiceAccount "+namespace+"/scanner-operator-catalog")
	if account.Annotations["eks.amazonaws.com/role-arn"] != "arn:aws:iam::123456789012:role/scanner" || account.Labels["team"] != "platform" {
		t.Errorf("annotations %v and labels %v, want those of the values", account.Annotations, account.Labels)
	}
	if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
		t.Error("pods of the ServiceAccount get a token for the Kubernetes API")
	}
}

// Webhook hosts other than Slack's are allowed, with a certificate authority of their own. So are direct messages.
func TestNotifier(t *testing.T) {
	all := rendered(t, `
notifier:
  allowedWebhookHosts: [hooks.slack.com, "chat.example.com:8443", "*.example.net", "http://alerts.shop.svc:9093", "smtp://mail.shop.svc:25", 10.0.0.0/8, "fd00::/8"]
  slackDirectMessages: true
  trust: {certificates: "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"}
`)
	pod := podOf(t, all, notifierKey)
	if !slices.Contains(pod.Containers[0].Args, "--slack-direct-messages") {
		t.Errorf("direct messages are not allowed: %v", pod.Containers[0].Args)
	}
	if !slices.Contains(pod.Containers[0].Args, "--allowed-webhook-hosts=hooks.slack.com,chat.example.com:8443,*.example.net,http://alerts.shop.svc:9093,smtp://mail.shop.svc:25,10.0.0.0/8,fd00::/8") {
		t.Errorf("hosts are not allowed: %v", pod.Containers[0].Args)
	}
	trust := into[corev1.ConfigMap](t, all, trustKey)
	if want := "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----"; strings.TrimSpace(trust.Data["ca.crt"]) != want {
		t.Errorf("ca.crt: want %q, got %q", want, trust.Data["ca.crt"])
	}
	if got := pod.Volumes[0].ConfigMap.Name; got != trust.Name {
		t.Errorf("the notifier trusts what is in the ConfigMap %s", got)
	}
}
