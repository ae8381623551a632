package store

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// drawExceptions draws exceptions for what drawFindings draws, in upper and lower case.
func drawExceptions(t *rapid.T) exception.Set {
	some := func(what string, values ...string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(values), 0, 2, rapid.ID[string]).Draw(t, what)
	}
	number := 0
	exceptions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) exception.Exception {
		number++
		e := exception.Exception{
			UID: fmt.Sprint("exception ", number), Status: "not_affected",
			Vulnerabilities: some("ids", "cve-2026-0001", "CVE-2026-0002", "GHSA-a-3", "CVE-2026-0004", "CVE-1999-0001"),
			Images:          some("images", "api", "web:1", "*", "base@"+digest("index one"), "web@sha256:*"),
		}
		for _, name := range some("packages", "openssl", "zli?", "", "Openssl") {
			e.Packages = append(e.Packages, exception.Package{Name: name, Version: rapid.SampledFrom([]string{"", "1", "?"}).Draw(t, "version")})
		}
		if len(e.Vulnerabilities)+len(e.Packages) == 0 {
			e.Vulnerabilities = []string{"CVE-2026-0005"}
		}
		if rapid.Bool().Draw(t, "ends") {
			e.Expires = newClock().Now().Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "days")) * 24 * time.Hour)
		}
		return e
	}), 0, 3).Draw(t, "exceptions")
	return exception.NewSet(exceptions, newClock().Now())
}

func drawImages(t *rapid.T, name string) []exception.Image {
	references := rapid.SliceOfN(rapid.SampledFrom([]string{"api:1", "web:1", "base:2", "web@" + digest("index one")}), 0, 2).Draw(t, "references")
	var images []exception.Image
	for _, reference := range references {
		images = append(images, imageNamed(reference, key(name).Digest))
	}
	return images
}

// TestSuppressedSearchFindsAll checks that the indexed search finds exactly what checking each finding would.
func TestSuppressedSearchFindsAll(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		rapid.Check(t, func(t *rapid.T) {
			for _, name := range []string{"one", "two"} {
				if _, err := f.SaveReport(context.Background(), report(name, drawFindings(t)...), ""); err != nil {
					t.Fatal(err)
				}
			}
			set := drawExceptions(t)
			images := make(map[int64][]exception.Image)
			type row struct {
				id, report int64
				finding    finding.Finding
				gone       bool
			}
			const statement = selectFinding + `, f.id, f.report_id, f.gone_at IS NOT NULL FROM findings f JOIN vulnerabilities v ON v.id = f.vulnerability_id`
			all, err := collect(context.Background(), f.reading(), statement, nil, func(rows *sql.Rows) (r row, err error) {
				r.finding, err = scanFinding(rows, &r.id, &r.report, &r.gone)
				return r, err
			})
			if err != nil {
				t.Fatal(err)
			}
			want, wantGone := map[int64]*exception.Exception{}, map[int64]*exception.Exception{}
			for _, r := range all {
				if _, drawn := images[r.report]; !drawn {
					images[r.report] = drawImages(t, "one")
				}
				if e := set.SuppressedUnderAllNames(images[r.report], r.finding); e != nil {
					map[bool]map[int64]*exception.Exception{false: want, true: wantGone}[r.gone][r.id] = e
				}
			}
			got, err := suppressedFindings(context.Background(), f.reading(), presentCandidates, set, images)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, "covered", got.whole, want)
			if got, err = suppressedFindings(context.Background(), f.reading(), goneCandidates, set, images); err != nil {
				t.Fatal(err)
			}
			compare(t, "covered of those that have gone", got.whole, wantGone)
		})
	})
}

func TestAnImageIsNamedAsItsReferenceIsWritten(t *testing.T) {
	for _, reference := range []string{"nginx", "nginx:1.25", "localhost:5000/a/b", "localhost:5000/a/b:2", "ghcr.io/a/b@" + digest("b")} {
		want, err := image.ParseReference(reference)
		must(t, err)
		equal(t, reference, imageNamed(want.String(), "sha256:1"), exception.Image{Reference: want, Digest: "sha256:1"})
	}
}

func drawFindings(t *rapid.T) []finding.Finding {
	drawn := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) finding.Finding {
		f := vulnerable(
			fmt.Sprintf("CVE-2026-000%d", rapid.IntRange(1, 5).Draw(t, "id")),
			rapid.SampledFrom([]string{"openssl", "zlib"}).Draw(t, "package"),
			severity(finding.Severity(rapid.IntRange(0, 5).Draw(t, "severity"))),
			version(fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "version"))),
		)
		if rapid.Bool().Draw(t, "fixable") {
			fixed(&f)
		}
		f.KnownExploited = rapid.IntRange(0, 9).Draw(t, "exploited") == 0
		f.EPSS = float64(rapid.IntRange(0, 3).Draw(t, "epss")) / 10
		return f
	}), 0, 8).Draw(t, "findings")
	return finding.Merge(drawn)
}

func compare(t *rapid.T, what string, got, want any, options ...cmp.Option) {
	if diff := cmp.Diff(want, got, append(options, cmpopts.EquateEmpty())...); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}
