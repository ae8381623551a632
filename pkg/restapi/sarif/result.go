package sarif

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// maxNamed bounds the versions, and the files, that a message names.
const maxNamed = 5

// result returns the result for the findings of one vulnerability in the packages of one name, which announcements count as one, too. Its first
// location is the image, and the others are the files of the packages.
func (r Report) result(findings []Finding, ruleIndex int) result {
	worst := findings[0]
	made := result{
		RuleID: worst.ID, RuleIndex: ruleIndex, Level: levelOf(worst.Severity), Message: plain(messageOf(findings)),
		Suppressions: suppressionsOf(findings),
		Properties: resultProperties{
			Severity: worst.Severity.String(), CVSS: worst.CVSS, EPSS: worst.EPSS, KnownExploited: worst.KnownExploited, FixState: worst.FixState,
			FixVersions: worst.FixVersions, Aliases: worst.Aliases, FirstSeenTime: worst.FirstSeen, Source: worst.Source,
		},
	}
	identity := r.fingerprint(worst.Finding)
	// GitHub compares only the one that tools for source code compute from a line.
	made.PartialFingerprints = map[string]string{"scannerOperator/v1": identity, "primaryLocationLineHash": identity + ":1"}
	// GitHub takes the first location for a part of the identity, too. The path of a file can have the version of the package.
	made.Locations = []location{locationOf(r.place(), worst.Finding)}
	for _, f := range findings {
		if f.FirstSeen.Before(made.Properties.FirstSeenTime) {
			made.Properties.FirstSeenTime = f.FirstSeen
		}
		if file := fileOf(f.Finding); file != "" && len(made.Locations) < maxLocations {
			made.Locations = append(made.Locations, locationOf(file, f.Finding))
		}
	}
	made.Properties.FirstSeenTime = made.Properties.FirstSeenTime.UTC()
	return made
}

// fingerprint identifies a result, whatever the tag, the digest and the version of the package are: by the repository, the vulnerability and the
// name of the package, as announcements do.
func (r Report) fingerprint(f finding.Finding) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{r.repository(), f.ID, f.Package.Name}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// place returns the path of the image's repository, without the registry.
func (r Report) place() string {
	_, name, found := strings.Cut(r.repository(), "/")
	if !found {
		name = r.repository()
	}
	return relativeURI(name)
}

// fileOf returns the file of a package in the image; empty if the engine reports none.
func fileOf(f finding.Finding) string {
	if len(f.Paths) == 0 {
		return ""
	}
	return relativeURI(f.Paths[0])
}

// locationOf returns a location with the package URL.
func locationOf(place string, f finding.Finding) location {
	name := f.Package.PURL
	if name == "" {
		name = fmt.Sprintf("%s:%s@%s", f.Package.Type, f.Package.Name, f.Package.Version)
	}
	return location{
		PhysicalLocation: physicalLocation{artifactLocation{place}, firstCharacter},
		LogicalLocations: []logicalLocation{{Name: f.Package.Name, FullyQualifiedName: name, Kind: "package"}},
	}
}

// relativeURI returns a path as a URI that is relative to the root of the image. It has no colon, since GitHub takes what is before one for a
// scheme.
func relativeURI(file string) string {
	parts := strings.Split(strings.TrimPrefix(path.Clean("/"+file), "/"), "/")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(part), ":", "%3A")
	}
	return strings.Join(parts, "/")
}

// messageOf returns what is the matter and what to do.
func messageOf(findings []Finding) string {
	worst := findings[0]
	var versions, files []string
	for _, f := range findings {
		versions = append(versions, f.Package.Version)
		if len(f.Paths) > 0 {
			files = append(files, f.Paths[0])
		}
	}
	slices.Sort(versions)
	severity := worst.Severity.String()
	if worst.KnownExploited {
		severity += ", known exploited"
	}
	what := fmt.Sprintf("%s %s has %s (%s).", worst.Package.Name, someOf(slices.Compact(versions), ", "), worst.ID, severity)
	if len(files) > 0 {
		what += " It is in " + someOf(files, ", ") + "."
	}
	switch {
	case worst.Fixable():
		return what + " Update to " + someOf(worst.FixVersions, " or ") + "."
	case worst.FixState == finding.FixStateWontFix:
		return what + " The distribution will not fix it."
	}
	return what + " No fixed version is known."
}

// someOf joins the first texts of a list.
func someOf(all []string, separator string) string {
	if more := len(all) - maxNamed; more > 0 {
		return strings.Join(all[:maxNamed], separator) + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(all, separator)
}

// suppressionsOf returns the exceptions that suppress a result: those of all its findings. The result is not suppressed if one of them is not.
func suppressionsOf(findings []Finding) []suppression {
	suppressions := []suppression{}
	for _, f := range findings {
		if f.Exception == nil {
			return []suppression{}
		}
		made := suppression{Kind: "external", Status: "accepted", Justification: f.Exception.Reason, Properties: suppressionProperties{
			Exception: f.Exception.Resource(), Status: f.Exception.Status, Justification: f.Exception.Justification,
		}}
		if !f.Exception.Expires.IsZero() {
			made.Properties.ExpirationTime = f.Exception.Expires.UTC()
		}
		if !slices.Contains(suppressions, made) {
			suppressions = append(suppressions, made)
		}
	}
	return suppressions
}

// plain returns a message without links: "[text](target)" is one in the standard (section 3.11.6), and images choose much of the text.
func plain(text string) message { return message{strings.ReplaceAll(text, "](", "] (")} }
