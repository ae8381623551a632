package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

const scansPolicy = notifier + "-imagescans"

// request is the patch with which the notifier requests a rematch.
const request = `{"metadata":{"annotations":{"` + v1alpha1.AnnotationMatchRequested + `":"368084e0-418d-41b1-8f3a-906bf4dc51e2"}}}`

// The notifier can change only one annotation of an ImageScan.
func TestNotifierOnlyRequestsRematches(t *testing.T) {
	c := sharedCluster(t)
	ctx := t.Context()
	scan := anImageScan("asked")
	if err := c.admin.Create(ctx, scan); err != nil {
		t.Fatal(err)
	}
	if err := c.notifier.Patch(ctx, scan.DeepCopy(), merge(request)); err != nil {
		t.Errorf("the notifier may not ask for a match: %v", err)
	}
	// A patch of the object does not change the status, so this patch requests only a rematch.
	withStatus := scan.DeepCopy()
	if err := c.notifier.Patch(ctx, withStatus, merge(strings.TrimSuffix(request, "}")+`,"status":{"phase":"Scanned"}}`)); err != nil {
		t.Errorf("the notifier may not ask for a match: %v", err)
	}
	if phase, _, err := unstructured.NestedString(withStatus.Object, "status", "phase"); err != nil || phase != "" {
		t.Errorf("the notifier has written the phase %q, %v", phase, err)
	}
	for patch, want := range map[string]string{
		`{"spec":{"references":["evil"]}}`:                          "spec: the scanner-operator's notifier may not change it",
		`{"metadata":{"labels":{"team":"evil"}}}`:                   "metadata: the scanner-operator's notifier may not change",
		`{"metadata":{"finalizers":["example.com/evil"]}}`:          "metadata: the scanner-operator's notifier may not change",
		`{"metadata":{"finalizers":null}}`:                          "metadata: the scanner-operator's notifier may not change",
		`{"metadata":{"ownerReferences":null}}`:                     "metadata: the scanner-operator's notifier may not change",
		`{"metadata":{"annotations":{"team":"evil"}}}`:              "metadata.annotations: the scanner-operator's notifier may change only",
		`{"metadata":{"annotations":{"team":null}}}`:                "metadata.annotations: the scanner-operator's notifier may change only",
		`{"metadata":{"annotations":{"new":"evil"}}}`:               "metadata.annotations: the scanner-operator's notifier may change only",
		strings.Replace(request, "368", strings.Repeat("3", 64), 1): "metadata.annotations: scanner-operator.io/match-requested has at most",
	} {
		deniedBy(t, c.notifier.Patch(ctx, scan.DeepCopy(), merge(patch), client.DryRunAll), scansPolicy, want)
	}
}

// Even with all RBAC permissions, the notifier cannot write results, or create and delete ImageScans.
func TestPrivilegedNotifierWritesNoResults(t *testing.T) {
	c := sharedCluster(t)
	ctx := t.Context()
	scan := anImageScan("results")
	if err := c.admin.Create(ctx, scan); err != nil {
		t.Fatal(err)
	}
	const want = "may not create or delete an ImageScan, nor change its status"
	for _, err := range []error{
		c.privilegedNotifier.Create(ctx, anImageScan("made"), client.DryRunAll),
		c.privilegedNotifier.Delete(ctx, scan.DeepCopy(), client.DryRunAll),
		c.privilegedNotifier.Status().Patch(ctx, scan.DeepCopy(), merge(`{"status":{"phase":"Scanned"}}`), client.DryRunAll),
	} {
		deniedBy(t, err, scansPolicy, want)
	}
}

