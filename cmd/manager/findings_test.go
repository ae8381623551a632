package main

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/report"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var (
	scannedImage = "sha256:" + strings.Repeat("a", 64)
	newImage     = "sha256:" + strings.Repeat("b", 64)
)

// storeWithFindings creates a store with an image with one finding in "shop", and an image without a result in "blog". It stays open, like
// that of a running manager.
func storeWithFindings(t *testing.T) (dataDir string) {
	t.Helper()
	dataDir = t.TempDir()
	db, err := store.OpenSQLite(t.Context(), filepath.Join(dataDir, storeFile), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for namespace, digest := range map[string]string{"shop": scannedImage, "blog": newImage} {
		err := db.SetUsage(t.Context(), store.ImageUsage{
			Scanner: "uid-" + namespace, Namespace: namespace, Engine: "grype",
			Key: image.Key{Digest: digest, Platform: image.Platform{OS: "linux", Architecture: "amd64"}},
			Workloads: []store.Workload{{
				Namespace: namespace, Kind: "Deployment", Name: "web", Container: "main", Repository: "ghcr.io/" + namespace + "/web", Reference: "ghcr.io/" + namespace + "/web:1",
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err = db.SaveCatalog(t.Context(), store.Catalog{
		Engine:         "grype",
		Key:            image.Key{Digest: scannedImage, Platform: image.Platform{OS: "linux", Architecture: "amd64"}},
		PlatformDigest: scannedImage, CatalogedAt: time.Now(),
	}, map[store.Artifact]io.Reader{store.ArtifactSBOM: bytes.NewReader(nil), store.ArtifactMatchInput: bytes.NewReader(nil)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.SaveReport(t.Context(), store.Report{
		Subject: store.Subject{PlatformDigest: scannedImage, Engine: "grype"}, DataVersion: "v1", MatchedAt: time.Now(),
		Findings: []finding.Finding{{
			ID: "CVE-2024-0001", Severity: finding.High, KnownExploited: true, FixState: finding.FixStateFixed, FixVersions: []string{"3.0.2", "3.1.0"},
			Package: finding.Package{Name: "openssl", Version: "3.0.1", Type: "deb"},
		}},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	return dataDir
}

// TestFindingsTable: "manager findings" prints the matching images while a manager runs.
func TestFindingsTable(t *testing.T) {
	dataDir := storeWithFindings(t)
	for name, tt := range map[string]struct {
		args []string
		want [][]string
	}{
		"all":                   {nil, [][]string{{"blog", "ghcr.io/blog/web:1", "(no", "result", "yet)", "grype"}, {"shop", "ghcr.io/shop/web:1", "CVE-2024-0001", "High", "openssl", "3.0.1", "3.0.2,", "3.1.0", "yes", "grype"}}},
		"of a namespace":        {[]string{"-namespace", "blog"}, [][]string{{"blog", "ghcr.io/blog/web:1", "(no", "result", "yet)", "grype"}}},
		"of a name":             {[]string{"-image", "shop/web"}, [][]string{{"shop", "ghcr.io/shop/web:1", "CVE-2024-0001", "High", "openssl", "3.0.1", "3.0.2,", "3.1.0", "yes", "grype"}}},
		"of a digest":           {[]string{"-image", newImage}, [][]string{{"blog", "ghcr.io/blog/web:1", "(no", "result", "yet)", "grype"}}},
		"of none that is there": {[]string{"-image", "nothing"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printFindings(t.Context(), append([]string{"-data-dir", dataDir}, tt.args...), &out); err != nil {
				t.Fatal(err)
			}
			var got [][]string
			for line := range strings.Lines(out.String()) {
				if fields := strings.Fields(line); fields[0] != "NAMESPACE" {
					got = append(got, fields)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFindingsJSON: the JSON output has the same findings, and distinguishes an image without a result from a clean one.
func TestFindingsJSON(t *testing.T) {
	var out bytes.Buffer
	if err := printFindings(t.Context(), []string{"-data-dir", storeWithFindings(t), "-o", "json"}, &out); err != nil {
		t.Fatal(err)
	}
	var images []report.Image
	if err := json.Unmarshal(out.Bytes(), &images); err != nil {
		t.Fatal(err)
	}
	if len(images) != 2 {
		t.Fatalf("%d images, want 2", len(images))
	}
	if images[0].Namespace != "blog" || images[0].DataVersion != "" || images[0].Findings == nil || len(images[0].Findings) != 0 {
		t.Errorf("the image without a result is %+v", images[0])
	}
	if images[1].DataVersion != "v1" || len(images[1].Findings) != 1 || images[1].Findings[0].ID != "CVE-2024-0001" {
		t.Errorf("the scanned image is %+v", images[1])
	}
}

// TestFindingsInvalid: the error names the mistake, and a missing store is not created.
func TestFindingsInvalid(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"another format":  {[]string{"-o", "yaml"}, `-o: "yaml" is neither table nor json`},
		"no store there":  {[]string{"-data-dir", t.TempDir()}, storeFile},
		"an unknown flag": {[]string{"-x"}, "-x"},
	} {
		if err := printFindings(t.Context(), tt.args, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: the error is %v, want one that says %q", name, err, tt.want)
		}
	}
}
