package controllers

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// anyScan generates ImageScans within the API's bounds, with names and texts of any length.
func anyScan() *rapid.Generator[*v1alpha1.ImageScan] {
	return rapid.Custom(func(t *rapid.T) *v1alpha1.ImageScan {
		text := func(name string, most int) string {
			character := rapid.SampledFrom([]string{"x", `"`, "<", "ü", "\x01", "…"}).Draw(t, name)
			return truncate(strings.Repeat(character, rapid.IntRange(0, most).Draw(t, name+" length")), most)
		}
		scanner := aScanner(repeatToLength("n", rapid.IntRange(1, 63).Draw(t, "namespace")), repeatToLength("s", rapid.IntRange(1, 63).Draw(t, "scanner")))
		scan := scanOf(scanner, "x:1")
		scan.Spec.References = []string{repeatToLength("r", rapid.IntRange(1, v1alpha1.MaxReferenceBytes).Draw(t, "reference"))}
		if left := v1alpha1.MaxReferencesBytes - len(scan.Spec.References[0]); left > 0 {
			scan.Spec.References = append(scan.Spec.References, repeatToLength("r", rapid.IntRange(1, left).Draw(t, "second reference")))
		}
		scan.Status = fullStatus("x")
		scan.Status.Conditions[0].Message = text("message", v1alpha1.MaxMessageBytes)
		scan.Status.SBOM = originOf(rapid.SampledFrom([]store.Origin{
			{}, {Policy: "p", Signer: text("signer", v1alpha1.MaxSignerBytes)}, {Problem: text("problem", v1alpha1.MaxProblemBytes)},
			{Policy: "upload:1", Uploader: text("uploader", v1alpha1.MaxSignerBytes), UploadedAt: time.Unix(1, 0), Problem: text("problem", v1alpha1.MaxProblemBytes)},
		}).Draw(t, "attestation"))
		scan.Status.VEX = vexOf(rapid.SampledFrom([]*store.VEXSummary{
			nil, {Statements: 500}, {Statements: 500, Problem: text("VEX problem", v1alpha1.MaxProblemBytes)},
		}).Draw(t, "VEX"))
		scan.Status.Workloads, scan.Status.TopFindings = nil, nil
		for range rapid.IntRange(0, v1alpha1.MaxWorkloads).Draw(t, "workloads") {
			scan.Status.Workloads = append(scan.Status.Workloads, text("workload", maxWorkloadBytes))
		}
		for range rapid.IntRange(0, v1alpha1.MaxTopFindings).Draw(t, "findings") {
			scan.Status.TopFindings = append(scan.Status.TopFindings, v1alpha1.TopFinding{
				ID: text("id", maxIDBytes), Severity: "Critical", Package: text("package", maxPackageBytes), FixedIn: text("fix", maxVersionBytes),
			})
		}
		return scan
	})
}

