package clairfeed_test

import (
	"archive/zip"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/test/clairfeed"
)

var (
	now       = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	first     = filepath.Join("..", "fixtures", "advisories")
	added     = filepath.Join("..", "fixtures", "advisories-next")
	corrected = filepath.Join("..", "fixtures", "advisories-fix")
	longAgo   = now.Add(-time.Hour)
	status    = []string{"openssl", "CVE-2099-10001", "releases", "bookworm", "status"}
	tracked   = []string{"openssl", "CVE-2099-10001", "releases", "bookworm", "fixed_version"}
	unfixed   = []string{"openssl", "CVE-2025-27587", "releases", "bookworm", "status"}
	assigned  = []string{"openssl", "CVE-2025-27587", "releases", "bookworm", "urgency"}
)

func written(t *testing.T, out string, dirs ...string) {
	t.Helper()
	if err := clairfeed.Write(out, now, dirs...); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// at returns the value at a path of keys in a JSON document.
func at(t *testing.T, document string, keys []string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(document), &value); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	return value
}

func TestDebianTracker(t *testing.T) {
	out := t.TempDir()
	written(t, out, first, added)
	tracker := content(t, out, "debian-tracker.json")
	for want, keys := range map[string][]string{"open": unfixed, "not yet assigned": assigned} {
		if got := at(t, tracker, keys); got != want {
			t.Errorf("%v: want %q, got %v", keys, want, got)
		}
	}
	if release := content(t, out, "debian", "dists", "bookworm", "Release"); !strings.Contains(release, "\nVersion: 12.") {
		t.Errorf("Clair takes no release without a point release:\n%s", release)
	}
}

func TestAdvisoryIsCorrected(t *testing.T) {
	out := t.TempDir()
	written(t, out, first, added)
	tracker := content(t, out, "debian-tracker.json")
	if got := []any{at(t, tracker, status), at(t, tracker, tracked)}; got[0] != "open" || got[1] != nil {
		t.Errorf("want an open vulnerability without a fixed version, got %v", got)
	}
	written(t, out, first, added, corrected)
	tracker = content(t, out, "debian-tracker.json")
	if got := []any{at(t, tracker, status), at(t, tracker, tracked)}; got[0] != "resolved" || got[1] != "3.0.19-1~deb12u9" {
		t.Errorf("want a resolved vulnerability with its fixed version, got %v", got)
	}
}

func TestAlpineReleasesHaveNoGap(t *testing.T) {
	out := t.TempDir()
	written(t, out, first)
	for _, release := range []string{"v3.3", "v3.10", "v3.17", "v3.18", "v3.19"} {
		if _, err := os.Stat(filepath.Join(out, "alpine", release)); err != nil {
			t.Errorf("without this release Clair finds no later one: %v", err)
		}
	}
	if database := content(t, out, "alpine", "v3.18", "main.json"); !strings.Contains(database, `"1.36.1-r1": [`) {
		t.Errorf("the fix of busybox is missing:\n%s", database)
	}
}

func TestOSVContainsGoRecords(t *testing.T) {
	out := t.TempDir()
	written(t, out, first)
	archive, err := zip.OpenReader(filepath.Join(out, "osv", "Go", "all.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	records, err := filepath.Glob(filepath.Join(first, "golang", "*.json"))
	if err != nil || len(records) == 0 || len(archive.File) != len(records) {
		t.Errorf("want the %d records, got %d (error %v)", len(records), len(archive.File), err)
	}
}

func TestNVDHasEveryYearAndInventedCVEsInTheLast(t *testing.T) {
	out := t.TempDir()
	written(t, out, first, added)
	for _, year := range []string{"2002", "2014", "2026"} {
		if meta := content(t, out, "nvd", "nvdcve-2.0-"+year+".meta"); !strings.Contains(meta, "sha256:") {
			t.Errorf("%s: no checksum in %q", year, meta)
		}
	}
	file, err := os.Open(filepath.Join(out, "nvd", "nvdcve-2.0-2026.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var feed struct {
		Vulnerabilities []struct{ CVE struct{ ID string } }
	}
	if err := json.NewDecoder(unpacked).Decode(&feed); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, vulnerability := range feed.Vulnerabilities {
		found = found || vulnerability.CVE.ID == "CVE-2099-10001"
	}
	if !found {
		t.Error("the invented CVE is in no feed")
	}
}

// Only changed files are written, so their modification times show the change.
func TestUnchangedFilesAreNotWritten(t *testing.T) {
	out := t.TempDir()
	written(t, out, first)
	err := filepath.WalkDir(out, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, longAgo, longAgo)
	})
	if err != nil {
		t.Fatal(err)
	}
	written(t, out, first, added)
	var touched []string
	err = filepath.WalkDir(out, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && !info.ModTime().Equal(longAgo) {
			name, _ := filepath.Rel(out, path)
			touched = append(touched, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"debian-tracker.json", filepath.Join("nvd", "nvdcve-2.0-2026.json.gz"), filepath.Join("nvd", "nvdcve-2.0-2026.meta")}
	if diff := cmp.Diff(want, touched); diff != "" {
		t.Errorf("files that were written again (-want +got):\n%s", diff)
	}
}

func TestNoAdvisoriesAreAnError(t *testing.T) {
	if err := clairfeed.Write(t.TempDir(), now, t.TempDir()); err == nil {
		t.Error("a feed without advisories would make everything look clean")
	}
}
