package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// imageFindings is what "manager findings -o json" prints for each image of each Scanner.
type imageFindings struct {
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

// printFindings prints findings from the store, while the manager runs.
func printFindings(ctx context.Context, args []string, out io.Writer) error {
	flags := newFlags("findings")
	dataDir := flags.String("data-dir", defaultDataDir, "directory of the store")
	namespace := flags.String("namespace", "", "only images of this namespace (default all)")
	name := flags.String("image", "", "only images whose reference or digest contains this")
	format := flags.String("o", "table", "table or json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *format != "table" && *format != "json" {
		return fmt.Errorf("-o: %q is neither table nor json", *format)
	}
	db, err := store.OpenSQLiteReadOnly(filepath.Join(*dataDir, storeFile))
	if err != nil {
		return err
	}
	images, err := collectFindings(ctx, db, func(use store.UsedImage) bool {
		wanted := strings.Contains(use.Key.Digest+" "+use.PlatformDigest+" "+strings.Join(use.References, " "), *name)
		return wanted && (*namespace == "" || use.Namespace == *namespace)
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if *format == "json" {
		return printJSON(out, images)
	}
	return printTable(out, images)
}

// printJSON escapes characters that control a terminal. Programs read the same values.
func printJSON(out io.Writer, images []imageFindings) error {
	text, err := json.MarshalIndent(images, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, escapeControl(string(text), "\n"))
	return err
}

func collectFindings(ctx context.Context, db *store.Store, wanted func(store.UsedImage) bool) ([]imageFindings, error) {
	uses, err := db.UsedImages(ctx)
	if err != nil {
		return nil, err
	}
	images := []imageFindings{}
	for _, use := range uses {
		if !wanted(use) {
			continue
		}
		img := imageFindings{
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

func printTable(out io.Writer, images []imageFindings) error {
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
		cells[i] = escapeControl(cell, "")
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
func mergeImages(images []imageFindings) (rows []*imageRows) {
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
func (r *imageRows) add(img imageFindings) {
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
