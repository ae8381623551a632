package policy

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patched creates a pod and patches it.
func (c *cluster) patched(t *testing.T, as client.Client, name string, patch client.Patch) (*corev1.Pod, error) {
	t.Helper()
	pod := somePod(name)
	if err := c.admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	err := as.Patch(t.Context(), pod.DeepCopy(), patch)
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	return pod, err
}

// A stolen token can change only the annotation and the finalizer of a scanned pod.
func TestStolenTokenCannotChangePods(t *testing.T) {
	c := sharedCluster(t)
	const (
		spec        = "spec: the scanner-operator's manager may not change it"
		labels      = "metadata.labels: the scanner-operator's manager may not change them"
		owners      = "metadata.ownerReferences: the scanner-operator's manager may not change them"
		annotations = "metadata.annotations: the scanner-operator's manager may change only those that end in .scanner-operator.io/image-hashes"
		finalizers  = "metadata.finalizers: the scanner-operator's manager may change only those that end in .scanner-operator.io/release"
	)
	strategic := func(text string) client.Patch { return client.RawPatch(types.StrategicMergePatchType, []byte(text)) }
	for name, test := range map[string]struct {
		patch client.Patch
		want  string
	}{
		"image":              {strategic(`{"spec":{"containers":[{"name":"web","image":"evil"}]}}`), spec},
		"image-json-patch":   {client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"evil"}]`)), spec},
		"tolerations":        {client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/tolerations/-","value":{"operator":"Exists"}}]`)), spec},
		"deadline":           {merge(`{"spec":{"activeDeadlineSeconds":1}}`), spec},
		"label":              {merge(`{"metadata":{"labels":{"app":"evil"}}}`), labels},
		"label-added":        {merge(`{"metadata":{"labels":{"x.scanner-operator.io/image-hashes":"evil"}}}`), labels},
		"labels-removed":     {merge(`{"metadata":{"labels":null}}`), labels},
		"owners-removed":     {merge(`{"metadata":{"ownerReferences":null}}`), owners},
		"owner-changed":      {merge(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"1"}]}}`), owners},
		"annotation-added":   {merge(`{"metadata":{"annotations":{"sidecar.istio.io/inject":"true"}}}`), annotations},
		"annotation-changed": {merge(`{"metadata":{"annotations":{"team":"evil"}}}`), annotations},
		"annotation-removed": {merge(`{"metadata":{"annotations":{"team":null}}}`), annotations},
		"annotations-gone":   {merge(`{"metadata":{"annotations":null}}`), annotations},
		"annotation-similar": {merge(`{"metadata":{"annotations":{"scanner-operator.io/image-hashes":"{}"}}}`), annotations},
		"finalizer-added":    {merge(`{"metadata":{"finalizers":["example.com/keep","old.scanner-operator.io/release","evil.example.com/x"]}}`), finalizers},
		"finalizer-removed":  {merge(`{"metadata":{"finalizers":["old.scanner-operator.io/release"]}}`), finalizers},
		"finalizers-gone":    {merge(`{"metadata":{"finalizers":null}}`), finalizers},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.patched(t, c.thief, "thief-"+name, test.patch)
			denied(t, err, "pods", test.want)
		})
	}
}

// The manager can write its own annotation and finalizer.
func TestManagerMarksPods(t *testing.T) {
	c := sharedCluster(t)
	pod, err := c.patched(t, c.thief, "marked", merge(`{"metadata":{
		"annotations":{"new.scanner-operator.io/image-hashes":"{\"web\":\"sha256:1\"}","old.scanner-operator.io/image-hashes":null},
		"finalizers":["example.com/keep","new.scanner-operator.io/release"]}}`))
	if err != nil {
		t.Fatalf("the manager may not write its annotation and finalizer: %v", err)
	}
	if keys := slices.Sorted(maps.Keys(pod.Annotations)); !slices.Equal(keys, []string{"new.scanner-operator.io/image-hashes", "team"}) {
		t.Errorf("annotations %q", keys)
	}
	if want := []string{"example.com/keep", "new.scanner-operator.io/release"}; !slices.Equal(pod.Finalizers, want) {
		t.Errorf("finalizers %q, want %q", pod.Finalizers, want)
	}
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "bare"}, Spec: somePod("").Spec}
	if err := c.admin.Create(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	for what, patch := range map[string]string{
		"annotation": `{"metadata":{"annotations":{"new.scanner-operator.io/image-hashes":"{}"}}}`,
		"finalizer":  `{"metadata":{"finalizers":["new.scanner-operator.io/release"]}}`,
		"nothing":    `{"metadata":{"annotations":null,"finalizers":null}}`,
	} {
		if err := c.thief.Patch(t.Context(), bare.DeepCopy(), merge(patch)); err != nil {
			t.Errorf("%s on a pod without any: %v", what, err)
		}
	}
}

// The manager can remove its finalizer from a pod that is being deleted.
func TestManagerReleasesDeletedPods(t *testing.T) {
	c := sharedCluster(t)
	pod := somePod("leaving")
	pod.OwnerReferences = nil
	pod.Finalizers = []string{"shop.scanner-operator.io/release"}
	if err := c.admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := c.admin.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if err := c.thief.Patch(t.Context(), pod.DeepCopy(), merge(`{"metadata":{"finalizers":null}}`)); err != nil {
		t.Fatalf("the manager may not take its finalizer away: %v", err)
	}
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the pod without finalizers is still there: %v", err)
	}
}

// Even with additional RBAC permissions, the manager cannot change the containers of running pods.
func TestStolenTokenWithMorePermissionsCannotChangeContainers(t *testing.T) {
	c := sharedCluster(t)
	pod := somePod("more-permissions")
	if err := c.admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	debug := merge(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"evil"}]}}`)
	denied(t, c.privileged.SubResource("ephemeralcontainers").Patch(t.Context(), pod.DeepCopy(), debug), "pods", "may not change containers")
	resize := merge(`{"metadata":{"labels":{"app":"evil"}}}`)
	denied(t, c.privileged.SubResource("resize").Patch(t.Context(), pod.DeepCopy(), resize), "pods", "may not change containers")
	pod.Spec.Containers[0].Image = "evil"
	denied(t, c.privileged.Update(t.Context(), pod), "pods", "spec:")
}

