package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

func (s *session) rescanCommand() *cobra.Command {
	var scanner, clusterScanner string
	c := &cobra.Command{
		Use: "rescan [IMAGE]", Short: "Have an image, or all images of a Scanner, scanned again now", Args: cobra.MaximumNArgs(1),
		Long: `Have an image, or all images of a Scanner, scanned again now.

An image that failed is retried, and one with a result is matched again with the newest vulnerability data. Results stay until the next ones
are there. IMAGE is the ImageScan's name, the image's reference or a part of it, its digest, or a workload such as Deployment/web.`,
		Example: `  kubectl scanner rescan shop/billing:7 -n shop
  kubectl scanner rescan --scanner default -n shop`,
		ValidArgsFunction: s.completeImages,
		RunE: func(c *cobra.Command, args []string) error {
			switch given := len(args); {
			case given+countSet(scanner, clusterScanner) != 1:
				return errors.New("give either an IMAGE, --scanner or --cluster-scanner")
			case given == 1:
				return s.rescanImage(c.Context(), args[0])
			case scanner != "":
				return s.rescanScanner(c.Context(), scanner)
			}
			return s.requestRescan(c.Context(), &v1alpha1.ClusterScanner{}, client.ObjectKey{Name: clusterScanner}, "ClusterScanner")
		},
	}
	c.Flags().StringVar(&scanner, "scanner", "", "all images of this Scanner")
	c.Flags().StringVar(&clusterScanner, "cluster-scanner", "", "all images of this ClusterScanner")
	const forImage, forScanner, forClusterScanner = "for an IMAGE", "with --scanner", "with --cluster-scanner"
	return s.requires(c,
		own("imagescans", forImage, "list", "delete"), own("scanners", forScanner, "get", "patch"),
		permission{verbs: []string{"get", "patch"}, group: v1alpha1.GroupVersion.Group, resource: "clusterscanners", scope: inCluster, when: forClusterScanner})
}

func countSet(words ...string) (n int) {
	for _, word := range words {
		if word != "" {
			n++
		}
	}
	return n
}

// rescanImage deletes the ImageScans of an image. The operator creates them again at once, and keeps the results.
func (s *session) rescanImage(ctx context.Context, word string) error {
	scans, err := s.selectImages(ctx, word)
	if err != nil {
		return err
	}
	for i := range scans {
		if scans[i].Spec.Digest != scans[0].Spec.Digest {
			return fmt.Errorf("%q is several images: name one by its ImageScan, %s or %s", word, scans[0].Name, scans[i].Name)
		}
	}
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	for i := range scans {
		scan := &scans[i]
		if !runs(scan) {
			return fmt.Errorf("no pod runs %s any more, so it is not scanned again", shortImageOf(scan))
		}
		// The operator may have created it again in the meantime.
		if err := cluster.Delete(ctx, scan, client.Preconditions{UID: &scan.UID}); err != nil {
			return withRoleAdvice(err, "scanner-operator-edit")
		}
		fmt.Fprintf(s.results(), "%s is scanned again for %s %s. Its result stays until the next one is there.\n",
			shortImageOf(scan), scan.Spec.ScannerRef.Kind, scan.Spec.ScannerRef.Name)
	}
	return nil
}

func (s *session) rescanScanner(ctx context.Context, name string) error {
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	return s.requestRescan(ctx, &v1alpha1.Scanner{}, client.ObjectKey{Namespace: namespace, Name: name}, "Scanner")
}

// requestRescan sets the annotation that requests a rescan of all images.
func (s *session) requestRescan(ctx context.Context, scanner client.Object, key types.NamespacedName, kind string) error {
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	if err := cluster.Get(ctx, key, scanner); err != nil {
		return err
	}
	// Only a new value counts, so it has the fraction of the second.
	if err := annotate(ctx, cluster, scanner, v1alpha1.AnnotationRequestedAt, s.Clock.Now().UTC().Format(time.RFC3339Nano)); err != nil {
		return err
	}
	note := ""
	if settings := scanner.(v1alpha1.GenericScanner).Settings(); ptr.Deref(settings.Suspend, false) {
		note = " It is suspended, so nothing happens until it is resumed."
	}
	fmt.Fprintf(s.results(), "All images of %s %s are scanned again.%s\n", kind, key.Name, note)
	return nil
}

// annotate sets an annotation of an object that was read.
func annotate(ctx context.Context, cluster client.Client, o client.Object, name, value string) error {
	before := o.DeepCopyObject().(client.Object)
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	o.SetAnnotations(annotations)
	return cluster.Patch(ctx, o, client.MergeFrom(before))
}
