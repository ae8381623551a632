// Package report prints the findings in a store: the command "manager findings".
package report

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/terminal"
)

// Image is what WriteJSON writes for each image of each Scanner.
type Image struct {
	Namespace string `json:"namespace"`
	// Scanner is the Scanner's UID.
	Scanner        string   `json:"scanner"`
	References     []string `json:"references"`
	Digest         string   `json:"digest"`
	Platform       string   `json:"platform"`
	PlatformDigest string   `json:"platformDigest,omitempty"`
	Scope          string   `json:"scope"`
	Engine         string   `json:"engine"`
	// DataVersion is empty if there is no report.
	DataVersion string `json:"dataVersion,omitempty"`
	// Findings is never null. Without a report it is empty, as for an image without vulnerabilities: DataVersion distinguishes the two.
	Findings []finding.Finding `json:"findings"`
}

// WriteJSON writes a list of images. It escapes characters that control a terminal. Programs read the same values.
func WriteJSON(out io.Writer, images []Image) error {
	text, err := json.MarshalIndent(images, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, terminal.Escape(string(text), "\n"))
	return err
}

// Collect reads the images that wanted accepts, with their findings.
func Collect(ctx context.Context, db *store.Store, wanted func(store.UsedImage) bool) ([]Image, error) {
	uses, err := db.UsedImages(ctx)
	if err != nil {
		return nil, err
	}
	images := []Image{}
	for _, use := range uses {
		if !wanted(use) {
			continue
		}
		img := Image{
			Namespace: use.Namespace, Scanner: use.Scanner, References: use.References, Digest: use.Key.Digest,
			Platform: use.Key.Platform.String(), PlatformDigest: use.PlatformDigest, Scope: string(use.Scope), Engine: use.Engine,
			Findings: []finding.Finding{},
		}
		summary, err := db.Summary(ctx, use.Subject, store.ImageExceptions{})
		if errors.Is(err, store.ErrNotFound) {
			images = append(images, img)
			continue
		}
		if err != nil {
			return nil, err
		}
		img.DataVersion = summary.DataVersion
		findings, err := db.Findings(ctx, use.Subject)
		if err != nil {
			return nil, err
		}
		img.Findings = append(img.Findings, findings...)
		images = append(images, img)
	}
	return images, nil
}

// WriteTable writes one line for each finding. Scanners of a namespace that have the same image share its lines.
func WriteTable(out io.Writer, images []Image) error {
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tIMAGE\tVULNERABILITY\tSEVERITY\tPACKAGE\tINSTALLED\tFIXED IN\tEXPLOITED\tENGINES")
	for _, row := range mergeImages(images) {
		for _, engine := range row.pending {
			printRow(table, row.namespace, row.name, "(no result yet)", "", "", "", "", "", engine)
		}
		for _, f := range row.findings {
			printFinding(table, row.namespace, row.name, f)
		}
	}
	return table.Flush()
}

func printFinding(table io.Writer, namespace, name string, f mergedFinding) {
	exploited := ""
	if f.KnownExploited {
		exploited = "yes"
	}
	printRow(table, namespace, name, f.ID, f.Severity.String(), f.Package.Name, f.Package.Version, strings.Join(f.FixVersions, ", "), exploited, strings.Join(f.engines, ", "))
}

// printRow prints each cell on one line, without characters that control a terminal.
func printRow(table io.Writer, cells ...string) {
	for i, cell := range cells {
		cells[i] = terminal.Escape(cell, "")
	}
	fmt.Fprintln(table, strings.Join(cells, "\t"))
}

// imageRows are the table's rows of an image in a namespace, for all Scanners that have the image.
type imageRows struct {
	namespace, name string
	// findings, worst first.
	findings []mergedFinding
	// pending lists the engines that have no result yet.
	pending []string
}

// mergedFinding is a finding and the engines that found it. Where the engines differ, it is the worst of their findings.
type mergedFinding struct {
	finding.Finding
	engines []string
}

// mergeImages merges the results of all Scanners of a namespace for the same image. It keeps the order of the images.
func mergeImages(images []Image) (rows []*imageRows) {
	type image struct{ namespace, digest, platform string }
	byImage := map[image]*imageRows{}
	for _, img := range images {
		key := image{img.Namespace, img.Digest, img.Platform}
		row := byImage[key]
		if row == nil {
			row = &imageRows{namespace: img.Namespace, name: cmp.Or(append(slices.Clone(img.References), img.Digest)...)}
			byImage[key] = row
			rows = append(rows, row)
		}
		if img.DataVersion == "" && !slices.Contains(row.pending, img.Engine) {
			row.pending = append(row.pending, img.Engine)
		}
		row.add(img)
	}
	return rows
}

// add merges the findings of one engine into the rows.
func (r *imageRows) add(img Image) {
	known := map[string]int{}
	for i, f := range r.findings {
		known[f.Key()] = i
	}
	for _, f := range img.Findings {
		i, found := known[f.Key()]
		if !found {
			r.findings = append(r.findings, mergedFinding{f, []string{img.Engine}})
			continue
		}
		same := &r.findings[i]
		if finding.Worse(f, same.Finding) < 0 {
			same.Finding = f
		}
		if !slices.Contains(same.engines, img.Engine) {
			same.engines = append(same.engines, img.Engine)
			slices.Sort(same.engines)
		}
	}
	slices.SortStableFunc(r.findings, func(a, b mergedFinding) int { return finding.Worse(a.Finding, b.Finding) })
}
