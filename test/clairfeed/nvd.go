package clairfeed

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// firstYear is the first year of NVD's feeds.
const firstYear = 2002

// nvdCVE is the part of a CVE in the feeds (https://csrc.nist.gov/schema/nvd/api/2.0/cve_api_json_2.0.schema) that Clair reads.
type nvdCVE struct {
	ID      string                 `json:"id"`
	Status  string                 `json:"vulnStatus"`
	Metrics map[string][]nvdMetric `json:"metrics"`
}

type nvdMetric struct {
	Source string  `json:"source"`
	Type   string  `json:"type"`
	CVSS   nvdCVSS `json:"cvssData"`
}

type nvdCVSS struct {
	Version      string  `json:"version"`
	VectorString string  `json:"vectorString"`
	BaseScore    float64 `json:"baseScore"`
	BaseSeverity string  `json:"baseSeverity"`
}

// addNVD writes a feed for every year up to latest, since Clair uses none if one is missing. A CVE of a later year, which only an
// invented CVE can have, is in the latest feed.
func (t tree) addNVD(a *advisories, latest int) error {
	years := map[int][]map[string]nvdCVE{}
	for _, id := range slices.Sorted(maps.Keys(a.cvss)) {
		parts := strings.Split(id, "-")
		year, err := strconv.Atoi(parts[min(1, len(parts)-1)])
		if err != nil {
			return fmt.Errorf("cvss.json: %s is no CVE: %w", id, err)
		}
		year = min(max(year, firstYear), latest)
		years[year] = append(years[year], map[string]nvdCVE{"cve": inNVD(id, a.cvss[id])})
	}
	for year := firstYear; year <= latest; year++ {
		if err := t.addYear(year, years[year]); err != nil {
			return err
		}
	}
	return nil
}

func inNVD(id string, rated rating) nvdCVE {
	return nvdCVE{ID: id, Status: "Analyzed", Metrics: map[string][]nvdMetric{"cvssMetricV31": {{
		Source: "nvd@nist.gov", Type: "Primary", CVSS: nvdCVSS{
			Version: "3.1", VectorString: rated.Vector, BaseScore: rated.Score, BaseSeverity: strings.ToUpper(rated.Severity),
		},
	}}}}
}

// addYear writes the feed of a year and its metadata file, whose checksum shows Clair that the feed has changed.
func (t tree) addYear(year int, cves []map[string]nvdCVE) error {
	if cves == nil {
		cves = []map[string]nvdCVE{}
	}
	document, err := json.Marshal(map[string]any{
		"resultsPerPage": len(cves), "startIndex": 0, "totalResults": len(cves),
		"format": "NVD_CVE", "version": "2.0", "timestamp": "2026-01-01T00:00:00.000", "vulnerabilities": cves,
	})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(document); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	name := fmt.Sprintf("nvd/nvdcve-2.0-%d", year)
	t[name+".json.gz"] = packed.Bytes()
	t[name+".meta"] = fmt.Appendf(nil, "lastModifiedDate:2026-01-01T00:00:00+00:00\r\nsize:%d\r\nzipSize:%d\r\ngzSize:%d\r\nsha256:%X\r\n",
		len(document), packed.Len(), packed.Len(), sha256.Sum256(document))
	return nil
}
