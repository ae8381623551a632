package match_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/match"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

func reason(err error) string {
	var known *failure.Error
	if errors.As(err, &known) {
		return known.Reason
	}
	return ""
}

// debian returns the match input of the Debian image.
func debian(t *testing.T) *input.File {
	t.Helper()
	return input.Open(write(t, input.Compact(contents(t, registrytest.Image(t, fixture.Debian())))))
}

// TestDatabaseErrorsAreFailures checks errors of the database that Grype only logs or drops before it reports a clean image.
func TestDatabaseErrorsAreFailures(t *testing.T) {
	sbom := debian(t)
	for what, change := range map[string]string{
		"the database is closed":                     "",
		"advisories cannot be read":                  "DROP TABLE affected_package_handles",
		"contents cannot be read":                    "DROP TABLE blobs",
		"contents are nonsense":                      "UPDATE blobs SET value = 'nonsense'",
		"probabilities cannot be read":               "DROP TABLE epss_handles",
		"known exploited vulnerabilities are locked": "ALTER TABLE known_exploited_vulnerability_handles RENAME TO hidden",
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			version := install(t, dir)
			if change != "" {
				execute(t, dir, change)
			}
			db := open(t, version)
			if change == "" {
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
			report, err := match.SBOM(t.Context(), db, sbom)
			if reason(err) != workerapi.ReasonDatabaseUnreadable || report != nil {
				t.Errorf("got %v and a report %v, want a failure with %s and no report", err, report != nil, workerapi.ReasonDatabaseUnreadable)
			}
		})
	}
}

// TestDatabaseWithUnreadableArchitecturesIsNotOpened checks an error of what Grype reads while it opens a database: it affects findings,
// too.
func TestDatabaseWithUnreadableArchitecturesIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	version := install(t, dir)
	execute(t, dir, `DROP TABLE architecture_aliases;
		CREATE TABLE architecture_aliases (alias TEXT);
		INSERT INTO architecture_aliases (alias) VALUES ('-9223372036854775808');
		ALTER TABLE architecture_aliases ADD COLUMN canonical TEXT GENERATED ALWAYS AS (abs(CAST(alias AS INTEGER))) VIRTUAL`)
	if db, err := database.Open(version); err == nil {
		db.Close()
		t.Error("the database was opened, want an error")
	}
}

// execute changes the installed database without the store.
func execute(t *testing.T, dir, statement string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "6", "vulnerability.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("databases %q, %v", files, err)
	}
	connection, err := sql.Open("sqlite", files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

// TestDatabaseWithoutProbabilities checks that it is no failure if a database has no exploit probabilities.
func TestDatabaseWithoutProbabilities(t *testing.T) {
	dir := t.TempDir()
	version := install(t, dir)
	execute(t, dir, "DELETE FROM epss_handles; DELETE FROM epss_metadata")
	report, err := match.SBOM(t.Context(), open(t, version), debian(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) < 40 || report.Findings[0].EPSS != 0 {
		t.Errorf("%d findings, the first with EPSS %v; want at least 40 without", len(report.Findings), report.Findings[0].EPSS)
	}
}

// TestFailureIsOfItsOwnMatch checks that a failed match does not make the next one fail.
func TestFailureIsOfItsOwnMatch(t *testing.T) {
	sbom, db := debian(t), store(t)
	if _, err := match.SBOM(t.Context(), db, input.Open(filepath.Join(t.TempDir(), "missing"))); reason(err) != workerapi.ReasonMatchFailed {
		t.Errorf("a missing SBOM: got %v, want %s", err, workerapi.ReasonMatchFailed)
	}
	if _, err := match.SBOM(t.Context(), db, sbom); err != nil {
		t.Errorf("the next match failed: %v", err)
	}
}

func TestPanicsAreFailures(t *testing.T) {
	_, err := match.SBOM(t.Context(), &database.DB{}, debian(t))
	if reason(err) != workerapi.ReasonMatchFailed {
		t.Errorf("got %v, want %s", err, workerapi.ReasonMatchFailed)
	}
}

// TestStoppedMatchHasNoReport checks that a cancelled match returns no report, since its findings are incomplete.
func TestStoppedMatchHasNoReport(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if report, err := match.SBOM(ctx, store(t), debian(t)); err == nil || report != nil {
		t.Errorf("got %v and a report %v, want an error and none", err, report != nil)
	}
}

// TestManyMatchesAtTheSameTime checks that one database serves many concurrent matches, including the first lookups. Run it with -race.
func TestManyMatchesAtTheSameTime(t *testing.T) {
	version, files := install(t, t.TempDir()), []*input.File{debian(t)}
	alone, db := open(t, version), open(t, version)
	for _, image := range []registrytest.Files{fixture.Alpine(), fixture.Rocky(t)} {
		files = append(files, input.Open(write(t, input.Compact(contents(t, registrytest.Image(t, image))))))
	}
	want := make([]*workerapi.Report, len(files))
	for i, file := range files {
		var err error
		if want[i], err = match.SBOM(t.Context(), alone, file); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for range 4 {
		for i, file := range files {
			group.Go(func() {
				got, err := match.SBOM(t.Context(), db, file)
				if err != nil {
					t.Error(err)
				} else if diff := cmp.Diff(want[i], got); diff != "" {
					t.Errorf("report %d differs from the one made alone (-alone +together):\n%s", i, diff)
				}
			})
		}
	}
	group.Wait()
}

// TestFindingsAreComplete checks that a finding has values for all fields of workerapi.
func TestFindingsAreComplete(t *testing.T) {
	report, err := match.SBOM(t.Context(), store(t), debian(t))
	if err != nil {
		t.Fatal(err)
	}
	var got workerapi.Finding
	for _, f := range report.Findings {
		if f.ID == "CVE-2023-4911" && f.Package.Name == "libc6" {
			got = f
		}
	}
	layer := ""
	if len(got.Locations) > 0 {
		layer = got.Locations[0].Layer
	}
	want := workerapi.Finding{
		ID: "CVE-2023-4911", Namespace: "debian:distro:debian:12", Severity: "High",
		Description: "The dynamic loader overflows a buffer when it reads GLIBC_TUNABLES (Looney Tunables).",
		URL:         "https://security-tracker.debian.org/tracker/CVE-2023-4911",
		FixState:    "fixed", FixVersions: []string{"2.36-9+deb12u3"}, SuggestedFix: "2.36-9+deb12u3",
		FixAvailable: got.FixAvailable,
		CVSS: []workerapi.CVSS{{Source: "nvd@nist.gov", Version: "3.1", Score: 7.8,
			Vector: "CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H"}},
		EPSS: 0.712, EPSSPercentile: 0.9862, KnownExploited: true, Risk: got.Risk,
		MatchTypes: []string{"exact-indirect-match"},
		Package: workerapi.Package{Name: "libc6", Version: "2.36-9", Type: "deb", Upstreams: []string{"glibc"},
			PURL: "pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=debian-12&upstream=glibc"},
		// Without files that only belong to the package, such as its copyright.
		Locations: []workerapi.Location{{Path: "/var/lib/dpkg/status", Layer: layer}, {Path: "/var/lib/dpkg/info/libc6.list", Layer: layer}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("finding (-want +got):\n%s", diff)
	}
	if got.FixAvailable.Format("2006-01-02") != "2023-10-03" || got.Risk < 50 || layer == "" {
		t.Errorf("fix available %s, risk %v, layer %q; want 2023-10-03, at least 50, some layer", got.FixAvailable, got.Risk, layer)
	}
}