// TestShrinkToFitProperties: what fit cuts, in which order, and what it never cuts.
func TestShrinkToFitProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := anyScan().Draw(t, "ImageScan")
		scan := before.DeepCopy()
		shrinkToFit(scan)
		was, is := before.Status, scan.DeepCopy().Status
		if size := sizeOf(scan); size > maxObjectBytes-managedReserve {
			t.Fatalf("it has %d bytes, want at most %d", size, maxObjectBytes-managedReserve)
		}
		if sizeOf(before) <= maxObjectBytes-managedReserve && !cmp.Equal(was, is) {
			t.Fatalf("it was small enough and is cut:\n%s", cmp.Diff(was, is))
		}
		if !cmp.Equal(was.Workloads[:len(is.Workloads)], is.Workloads) || !cmp.Equal(was.TopFindings[:len(is.TopFindings)], is.TopFindings) {
			t.Fatal("lists are not cut at their ends")
		}
		if len(is.TopFindings) < len(was.TopFindings) && len(is.Workloads) > 3 {
			t.Fatalf("findings are cut before workloads are down to three: %d of them are left", len(is.Workloads))
		}
		message, longer := is.Conditions[0].Message, was.Conditions[0].Message
		if message != longer && (len(is.TopFindings) > 1 || len(is.Workloads) > 3) {
			t.Fatal("the message is cut before findings and workloads")
		}
		gapsCut := len(is.NotCovered) < len(was.NotCovered)
		if gapsCut && (len(is.TopFindings) > 0 || len(is.Workloads) > 0 || len(message) > 32) {
			t.Fatal("what is not covered is cut before findings, workloads and the message")
		}
		if len(is.NotCovered) < minGaps {
			t.Fatalf("what is not covered is cut down to %q", is.NotCovered)
		}
		cut := false
		for i, gap := range is.NotCovered {
			whole := was.NotCovered[i]
			if gap != whole && (len(is.NotCovered) > minGaps || gap != truncate(whole, minGapBytes)) || gap == whole && cut && len(gap) > minGapBytes {
				t.Fatalf("%q is cut to %q of %q", whole, gap, is.NotCovered)
			}
			cut = cut || gap != whole
		}
		shortest := 32
		if len(is.NotCovered) == minGaps {
			shortest = 8
		}
		if len(message) < min(len(longer), shortest)-len("…") {
			t.Fatalf("the message is cut down to %q", message)
		}
		if is.WorstFinding == "" && (len(is.TopFindings) > 0 || len(is.Workloads) > 0 || len(is.NotCovered) > minGaps || len(message) > 8) {
			t.Fatal("the worst finding is cut before something else")
		}
		if (!cmp.Equal(was.SBOM, is.SBOM) || !cmp.Equal(was.VEX, is.VEX)) && (len(is.TopFindings) > 0 || len(is.Workloads) > 0 || len(is.NotCovered) > minGaps) {
			t.Fatal("the texts about SBOM and OpenVEX are cut before findings, workloads and what is not covered")
		}
		if is.VEX != nil && *is.VEX.Statements != *was.VEX.Statements {
			t.Fatal("the number of statements is not the same")
		}
		is.WorstFinding, is.Image, is.SBOM, is.VEX, is.Columns.Detail = was.WorstFinding, was.Image, was.SBOM, was.VEX, was.Columns.Detail
		is.Workloads, is.TopFindings, is.NotCovered, is.Conditions[0].Message = was.Workloads, was.TopFindings, was.NotCovered, longer
		if diff := cmp.Diff(was, is); diff != "" {
			t.Fatalf("counts, conditions or something else is cut:\n%s", diff)
		}
		again := scan.DeepCopy()
		if shrinkToFit(again); !cmp.Equal(scan, again) {
			t.Fatal("what fits is cut again")
		}
	})
}

// TestShrinkToFitKeepsOrdinary: fit does not cut an ordinary object.
func TestShrinkToFitKeepsOrdinary(t *testing.T) {
	scan := scanOf(aScanner("shop", "all"), web)
	scan.Status = fullStatus("x")
	for i := range scan.Status.NotCovered {
		scan.Status.NotCovered[i] = "Python (PyPI)"
	}
	scan.Status.NotCovered[0] = "debian 9: no security updates since 2022-06-30"
	scan.Status.Image, scan.Status.WorstFinding = "shop/web:1.4", "CVE-2024-12345 Critical openssl 3.0.11-1~deb12u2 → 3.0.14-1~deb12u1"
	scan.Status.Conditions = scan.Status.Conditions[:1]
	scan.Status.Conditions[0].Message, scan.Status.Conditions[0].Reason = "12 findings: 3 critical, 4 high; 5 fixable, 0 known exploited", "Scanned"
	for i := range scan.Status.TopFindings {
		scan.Status.TopFindings[i] = v1alpha1.TopFinding{ID: "CVE-2024-12345", Severity: "Critical", Package: "openssl 3.0.11-1~deb12u2", FixedIn: "3.0.14-1~deb12u1"}
	}
	for i := range scan.Status.Workloads {
		scan.Status.Workloads[i] = "Deployment/checkout"
	}
	before := scan.DeepCopy()
	shrinkToFit(scan)
	if diff := cmp.Diff(before.Status, scan.Status); diff != "" {
		t.Errorf("an ordinary status of %d bytes is cut:\n%s", sizeOf(before), diff)
	}
}

