package restapi

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/spreadsheet"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// csvOf returns the rows of a list as CSV, with its header.
func (w *harness) csvOf(path string) (*http.Response, [][]string) {
	w.t.Helper()
	response, body := w.get(path, anyone)
	rows, err := csv.NewReader(bytes.NewReader(body)).ReadAll()
	if response.StatusCode != http.StatusOK || err != nil || len(rows) == 0 {
		w.t.Fatalf("GET %s: %d %s (%v), want CSV", path, response.StatusCode, body, err)
	}
	return response, rows
}

// itemsOf returns the items of a list as JSON, which has one page.
func (w *harness) itemsOf(path string) []any {
	w.t.Helper()
	response, body := w.get(path, anyone)
	var list struct {
		Items    []any  `json:"items"`
		Continue string `json:"continue"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&list); err != nil || response.StatusCode != http.StatusOK || list.Continue != "" {
		w.t.Fatalf("GET %s: %d %s (%v), want all items", path, response.StatusCode, body, err)
	}
	return list.Items
}

// cellOf returns the cell for the field with this name of an item.
func cellOf(item any, name string) string {
	for part := range strings.SplitSeq(name, ".") {
		fields, _ := item.(map[string]any)
		item = fields[part]
	}
	switch value := item.(type) {
	case nil:
		return ""
	case string:
		return spreadsheet.Text(value)
	case []any:
		var texts []string
		for _, text := range value {
			texts = append(texts, text.(string))
		}
		return spreadsheet.Text(strings.Join(texts, ", "))
	}
	return fmt.Sprint(item) // a number or a truth value
}

// TestExportsEqualLists: a list as CSV has the items, fields and texts of the list as JSON, for each filter and each caller.
func TestExportsEqualLists(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createTwoTeams()
	scanner := w.createScanner("shop", "second", func(s *v1alpha1.Scanner) {
		s.Spec.ExternalReports.Sources = []v1alpha1.ReportSource{{Name: "ci", Announce: ptr.To(true)}}
	})
	w.createScanned(scanner, "hostile", vulnerable("CVE-2026-0004", "=cmd|' /C calc'!A0", severity(finding.Low), fixed, alias("GHSA-1", "@x"), func(f *finding.Finding) {
		f.Paths, f.URL, f.CVSS, f.EPSS, f.FixAvailable = []string{"/a;=1", "/b, \"c\"\n"}, "https://example.com/1", 7, 0.97, noon
		f.Description, f.FixVersions = strings.Repeat("long ", 1000), []string{"1.1", "-2"}
	}), vulnerable("CVE-2026-0005", "zlib"))
	w.clock.Step(time.Minute)
	w.saveReportOfData("hostile", "v2", vulnerable("CVE-2026-0004", "=cmd|' /C calc'!A0", severity(finding.High), fixed))
	w.requireStatus(w.put(reportPath("shop", "hostile", "ci"), anyone, reportText(-5, "CVE-2026-0004", "CVE-2026-0006")), http.StatusCreated)
	w.createScan(scanner, "failed", func(s *v1alpha1.ImageScan) {
		s.Status = v1alpha1.ImageScanStatus{Phase: v1alpha1.PhaseFailed, Attempts: 3, NextAttemptTime: ptr.To(metav1.NewTime(noon)), Workloads: []string{"Deployment/web", "Job/-x"}, WorkloadCount: 2}
	})
	w.createException("shop", "accepted", "CVE-2026-0001")

	for path, queries := range map[string][]string{
		"/api/v1/findings": {
			"", "namespace=blog", "severity=High,Low", "minSeverity=High", "fixable=true", "knownExploited=true", "package=zlib", "id=ghsa-aaaa-bbbb-cccc", "text=cmd",
			"suppressed=true", "suppressed=false", "image=hostile", "workload=Deployment/web", "firstSeenSince=2026-03-01T13:00:00Z", "id=nothing",
		},
		"/api/v1/vulnerabilities":                         {"", "namespace=shop", "minSeverity=High", "severity=Medium", "fixable=false", "minEPSSPercent=50", "text=0002", "text=nothing"},
		"/api/v1/workloads":                               {"", "namespace=shop", "text=web", "text=nothing"},
		"/api/v1/vulnerabilities/CVE-2026-0001/workloads": {"", "namespace=shop"},
		"/api/v1/vulnerabilities/CVE-2026-0004/workloads": {""},
		"/api/v1/vulnerabilities/nothing/workloads":       {""},
		"/api/v1/namespaces/shop/imagescans":              {"", "phase=Failed", "scanner=second", "scannerKind=ClusterScanner"},
		"/api/v1/namespaces/shop/imagescans/hostile/findings": {
			"", "fixable=true", "gone=true", "source=ci", "severity=Low", "text=zlib",
		},
		findingsPath: {"suppressed=true", "suppressed=false"},
	} {
		for _, query := range queries {
			all, rows := w.csvOf(path + ".csv?" + query)
			items := w.itemsOf(path + "?limit=500&" + query)
			want := [][]string{rows[0]}
			for _, item := range items {
				var row []string
				for _, name := range rows[0] {
					row = append(row, cellOf(item, name))
				}
				want = append(want, row)
			}
			if diff := cmp.Diff(want, rows); diff != "" {
				t.Errorf("%s with %q (-JSON +CSV):\n%s", path, query, diff)
			}
			if all.Header.Get("Content-Type") != spreadsheet.MediaType || !strings.HasPrefix(all.Header.Get("Content-Disposition"), "attachment; filename=") {
				t.Errorf("%s is sent as %s, %s", path, all.Header.Get("Content-Type"), all.Header.Get("Content-Disposition"))
			}
		}
	}
	_, rows := w.csvOf("/api/v1/namespaces/shop/imagescans/hostile/findings.csv?raw=true&fixable=true")
	if text := strings.Join(rows[1], "\n"); !strings.Contains(text, "\n=cmd|' /C calc'!A0\n") {
		t.Errorf("raw is\n%s\nwant the name of the package as it is", text)
	}

	api.allowed = allowOnlyIn("shop")
	w.clock.Step(2 * decisionTTL) // the earlier decisions are remembered until then
	_, rows = w.csvOf("/api/v1/findings.csv")
	if len(rows) != 1+len(w.itemsOf("/api/v1/findings?namespace=shop")) {
		t.Errorf("a caller who may see shop only gets %q", rows[1:])
	}
	if response, body := w.get("/api/v1/findings.csv?namespace=blog", anyone); response.StatusCode != http.StatusForbidden {
		t.Errorf("another namespace: %d %s, want 403", response.StatusCode, body)
	}
	w.requireNoDownloads()
}

// TestExportsOfManyItems: lists that are longer than a page have each item once.
func TestExportsOfManyItems(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	many := make([]finding.Finding, 2*exportPage+1)
	for i := range many {
		many[i] = vulnerable(fmt.Sprintf("CVE-2026-%06d", i), "zlib")
	}
	w.createScanned(scanner, "web", many...)
	for path, want := range map[string]int{
		findingsPath + ".csv": len(many), "/api/v1/findings.csv": len(many), "/api/v1/vulnerabilities.csv": len(many), "/api/v1/findings.csv?text=000007": 1,
	} {
		_, rows := w.csvOf(path)
		different := map[string]bool{}
		for _, row := range rows[1:] {
			different[strings.Join(row, ",")] = true
		}
		if len(rows)-1 != want || len(different) != want {
			t.Errorf("%s has %d rows, %d different ones; want %d", path, len(rows)-1, len(different), want)
		}
	}
}

// TestExportNames: the name of the file has the namespace and the date, and says if something is not scanned.
func TestExportNames(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createTwoTeams()
	w.createScan(w.createScanner("empty", "main"), "half", func(s *v1alpha1.ImageScan) { s.Status.NotCovered = []string{"npm"} })
	names := func(want map[string]string) {
		t.Helper()
		for path, name := range want {
			response, body := w.get("/api/v1/"+path, anyone)
			if got := response.Header.Get("Content-Disposition"); got != "attachment; filename="+name {
				t.Errorf("%s: %d %q %.100s, want %s", path, response.StatusCode, got, body, name)
			}
		}
	}
	names(map[string]string{
		"findings.csv":                                               "findings-all-namespaces-2026-03-01-incomplete.csv", // in blog, images are pending
		"findings.csv?namespace=shop":                                "findings-shop-2026-03-01.csv",
		"vulnerabilities.csv?namespace=blog":                         "vulnerabilities-blog-2026-03-01-incomplete.csv",
		"workloads.csv?namespace=shop":                               "workloads-shop-2026-03-01.csv",
		"workloads.csv?namespace=nowhere":                            "workloads-nowhere-2026-03-01-incomplete.csv", // nothing is scanned there
		"vulnerabilities/CVE-2026-0001/workloads.csv?namespace=shop": "workloads-CVE-2026-0001-shop-2026-03-01.csv",
		"vulnerabilities/a%22;%3d/workloads.csv?namespace=shop":      "workloads-a-shop-2026-03-01.csv",
		"namespaces/shop/imagescans.csv":                             "images-shop-2026-03-01.csv",
		"namespaces/shop/imagescans/web/findings.csv":                "findings-shop-web-2026-03-01.csv",
		"namespaces/empty/imagescans.csv":                            "images-empty-2026-03-01.csv",
	})
	w.api.ClusterName = "prod-eu"
	api.allowed = allowOnlyIn("shop")
	w.clock.Step(2 * decisionTTL)
	names(map[string]string{"vulnerabilities.csv": "prod-eu-vulnerabilities-some-namespaces-2026-03-01.csv"})
}

// TestExportRefused: an image without a result is no empty list, and a list as CSV has no pages.
func TestExportRefused(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScan(w.createScanner("shop", "main"), "web", func(s *v1alpha1.ImageScan) { s.Status.Phase = v1alpha1.PhasePending })
	for path, want := range map[string]restv1.Reason{
		findingsPath + ".csv": restv1.ReasonNotScanned,
		"/api/v1/namespaces/shop/imagescans/missing/findings.csv":     restv1.ReasonNotFound,
		"/api/v1/findings.csv?limit=500":                              restv1.ReasonInvalidParameter,
		"/api/v1/vulnerabilities.csv?continue=abc":                    restv1.ReasonInvalidParameter,
		"/api/v1/vulnerabilities.csv?raw=yes":                         restv1.ReasonInvalidParameter,
		"/api/v1/vulnerabilities.csv?namespace=shop&firstSeenSince=1": restv1.ReasonInvalidParameter,
	} {
		response, body := w.get(path, anyone)
		var p restv1.Problem
		if err := json.Unmarshal(body, &p); err != nil || p.Reason != want || response.StatusCode != statusOf[want] {
			t.Errorf("GET %s: %d %s, want %s", path, response.StatusCode, body, want)
		}
	}
	w.requireNoDownloads()
}

// exportStore counts the pages of findings, and does something before each.
type exportStore struct {
	Store
	before func(page int) error
	pages  int
}

func (s *exportStore) FindingsPage(ctx context.Context, of store.Subject, f store.FindingFilter, from store.FindingCursor, limit int) (store.FindingPage, error) {
	s.pages++
	if err := s.before(s.pages); err != nil {
		return store.FindingPage{}, err
	}
	return s.Store.FindingsPage(ctx, of, f, from, limit)
}

// TestExportIsOneSnapshot: a list has one state of the store, whatever is saved while it is sent.
func TestExportIsOneSnapshot(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	w.createScanned(scanner, "a", vulnerable("CVE-2026-0001", "zlib"))
	w.createScanned(scanner, "b", vulnerable("CVE-2026-0002", "zlib"))
	w.api.Store = &exportStore{Store: w.store, before: func(page int) error {
		if page == 2 {
			w.saveReportOfData("b", "2", vulnerable("CVE-2026-0003", "zlib"))
		}
		return nil
	}}
	_, before := w.csvOf("/api/v1/findings.csv")
	_, after := w.csvOf("/api/v1/findings.csv")
	for name, tt := range map[string]struct {
		rows [][]string
		want string
	}{"while it is replaced": {before, "CVE-2026-0002"}, "afterwards": {after, "CVE-2026-0003"}} {
		if len(tt.rows) != 3 || !strings.Contains(strings.Join(tt.rows[2], " "), tt.want) {
			t.Errorf("%s: %q, want %s in the last row", name, tt.rows, tt.want)
		}
	}
}

// TestExportIsCutOff: a list that cannot be read to its end is not sent as a complete response. Before its first byte, the reason is sent.
func TestExportIsCutOff(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	for _, name := range []string{"a", "b", "c"} {
		w.createScanned(scanner, name, vulnerable("CVE-2026-0001", "zlib"))
	}
	failing := &exportStore{Store: w.store}
	w.api.Store = failing
	client := &http.Client{Transport: w.http.Transport.(*conformanceTransport).next}
	for fails := range 4 {
		failing.pages, failing.before = 0, func(page int) error {
			if page == fails {
				return errors.New("the disk is gone")
			}
			return nil
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/api/v1/findings.csv", nil)
		w.must(err)
		r.Header.Set("Authorization", "Bearer "+anyone)
		response, err := client.Do(r)
		w.must(err)
		body, err := io.ReadAll(response.Body)
		w.must(response.Body.Close())
		status, isCutOff := http.StatusOK, fails > 1
		if fails == 1 {
			status = http.StatusServiceUnavailable
		}
		if response.StatusCode != status || (err != nil) != isCutOff {
			t.Errorf("page %d fails: %d %s, %v; want %d, cut off: %t", fails, response.StatusCode, body, err, status, isCutOff)
		}
	}
	w.requireNoDownloads()
	if !strings.Contains(w.logText(), "Cut off an answer") {
		t.Errorf("the log says nothing of it: %s", w.logText())
	}
}

// TestExportsWaitForNoQueries: an export has a connection of its own. It would wait for ever for queries that wait for connections.
func TestExportsWaitForNoQueries(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createTwoTeams()
	for range maxQueries {
		_, err := w.api.queries.Acquire(t.Context(), "anyone")
		w.must(err)
	}
	if _, rows := w.csvOf("/api/v1/vulnerabilities.csv"); len(rows) != 4 {
		t.Errorf("the list is %q, want three vulnerabilities", rows)
	}
}

// maxExportHeap bounds the memory that an export takes, however many rows it has.
const maxExportHeap = 16 << 20

// endlessStore has an image of each digest with so many findings, and as many vulnerabilities, workloads, and containers with a vulnerability.
type endlessStore struct {
	Store
	rows int
}

func (endlessStore) InSnapshot(ctx context.Context, work func(context.Context) error) error {
	return work(ctx)
}

func (endlessStore) Locate(_ context.Context, _, _ string, key image.Key) (store.Location, error) {
	return store.Location{Subject: store.Subject{PlatformDigest: key.Digest, Engine: engine}, Report: &store.ReportState{ID: 1, MatchedAt: noon}}, nil
}

// endlessPage returns the rows of a page from one on, and the number of the row after the page; 0 if there is none.
func endlessPage[T any](s endlessStore, from, limit int, row func(i int) T) (rows []T, next int) {
	for i := from; i < s.rows && len(rows) < limit; i++ {
		rows = append(rows, row(i))
	}
	if next = from + len(rows); next >= s.rows {
		next = 0
	}
	return rows, next
}

func endlessFinding(i int) finding.Finding {
	f := vulnerable(fmt.Sprintf("CVE-2026-%06d", i), fmt.Sprintf("package-%d", i), fixed, alias(fmt.Sprintf("GHSA-%d", i)))
	f.Description, f.Paths = strings.Repeat("a flaw ", 100), []string{fmt.Sprintf("/usr/lib/package-%d", i)}
	return f
}

func (s endlessStore) FindingsPage(_ context.Context, _ store.Subject, _ store.FindingFilter, from store.FindingCursor, limit int) (store.FindingPage, error) {
	findings, next := endlessPage(s, from.Count, limit, func(i int) store.TrackedFinding {
		return store.TrackedFinding{Finding: endlessFinding(i), FirstSeen: noon, LastSeen: noon}
	})
	page := store.FindingPage{Total: s.rows, Findings: findings}
	if next > 0 {
		page.Next = &store.FindingCursor{Count: next}
	}
	return page, nil
}

func (s endlessStore) VulnerabilitiesPage(
	_ context.Context, _ store.Sight, _ store.VulnerabilityFilter, after store.VulnerabilityCursor, limit int,
) (store.VulnerabilitiesPage, error) {
	vulnerabilities, next := endlessPage(s, int(after.Urgency), limit, func(i int) store.RunningVulnerability {
		return store.RunningVulnerability{ID: fmt.Sprintf("CVE-2026-%06d", i), Severity: finding.High, Images: 1, Namespaces: 1, FirstSeen: noon}
	})
	page := store.VulnerabilitiesPage{Total: s.rows, Vulnerabilities: vulnerabilities}
	if next > 0 {
		page.Next = &store.VulnerabilityCursor{Urgency: int64(next), ID: "CVE"}
	}
	return page, nil
}

func (s endlessStore) RunsPage(_ context.Context, _ store.RunsQuery, after store.RunCursor, limit int) (store.RunsPage, error) {
	from, _ := strconv.Atoi(after.Name)
	runs, next := endlessPage(s, from, limit, func(i int) store.Run {
		return store.Run{Namespace: "shop", Kind: "Deployment", Name: fmt.Sprint("web-", i), Container: "main", Reference: "ghcr.io/shop/web:1", Key: key("web-0"), Finding: endlessFinding(i)}
	})
	page := store.RunsPage{Total: s.rows, Runs: runs}
	if next > 0 {
		page.Next = &store.RunCursor{Name: strconv.Itoa(next)}
	}
	return page, nil
}

func (s endlessStore) WorkloadsPage(_ context.Context, _ store.WorkloadsQuery, after store.WorkloadCursor, limit int) (store.WorkloadsPage, error) {
	workloads, next := endlessPage(s, int(after.Urgency), limit, func(i int) store.RunningWorkload {
		return store.RunningWorkload{
			Namespace: "shop", Kind: "Deployment", Name: fmt.Sprint("web-", i),
			Images: []store.WorkloadImage{{Container: "main", Reference: "ghcr.io/shop/web:1", Key: key("web-0")}},
		}
	})
	page := store.WorkloadsPage{Total: s.rows, Workloads: workloads}
	if next > 0 {
		page.Next = &store.WorkloadCursor{Urgency: int64(next), Name: "web"}
	}
	return page, nil
}

// cachedScans is a cluster whose ImageScans are in a cache: a list of them is a copy without what they point to.
type cachedScans struct {
	client.Reader
	scans []v1alpha1.ImageScan
}

// List implements client.Reader.
func (c cachedScans) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if scans, ok := list.(*v1alpha1.ImageScanList); ok {
		scans.Items = slices.Clone(c.scans)
		return nil
	}
	return c.Reader.List(ctx, list, options...)
}

// cacheScans caches so many ImageScans of a Scanner.
func (w *harness) cacheScans(scanner *v1alpha1.Scanner, n int) {
	cached := cachedScans{Reader: w.cluster}
	for i := range n {
		scan := imageScan(scanner.Namespace, scanner, fmt.Sprint("web-", i))
		scan.Status.Workloads, scan.Status.WorkloadCount = []string{"Deployment/web"}, 1
		cached.scans = append(cached.scans, *scan)
	}
	w.api.Reader = cached
}

// TestMemoryOfAnExport: however many rows a list has, few of them are in memory.
func TestMemoryOfAnExport(t *testing.T) {
	if testing.Short() {
		t.Skip("the memory is not that of a program under the race detector, which takes minutes for so many rows")
	}
	const images, each, scans = 2, 50_000, 10_000
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	for i := range images {
		w.createScan(scanner, fmt.Sprint("web-", i))
	}
	w.api.Store = endlessStore{w.store, each}
	check := func(path string, rows int) {
		t.Run(path, func(t *testing.T) {
			var counted lineCounter
			requireHeapWithin(t, maxExportHeap, func() { w.download(path, &counted) })
			if int(counted) != 1+rows {
				t.Errorf("%d lines, want a header and %d rows", counted, rows)
			}
		})
	}
	for path, rows := range map[string]int{
		"/api/v1/findings.csv": images * each, "/api/v1/namespaces/shop/imagescans/web-0/findings.csv": each, "/api/v1/vulnerabilities.csv": each,
		"/api/v1/vulnerabilities/CVE-2026-0001/workloads.csv": each, "/api/v1/workloads.csv": each,
	} {
		check(path, rows)
	}
	w.cacheScans(scanner, scans)
	check("/api/v1/namespaces/shop/imagescans.csv", scans)
}

// download copies a document, which is not compared with the OpenAPI document. It returns the time until the response began.
func (w *harness) download(path string, to io.Writer) (firstByte time.Duration) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+path, nil)
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+anyone)
	began := time.Now()
	response, err := (&http.Client{Transport: w.http.Transport.(*conformanceTransport).next}).Do(r)
	w.must(err)
	defer response.Body.Close()
	firstByte = time.Since(began)
	if response.StatusCode != http.StatusOK {
		w.t.Fatalf("GET %s: %s", path, response.Status)
	}
	_, err = io.Copy(to, response.Body)
	w.must(err)
	return firstByte
}

// lineCounter counts lines.
type lineCounter int

// Write implements io.Writer.
func (c *lineCounter) Write(p []byte) (int, error) {
	*c += lineCounter(bytes.Count(p, []byte("\n")))
	return len(p), nil
}
