package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// requireRefusal fails the test unless an error refuses a body for its content.
func requireRefusal(t *testing.T, content []byte, err error) {
	t.Helper()
	var refused *refusal
	if !errors.As(err, &refused) || refused.status < http.StatusBadRequest || refused.status >= http.StatusInternalServerError || refused.retryAfter != 0 {
		t.Errorf("%q gives %v, want a refusal that says that the content is wrong", content, err)
	}
}

// FuzzDecodeWhole: any body is refused, or it is a complete report that names its database. Such a report stays the same when it is encoded and decoded
// again.
func FuzzDecodeWhole(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"database":{"built":"2026-01-01T00:00:00Z"}}`, `{"database":{"built":"2026-01-01T00:00:00Z"}} x`, `[]`, ``, `{"findings":[{}]`,
		`{"database":{"built":"2026-01-01T00:00:00Z"},"tool":"grype 1","new":{"a":[]},"findings":[{"id":"CVE-2026-0001","aliases":["GHSA-1"],"package":{"name":"a"}},{}],"findings":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var report, again workerapi.Report
		if err := decodeWhole(bytes.NewReader(content), &report); err != nil {
			requireRefusal(t, content, err)
			return
		}
		if report.Database.Built.IsZero() || !json.Valid(content) {
			t.Errorf("%q is taken for a report", content)
		}
		text, err := json.Marshal(report)
		if err != nil {
			t.Fatalf("%q is taken for a report that cannot be encoded: %v", content, err)
		}
		if err := decodeWhole(bytes.NewReader(text), &again); err != nil {
			t.Fatalf("%q is taken, but not in the form %s: %v", content, text, err)
		}
		if diff := cmp.Diff(report, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-decoded +decoded again):\n%s", content, diff)
		}
	})
}

// FuzzReport: the findings of any report have distinct keys, and merging them again changes nothing.
func FuzzReport(f *testing.F) {
	for _, seed := range []string{
		`[{"id":"GHSA-1","aliases":["CVE-2026-0001"],"severity":"High","fixState":"fixed","fixVersions":["2","3"],"suggestedFix":"3","package":{"name":"a","version":"1","type":"npm"},"locations":[{"path":"/a"},{"path":"/a"}]},` +
			`{"id":"CVE-2026-0001","namespace":"nvd","severity":"critical","fixState":"","package":{"name":"a","version":"1","type":"npm"},"locations":[{"path":"/a"}]}]`,
		`[{"id":"a\u0000b","package":{"name":"p","purl":"pkg:npm/p@1?x#y"}},{"id":"ab","package":{"name":"p","purl":"pkg:npm/P"}}]`, `[{},{}]`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var matches []workerapi.Finding
		if json.Unmarshal(content, &matches) != nil {
			return
		}
		findings := grype.Normalise(matches)
		if len(findings) > len(matches) {
			t.Errorf("%s: %d findings of %d matches", content, len(findings), len(matches))
		}
		keys := map[string]bool{}
		for _, found := range findings {
			if keys[found.Key()] || slices.Contains(found.Aliases, found.ID) || len(found.Advisories) == 0 {
				t.Errorf("%s: a second finding with its key, with its ID among its aliases, or without an advisory: %+v", content, found)
			}
			keys[found.Key()] = true
		}
		if diff := cmp.Diff(findings, finding.Merge(findings), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: findings (-merged +merged again):\n%s", content, diff)
		}
	})
}

// FuzzParseResult: the documents of an upload are the whole upload behind its first line, in its order, and each is within its bounds. Any other upload is
// refused.
func FuzzParseResult(f *testing.F) {
	header := func(result workerapi.CatalogResult, documents string) []byte {
		line, err := json.Marshal(result)
		if err != nil {
			f.Fatal(err)
		}
		return slices.Concat(line, []byte("\n"), []byte(documents))
	}
	f.Add(header(workerapi.CatalogResult{Platform: "linux/amd64", ManifestSizes: []int64{2, 3}, SBOMSize: 4, MatchInputSize: 5}, "{}[1]sbominput"))
	f.Add(header(workerapi.CatalogResult{ManifestSizes: []int64{1}, SBOMSize: 1, MatchInputSize: 1}, "abcd"))
	f.Add(header(workerapi.CatalogResult{ManifestSizes: []int64{-1, 9_223_372_036_854_775_807}, SBOMSize: 1, MatchInputSize: -1}, "ab"))
	f.Add(header(workerapi.CatalogResult{}, ""))
	f.Add([]byte("no line"))
	path := filepath.Join(f.TempDir(), "upload")
	f.Fuzz(func(t *testing.T, upload []byte) {
		if err := os.WriteFile(path, upload, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		brought, err := parseResult(file)
		if err != nil {
			requireRefusal(t, upload, err)
			return
		}
		line, documents, _ := bytes.Cut(upload, []byte("\n"))
		var result workerapi.CatalogResult
		if err := json.Unmarshal(line, &result); err != nil {
			t.Errorf("%q is taken, although its first line is no result: %v", upload, err)
		}
		if diff := cmp.Diff(result, brought.result); diff != "" {
			t.Errorf("%q: result (-first line +got):\n%s", upload, diff)
		}
		var all []byte
		total := 0
		for _, section := range append(slices.Clone(brought.manifests), brought.sbom, brought.matchInput) {
			content, err := io.ReadAll(section)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, content...)
		}
		for _, manifest := range brought.manifests {
			total += int(manifest.Size())
			if manifest.Size() > workerapi.MaxManifestBytes {
				t.Errorf("%q: a manifest of %d bytes is taken", upload, manifest.Size())
			}
		}
		if !bytes.Equal(all, documents) || len(brought.manifests) != len(result.ManifestSizes) || len(brought.manifests) > workerapi.MaxManifests ||
			total > workerapi.MaxManifestsBytes+workerapi.MaxManifestBytes {
			t.Errorf("%q: %d manifests of %d bytes, and all documents are %q", upload, len(brought.manifests), total, all)
		}
	})
}

