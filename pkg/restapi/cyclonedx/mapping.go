package cyclonedx

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	packageurl "github.com/package-url/packageurl-go"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// The parts of CycloneDX that Decode reads. Other fields are not read.
type (
	namedValue struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	component struct {
		BOMRef     string       `json:"bom-ref"`
		Group      string       `json:"group"`
		Name       string       `json:"name"`
		Version    string       `json:"version"`
		PURL       string       `json:"purl"`
		Properties []namedValue `json:"properties"`
		Evidence   struct {
			Occurrences []struct {
				Location string `json:"location"`
			} `json:"occurrences"`
		} `json:"evidence"`
		Components []component `json:"components"`
	}
	metadata struct {
		Timestamp string `json:"timestamp"`
		// Tools is a list in CycloneDX 1.4, and an object with components since 1.5.
		Tools      json.RawMessage `json:"tools"`
		Component  *component      `json:"component"`
		Properties []namedValue    `json:"properties"`
	}
	source struct {
		Name string `json:"name"`
		URL  string `json:"url"`
	}
	rating struct {
		Source   source   `json:"source"`
		Score    *float64 `json:"score"`
		Severity string   `json:"severity"`
		Method   string   `json:"method"`
		Vector   string   `json:"vector"`
	}
	vulnerability struct {
		ID         string `json:"id"`
		Source     source `json:"source"`
		References []struct {
			ID string `json:"id"`
		} `json:"references"`
		Ratings        []rating `json:"ratings"`
		Description    string   `json:"description"`
		Recommendation string   `json:"recommendation"`
		Advisories     []struct {
			URL string `json:"url"`
		} `json:"advisories"`
		Affects []struct {
			Ref      string `json:"ref"`
			Versions []struct {
				Version string `json:"version"`
				Range   string `json:"range"`
				Status  string `json:"status"`
			} `json:"versions"`
		} `json:"affects"`
		Analysis struct {
			State string `json:"state"`
		} `json:"analysis"`
		Properties []namedValue `json:"properties"`

		pointer string
	}
)

// affectedPackage is a component as the package of a finding.
type affectedPackage struct {
	finding.Package
	paths []string
}

// valueOf returns the value of the first property with one of the names; empty if there is none.
func valueOf(properties []namedValue, names ...string) string {
	for _, name := range names {
		for _, p := range properties {
			if p.Name == name && p.Value != "" {
				return p.Value
			}
		}
	}
	return ""
}

// Names of the properties in which programs write what CycloneDX has no field for. Syft's are also those of Grype.
const (
	syftType     = "syft:package:type"
	syftLocation = "syft:location:0:path"
	trivyPath    = "aquasecurity:trivy:FilePath"
)

func (d *decoder) addMetadata(m metadata) error {
	tool, err := toolOf(m.Tools)
	if err != nil {
		return err
	}
	d.timestamp, d.document.Tool = m.Timestamp, tool
	d.engine = valueOf(m.Properties, property+"engine")
	if m.Component == nil {
		return nil
	}
	return d.addComponent(*m.Component, "/metadata/component")
}

// toolOf returns the name and version of the first tool; empty if there is none.
func toolOf(raw json.RawMessage) (string, error) {
	const pointer = "/metadata/tools"
	var list []component
	var object struct {
		Components []component `json:"components"`
	}
	var err error
	switch {
	case raw == nil:
	case raw[0] == '[':
		err = unmarshal(raw, pointer, &list)
	default:
		err = unmarshal(raw, pointer, &object)
		list = object.Components
	}
	if err != nil || len(list) == 0 {
		return "", err
	}
	return strings.TrimSpace(list[0].Name + " " + list[0].Version), nil
}

