package controllers

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Bounds on the number of distinct pull secrets and ServiceAccounts that are used for an image.
const (
	maxPullSecrets     = 20
	maxServiceAccounts = 20
)

// use is one container that runs or ran the image.
type use struct {
	pod *corev1.Pod
	img runningImage
	// receivers are those that the pod, or else its namespace, names. Empty if neither names any.
	receivers []string
	// endedAt is when the pod ended; zero while it runs.
	endedAt time.Time
}

// findUses sets the containers that run the image or ran it within the retention, and how the image can be pulled.
func (r *ImageScanReconciler) findUses(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	now := r.Clock.Now()
	inUse := func(pod *corev1.Pod) bool { return hasImagesInUse(s.scanner, pod, now) }
	pods, err := r.inventory().podsOf(ctx, s.scanner, inUse, client.MatchingFields{podsByDigest: s.key.Digest})
	if err != nil {
		return 0, err
	}
	ofNamespace, err := namespaceReceivers(ctx, r.Client, s.scan.Namespace)
	if err != nil {
		return 0, err
	}
	s.usesComplete = true
	for i := range pods {
		running, _, known, err := r.inventory().images(ctx, &pods[i])
		if err != nil {
			return 0, err
		}
		if !known {
			// A running pod's node will appear in the cache. The node of an ended pod may be deleted for good.
			s.usesComplete = s.usesComplete && !isActive(&pods[i])
			continue
		}
		for _, img := range running {
			if img.Key == s.key && !isExcluded(s.scanner, img.Reference) {
				s.add(use{pod: &pods[i], img: img, receivers: validReceivers(annotatedReceivers(&pods[i], ofNamespace))}, now)
			}
		}
	}
	if s.dropped, err = r.findDropped(ctx, s, now); err != nil {
		return 0, err
	}
	if !s.usesComplete && len(s.uses) == 0 {
		return nodeRetryDelay, nil
	}
	s.image = s.backendImage()
	return 0, r.chooseScope(ctx, s)
}

// findDropped returns the containers that run the image, or ran it within the retention, for which the Scanner is not responsible any more.
// A pod that is being deleted does not count: it is about to end. The node's platform does not matter, since an exclusion applies on every
// platform.
func (r *ImageScanReconciler) findDropped(ctx context.Context, s *imageScanScope, now time.Time) (dropped []use, err error) {
	var pods corev1.PodList
	err = r.Client.List(ctx, &pods, client.InNamespace(s.scan.Namespace), client.MatchingFields{podsByDigest: s.key.Digest},
		client.UnsafeDisableDeepCopy) // only read
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !pod.DeletionTimestamp.IsZero() || !hasImagesInUse(s.scanner, pod, now) {
			continue
		}
		resolved, _ := imagesOf(pod)
		for _, img := range resolved {
			if img.ID.Digest == s.key.Digest && (!coversPod(s.scanner, pod) || isExcluded(s.scanner, img.Reference)) {
				dropped = append(dropped, use{pod: pod, img: runningImage{podImage: img}})
			}
		}
	}
	return dropped, err
}

func (s *imageScanScope) add(u use, now time.Time) {
	if isActive(u.pod) {
		s.uses = append(s.uses, u)
		return
	}
	u.endedAt = endedAt(u.pod, now)
	s.ended = append(s.ended, u)
}

// lastUses returns the containers that run the image now or, if there are none, those that ran it last.
func (s *imageScanScope) lastUses() []use {
	if len(s.uses) > 0 {
		return s.uses
	}
	return s.ended
}

// chooseScope prefers the credential scope of an existing catalog. First comes the cluster's, which every workload that runs the image may
// use. Then comes the namespace's, which outlasts the pods whose pull secrets were used for it. The catalog of another namespace is used
// only with ShareSBOMs. It keeps the scope of its own namespace, so that it stops counting when ShareSBOMs is disabled.
func (r *ImageScanReconciler) chooseScope(ctx context.Context, s *imageScanScope) error {
	if s.backend == nil {
		return nil
	}
	scopes, err := r.Store.CatalogScopes(ctx, s.backend.Engine(), s.key)
	if err != nil {
		return err
	}
	for _, scope := range []store.Scope{store.Cluster, store.Scope(s.scan.Namespace)} {
		if slices.Contains(scopes, scope) {
			s.image.Scope = scope
			return nil
		}
	}
	if r.ShareSBOMs && len(scopes) > 0 {
		s.image.Scope = scopes[0]
	}
	return nil
}

