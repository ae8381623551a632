package controllers

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Bounds on the number of distinct pull secrets and ServiceAccounts that are used for an image.
const (
	maxPullSecrets     = 20
	maxServiceAccounts = 20
)

// scannedImage returns the image as the inventory identifies it.
func (s *imageScanScope) scannedImage() inventory.ScannedImage {
	return inventory.ScannedImage{Scan: s.scan, Scanner: s.scanner, Key: s.key, Engine: engineOf(s.backend), Refused: s.refused}
}

// findUses sets the containers that run the image or ran it within the retention and, unless they are Unknown, how the image can be pulled.
func (r *ImageScanReconciler) findUses(ctx context.Context, s *imageScanScope) (err error) {
	if s.uses, err = r.Inventory.FindUses(ctx, s.scannedImage()); err == nil && !s.uses.Unknown() {
		s.image = s.backendImage()
	}
	return err
}

// backendImage returns how the image may be pulled, and its credential scope.
func (s *imageScanScope) backendImage() backend.Image {
	img := backend.Image{Key: s.key, Scope: s.uses.Scope, Namespace: s.scan.Namespace, Scanner: string(s.scanner.GetUID()), SBOMPolicy: s.uses.SBOMPolicy, VEXPolicy: s.uses.VEXPolicy}
	if grype := s.scanner.Settings().Backend.Grype; grype != nil {
		img.Job = &grype.Job
	}
	var secrets, accounts []string
	for _, u := range s.uses.Last() {
		secrets = append(secrets, inventory.PullSecrets(u.Pod)...)
		if account := u.Pod.Spec.ServiceAccountName; account != "" {
			accounts = append(accounts, account)
		}
	}
	img.PullReferences = image.PullReferences(s.key.Digest, inventory.PullRepositories(s.scan, s.uses.Last())...)
	img.ServiceAccounts = firstSorted(accounts, maxServiceAccounts)
	if img.Scope != store.Cluster {
		img.PullSecrets = firstSorted(secrets, maxPullSecrets)
	}
	return img
}

// firstSorted returns the first limit distinct names in sorted order. It sorts names in place.
func firstSorted(names []string, limit int) []string {
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), limit)]
}

// recordUse records in the store which workloads use the image. It wakes the NotificationReconciler, which may have run before, when they are
// routed to other receivers: no status changes then.
func (r *ImageScanReconciler) recordUse(ctx context.Context, s *imageScanScope) error {
	if s.backend == nil {
		return nil
	}
	if err := r.Inventory.RecordUses(ctx, s.scannedImage(), s.uses); err != nil {
		return err
	}
	routed := fnv.New64a()
	for _, w := range inventory.WorkloadsOf(s.uses.All()) {
		fmt.Fprintln(routed, w.Kind, w.Name, w.Repository, w.Receivers)
	}
	if before, known := r.routedReceivers.Swap(client.ObjectKeyFromObject(s.scan), routed.Sum64()); known && before != routed.Sum64() {
		r.Wakeups.Image(ctx, s.key.Digest)
	}
	return nil
}

// staysInUse reports whether an image that no pod runs now is still scanned. Without its pods it is indexed only if no credentials are
// needed, since credentials are known only from pods.
func (r *ImageScanReconciler) staysInUse(ctx context.Context, s *imageScanScope) (bool, error) {
	if len(s.uses.Ended) > 0 || s.backend == nil {
		return len(s.uses.Ended) > 0, nil
	}
	recent, err := r.Store.RecentImages(ctx, string(s.scanner.GetUID()), s.backend.Engine())
	if err != nil || !slices.ContainsFunc(recent, func(img store.RecentImage) bool {
		return img.NamespacedImage == s.scannerImage().InNamespace()
	}) {
		return false, err
	}
	location, err := r.Store.Locate(ctx, string(s.scanner.GetUID()), s.scan.Namespace, s.key)
	if err != nil {
		return false, ignoreMissing(err)
	}
	s.image.Scope = location.Scope
	return location.Scope == store.Cluster || location.PlatformDigest != "", nil
}
