package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestCompareWorkloads: compareWorkloads is a total order, so that lists are stable.
func TestCompareWorkloads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"a", "b"})
		draw := func(name string) store.Workload {
			return store.Workload{
				Namespace: word.Draw(t, name), Kind: word.Draw(t, name), Name: word.Draw(t, name),
				Container: word.Draw(t, name), Reference: word.Draw(t, name),
			}
		}
		a, b := draw("a"), draw("b")
		if (compareWorkloads(a, b) == 0) != (a == b) || compareWorkloads(a, b) != -compareWorkloads(b, a) {
			t.Errorf("%+v against %+v is %d, the other way %d", a, b, compareWorkloads(a, b), compareWorkloads(b, a))
		}
	})
}

// unavailable is a client of an API server that does not answer.
type unavailable struct{}

func (unavailable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("it does not answer")
}

func (unavailable) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("it does not answer")
}

// TestUsesAfterAnError: uses that could not be read are not complete. Otherwise an image would count as unused.
func TestUsesAfterAnError(t *testing.T) {
	i := Inventory{Client: unavailable{}, Clock: clocktesting.NewFakePassiveClock(time.Time{})}
	uses, err := i.FindUses(t.Context(), ScannedImage{Scan: &v1alpha1.ImageScan{}, Scanner: &v1alpha1.Scanner{}})
	if err == nil || uses.Complete {
		t.Errorf("uses %+v, error %v", uses, err)
	}
}

// TestEndedPodsAreHandledOnce: the end of a workload is that of its last pod, and the work grows linearly with the number of ended Jobs.
func TestEndedPodsAreHandledOnce(t *testing.T) {
	began, controls := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), true
	ended := func(jobs int) (uses []Use) {
		for i := range 2 * jobs {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i)}}
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: fmt.Sprint("job-", i/2), Controller: &controls}}
			uses = append(uses, Use{Pod: pod, Image: RunningImage{PodImage: PodImage{Container: "main"}}, EndedAt: began.Add(time.Duration(i) * time.Second)})
		}
		return uses
	}
	for i, e := range endedWorkloads(ended(2)) {
		if last := began.Add(time.Duration(2*i+1) * time.Second); e.Name != fmt.Sprint("job-", i) || !e.At.Equal(last) {
			t.Errorf("%s ended at %s, want job-%d at %s", e.Name, e.At, i, last)
		}
	}
	few, many := ended(50), ended(500)
	work := testing.AllocsPerRun(1, func() { endedWorkloads(few) })
	if more := testing.AllocsPerRun(1, func() { endedWorkloads(many) }); more > 20*work {
		t.Errorf("%.0f allocations for 500 Jobs and %.0f for 50", more, work)
	}
}