// The policies do not apply to anyone else, not even to a ServiceAccount of the same name in another namespace.
func TestOthersAreNotLimited(t *testing.T) {
	c := sharedCluster(t)
	other, err := c.privilegedAs("system:serviceaccount:" + shop + ":" + manager)
	if err != nil {
		t.Fatal(err)
	}
	if pod, err := c.patched(t, other, "others", merge(`{"metadata":{"labels":{"app":"new"},"annotations":{"team":null}}}`)); err != nil || pod.Labels["app"] != "new" {
		t.Errorf("a pod of another one's: %v", err)
	}
	job := golden(t, "catalog-job-private.yaml")
	job.Name, job.Labels = "others", nil
	job.Spec.Template.Spec.Containers[0].Image = "registry.example.com/backup"
	claim := claim("data")
	claim.Namespace = shop
	meta := metav1.ObjectMeta{Namespace: shop, Name: "any"}
	for _, o := range []client.Object{job, claim, &corev1.Secret{ObjectMeta: meta}, &corev1.ConfigMap{ObjectMeta: meta}} {
		if err := other.Create(t.Context(), o); err != nil {
			t.Errorf("%T of another one's: %v", o, err)
		}
		if err := other.Patch(t.Context(), o, merge(`{"metadata":{"labels":{"a":"b"}}}`)); err != nil {
			t.Errorf("%T of another one's, changed: %v", o, err)
		}
		if err := other.Delete(t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Errorf("%T of another one's, removed: %v", o, err)
		}
	}
}
