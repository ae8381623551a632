package controllers

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// fullStatus returns a status with each field at its bound before fit cuts it, with texts made of the given characters.
func fullStatus(text string) v1alpha1.ImageScanStatus {
	at := metav1.Now().Rfc3339Copy()
	counts := v1alpha1.FindingCounts{
		Critical: 1 << 30, High: 1 << 30, Medium: 1 << 30, Low: 1 << 30, Negligible: 1 << 30, Unknown: 1 << 30, Fixable: 1 << 30, KnownExploited: 1 << 30, Suppressed: 1 << 30,
	}
	status := v1alpha1.ImageScanStatus{
		Phase: v1alpha1.PhaseCataloging, PlatformDigest: digest("platform"), Engine: v1alpha1.BackendGrype, ScanTime: &at, Findings: &counts,
		Image: repeatToLength("i", v1alpha1.MaxImageBytes), WorstFinding: truncate(repeatToLength(text, 900), v1alpha1.MaxWorstBytes),
		EngineInstance: repeatToLength("0", 16), Packages: ptr.To(int32(1 << 30)), WorkloadCount: 1 << 30, UnusedSinceTime: &at, Attempts: 1 << 30, NextAttemptTime: &at, FailedSinceTime: &at, HandledRequest: repeatToLength("0", 16),
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: repeatToLength("R", 64), Message: truncate(repeatToLength(text, 9000), v1alpha1.MaxMessageBytes), LastTransitionTime: at, ObservedGeneration: 1 << 30},
			{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: repeatToLength("R", 64), LastTransitionTime: at, ObservedGeneration: 1 << 30},
		},
	}
	for range v1alpha1.MaxTopFindings {
		status.TopFindings = append(status.TopFindings, v1alpha1.TopFinding{
			ID: truncate(repeatToLength(text, 900), maxIDBytes), Severity: "Negligible",
			Package: truncate(repeatToLength(text, 900), maxPackageBytes), FixedIn: truncate(repeatToLength(text, 900), maxVersionBytes),
		})
	}
	for range v1alpha1.MaxNotCovered {
		status.NotCovered = append(status.NotCovered, repeatToLength("n", v1alpha1.MaxNotCoveredBytes))
	}
	for range v1alpha1.MaxWorkloads {
		status.Workloads = append(status.Workloads, truncate(repeatToLength(text, 900), maxWorkloadBytes))
	}
	status.Columns = columnsOf(&status, nil)
	return status
}

// TestSizeInEtcd: the largest possible ImageScan takes at most 4.5 KiB in etcd, including field management.
func TestSizeInEtcd(t *testing.T) {
	p := newTestEnv(t)
	p.namespace = unattended
	scanner := aScanner(p.namespace, repeatToLength("s", 63))
	p.create(scanner)
	p.deleteOnCleanup(scanner)
	r := &PodReconciler{Client: p.client, Inventory: &inventory.Inventory{Client: indexed{p.client}}}
	for name, text := range map[string]string{"letters": "x", "quotation marks": `"`, "umlauts": "ü", "markup": "<&>", "control characters": "\x01"} {
		t.Run(name, func(t *testing.T) {
			p.addReferences(r, scanner, inventory.RunningImage{
				PodImage: inventory.PodImage{Container: "main", ID: image.ID{Digest: digest(name)}},
				Key:      image.Key{Digest: digest(name), Platform: image.Platform{OS: repeatToLength("o", 40), Architecture: repeatToLength("a", 10), Variant: "variant890"}},
			})
			var scans v1alpha1.ImageScanList
			p.must(p.client.List(t.Context(), &scans, client.InNamespace(p.namespace)))
			i := slices.IndexFunc(scans.Items, func(s v1alpha1.ImageScan) bool { return s.Spec.Digest == digest(name) })
			scan := &scans.Items[i]
			p.deleteOnCleanup(scan)
			before := scan.DeepCopy()
			scan.Status = fullStatus(text)
			shrinkToFit(scan)
			p.must(p.client.Status().Patch(t.Context(), scan, client.MergeFrom(before)))
			raw := p.raw(scan)
			t.Logf("%d bytes, %d of them field management", len(raw), len(raw)-sizeOf(scan))
			if len(raw) > maxObjectBytes {
				t.Errorf("it takes %d bytes in etcd, want at most %d:\n%s", len(raw), maxObjectBytes, raw)
			}
		})
	}
}

// addReferences adds as many long references to an image's ImageScan as the API accepts, and then short ones.
func (p *testEnv) addReferences(r *PodReconciler, scanner *v1alpha1.Scanner, img inventory.RunningImage) {
	p.t.Helper()
	for _, tag := range []string{"a", "b", "c", "d"} {
		img.Reference = image.Reference{Repository: "registry.example.com/" + repeatToLength("r", 360), Tag: tag}
		scan, err := r.Inventory.ImageScan(p.t.Context(), scanner, scanner.Namespace, img.Key)
		p.must(err)
		if scan == nil {
			p.must(r.create(p.t.Context(), scanner, scanner.Namespace, img))
			continue
		}
		p.must(r.addReference(p.t.Context(), scan, img.Reference))
	}
	for range 40 { // short ones, as long as there is room
		img.Reference = image.Reference{Repository: "registry.example.com/" + repeatToLength("s", rapid.IntRange(1, 100).Example()), Tag: "x"}
		scan, err := r.Inventory.ImageScan(p.t.Context(), scanner, scanner.Namespace, img.Key)
		p.must(err)
		p.must(r.addReference(p.t.Context(), scan, img.Reference))
	}
}

// raw returns an object as JSON, as the API server stores it.
func (p *testEnv) raw(scan *v1alpha1.ImageScan) []byte {
	p.t.Helper()
	httpClient, err := rest.HTTPClientFor(p.config)
	p.must(err)
	restClient, err := apiutil.RESTClientForGVK(v1alpha1.GroupVersion.WithKind("ImageScan"), false, false, p.config, serializers, httpClient)
	p.must(err)
	raw, err := restClient.Get().Namespace(scan.Namespace).Resource("imagescans").Name(scan.Name).Do(p.t.Context()).Raw()
	p.must(err)
	return raw
}

var serializers = scheme.Codecs

// indexed lists from the API server, which does not know the cache's indexes: it ignores field selectors.
type indexed struct{ client.Client }

func (c indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(opts)
	return c.Client.List(ctx, list, client.InNamespace(options.Namespace))
}
