package export

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// BenchmarkTools exports 1,000 workloads, which run 100 images with 200 findings and 500 packages each, and then again with nothing changed. It
// reports the requests and the bytes of both runs. "make bench PART=exports" has the table.
func BenchmarkTools(b *testing.B) {
	const images, workloadsOfImage, findings, packages = 100, 10, 200, 500
	var components []string
	for i := range packages {
		components = append(components, fmt.Sprintf(`{"type":"library","name":"package-%d","version":"1.%d","purl":"pkg:deb/debian/package-%d@1.%d?arch=amd64"}`, i, i, i, i))
	}
	for name, newWorld := range map[string]func(testing.TB) *world{TypeDefectDojo: newWorld, TypeDependencyTrack: newTrackWorld} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			encoder, err := zstd.NewWriter(nil)
			w.must(err)
			for i := range images {
				image := fmt.Sprint("image-", i)
				var deployments []string
				for n := range workloadsOfImage {
					deployments = append(deployments, fmt.Sprintf("web-%d-%d", i, n))
				}
				w.runs(image, deployments...)
				bom := strings.Replace(emptyBOM, `"components":[]`, fmt.Sprintf(`"components":[{"type":"container","name":%q},%s]`, image, strings.Join(components, ",")), 1)
				w.catalogs(image, string(encoder.EncodeAll([]byte(bom), nil)))
				var all []finding.Finding
				for n := range findings {
					all = append(all, finding.Finding{
						ID: fmt.Sprintf("CVE-2026-%d", n), Severity: finding.High, FixState: finding.FixStateFixed, FixVersions: []string{"2.0"}, Description: strings.Repeat("a flaw ", 50),
						Package: finding.Package{Name: fmt.Sprint("package-", n%packages), Version: "1.0", Type: "deb", PURL: fmt.Sprintf("pkg:deb/debian/package-%d@1.0", n%packages)},
					})
				}
				w.matches(image, all...)
			}
			run := func(which string) []Request {
				before := len(w.dojo.requests)
				w.export()
				requests, bytes := w.dojo.requests[before:], 0
				for _, r := range requests {
					bytes += len(r.Document)
				}
				b.ReportMetric(float64(len(requests)), which+"-requests")
				b.ReportMetric(float64(bytes)/(1<<20), which+"-MiB")
				return requests
			}
			b.ResetTimer()
			first := run("first")
			b.StopTimer()
			b.ReportMetric(b.Elapsed().Seconds(), "s")
			if len(first) != images*workloadsOfImage {
				b.Errorf("%d requests, want one for each of %d workloads", len(first), images*workloadsOfImage)
			}
			largest := len(slices.MaxFunc(first, func(a, b Request) int { return len(a.Document) - len(b.Document) }).Document)
			b.ReportMetric(float64(largest)/1024, "largest-KiB")
			b.ReportMetric(MaxDocumentBytes>>10, "max-largest-KiB")
			run("unchanged")
			b.ReportMetric(0, "max-unchanged-requests")
		})
	}
}
