package testdb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Advisories are the input of a database.
type Advisories struct {
	// Go are OSV records of Go modules and the standard library.
	Go []osvRecord
	// Distros are advisories of Linux distributions by namespace, such as "debian:12".
	Distros map[string][]DistroAdvisory
	// CVSS are ratings by CVE.
	CVSS map[string]CVSS
	// EPSS are probabilities of exploitation.
	EPSS []EPSS
	// KEV are known exploited vulnerabilities, as CISA publishes them.
	KEV []map[string]any
	// EOL are the ends of distributions' releases. Only those count for which there are advisories.
	EOL []EOL
}

// DistroAdvisory is one vulnerability in one source package of a distribution's release.
type DistroAdvisory struct {
	// ID is the vulnerability's id, mostly a CVE.
	ID string `json:"id"`
	// Package is the source package's name.
	Package string `json:"package"`
	// Fixed is the first version that is not affected; empty if there is none, "0" if no version was ever affected.
	Fixed string `json:"fixed"`
	// FixedOn is the day on which the fix was published, YYYY-MM-DD; may be empty.
	FixedOn string `json:"fixedOn"`
	// WontFix means that the distribution will not fix the vulnerability.
	WontFix bool `json:"wontFix"`
	// Severity is the distribution's rating; empty means unknown.
	Severity string `json:"severity"`
	// Description is one sentence.
	Description string `json:"description"`
}

// CVSS is a CVSS 3.1 rating.
type CVSS struct {
	// Vector is the rating itself, such as CVSS:3.1/AV:N/….
	Vector string `json:"vector"`
	// Score, 0 to 10, and Severity follow from the vector. Publishers state them, too.
	Score    float64 `json:"score"`
	Severity string  `json:"severity"`
}

// EPSS is the probability, 0 to 1, that a vulnerability is exploited in the next 30 days, and the share of
// all vulnerabilities with a lower one.
type EPSS struct {
	CVE        string  `json:"cve"`
	EPSS       float64 `json:"epss"`
	Percentile float64 `json:"percentile"`
}

// EOL is when a distribution's release gets no security updates any more, in the names of https://endoflife.date.
type EOL struct {
	Product string `json:"product"`
	Name    string `json:"name"`
	// EOLFrom is a day, YYYY-MM-DD.
	EOLFrom string `json:"eolFrom"`
}

// distroFile matches the name of a distribution's file: debian-12.json, alpine-3.18.json, rhel-9.json.
var distroFile = regexp.MustCompile(`^([a-z]+)-([0-9][0-9.]*)\.json$`)

// Read reads the advisories of several directories. Later directories add to earlier ones. An advisory replaces an earlier one
// about the same vulnerability in the same package of a distribution.
func Read(dirs ...string) (*Advisories, error) {
	all := &Advisories{Distros: map[string][]DistroAdvisory{}, CVSS: map[string]CVSS{}}
	for _, dir := range dirs {
		if err := all.read(dir); err != nil {
			return nil, err
		}
	}
	if len(all.Go) == 0 && len(all.Distros) == 0 {
		return nil, fmt.Errorf("no advisories in %s", strings.Join(dirs, ", "))
	}
	return all, nil
}

// read adds the advisories of one directory. It ignores files that are not JSON, such as a README.
func (a *Advisories) read(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() || filepath.Ext(entry.Name()) != ".json" {
			continue
		}
		if err := a.readFile(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return a.readGo(filepath.Join(dir, "golang"))
}

// readFile reads one file according to its name. An unknown name is an error, since the file would be ignored otherwise.
func (a *Advisories) readFile(file string) error {
	name := filepath.Base(file)
	switch name {
	case "cvss.json":
		return decodeFile(file, &a.CVSS)
	case "epss.json":
		return appendRows(file, &a.EPSS)
	case "kev.json":
		return appendRows(file, &a.KEV)
	case "eol.json":
		return appendRows(file, &a.EOL)
	}
	match := distroFile.FindStringSubmatch(name)
	if match == nil {
		return fmt.Errorf("%s: the name must be <distribution>-<release>.json, cvss.json, epss.json, kev.json or eol.json", file)
	}
	if _, ok := versionFormats[match[1]]; !ok {
		return fmt.Errorf("%s: distribution %q is not known; known are %q", file, match[1], knownDistros())
	}
	var advisories []DistroAdvisory
	if err := decodeFile(file, &advisories); err != nil {
		return err
	}
	for i, advisory := range advisories {
		if err := advisory.validate(); err != nil {
			return fmt.Errorf("%s: advisory %d: %w", file, i+1, err)
		}
	}
	// Grype identifies a release in this form.
	namespace := match[1] + ":" + match[2]
	for _, advisory := range advisories {
		a.Distros[namespace] = amend(a.Distros[namespace], advisory)
	}
	return nil
}

// amend adds an advisory, or replaces the one about the same vulnerability in the same package.
func amend(earlier []DistroAdvisory, advisory DistroAdvisory) []DistroAdvisory {
	at := slices.IndexFunc(earlier, func(e DistroAdvisory) bool { return e.ID == advisory.ID && e.Package == advisory.Package })
	if at < 0 {
		return append(earlier, advisory)
	}
	earlier[at] = advisory
	return earlier
}

// severities are those that Grype knows (https://github.com/anchore/grype, grype/vulnerability/severity.go).
var severities = []string{"", "Unknown", "Negligible", "Low", "Medium", "High", "Critical"}

// validate returns an error if the advisory cannot mean what its author intended.
func (d DistroAdvisory) validate() error {
	switch {
	case d.ID == "" || d.Package == "":
		return errors.New("id and package are required")
	case d.Fixed != "" && d.WontFix:
		return fmt.Errorf("%s is fixed and will not be fixed", d.ID)
	case !slices.Contains(severities, d.Severity):
		return fmt.Errorf("%s has severity %q, want one of %q", d.ID, d.Severity, severities)
	}
	return nil
}

// readGo adds the OSV records of a directory, which may be missing.
func (a *Advisories) readGo(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".json" {
			continue
		}
		var record osvRecord
		raw, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		// Unknown fields are ignored, since OSV records have many more.
		if err := json.Unmarshal(raw, &record); err != nil {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
		if record.ID == "" || len(record.Affected) == 0 {
			return fmt.Errorf("%s: it is not an OSV record with an id and what it affects", entry.Name())
		}
		a.Go = append(a.Go, record)
	}
	return nil
}

// decodeFile decodes JSON. An unknown field is an error, since a misspelt field would change findings.
func decodeFile(file string, into any) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// appendRows appends the rows of a file's list.
func appendRows[T any](file string, to *[]T) error {
	var rows []T
	if err := decodeFile(file, &rows); err != nil {
		return err
	}
	*to = append(*to, rows...)
	return nil
}
