package inventory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ScannedImage is the image of an ImageScan, for the Scanner that owns it.
type ScannedImage struct {
	Scan    *v1alpha1.ImageScan
	Scanner v1alpha1.GenericScanner
	Key     image.Key
	// Engine is the name under which the engine's results are stored; empty if the operator runs without the Scanner's engine.
	Engine string
	// Refused is true if the namespace has too many Scanners and this one is not among the admitted.
	Refused bool
}

// Identify returns the image of an ImageScan, without the engine. It returns nil for an ImageScan that no Scanner owns any more or whose image
// is invalid.
func (i *Inventory) Identify(ctx context.Context, scan *v1alpha1.ImageScan) (*ScannedImage, error) {
	scanner, err := i.owner(ctx, scan)
	if scanner == nil || err != nil {
		return nil, err
	}
	key, err := KeyOf(scan)
	if err != nil {
		return nil, nil //nolint:nilerr // the contract says so
	}
	admitted, err := i.Admits(ctx, scanner)
	if err != nil {
		return nil, err
	}
	return &ScannedImage{Scan: scan, Scanner: scanner, Key: key, Refused: !admitted}, nil
}

// Use is one container that runs or ran an image.
type Use struct {
	Pod   *corev1.Pod
	Image RunningImage
	// Receivers are those that the pod, or else its namespace, names. Empty if neither names any.
	Receivers []string
	// EndedAt is when the pod ended; zero while it runs.
	EndedAt time.Time
}

// Uses are the containers that run or ran an image.
type Uses struct {
	// Running are the containers that run the image now. Complete is false while the platform of at least one of their pods' nodes is still
	// unknown, so that Running may be incomplete.
	Running  []Use
	Complete bool
	// Ended are the containers that ran the image and whose pods ended within the Scanner's retention.
	Ended []Use
	// Dropped are the containers whose pods run or ran the image and are not the Scanner's responsibility any more. Their images have no key.
	Dropped []Use
	// NotAllowed are receivers and Slack channels of a ClusterScanner that pods which run the image, or their namespace, name and that the
	// namespace may not use, such as "receiver security", sorted.
	NotAllowed []string
	// Scope is the credential scope of the image's catalog.
	Scope store.Scope
	// SBOMPolicy is the policy by which an attested or uploaded SBOM of the image is accepted; empty for none.
	SBOMPolicy string
	// VEXPolicy is the policy by which OpenVEX documents that are attached to the image are accepted; empty for none.
	VEXPolicy string
}

// Last returns the containers that run the image now or, if there are none, those that ran it last.
func (u Uses) Last() []Use {
	if len(u.Running) > 0 {
		return u.Running
	}
	return u.Ended
}

// Unknown reports whether no container is known that runs the image, and at least one may run it.
func (u Uses) Unknown() bool { return !u.Complete && len(u.Running) == 0 }

// All returns the containers that run the image and those that ran it within the retention.
func (u Uses) All() []Use { return slices.Concat(u.Running, u.Ended) }

// FindUses returns the containers that run an image or ran it within the Scanner's retention. The scope is not set if they are Unknown. The
// Uses that it returns with an error are not complete.
func (i *Inventory) FindUses(ctx context.Context, img ScannedImage) (Uses, error) {
	uses, now := Uses{Complete: true}, i.Clock.Now()
	inUse := func(pod *corev1.Pod) bool { return hasImagesInUse(img.Scanner, pod, now) }
	namespace, err := readNamespace(ctx, i.Client, img.Scan.Namespace)
	if err != nil {
		return Uses{}, err
	}
	allowed := allowedReceivers(img.Scanner, namespace)
	err = i.visitPodsOf(ctx, img.Scanner, img.Scan.Namespace, inUse, func(pod *corev1.Pod) error {
		running, _, known, err := i.RunningImages(ctx, img.Scanner, pod)
		if err != nil {
			return err
		}
		if !known {
			// A running pod's node will appear in the cache. The node of an ended pod may be deleted for good.
			uses.Complete = uses.Complete && !IsActive(pod)
			return nil
		}
		for _, run := range running {
			switch {
			case run.Key != img.Key || run.Excluded:
			case IsActive(pod):
				uses.NotAllowed = union(uses.NotAllowed, notAllowed(img.Scanner, pod, namespace, allowed))
				uses.Running = append(uses.Running, Use{Pod: pod, Image: run, Receivers: receiversOf(pod, namespace, allowed)})
			default:
				uses.Ended = append(uses.Ended, Use{Pod: pod, Image: run, Receivers: receiversOf(pod, namespace, allowed), EndedAt: endedAt(pod, now)})
			}
		}
		return nil
	}, client.MatchingFields{PodsByDigest: img.Key.Digest})
	if err != nil {
		return Uses{}, err
	}
	if uses.Dropped, err = i.findDropped(ctx, img, inUse); err != nil {
		return Uses{}, err
	}
	if uses.Unknown() {
		return uses, nil
	}
	if i.SBOMPolicy != nil {
		uses.SBOMPolicy = i.SBOMPolicy(PullRepositories(img.Scan, uses.Last())...)
	}
	if i.VEXPolicy != nil {
		uses.VEXPolicy = i.VEXPolicy(PullRepositories(img.Scan, uses.Last())...)
	}
	if uses.Scope, uses.SBOMPolicy, err = i.chooseScope(ctx, img, uses); err != nil {
		return Uses{}, err
	}
	return uses, nil
}