// backendImage returns how the image may be pulled and its credential scope: this namespace if any pod has pull secrets, otherwise the whole
// cluster.
func (s *imageScanScope) backendImage() backend.Image {
	img := backend.Image{Key: s.key, Scope: store.Cluster, Namespace: s.scan.Namespace, Scanner: string(s.scanner.UID)}
	if grype := s.scanner.Spec.Backend.Grype; grype != nil {
		img.Job = &grype.Job
	}
	var inUse, remembered, reported, secrets, accounts []string
	for _, u := range s.lastUses() {
		inUse = append(inUse, u.img.Reference.Repository)
		reported = append(reported, u.img.ID.Repository)
		secrets = append(secrets, pullSecrets(u.pod)...)
		if account := u.pod.Spec.ServiceAccountName; account != "" {
			accounts = append(accounts, account)
		}
	}
	for _, text := range s.scan.Spec.References {
		if ref, err := image.ParseReference(text); err == nil {
			remembered = append(remembered, ref.Repository)
		}
	}
	slices.Sort(inUse)
	slices.Sort(reported)
	// The cache lists pods in any order. The order of pull references must not depend on it.
	img.PullReferences = image.PullReferences(s.key.Digest, slices.Concat(inUse, remembered, reported)...)
	if len(secrets) > 0 {
		img.Scope = store.Scope(s.scan.Namespace)
	}
	img.PullSecrets, img.ServiceAccounts = firstSorted(secrets, maxPullSecrets), firstSorted(accounts, maxServiceAccounts)
	return img
}

// firstSorted returns the first limit distinct names in sorted order. It sorts names in place.
func firstSorted(names []string, limit int) []string {
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), limit)]
}

// recordUse records in the store which workloads run the image.
func (r *ImageScanReconciler) recordUse(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	if s.backend == nil {
		return 0, nil
	}
	workloads, ended := workloadsOf(s.uses), endedWorkloads(s.ended)
	err := r.Store.SetUsage(ctx, store.ImageUsage{
		Scanner: string(s.scanner.UID), Namespace: s.scan.Namespace, Key: s.key,
		Scope: s.image.Scope, Engine: s.backend.Engine(), Suspended: isSuspended(s.scanner) || s.refused, Workloads: workloads,
		Ended: ended, EndedSince: r.endedSince(s), Dropped: workloadsOf(s.dropped),
	})
	if err != nil {
		return 0, err
	}
	concerned := fnv.New64a()
	for _, w := range workloadsOf(slices.Concat(s.uses, s.ended)) {
		fmt.Fprintln(concerned, w.Kind, w.Name, w.Repository, w.Receivers)
	}
	// The NotificationReconciler may have run before this was recorded.
	if before, known := r.routedReceivers.Swap(client.ObjectKeyFromObject(s.scan), concerned.Sum64()); known && before != concerned.Sum64() {
		r.Wakeups.Image(ctx, s.key.Digest)
	}
	return 0, nil
}

// endedSince returns the time since when a pod must have ended to keep the image in use. If the Scanner excludes all names of the image,
// the time is a year ahead, so that no pod keeps it in use: excluded pods have not ended, and ended pods are no reason to announce the
// image.
func (r *ImageScanReconciler) endedSince(s *imageScanScope) time.Time {
	now, included := r.Clock.Now(), len(s.scan.Spec.References) == 0
	for _, text := range s.scan.Spec.References {
		ref, err := image.ParseReference(text)
		included = included || err != nil || !isExcluded(s.scanner, ref)
	}
	if !included {
		return now.AddDate(1, 0, 0)
	}
	return now.Add(-retention(s.scanner))
}

// RecordUse implements UseRecorder. It records nothing if the Scanner is gone.
func (r *ImageScanReconciler) RecordUse(ctx context.Context, scan *v1alpha1.ImageScan) error {
	s := &imageScanScope{scan: scan}
	var err error
	if s.scanner, err = r.inventory().owner(ctx, scan); s.scanner == nil {
		return err
	}
	if s.key, err = keyOf(scan); err != nil {
		return nil //nolint:nilerr // such an ImageScan is about to be deleted
	}
	s.backend = r.Backends.For(s.scanner)
	if wait, err := r.findUses(ctx, s); wait > 0 || err != nil {
		return err
	}
	_, err = r.recordUse(ctx, s)
	return err
}

// workload returns the workload that runs the container, without receivers.
func (u use) workload() store.Workload {
	kind, name := workloadOf(u.pod)
	return store.Workload{
		Namespace: u.pod.Namespace, Kind: kind, Name: name, Container: u.img.Container,
		Repository: u.img.Reference.Repository, Reference: u.img.Reference.String(), Completes: runsToCompletion(u.pod),
	}
}

// workloadsOf returns each workload once, with the receivers of all its pods.
func workloadsOf(uses []use) []store.Workload {
	named := map[store.Workload][]string{}
	for _, u := range uses {
		w := u.workload()
		named[w] = append(named[w], u.receivers...)
	}
	var workloads []store.Workload
	for w, receivers := range named {
		w.Receivers = strings.Join(firstSorted(receivers, maxNamedReceivers), ",")
		workloads = append(workloads, w)
	}
	slices.SortFunc(workloads, compareWorkloads)
	return workloads
}

// endedWorkloads returns each workload once, with the time when its last pod ended. It handles each pod once: a namespace may have
// thousands of ended pods, each of them its own workload.
func endedWorkloads(uses []use) (ended []store.EndedWorkload) {
	last := map[store.Workload]time.Time{}
	for _, u := range uses {
		if w := u.workload(); u.endedAt.After(last[w]) {
			last[w] = u.endedAt
		}
	}
	for _, w := range workloadsOf(uses) {
		named := w
		named.Receivers = ""
		ended = append(ended, store.EndedWorkload{Workload: w, At: last[named]})
	}
	return ended
}
