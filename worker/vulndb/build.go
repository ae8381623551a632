package vulndb

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

// Result says where a database is.
type Result struct {
	// Cache is what GRYPE_DB_CACHE_DIR points to: the database is in 6/ below it.
	Cache string
	// Dist is what is served for GRYPE_DB_UPDATE_URL: v6/latest.json and the archive are below it.
	Dist string
	// Records counts what was read, by provider.
	Records map[string]int
}

// Build writes a database to out/cache and out/dist, whose previous content is replaced. built is the
// build time that the database tells; workers take only a later one for an update.
func Build(ctx context.Context, a *Advisories, out string, built time.Time) (*Result, error) {
	return BuildPadded(ctx, a, out, built, 0)
}

// BuildPadded is Build of a database whose file has at least the given number of bytes, as large as the published
// ones: it also holds copies of the advisories under names that no package and no vulnerability has.
func BuildPadded(ctx context.Context, a *Advisories, out string, built time.Time, bytes int64) (*Result, error) {
	result := &Result{Cache: filepath.Join(out, "cache"), Dist: filepath.Join(out, "dist"), Records: map[string]int{}}
	cache := filepath.Join(result.Cache, strconv.Itoa(v6.ModelVersion))
	dist := filepath.Join(result.Dist, "v"+strconv.Itoa(v6.ModelVersion))
	// Grype's builder adds to what it finds.
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
	// Before the indexes are there: an archive has none, they are created where it is installed.
	if err := archive(cache, dist, built.UTC()); err != nil {
		return nil, fmt.Errorf("writing the archive: %w", err)
	}
	// What installing an archive does: create the indexes, note the checksum. The archive is without either.
	if err := v6.Hydrater()(cache); err != nil {
		return nil, fmt.Errorf("indexing: %w", err)
	}
	if _, err := v6.WriteImportMetadata(afero.NewOsFs(), cache, "vulndb"); err != nil {
		return nil, fmt.Errorf("noting the checksum: %w", err)
	}
	return result, nil
}

// compile turns the advisories into a database without indexes in dir.
func compile(ctx context.Context, a *Advisories, dir string, built time.Time, counts map[string]int) error {
	temp, err := os.MkdirTemp("", "vulndb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	var states provider.States
	for _, w := range a.workspaces(built) {
		counts[w.provider] = len(w.records)
		// A provider without records would still appear in the database, as one that knows of nothing.
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

// setBuildTime overwrites the build time: Grype's builder ignores the one in its configuration and writes
// the present. Plain SQL, since Grype's own writer would create all indexes.
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
