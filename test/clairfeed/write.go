package clairfeed

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Updaters are the names of Clair's updaters that read the tree, by kind of data.
var (
	VulnerabilityUpdaters = []string{"debian/updater", "osv/go", "alpine-main-v3.18-updater"}
	EnrichmentUpdaters    = []string{"clair.cvss"}
)

// tree maps paths to file contents.
type tree map[string][]byte

// Write writes Clair's files for the advisories in dirs to the directory out. NVD's feeds end with the year of now.
func Write(out string, now time.Time, dirs ...string) error {
	all, err := read(dirs)
	if err != nil {
		return err
	}
	files := tree{}
	for _, part := range []func(*advisories) error{
		files.addOSV, files.addDebian, files.addAlpine, files.addRedHat,
		func(a *advisories) error { return files.addNVD(a, now.Year()) },
	} {
		if err := part(all); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := replace(filepath.Join(out, filepath.FromSlash(name)), content); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file atomically, unless it already has the given content.
func replace(file string, content []byte) error {
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return os.Rename(temporary, file)
}

// addOSV writes the archive of Go's records, in the form in which osv.dev distributes an ecosystem. Clair always reads the list of
// ecosystems from the root of the host, whatever the path of the archives is.
func (t tree) addOSV(a *advisories) error {
	var archive bytes.Buffer
	writer := zip.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(a.golang)) {
		// No time is set, so the archive depends only on the records.
		entry, err := writer.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err != nil {
			return err
		}
		if _, err := entry.Write(a.golang[name]); err != nil {
			return err
		}
	}
	if err := writer.Close(); err != nil {
		return err
	}
	t["ecosystems.txt"] = []byte("Go\n")
	t["osv/Go/all.zip"] = archive.Bytes()
	return nil
}

// debianReleases are Debian's releases by version, each with a point release: Clair ignores a release without one.
var debianReleases = map[string]struct{ codename, version string }{
	"11": {"bullseye", "11.11"}, "12": {"bookworm", "12.12"}, "13": {"trixie", "13.1"},
}

// trackerEntry is one vulnerability of one source package in https://security-tracker.debian.org/tracker/data/json.
type trackerEntry struct {
	Description string                    `json:"description"`
	Releases    map[string]trackerRelease `json:"releases"`
}

type trackerRelease struct {
	Status       string `json:"status"`
	FixedVersion string `json:"fixed_version,omitempty"`
	Urgency      string `json:"urgency"`
}

// addDebian writes the security tracker's data, and the part of a mirror from which Clair reads the releases.
func (t tree) addDebian(a *advisories) error {
	tracker := map[string]map[string]trackerEntry{}
	for _, release := range slices.Sorted(maps.Keys(a.distributions)) {
		version, found := strings.CutPrefix(release, "debian-")
		if !found {
			continue
		}
		known, ok := debianReleases[version]
		if !ok {
			return fmt.Errorf("%s: this release of Debian is not known", release)
		}
		t["debian/dists/"+known.codename+"/Release"] = fmt.Appendf(nil, "Origin: Debian\nLabel: Debian\nVersion: %s\nCodename: %s\n", known.version, known.codename)
		for _, advisory := range a.distributions[release] {
			if tracker[advisory.Package] == nil {
				tracker[advisory.Package] = map[string]trackerEntry{}
			}
			entry, ok := tracker[advisory.Package][advisory.ID]
			if !ok {
				entry = trackerEntry{Description: advisory.Description, Releases: map[string]trackerRelease{}}
			}
			entry.Releases[known.codename] = inTracker(advisory)
			tracker[advisory.Package][advisory.ID] = entry
		}
	}
	return t.addJSON("debian-tracker.json", tracker)
}

func inTracker(advisory distributionAdvisory) trackerRelease {
	urgencies := map[string]string{"Negligible": "unimportant", "Low": "low", "Medium": "medium", "High": "high", "Critical": "high"}
	release := trackerRelease{Status: "open", FixedVersion: advisory.Fixed, Urgency: cmp.Or(urgencies[advisory.Severity], "not yet assigned")}
	if advisory.Fixed != "" {
		release.Status = "resolved"
	}
	return release
}

// Clair requests the releases of Alpine in order, beginning with firstAlpine, and stops at the first missing one. If the first is
// missing, Clair finds no release.
const firstAlpine, lastAlpine = 3, 22 // 3.3, 3.22

// secDB is a document of https://secdb.alpinelinux.org.
type secDB struct {
	Distroversion string         `json:"distroversion"`
	Reponame      string         `json:"reponame"`
	Packages      []secDBPackage `json:"packages"`
}

type secDBPackage struct {
	Pkg secDBFixes `json:"pkg"`
}

// secDBFixes holds the CVEs of a package, by the version that fixes them.
type secDBFixes struct {
	Name     string              `json:"name"`
	Secfixes map[string][]string `json:"secfixes"`
}

// addAlpine writes the main repository of each release. Vulnerabilities without a fix are not in Alpine's data.
func (t tree) addAlpine(a *advisories) error {
	for minor := firstAlpine; minor <= lastAlpine; minor++ {
		t[fmt.Sprintf("alpine/v3.%d/.keep", minor)] = nil
	}
	changes := sha256.New()
	for _, release := range slices.Sorted(maps.Keys(a.distributions)) {
		version, found := strings.CutPrefix(release, "alpine-")
		if !found {
			continue
		}
		name := "alpine/v" + version + "/main.json"
		if err := t.addJSON(name, fixes("v"+version, a.distributions[release])); err != nil {
			return err
		}
		changes.Write(t[name])
	}
	t["alpine/last-update"] = fmt.Appendf(nil, "%x\n", changes.Sum(nil))
	return nil
}

func fixes(release string, advisories []distributionAdvisory) secDB {
	packages := map[string]map[string][]string{}
	for _, advisory := range advisories {
		if advisory.Fixed == "" {
			continue
		}
		if packages[advisory.Package] == nil {
			packages[advisory.Package] = map[string][]string{}
		}
		packages[advisory.Package][advisory.Fixed] = append(packages[advisory.Package][advisory.Fixed], advisory.ID)
	}
	database := secDB{Distroversion: release, Reponame: "main", Packages: []secDBPackage{}}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		database.Packages = append(database.Packages, secDBPackage{secDBFixes{Name: name, Secfixes: packages[name]}})
	}
	return database
}

// addRedHat writes empty mappings of Red Hat's repositories. Without them, Clair indexes no layer of any image.
func (t tree) addRedHat(*advisories) error {
	for _, name := range []string{"repository-to-cpe.json", "container-name-repos-map.json"} {
		t[path.Join("redhat", name)] = []byte(`{"data":{}}`)
	}
	return nil
}

func (t tree) addJSON(name string, document any) error {
	content, err := json.MarshalIndent(document, "", " ")
	t[name] = content
	return err
}
