package story

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

// ImageFindings is what the operator's store knows about one image of one Scanner.
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

// Findings asks the operator what its store knows about the images of a namespace.
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

// Repositories are those by which pods name the image, sorted.
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

// News are the findings of images as messages would name them: each vulnerability in each package of each repository once.
// It applies the defaults of a receiver: High and above, unknown severity if there is a fix, known exploited in any case.
func News(images []ImageFindings) []Line { return lines(images, announced) }

// announced is what a receiver with default settings wants to hear of.
func announced(f finding.Finding) bool {
	return f.Severity >= finding.High || f.KnownExploited || f.Severity == finding.Unknown && f.Fixable()
}

// lines are the findings that a filter lets pass.
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
	// The same vulnerability in two copies of a package is one piece of news.
	return slices.CompactFunc(lines, func(a, b Line) bool { return a.String() == b.String() })
}
