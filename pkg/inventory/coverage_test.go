package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	. "github.com/scanner-operator/scanner-operator/pkg/inventory/inventorytest"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// triedAgain sets the status of an ImageScan whose image failed and is being scanned again.
func triedAgain(s *v1alpha1.ImageScan) {
	Failed(s)
	s.Status.Phase = v1alpha1.PhaseCataloging
}

// TestCoverage: each image of the selected pods is in exactly one state.
func TestCoverage(t *testing.T) {
	type state struct {
		ID     string
		State  image.State
		Reason string
	}
	key := func(reference string) string { return KeyOfImage(reference).String() }
	for name, tt := range map[string]struct {
		scanner *v1alpha1.Scanner
		objects []client.Object
		want    []state
	}{
		"no pods":           {TheScanner(), nil, nil},
		"no ImageScan yet":  {TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web))}, []state{{key(Web), image.Pending, ""}}},
		"being cataloged":   {TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web)), ImageScan(TheScanner(), Web, Cataloging)}, []state{{key(Web), image.Pending, ""}}},
		"scanned":           {TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web)), ImageScan(TheScanner(), Web, Scanned)}, []state{{key(Web), image.Scanned, ""}}},
		"failed":            {TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web)), ImageScan(TheScanner(), Web, Failed)}, []state{{key(Web), image.Failed, "ImageNotFound"}}},
		"failed, and tried": {TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web)), ImageScan(TheScanner(), Web, triedAgain)}, []state{{key(Web), image.Failed, "ImageNotFound"}}},
		"another Scanner's ImageScan": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web)), ImageScan(TheScanner(func(s *v1alpha1.Scanner) { s.UID = "another" }), Web, Scanned)},
			[]state{{key(Web), image.Pending, ""}},
		},
		"an ImageScan that nobody runs": {TheScanner(), []client.Object{ImageScan(TheScanner(), Web, Scanned)}, nil},
		"three replicas": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web)), Pod(Namespace, "b", Running("c", Web)), Pod(Namespace, "c", Running("c", Web), Running("d", Web))},
			[]state{{key(Web), image.Pending, ""}},
		},
		"excluded": {TheScanner(Excluding("*/web")), []client.Object{Pod(Namespace, "a", Running("c", Web))}, []state{{key(Web), image.Excluded, ""}}},
		"excluded under one of two names": {
			TheScanner(Excluding("*/web")), []client.Object{
				Pod(Namespace, "a", Running("c", Web)),
				Pod(Namespace, "b", WithContainer("c", "other:1", corev1.ContainerStatus{ImageID: ImageID(Web)})),
				ImageScan(TheScanner(), Web, Scanned),
			}, []state{{key(Web), image.Scanned, ""}},
		},
		"not started": {TheScanner(), []client.Object{Pod(Namespace, "a", Creating("c", "nginx"))}, []state{{"docker.io/library/nginx:latest", image.Pending, ""}}},
		"not pulled":  {TheScanner(), []client.Object{Pod(Namespace, "a", Waiting("c", "nginx", "ErrImagePull"))}, []state{{"docker.io/library/nginx:latest", image.Failed, v1alpha1.ReasonNotPulled}}},
		"not pulled under two spellings": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Waiting("c", "nginx", "ErrImagePull"), Creating("d", "nginx:latest")), Pod(Namespace, "b", Creating("c", "docker.io/nginx"))},
			[]state{{"docker.io/library/nginx:latest", image.Failed, v1alpha1.ReasonNotPulled}},
		},
		"not started, and excluded": {TheScanner(Excluding("*/nginx")), []client.Object{Pod(Namespace, "a", Creating("c", "nginx"))}, []state{{"docker.io/library/nginx:latest", image.Excluded, ""}}},
		"not started here, running elsewhere": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Creating("c", Web)), Pod(Namespace, "b", Running("c", Web))}, []state{{key(Web), image.Pending, ""}},
		},
		"excluded, not started here, running elsewhere": {
			TheScanner(Excluding("*/web")), []client.Object{Pod(Namespace, "a", Creating("c", Web)), Pod(Namespace, "b", Running("c", Web))}, []state{{key(Web), image.Excluded, ""}},
		},
		"not pulled here, running elsewhere": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Waiting("c", Web, "ImagePullBackOff")), Pod(Namespace, "b", Running("c", Web))},
			[]state{{Web, image.Failed, v1alpha1.ReasonNotPulled}, {key(Web), image.Pending, ""}},
		},
		"a name that is none": {TheScanner(), []client.Object{Pod(Namespace, "a", Waiting("c", "Not A Name", "InvalidImageName"))}, []state{{"Not A Name", image.Failed, v1alpha1.ReasonNotPulled}}},
		"a node that nobody knows": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web), Creating("d", "nginx"), OnNode("unknown"))},
			[]state{{"docker.io/library/nginx:latest", image.Pending, ""}, {Web, image.Pending, v1alpha1.ReasonNodeUnknown}},
		},
		"a node that nobody knows, and excluded by digest beside a tag": {
			TheScanner(Excluding("ghcr.io/a/b@" + Digest("b"))), []client.Object{Pod(Namespace, "a", Running("c", "ghcr.io/a/b:1@"+Digest("b")), OnNode("unknown"))},
			[]state{{"ghcr.io/a/b:1", image.Excluded, ""}},
		},
		"no node takes the pod": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Unscheduled("c", "nginx"))},
			[]state{{"docker.io/library/nginx:latest", image.Pending, v1alpha1.ReasonPodUnschedulable}},
		},
		"no node takes one pod, another one starts": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Unscheduled("c", "nginx")), Pod(Namespace, "b", Creating("c", "nginx"))},
			[]state{{"docker.io/library/nginx:latest", image.Pending, ""}},
		},
		"an image volume": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web), Mounting("model", Vulnerable, ImageID(Vulnerable)))},
			[]state{{key(Web), image.Pending, ""}, {key(Vulnerable), image.Pending, ""}},
		},
		"an image volume of which nothing is known": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web), Mounting("model", Vulnerable, ""))},
			[]state{{Vulnerable, image.Failed, v1alpha1.ReasonVolumeDigestUnknown}, {key(Web), image.Pending, ""}},
		},
		"an imageID that names nothing": {
			TheScanner(), []client.Object{Pod(Namespace, "a", WithContainer("c", Web, corev1.ContainerStatus{ImageID: "sha512:abc"}))},
			[]state{{Web, image.Failed, v1alpha1.ReasonBareImageID}},
		},
		"two platforms": {
			TheScanner(), []client.Object{Pod(Namespace, "a", Running("c", Web)), Pod(Namespace, "b", Running("c", Web), OnNode(NodeARM))},
			[]state{{KeyOfImage(Web).Digest + ";linux/amd64", image.Pending, ""}, {KeyOfImage(Web).Digest + ";linux/arm64", image.Pending, ""}},
		},
		"another namespace": {TheScanner(), []client.Object{Pod("elsewhere", "a", Running("c", Web))}, nil},
		"not selected":      {TheScanner(Selecting("a", "b")), []client.Object{Pod(Namespace, "a", Running("c", Web))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := clusterOf(t, append(tt.objects, tt.scanner)...)
			var got []state
			for _, img := range coverageIn(t, cluster, tt.scanner, reportedIn(tt.objects...)).Running {
				got = append(got, state{img.ID, img.State, img.Reason})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("coverage (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCoverageProperties: for any pods, each image is listed once in one of the states, every container's image is listed, and the order of
// pods does not matter.
func TestCoverageProperties(t *testing.T) {
	scanner := TheScanner(Excluding("*/web"))
	rapid.Check(t, func(r *rapid.T) {
		pods := rapid.SliceOfN(anyPod(), 0, 6).Draw(r, "pods")
		scans := rapid.Map(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{Web, Vulnerable, "nginx"}), 0, 3, rapid.ID[string]), func(references []string) (scans []*v1alpha1.ImageScan) {
			for i, reference := range references {
				scans = append(scans, ImageScan(scanner, reference, []func(*v1alpha1.ImageScan){Scanned, Failed, Cataloging}[i]))
			}
			return scans
		}).Draw(r, "ImageScans")
		covered := coverageOf(t, scanner, pods, scans, false)
		ids := map[string]CoveredImage{}
		for _, img := range covered {
			if _, twice := ids[img.ID]; twice {
				r.Fatalf("%s is there twice", img.ID)
			}
			ids[img.ID] = img
			if _, valid := precedence[img.State]; !valid {
				r.Fatalf("%s is in the state %q", img.ID, img.State)
			}
			if img.State == image.Failed && img.Reason == "" {
				r.Fatalf("%s failed without a reason", img.ID)
			}
		}
		for i, pod := range pods {
			if !IsActive(pod) || !coversPod(scanner, pod) {
				continue
			}
			resolved, unresolved := ImagesOf(pod)
			for _, img := range resolved {
				_, byKey := ids[image.Key{Digest: img.ID.Digest, Platform: image.Platform{OS: "linux", Architecture: map[string]string{NodeAMD: "amd64", NodeARM: "arm64"}[pod.Spec.NodeName]}}.String()]
				_, byName := ids[img.Reference.String()]
				if !byKey && !byName && !runsElsewhere(pods, img.Reference, scanner) {
					r.Fatalf("the image %s of pod %d is not covered by %v", img.Reference, i, ids)
				}
			}
			for _, img := range unresolved {
				ref, err := image.ParseReference(img.Image)
				if _, found := ids[img.Image]; err != nil && !found {
					r.Fatalf("the image %q of pod %d is not covered by %v", img.Image, i, ids)
				}
				if _, found := ids[ref.String()]; err == nil && !found && !runsElsewhere(pods, ref, scanner) {
					r.Fatalf("the image %q of pod %d is not covered by %v", img.Image, i, ids)
				}
			}
		}
		if diff := cmp.Diff(covered, coverageOf(t, scanner, pods, scans, true)); diff != "" {
			r.Fatalf("the order of pods matters:\n%s", diff)
		}
	})
}

// runsElsewhere reports whether a container on a known node runs the image of a reference.
func runsElsewhere(pods []*corev1.Pod, ref image.Reference, scanner *v1alpha1.Scanner) bool {
	for _, pod := range pods {
		resolved, _ := ImagesOf(pod)
		for _, img := range resolved {
			if IsActive(pod) && coversPod(scanner, pod) && (pod.Spec.NodeName == NodeAMD || pod.Spec.NodeName == NodeARM) && img.Reference.String() == ref.String() {
				return true
			}
		}
	}
	return false
}

// coverageOf returns the coverage of a cluster with these pods, listed in the given or the reverse order.
func coverageOf(t *testing.T, scanner *v1alpha1.Scanner, pods []*corev1.Pod, scans []*v1alpha1.ImageScan, reverse bool) []CoveredImage {
	t.Helper()
	reader := &orderedReader{}
	for i := range pods {
		pod := pods[i].DeepCopy()
		pod.Name = fmt.Sprint("pod-", i)
		reader.pods = append(reader.pods, *pod)
	}
	if reverse {
		for i, j := 0, len(reader.pods)-1; i < j; i, j = i+1, j-1 {
			reader.pods[i], reader.pods[j] = reader.pods[j], reader.pods[i]
		}
	}
	reported := reportAges{}
	for _, scan := range scans {
		reader.scans = append(reader.scans, *scan)
		maps.Copy(reported, reportedIn(scan))
	}
	return coverageIn(t, reader, scanner, reported).Running
}

// coverageIn returns the coverage of a Scanner in a cluster, with these reports in the store.
func coverageIn(t *testing.T, cluster client.Reader, scanner *v1alpha1.Scanner, reported reportAges) Coverage {
	t.Helper()
	coverage, err := (&Inventory{Client: cluster, Store: reported}).Coverage(t.Context(), scanner, "scripted")
	if err != nil {
		t.Fatal(err)
	}
	return coverage
}

// clusterOf returns a client of a cluster with these objects, the two nodes and the cache's indexes.
func clusterOf(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	builder := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(Node(NodeAMD, "amd64"), Node(NodeARM, "arm64")).WithObjects(objects...)
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), SetupIndexes(t.Context(), Indexer{ClientBuilder: builder})); err != nil {
		t.Fatal(err)
	}
	return builder.Build()
}

