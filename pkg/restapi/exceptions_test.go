package restapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/openvex/go-vex/pkg/vex"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// createException creates an exception for a vulnerability in a namespace.
func (w *harness) createException(namespace, name, id string, changes ...func(*v1alpha1.ExceptionSpec)) *v1alpha1.VulnerabilityException {
	w.t.Helper()
	e := &v1alpha1.VulnerabilityException{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ExceptionSpec{
			Status: v1alpha1.VEXNotAffected, Justification: v1alpha1.VEXJustification(vex.VulnerableCodeNotPresent), Reason: "Compiled out.",
			Vulnerabilities: []string{id},
		},
	}
	for _, change := range changes {
		change(&e.Spec)
	}
	w.must(w.cluster.Create(w.t.Context(), e))
	return e
}

// TestSuppressedFindings: a finding that an exception covers is shown as suppressed, only in the exception's namespace and until it expires.
// Findings can be filtered by it.
func TestSuppressedFindings(t *testing.T) {
	w, _ := newFakeHarness(t)
	for _, namespace := range []string{"shop", "blog"} {
		w.createScanned(w.createScanner(namespace, "main"), "web", vulnerable("CVE-2026-0001", "openssl", alias("GHSA-aaaa-bbbb-cccc")), vulnerable("CVE-2026-0002", "zlib"))
	}
	w.createException("shop", "compiled-out", "ghsa-AAAA-bbbb-cccc", func(e *v1alpha1.ExceptionSpec) { e.ExpirationTime = &metav1.Time{Time: noon.Add(time.Hour)} })
	for name, tt := range map[string]struct {
		namespace  string
		suppressed *bool
		after      time.Duration
		want       string
	}{
		"both are listed":         {"shop", nil, 0, "0001 suppressed, 0002"},
		"those suppressed":        {"shop", ptr.To(true), 0, "0001 suppressed"},
		"those not suppressed":    {"shop", ptr.To(false), 0, "0002"},
		"another namespace":       {"blog", nil, 0, "0001, 0002"},
		"after it has expired":    {"shop", ptr.To(true), time.Hour, ""},
		"and then not suppressed": {"shop", ptr.To(false), time.Hour, "0001, 0002"},
	} {
		t.Run(name, func(t *testing.T) {
			w.clock.SetTime(noon.Add(tt.after))
			var got []string
			for _, f := range w.findings(tt.namespace, "web", restv1.ListFindingsParams{Suppressed: tt.suppressed}) {
				text := f.ID[len(f.ID)-4:]
				if f.Exception != nil {
					text += " suppressed"
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
	w.clock.SetTime(noon)
	want := &restv1.Exception{
		Source: restv1.ExceptionFromResource,
		Kind:   "VulnerabilityException", Name: "compiled-out", Status: "not_affected", Justification: "vulnerable_code_not_present",
		Reason: "Compiled out.", ExpirationTime: noon.Add(time.Hour),
	}
	if diff := cmp.Diff(want, w.findings("shop", "web", restv1.ListFindingsParams{Suppressed: ptr.To(true)})[0].Exception); diff != "" {
		t.Errorf("exception (-want +got):\n%s", diff)
	}
}

// TestSuppressedByAStatement: a statement of a document that is attached to the image is shown as an exception with its source and signer.
func TestSuppressedByAStatement(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.api.Statements = func(ctx context.Context, namespaces []string) ([]exception.Exception, error) {
		return w.store.ImageStatements(ctx, namespaces, func(string) []string { return []string{"ghcr.io", "docker.io", "registry.example.com"} })
	}
	scan := w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "zlib"))
	found, err := w.store.Locate(t.Context(), "uid-of-shop-main", "shop", key("web"))
	w.must(err)
	w.must(w.store.SaveJob(t.Context(), store.Job{Namespace: "operator", Name: "catalog", UID: "uid", Purpose: store.JobCatalog, Key: key("web"), CreatedAt: noon, VEXPolicy: "policy"}))
	_, err = w.store.SaveJobResult(t.Context(), store.JobResult{
		Catalog: store.Catalog{Engine: engine, Key: key("web"), PlatformDigest: found.PlatformDigest, CatalogedAt: noon}, JobUID: "uid", Digest: "upload",
		VEX: store.ImageVEX{Policy: "policy", Statements: []exception.Exception{{
			Name: "https://acme.example.com/vex/web", Signer: "jane@example.com (https://issuer.example.com)", Status: "not_affected",
			Justification: "vulnerable_code_not_present", Reason: "Compiled out.", Vulnerabilities: []string{"CVE-2026-0001"},
		}}},
	})
	w.must(err)
	suppressed := w.findings("shop", scan.Name, restv1.ListFindingsParams{Suppressed: ptr.To(true)})
	if len(suppressed) != 1 || suppressed[0].ID != "CVE-2026-0001" {
		t.Fatalf("suppressed: %+v, want CVE-2026-0001", suppressed)
	}
	want := &restv1.Exception{
		Kind: "OpenVEX", Name: "https://acme.example.com/vex/web", Source: restv1.ExceptionFromImage, Signer: "jane@example.com (https://issuer.example.com)",
		Status: "not_affected", Justification: "vulnerable_code_not_present", Reason: "Compiled out.",
	}
	if diff := cmp.Diff(want, suppressed[0].Exception); diff != "" {
		t.Errorf("exception (-want +got):\n%s", diff)
	}
	text := "OpenVEX https://acme.example.com/vex/web, attached to the image and signed by jane@example.com (https://issuer.example.com)"
	for _, format := range []string{"openvex", "sarif"} {
		if _, body := w.get("/api/v1/namespaces/shop/imagescans/"+scan.Name+"/"+format, anyone); !strings.Contains(string(body), text) {
			t.Errorf("the %s does not name the statement: %.2000s", format, body)
		}
	}
}

// TestSuppressedByRunningNames: an exception applies to the names under which an image runs now, as in counts and messages. The ImageScan
// has only some of the names that its image has ever had.
func TestSuppressedByRunningNames(t *testing.T) {
	for name, tt := range map[string]struct {
		runs []string
		want int
	}{
		"by a name that is not noted":          {[]string{"ghcr.io/shop/web:2"}, 1},
		"by one that is suppressed and others": {[]string{"ghcr.io/shop/web:2", "ghcr.io/shop/web:3"}, 0},
		"by none now":                          {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newFakeHarness(t)
			scanner := w.createScanner("shop", "main")
			w.createScanned(scanner, "web", vulnerable("CVE-2026-0001", "openssl"))
			u := store.ImageUsage{Scanner: string(scanner.UID), Namespace: "shop", Key: key("web"), Scope: store.Cluster, Engine: engine}
			for _, reference := range tt.runs {
				u.Workloads = append(u.Workloads, store.Workload{
					Namespace: "shop", Kind: "Deployment", Name: "web", Container: "main", Repository: "ghcr.io/shop/web", Reference: reference,
				})
			}
			w.must(w.store.SetUsage(t.Context(), u))
			w.createException("shop", "second", "CVE-2026-0001", func(e *v1alpha1.ExceptionSpec) { e.Images = []string{"ghcr.io/shop/web:2"} })
			if got := len(w.findings("shop", "web", restv1.ListFindingsParams{Suppressed: ptr.To(true)})); got != tt.want {
				t.Errorf("%d findings are suppressed, want %d", got, tt.want)
			}
		})
	}
}

// TestSuppressedWorkloads: the workloads with a vulnerability are listed with the exception of their own namespace.
func TestSuppressedWorkloads(t *testing.T) {
	w, _ := newFakeHarness(t)
	for _, namespace := range []string{"blog", "shop"} {
		w.createScanned(w.createScanner(namespace, "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	}
	w.createException("shop", "accepted", "CVE-2026-0001")
	answer, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), "CVE-2026-0001", nil)
	w.must(err)
	got := map[string]bool{}
	for _, item := range answer.JSON200.Items {
		got[item.Namespace] = item.Exception != nil
	}
	if diff := cmp.Diff(map[string]bool{"blog": false, "shop": true}, got); diff != "" {
		t.Errorf("suppressed by namespace (-want +got):\n%s", diff)
	}
}

// TestFindingTimes: findings that are gone are listed on request, with the time when they were fixed. Findings that have changed have the
// times of their changes.
func TestFindingTimes(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	w.createScanned(scanner, "web", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "zlib"))
	for day := 1; day <= 2; day++ {
		w.clock.SetTime(noon.AddDate(0, 0, day))
		w.saveReportOfData("web", fmt.Sprintf("v%d", day+1), vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed, exploited))
	}
	nextDay := noon.AddDate(0, 0, 1)
	got := w.findings("shop", "web", restv1.ListFindingsParams{})
	if len(got) != 1 || !got[0].FirstSeenTime.Equal(noon) || !got[0].FixSinceTime.Equal(nextDay) || !got[0].KnownExploitedSinceTime.Equal(nextDay) {
		t.Errorf("present: %+v, want one first seen at noon, with a fix and exploited since the next day", got)
	}
	if diff := cmp.Diff([]restv1.SeverityBefore{{Severity: restv1.SeverityHigh, EndTime: nextDay}}, got[0].SeveritiesBefore); diff != "" {
		t.Errorf("severities before (-want +got):\n%s", diff)
	}
	gone := w.findings("shop", "web", restv1.ListFindingsParams{Gone: ptr.To(true)})
	if len(gone) != 1 || gone[0].ID != "CVE-2026-0002" || !gone[0].LastSeenTime.Equal(noon) || !gone[0].FixedTime.Equal(noon.AddDate(0, 0, 2)) {
		t.Errorf("gone: %+v, want CVE-2026-0002, last seen at noon and fixed when a second version of the data was without it", gone)
	}
}

// saveReportOfData stores another report of an image, made with other data.
func (w *harness) saveReportOfData(name, data string, findings ...finding.Finding) {
	w.t.Helper()
	_, err := w.store.SaveReport(w.t.Context(), store.Report{
		Subject:     store.Subject{PlatformDigest: digest(name), Scope: store.Cluster, Engine: engine},
		DataVersion: data, MatchedAt: w.clock.Now(), Findings: findings,
	}, "")
	w.must(err)
}

// TestOpenVEX: the document contains the exceptions of the image, and its ETag changes with them.
func TestOpenVEX(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "zlib"))
	e := w.createException("shop", "compiled-out", "CVE-2026-0001")
	const path = "/api/v1/namespaces/shop/imagescans/web/openvex"
	response, body := w.get(path, anyone)
	document, err := vex.Parse(body)
	w.must(err)
	purl := "pkg:oci/web@" + strings.ReplaceAll(key("web").Digest, ":", "%3A") + "?arch=amd64&repository_url=ghcr.io%2Fshop%2Fweb"
	if len(document.Statements) != 1 || len(document.Matches("CVE-2026-0001", purl, []string{"pkg:deb/debian/openssl@1.0"})) != 1 {
		t.Errorf("the document does not say one thing about openssl in the image:\n%s", body)
	}
	tag := response.Header.Get("ETag")
	if response, _ := w.get(path, anyone, "If-None-Match", tag); response.StatusCode != http.StatusNotModified {
		t.Errorf("with the tag of what it has the caller gets %d, want 304", response.StatusCode)
	}
	e.Spec.Reason = "Never called."
	w.must(w.cluster.Update(t.Context(), e))
	if response, body := w.get(path, anyone, "If-None-Match", tag); response.StatusCode != http.StatusOK || !strings.Contains(string(body), "Never called.") {
		t.Errorf("after the reason has changed the caller gets %d %s", response.StatusCode, body)
	}
	if response, _ := w.get("/api/v1/namespaces/shop/imagescans/unknown/openvex", anyone); response.StatusCode != http.StatusNotFound {
		t.Errorf("of an image that is not there the caller gets %d, want 404", response.StatusCode)
	}
	w.requireNoDownloads()
}

