package match

import (
	"context"

	"github.com/anchore/grype/grype/pkg"

	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// SBOMWithGrypeReader matches an SBOM after reading it with Grype's own reader.
func SBOMWithGrypeReader(ctx context.Context, db *database.DB, path string) (*workerapi.Report, error) {
	packages, about, _, err := pkg.Provide("sbom:"+path, providerConfig())
	if err != nil {
		return nil, err
	}
	return matchPackages(ctx, db, packages, about)
}