// TestTruncate: the result is one line of valid UTF-8 within the limit, and the whole text if it fits.
func TestTruncate(t *testing.T) {
	for _, tt := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 10, ""}, {"short", 5, "short"}, {"longer", 5, "lo…"}, {"two\nlines\t", 20, "two lines "}, {"\x1b[31mred", 20, " [31mred"},
		{"äöüäöü", 8, "äö…"}, {"äöüäöü", 7, "äö…"}, {"bad \xff byte", 20, "bad � byte"}, {"日本語", 4, "…"}, {"日本語", 9, "日本語"},
	} {
		if got := truncate(tt.text, tt.limit); got != tt.want {
			t.Errorf("%q cut at %d bytes is %q, want %q", tt.text, tt.limit, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		limit := rapid.IntRange(3, 100).Draw(t, "limit")
		got := truncate(text, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%q cut at %d bytes is %q", text, limit, got)
		}
		if again := truncate(got, limit); again != got {
			t.Errorf("cut again it is %q, before %q", again, got)
		}
	})
}

// TestDescribeFindings: the counts in one line.
func TestDescribeFindings(t *testing.T) {
	for want, counts := range map[string]*v1alpha1.FindingCounts{
		"":                         nil,
		"no known vulnerabilities": {},
		"3 findings: 1 critical, 0 high; 2 fixable, 1 known exploited": {Critical: 1, Unknown: 2, Fixable: 2, KnownExploited: 1},
		"12884901882 findings: 2147483647 critical, 2147483647 high; 0 fixable, 0 known exploited": {
			Critical: math.MaxInt32, High: math.MaxInt32, Medium: math.MaxInt32, Low: math.MaxInt32, Negligible: math.MaxInt32, Unknown: math.MaxInt32,
		},
	} {
		if got := describeFindings(counts); got != want {
			t.Errorf("%+v is described as %q, want %q", counts, got, want)
		}
	}
}

// TestDescribeResult: a result does not claim to be free of vulnerabilities in what was not analysed.
func TestDescribeResult(t *testing.T) {
	none, one := &v1alpha1.FindingCounts{}, &v1alpha1.FindingCounts{High: 1}
	gaps := []string{"npm", "PHP", "Rust", ".NET"}
	for want, status := range map[string]v1alpha1.ImageScanStatus{
		"":                         {},
		"no known vulnerabilities": {Findings: none, Packages: ptr.To[int32](7)},
		"nothing is known about the image: Clair found no packages in it": {Findings: none, Packages: ptr.To[int32](0)},
		"no known vulnerabilities; not covered by Clair: npm, PHP, Rust, .NET": {
			Findings: none, Packages: ptr.To[int32](7), NotCovered: gaps,
		},
		"nothing is known about the image: Clair found no packages in it; not covered by Clair: npm, PHP, Rust, .NET and 1 more": {
			Findings: none, Packages: ptr.To[int32](0), NotCovered: append(slices.Clone(gaps), "Swift"),
		},
		"1 finding: 0 critical, 1 high; 0 fixable, 0 known exploited; not covered by Clair: npm": {Findings: one, NotCovered: gaps[:1]},
		"nothing is known about debian 12, Go in this image; not covered by Clair: debian 12, Go, npm": {
			Findings: none, Packages: ptr.To[int32](7), NotCovered: []string{"debian 12", "Go", "npm"},
		},
		"1 finding: 0 critical, 1 high; 0 fixable, 0 known exploited; nothing is known about Go in this image; not covered by Clair: Go, npm": {
			Findings: one, Packages: ptr.To[int32](7), NotCovered: []string{"Go", "npm"},
		},
		"newer vulnerabilities are not known for lack of security updates: debian 9 since 2022-06-30; not covered by Clair: debian 9: no security updates since 2022-06-30, npm": {
			Findings: none, Packages: ptr.To[int32](7), NotCovered: []string{"debian 9: no security updates since 2022-06-30", "npm"},
		},
		// The engine covers everything else, so that there is nothing more to say.
		"1 finding: 0 critical, 1 high; 0 fixable, 0 known exploited; nothing is known about OS packages (rpm) in this image; " +
			"newer vulnerabilities are not known for lack of security updates: debian 9 since 2022-06-30": {
			Findings: one, Packages: ptr.To[int32](7), NotCovered: []string{"OS packages (rpm)", "debian 9: no security updates since 2022-06-30"},
		},
	} {
		status.Engine = v1alpha1.BackendClair
		if got := describeResult(&status, append(slices.Clone(gaps), "Swift")); got != want {
			t.Errorf("%+v is described as %q, want %q", status, got, want)
		}
	}
}

