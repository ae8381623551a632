package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// listScans returns the ImageScans of a namespace, or of all, ordered by namespace and name.
func listScans(ctx context.Context, cluster client.Client, namespace string) ([]v1alpha1.ImageScan, error) {
	var list v1alpha1.ImageScanList
	if err := cluster.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, withNamespaceAdvice(err, namespace)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.ImageScan) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// runs reports whether a pod uses the image.
func runs(scan *v1alpha1.ImageScan) bool { return scan.Status.UnusedSinceTime == nil }

// phaseOf returns the phase of an ImageScan; a new one is pending.
func phaseOf(scan *v1alpha1.ImageScan) v1alpha1.ImageScanPhase {
	return cmp.Or(scan.Status.Phase, v1alpha1.PhasePending)
}

// hasResult reports whether there are findings of the image, possibly of an earlier attempt.
func hasResult(scan *v1alpha1.ImageScan) bool { return scan.Status.Findings != nil }

// imageOf returns the reference of an image, or its digest.
func imageOf(scan *v1alpha1.ImageScan) string {
	if len(scan.Spec.References) > 0 {
		return scan.Spec.References[0]
	}
	return scan.Spec.Digest
}

// shortImageOf returns the name of an image for a table.
func shortImageOf(scan *v1alpha1.ImageScan) string { return cmp.Or(scan.Status.Image, imageOf(scan)) }

// hasWorkload reports whether a workload runs the image. It is named by its kind and name, or only by its name. unknown means that the ImageScan
// does not list all its workloads, and that this one may be among the others.
func hasWorkload(scan *v1alpha1.ImageScan, workload string) (found, unknown bool) {
	found = slices.ContainsFunc(scan.Status.Workloads, func(one string) bool {
		_, name, _ := strings.Cut(one, "/")
		return strings.EqualFold(one, workload) || name == workload
	})
	return found, !found && int(scan.Status.WorkloadCount) > len(scan.Status.Workloads)
}

// selectScans returns the ImageScans that a word of a user means: by name, digest, reference or workload, or by a part of the reference. Of these,
// the first that fits any ImageScan decides.
func selectScans(scans []v1alpha1.ImageScan, word string) ([]v1alpha1.ImageScan, error) {
	for _, fits := range []func(*v1alpha1.ImageScan) bool{
		func(s *v1alpha1.ImageScan) bool { return s.Name == word },
		func(s *v1alpha1.ImageScan) bool { return s.Spec.Digest == word || s.Status.PlatformDigest == word },
		func(s *v1alpha1.ImageScan) bool {
			return slices.Contains(s.Spec.References, word) || s.Status.Image == word
		},
		func(s *v1alpha1.ImageScan) bool { found, _ := hasWorkload(s, word); return found },
		func(s *v1alpha1.ImageScan) bool {
			return slices.ContainsFunc(s.Spec.References, func(reference string) bool { return strings.Contains(reference, word) })
		},
	} {
		var selected []v1alpha1.ImageScan
		for i := range scans {
			if fits(&scans[i]) {
				selected = append(selected, scans[i])
			}
		}
		if len(selected) > 0 {
			return selected, nil
		}
	}
	return nil, fmt.Errorf("no ImageScan has the name, digest, reference or workload %q", word)
}

// withNamespaceAdvice adds to the refusal of a list of all namespaces what to do.
func withNamespaceAdvice(err error, namespace string) error {
	if namespace == "" && apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; name a namespace with -n", err)
	}
	return err
}

// withRoleAdvice adds to the refusal of a change which ClusterRole allows it.
func withRoleAdvice(err error, role string) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; the ClusterRole %s has the permission", err, role)
	}
	return err
}

// where names a namespace in a sentence.
func where(namespace string) string {
	if namespace == "" {
		return "in all namespaces"
	}
	return "in namespace " + namespace
}

// completeImages completes the first argument with the short names of the namespace's images.
func (s *session) completeImages(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	namespace, err := s.namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	cluster, err := s.cluster()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	scans, err := listScans(c.Context(), cluster, namespace)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range scans {
		names = append(names, shortImageOf(&scans[i]))
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
