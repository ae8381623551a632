package clair

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

func TestRequestsAreCountedByKind(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for target, want := range map[string]string{
		"POST /indexer/api/v1/index_report":                         postIndex,
		"GET /indexer/api/v1/index_report/" + digest:                readIndex,
		"GET /indexer/api/v1/index_state":                           readState,
		"GET /matcher/api/v1/vulnerability_report/" + digest:        readReport,
		"GET /matcher/api/v1/internal/update_operation?latest=true": "GET update_operation",
	} {
		method, path, _ := strings.Cut(target, " ")
		if got := kindOf(httptest.NewRequest(method, path, nil)); got != want {
			t.Errorf("%s: want %q, got %q", target, want, got)
		}
	}
}

// Every image has the same number of findings with each version, on any base.
func TestFindingsPerImage(t *testing.T) {
	for version := range 3 {
		dir := t.TempDir()
		if err := writeAdvisories(dir, version); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "debian-12.json"))
		if err != nil {
			t.Fatal(err)
		}
		var all []advisory
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		for base := range baseCount {
			status, found := string(debian(base)["/var/lib/dpkg/status"].Content), 0
			for _, a := range all {
				found += strings.Count(status, "Package: "+a.Package+"\n")
			}
			if want := 100 + version*addedFindings; found != want {
				t.Errorf("version %d, base %d: want %d findings, got %d", version, base, want, found)
			}
		}
	}
}

// A twin has the files of its original but none of its layers.
func TestTwins(t *testing.T) {
	original := registrytest.Image(t, registrytest.Files{"etc/os-release": "ID=debian"})
	known := map[string]bool{}
	for _, name := range []string{"", "one", "other"} {
		twin := original
		if name != "" {
			var err error
			if twin, err = twinOf(original, name); err != nil {
				t.Fatal(err)
			}
		}
		layers, err := twin.Layers()
		if err != nil {
			t.Fatal(err)
		}
		digest, err := layers[0].Digest()
		if err != nil || known[digest.String()] {
			t.Errorf("%q: layer %s is not new (error %v)", name, digest, err)
		}
		known[digest.String()] = true
		content, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		if files := filesIn(t, content); files["etc/os-release"] != "ID=debian" {
			t.Errorf("%q: the original's file is missing: %v", name, files)
		}
	}
}

func filesIn(t *testing.T, content io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}

// kept returns figures that keep every bound.
func kept() figures {
	again := map[string]int{readReport: reports, readState: 12}
	return figures{
		indexed: indexed{
			requests: map[string]int{postIndex: imageCount},
			shared:   fetched{2 * baseCount, 2 * baseCount, 1}, own: fetched{imageCount, imageCount, 1},
		},
		bounded:   reread{rate: defaultRate, reading: 50 * time.Second, requests: again},
		unbounded: reread{rate: highestRate, reading: 5 * time.Second, requests: again},
		overheads: []overhead{{image: "web", command: []time.Duration{time.Second}, backend: []time.Duration{1200 * time.Millisecond}}},
	}
}

func TestBounds(t *testing.T) {
	for name, worsen := range map[string]func(*figures){
		"":                   func(*figures) {},
		"Clair is given":     func(f *figures) { f.indexed.requests[postIndex]++ },
		"every layer":        func(f *figures) { f.indexed.shared.times++ },
		"1000 a second":      func(f *figures) { f.unbounded.requests = map[string]int{readReport: reports, postIndex: 1} },
		"20 a second: each":  func(f *figures) { f.bounded.layers = 1 },
		"20 a second: not":   func(f *figures) { f.bounded.reading = 48 * time.Second },
		"`web`: at most 1.2": func(f *figures) { f.overheads[0].backend[0] = 1201 * time.Millisecond },
	} {
		f := kept()
		worsen(&f)
		var broken []string
		for _, bound := range f.section().Bounds {
			if !bound.Kept {
				broken = append(broken, bound.What[:min(len(name), len(bound.What))])
			}
		}
		var want []string
		if name != "" {
			want = []string{name}
		}
		if diff := cmp.Diff(want, broken); diff != "" {
			t.Errorf("broken bounds (-want +got):\n%s", diff)
		}
	}
}