// TestColumnOfPartlyCovered: a table does not show an image as clean that contains what its report does not cover.
func TestColumnOfPartlyCovered(t *testing.T) {
	for want, gaps := range map[string][]string{v1alpha1.ColumnUnknown: {"npm"}, v1alpha1.ColumnPartlyCovered: {"OS packages (deb)", "npm"}} {
		status := v1alpha1.ImageScanStatus{Phase: v1alpha1.PhaseScanned, Findings: &v1alpha1.FindingCounts{}, NotCovered: gaps}
		if got := columnsOf(&status, []string{"npm"}).Reason; got != want {
			t.Errorf("the reason for %q is %q, want %q", gaps, got, want)
		}
	}
}

// TestDescribeOrigin: a result names whose claim the list of packages is, or why the image was cataloged.
func TestDescribeOrigin(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for what, c := range map[string]struct {
		attestation store.Origin
		source      v1alpha1.SBOMSource
		want        string
	}{
		"nothing preferred": {store.Origin{}, "", "no known vulnerabilities"},
		"attested":          {store.Origin{Policy: "p", Signer: "release@example.com (https://issuer.example.com)"}, v1alpha1.SBOMFromAttestation, "no known vulnerabilities; the list of packages is the claim of release@example.com (https://issuer.example.com)"},
		"uploaded": {
			store.Origin{Policy: "upload:1", Uploader: "ci", UploadedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Problem: "not pulled"}, v1alpha1.SBOMFromUpload,
			"no known vulnerabilities; the list of packages is the claim of ci, who uploaded it 2026-03-01T12:00:00Z",
		},
		"cataloged instead":     {store.Origin{Problem: "the index is not signed"}, v1alpha1.SBOMFromImage, "no known vulnerabilities; cataloged, since no attested SBOM is accepted: the index is not signed"},
		"texts that do not fit": {store.Origin{Problem: long}, v1alpha1.SBOMFromImage, "no known vulnerabilities; cataloged, since no attested SBOM is accepted: " + long[:v1alpha1.MaxProblemBytes-3] + "…"},
	} {
		status := v1alpha1.ImageScanStatus{Findings: &v1alpha1.FindingCounts{}, Packages: ptr.To[int32](7), SBOM: originOf(c.attestation)}
		if got := describeResult(&status, nil); got != c.want {
			t.Errorf("%s: described as %q, want %q", what, got, c.want)
		}
		if got := ptr.Deref(status.SBOM, v1alpha1.SBOMOrigin{}).Source; got != c.source {
			t.Errorf("%s: the source is %q, want %q", what, got, c.source)
		}
	}
}

