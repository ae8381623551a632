package controllers

import (
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/notify"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// coverage says in the planner's terms what a Scanner knows of its images. While a receiver's baseline is open,
// an image counts as scanned only if the store has its report: after the store was lost, ImageScans still show
// what was found before, and a baseline that believed them would be empty.
func (r *NotificationReconciler) coverage(ctx context.Context, scanner *v1alpha1.Scanner) (notify.Coverage, error) {
	covered, err := (inventory{client: r.Client, jobs: r.Store}).coverage(ctx, scanner)
	if err != nil {
		return notify.Coverage{}, err
	}
	coverage := describeCoverage(covered, dataSince(scanner))
	open, err := r.baselineOpen(ctx, scanner)
	if err != nil || !open {
		return coverage, err
	}
	for i := range coverage.Images {
		img := &coverage.Images[i]
		if img.State != notify.ImageScanned {
			continue
		}
		reported, err := r.hasReport(ctx, scanner, img.Key)
		if err != nil {
			return notify.Coverage{}, err
		}
		if !reported {
			img.State = notify.ImagePending
		}
	}
	return coverage, nil
}

// baselineOpen says whether some receiver does not know yet what was there at the beginning.
func (r *NotificationReconciler) baselineOpen(ctx context.Context, scanner *v1alpha1.Scanner) (bool, error) {
	for _, receiver := range scanner.Spec.Notifications {
		raw, err := r.Store.ReceiverState(ctx, string(scanner.UID), receiver.Name)
		if err != nil {
			return false, err
		}
		status, err := notify.Status(raw)
		if err != nil || !status.BaselineDone {
			return true, err
		}
	}
	return false, nil
}

// hasReport looks for an image's report in the scopes that it may have.
func (r *NotificationReconciler) hasReport(ctx context.Context, scanner *v1alpha1.Scanner, id string) (bool, error) {
	digest, platform, _ := strings.Cut(id, ";")
	parsed, err := image.ParsePlatform(platform)
	if err != nil {
		return false, err
	}
	engine := strings.ToLower(string(scanner.Spec.Backend.Type))
	for _, scope := range []store.Scope{store.Cluster, store.Scope(scanner.Namespace)} {
		catalogued, err := r.Store.Catalogued(ctx, image.Key{Digest: digest, Platform: parsed}, scope)
		if err == nil {
			_, err = r.Store.Summary(ctx, store.Subject{PlatformDigest: catalogued.PlatformDigest, Scope: catalogued.Scope, Engine: engine})
		}
		if err == nil || !errors.Is(err, store.ErrNotFound) {
			return err == nil, err
		}
	}
	return false, nil
}

// dataSince is since when the Scanner's engine has vulnerability data; zero if it has none.
func dataSince(scanner *v1alpha1.Scanner) time.Time {
	condition := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionBackendAvailable)
	if condition == nil || scanner.Status.VulnerabilityData == nil {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}

// describeCoverage says it in the planner's terms: images with a digest one by one, all others as numbers.
func describeCoverage(covered []coveredImage, since time.Time) notify.Coverage {
	coverage := notify.Coverage{Known: true, DataSince: since}
	for _, img := range covered {
		if len(img.Repositories) > 0 && img.State != imageExcluded {
			coverage.Images = append(coverage.Images, notify.Image{
				Key: img.ID, Repositories: img.Repositories, State: imageStates[img.State], Reason: img.Reason,
			})
			continue
		}
		switch img.State {
		case imageExcluded:
			coverage.Others.Excluded++
		case imageFailed:
			if coverage.Others.Failed == nil {
				coverage.Others.Failed = map[string]int{}
			}
			coverage.Others.Failed[img.Reason]++
		default:
			coverage.Others.Pending++
		}
	}
	return coverage
}

var imageStates = map[imageState]notify.ImageState{
	imageScanned: notify.ImageScanned, imagePending: notify.ImagePending,
	imageFailed: notify.ImageFailed, imageExcluded: notify.ImageExcluded,
}