// reportedIn returns current reports for the images of the given ImageScans.
func reportedIn(objects ...client.Object) reportAges {
	reported := reportAges{}
	for _, o := range objects {
		if scan, ok := o.(*v1alpha1.ImageScan); ok {
			if key, err := KeyOf(scan); err == nil {
				reported[store.NamespacedImage{Namespace: scan.Namespace, Key: key}] = store.ReportAge{Current: true}
			}
		}
	}
	return reported
}

// orderedReader is a reader that lists pods and ImageScans in the order that a test gives them.
type orderedReader struct {
	pods  []corev1.Pod
	scans []v1alpha1.ImageScan
}

func (l *orderedReader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	architecture, found := map[string]string{NodeAMD: "amd64", NodeARM: "arm64"}[key.Name]
	if into, isNode := o.(*corev1.Node); isNode && found {
		*into = *Node(key.Name, architecture)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
}

func (l *orderedReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch into := list.(type) {
	case *corev1.PodList:
		into.Items = l.pods
	case *v1alpha1.ImageScanList:
		into.Items = l.scans
	}
	return nil
}

// reportAges is a store with reports of these ages. It has no records of Jobs, and nobody used an image before.
type reportAges map[store.NamespacedImage]store.ReportAge

func (r reportAges) ReportAges(context.Context, string, string) (map[store.NamespacedImage]store.ReportAge, error) {
	return r, nil
}

func (reportAges) IsRecorded(context.Context, string, string, string) (bool, error) {
	return false, nil
}

func (reportAges) RecentImages(context.Context, string, string) ([]store.RecentImage, error) {
	return nil, nil
}

func (reportAges) CatalogScopes(context.Context, string, image.Key, string) ([]store.Scope, error) {
	return nil, nil
}

func (reportAges) UploadedSBOM(context.Context, string, image.Key) (store.UploadedSBOM, error) {
	return store.UploadedSBOM{}, store.ErrNotFound
}

func (reportAges) SetUsage(context.Context, store.ImageUsage) error { return nil }

// TestHasImages: a namespace whose pods have ended recently is not one without images.
func TestHasImages(t *testing.T) {
	images := func(states ...image.State) (all []CoveredImage) {
		for _, state := range states {
			all = append(all, CoveredImage{State: state})
		}
		return all
	}
	for name, c := range map[string]struct {
		part          namespaceImages
		used, waiting bool
	}{
		"none":             {namespaceImages{}, false, false},
		"running":          {namespaceImages{running: images(image.Scanned, image.Failed)}, true, false},
		"running, pending": {namespaceImages{running: images(image.Scanned, image.Pending)}, true, true},
		"ended":            {namespaceImages{recent: images(image.Scanned)}, true, false},
		"ended, pending":   {namespaceImages{running: images(image.Scanned), recent: images(image.Pending)}, true, true},
	} {
		used, waiting := Coverage{parts: map[string]namespaceImages{"shop": c.part}}.HasImages("shop")
		if used != c.used || waiting != c.waiting {
			t.Errorf("%s: used %t, waiting %t; want %t, %t", name, used, waiting, c.used, c.waiting)
		}
	}
}
