package controllers

import (
	"fmt"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Bounds of the parts of status.worstFinding, in bytes. They are less than those of the top findings, since a table has one line for it. A
// pseudo-version of Go has 34 bytes.
const (
	maxWorstIDBytes      = 24
	maxWorstPackageBytes = 40
	maxWorstVersionBytes = 34
)

// worstFinding returns the first finding in one line of at most v1alpha1.MaxWorstBytes bytes, such as
// "CVE-2023-0464 Critical libssl3 3.0.9-1 → 3.0.11-1 (known exploited)". In parentheses is what puts the finding before more severe ones.
// Findings must be in the order of finding.Worse, without suppressed ones. The result is empty if there are none.
func worstFinding(findings []finding.Finding) string {
	if len(findings) == 0 {
		return ""
	}
	f := findings[0]
	line := truncate(f.ID, maxWorstIDBytes) + " " + f.Severity.String() + " " +
		truncate(f.Package.Name, maxWorstPackageBytes) + " " + truncate(f.Package.Version, maxWorstVersionBytes)
	switch {
	case f.Fixable():
		line += " → " + truncate(f.FixVersions[0], maxWorstVersionBytes)
	case f.FixState == finding.FixStateWontFix:
		line += ", will not be fixed"
	case f.FixState == finding.FixStateNotFixed:
		line += ", no fix yet"
	}
	// A probability itself would change the status every day.
	if band := f.EPSSBand(); f.KnownExploited {
		line += " (known exploited)"
	} else if band > 0 {
		line += fmt.Sprintf(" (EPSS ≥ %d %%)", band)
	}
	return line
}

// shortImageName returns the name of an ImageScan's image for tables, of at most maxImageColumn bytes. An image without a reference is
// named by its digest.
func shortImageName(spec v1alpha1.ImageScanSpec) string {
	for _, text := range spec.References {
		if ref, err := image.ParseReference(text); err == nil {
			return ref.Short(maxImageColumn)
		}
	}
	return truncate(spec.Digest, len("sha256:")+image.ShortDigestLength+len("…"))
}
