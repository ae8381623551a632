package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// databaseURL is the URL of the demo's vulnerability database for the operator.
const databaseURL = "http://vulnerability-database." + InfraNamespace + ".svc"

// Database is a published vulnerability database.
type Database struct {
	// Built is the build time in the database.
	Built time.Time
	// Cache is the directory of the database in the form that grype expects in GRYPE_DB_CACHE_DIR.
	Cache string
}

func (e *Environment) publishFirst(ctx context.Context) (string, error) {
	if err := e.MakeNamespace(ctx, InfraNamespace); err != nil {
		return "", err
	}
	if err := e.PublishDatabase(ctx); err != nil {
		return "", err
	}
	return "built " + e.Database.Built.Format(time.RFC3339), nil
}

// PublishDatabase builds a database from the advisories of the fixtures and of further directories there, and serves it instead of the
// earlier one.
func (e *Environment) PublishDatabase(ctx context.Context, further ...string) error {
	advisories := e.fixtures(append([]string{"advisories"}, further...)...)
	// The build time in seconds identifies a database, so it must differ.
	built := time.Now().UTC().Truncate(time.Second)
	if !built.After(e.Database.Built) {
		built = e.Database.Built.Add(time.Second)
	}
	out := e.bin("fixtures", "databases", built.Format("20060102-150405"))
	command := exec.CommandContext(ctx, e.bin("vulndb"), "build", "--advisories", strings.Join(advisories, ","),
		"--out", out, "--built", built.Format(time.RFC3339))
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building the vulnerability database: %w\n%s", err, text)
	}
	image, err := e.pushFiles(ctx, InfraNamespace+"/vulnerability-database", filepath.Join(out, "dist"))
	if err != nil {
		return err
	}
	if err := e.Apply(ctx, "database.yaml", map[string]string{"Namespace": InfraNamespace, "Image": image}); err != nil {
		return err
	}
	e.Database = Database{Built: built, Cache: filepath.Join(out, "cache")}
	return e.WaitForRollout(ctx, InfraNamespace, "deployment/vulnerability-database")
}

// fixtures returns the paths of directories of the project's fixtures.
func (e *Environment) fixtures(names ...string) []string {
	dirs := make([]string, 0, len(names))
	for _, name := range names {
		dirs = append(dirs, filepath.Join(e.Root, "test", "fixtures", name))
	}
	return dirs
}

// removeDatabases removes the local copies of the databases.
func (e *Environment) removeDatabases() error { return os.RemoveAll(e.bin("fixtures", "databases")) }
