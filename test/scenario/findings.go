package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// ImageFindings are the findings of one image of one Scanner in the operator's store.
type ImageFindings struct {
	Namespace      string            `json:"namespace"`
	Scanner        string            `json:"scanner"`
	References     []string          `json:"references"`
	Digest         string            `json:"digest"`
	PlatformDigest string            `json:"platformDigest"`
	Platform       string            `json:"platform"`
	Engine         string            `json:"engine"`
	DataVersion    string            `json:"dataVersion"`
	Findings       []finding.Finding `json:"findings"`
}

// Findings returns the findings of a namespace's images in the operator's store.
func (e *Environment) Findings(ctx context.Context, namespace string) ([]ImageFindings, error) {
	text, err := e.Kubectl(ctx, "--namespace", SystemNamespace, "exec", ManagerDeployment, "--container", "manager", "--",
		"/scanner-operator", "findings", "-namespace", namespace, "-o", "json")
	if err != nil {
		return nil, err
	}
	var all []ImageFindings
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("what \"manager findings\" printed: %w", err)
	}
	return all, nil
}

// Repositories returns the repositories by which pods reference the image, sorted.
func (f ImageFindings) Repositories() []string {
	var repositories []string
	for _, text := range f.References {
		if ref, err := image.ParseReference(text); err == nil {
			repositories = append(repositories, ref.Repository)
		}
	}
	slices.Sort(repositories)
	return slices.Compact(repositories)
}

// AnnouncedLines returns the findings of images in the form of messages: each vulnerability in each package of each repository once. It applies
// the default settings of a receiver: High and above, unknown severity if there is a fix, and known exploited ones in any case.
func AnnouncedLines(images []ImageFindings) []Line { return lines(images, announced) }

// AllLines returns all findings of images in the same form. Their number is that of the Scanner's status.
func AllLines(images []ImageFindings) []Line {
	return lines(images, func(finding.Finding) bool { return true })
}

// announced reports whether a receiver with default settings announces the finding.
func announced(f finding.Finding) bool {
	return f.Severity >= finding.High || f.KnownExploited || f.Severity == finding.Unknown && f.Fixable()
}

// lines returns the findings for which wanted returns true.
func lines(images []ImageFindings, wanted func(finding.Finding) bool) []Line {
	var lines []Line
	for _, img := range images {
		for _, f := range img.Findings {
			if !wanted(f) {
				continue
			}
			for _, repository := range img.Repositories() {
				lines = append(lines, Line{
					Repository: repository, ID: f.ID, Severity: f.Severity.String(), Package: f.Package.Name, Version: f.Package.Version,
				})
			}
		}
	}
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(strings.Compare(a.String(), b.String()), strings.Compare(a.Version, b.Version))
	})
	// The same vulnerability in two versions of a package is announced once.
	return slices.CompactFunc(lines, func(a, b Line) bool { return a.String() == b.String() })
}
