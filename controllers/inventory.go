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
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// runningImage is an image that a container of a pod runs, on a node whose platform is known.
type runningImage struct {
	podImage
	Key image.Key
}

// inventory answers what runs where, from the cache and the store.
type inventory struct {
	client client.Reader
	jobs   store.Jobs
	limits Limits
}

// images returns what the containers of a pod run, and what has no digest yet. known is false as long as the
// pod's node is not in the cache.
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

// isOwnJob says whether a pod belongs to a Job that the operator made. The record decides, not a label that
// anybody may set; a Job is known by name from before it is made and by UID from then on, until it is removed.
func (i inventory) isOwnJob(ctx context.Context, pod *corev1.Pod) (bool, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" {
		return false, nil
	}
	return i.jobs.IsRecorded(ctx, pod.Namespace, owner.Name, string(owner.UID))
}

// selected lists the pods of a namespace that run and that a Scanner is about.
func (i inventory) selected(ctx context.Context, scanner *v1alpha1.Scanner, opts ...client.ListOption) ([]corev1.Pod, error) {
	return i.podsOf(ctx, scanner, runs, opts...)
}

// podsOf lists those pods of a Scanner, running and ended, that a condition lets pass.
func (i inventory) podsOf(
	ctx context.Context, scanner *v1alpha1.Scanner, pass func(*corev1.Pod) bool, opts ...client.ListOption,
) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := i.client.List(ctx, &pods, append(opts, client.InNamespace(scanner.Namespace))...); err != nil {
		return nil, err
	}
	var selected []corev1.Pod
	for _, pod := range pods.Items {
		if !pass(&pod) || !isAbout(scanner, &pod) {
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

// imageScan finds the ImageScan of a Scanner for an image; nil if there is none.
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

// owner returns the Scanner that an ImageScan belongs to; nil if it has gone, is about to, or is another one of the
// same name.
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

// keyOf returns the image that an ImageScan is about.
func keyOf(scan *v1alpha1.ImageScan) (image.Key, error) {
	platform, err := image.ParsePlatform(scan.Spec.Platform)
	if err != nil {
		return image.Key{}, fmt.Errorf("spec.platform: %w", err)
	}
	return image.Key{Digest: scan.Spec.Digest, Platform: platform}, nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// imageScanName is readable, and unique for a Scanner and an image: the last part of the repository, at most
// 40 characters of it, and 16 hexadecimal digits.
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
