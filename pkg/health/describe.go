package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// DescribeAnomaly describes the anomaly, what is not announced meanwhile and what to do.
func DescribeAnomaly(a *store.DataAnomaly) string {
	return fmt.Sprintf("%s went with one version of the vulnerability data, on %s: that looks like broken data. Until they are back nothing "+
		"is announced as fixed; new findings are announced as usual. Check whether the data's publisher or mirror has lost a part of it. "+
		"If the findings stay away, the quarantine ends 14 days after that", lostFindings(a), a.Since.UTC().Format(time.RFC3339))
}

// lostFindings describes how many findings are missing. If other namespaces are affected too, it only gives their number.
func lostFindings(a *store.DataAnomaly) string {
	if a.TotalNamespaces > 0 {
		return fmt.Sprintf("more than a fifth of the findings in %d of %d namespaces", a.Namespaces, a.TotalNamespaces)
	}
	return fmt.Sprintf("%d of %d findings", a.Missing, a.Total)
}

// DescribePending returns how many images wait, and names those that have a reason.
func DescribePending(images []inventory.CoveredImage) string {
	pending, _ := groupByReason(images, image.Pending)
	waiting := fmt.Sprintf("%d of %d images have no result yet", pending, len(images))
	withReason := slices.DeleteFunc(slices.Clone(images), func(img inventory.CoveredImage) bool { return img.Reason == "" })
	if _, reasons := groupByReason(withReason, image.Pending); reasons != "" {
		waiting += " (" + reasons + ")"
	}
	return waiting
}

// DescribeFailures groups failed images by reason and names an example of each.
func DescribeFailures(images []inventory.CoveredImage) string {
	failed, reasons := groupByReason(images, image.Failed)
	return fmt.Sprintf("%d of %d images could not be scanned (%s)", failed, len(images), reasons)
}

// groupByReason counts the images in a state, and names an example for each reason.
func groupByReason(images []inventory.CoveredImage, state image.State) (n int, reasons string) {
	byReason := map[string][]string{}
	for _, img := range images {
		if img.State == state {
			n++
			byReason[img.Reason] = append(byReason[img.Reason], img.Name)
		}
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		names := byReason[reason]
		part := fmt.Sprintf("%s: %s", cmp.Or(reason, "unknown"), names[0])
		if len(names) > 1 {
			part += fmt.Sprintf(" and %d more", len(names)-1)
		}
		parts = append(parts, part)
	}
	return n, strings.Join(parts, "; ")
}
