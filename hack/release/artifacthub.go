package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Annotations of the packaged Chart.yaml from which Artifact Hub makes the chart's page
// (https://artifacthub.io/docs/topics/annotations/helm/). Each has YAML as its text. Annotations that do not change with a release are in
// Chart.yaml itself.
const (
	annotationChanges  = "artifacthub.io/changes"
	annotationImages   = "artifacthub.io/images"
	annotationCRDs     = "artifacthub.io/crds"
	annotationExamples = "artifacthub.io/crdsExamples"
	// annotationPrerelease is "true" or "false".
	annotationPrerelease = "artifacthub.io/prerelease"
)

// hubChange is one entry of annotationChanges.
type hubChange struct {
	Kind        string `json:"kind"`
	Description string `json:"description"`
}

// hubImage is one entry of annotationImages. Artifact Hub scans these images.
type hubImage struct {
	Name      string   `json:"name"`
	Image     string   `json:"image"`
	Platforms []string `json:"platforms"`
}

// hubCRD is one entry of annotationCRDs.
type hubCRD struct {
	Kind        string `json:"kind"`
	Version     string `json:"version"`
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
	Description string `json:"description"`
}

// annotations of Chart.yaml must be its last key, since lines are appended to it.
var lastKey = regexp.MustCompile(`(?m)^annotations:\n(?:  .*\n)*\z`)

// withHubAnnotations returns the text of Chart.yaml with the annotations that depend on the release. All other text stays the same.
func (r release) withHubAnnotations(chart string, record map[string]string) (string, error) {
	if !lastKey.MatchString(chart) {
		return "", errors.New("the file Chart.yaml must end with its annotations")
	}
	values, err := r.hubAnnotations(record)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString(chart)
	for _, name := range []string{annotationChanges, annotationImages, annotationCRDs, annotationExamples} {
		written, err := yaml.Marshal(values[name])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "  %s: |\n", name)
		for line := range strings.SplitSeq(strings.TrimSuffix(string(written), "\n"), "\n") {
			fmt.Fprintf(&text, "    %s\n", line)
		}
	}
	fmt.Fprintf(&text, "  %s: %q\n", annotationPrerelease, fmt.Sprint(strings.Contains(r.version, "-")))
	return text.String(), nil
}

func (r release) hubAnnotations(record map[string]string) (map[string]any, error) {
	changes, changesErr := r.hubChanges()
	crds, crdsErr := r.hubCRDs()
	examples, examplesErr := r.hubExamples()
	var images []hubImage
	for _, name := range programs {
		image := hubImage{Name: name, Image: record[name]}
		for _, platform := range platforms {
			image.Platforms = append(image.Platforms, platform.String())
		}
		images = append(images, image)
	}
	return map[string]any{annotationChanges: changes, annotationImages: images, annotationCRDs: crds, annotationExamples: examples},
		errors.Join(changesErr, crdsErr, examplesErr)
}

// changeKinds are Artifact Hub's kinds of changes, by the headings of https://keepachangelog.com.
var changeKinds = map[string]string{
	"Added": "added", "Changed": "changed", "Deprecated": "deprecated", "Removed": "removed", "Fixed": "fixed", "Security": "security",
}

var (
	markdownLink = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	markdownMark = strings.NewReplacer("**", "", "`", "")
)

// hubChanges returns the entries of CHANGELOG.md about the version as plain text.
func (r release) hubChanges() ([]hubChange, error) {
	notes, err := r.notes()
	if err != nil {
		return nil, err
	}
	var changes []hubChange
	kind := ""
	for line := range strings.SplitSeq(notes, "\n") {
		switch {
		case strings.HasPrefix(line, "### "):
			heading := strings.TrimSpace(strings.TrimPrefix(line, "### "))
			if kind = changeKinds[heading]; kind == "" {
				return nil, fmt.Errorf("CHANGELOG.md: the heading %q is none of https://keepachangelog.com", heading)
			}
		case kind == "": // text before the first heading
		case strings.HasPrefix(line, "- "):
			changes = append(changes, hubChange{Kind: kind, Description: strings.TrimPrefix(line, "- ")})
		case strings.HasPrefix(line, "  ") && len(changes) > 0: // an entry's next line
			changes[len(changes)-1].Description += " " + strings.TrimSpace(line)
		}
	}
	for i, change := range changes {
		changes[i].Description = markdownMark.Replace(markdownLink.ReplaceAllString(change.Description, "$1"))
	}
	return changes, nil
}

// kindOrder is the order of kinds on Artifact Hub's page: what a user needs first. Kinds that are not in it come last.
var kindOrder = []string{"ClusterScanner", "Scanner", "VulnerabilityException", "ClusterVulnerabilityException", "ImageScan"}

func kindRank(kind any) int {
	if rank := slices.IndexFunc(kindOrder, func(known string) bool { return known == kind }); rank >= 0 {
		return rank
	}
	return len(kindOrder)
}

// hubCRDs describes the chart's kinds, by the texts in their CustomResourceDefinitions.
func (r release) hubCRDs() ([]hubCRD, error) {
	files, err := filepath.Glob(filepath.Join(r.root, "charts", chartName, "files", "crd", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var crds []hubCRD
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, version := range crd.Spec.Versions {
			crds = append(crds, hubCRD{
				Kind: crd.Spec.Names.Kind, Version: version.Name, Name: crd.Name, DisplayName: words(crd.Spec.Names.Kind),
				Description: strings.Join(strings.Fields(version.Schema.OpenAPIV3Schema.Description), " "),
			})
		}
	}
	slices.SortStableFunc(crds, func(a, b hubCRD) int { return cmp.Compare(kindRank(a.Kind), kindRank(b.Kind)) })
	return crds, nil
}

var wordStart = regexp.MustCompile(`([a-z])([A-Z])`)

// words returns the words of a kind: "Image Scan".
func words(kind string) string { return wordStart.ReplaceAllString(kind, "$1 $2") }

// hubExamples returns the samples of kinds that users write.
func (r release) hubExamples() ([]map[string]any, error) {
	files, err := filepath.Glob(filepath.Join(r.root, "config", "samples", "*.yaml"))
	if err != nil {
		return nil, err
	}
	// Of a kind's samples, the one with the shortest name is the simplest: scanner.yaml before scanner-clair.yaml.
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	var examples []map[string]any
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var object map[string]any
			if err := yaml.Unmarshal(document, &object); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			apiVersion, _ := object["apiVersion"].(string)
			if strings.HasPrefix(apiVersion, "scanner-operator.io/") && object["kind"] != "ImageScan" {
				examples = append(examples, object)
			}
		}
	}
	slices.SortStableFunc(examples, func(a, b map[string]any) int { return cmp.Compare(kindRank(a["kind"]), kindRank(b["kind"])) })
	return examples, nil
}