// TestSuppressedInCycloneDX: a vulnerability whose findings are all suppressed has an analysis, and the document's ETag changes.
func TestSuppressedInCycloneDX(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0001", "libssl3"), vulnerable("CVE-2026-0002", "zlib"))
	const path = "/api/v1/namespaces/shop/imagescans/web/cyclonedx"
	before, _ := w.get(path, anyone)
	w.createException("shop", "zlib", "CVE-2026-0002")
	w.createException("shop", "openssl", "CVE-2026-0001", func(e *v1alpha1.ExceptionSpec) { e.Packages = []v1alpha1.PackageSelector{{Name: "openssl"}} })
	after, body := w.get(path, anyone)
	if before.Header.Get("ETag") == after.Header.Get("ETag") {
		t.Error("the tag is the same before and after a finding was suppressed")
	}
	var bom cdx.BOM
	w.must(cdx.NewBOMDecoder(strings.NewReader(string(body)), cdx.BOMFileFormatJSON).Decode(&bom))
	got := map[string]cdx.ImpactAnalysisState{}
	for _, v := range *bom.Vulnerabilities {
		if v.Analysis != nil {
			got[v.ID] = v.Analysis.State
		}
	}
	if diff := cmp.Diff(map[string]cdx.ImpactAnalysisState{"CVE-2026-0002": cdx.IASNotAffected}, got); diff != "" {
		t.Errorf("analyses (-want +got):\n%s", diff)
	}
}

