package testdb

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// versionFormats maps the supported distributions, by their ID in /etc/os-release, to the
// format of their versions.
var versionFormats = map[string]string{
	"debian": "dpkg", "ubuntu": "dpkg",
	"alpine": "apk", "wolfi": "apk", "chainguard": "apk",
	"rhel": "rpm", "fedora": "rpm", "amzn": "rpm",
}

// knownDistros returns the distributions that a file may be named after.
func knownDistros() []string { return slices.Sorted(maps.Keys(versionFormats)) }

// namespaces returns the namespaces in order, so that the same files always give the same database.
func (a *Advisories) namespaces() []string { return slices.Sorted(maps.Keys(a.Distros)) }

// distroWorkspaces returns one provider for each distribution, with all its releases.
func (a *Advisories) distroWorkspaces() []workspace {
	byDistro := map[string][]record{}
	for _, namespace := range a.namespaces() {
		distro, _, _ := strings.Cut(namespace, ":")
		byDistro[distro] = append(byDistro[distro], distroRecords(namespace, a.Distros[namespace])...)
	}
	var all []workspace
	for _, distro := range slices.Sorted(maps.Keys(byDistro)) {
		all = append(all, workspace{provider: distro, schema: "os", records: byDistro[distro]})
	}
	return all
}

// distroRecords returns one record for each vulnerability, with all affected packages.
func distroRecords(namespace string, advisories []DistroAdvisory) []record {
	byID := map[string][]DistroAdvisory{}
	var order []string
	for _, d := range advisories {
		if byID[d.ID] == nil {
			order = append(order, d.ID)
		}
		byID[d.ID] = append(byID[d.ID], d)
	}
	var records []record
	for _, id := range order {
		var fixedIn []map[string]any
		for _, d := range byID[id] {
			fixedIn = append(fixedIn, d.fixedIn(namespace))
		}
		// Severity and description belong to the vulnerability. The first advisory about it sets them.
		first := byID[id][0]
		records = append(records, record{id: namespace + "/" + id, item: map[string]any{
			"Vulnerability": map[string]any{
				"Name": id, "NamespaceName": namespace, "Severity": first.severity(), "Description": first.Description,
				"Link": advisoryLink(namespace, id), "CVSS": []any{}, "FixedIn": fixedIn, "Metadata": map[string]any{},
			},
		}})
	}
	return records
}

// severity returns the severity for a record, which must not be empty: an empty one would be taken for a mistake.
func (d DistroAdvisory) severity() string {
	if d.Severity == "" {
		return "Unknown"
	}
	return d.Severity
}

// fixedIn returns the affected versions of a package: all before the fix.
func (d DistroAdvisory) fixedIn(namespace string) map[string]any {
	distro, _, _ := strings.Cut(namespace, ":")
	version := d.Fixed
	if version == "" {
		version = "None" // Grype's word for "no fix": every version is affected.
	}
	entry := map[string]any{
		"Name": d.Package, "NamespaceName": namespace, "Version": version, "VersionFormat": versionFormats[distro],
		"VendorAdvisory": map[string]any{"AdvisorySummary": []any{}, "NoAdvisory": d.WontFix},
	}
	if d.FixedOn != "" {
		entry["Available"] = map[string]any{"Date": d.FixedOn, "Kind": "advisory"}
	}
	return entry
}

// advisoryLink returns the URL of a distribution's page about a vulnerability.
func advisoryLink(namespace, id string) string {
	switch distro, _, _ := strings.Cut(namespace, ":"); distro {
	case "debian":
		return "https://security-tracker.debian.org/tracker/" + id
	case "ubuntu":
		return "https://ubuntu.com/security/" + id
	case "rhel":
		return "https://access.redhat.com/security/cve/" + id
	case "alpine":
		return "https://security.alpinelinux.org/vuln/" + id
	}
	return fmt.Sprintf("https://www.cve.org/CVERecord?id=%s", id)
}
