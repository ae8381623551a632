package controllers

import (
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// describeCoverage converts the coverage to the notifier's type: images with a digest one by one, all others as counts. never is the result
// of EngineGaps.
func describeCoverage(covered inventory.Coverage, never []string) (coverage announce.Coverage) {
	coverage.Namespaces = describeNamespaces(covered)
	for _, img := range covered.Recent {
		described := describeImage(img, never)
		described.Recent = true
		coverage.Images = append(coverage.Images, described)
	}
	for _, img := range covered.Running {
		if img.State == image.Excluded || img.Reason == v1alpha1.ReasonNodeUnknown {
			coverage.UnknownRepositories = append(coverage.UnknownRepositories, namedRepositories(img)...)
		}
		if len(img.Repositories) > 0 && img.State != image.Excluded {
			coverage.Images = append(coverage.Images, describeImage(img, never))
			continue
		}
		switch img.State {
		case image.Excluded:
			coverage.Others.Excluded++
		case image.Failed:
			if coverage.Others.Failed == nil {
				coverage.Others.Failed = map[string]int{}
			}
			coverage.Others.Failed[img.Reason]++
		default:
			coverage.Others.Pending++
		}
	}
	return coverage
}

// describeNamespaces returns the namespaces of a ClusterScanner; nil for a Scanner.
func describeNamespaces(covered inventory.Coverage) (namespaces []announce.Namespace) {
	if !covered.ClusterWide {
		return nil
	}
	for _, name := range covered.Namespaces.Covered {
		used, waiting := covered.HasImages(name)
		namespaces = append(namespaces, announce.Namespace{Name: name, Complete: !waiting, Empty: !used})
	}
	return namespaces
}

// namedRepositories returns the repositories by which pods name an image, whether it has a digest or not.
func namedRepositories(img inventory.CoveredImage) []string {
	if len(img.Repositories) > 0 {
		return img.Repositories
	}
	ref, err := image.ParseReference(img.Name)
	if err != nil {
		return nil
	}
	return []string{ref.Repository}
}

func describeImage(img inventory.CoveredImage, never []string) announce.Image {
	return announce.Image{
		Key: img.ID, Repositories: img.Repositories, Namespaces: img.Namespaces, State: img.State, Reason: img.Reason,
		Gap:     evidence.GapOf(evidence.ImageGaps(img.NotCovered, never)),
		Current: img.Report.Current, Receivers: img.Receivers,
	}
}
