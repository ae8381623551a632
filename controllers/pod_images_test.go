package controllers

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// dnsName is an RFC 1123 label.
var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// TestImagesOf: which images of a pod are resolved to a digest and which are not.
func TestImagesOf(t *testing.T) {
	pinned := "ghcr.io/a/b@" + digest("pinned")
	resolved := func(container, reference string) inventory.PodImage {
		ref, _ := image.ParseReference(reference)
		id, _ := image.ParseID(imageID(reference))
		return inventory.PodImage{Container: container, ID: id, Reference: ref}
	}
	for name, tt := range map[string]struct {
		pod        *corev1.Pod
		resolved   []inventory.PodImage
		unresolved []inventory.UnresolvedImage
	}{
		"all kinds of containers": {
			aPod(fixtureNamespace, "a", initialised("i", "init:1"), running("c", web), debugged("e", "debug:1")),
			[]inventory.PodImage{resolved("i", "init:1"), resolved("c", web), resolved("e", "debug:1")}, nil,
		},
		"not started yet": {aPod(fixtureNamespace, "a", creating("c", web)), nil, []inventory.UnresolvedImage{{Container: "c", Image: web}}},
		"no status at all": {
			&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "b", Image: "b:1"}, {Name: "a", Image: "a:1"}}}},
			nil, []inventory.UnresolvedImage{{Container: "a", Image: "a:1"}, {Container: "b", Image: "b:1"}},
		},
		"not pulled": {
			aPod(fixtureNamespace, "a", waiting("c", web, "ImagePullBackOff")), nil,
			[]inventory.UnresolvedImage{{Container: "c", Image: web, Failed: true, Reason: v1alpha1.ReasonNotPulled, Message: "ImagePullBackOff: the kubelet says more"}},
		},
		"crashing, but pulled": {
			aPod(fixtureNamespace, "a", containerWith("c", web, corev1.ContainerStatus{
				ImageID: imageID(web), State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			})), []inventory.PodImage{resolved("c", web)}, nil,
		},
		"a name that is none": {
			aPod(fixtureNamespace, "a", waiting("c", "Not A Name", "InvalidImageName")), nil,
			[]inventory.UnresolvedImage{{Container: "c", Image: "Not A Name", Failed: true, Reason: v1alpha1.ReasonNotPulled,
				Message: `image reference "Not A Name": invalid reference format: repository name (library/Not A Name) must be lowercase`}},
		},
		"loaded on the node": {
			aPod(fixtureNamespace, "a", loaded("c", web)),
			[]inventory.PodImage{{Container: "c", ID: image.ID{Digest: digest("loaded " + web), Bare: true}, Reference: resolved("c", web).Reference}}, nil,
		},
		"loaded on the node, but the spec says which": {
			aPod(fixtureNamespace, "a", loaded("c", pinned)),
			[]inventory.PodImage{{Container: "c", ID: image.ID{Repository: "ghcr.io/a/b", Digest: digest("pinned")}, Reference: resolved("c", pinned).Reference}}, nil,
		},
		"loaded on a node with CRI-O, but the spec says which": {
			aPod(fixtureNamespace, "a", containerWith("c", pinned, corev1.ContainerStatus{ImageID: strings.TrimPrefix(digest("loaded"), "sha256:")})),
			[]inventory.PodImage{{Container: "c", ID: image.ID{Repository: "ghcr.io/a/b", Digest: digest("pinned")}, Reference: resolved("c", pinned).Reference}}, nil,
		},
		"a volume whose image the node reports": {
			aPod(fixtureNamespace, "a", running("c", web), mounting("model", vulnerable, imageID(vulnerable))),
			[]inventory.PodImage{resolved("c", web), resolved("volume/model", vulnerable)}, nil,
		},
		"a volume whose image is pinned": {
			aPod(fixtureNamespace, "a", running("c", web), mounting("model", pinned, "")),
			[]inventory.PodImage{resolved("c", web), {Container: "volume/model", ID: image.ID{Repository: "ghcr.io/a/b", Digest: digest("pinned")}, Reference: resolved("c", pinned).Reference}}, nil,
		},
		"a volume of which nothing is known": {
			aPod(fixtureNamespace, "a", running("c", web), mounting("model", vulnerable, "")),
			[]inventory.PodImage{resolved("c", web)},
			[]inventory.UnresolvedImage{{Container: "volume/model", Image: vulnerable, Failed: true, Reason: v1alpha1.ReasonVolumeDigestUnknown,
				Message: "the node does not report which image the volume model holds: pin it by digest in the pod's spec, or use Kubernetes 1.35 or later"}},
		},
		"a volume of a pod that has not started": {
			aPod(fixtureNamespace, "a", creating("c", web), mounting("model", pinned, "")), nil,
			[]inventory.UnresolvedImage{{Container: "c", Image: web}, {Container: "volume/model", Image: pinned}},
		},
		"no node takes the pod": {
			&corev1.Pod{
				Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: web}}},
				Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}},
			}, nil, []inventory.UnresolvedImage{{Container: "c", Image: web, Reason: v1alpha1.ReasonPodUnschedulable}},
		},
		"an imageID that is none": {
			aPod(fixtureNamespace, "a", containerWith("c", web, corev1.ContainerStatus{ImageID: "sha512:abc"})), nil,
			[]inventory.UnresolvedImage{{Container: "c", Image: web, Failed: true, Reason: v1alpha1.ReasonBareImageID, Message: `imageID "sha512:abc": no SHA-256 digest in it`}},
		},
		"a status of a container that is not there": {
			&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "ghost", ImageID: imageID(web)}}}}, nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			gotResolved, gotUnresolved := inventory.ImagesOf(tt.pod)
			if diff := cmp.Diff(tt.resolved, gotResolved); diff != "" {
				t.Errorf("resolved (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.unresolved, gotUnresolved); diff != "" {
				t.Errorf("unresolved (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSelects: which pods a Scanner is responsible for.
func TestSelects(t *testing.T) {
	now := metav1.NewTime(noon)
	ofWorker := slices.Clip([]func(*corev1.Pod){
		labelled("app.kubernetes.io/name", "scanner-operator"), labelled("app.kubernetes.io/managed-by", "scanner-operator"),
		labelled("app.kubernetes.io/component", "catalog"),
	})
	for name, tt := range map[string]struct {
		scanner *v1alpha1.Scanner
		pod     *corev1.Pod
		want    bool
	}{
		"no selector":         {theScanner(), aPod(fixtureNamespace, "a"), true},
		"an empty selector":   {theScanner(func(s *v1alpha1.Scanner) { s.Spec.PodSelector = &metav1.LabelSelector{} }), aPod(fixtureNamespace, "a"), true},
		"the label":           {theScanner(selecting("a", "b")), aPod(fixtureNamespace, "a", labelled("a", "b")), true},
		"another value":       {theScanner(selecting("a", "b")), aPod(fixtureNamespace, "a", labelled("a", "c")), false},
		"no label":            {theScanner(selecting("a", "b")), aPod(fixtureNamespace, "a"), false},
		"ignored":             {theScanner(), aPod(fixtureNamespace, "a", labelled("scanner-operator.io/ignore", "true")), false},
		"ignored, not quite":  {theScanner(), aPod(fixtureNamespace, "a", labelled("scanner-operator.io/ignore", "yes")), true},
		"selected, ignored":   {theScanner(selecting("a", "b")), aPod(fixtureNamespace, "a", labelled("a", "b"), labelled("scanner-operator.io/ignore", "true")), false},
		"pending":             {theScanner(), aPod(fixtureNamespace, "a", inPhase(corev1.PodPending)), true},
		"succeeded":           {theScanner(), aPod(fixtureNamespace, "a", inPhase(corev1.PodSucceeded)), false},
		"failed":              {theScanner(), aPod(fixtureNamespace, "a", inPhase(corev1.PodFailed)), false},
		"a worker":            {theScanner(), aPod(fixtureNamespace, "a", append(ofWorker, ownedBy("batch/v1", "Job", "scan-catalog-x1", "u"))...), false},
		"only like a worker":  {theScanner(), aPod(fixtureNamespace, "a", ofWorker...), true},
		"another Job's":       {theScanner(), aPod(fixtureNamespace, "a", append(ofWorker, ownedBy("batch/v1", "Job", "backup-x1", "u"))...), true},
		"a Scanner that goes": {theScanner(func(s *v1alpha1.Scanner) { s.DeletionTimestamp = &now }), aPod(fixtureNamespace, "a"), false},
		"a selector that the API server could not check": {theScanner(func(s *v1alpha1.Scanner) {
			s.Spec.PodSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		}), aPod(fixtureNamespace, "a"), false},
	} {
		if got := inventory.CoversActivePod(tt.scanner, tt.pod); got != tt.want {
			t.Errorf("%s: selected is %v, want %v", name, got, tt.want)
		}
	}
}

// TestPullSecrets: each name is returned once and sorted; empty names are dropped.
func TestPullSecrets(t *testing.T) {
	if diff := cmp.Diff([]string{"a", "b"}, inventory.PullSecrets(aPod(fixtureNamespace, "x", pulledWith("b", "a", "", "b")))); diff != "" {
		t.Errorf("pull secrets (-want +got):\n%s", diff)
	}
}

// TestWorkloadOf: the workload that users deployed to get a pod.
func TestWorkloadOf(t *testing.T) {
	hash := func(value string) func(*corev1.Pod) { return labelled("pod-template-hash", value) }
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a bare pod":                        {aPod(fixtureNamespace, "x"), "Pod/x"},
		"of a Deployment":                   {aPod(fixtureNamespace, "x", hash("5d4f8"), ownedBy("apps/v1", "ReplicaSet", "web-5d4f8", "u")), "Deployment/web"},
		"of a Deployment with dashes":       {aPod(fixtureNamespace, "x", hash("5d4f8"), ownedBy("apps/v1", "ReplicaSet", "a-b-5d4f8", "u")), "Deployment/a-b"},
		"of a ReplicaSet":                   {aPod(fixtureNamespace, "x", ownedBy("apps/v1", "ReplicaSet", "web-5d4f8", "u")), "ReplicaSet/web-5d4f8"},
		"of a ReplicaSet with another hash": {aPod(fixtureNamespace, "x", hash("other"), ownedBy("apps/v1", "ReplicaSet", "web-5d4f8", "u")), "ReplicaSet/web-5d4f8"},
		"of a CronJob":                      {aPod(fixtureNamespace, "x", ownedBy("batch/v1", "Job", "nightly-29401440", "u")), "CronJob/nightly"},
		"of a Job":                          {aPod(fixtureNamespace, "x", ownedBy("batch/v1", "Job", "migrate-2024", "u")), "Job/migrate-2024"},
		"of a Job that ends in a date":      {aPod(fixtureNamespace, "x", ownedBy("batch/v1", "Job", "run-20240101x", "u")), "Job/run-20240101x"},
		"of a StatefulSet":                  {aPod(fixtureNamespace, "x", ownedBy("apps/v1", "StatefulSet", "db", "u")), "StatefulSet/db"},
		"of a DaemonSet":                    {aPod(fixtureNamespace, "x", ownedBy("apps/v1", "DaemonSet", "agent", "u")), "DaemonSet/agent"},
		"of a node":                         {aPod(fixtureNamespace, "x", ownedBy("v1", "Node", "node-1", "u")), "Node/node-1"},
		"of something else":                 {aPod(fixtureNamespace, "x", ownedBy("argoproj.io/v1alpha1", "Workflow", "w", "u")), "Workflow/w"},
		"with an owner that does not control": {
			func() *corev1.Pod {
				pod := aPod(fixtureNamespace, "x", ownedBy("apps/v1", "ReplicaSet", "web-1", "u"))
				pod.OwnerReferences[0].Controller = ptr.To(false)
				return pod
			}(), "Pod/x",
		},
	} {
		kind, workload := inventory.WorkloadOf(tt.pod)
		if got := kind + "/" + workload; got != tt.want {
			t.Errorf("%s: the workload is %s, want %s", name, got, tt.want)
		}
	}
}

// anyPod generates pods with fields that the operator reads and many that it does not.
func anyPod() *rapid.Generator[*corev1.Pod] {
	return rapid.Custom(func(t *rapid.T) *corev1.Pod {
		draw := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
		pod := aPod(fixtureNamespace, draw("name", "a", "b"))
		pod.UID, pod.ResourceVersion = "uid", "7"
		pod.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": repeatToLength("x", 500)}
		if rapid.Bool().Draw(t, "annotated") {
			pod.Annotations["all"+podmark.AnnotationSuffix] = "{}"
		}
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		pod.Finalizers = []string{"example.com/x"}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data"}}
		for i := range rapid.IntRange(0, 4).Draw(t, "containers") {
			name := string(rune('a' + i))
			reference := draw("image", web, vulnerable, "nginx", "Not A Name", "ghcr.io/a/b@"+digest("pinned"))
			add := []func(string, string) func(*corev1.Pod){creating, loadedIf, runningIf, notPulled, initialisedIf, debuggedIf}
			add[rapid.IntRange(0, len(add)-1).Draw(t, "kind")](name, reference)(pod)
		}
		for key, values := range map[string][]string{"tier": {"front", "back"}, "scanner-operator.io/ignore": {"true", "false"}, "pod-template-hash": {"5d4f8", "x"}} {
			if rapid.Bool().Draw(t, "labelled "+key) {
				labelled(key, draw(key, values...))(pod)
			}
		}
		if rapid.Bool().Draw(t, "mounting") {
			mounting("model", draw("volume", web, "Not A Name", "ghcr.io/a/b@"+digest("pinned")), draw("mounted", "", imageID(web)))(pod)
		}
		if rapid.Bool().Draw(t, "unschedulable") {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}, {Type: corev1.PodReady}}
		}
		if rapid.Bool().Draw(t, "owned") {
			ownedBy("apps/v1", draw("owner", "ReplicaSet", "Job", "StatefulSet"), draw("owner's name", "web-5d4f8", "nightly-29401440"), "owner")(pod)
		}
		if rapid.Bool().Draw(t, "with pull secrets") {
			pulledWith("b", "a")(pod)
		}
		pod.Spec.NodeName = draw("node", nodeAMD, nodeARM, "", "unknown")
		pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
		pod.Spec.RestartPolicy = rapid.SampledFrom([]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever}).Draw(t, "restart policy")
		if rapid.Bool().Draw(t, "finished") {
			finishedAt(noon.Add(-time.Hour))(pod)
		}
		if rapid.Bool().Draw(t, "with a readiness") && !inventory.IsActive(pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, LastTransitionTime: metav1.NewTime(noon.Add(-2 * time.Hour))})
		}
		return pod
	})
}