// findDropped returns the containers that run the image, or ran it within the retention, for which the Scanner is not responsible any more.
// A pod that is being deleted does not count: it is about to end. The node's platform does not matter, since an exclusion applies on every
// platform.
func (i *Inventory) findDropped(ctx context.Context, img ScannedImage, inUse func(*corev1.Pod) bool) (dropped []Use, err error) {
	err = i.VisitPods(ctx, func(pod *corev1.Pod) error {
		if !pod.DeletionTimestamp.IsZero() || !inUse(pod) {
			return nil
		}
		resolved, _ := ImagesOf(pod)
		for _, run := range resolved {
			if run.ID.Digest == img.Key.Digest && (!coversPod(img.Scanner, pod) || isExcluded(img.Scanner, run.Reference)) {
				dropped = append(dropped, Use{Pod: pod, Image: RunningImage{PodImage: run}})
			}
		}
		return nil
	}, client.InNamespace(img.Scan.Namespace), client.MatchingFields{PodsByDigest: img.Key.Digest})
	return dropped, err
}

// PullRepositories returns the repositories that an image can be pulled from, best first: those that its containers name, those that are
// remembered, and those that the nodes reported. A repository may be there several times.
func PullRepositories(scan *v1alpha1.ImageScan, uses []Use) []string {
	var inUse, remembered, reported []string
	for _, u := range uses {
		inUse = append(inUse, u.Image.Reference.Repository)
		reported = append(reported, u.Image.ID.Repository)
	}
	for _, text := range scan.Spec.References {
		if ref, err := image.ParseReference(text); err == nil {
			remembered = append(remembered, ref.Repository)
		}
	}
	// The cache lists pods in any order. The order of pull references must not depend on it.
	slices.Sort(inUse)
	slices.Sort(reported)
	return slices.Concat(inUse, remembered, reported)
}

// chooseScope returns the credential scope of an image, and the policy by which SBOMs of it are accepted. The scope of an existing catalog is preferred. First comes the cluster's, which every
// workload that runs the image may use. Then comes the namespace's, which outlasts the pods whose pull secrets were used for it. The catalog of
// another namespace is used only with ShareSBOMs. It keeps the scope of its own namespace, so that it stops counting when ShareSBOMs is
// disabled. Without a catalog, the scope is the namespace if an SBOM was uploaded there, whose policy then counts, or if any container's image is
// pulled there, otherwise the cluster.
func (i *Inventory) chooseScope(ctx context.Context, img ScannedImage, uses Uses) (scope store.Scope, policy string, err error) {
	own, policy := store.Scope(img.Scan.Namespace), uses.SBOMPolicy
	if img.Engine != "" {
		scopes, err := i.Store.CatalogScopes(ctx, img.Engine, img.Key, uses.SBOMPolicy)
		if err != nil {
			return "", "", err
		}
		for _, scope := range []store.Scope{store.Cluster, own} {
			if slices.Contains(scopes, scope) {
				return scope, policy, nil
			}
		}
		if i.ShareSBOMs && len(scopes) > 0 {
			return scopes[0], policy, nil
		}
	}
	if img.Engine != "" && img.Scanner.Settings().Backend.Type == v1alpha1.BackendGrype {
		uploaded, err := i.Store.UploadedSBOM(ctx, img.Scan.Namespace, img.Key)
		if !errors.Is(err, store.ErrNotFound) {
			return own, uploaded.Policy, err
		}
	}
	if slices.ContainsFunc(uses.Last(), func(u Use) bool { return i.isPulledInNamespace(img.Scanner.Settings().Backend, u) }) {
		return own, policy, nil
	}
	return store.Cluster, policy, nil
}

