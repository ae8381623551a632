package openreports

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// countingClient counts the requests that write to the API server.
type countingClient struct {
	client.Client
	writes int
}

// Create implements client.Writer.
func (c *countingClient) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	c.writes++
	return c.Client.Create(ctx, o, options...)
}

// Update implements client.Writer.
func (c *countingClient) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	c.writes++
	return c.Client.Update(ctx, o, options...)
}

// Delete implements client.Writer.
func (c *countingClient) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	c.writes++
	return c.Client.Delete(ctx, o, options...)
}

// BenchmarkReports writes as many Reports as a namespace can have, each with as many findings as the configuration allows, to a real API server, and
// makes a second round with nothing changed. "make bench PART=exports" has the table.
func BenchmarkReports(b *testing.B) {
	const images = 10
	w := newWorld(b)
	w.installCRD()
	counting := &countingClient{Client: w.writer.Client}
	w.writer.Client, w.writer.MaxResults = counting, config.MaxReportResults
	for i := range images {
		reference := fmt.Sprint("ghcr.io/shop/web-", i)
		var findings []finding.Finding
		for n := range config.MaxReportResults {
			findings = append(findings, vulnerability(fmt.Sprintf("CVE-2026-%04d", n), finding.High))
		}
		var deployments []string
		for n := range maxReports / images {
			deployments = append(deployments, fmt.Sprintf("web-%d-%d", i, n))
		}
		w.scan(reference, findings...)
		w.runAll(reference, "Deployment", deployments...)
	}
	began := time.Now()
	w.round()
	took, first := time.Since(began), counting.writes
	w.writer.full = time.Time{} // all namespaces are compared again, as every hour
	w.round()

	written := w.reports()
	largest := 0
	for _, r := range written {
		if len(r.Results) != config.MaxReportResults {
			b.Fatalf("a Report has %d results, want %d", len(r.Results), config.MaxReportResults)
		}
		largest = max(largest, storedSize(b, r))
	}
	b.ReportMetric(float64(len(written)), "reports")
	b.ReportMetric(maxReports, "max-reports")
	b.ReportMetric(took.Seconds(), "s")
	b.ReportMetric(float64(first), "first-writes")
	b.ReportMetric(float64(counting.writes-first), "unchanged-writes")
	b.ReportMetric(0, "max-unchanged-writes")
	b.ReportMetric(float64(largest)/1024, "largest-KiB")
	b.ReportMetric(maxReportBytes>>10, "max-largest-KiB")
}

// storedSize returns the bytes of a Report as JSON, without what the API server adds.
func storedSize(b *testing.B, r reports.Report) int {
	b.Helper()
	r.ManagedFields = nil
	raw, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	return len(raw)
}
