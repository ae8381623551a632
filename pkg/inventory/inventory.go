// Package inventory finds out which images run, and for whom: from pods to containers, images, platforms, workloads and receivers, and to the
// coverage of a Scanner. All reconcilers use it, so that each of these questions has one answer.
//
// It reads pods, nodes, namespaces, Scanners and ImageScans from the cache, and reports and the operator's own Jobs from the store. It writes
// nothing to the Kubernetes API, and knows no engine.
package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Inventory finds pods, images and ImageScans. It is safe for concurrent use.
type Inventory struct {
	// Client reads from a cache with the indexes of SetupIndexes.
	Client client.Reader
	Store  Store
	Limits Limits
	Clock  clock.PassiveClock
	// ShareSBOMs lets an SBOM that was made in one namespace count in all namespaces. It is only for clusters that trust all namespaces.
	ShareSBOMs bool
}

// Store is the part of the store that an Inventory uses.
type Store interface {
	IsRecorded(ctx context.Context, namespace, job, uid string) (bool, error)
	ReportAges(ctx context.Context, scanner, engine string) (map[image.Key]store.ReportAge, error)
	RecentImages(ctx context.Context, scanner, engine string) ([]store.RecentImage, error)
	CatalogScopes(ctx context.Context, engine string, key image.Key) ([]store.Scope, error)
	SetUsage(ctx context.Context, usage store.ImageUsage) error
}

// RunningImages returns the images that the containers of a pod run, and those without a digest yet. known is false while the pod's node, or its
// platform, is not in the cache.
func (i *Inventory) RunningImages(ctx context.Context, pod *corev1.Pod) (running []RunningImage, unresolved []UnresolvedImage, known bool, err error) {
	resolved, unresolved := ImagesOf(pod)
	if len(resolved) == 0 {
		return nil, unresolved, true, nil
	}
	var node corev1.Node
	if err := i.Client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node); err != nil {
		return nil, unresolved, false, client.IgnoreNotFound(err)
	}
	platform := image.Platform{OS: node.Status.NodeInfo.OperatingSystem, Architecture: node.Status.NodeInfo.Architecture}
	if platform.OS == "" || platform.Architecture == "" {
		return nil, unresolved, false, nil
	}
	for _, img := range resolved {
		running = append(running, RunningImage{PodImage: img, Key: image.Key{Digest: img.ID.Digest, Platform: platform}})
	}
	return running, unresolved, true, nil
}

// isOwnJob reports whether a pod belongs to a Job that the operator created. It relies on the store's record, not on labels, which anyone
// may set. The record has the Job's name from before its creation and its UID from then on, until the Job is removed.
func (i *Inventory) isOwnJob(ctx context.Context, pod *corev1.Pod) (bool, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" {
		return false, nil
	}
	return i.Store.IsRecorded(ctx, pod.Namespace, owner.Name, string(owner.UID))
}

// ScannersOf returns the admitted Scanners that are responsible for a pod. A pod that has ended counts for as long as a Scanner retains unused
// images. The Scanners belong to the cache and must not be modified.
func (i *Inventory) ScannersOf(ctx context.Context, pod *corev1.Pod) ([]*v1alpha1.Scanner, error) {
	scanners, err := i.AdmittedScanners(ctx, pod.Namespace)
	if err != nil {
		return nil, err
	}
	scanners = slices.DeleteFunc(scanners, func(s *v1alpha1.Scanner) bool {
		return !CoversPod(s, pod) || !HasImagesInUse(s, pod, i.Clock.Now())
	})
	if len(scanners) == 0 {
		return nil, nil
	}
	own, err := i.isOwnJob(ctx, pod)
	if own || err != nil {
		return nil, err
	}
	return scanners, nil
}

// activePods returns the running pods of a namespace that a Scanner is responsible for.
func (i *Inventory) activePods(ctx context.Context, scanner *v1alpha1.Scanner, opts ...client.ListOption) ([]corev1.Pod, error) {
	return i.podsOf(ctx, scanner, IsActive, opts...)
}

