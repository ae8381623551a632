package grype

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DatabasePVC is the name of the PersistentVolumeClaim that the operator creates for vulnerability databases.
const DatabasePVC = "scanner-operator-vulnerability-database"

// defaultClassAnnotation is the annotation of the StorageClass for PersistentVolumeClaims that name none
// (https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass).
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// databaseVolume is the volume for the databases of match workers. It is chosen once per process.
type databaseVolume struct {
	mu     sync.Mutex
	source *corev1.VolumeSource
}

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=storage.k8s.io,resources=storageclasses,verbs=list
// +kubebuilder:rbac:groups="",namespace=system,resources=persistentvolumeclaims,verbs=create

// choose returns the configured PersistentVolumeClaim. Without one, it creates a PersistentVolumeClaim if the cluster has a default
// StorageClass, or else returns an emptyDir.
func (v *databaseVolume) choose(ctx context.Context, b *Backend) (corev1.VolumeSource, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.source != nil {
		return *v.source, nil
	}
	settings := b.Config.Grype.Database.Volume
	name := settings.ClaimName
	if name == "" {
		served, err := hasDefaultClass(ctx, b.Reader)
		if err != nil {
			return corev1.VolumeSource{}, err
		}
		if !served {
			v.source = &corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &settings.Size}}
			return *v.source, nil
		}
		name = DatabasePVC
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": "scanner-operator"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: settings.Size}},
			},
		}
		if err := b.Client.Create(ctx, claim); client.IgnoreAlreadyExists(err) != nil {
			return corev1.VolumeSource{}, err
		}
	}
	v.source = &corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	return *v.source, nil
}

// shared reports whether all match workers use the same volume.
func (v *databaseVolume) shared() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.source != nil && v.source.PersistentVolumeClaim != nil
}

func hasDefaultClass(ctx context.Context, reader client.Reader) (bool, error) {
	var classes storagev1.StorageClassList
	err := reader.List(ctx, &classes)
	return slices.ContainsFunc(classes.Items, func(class storagev1.StorageClass) bool {
		return class.Annotations[defaultClassAnnotation] == "true"
	}), err
}
