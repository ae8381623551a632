package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	stereoscopefile "github.com/anchore/stereoscope/pkg/file"
	"github.com/anchore/stereoscope/pkg/image"
	"github.com/anchore/syft/syft"
	"github.com/anchore/syft/syft/cataloging"
	"github.com/anchore/syft/syft/file"
	"github.com/anchore/syft/syft/sbom"
	"github.com/anchore/syft/syft/source"
	"github.com/anchore/syft/syft/source/stereoscopesource"

	"github.com/scanner-operator/scanner-operator/worker/failure"
	"github.com/scanner-operator/scanner-operator/worker/registry"
	"github.com/scanner-operator/scanner-operator/worker/version"
	"github.com/scanner-operator/scanner-operator/workerapi"

	// RPM databases are SQLite files. Syft reads them with whatever driver is called "sqlite", and skips
	// such databases without an error if there is none.
	_ "github.com/glebarez/sqlite"
)

// SBOM reads the image's layers and returns its SBOM with the settings of Grype's own image scan.
// Unpacked layers are in os.TempDir() meanwhile. Errors are *failure.Error.
func SBOM(ctx context.Context, img *registry.Image, log *slog.Logger) (result *sbom.SBOM, err error) {
	// A generator of our own: the library's package-wide one can only be cleaned for the whole process.
	temp := stereoscopefile.NewTempDirGenerator("scanner-catalog")
	defer func() { err = errors.Join(err, temp.Cleanup()) }()

	// Pulling and unpacking come first, as one step: Syft's cataloguers want to look at all files in any order.
	start := time.Now()
	src, err := open(img, temp)
	if err != nil {
		return nil, reading(img, err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	log.Info("layers read", "duration", time.Since(start).Round(time.Millisecond))

	// From here on nothing is read from the registry any more: what fails now is not its fault.
	start = time.Now()
	result, err = syft.CreateSBOM(ctx, src, config())
	if err != nil {
		return nil, failure.New(workerapi.ReasonCatalogFailed, fmt.Errorf("cataloguing %s: %w", img.Reference, err))
	}
	log.Info("packages found", "packages", result.Artifacts.Packages.PackageCount(), "distro", Distro(result),
		"duration", time.Since(start).Round(time.Millisecond))
	return result, nil
}

// reading completes an error of reading layers: without a reason of its own it is about what they hold,
// unless it is about this pod's disk.
func reading(img *registry.Image, err error) error {
	err = fmt.Errorf("reading the layers of %s: %w", img.Reference, err)
	var known *failure.Error
	var path *os.PathError
	switch {
	case errors.As(err, &known):
		// The registry package has said already whether the registry or the content is to blame.
		return err
	case errors.As(err, &path), errors.Is(err, context.Canceled):
		return failure.New(workerapi.ReasonCatalogFailed, err)
	}
	return failure.New(workerapi.ReasonNotAnImage, err)
}

// open pulls and indexes all layers, as Syft's "oci-registry" source does after its own pull.
func open(img *registry.Image, temp *stereoscopefile.TempDirGenerator) (source.Source, error) {
	dir, err := temp.NewDirectory("layers")
	if err != nil {
		return nil, err
	}
	manifest, err := img.Content.RawManifest()
	if err != nil {
		return nil, err
	}
	// The manifest makes the source know the digest of what it holds. Platform and tags are left to the
	// image's own configuration: an odd one must not keep its packages from being found.
	content := image.New(img.Content, temp, dir,
		image.WithRepoDigests(fmt.Sprintf("%s@%s", img.Reference.Context().Name(), img.Root)),
		image.WithManifest(manifest))
	if err := content.Read(); err != nil {
		return nil, errors.Join(err, content.Cleanup())
	}
	return stereoscopesource.New(content, stereoscopesource.ImageConfig{Reference: img.Reference.String()}), nil
}

// config is Grype's configuration of Syft, without one list that matching does not read.
func config() *syft.CreateSBOMConfig {
	config := syft.DefaultCreateSBOMConfig().WithTool("scanner-grype", version.Worker)
	// A package without a version cannot be matched; Grype drops it, too.
	config.Compliance.MissingVersion = cataloging.ComplianceActionDrop
	// The list of files that packages own, with digests, is half of the SBOM of a distribution.
	config.Files = config.Files.WithSelection(file.NoFilesSelection)
	return config
}

// Distro names the Linux distribution of an SBOM, such as "debian 12"; empty if there is none.
func Distro(s *sbom.SBOM) string {
	release := s.Artifacts.LinuxDistribution
	if release == nil || release.ID == "" {
		return ""
	}
	if release.VersionID == "" {
		return release.ID
	}
	return release.ID + " " + release.VersionID
}
