package policy

import (
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

const scansPolicy = notifier + "-imagescans"

// request asks for a new match, as the notifier does.
const request = `{"metadata":{"annotations":{"` + v1alpha1.AnnotationMatchRequested + `":"368084e0-418d-41b1-8f3a-906bf4dc51e2"}}}`

// Of an ImageScan, the notifier changes the one annotation and nothing else.
func TestNotifierAsksForMatchesOnly(t *testing.T) {
	c := theCluster(t)
	ctx := t.Context()
	scan := anImageScan("asked")
	if err := c.admin.Create(ctx, scan); err != nil {
		t.Fatal(err)
	}
	if err := c.notifier.Patch(ctx, scan.DeepCopy(), merge(request)); err != nil {
		t.Errorf("the notifier may not ask for a match: %v", err)
	}
	// The status is not changed by a patch of the object; whoever sends one has asked for a match and no more.
	spoilt := scan.DeepCopy()
	if err := c.notifier.Patch(ctx, spoilt, merge(strings.TrimSuffix(request, "}")+`,"status":{"phase":"Scanned"}}`)); err != nil {
		t.Errorf("the notifier may not ask for a match: %v", err)
	}
	if _, found := spoilt.Object["status"]; found {
		t.Errorf("the notifier has written the status: %v", spoilt.Object["status"])
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

// Not even with all rights does it write results, or make and remove ImageScans.
func TestMightyNotifierWritesNoResults(t *testing.T) {
	c := theCluster(t)
	ctx := t.Context()
	scan := anImageScan("results")
	if err := c.admin.Create(ctx, scan); err != nil {
		t.Fatal(err)
	}
	const want = "makes and removes no ImageScan, and has nothing to say about the status"
	for _, err := range []error{
		c.mightyNotifier.Create(ctx, anImageScan("made"), client.DryRunAll),
		c.mightyNotifier.Delete(ctx, scan.DeepCopy(), client.DryRunAll),
		c.mightyNotifier.Status().Patch(ctx, scan.DeepCopy(), merge(`{"status":{"phase":"Scanned"}}`), client.DryRunAll),
	} {
		deniedBy(t, err, scansPolicy, want)
	}
}

// What RBAC keeps from the notifier's token, and what it gives.
func TestNotifierHasNoRight(t *testing.T) {
	c := theCluster(t)
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
		t.Run(name, func(t *testing.T) { noRight(t, err) })
	}
	if err := c.notifier.Get(ctx, client.ObjectKey{Namespace: shop, Name: "probe"}, aScanner("probe")); err != nil {
		t.Errorf("the notifier may not read a Scanner: %v", err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ImageScanList"))
	if err := c.notifier.List(ctx, list, client.InNamespace(shop)); err != nil {
		t.Errorf("the notifier may not list ImageScans: %v", err)
	}
}

// The component that switches Clair's webhooks on leads from the Service to the listener, with the operator's configuration;
// without it there is neither.
func TestClairWebhooksAreSwitchedOn(t *testing.T) {
	needed(t)
	base := overlay(t, home)
	if strings.Contains(render(t, base), "clair-webhook") {
		t.Error("config/default takes webhooks of Clair")
	}
	dir := t.TempDir()
	component, err := filepath.Abs(filepath.Join(config, "notifier-clair-webhooks"))
	if err != nil {
		t.Fatal(err)
	}
	if component, err = filepath.Rel(dir, component); err != nil {
		t.Fatal(err)
	}
	if base, err = filepath.Rel(dir, base); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "kustomization.yaml"), "resources: ["+base+"]\ncomponents: ["+component+"]\n")
	var deployment appsv1.Deployment
	var service corev1.Service
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
		case strings.HasPrefix(name, "ConfigMap scanner-operator-config-"):
			settings = object.GetName()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	if port := service.Spec.Ports[len(service.Spec.Ports)-1]; port.Port != 8444 || port.Name != "clair-webhooks" || port.TargetPort.StrVal != container.Ports[len(container.Ports)-1].Name {
		t.Errorf("the Service's port is %+v", port)
	}
	mounted := ""
	for _, volume := range deployment.Spec.Template.Spec.Volumes {
		if volume.Name == "operator-config" {
			mounted = volume.ConfigMap.Name
		}
	}
	if mounted != settings || settings == "" {
		t.Errorf("the notifier has the configuration %q, the manager %q", mounted, settings)
	}
}
