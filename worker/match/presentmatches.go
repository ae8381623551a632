package match

import (
	"fmt"
	"slices"

	"github.com/anchore/clio"
	grypematch "github.com/anchore/grype/grype/match"
	"github.com/anchore/grype/grype/pkg"
	"github.com/anchore/grype/grype/presenter/models"
	"github.com/anchore/grype/grype/vulnerability"
)

// presentChunkSize is the number of matches that Grype presents at once. For each match, Grype goes through all packages that it
// receives, which would take hours for an image with many packages and matches. It therefore receives only those of a few matches.
const presentChunkSize = 500

// presentMatches returns sorted matches in the form of Grype's own report, with risk, suggested fixes and aliases. They are sorted
// by package, in the same order as in one report of all matches.
func presentMatches(packages []pkg.Package, about pkg.Context, matches []grypematch.Match, provider vulnerability.Provider) ([]models.Match, error) {
	byID := make(map[pkg.ID]pkg.Package, len(packages))
	for _, p := range packages {
		byID[p.ID] = p
	}
	all := make([]models.Match, 0, len(matches))
	for some := range slices.Chunk(matches, presentChunkSize) {
		var theirs []pkg.Package
		presented := map[pkg.ID]bool{}
		for _, m := range some {
			p, known := byID[m.Package.ID]
			if !known {
				return nil, fmt.Errorf("a match is about package %s %s, which the SBOM does not have", m.Package.Name, m.Package.Version)
			}
			if !presented[p.ID] {
				presented[p.ID] = true
				theirs = append(theirs, p)
			}
		}
		document, err := models.NewDocument(clio.Identification{Name: "scanner-grype"}, theirs, about, grypematch.NewMatches(some...), nil,
			provider, nil, nil, models.SortByPackage, false, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, document.Matches...)
	}
	if len(matches) > presentChunkSize {
		models.SortMatches(all, models.SortByPackage)
	}
	return all, nil
}
