package controllers

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// scanned, cataloging, failed and triedAgain set the status of an ImageScan.
func scanned(s *v1alpha1.ImageScan) { s.Status.Phase = v1alpha1.PhaseScanned }

func cataloging(s *v1alpha1.ImageScan) { s.Status.Phase = v1alpha1.PhaseCataloging }

func failed(s *v1alpha1.ImageScan) {
	s.Status.Phase, s.Status.Attempts = v1alpha1.PhaseFailed, 2
	setWhileTrue(&s.Status.Conditions, v1alpha1.ConditionReady, true, "ImageNotFound", "", 1)
}

func triedAgain(s *v1alpha1.ImageScan) {
	failed(s)
	s.Status.Phase = v1alpha1.PhaseCataloging
}

// TestCoverage: each image of the selected pods is in exactly one state.
func TestCoverage(t *testing.T) {
	type state struct {
		ID     string
		State  inventory.ImageState
		Reason string
	}
	key := func(reference string) string { return keyOfImage(reference).String() }
	for name, tt := range map[string]struct {
		scanner *v1alpha1.Scanner
		objects []client.Object
		want    []state
	}{
		"no pods":           {theScanner(), nil, nil},
		"no ImageScan yet":  {theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web))}, []state{{key(web), inventory.ImagePending, ""}}},
		"being cataloged":   {theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web)), scanOf(theScanner(), web, cataloging)}, []state{{key(web), inventory.ImagePending, ""}}},
		"scanned":           {theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web)), scanOf(theScanner(), web, scanned)}, []state{{key(web), inventory.ImageScanned, ""}}},
		"failed":            {theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web)), scanOf(theScanner(), web, failed)}, []state{{key(web), inventory.ImageFailed, "ImageNotFound"}}},
		"failed, and tried": {theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web)), scanOf(theScanner(), web, triedAgain)}, []state{{key(web), inventory.ImageFailed, "ImageNotFound"}}},
		"another Scanner's ImageScan": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web)), scanOf(theScanner(func(s *v1alpha1.Scanner) { s.UID = "another" }), web, scanned)},
			[]state{{key(web), inventory.ImagePending, ""}},
		},
		"an ImageScan that nobody runs": {theScanner(), []client.Object{scanOf(theScanner(), web, scanned)}, nil},
		"three replicas": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web)), aPod(fixtureNamespace, "b", running("c", web)), aPod(fixtureNamespace, "c", running("c", web), running("d", web))},
			[]state{{key(web), inventory.ImagePending, ""}},
		},
		"excluded": {theScanner(excluding("*/web")), []client.Object{aPod(fixtureNamespace, "a", running("c", web))}, []state{{key(web), inventory.ImageExcluded, ""}}},
		"excluded under one of two names": {
			theScanner(excluding("*/web")), []client.Object{
				aPod(fixtureNamespace, "a", running("c", web)),
				aPod(fixtureNamespace, "b", containerWith("c", "other:1", corev1.ContainerStatus{ImageID: imageID(web)})),
				scanOf(theScanner(), web, scanned),
			}, []state{{key(web), inventory.ImageScanned, ""}},
		},
		"not started": {theScanner(), []client.Object{aPod(fixtureNamespace, "a", creating("c", "nginx"))}, []state{{"docker.io/library/nginx:latest", inventory.ImagePending, ""}}},
		"not pulled":  {theScanner(), []client.Object{aPod(fixtureNamespace, "a", waiting("c", "nginx", "ErrImagePull"))}, []state{{"docker.io/library/nginx:latest", inventory.ImageFailed, v1alpha1.ReasonNotPulled}}},
		"not pulled under two spellings": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", waiting("c", "nginx", "ErrImagePull"), creating("d", "nginx:latest")), aPod(fixtureNamespace, "b", creating("c", "docker.io/nginx"))},
			[]state{{"docker.io/library/nginx:latest", inventory.ImageFailed, v1alpha1.ReasonNotPulled}},
		},
		"not started, and excluded": {theScanner(excluding("*/nginx")), []client.Object{aPod(fixtureNamespace, "a", creating("c", "nginx"))}, []state{{"docker.io/library/nginx:latest", inventory.ImageExcluded, ""}}},
		"not started here, running elsewhere": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", creating("c", web)), aPod(fixtureNamespace, "b", running("c", web))}, []state{{key(web), inventory.ImagePending, ""}},
		},
		"excluded, not started here, running elsewhere": {
			theScanner(excluding("*/web")), []client.Object{aPod(fixtureNamespace, "a", creating("c", web)), aPod(fixtureNamespace, "b", running("c", web))}, []state{{key(web), inventory.ImageExcluded, ""}},
		},
		"not pulled here, running elsewhere": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", waiting("c", web, "ImagePullBackOff")), aPod(fixtureNamespace, "b", running("c", web))},
			[]state{{web, inventory.ImageFailed, v1alpha1.ReasonNotPulled}, {key(web), inventory.ImagePending, ""}},
		},
		"a name that is none": {theScanner(), []client.Object{aPod(fixtureNamespace, "a", waiting("c", "Not A Name", "InvalidImageName"))}, []state{{"Not A Name", inventory.ImageFailed, v1alpha1.ReasonNotPulled}}},
		"a node that nobody knows": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web), creating("d", "nginx"), onNode("unknown"))},
			[]state{{"docker.io/library/nginx:latest", inventory.ImagePending, ""}, {web, inventory.ImagePending, v1alpha1.ReasonNodeUnknown}},
		},
		"no node takes the pod": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", unscheduled("c", "nginx"))},
			[]state{{"docker.io/library/nginx:latest", inventory.ImagePending, v1alpha1.ReasonPodUnschedulable}},
		},
		"no node takes one pod, another one starts": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", unscheduled("c", "nginx")), aPod(fixtureNamespace, "b", creating("c", "nginx"))},
			[]state{{"docker.io/library/nginx:latest", inventory.ImagePending, ""}},
		},
		"an image volume": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web), mounting("model", vulnerable, imageID(vulnerable)))},
			[]state{{key(web), inventory.ImagePending, ""}, {key(vulnerable), inventory.ImagePending, ""}},
		},
		"an image volume of which nothing is known": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web), mounting("model", vulnerable, ""))},
			[]state{{vulnerable, inventory.ImageFailed, v1alpha1.ReasonVolumeDigestUnknown}, {key(web), inventory.ImagePending, ""}},
		},
		"an imageID that names nothing": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", containerWith("c", web, corev1.ContainerStatus{ImageID: "sha512:abc"}))},
			[]state{{web, inventory.ImageFailed, v1alpha1.ReasonBareImageID}},
		},
		"two platforms": {
			theScanner(), []client.Object{aPod(fixtureNamespace, "a", running("c", web)), aPod(fixtureNamespace, "b", running("c", web), onNode(nodeARM))},
			[]state{{keyOfImage(web).Digest + ";linux/amd64", inventory.ImagePending, ""}, {keyOfImage(web).Digest + ";linux/arm64", inventory.ImagePending, ""}},
		},
		"another namespace": {theScanner(), []client.Object{aPod("elsewhere", "a", running("c", web))}, nil},
		"not selected":      {theScanner(selecting("a", "b")), []client.Object{aPod(fixtureNamespace, "a", running("c", web))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, append(tt.objects, tt.scanner)...)
			var got []state
			for _, img := range coverageIn(t, u.client, tt.scanner, reportedIn(tt.objects...)).Running {
				got = append(got, state{img.ID, img.State, img.Reason})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("coverage (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCoverageProperties: for any pods, the counts add up, each image is listed once, every container's image is listed, and the order of
// pods does not matter.
func TestCoverageProperties(t *testing.T) {
	scanner := theScanner(excluding("*/web"))
	rapid.Check(t, func(r *rapid.T) {
		pods := rapid.SliceOfN(anyPod(), 0, 6).Draw(r, "pods")
		scans := rapid.Map(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{web, vulnerable, "nginx"}), 0, 3, rapid.ID[string]), func(references []string) (scans []*v1alpha1.ImageScan) {
			for i, reference := range references {
				scans = append(scans, scanOf(scanner, reference, []func(*v1alpha1.ImageScan){scanned, failed, cataloging}[i]))
			}
			return scans
		}).Draw(r, "ImageScans")
		covered := coverageOf(t, scanner, pods, scans, false)
		counts := countImages(covered)
		if sum := counts.Scanned + counts.Pending + counts.Failed + counts.Excluded; sum != counts.Total || int(sum) != len(covered) {
			r.Fatalf("%d images are %+v", len(covered), counts)
		}
		ids := map[string]inventory.CoveredImage{}
		for _, img := range covered {
			if _, twice := ids[img.ID]; twice {
				r.Fatalf("%s is there twice", img.ID)
			}
			ids[img.ID] = img
			if img.State == inventory.ImageFailed && img.Reason == "" {
				r.Fatalf("%s failed without a reason", img.ID)
			}
		}
		for i, pod := range pods {
			if !inventory.CoversActivePod(scanner, pod) {
				continue
			}
			resolved, unresolved := inventory.ImagesOf(pod)
			for _, img := range resolved {
				_, byKey := ids[image.Key{Digest: img.ID.Digest, Platform: image.Platform{OS: "linux", Architecture: map[string]string{nodeAMD: "amd64", nodeARM: "arm64"}[pod.Spec.NodeName]}}.String()]
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
		resolved, _ := inventory.ImagesOf(pod)
		for _, img := range resolved {
			if inventory.CoversActivePod(scanner, pod) && (pod.Spec.NodeName == nodeAMD || pod.Spec.NodeName == nodeARM) && img.Reference.String() == ref.String() {
				return true
			}
		}
	}
	return false
}

// coverageOf returns the coverage of a cluster with these pods, listed in the given or the reverse order.
func coverageOf(t *testing.T, scanner *v1alpha1.Scanner, pods []*corev1.Pod, scans []*v1alpha1.ImageScan, reverse bool) []inventory.CoveredImage {
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
func coverageIn(t *testing.T, cluster client.Reader, scanner *v1alpha1.Scanner, reported reportAges) inventory.Coverage {
	t.Helper()
	coverage, err := (&inventory.Inventory{Client: cluster, Store: reported}).Coverage(t.Context(), scanner, "scripted")
	if err != nil {
		t.Fatal(err)
	}
	return coverage
}

// reportedIn returns current reports for the images of the given ImageScans.
func reportedIn(objects ...client.Object) reportAges {
	reported := reportAges{}
	for _, o := range objects {
		if scan, ok := o.(*v1alpha1.ImageScan); ok {
			if key, err := inventory.KeyOf(scan); err == nil {
				reported[key] = store.ReportAge{Current: true}
			}
		}
	}
	return reported
}

// TestCoverageHasReceivers: an image has the receivers that each of its pods, or else their namespace, names.
func TestCoverageHasReceivers(t *testing.T) {
	names := func(receivers string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationReceiver: receivers} }
	}
	u := newUnit(t, theScanner(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fixtureNamespace, Annotations: map[string]string{v1alpha1.AnnotationReceiver: "team"}}},
		aPod(fixtureNamespace, "a", running("c", web)), aPod(fixtureNamespace, "b", running("c", web), names("two, one, No Name")), aPod(fixtureNamespace, "c", running("c", web), names("")),
	)
	covered := coverageIn(t, u.client, theScanner(), nil)
	images := describeCoverage(covered, nil, noon).Images
	if len(images) != 1 {
		t.Fatalf("%d images, want one", len(images))
	}
	if diff := cmp.Diff([]string{"", "one,two", "team"}, images[0].Receivers); diff != "" {
		t.Errorf("receivers (-want +got):\n%s", diff)
	}
}

// TestCoverageOfUnknownImages: nothing counts as fixed in the repository of an image that runs and whose content is not known.
func TestCoverageOfUnknownImages(t *testing.T) {
	scanner := theScanner(excluding("*/web"))
	for name, pod := range map[string]*corev1.Pod{
		"excluded":            aPod(fixtureNamespace, "a", running("c", web)),
		"excluded, no digest": aPod(fixtureNamespace, "a", creating("c", web)),
		"an unknown node":     aPod(fixtureNamespace, "a", running("c", vulnerable), onNode("unknown")),
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, scanner, pod)
			covered := coverageIn(t, u.client, scanner, nil)
			if coverage := describeCoverage(covered, nil, noon); len(coverage.UnknownRepositories) != 1 {
				t.Errorf("the repositories %q are unknown, want one", coverage.UnknownRepositories)
			}
		})
	}
}