// TestDescribeVEX: a result names why attached OpenVEX documents do not count.
func TestDescribeVEX(t *testing.T) {
	for what, c := range map[string]struct {
		summary *store.VEXSummary
		want    string
	}{
		"none are read":             {nil, "no known vulnerabilities"},
		"all count":                 {&store.VEXSummary{Statements: 3}, "no known vulnerabilities"},
		"a document does not count": {&store.VEXSummary{Statements: 3, Problem: "the document x has no statements"}, "no known vulnerabilities; of the attached OpenVEX: the document x has no statements"},
	} {
		status := v1alpha1.ImageScanStatus{Findings: &v1alpha1.FindingCounts{}, Packages: ptr.To[int32](7), VEX: vexOf(c.summary)}
		if got := describeResult(&status, nil); got != c.want {
			t.Errorf("%s: described as %q, want %q", what, got, c.want)
		}
		if (status.VEX == nil) != (c.summary == nil) || c.summary != nil && *status.VEX.Statements != 3 {
			t.Errorf("%s: %+v", what, status.VEX)
		}
	}
}

// TestGapsOf: any name of a distribution fits into the ImageScan.
func TestGapsOf(t *testing.T) {
	if got := gapsOf(nil); got != nil {
		t.Errorf("nothing became %q", got)
	}
	many := slices.Repeat([]string{"a\ndistribution " + repeatToLength("x", 90)}, v1alpha1.MaxNotCovered+1)
	if got, want := gapsOf(many), slices.Repeat([]string{"a distribution " + repeatToLength("x", v1alpha1.MaxNotCoveredBytes-len("a distribution …")) + "…"}, v1alpha1.MaxNotCovered); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDescribeScanned: a Scanner's summary does not claim to be free of vulnerabilities in what no engine analysed.
func TestDescribeScanned(t *testing.T) {
	s := &scannerScope{scanner: theScanner(withClair("https://a.example.com")), backend: &scriptedEngine{gaps: []string{"npm"}}}
	s.scanner.ScannerStatus().Images.Scanned = 3
	s.coverage.Running = []inventory.CoveredImage{{NotCovered: []string{"npm"}}}
	for _, want := range []string{
		"3 images scanned: no known vulnerabilities; not covered by Clair: npm",
		"3 images scanned: no known vulnerabilities in what Clair covers; of 2 images, nothing is known about Go, debian 12; not covered by Clair: npm",
	} {
		if got := describeScanned(s); got != want {
			t.Errorf("it is described as %q, want %q", got, want)
		}
		s.coverage.Running = append(s.coverage.Running, inventory.CoveredImage{NotCovered: []string{"debian 12", "npm"}}, inventory.CoveredImage{NotCovered: []string{"debian 12", "Go", "npm"}})
	}
}

// TestCountsOf: every count is copied to its field, and a count that exceeds the API's range is clamped.
func TestCountsOf(t *testing.T) {
	got := countsOf(finding.Counts{Critical: 1, High: 2, Medium: 3, Low: 4, Negligible: 5, Unknown: 6, Fixable: 7, KnownExploited: math.MaxInt64}, 8)
	want := v1alpha1.FindingCounts{Critical: 1, High: 2, Medium: 3, Low: 4, Negligible: 5, Unknown: 6, Fixable: 7, KnownExploited: math.MaxInt32, Suppressed: 8}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// TestTopOf: the top findings are cut to five, and each to its bounds.
func TestTopOf(t *testing.T) {
	var findings []finding.Finding
	for range 7 {
		f := vulnerability(repeatToLength("GHSA-", 200), finding.High)
		f.Package.Name, f.Package.Version, f.FixVersions = repeatToLength("p", 300), "1", []string{repeatToLength("v", 300), "2"}
		findings = append(findings, f)
	}
	findings[1].FixVersions = nil
	top := topOf(findings)
	if len(top) != v1alpha1.MaxTopFindings {
		t.Fatalf("%d findings, want %d", len(top), v1alpha1.MaxTopFindings)
	}
	if len(top[0].ID) > maxIDBytes || len(top[0].Package) > maxPackageBytes || len(top[0].FixedIn) > maxVersionBytes || top[0].Severity != "High" {
		t.Errorf("a finding is not within its bounds: %+v", top[0])
	}
	if top[1].FixedIn != "" {
		t.Errorf("a finding without a fix is fixed in %q", top[1].FixedIn)
	}
}

// TestListWorkloads: each workload is listed once and sorted, at most ten of them, beside the number of all.
func TestListWorkloads(t *testing.T) {
	s := &imageScanScope{scan: &v1alpha1.ImageScan{}, uses: inventory.Uses{Complete: true}}
	for i := range 12 {
		pod := aPod(fixtureNamespace, "pod", ownedBy("apps/v1", "StatefulSet", "db-"+string(rune('l'-i)), "uid"))
		for _, container := range []string{"a", "b"} {
			s.uses.Running = append(s.uses.Running, inventory.Use{Pod: pod, Image: inventory.RunningImage{PodImage: inventory.PodImage{Container: container}}})
		}
	}
	s.listWorkloads()
	if got := s.scan.Status; got.WorkloadCount != 12 || len(got.Workloads) != v1alpha1.MaxWorkloads || got.Workloads[0] != "StatefulSet/db-a" {
		t.Errorf("%d workloads: %q", got.WorkloadCount, got.Workloads)
	}
}

// dnsName is an RFC 1123 label.
var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// TestSetWhileTrue: Reconciling and Stalled exist only while they are true, as kstatus requires.
func TestSetWhileTrue(t *testing.T) {
	var conditions []metav1.Condition
	setWhileTrue(&conditions, v1alpha1.ConditionStalled, false, "X", "", 1)
	if len(conditions) != 0 {
		t.Errorf("conditions %+v, want none", conditions)
	}
	setWhileTrue(&conditions, v1alpha1.ConditionStalled, true, "X", "m", 7)
	if len(conditions) != 1 || conditions[0].Status != metav1.ConditionTrue || conditions[0].ObservedGeneration != 7 {
		t.Errorf("conditions %+v, want Stalled", conditions)
	}
	setWhileTrue(&conditions, v1alpha1.ConditionStalled, false, "X", "", 8)
	if len(conditions) != 0 {
		t.Errorf("conditions %+v, want none", conditions)
	}
}

// FuzzImageScanName: for any repository, the name is valid for the API server.
func FuzzImageScanName(f *testing.F) {
	for _, seed := range []string{"docker.io/library/nginx", "a/B_C", "a/", "", "ü", "registry/" + repeatToLength("x-", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, repository string) {
		name := inventory.ImageScanName("uid", image.Key{Digest: digest(repository), Platform: amd64}, repository)
		if len(name) > 57 || !dnsName.MatchString(name) {
			t.Errorf("the name for %q is %q", repository, name)
		}
	})
}

// TestImageScanNames: names are readable and differ by Scanner, digest and platform.
func TestImageScanNames(t *testing.T) {
	key := keyOfImage(web)
	arm := key
	arm.Platform.Architecture = "arm64"
	names := map[string]bool{}
	for _, name := range []string{
		inventory.ImageScanName("a", key, "registry.example.com/shop/web"), inventory.ImageScanName("b", key, "registry.example.com/shop/web"),
		inventory.ImageScanName("a", arm, "registry.example.com/shop/web"), inventory.ImageScanName("a", keyOfImage(vulnerable), "registry.example.com/shop/web"),
	} {
		names[name] = true
		if !strings.HasPrefix(name, "web-") {
			t.Errorf("the name %q does not say what it is about", name)
		}
	}
	if len(names) != 4 {
		t.Errorf("names %v, want four different ones", names)
	}
	if a, b := inventory.ImageScanName("a", key, "x/web"), inventory.ImageScanName("a", key, "y/web"); a != b {
		t.Errorf("the same image is called %q and %q", a, b)
	}
}

// TestSizeOf: the size does not include field management.
func TestSizeOf(t *testing.T) {
	scan := scanOf(aScanner("shop", "all"), web)
	text, err := json.Marshal(scan)
	if err != nil {
		t.Fatal(err)
	}
	scan.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: repeatToLength("m", 5000)}}
	if got := sizeOf(scan); got != len(text) {
		t.Errorf("its size is %d, want %d", got, len(text))
	}
}
