package inventory

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// ReadScanner returns a Scanner or, if the name has no namespace, a ClusterScanner. It returns nil if there is none. The object is a copy.
func ReadScanner(ctx context.Context, reader client.Reader, name types.NamespacedName) (v1alpha1.GenericScanner, error) {
	var scanner v1alpha1.GenericScanner = &v1alpha1.Scanner{}
	if name.Namespace == "" {
		scanner = &v1alpha1.ClusterScanner{}
	}
	if err := reader.Get(ctx, name, scanner); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return scanner, nil
}

// ListScanners returns the Scanners of a namespace, or of all namespaces and then all ClusterScanners. With a cached reader, they belong to the
// cache and must not be modified.
func ListScanners(ctx context.Context, reader client.Reader, namespace string) (scanners []v1alpha1.GenericScanner, err error) {
	var own v1alpha1.ScannerList
	if err := reader.List(ctx, &own, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for n := range own.Items {
		scanners = append(scanners, &own.Items[n])
	}
	if namespace != metav1.NamespaceAll {
		return scanners, nil
	}
	clusterWide, err := ListClusterScanners(ctx, reader)
	for _, scanner := range clusterWide {
		scanners = append(scanners, scanner)
	}
	return scanners, err
}

// ListClusterScanners returns all ClusterScanners. With a cached reader, they belong to the cache and must not be modified.
func ListClusterScanners(ctx context.Context, reader client.Reader) (scanners []*v1alpha1.ClusterScanner, err error) {
	var all v1alpha1.ClusterScannerList
	if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for n := range all.Items {
		scanners = append(scanners, &all.Items[n])
	}
	return scanners, nil
}

// ClusterScannerByUID returns a ClusterScanner; nil if there is none with the UID. It belongs to the cache and must not be modified.
func (i *Inventory) ClusterScannerByUID(ctx context.Context, uid types.UID) (*v1alpha1.ClusterScanner, error) {
	all, err := ListClusterScanners(ctx, i.Client)
	for _, scanner := range all {
		if scanner.UID == uid {
			return scanner, err
		}
	}
	return nil, err
}

// ScannersIn returns the scanners that cover a namespace: its admitted Scanners, those of its Scanners that are being deleted, and
// ClusterScanners. They belong to the cache and must not be modified.
func (i *Inventory) ScannersIn(ctx context.Context, namespace string) (scanners []v1alpha1.GenericScanner, err error) {
	own, err := i.admittedScanners(ctx, namespace)
	if err != nil {
		return nil, err
	}
	for _, scanner := range own {
		scanners = append(scanners, scanner)
	}
	clusterWide, err := ListClusterScanners(ctx, i.Client)
	if err != nil || len(clusterWide) == 0 {
		return scanners, err
	}
	metadata, err := readNamespace(ctx, i.Client, namespace)
	if metadata == nil || err != nil {
		return scanners, err
	}
	for _, scanner := range clusterWide {
		if i.stateFor(scanner, metadata, own) == namespaceCovered {
			scanners = append(scanners, scanner)
		}
	}
	return scanners, nil
}

// owner returns the scanner that owns an ImageScan. It returns nil if that scanner is gone or being deleted, if another one has its name, or if
// it does not cover the namespace any more.
func (i *Inventory) owner(ctx context.Context, scan *v1alpha1.ImageScan) (v1alpha1.GenericScanner, error) {
	scanner, err := ReadScanner(ctx, i.Client, OwnerName(scan))
	switch {
	case scanner == nil || err != nil:
		return nil, err
	case !metav1.IsControlledBy(scan, scanner), scanner.GetDeletionTimestamp() != nil:
		return nil, nil
	}
	if covered, err := i.Covers(ctx, scanner, scan.Namespace); !covered || err != nil {
		return nil, err
	}
	return scanner, nil
}

// OwnerName returns the name of the scanner that an ImageScan names. That of a ClusterScanner has no namespace.
func OwnerName(scan *v1alpha1.ImageScan) types.NamespacedName {
	if scan.Spec.ScannerRef.Kind == v1alpha1.KindClusterScanner {
		return types.NamespacedName{Name: scan.Spec.ScannerRef.Name}
	}
	return types.NamespacedName{Namespace: scan.Namespace, Name: scan.Spec.ScannerRef.Name}
}

// ReferenceTo returns how an ImageScan names its scanner.
func ReferenceTo(scanner v1alpha1.GenericScanner) v1alpha1.ScannerReference {
	return v1alpha1.ScannerReference{Kind: scanner.ScannerKind(), Name: scanner.GetName()}
}
