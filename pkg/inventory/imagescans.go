package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ImageScan returns the ImageScan of a scanner for an image in a namespace; nil if there is none.
func (i *Inventory) ImageScan(ctx context.Context, scanner v1alpha1.GenericScanner, namespace string, key image.Key) (*v1alpha1.ImageScan, error) {
	var scans v1alpha1.ImageScanList
	err := i.Client.List(ctx, &scans, client.InNamespace(namespace),
		client.MatchingFields{ImageScansByScannerDigest: ScannerDigest(ReferenceTo(scanner), key.Digest)})
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

// imageScans returns the ImageScans that a scanner owns, by namespace and image. They belong to the cache and must not be modified.
func (i *Inventory) imageScans(ctx context.Context, scanner v1alpha1.GenericScanner) (map[store.NamespacedImage]*v1alpha1.ImageScan, error) {
	var scans v1alpha1.ImageScanList
	err := i.Client.List(ctx, &scans, client.InNamespace(scanner.GetNamespace()), client.UnsafeDisableDeepCopy,
		client.MatchingFields{ImageScansByScanner: ScannerValue(ReferenceTo(scanner))})
	if err != nil {
		return nil, err
	}
	byImage := map[store.NamespacedImage]*v1alpha1.ImageScan{}
	for s := range scans.Items {
		scan := &scans.Items[s]
		key, err := KeyOf(scan)
		if err == nil && metav1.IsControlledBy(scan, scanner) {
			byImage[store.NamespacedImage{Namespace: scan.Namespace, Key: key}] = scan
		}
	}
	return byImage, nil
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

// ImageScanName returns a readable name that is unique for a scanner and an image: the last part of the repository, at most 40 characters
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