// FuzzMatchInput: a match input is accepted exactly if it begins with a whole JSON object.
func FuzzMatchInput(f *testing.F) {
	for _, seed := range []string{`{}`, `{"artifacts":[{"id":"1"},[]],"artifactRelationships":null,"a":{"b":[1]}}`, `{"artifacts":{"a":1}} tail`, `{"a":1`, `[]`, `{"a" 1}`, `{1:2}`, `{"a":1e999}`, ``, `{"artifacts":[1,]}`} {
		f.Add([]byte(seed))
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		err := verifyMatchInput(bytes.NewReader(encoder.EncodeAll(content, nil)), int64(len(content)), func(finding.Package) {})
		var first map[string]json.RawMessage
		isObject := json.NewDecoder(bytes.NewReader(content)).Decode(&first) == nil && first != nil
		if err != nil {
			requireRefusal(t, content, err)
		}
		if (err == nil) != isObject {
			t.Errorf("%q begins with a JSON object: %v, but verifying it gives %v", content, isObject, err)
		}
	})
}

// FuzzUpload: a compressed document is accepted exactly if it is whole and within its limit.
func FuzzUpload(f *testing.F) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(workerapi.MaxWindowBytes))
	if err != nil {
		f.Fatal(err)
	}
	whole := encoder.EncodeAll(bytes.Repeat([]byte("content "), 100), nil)
	for _, seed := range [][]byte{whole, whole[:len(whole)-5], slices.Concat(whole, whole), []byte("{}"), {0x28, 0xB5, 0x2F, 0xFD, 0, (26 - 10) << 3, 1, 0, 0}, nil} {
		f.Add(seed, uint16(1000))
	}
	f.Fuzz(func(t *testing.T, packed []byte, limit uint16) {
		const maxPacked = 1 << 10 // a few bytes can be the compressed form of many megabytes
		if len(packed) > maxPacked {
			t.Skip("it could take many megabytes")
		}
		err := verifyZstd(bytes.NewReader(packed), int64(limit))
		content, failed := decoder.DecodeAll(packed, nil)
		switch {
		case err == nil && (failed != nil || len(content) > int(limit)):
			t.Errorf("%q is accepted with the limit %d, but has %d bytes, %v", packed, limit, len(content), failed)
		case err != nil && !isTooLarge(err):
			requireRefusal(t, packed, err)
			if failed == nil && len(content) <= int(limit) {
				t.Errorf("%q is refused with %v, but has %d bytes", packed, err, len(content))
			}
		}
	})
}

// FuzzVulnerabilityIDs: a list is refused, or a search by halves finds each of its IDs.
func FuzzVulnerabilityIDs(f *testing.F) {
	for _, seed := range []string{"", "\n", "CVE-2026-0001", "CVE-2026-0001\n", "CVE-2026-0001\nGHSA-1\n", "GHSA-1\nCVE-2026-0001\n", "a\n", "A\r\nB\n", "A\nA\n", "A\n\n", "\u00c4\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		if err := checkVulnerabilityIDs(list); err != nil {
			requireRefusal(t, []byte(list), err)
			return
		}
		ids := strings.Split(strings.TrimSuffix(list, "\n"), "\n")
		for i, id := range ids {
			if at, found := slices.BinarySearch(ids, id); !found || at != i || id == "" || strings.ToUpper(id) != id || len(id) > workerapi.MaxVulnerabilityIDBytes {
				t.Errorf("%q is taken, but its ID %q is not one that is found", list, id)
			}
		}
	})
}
