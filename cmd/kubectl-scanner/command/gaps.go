package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
)

// gaps returns a sentence for each thing that is not known about the images of a namespace, or of all namespaces that the caller sees. If there
// is none, all running images have a complete result.
func gaps(ctx context.Context, api *connect.Connection, namespace string) ([]string, error) {
	answer, err := api.GetOverviewWithResponse(ctx, &restv1.GetOverviewParams{Namespace: namespaceParameter(namespace)})
	if err != nil {
		return nil, err
	}
	if answer.JSON200 == nil {
		return nil, unexpected(answer.Status())
	}
	return gapsOf(namespace, answer.JSON200.Coverage), nil
}

// gapsOf returns the same for what a response covers.
func gapsOf(namespace string, c restv1.Coverage) (all []string) {
	if c.Scanners == 0 {
		return []string{"nothing is scanned " + where(namespace)}
	}
	if namespace == "" && !c.AllNamespaces {
		all = append(all, "there may be namespaces that you may not see")
	}
	n := c.NotCovered
	if n.Pending > 0 {
		all = append(all, count(n.Pending, "image has", "images have")+" no result yet")
	}
	if n.Failed > 0 {
		all = append(all, count(n.Failed, "image", "images")+" could not be scanned")
	}
	if n.NewScanners > 0 {
		all = append(all, count(n.NewScanners, "Scanner is", "Scanners are")+" not counted yet")
	}
	if n.StaleScanners > 0 {
		all = append(all, count(n.StaleScanners, "Scanner has", "Scanners have")+" results that may be outdated")
	}
	if n.PartlyAnalysed > 0 {
		all = append(all, fmt.Sprintf("%s not completely analyzed: %s", count(n.PartlyAnalysed, "image is", "images are"), strings.Join(n.Ecosystems, ", ")))
	}
	return all
}

// gapsOfResources returns what is not known as far as the resources tell.
func gapsOfResources(ctx context.Context, cluster client.Client, namespace string, scans []v1alpha1.ImageScan) ([]string, error) {
	var list v1alpha1.ScannerList
	if err := cluster.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	known := restv1.Coverage{AllNamespaces: true, Scanners: len(list.Items)}
	for i := range list.Items {
		status := &list.Items[i].Status
		known.NotCovered.Pending += int(status.Images.Pending)
		known.NotCovered.Failed += int(status.Images.Failed)
		if status.ObservedGeneration == 0 {
			known.NotCovered.NewScanners++
		}
		if v1alpha1.IsStale(&list.Items[i]) {
			known.NotCovered.StaleScanners++
		}
	}
	var clusterScanners []string
	for i := range scans {
		scan := &scans[i]
		if !runs(scan) {
			continue
		}
		if scan.Spec.ScannerRef.Kind == v1alpha1.KindClusterScanner {
			clusterScanners = appendNew(clusterScanners, scan.Spec.ScannerRef.Name)
			switch phaseOf(scan) {
			case v1alpha1.PhaseScanned:
			case v1alpha1.PhaseFailed:
				known.NotCovered.Failed++
			default:
				known.NotCovered.Pending++
			}
		}
		if len(scan.Status.NotCovered) > 0 && phaseOf(scan) == v1alpha1.PhaseScanned {
			known.NotCovered.PartlyAnalysed++
			known.NotCovered.Ecosystems = appendNew(known.NotCovered.Ecosystems, scan.Status.NotCovered...)
		}
	}
	known.Scanners += len(clusterScanners)
	all := gapsOf(namespace, known)
	for _, name := range clusterScanners {
		all = append(all, "ClusterScanner "+name+" may cover images that have no ImageScan yet")
	}
	return all, nil
}

// remarkGaps prints the gaps for people.
func (s *session) remarkGaps(gaps []string) {
	if len(gaps) > 0 {
		s.remark("Not known: %s. More: kubectl scanner status", strings.Join(gaps, "; "))
	}
}

// namespaceParameter returns the parameter of a request for a namespace, or for all ("").
func namespaceParameter(namespace string) *string {
	if namespace == "" {
		return nil
	}
	return &namespace
}

// count returns a number with a noun: "1 image", "2 images".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func appendNew(list []string, items ...string) []string {
	for _, item := range items {
		if !slices.Contains(list, item) {
			list = append(list, item)
		}
	}
	return list
}

// unexpected is the error for a response that the API's contract does not have.
func unexpected(status string) error {
	return fmt.Errorf("the REST API answers %s in a form that this plugin does not know: are plugin and operator of the same version?", status)
}