func valid(reference string) bool {
	_, err := image.ParseReference(reference)
	return err == nil
}

// runningIf, initialisedIf and debuggedIf fall back to creating if the reference is invalid, so that any reference can be drawn.
func runningIf(container, reference string) func(*corev1.Pod) {
	if !valid(reference) {
		return creating(container, reference)
	}
	return running(container, reference)
}

func loadedIf(container, reference string) func(*corev1.Pod) {
	return loaded(container, reference)
}

func notPulled(container, reference string) func(*corev1.Pod) {
	return waiting(container, reference, "ErrImagePull")
}

func initialisedIf(container, reference string) func(*corev1.Pod) {
	if !valid(reference) {
		return creating(container, reference)
	}
	return initialised(container, reference)
}

func debuggedIf(container, reference string) func(*corev1.Pod) {
	if !valid(reference) {
		return creating(container, reference)
	}
	return debugged(container, reference)
}

// TestStripPod: a stripped pod gives the same decisions as the original, and has no other fields.
func TestStripPod(t *testing.T) {
	scanners := []*v1alpha1.Scanner{theScanner(), theScanner(selecting("tier", "front"))}
	rapid.Check(t, func(t *rapid.T) {
		pod := anyPod().Draw(t, "pod")
		original := pod.DeepCopy()
		kept, err := inventory.StripPod(pod)
		if err != nil {
			t.Fatal(err)
		}
		stripped := kept.(*corev1.Pod)
		resolved, unresolved := inventory.ImagesOf(original)
		gotResolved, gotUnresolved := inventory.ImagesOf(stripped)
		workloadKind, workloadName := inventory.WorkloadOf(original)
		gotKind, gotName := inventory.WorkloadOf(stripped)
		for what, pair := range map[string][2]any{
			"resolved images":   {resolved, gotResolved},
			"unresolved images": {unresolved, gotUnresolved},
			"container images":  {inventory.ContainerImages(original), inventory.ContainerImages(stripped)},
			"pull secrets":      {inventory.PullSecrets(original), inventory.PullSecrets(stripped)},
			"ServiceAccount":    {original.Spec.ServiceAccountName, stripped.Spec.ServiceAccountName},
			"workload":          {workloadKind + "/" + workloadName, gotKind + "/" + gotName},
			"runs":              {inventory.IsActive(original), inventory.IsActive(stripped)},
			"end":               {inventory.EndedAt(original, noon), inventory.EndedAt(stripped, noon)},
			"is meant to end":   {inventory.RunsToCompletion(original), inventory.RunsToCompletion(stripped)},
			"identity":          {[]any{original.Name, original.Namespace, original.UID, original.ResourceVersion}, []any{stripped.Name, stripped.Namespace, stripped.UID, stripped.ResourceVersion}},
			"node":              {original.Spec.NodeName, stripped.Spec.NodeName},
			"deletion":          {original.DeletionTimestamp, stripped.DeletionTimestamp},
			"annotation":        {original.Annotations["all"+podmark.AnnotationSuffix], stripped.Annotations["all"+podmark.AnnotationSuffix]},
		} {
			if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
				t.Errorf("%s (-original +stripped):\n%s", what, diff)
			}
		}
		for _, scanner := range scanners {
			if inventory.CoversActivePod(scanner, original) != inventory.CoversActivePod(scanner, stripped) {
				t.Errorf("the Scanner with the selector %v selects one of the two", scanner.Spec.PodSelector)
			}
		}
		data := slices.ContainsFunc(stripped.Spec.Volumes, func(v corev1.Volume) bool { return v.Image == nil })
		if data || len(stripped.ManagedFields)+len(stripped.Finalizers) > 0 || len(slices.Collect(maps.Keys(stripped.Annotations))) > 1 {
			t.Errorf("more is kept than is used: %+v", stripped)
		}
		if diff := cmp.Diff(original, pod); diff != "" {
			t.Errorf("the pod itself is changed:\n%s", diff)
		}
	})
}

// TestStripOthers: other objects, such as the tombstone of a missed deletion, pass unchanged. A node keeps only its platform.
func TestStripOthers(t *testing.T) {
	for _, strip := range []func(any) (any, error){inventory.StripPod, inventory.StripNode} {
		if got, err := strip("tombstone"); err != nil || got != "tombstone" {
			t.Errorf("something else becomes %v, %v", got, err)
		}
	}
	full := node(nodeARM, "arm64")
	full.Labels = map[string]string{"a": "b"}
	kept, err := inventory.StripNode(full)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeARM},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "arm64"}},
	}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}