// isPulledInNamespace reports whether a container's image is pulled with what its namespace has: pull secrets, or a cloud identity. Grype
// pulls from a registry with a provider by an identity, whatever pull secrets the pod has: nobody can see whether one of these is for that
// registry (docs/understand/decisions/0032-cloud-identities.md).
func (i *Inventory) isPulledInNamespace(engine v1alpha1.Backend, u Use) bool {
	host, _, _ := strings.Cut(u.Image.Reference.Repository, "/")
	if engine.Type == v1alpha1.BackendGrype && i.Provider != nil && i.Provider(host) != "" {
		return engine.Grype != nil && engine.Grype.Job.Identity == v1alpha1.IdentityNamespace
	}
	return len(PullSecrets(u.Pod)) > 0
}

// RecordUses records in the store which workloads use an image. It records nothing if the uses are Unknown, or the operator runs without the
// Scanner's engine.
func (i *Inventory) RecordUses(ctx context.Context, img ScannedImage, uses Uses) error {
	if img.Engine == "" || uses.Unknown() {
		return nil
	}
	return i.Store.SetUsage(ctx, store.ImageUsage{
		Scanner: string(img.Scanner.GetUID()), Cluster: img.Scanner.ScannerKind() == v1alpha1.KindClusterScanner, Namespace: img.Scan.Namespace, Key: img.Key, Scope: uses.Scope, Engine: img.Engine,
		Suspended: ptr.Deref(img.Scanner.Settings().Suspend, false) || img.Refused,
		Workloads: WorkloadsOf(uses.Running), Ended: endedWorkloads(uses.Ended), EndedSince: i.endedSince(img), Dropped: WorkloadsOf(uses.Dropped),
	})
}

// endedSince returns the time since when a pod must have ended to keep the image in use. If the Scanner excludes all names of the image,
// the time is a year ahead, so that no pod keeps it in use: excluded pods have not ended, and ended pods are no reason to announce the
// image.
func (i *Inventory) endedSince(img ScannedImage) time.Time {
	isIncluded := func(name string) bool {
		ref, err := image.ParseReference(name)
		return err != nil || !isExcluded(img.Scanner, ref)
	}
	if names := img.Scan.Spec.References; len(names) > 0 && !slices.ContainsFunc(names, isIncluded) {
		return i.Clock.Now().AddDate(1, 0, 0)
	}
	return i.Clock.Now().Add(-Retention(img.Scanner))
}

// workload returns the workload that runs the container, without receivers.
func (u Use) workload() store.Workload {
	kind, name := workloadOf(u.Pod)
	return store.Workload{
		Namespace: u.Pod.Namespace, Kind: kind, Name: name, Container: u.Image.Container,
		Repository: u.Image.Reference.Repository, Reference: u.Image.Reference.String(), Completes: runsToCompletion(u.Pod),
	}
}

// WorkloadsOf returns each workload once, with the receivers of all its pods.
func WorkloadsOf(uses []Use) []store.Workload {
	named := map[store.Workload][]string{}
	for _, u := range uses {
		w := u.workload()
		named[w] = append(named[w], u.Receivers...)
	}
	var workloads []store.Workload
	for w, receivers := range named {
		w.Receivers = joinReceivers(receivers)
		workloads = append(workloads, w)
	}
	slices.SortFunc(workloads, compareWorkloads)
	return workloads
}

func compareWorkloads(a, b store.Workload) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Container, b.Container), cmp.Compare(a.Reference, b.Reference))
}

// endedWorkloads returns each workload once, with the time when its last pod ended. It handles each pod once: a namespace may have
// thousands of ended pods, each of them its own workload.
func endedWorkloads(uses []Use) (ended []store.EndedWorkload) {
	last := map[store.Workload]time.Time{}
	for _, u := range uses {
		if w := u.workload(); u.EndedAt.After(last[w]) {
			last[w] = u.EndedAt
		}
	}
	for _, w := range WorkloadsOf(uses) {
		named := w
		named.Receivers = ""
		ended = append(ended, store.EndedWorkload{Workload: w, At: last[named]})
	}
	return ended
}