// TestMessages: sent messages are listed in pages, the latest first, for one receiver or for all.
func TestMessages(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	for i := range 5 {
		receiver := []string{"team-a", "team-b"}[i%2]
		w.must(w.store.RecordAnnouncement(t.Context(), string(scanner.UID), receiver, store.Announcement{
			MessageID: fmt.Sprintf("%032d", i), At: noon.Add(time.Duration(i) * time.Minute),
			LogEntry: &store.Message{Kind: "News", Title: fmt.Sprintf("message %d", i), Findings: i, Body: []byte(`{"id":"1"}`)},
		}))
	}
	for name, tt := range map[string]struct {
		receiver *string
		want     string
	}{
		"to all":         {nil, "4 3 2 1 0"},
		"to one":         {ptr.To("team-b"), "3 1"},
		"to one unknown": {ptr.To("team-c"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			params := restv1.ListMessagesParams{Receiver: tt.receiver, Limit: ptr.To(2)}
			for first := true; first || params.Continue != nil; first = false {
				page, err := w.clientFor(anyone).ListMessagesWithResponse(t.Context(), "shop", "main", &params)
				w.must(err)
				for _, m := range page.JSON200.Items {
					got = append(got, strings.TrimPrefix(m.Title, "message "))
				}
				params.Continue = nextPage(page.JSON200.Continue)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}
