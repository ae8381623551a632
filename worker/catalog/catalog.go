package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	stereoscopefile "github.com/anchore/stereoscope/pkg/file"
	"github.com/anchore/syft/syft"
	"github.com/anchore/syft/syft/cataloging"
	"github.com/anchore/syft/syft/file"
	"github.com/anchore/syft/syft/sbom"
	"github.com/anchore/syft/syft/source"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
	project "github.com/scanner-operator/scanner-operator/workerapi/version"

	// RPM databases are SQLite files. Syft reads them with whatever driver is called "sqlite", and skips
	// such databases without an error if there is none.
	_ "github.com/glebarez/sqlite"
)

// Limits bound what one image may cost. The zero value sets no bounds.
type Limits struct {
	// Scratch is the space in bytes that unpacked layers and archives may take in os.TempDir(); 0 for no bound.
	Scratch int64
}

// SBOM reads the image's layers and returns its SBOM with the settings of Grype's own image scan.
// It unpacks layers into os.TempDir(), and removes them before it returns. Errors are *failure.Error.
func (l Limits) SBOM(ctx context.Context, img *registry.Image, log *slog.Logger) (result *sbom.SBOM, err error) {
	// A separate generator: the library's package-wide one can only be cleaned for the whole process.
	temp := stereoscopefile.NewTempDirGenerator("scanner-catalog")
	defer func() { err = errors.Join(err, temp.Cleanup()) }()

	// All layers are pulled and unpacked first, since Syft's catalogers read files in any order.
	start := time.Now()
	src, err := l.open(ctx, img, temp)
	if err != nil {
		return nil, wrapReadError(img, err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	log.Info("layers read", "duration", time.Since(start).Round(time.Millisecond))

	// Nothing is read from the registry after this point, so later failures are not its fault.
	start = time.Now()
	if result, err = l.findPackages(ctx, src); err != nil {
		return nil, withReason(workerapi.ReasonCatalogFailed, fmt.Errorf("cataloging %s: %w", img.Reference, err))
	}
	log.Info("packages found", "packages", result.Artifacts.Packages.PackageCount(), "distro", Distro(result),
		"duration", time.Since(start).Round(time.Millisecond))
	return result, nil
}

// findPackages finds the packages with Syft. It returns an error if Syft has skipped content because of this machine.
func (l Limits) findPackages(ctx context.Context, src source.Source) (*sbom.SBOM, error) {
	ctx, stop := scratch{dir: os.TempDir(), limit: l.Scratch}.watch(ctx)
	defer stop()
	captured, stopCapture := captureSyftLog()
	defer stopCapture()
	result, err := syft.CreateSBOM(ctx, src, config())
	// Syft treats a cancelled context and a full disk as unreadable files, and continues without them.
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	return result, errors.Join(captured.machineError(), unreadFileError(result))
}

// wrapReadError adds context and a reason to an error of reading layers. An error without a reason is about the content of the
// layers, unless it is about this pod's disk or the context was cancelled.
func wrapReadError(img *registry.Image, err error) error {
	err = fmt.Errorf("reading the layers of %s: %w", img.Reference, err)
	var path *os.PathError
	if errors.As(err, &path) || errors.Is(err, context.Canceled) {
		return withReason(workerapi.ReasonCatalogFailed, err)
	}
	return withReason(workerapi.ReasonNotAnImage, err)
}

// withReason adds a reason to an error: ScratchFull for a full disk, otherwise the fallback. An error that already has
// a reason is returned unchanged.
func withReason(fallback string, err error) error {
	var known *failure.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return failure.New(workerapi.ReasonScratchFull, fmt.Errorf("%w; %s", err, adviceDisk))
	}
	return failure.New(fallback, err)
}

// config returns Grype's configuration of Syft, except for one list that matching does not read.
func config() *syft.CreateSBOMConfig {
	config := syft.DefaultCreateSBOMConfig().WithTool("scanner-grype", project.Version)
	// A package without a version cannot be matched. Grype drops it, too.
	config.Compliance.MissingVersion = cataloging.ComplianceActionDrop
	// Advisories of the Go vulnerability database name functions: a program that contains none of them is not affected.
	config.Packages.Golang = config.Packages.Golang.WithCaptureSymbols(cataloging.SymbolScopeAll)
	// The list of files that packages own, with digests, is half of the SBOM of a distribution.
	config.Files = config.Files.WithSelection(file.NoFilesSelection)
	return config
}

// Distro returns the Linux distribution of an SBOM, such as "debian 12"; empty if there is none.
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
