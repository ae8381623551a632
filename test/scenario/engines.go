package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Compared holds the differences between the findings of two engines in the same image.
type Compared struct {
	// Both is the number of findings that both engines have.
	Both int
	// OnlyGrype and OnlyClair are the findings of one engine alone, each as "CVE-2023-5363 openssl", sorted.
	OnlyGrype, OnlyClair []string
	// Differences counts the differences in the findings that both engines have.
	Differences map[Difference]int
}

// Difference is a difference in one property of a finding, with the values of both engines.
type Difference struct{ What, Grype, Clair string }

// Compare compares the findings of one image by their identity.
func Compare(grype, clair []finding.Finding) Compared {
	c := Compared{Differences: map[Difference]int{}}
	alone := map[string]finding.Finding{}
	for _, f := range clair {
		alone[f.Key()] = f
	}
	for _, f := range grype {
		same, found := alone[f.Key()]
		if !found {
			c.OnlyGrype = append(c.OnlyGrype, f.ID+" "+f.Package.Name)
			continue
		}
		delete(alone, f.Key())
		c.Both++
		c.add("severity", f.Severity.String(), same.Severity.String())
		c.add("fix", f.FixState, same.FixState)
		if f.Fixable() && same.Fixable() {
			c.add("fixed in", strings.Join(f.FixVersions, " "), strings.Join(same.FixVersions, " "))
		}
	}
	for _, f := range alone {
		c.OnlyClair = append(c.OnlyClair, f.ID+" "+f.Package.Name)
	}
	slices.Sort(c.OnlyGrype)
	slices.Sort(c.OnlyClair)
	return c
}

func (c *Compared) add(what, grype, clair string) {
	if grype != clair {
		c.Differences[Difference{what, grype, clair}]++
	}
}

// enginesPage documents the differences between engines and their reasons.
const enginesPage = "docs/understand/engines-measured.md"

// Column headers of the page's two tables, which are compared with the test images.
var (
	aloneHeader     = []string{"image", "both", "only Grype", "only Clair", "why"}
	otherwiseHeader = []string{"image", "what", "Grype", "Clair", "findings", "why"}
)

// DocumentedDifferences returns the documented differences, by image. A row without a reason is an error.
func DocumentedDifferences(root string) (map[string]Compared, error) {
	page, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(enginesPage)))
	if err != nil {
		return nil, err
	}
	images, err := differencesIn(string(page))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", enginesPage, err)
	}
	return images, nil
}

func differencesIn(page string) (map[string]Compared, error) {
	images := map[string]Compared{}
	alone, err := table(page, aloneHeader)
	if err != nil {
		return nil, err
	}
	for _, row := range alone {
		c := Compared{OnlyGrype: list(row[2]), OnlyClair: list(row[3]), Differences: map[Difference]int{}}
		if c.Both, err = strconv.Atoi(row[1]); err != nil {
			return nil, fmt.Errorf("row of %s: %w", row[0], err)
		}
		if _, twice := images[row[0]]; twice {
			return nil, fmt.Errorf("two rows of %s", row[0])
		}
		if len(c.OnlyGrype)+len(c.OnlyClair) > 0 && row[4] == "" {
			return nil, fmt.Errorf("row of %s: it does not say why", row[0])
		}
		images[row[0]] = c
	}
	otherwise, err := table(page, otherwiseHeader)
	if err != nil {
		return nil, err
	}
	for _, row := range otherwise {
		c, known := images[row[0]]
		if !known || row[5] == "" {
			return nil, fmt.Errorf("row of %s, %s: the image is not in the table before, or it does not say why", row[0], row[1])
		}
		if c.Differences[Difference{row[1], row[2], row[3]}], err = strconv.Atoi(row[4]); err != nil {
			return nil, fmt.Errorf("row of %s, %s: %w", row[0], row[1], err)
		}
	}
	return images, nil
}

// table returns the rows of the Markdown table with the given header.
func table(page string, header []string) (rows [][]string, err error) {
	_, rest, found := strings.Cut(page, "| "+strings.Join(header, " | ")+" |\n")
	if !found {
		return nil, errors.New("no table with the columns " + strings.Join(header, ", "))
	}
	_, rest, _ = strings.Cut(rest, "\n") // the line below the header
	for line := range strings.Lines(rest) {
		line, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !isRow {
			break
		}
		row := strings.Split(strings.TrimSuffix(line, "|"), "|")
		if len(row) != len(header) {
			return nil, fmt.Errorf("row %q has %d columns, its header %d", line, len(row), len(header))
		}
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func list(cell string) (items []string) {
	for item := range strings.SplitSeq(cell, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	slices.Sort(items)
	return items
}
