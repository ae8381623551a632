package controllers

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// BenchmarkImageMetrics scrapes the metrics of as many images as the configuration allows, which are selected from 100,000. It reports the time of
// the first scrape, which selects them, and of the next one. "make bench PART=exports" has the table.
func BenchmarkImageMetrics(b *testing.B) {
	const namespaces, images = 500, 200
	var names []string
	running := map[string][]inventory.CoveredImage{}
	for i := range namespaces {
		name := fmt.Sprint("team-", i)
		names, running[name] = append(names, name), coveredImages(name, images)
	}
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	metrics.LimitImages(config.MaxImageMetrics)
	metrics.images.set(types.NamespacedName{Name: "all"}, names, func(namespace string) []inventory.CoveredImage { return running[namespace] })
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true}))
	b.Cleanup(server.Close)
	scrape := func() (bytes int64, took time.Duration) {
		began := time.Now()
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			b.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		defer response.Body.Close()
		if bytes, err = io.Copy(io.Discard, response.Body); err != nil {
			b.Fatal(err)
		}
		return bytes, time.Since(began)
	}
	_, first := scrape()
	bytes, next := scrape()
	families, err := registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	series := 0
	for _, family := range families {
		series += len(family.GetMetric())
	}
	b.ReportMetric(float64(first.Milliseconds()), "first-ms")
	b.ReportMetric(float64(next.Milliseconds()), "next-ms")
	b.ReportMetric(float64(bytes)/(1<<20), "MiB")
	b.ReportMetric(float64(series), "series")
	b.ReportMetric(8*config.MaxImageMetrics+1, "max-series") // eight of each image, and the number of the other images
}