// TestScopeOfAnImageWithoutCatalog: where an image is pulled decides who may use the result. Pull secrets of pods do not matter for registries
// from which Grype pulls by an identity.
func TestScopeOfAnImageWithoutCatalog(t *testing.T) {
	const cloud, other = "europe-west3-docker.pkg.dev/team/app", "registry.example.com/app"
	i := Inventory{Provider: func(host string) string {
		if host == "europe-west3-docker.pkg.dev" {
			return "gcp"
		}
		return ""
	}}
	use := func(repository string, secrets ...string) Use {
		pod := &corev1.Pod{}
		for _, secret := range secrets {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
		}
		return Use{Pod: pod, Image: RunningImage{PodImage: PodImage{Reference: image.Reference{Repository: repository}}}}
	}
	grype := v1alpha1.Backend{Type: v1alpha1.BackendGrype}
	namespaced := v1alpha1.Backend{Type: v1alpha1.BackendGrype, Grype: &v1alpha1.GrypeBackend{Job: v1alpha1.CatalogJob{Identity: v1alpha1.IdentityNamespace}}}
	operators := v1alpha1.Backend{Type: v1alpha1.BackendGrype, Grype: &v1alpha1.GrypeBackend{Job: v1alpha1.CatalogJob{Identity: v1alpha1.IdentityOperator}}}
	clair := v1alpha1.Backend{Type: v1alpha1.BackendClair}
	for name, tt := range map[string]struct {
		engine v1alpha1.Backend
		uses   []Use
		want   store.Scope
	}{
		"no provider":                                {grype, []Use{use(other)}, store.Cluster},
		"no provider, a secret":                      {grype, []Use{use(other, "regcred")}, "shop"},
		"no provider, the namespace's identity":      {namespaced, []Use{use(other)}, store.Cluster},
		"a provider":                                 {grype, []Use{use(cloud)}, store.Cluster},
		"a provider, a secret for another registry?": {grype, []Use{use(cloud, "regcred")}, store.Cluster},
		"a provider, the operator's identity":        {operators, []Use{use(cloud, "regcred")}, store.Cluster},
		"a provider, the namespace's identity":       {namespaced, []Use{use(cloud)}, "shop"},
		"one of two registries has a provider":       {grype, []Use{use(cloud, "regcred"), use(other)}, store.Cluster},
		"the other one needs a secret":               {grype, []Use{use(cloud), use(other, "regcred")}, "shop"},
		"Clair has no identity":                      {clair, []Use{use(cloud, "regcred")}, "shop"},
	} {
		scanner := &v1alpha1.Scanner{Spec: v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: tt.engine}}}
		scan := &v1alpha1.ImageScan{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
		got, _, err := i.chooseScope(t.Context(), ScannedImage{Scan: scan, Scanner: scanner}, Uses{Running: tt.uses})
		if err != nil || got != tt.want {
			t.Errorf("%s: scope %q (%v), want %q", name, got, err, tt.want)
		}
	}
}

// uploads is a store in which an SBOM was uploaded for each image in the namespace "shop", and whose catalogs are in these scopes.
type uploads struct {
	reportAges
	scopes []store.Scope
}

func (u uploads) CatalogScopes(context.Context, string, image.Key, string) ([]store.Scope, error) {
	return u.scopes, nil
}

func (uploads) UploadedSBOM(_ context.Context, namespace string, _ image.Key) (store.UploadedSBOM, error) {
	if namespace != "shop" {
		return store.UploadedSBOM{}, store.ErrNotFound
	}
	return store.UploadedSBOM{Policy: "upload:1"}, nil
}

// TestScopeOfAnImageWithAnUpload: an uploaded SBOM counts in its namespace, for Grype, and only if no catalog counts.
func TestScopeOfAnImageWithAnUpload(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace string
		engine    v1alpha1.BackendType
		scopes    []store.Scope
		want      store.Scope
		policy    string
	}{
		"no catalog":                 {"shop", v1alpha1.BackendGrype, nil, "shop", "upload:1"},
		"another namespace":          {"bank", v1alpha1.BackendGrype, nil, store.Cluster, "registry"},
		"a catalog of the cluster":   {"shop", v1alpha1.BackendGrype, []store.Scope{store.Cluster}, store.Cluster, "registry"},
		"a catalog of the namespace": {"shop", v1alpha1.BackendGrype, []store.Scope{"shop"}, "shop", "registry"},
		"Clair catalogs itself":      {"shop", v1alpha1.BackendClair, nil, store.Cluster, "registry"},
	} {
		i := Inventory{Store: uploads{scopes: tt.scopes}}
		scanner := &v1alpha1.Scanner{Spec: v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: tt.engine}}}}
		scan := &v1alpha1.ImageScan{ObjectMeta: metav1.ObjectMeta{Namespace: tt.namespace}}
		scope, policy, err := i.chooseScope(t.Context(), ScannedImage{Scan: scan, Scanner: scanner, Engine: "engine"}, Uses{SBOMPolicy: "registry"})
		if err != nil || scope != tt.want || policy != tt.policy {
			t.Errorf("%s: scope %q and policy %q (%v), want %q and %q", name, scope, policy, err, tt.want, tt.policy)
		}
	}
}
