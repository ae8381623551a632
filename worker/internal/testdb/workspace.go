package testdb

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/OneOfOne/xxhash"
	"github.com/anchore/grype/grype/db/provider"
)

// record is one advisory in the format that Grype's database builder reads.
type record struct {
	// id is unique within its provider.
	id string
	// item is encoded as JSON.
	item any
}

// workspace is one provider's input in the layout of vunnel, which feeds Grype's own builds
// (https://github.com/anchore/vunnel):
//
//	<provider>/metadata.json    provider, schema, capture time, listing
//	<provider>/checksums        "<xxh64>  results/<file>" for each record
//	<provider>/results/*.json   {"schema", "identifier", "item"}
type workspace struct {
	provider string
	// schema selects Grype's reader: os, nvd, github-security-advisory, osv, epss, known-exploited, eol.
	schema  string
	records []record
}

// workspaces returns all providers in build order: CVEs come first, since later records take missing
// severities from them.
func (a *Advisories) workspaces(built time.Time) []workspace {
	all := []workspace{
		{provider: "nvd", schema: "nvd", records: a.cveRecords()},
		{provider: "github", schema: "github-security-advisory", records: a.moduleRecords()},
		{provider: "govulndb", schema: "osv", records: a.stdlibRecords()},
	}
	all = append(all, a.distroWorkspaces()...)
	return append(all,
		workspace{provider: "epss", schema: "epss", records: a.epssRecords(built)},
		workspace{provider: "kev", schema: "known-exploited", records: a.kevRecords()},
		workspace{provider: "eol", schema: "eol", records: a.eolRecords()})
}

// epssRecords returns the probabilities with the build's day as their date, since a database holds those of one day only.
func (a *Advisories) epssRecords(built time.Time) []record {
	var records []record
	for _, e := range a.EPSS {
		records = append(records, record{id: e.CVE, item: map[string]any{
			"cve": e.CVE, "epss": e.EPSS, "percentile": e.Percentile, "date": built.UTC().Format(time.DateOnly),
		}})
	}
	return records
}

// kevRecords returns the rows unchanged, since Grype reads CISA's own format.
func (a *Advisories) kevRecords() []record {
	var records []record
	for _, row := range a.KEV {
		records = append(records, record{id: fmt.Sprint(row["cveID"]), item: row})
	}
	return records
}

// eolRecords returns the ends of releases. Grype's builder reads them last, since they complete records of distributions.
func (a *Advisories) eolRecords() []record {
	var records []record
	for _, e := range a.EOL {
		records = append(records, record{id: e.Product + "-" + e.Name, item: map[string]any{"product": e.Product, "name": e.Name, "eolFrom": e.EOLFrom}})
	}
	return records
}

// schemaURL returns the URL of the schema. Only the schema's name and major version are read from it.
func (w workspace) schemaURL() string {
	return fmt.Sprintf("https://raw.githubusercontent.com/anchore/vunnel/main/schema/vulnerability/%s/schema-1.0.0.json", w.schema)
}

// write writes the workspace below root, and returns its state for Grype's builder.
func (w workspace) write(root string, captured time.Time) (*provider.State, error) {
	dir := filepath.Join(root, w.provider)
	if err := os.MkdirAll(filepath.Join(dir, "results"), 0o755); err != nil {
		return nil, err
	}
	var listing strings.Builder
	for i, r := range w.records {
		body, err := json.Marshal(map[string]any{"schema": w.schemaURL(), "identifier": r.id, "item": r.item})
		if err != nil {
			return nil, err
		}
		// Files are numbered, so that an odd ID cannot become a path, and the order is that of the input.
		name := fmt.Sprintf("results/%06d.json", i)
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o644); err != nil {
			return nil, err
		}
		fmt.Fprintf(&listing, "%016x  %s\n", xxhash.Checksum64(body), name)
	}
	if err := os.WriteFile(filepath.Join(dir, "checksums"), []byte(listing.String()), 0o644); err != nil {
		return nil, err
	}
	return w.writeState(dir, listing.String(), captured)
}

// writeState writes the file that names the provider and refers to the listing.
func (w workspace) writeState(dir, listing string, captured time.Time) (*provider.State, error) {
	state, err := json.Marshal(map[string]any{
		"provider": w.provider, "version": 1, "distribution_version": 1, "processor": "vulndb",
		"schema":    map[string]string{"version": "1.0.0", "url": w.schemaURL()},
		"urls":      []string{},
		"timestamp": captured.Format(time.RFC3339),
		"listing":   map[string]string{"path": "checksums", "digest": fmt.Sprintf("%016x", xxhash.Checksum64([]byte(listing))), "algorithm": "xxh64"},
		"store":     "flat-file",
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "metadata.json")
	if err := os.WriteFile(file, state, 0o644); err != nil {
		return nil, err
	}
	// Reading the file also resolves the listing, through which the builder finds the records.
	return provider.ReadState(file)
}
