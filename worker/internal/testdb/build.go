package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/anchore/grype/grype/db"
	"github.com/anchore/grype/grype/db/provider"
	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/spf13/afero"
)

// Result is the location of a database.
type Result struct {
	// Cache is the value for GRYPE_DB_CACHE_DIR: the database is in 6/ below it.
	Cache string
	// Dist is the directory to serve at GRYPE_DB_UPDATE_URL: v6/latest.json and the archive are below it.
	Dist string
	// Records is the number of records of each provider.
	Records map[string]int
}

// Build writes a database to out/cache and out/dist, and replaces their content. built is the
// build time in the database; workers install only a later one as an update.
func Build(ctx context.Context, a *Advisories, out string, built time.Time) (*Result, error) {
	return BuildPadded(ctx, a, out, built, 0)
}

// BuildPadded is Build with a minimum size of the database file in bytes, for files as large as published
// ones. It adds copies of the advisories under names that no package and no vulnerability has.
func BuildPadded(ctx context.Context, a *Advisories, out string, built time.Time, bytes int64) (*Result, error) {
	result := &Result{Cache: filepath.Join(out, "cache"), Dist: filepath.Join(out, "dist"), Records: map[string]int{}}
	cache := filepath.Join(result.Cache, strconv.Itoa(v6.ModelVersion))
	dist := filepath.Join(result.Dist, "v"+strconv.Itoa(v6.ModelVersion))
	// Grype's builder adds to existing files.
	for _, dir := range []string{cache, dist} {
		if err := errors.Join(os.RemoveAll(filepath.Dir(dir)), os.MkdirAll(dir, 0o755)); err != nil {
			return nil, err
		}
	}
	if err := compile(ctx, a, cache, built.UTC(), result.Records); err != nil {
		return nil, err
	}
	if err := pad(ctx, filepath.Join(cache, v6.VulnerabilityDBFileName), bytes); err != nil {
		return nil, fmt.Errorf("padding: %w", err)
	}
	// The archive is written before the indexes exist, since an archive has none. They are created where it is installed.
	if err := archive(cache, dist, built.UTC()); err != nil {
		return nil, fmt.Errorf("writing the archive: %w", err)
	}
	// The cache gets what an installation adds: the indexes and the checksum. The archive has neither.
	if err := v6.Hydrater()(cache); err != nil {
		return nil, fmt.Errorf("indexing: %w", err)
	}
	if _, err := v6.WriteImportMetadata(afero.NewOsFs(), cache, "vulndb"); err != nil {
		return nil, fmt.Errorf("noting the checksum: %w", err)
	}
	return result, nil
}

// compile writes a database without indexes to dir.
func compile(ctx context.Context, a *Advisories, dir string, built time.Time, counts map[string]int) error {
	temp, err := os.MkdirTemp("", "vulndb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	var states provider.States
	for _, w := range a.workspaces(built) {
		counts[w.provider] = len(w.records)
		// A provider without records would appear in the database as one without vulnerabilities.
		if len(w.records) == 0 {
			continue
		}
		state, err := w.write(temp, built)
		if err != nil {
			return fmt.Errorf("%s: %w", w.provider, err)
		}
		states = append(states, *state)
	}
	if err := db.Build(db.BuildConfig{
		SchemaVersion: v6.ModelVersion, Directory: dir, States: states,
		IncludeCPEParts: []string{"a"}, InferNVDFixVersions: true,
	}); err != nil {
		return fmt.Errorf("building: %w", err)
	}
	return setBuildTime(ctx, filepath.Join(dir, v6.VulnerabilityDBFileName), built)
}

// setBuildTime overwrites the build time, since Grype's builder ignores the one in its configuration and writes
// the current time. It uses plain SQL, since Grype's own writer would create all indexes.
func setBuildTime(ctx context.Context, file string, built time.Time) (err error) {
	connection, err := sql.Open("sqlite", file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	if _, err := connection.ExecContext(ctx, "UPDATE db_metadata SET build_timestamp = ?", built); err != nil {
		return fmt.Errorf("setting the build time: %w", err)
	}
	return nil
}
