package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// runningImage is an image that a container of a pod runs, on a node whose platform is known.
type runningImage struct {
	podImage
	Key image.Key
}

// jobRecords reports whether a Job is one of the operator's own.
type jobRecords interface {
	IsRecorded(ctx context.Context, namespace, name, uid string) (bool, error)
}

// inventory finds pods, images and ImageScans, from the cache and the store.
type inventory struct {
	client client.Reader
	jobs   jobRecords
	limits Limits
}

// images returns the images that the containers of a pod run, and those without a digest yet. known is false while the pod's node, or its
// platform, is not in the cache.
func (i inventory) images(ctx context.Context, pod *corev1.Pod) (running []runningImage, unresolved []unresolvedImage, known bool, err error) {
	resolved, unresolved := imagesOf(pod)
	if len(resolved) == 0 {
		return nil, unresolved, true, nil
	}
	var node corev1.Node
	if err := i.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node); err != nil {
		return nil, unresolved, false, client.IgnoreNotFound(err)
	}
	platform := image.Platform{OS: node.Status.NodeInfo.OperatingSystem, Architecture: node.Status.NodeInfo.Architecture}
	if platform.OS == "" || platform.Architecture == "" {
		return nil, unresolved, false, nil
	}
	for _, img := range resolved {
		running = append(running, runningImage{podImage: img, Key: image.Key{Digest: img.ID.Digest, Platform: platform}})
	}
	return running, unresolved, true, nil
}

// isOwnJob reports whether a pod belongs to a Job that the operator created. It relies on the store's record, not on labels, which anyone
// may set. The record has the Job's name from before its creation and its UID from then on, until the Job is removed.
func (i inventory) isOwnJob(ctx context.Context, pod *corev1.Pod) (bool, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" {
		return false, nil
	}
	return i.jobs.IsRecorded(ctx, pod.Namespace, owner.Name, string(owner.UID))
}

// selected returns the running pods of a namespace that a Scanner is responsible for.
func (i inventory) selected(ctx context.Context, scanner *v1alpha1.Scanner, opts ...client.ListOption) ([]corev1.Pod, error) {
	return i.podsOf(ctx, scanner, isActive, opts...)
}

// podsOf returns the pods, running and ended, that a Scanner is responsible for and that pass accepts. The operator's own Jobs are left
// out.
func (i inventory) podsOf(
	ctx context.Context, scanner *v1alpha1.Scanner, pass func(*corev1.Pod) bool, opts ...client.ListOption,
) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := i.client.List(ctx, &pods, append(opts, client.InNamespace(scanner.Namespace))...); err != nil {
		return nil, err
	}
	var selected []corev1.Pod
	for _, pod := range pods.Items {
		if !pass(&pod) || !coversPod(scanner, &pod) {
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

// imageScan returns the ImageScan of a Scanner for an image; nil if there is none.
func (i inventory) imageScan(ctx context.Context, scanner *v1alpha1.Scanner, key image.Key) (*v1alpha1.ImageScan, error) {
	var scans v1alpha1.ImageScanList
	err := i.client.List(ctx, &scans, client.InNamespace(scanner.Namespace),
		client.MatchingFields{imageScansByScannerDigest: scannerDigest(scanner.Name, key.Digest)})
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

// owner returns the Scanner that owns an ImageScan. It returns nil if that Scanner is gone or being deleted, or if another Scanner has its
// name.
func (i inventory) owner(ctx context.Context, scan *v1alpha1.ImageScan) (*v1alpha1.Scanner, error) {
	var scanner v1alpha1.Scanner
	err := i.client.Get(ctx, types.NamespacedName{Namespace: scan.Namespace, Name: scan.Spec.Scanner}, &scanner)
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

// keyOf returns the image that an ImageScan is for.
func keyOf(scan *v1alpha1.ImageScan) (image.Key, error) {
	platform, err := image.ParsePlatform(scan.Spec.Platform)
	if err != nil {
		return image.Key{}, fmt.Errorf("spec.platform: %w", err)
	}
	return image.Key{Digest: scan.Spec.Digest, Platform: platform}, nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// imageScanName returns a readable name that is unique for a Scanner and an image: the last part of the repository, at most 40 characters
// of it, and 16 hexadecimal digits.
func imageScanName(scanner types.UID, key image.Key, repository string) string {
	sum := sha256.Sum256([]byte(string(scanner) + ";" + key.String()))
	short := repository[strings.LastIndex(repository, "/")+1:]
	short = notInNames.ReplaceAllString(strings.ToLower(short), "-")
	short = strings.Trim(short[:min(len(short), 40)], "-")
	if short == "" {
		short = "image"
	}
	return short + "-" + hex.EncodeToString(sum[:8])
}
