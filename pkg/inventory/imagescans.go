package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

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