// RBAC grants the notifier's token only the permissions that it needs.
func TestNotifierPermissions(t *testing.T) {
	c := sharedCluster(t)
	ctx := t.Context()
	scanner, scan := aScanner("any"), anImageScan("any")
	for name, err := range map[string]error{
		"read a tenant's Secret":      c.notifier.Get(ctx, client.ObjectKey{Namespace: shop, Name: "any"}, &corev1.Secret{}),
		"list Secrets":                c.notifier.List(ctx, &corev1.SecretList{}),
		"read another Secret of ours": c.notifier.Get(ctx, client.ObjectKey{Namespace: home, Name: "scanner-operator-authority"}, &corev1.Secret{}),
		"read pods":                   c.notifier.List(ctx, &corev1.PodList{}),
		"read ConfigMaps":             c.notifier.List(ctx, &corev1.ConfigMapList{}),
		"list Scanners":               c.notifier.List(ctx, &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScannerList"}}),
		"change a Scanner":            c.notifier.Patch(ctx, scanner.DeepCopy(), merge(`{"spec":{"suspend":true}}`)),
		"make an ImageScan":           c.notifier.Create(ctx, scan.DeepCopy()),
		"remove an ImageScan":         c.notifier.Delete(ctx, scan.DeepCopy()),
		"write an ImageScan's status": c.notifier.Status().Patch(ctx, scan.DeepCopy(), merge(`{"status":{"phase":"Scanned"}}`)),
		"ask for a token": c.notifier.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: manager}},
			&authenticationv1.TokenRequest{}),
	} {
		t.Run(name, func(t *testing.T) { deniedByRBAC(t, err) })
	}
	// Permissions of the component for Clair's webhooks.
	if err := c.notifier.Get(ctx, client.ObjectKey{Namespace: shop, Name: "probe"}, aScanner("probe")); err != nil {
		t.Errorf("the notifier may not read a Scanner: %v", err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ImageScanList"))
	if err := c.notifier.List(ctx, list, client.InNamespace(shop)); err != nil {
		t.Errorf("the notifier may not list ImageScans: %v", err)
	}
}

// The components for Clair's webhooks connect the Service to the listener, with the operator's configuration and permissions for the
// notifier's ServiceAccount. Without the components, there is neither a listener nor such permissions.
func TestClairWebhooksAreSwitchedOn(t *testing.T) {
	requireAssets(t)
	base := overlay(t, "scanning")
	text := render(t, base)
	if strings.Contains(text, "clair-webhook") {
		t.Error("config/default takes webhooks of Clair")
	}
	objects, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() == "ClusterRole" && object.GetName() == notifier && strings.Contains(fmt.Sprint(object.Object), v1alpha1.GroupVersion.Group) {
			t.Error("the notifier has permissions for webhooks that it does not take")
		}
	}
	for component, flag := range map[string]string{
		"notifier-clair-webhooks":            "--clair-webhook-cert-dir=/etc/scanner-operator-clair-webhooks",
		"notifier-clair-webhooks/plain-http": "--clair-webhook-plain-http",
	} {
		t.Run(component, func(t *testing.T) { checkClairWebhooks(t, above(t, base, component), flag) })
	}
}

func checkClairWebhooks(t *testing.T, dir, flag string) {
	var deployment appsv1.Deployment
	var service corev1.Service
	var binding rbacv1.ClusterRoleBinding
	var settings string
	objects, err := decode(render(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		switch name := object.GetKind() + " " + object.GetName(); {
		case name == "Deployment "+notifier:
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment)
		case name == "Service "+notifier:
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &service)
		case name == "ClusterRoleBinding "+notifier+"-clair-webhooks":
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding)
		case strings.HasPrefix(name, "ConfigMap scanner-operator-config-"):
			settings = object.GetName()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	for _, want := range []string{"--config=/etc/scanner-operator-config/config.yaml", "--clair-webhook-listen=:8444", flag} {
		if !slices.Contains(container.Args, want) {
			t.Errorf("the notifier has the arguments %q, and not %s", container.Args, want)
		}
	}
	if port := service.Spec.Ports[len(service.Spec.Ports)-1]; port.Port != 8444 || port.Name != "clair-webhooks" || port.TargetPort.StrVal != container.Ports[len(container.Ports)-1].Name {
		t.Errorf("the Service's port is %+v", port)
	}
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != deployment.Spec.Template.Spec.ServiceAccountName || binding.Subjects[0].Namespace != deployment.Namespace {
		t.Errorf("the permissions are those of %v, the notifier is in %s", binding.Subjects, deployment.Namespace)
	}
	checkVolumes(t, &deployment, settings)
}

// checkVolumes checks that the notifier mounts the operator's configuration, and that it starts without a certificate.
func checkVolumes(t *testing.T, deployment *appsv1.Deployment, settings string) {
	t.Helper()
	mounted := ""
	for _, volume := range deployment.Spec.Template.Spec.Volumes {
		switch {
		case volume.Name == "operator-config":
			mounted = volume.ConfigMap.Name
		case volume.Secret != nil && !ptr.Deref(volume.Secret.Optional, false):
			t.Errorf("without the Secret %s nothing is sent to Slack", volume.Secret.SecretName)
		}
	}
	if mounted != settings || settings == "" {
		t.Errorf("the notifier has the configuration %q, the manager %q", mounted, settings)
	}
}