// podsOf returns the pods, running and ended, that a Scanner is responsible for and that pass accepts. The operator's own Jobs are left
// out.
func (i *Inventory) podsOf(
	ctx context.Context, scanner *v1alpha1.Scanner, pass func(*corev1.Pod) bool, opts ...client.ListOption,
) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := i.Client.List(ctx, &pods, append(opts, client.InNamespace(scanner.Namespace))...); err != nil {
		return nil, err
	}
	var selected []corev1.Pod
	for _, pod := range pods.Items {
		if !pass(&pod) || !CoversPod(scanner, &pod) {
			continue
		}
		own, err := i.isOwnJob(ctx, &pod)
		if err != nil {
			return nil, err
		}
		if !own {
			selected = append(selected, pod)
		}
	}
	return selected, nil
}

// ImageScan returns the ImageScan of a Scanner for an image; nil if there is none.
func (i *Inventory) ImageScan(ctx context.Context, scanner *v1alpha1.Scanner, key image.Key) (*v1alpha1.ImageScan, error) {
	var scans v1alpha1.ImageScanList
	err := i.Client.List(ctx, &scans, client.InNamespace(scanner.Namespace),
		client.MatchingFields{ImageScansByScannerDigest: ScannerDigest(scanner.Name, key.Digest)})
	if err != nil {
		return nil, err
	}
	for _, scan := range scans.Items {
		if metav1.IsControlledBy(&scan, scanner) && scan.Spec.Digest == key.Digest && scan.Spec.Platform == key.Platform.String() {
			return &scan, nil
		}
	}
	return nil, nil
}

// imageScans returns the ImageScans that a Scanner owns, by image. They belong to the cache and must not be modified.
func (i *Inventory) imageScans(ctx context.Context, scanner *v1alpha1.Scanner) (map[image.Key]*v1alpha1.ImageScan, error) {
	var scans v1alpha1.ImageScanList
	err := i.Client.List(ctx, &scans, client.InNamespace(scanner.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{ImageScansByScanner: scanner.Name})
	if err != nil {
		return nil, err
	}
	byKey := map[image.Key]*v1alpha1.ImageScan{}
	for s := range scans.Items {
		scan := &scans.Items[s]
		key, err := KeyOf(scan)
		if err == nil && metav1.IsControlledBy(scan, scanner) {
			byKey[key] = scan
		}
	}
	return byKey, nil
}

// owner returns the Scanner that owns an ImageScan. It returns nil if that Scanner is gone or being deleted, or if another Scanner has its
// name.
func (i *Inventory) owner(ctx context.Context, scan *v1alpha1.ImageScan) (*v1alpha1.Scanner, error) {
	var scanner v1alpha1.Scanner
	err := i.Client.Get(ctx, types.NamespacedName{Namespace: scan.Namespace, Name: scan.Spec.Scanner}, &scanner)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !metav1.IsControlledBy(scan, &scanner), !scanner.DeletionTimestamp.IsZero():
		return nil, nil
	}
	return &scanner, nil
}

// KeyOf returns the image that an ImageScan is for.
func KeyOf(scan *v1alpha1.ImageScan) (image.Key, error) {
	platform, err := image.ParsePlatform(scan.Spec.Platform)
	if err != nil {
		return image.Key{}, fmt.Errorf("spec.platform: %w", err)
	}
	return image.Key{Digest: scan.Spec.Digest, Platform: platform}, nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// ImageScanName returns a readable name that is unique for a Scanner and an image: the last part of the repository, at most 40 characters
// of it, and 16 hexadecimal digits.
func ImageScanName(scanner types.UID, key image.Key, repository string) string {
	sum := sha256.Sum256([]byte(string(scanner) + ";" + key.String()))
	short := repository[strings.LastIndex(repository, "/")+1:]
	short = notInNames.ReplaceAllString(strings.ToLower(short), "-")
	short = strings.Trim(short[:min(len(short), 40)], "-")
	if short == "" {
		short = "image"
	}
	return short + "-" + hex.EncodeToString(sum[:8])
}
