package match

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anchore/grype/grype/distro"
	"github.com/anchore/grype/grype/pkg"
	syftpkg "github.com/anchore/syft/syft/pkg"

	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/workerapi"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// distroPackages are the types of packages that Grype matches with the data of their distribution.
var distroPackages = []syftpkg.Type{syftpkg.AlpmPkg, syftpkg.ApkPkg, syftpkg.DebPkg, syftpkg.PortagePkg, syftpkg.RpmPkg}

// maxDistroName bounds the name of a distribution, in bytes. Names come from images.
const maxDistroName = 24

// maxDistros bounds the distributions of one image that the database is asked about, since each costs several queries. An image has one. In an SBOM
// of another tool, each package may name one of its own.
const maxDistros = 64

// notCovered returns the packages of distributions for which the database has no data, or none since their end of life, as workerapi.Report has
// them. now decides what has ended.
func notCovered(packages []pkg.Package, known *database.Lookups, now time.Time) ([]string, error) {
	seen := map[string]bool{}
	var gaps []string
	var last pkg.Package
	for _, p := range packages {
		if len(gaps) == workerapi.MaxNotCovered {
			break
		}
		if !slices.Contains(distroPackages, p.Type) || p.Type == last.Type && p.Distro == last.Distro {
			continue
		}
		last = p
		// In an SBOM of another tool, each package has a distribution of its own, which is mostly the same one.
		group := string(p.Type)
		if d := p.Distro; d != nil {
			group = fmt.Sprintf("%s %q %q %q %q %v", p.Type, d.Type, d.Version, d.Codename, d.Channels, d.SupportEnd)
		}
		if seen[group] {
			continue
		}
		if len(seen) == maxDistros {
			gaps = append(gaps, fmt.Sprintf(workerapi.OSPackages+" of more than %d distributions", maxDistros))
			break
		}
		seen[group] = true
		gap, err := gapOf(p.Type, p.Distro, known, now)
		if err != nil {
			return nil, err
		}
		if gap != "" && !slices.Contains(gaps, gap) {
			gaps = append(gaps, gap)
		}
	}
	slices.Sort(gaps)
	return gaps, nil
}

// gapOf returns what the database does not cover of a distribution's packages; empty if they are covered.
func gapOf(packages syftpkg.Type, d *distro.Distro, known *database.Lookups, now time.Time) (string, error) {
	gap := workerapi.OSPackages + " (" + string(packages) + ")"
	if d == nil {
		return gap, nil
	}
	name := text.Truncate(strings.TrimSpace(cmp.Or(d.ID(), d.Name())+" "+d.VersionString()), maxDistroName)
	switch hasData, err := known.HasDistro(d); {
	case err != nil:
		return "", err
	case !hasData:
		return gap + " of " + name, nil
	}
	end, err := known.SecurityEnd(d)
	if err != nil || end == nil || !now.After(*end) {
		return "", err
	}
	return name + workerapi.NoUpdatesSince + end.Format(time.DateOnly), nil
}