// addComponent adds a component and those in it.
func (d *decoder) addComponent(c component, pointer string) error {
	if d.components++; d.components > maxComponents {
		return limitExceeded(pointer, "the document has more than %d components", maxComponents)
	}
	if c.Name == "" {
		return invalid(pointer+"/name", "it is missing or empty")
	}
	if c.BOMRef != "" {
		if _, known := d.packages[c.BOMRef]; known {
			return invalid(pointer+"/bom-ref", "another component has the same reference")
		}
		p := packageOf(c)
		if err := d.keep(pointer, len(c.BOMRef)+len(p.Name)+len(p.Version)+len(p.PURL)+len(p.Type)+textBytes(p.paths)); err != nil {
			return err
		}
		d.packages[c.BOMRef] = p
	}
	for i, inner := range c.Components {
		if err := d.addComponent(inner, pointer+"/components/"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}

func textBytes(texts []string) (n int) {
	for _, text := range texts {
		n += len(text)
	}
	return n
}

// packageTypes maps types of package URLs to package types, as far as they differ.
var packageTypes = map[string]string{
	"golang": "go-module", "pypi": "python", "maven": "java-archive", "cargo": "rust-crate", "nuget": "dotnet", "composer": "php-composer",
}

// packageOf returns the package that a component stands for.
func packageOf(c component) affectedPackage {
	p := affectedPackage{Package: finding.Package{Name: c.Name, Version: c.Version, PURL: c.PURL}}
	p.Type = valueOf(c.Properties, property+"packageType", syftType)
	kind := ""
	if parsed, err := packageurl.FromString(c.PURL); err == nil {
		kind = parsed.Type
		p.Version = cmp.Or(p.Version, parsed.Version)
	}
	p.Type = cmp.Or(p.Type, packageTypes[kind], kind)
	if c.Group != "" && slices.Contains([]string{"npm", "composer", "golang"}, kind) {
		p.Name = c.Group + "/" + c.Name
	}
	for _, occurrence := range c.Evidence.Occurrences {
		if occurrence.Location != "" {
			p.paths = append(p.paths, occurrence.Location)
		}
	}
	if path := valueOf(c.Properties, syftLocation, trivyPath); p.paths == nil && path != "" {
		p.paths = []string{path}
	}
	return p
}

// severityNames maps the severities of CycloneDX to the severities of findings. It is the inverse of severities.
var severityNames = map[string]finding.Severity{
	"critical": finding.Critical, "high": finding.High, "medium": finding.Medium, "low": finding.Low, "info": finding.Negligible,
	"none": finding.Negligible, "unknown": finding.Unknown, "": finding.Unknown,
}

// analysisStates are the states of CycloneDX 1.6.
var analysisStates = []string{"", "resolved", "resolved_with_pedigree", "exploitable", "in_triage", "false_positive", "not_affected"}

// addVulnerability checks a vulnerability and keeps it, since the components that it affects may come later.
func (d *decoder) addVulnerability(v vulnerability, pointer string) error {
	if strings.TrimSpace(v.ID) == "" {
		return invalid(pointer+"/id", "it is missing or empty")
	}
	for i, r := range v.Ratings {
		at := pointer + "/ratings/" + strconv.Itoa(i)
		if _, known := severityNames[r.Severity]; !known {
			return invalid(at+"/severity", "it must be critical, high, medium, low, info, none or unknown")
		}
		if r.Score != nil && r.cvssVersion() != "" && (*r.Score < 0 || *r.Score > 10) {
			return invalid(at+"/score", "a CVSS score is from 0 to 10")
		}
	}
	if !slices.Contains(analysisStates, v.Analysis.State) {
		return invalid(pointer+"/analysis/state", "it must be one of%s", strings.Join(analysisStates, " "))
	}
	for i, affected := range v.Affects {
		if affected.Ref == "" {
			return invalid(pointer+"/affects/"+strconv.Itoa(i)+"/ref", "it is missing or empty")
		}
	}
	if d.affected += len(v.Affects); d.affected > MaxFindings {
		return limitExceeded(pointer, "the document has more than %d findings", MaxFindings)
	}
	if len(v.Affects) == 0 {
		d.ignore(pointer, "it affects no component")
		return nil
	}
	v.pointer = pointer
	d.vulnerabilities = append(d.vulnerabilities, v)
	return d.keep(pointer, v.textBytes())
}

func (v *vulnerability) textBytes() int {
	n := len(v.ID) + len(v.Description) + len(v.Recommendation) + len(v.Source.Name)
	for _, r := range v.References {
		n += len(r.ID)
	}
	for _, r := range v.Ratings {
		n += len(r.Source.Name) + len(r.Source.URL) + len(r.Vector) + len(r.Method)
	}
	for _, a := range v.Advisories {
		n += len(a.URL)
	}
	for _, a := range v.Affects {
		n += len(a.Ref)
		for _, version := range a.Versions {
			n += len(version.Version) + len(version.Range) + len(version.Status)
		}
	}
	for _, p := range v.Properties {
		n += len(p.Name) + len(p.Value)
	}
	return n
}

// cvssVersions maps the scoring methods of CycloneDX to versions of CVSS. It is the inverse of methods.
var cvssVersions = map[string]string{"CVSSv2": "2.0", "CVSSv3": "3.0", "CVSSv31": "3.1", "CVSSv4": "4.0"}

// cvssVersion returns the version of CVSS of a rating; empty if it is another kind of rating. The method of a newer version may be "other".
func (r *rating) cvssVersion() string {
	if prefix, _, found := strings.Cut(strings.TrimPrefix(r.Vector, "CVSS:"), "/"); found && strings.HasPrefix(r.Vector, "CVSS:") {
		return prefix
	}
	return cvssVersions[r.Method]
}

// The sources of ratings that stand for the probability of exploitation and for known exploitation, as Grype writes them.
const (
	epssURL           = "https://www.first.org/epss/"
	knownExploitedURL = "https://www.cisa.gov/known-exploited-vulnerabilities-catalog"
)

// findings returns a finding for each component that a vulnerability affects.
func (d *decoder) findings() []finding.Finding {
	findings := make([]finding.Finding, 0, d.affected)
	for i := range d.vulnerabilities {
		v := &d.vulnerabilities[i]
		shared := d.sharedOf(v)
		for n, affected := range v.Affects {
			p, found := d.resolve(affected.Ref)
			if !found {
				d.ignore(v.pointer+"/affects/"+strconv.Itoa(n), "no component has this reference")
				continue
			}
			f := shared
			f.Package, f.Paths = p.Package, p.paths
			for _, version := range affected.Versions {
				switch version.Status {
				case string(cdx.VulnerabilityStatusAffected), "":
					f.Package.Version = cmp.Or(f.Package.Version, version.Version)
				case string(cdx.VulnerabilityStatusNotAffected):
					if fixed := cmp.Or(version.Version, firstOf(version.Range)); fixed != "" {
						f.FixVersions = append(slices.Clip(f.FixVersions), fixed)
					}
				}
			}
			if f.FixVersions == nil {
				f.FixVersions = recommendedVersions(v.Recommendation, f.Package.Name)
			}
			if len(f.FixVersions) > 0 {
				f.FixState = finding.FixStateFixed
			}
			f.Advisories = []finding.Advisory{advisoryOf(v, f)}
			findings = append(findings, f)
		}
		*v = vulnerability{} // its memory is needed no longer
	}
	return findings
}

// firstOf returns the first version of a range without an end (https://www.packageurl.org/docs/vers), such as vers:deb/>=3.0.15-1~deb12u1; empty
// for any other range.
func firstOf(versions string) string {
	_, constraint, _ := strings.Cut(versions, "/")
	first, isOpen := strings.CutPrefix(constraint, ">=")
	if !isOpen || !strings.HasPrefix(versions, "vers:") || strings.Contains(first, "|") {
		return ""
	}
	if decoded, err := url.PathUnescape(first); err == nil {
		first = decoded
	}
	return first
}

// recommendedVersions returns the fixed versions of a package from a recommendation of Trivy, which writes them nowhere else:
// "Upgrade axios to version 1.8.2, 0.30.0".
func recommendedVersions(recommendation, name string) []string {
	versions, found := strings.CutPrefix(recommendation, "Upgrade "+name+" to version ")
	if !found || strings.ContainsAny(versions, "\n;") {
		return nil
	}
	return strings.Split(versions, ", ")
}

// resolve returns the package that a reference stands for: that of a component of this document, or the package URL itself.
func (d *decoder) resolve(ref string) (affectedPackage, bool) {
	if p, found := d.packages[ref]; found {
		return p, true
	}
	// A BOM-Link to this document, such as urn:cdx:3e671687-395b-41f5-a30f-a58921a69b79/1#openssl.
	if link, isLink := strings.CutPrefix(ref, "urn:cdx:"); isLink {
		document, inner, _ := strings.Cut(link, "#")
		uuid, _, _ := strings.Cut(document, "/")
		p, found := d.packages[inner]
		return p, found && d.document.SerialNumber == "urn:uuid:"+uuid
	}
	parsed, err := packageurl.FromString(ref)
	if err != nil {
		return affectedPackage{}, false
	}
	return packageOf(component{Group: parsed.Namespace, Name: parsed.Name, Version: parsed.Version, PURL: ref}), true
}

// sharedOf returns what all findings of a vulnerability share.
func (d *decoder) sharedOf(v *vulnerability) finding.Finding {
	f := finding.Finding{
		Severity: d.severityOf(v), Description: v.Description, FixState: finding.FixStateUnknown,
		KnownExploited: valueOf(v.Properties, property+"knownExploited") == "true",
	}
	aliases := []string{strings.TrimSpace(v.ID)}
	for _, r := range v.References {
		aliases = append(aliases, strings.TrimSpace(r.ID))
	}
	f.ID, f.Aliases = finding.Canonical(v.ID, aliases[1:]), aliases
	if epss, err := strconv.ParseFloat(valueOf(v.Properties, property+"epss"), 64); err == nil && epss >= 0 && epss <= 1 {
		f.EPSS = epss
	}
	if states := valueOf(v.Properties, property+"fixState"); slices.Contains([]string{finding.FixStateNotFixed, finding.FixStateWontFix}, states) {
		f.FixState = states
	}
	for _, r := range v.Ratings {
		f.KnownExploited = f.KnownExploited || r.Source.URL == knownExploitedURL
		switch {
		case r.Score == nil:
		case r.Source.URL == epssURL:
			if *r.Score >= 0 && *r.Score <= 1 {
				f.EPSS = *r.Score
			}
		// This program writes a score without a vector with the method "other".
		case r.cvssVersion() != "", d.engine != "" && r.Source.Name == d.engine:
			f.CVSS = max(f.CVSS, *r.Score)
		}
	}
	for _, a := range v.Advisories {
		if f.URL = finding.WebAddress(a.URL); f.URL != "" {
			break
		}
	}
	return f
}

// severityOf returns the severity of the document's own engine if this program wrote it, else that of the source of the vulnerability, else the
// worst one.
func (d *decoder) severityOf(v *vulnerability) finding.Severity {
	worst := finding.Unknown
	for _, preferred := range []string{d.engine, v.Source.Name} {
		for _, r := range v.Ratings {
			if preferred != "" && strings.EqualFold(r.Source.Name, preferred) && r.Severity != "" {
				return severityNames[r.Severity]
			}
		}
	}
	for _, r := range v.Ratings {
		worst = max(worst, severityNames[r.Severity])
	}
	return worst
}

// advisoryOf returns what the document states about a finding.
func advisoryOf(v *vulnerability, f finding.Finding) finding.Advisory {
	a := finding.Advisory{
		ID: strings.TrimSpace(v.ID), Source: v.Source.Name, Severity: f.Severity.String(), FixState: f.FixState, FixVersions: f.FixVersions,
		Analysis: v.Analysis.State,
	}
	for _, r := range v.Ratings {
		if version := r.cvssVersion(); version != "" && r.Score != nil {
			a.Ratings = append(a.Ratings, finding.Rating{Source: r.Source.Name, Version: version, Vector: r.Vector, Score: *r.Score})
		}
	}
	return a
}
