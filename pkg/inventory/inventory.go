// Package inventory finds out which images run, and for whom: from pods to containers, images, platforms, workloads and receivers, and to the
// coverage of a Scanner or ClusterScanner. All reconcilers use it, so that each of these questions has one answer.
//
// It reads pods, nodes, namespaces, Scanners and ImageScans from the cache, and reports and the operator's own Jobs from the store. It writes
// nothing to the Kubernetes API, and knows no engine.
package inventory

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Inventory finds pods, images and ImageScans. It is safe for concurrent use.
type Inventory struct {
	// Client reads from a cache with the indexes of SetupIndexes.
	Client client.Reader
	// Pods visits the pods in the cache; nil to list them with Client. A list of all pods of a large namespace needs far more memory.
	Pods   PodVisitor
	Store  Store
	Limits Limits
	Clock  clock.PassiveClock
	// Watched are the namespaces that the operator is limited to; empty for all.
	Watched []string
	// CanRead reports whether the cache has all objects of a namespace; nil if it has those of all namespaces.
	CanRead func(namespace string) bool
	// ShareSBOMs lets an SBOM that was made in one namespace count in all namespaces. It is only for clusters that trust all namespaces.
	ShareSBOMs bool
	// Provider returns the cloud whose identity pulls from a registry, by its host; empty for none. It is nil if no registry has a provider.
	Provider func(host string) string
	// SBOMPolicy returns the policy by which attested SBOMs of an image in these repositories are accepted; empty for none. It is nil if no
	// registry prefers them.
	SBOMPolicy func(repositories ...string) string
	// VEXPolicy is SBOMPolicy for OpenVEX documents that are attached to an image. It is nil if no registry reads them.
	VEXPolicy func(repositories ...string) string
}

// PodVisitor is a cache that visits pods one after another. It calls visit with each pod that the options select. Visits end with the first
// error. visit may keep a pod, and must not modify it.
type PodVisitor interface {
	VisitPods(ctx context.Context, visit func(*corev1.Pod) error, opts ...client.ListOption) error
}

// Store is the part of the store that an Inventory uses.
type Store interface {
	IsRecorded(ctx context.Context, namespace, job, uid string) (bool, error)
	ReportAges(ctx context.Context, scanner, engine string) (map[store.NamespacedImage]store.ReportAge, error)
	RecentImages(ctx context.Context, scanner, engine string) ([]store.RecentImage, error)
	CatalogScopes(ctx context.Context, engine string, key image.Key, policy string) ([]store.Scope, error)
	UploadedSBOM(ctx context.Context, namespace string, key image.Key) (store.UploadedSBOM, error)
	SetUsage(ctx context.Context, usage store.ImageUsage) error
}
