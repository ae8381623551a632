// Package parity compares the findings in the operator's store with what the grype command prints for the same image and the same database.
package parity

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Version is the version of Grype that the worker links. The command must have the same version.
const Version = "0.121.2"

// Match is one match at one path, with all compared properties.
type Match struct{ Vulnerability, Package, Version, Type, Path, FixState, FixVersions, Severity string }

// Expand undoes the aggregation of the store: of advisories of one vulnerability, and of paths of one package. The result is sorted and never nil.
func Expand(findings []finding.Finding) []Match {
	matches := []Match{}
	for _, f := range findings {
		for _, a := range f.Advisories {
			for _, path := range f.Paths {
				matches = append(matches, Match{
					Vulnerability: a.ID, Package: f.Package.Name, Version: f.Package.Version, Type: f.Package.Type, Path: path,
					FixState: a.FixState, FixVersions: versions(a.FixVersions), Severity: a.Severity,
				})
			}
		}
	}
	return sorted(matches)
}

func sorted(matches []Match) []Match {
	slices.SortFunc(matches, func(a, b Match) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return slices.Compact(matches)
}

func versions(all []string) string {
	all = slices.Clone(all)
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Grype is the grype command with a database.
type Grype struct {
	file string
	env  []string
}

// NewGrype returns the command that GRYPE names, with the database in cache. Another version than Version is an error. home is an empty directory:
// the configuration and the cache of the machine's user are not used.
func NewGrype(cache, home string) (Grype, error) {
	g := Grype{file: os.Getenv("GRYPE"), env: append(os.Environ(),
		"GRYPE_DB_CACHE_DIR="+cache, "GRYPE_DB_AUTO_UPDATE=false", "GRYPE_DB_VALIDATE_AGE=false",
		"GRYPE_CHECK_FOR_APP_UPDATE=false", "GRYPE_REGISTRY_INSECURE_USE_HTTP=true",
		"HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home,
	)}
	if g.file == "" {
		return Grype{}, errors.New("GRYPE does not name the grype command; run this by make, which builds it")
	}
	info, err := buildinfo.ReadFile(g.file)
	if err != nil {
		return Grype{}, err
	}
	for _, module := range append(info.Deps, &info.Main) {
		if module.Path == "github.com/anchore/grype" && module.Version == "v"+Version {
			return g, nil
		}
	}
	return Grype{}, fmt.Errorf("%s is not grype %s", g.file, Version)
}

// Matches returns the matches that the command prints for an image in a registry, as Expand does. platform is os/architecture.
func (g Grype) Matches(ctx context.Context, reference, platform string) ([]Match, error) {
	command := exec.CommandContext(ctx, g.file, "registry:"+reference, "--platform", platform, "--output", "json")
	command.Env = g.env
	var out, stderr bytes.Buffer
	command.Stdout, command.Stderr = &out, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("grype %s: %w\n%s", reference, err, stderr.String())
	}
	return read(out.Bytes())
}

// read parses the document that grype prints (https://github.com/anchore/grype, grype/presenter/models/document.go).
func read(raw []byte) ([]Match, error) {
	var document struct {
		Matches []struct {
			Vulnerability struct {
				ID, Severity string
				Fix          struct {
					Versions []string
					State    string
				}
			}
			Artifact struct {
				Name, Version, Type string
				Locations           []struct{ Path string }
			}
		}
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, err
	}
	matches := []Match{}
	for _, m := range document.Matches {
		for _, location := range m.Artifact.Locations {
			matches = append(matches, Match{
				Vulnerability: m.Vulnerability.ID, Package: m.Artifact.Name, Version: m.Artifact.Version, Type: m.Artifact.Type, Path: location.Path,
				FixState: m.Vulnerability.Fix.State, FixVersions: versions(m.Vulnerability.Fix.Versions), Severity: m.Vulnerability.Severity,
			})
		}
	}
	return sorted(matches), nil
}
