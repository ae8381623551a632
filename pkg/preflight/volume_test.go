package preflight

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestOnDurableVolume: whether the store outlives the pod, for each way to mount a volume at its directory or above.
func TestOnDurableVolume(t *testing.T) {
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	ephemeral := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	host := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}
	const dir = "/var/lib/scanner-operator"
	type mounts map[string]corev1.VolumeSource // by path
	for name, tt := range map[string]struct {
		dir    string
		mounts mounts
		want   bool
	}{
		"nothing is mounted":               {dir, nil, false},
		"a claim":                          {dir, mounts{dir: claim}, true},
		"a claim, written with a slash":    {dir, mounts{dir + "/": claim}, true},
		"a directory, written with one":    {dir + "/", mounts{dir: claim}, true},
		"an emptyDir":                      {dir, mounts{dir: empty}, false},
		"a volume that goes with the pod":  {dir, mounts{dir: ephemeral}, false},
		"a directory of the node":          {dir, mounts{dir: host}, true},
		"a claim above":                    {dir, mounts{"/var/lib": claim}, true},
		"a claim at the root":              {dir, mounts{"/": claim}, true},
		"a claim below":                    {dir, mounts{dir + "/sub": claim}, false},
		"a claim beside":                   {dir, mounts{dir + "-2": claim}, false},
		"an emptyDir over a claim":         {dir, mounts{"/var/lib": claim, dir: empty}, false},
		"a claim over an emptyDir":         {dir, mounts{"/var/lib": empty, dir: claim}, true},
		"a directory that only looks like": {dir + "/../other", mounts{dir: claim}, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager"}}}}
			for path, source := range tt.mounts {
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "volume" + path, VolumeSource: source})
				pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "volume" + path, MountPath: path})
			}
			if got := onDurableVolume(pod, tt.dir); got != tt.want {
				t.Errorf("the store outlives the pod: %v, want %v", got, tt.want)
			}
		})
	}
}

// TestScannerOfOtherDurableStore: of the Scanners in the watched namespaces, or in all, one that remembers another store on a durable volume is
// found. A namespace that may not be read has none.
func TestScannerOfOtherDurableStore(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	remembering := func(namespace, storeID string, durable metav1.ConditionStatus) *v1alpha1.Scanner {
		return &v1alpha1.Scanner{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"},
			Status: v1alpha1.ScannerStatus{
				StoreID: storeID, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionStoreDurable, Status: durable}},
			},
		}
	}
	list := func(ctx context.Context, c client.WithWatch, scanners client.ObjectList, options ...client.ListOption) error {
		if (&client.ListOptions{}).ApplyOptions(options).Namespace == "vault" {
			return apierrors.NewForbidden(schema.GroupResource{}, "scanners", nil)
		}
		return c.List(ctx, scanners, options...)
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{List: list}).WithObjects(
		remembering("same", "ours", metav1.ConditionTrue),
		remembering("ephemeral", "other", metav1.ConditionFalse),
		remembering("shop", "other", metav1.ConditionTrue),
	).Build()
	for name, tt := range map[string]struct {
		namespaces []string
		want       string
	}{
		"all namespaces":          {[]string{metav1.NamespaceAll}, "shop/default"},
		"that namespace":          {[]string{"same", "shop"}, "shop/default"},
		"our own store":           {[]string{"same"}, ""},
		"a store without volume":  {[]string{"ephemeral"}, ""},
		"no permission":           {[]string{"vault", "same"}, ""},
		"another after a refusal": {[]string{"vault", "shop"}, "shop/default"},
	} {
		got, err := scannerOfOtherDurableStore(t.Context(), reader, tt.namespaces, "ours")
		if err != nil || got != tt.want {
			t.Errorf("%s: Scanner %q (%v), want %q", name, got, err, tt.want)
		}
	}
}
