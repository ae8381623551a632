package clairfeed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// advisories are the source of the written files.
type advisories struct {
	// golang holds OSV records by file name, unchanged.
	golang map[string][]byte
	// distributions holds advisories by "<distribution>-<release>".
	distributions map[string][]distributionAdvisory
	// cvss holds ratings by CVE.
	cvss map[string]rating
}

// distributionAdvisory is one vulnerability in one source package of a release.
type distributionAdvisory struct {
	ID, Package string
	// Fixed is the first version that is not affected; empty if there is none, "0" if no version was ever affected.
	Fixed, Severity, Description string
}

// rating is a CVSS 3.1 rating.
type rating struct {
	Vector   string
	Score    float64
	Severity string
}

// read reads directories of advisories. Later directories add to earlier ones. An advisory for the same vulnerability in the same
// package of a distribution replaces the earlier one.
func read(dirs []string) (*advisories, error) {
	all := &advisories{golang: map[string][]byte{}, distributions: map[string][]distributionAdvisory{}, cvss: map[string]rating{}}
	for _, dir := range dirs {
		for _, step := range []func(string) error{all.readCVSS, all.readDistributions, all.readGo} {
			if err := step(dir); err != nil {
				return nil, err
			}
		}
	}
	if len(all.golang) == 0 && len(all.distributions) == 0 {
		return nil, fmt.Errorf("no advisories in %s", strings.Join(dirs, ", "))
	}
	return all, nil
}

func (a *advisories) readCVSS(dir string) error {
	var ratings map[string]rating
	err := decode(filepath.Join(dir, "cvss.json"), &ratings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	maps.Copy(a.cvss, ratings)
	return err
}

func (a *advisories) readDistributions(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*-*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		var read []distributionAdvisory
		if err := decode(file, &read); err != nil {
			return err
		}
		release := strings.TrimSuffix(filepath.Base(file), ".json")
		for _, advisory := range read {
			a.distributions[release] = amend(a.distributions[release], advisory)
		}
	}
	return nil
}

// amend adds an advisory, or replaces that of the same vulnerability in the same package.
func amend(earlier []distributionAdvisory, advisory distributionAdvisory) []distributionAdvisory {
	at := slices.IndexFunc(earlier, func(e distributionAdvisory) bool { return e.ID == advisory.ID && e.Package == advisory.Package })
	if at < 0 {
		return append(earlier, advisory)
	}
	earlier[at] = advisory
	return earlier
}

func (a *advisories) readGo(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "golang", "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if a.golang[filepath.Base(file)], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	return nil
}

func decode(file string, into any) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
