package store

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/prometheus/client_golang/prometheus"
)

// TestMetrics checks sizes, schema and transactions, and that metrics can be collected while the store's file is missing.
func TestMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := OpenSQLite(t.Context(), path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	if err := s.SetDataVersion(t.Context(), "grype", DataVersion{Version: "1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckHealth(t.Context()); err != nil {
		t.Fatal(err)
	}
	values := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				name := family.GetName()
				for _, label := range metric.GetLabel() {
					name += " " + label.GetValue()
				}
				all[name] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
		return all
	}
	migrations, err := filepath.Glob("migrations/sqlite/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	got := values()
	latest, err := goose.NumericComponent(migrations[len(migrations)-1])
	if err != nil {
		t.Fatal(err)
	}
	if want := float64(latest); got["scanner_operator_store_schema_version"] != want {
		t.Errorf("the schema is %v, want %v", got["scanner_operator_store_schema_version"], want)
	}
	for _, name := range []string{
		"scanner_operator_store_size_bytes database", "scanner_operator_store_size_bytes log", "scanner_operator_store_volume_available_bytes",
		"scanner_operator_store_transaction_duration_seconds write", "scanner_operator_store_migration_duration_seconds",
	} {
		if got[name] <= 0 {
			t.Errorf("%s is %v, want more than 0", name, got[name])
		}
	}
	if got["scanner_operator_store_healthy"] != 1 {
		t.Error("a store that works is not healthy")
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckHealth(t.Context()); err == nil {
		t.Fatal("nothing is wrong with a store whose file is away")
	}
	if got := values(); got["scanner_operator_store_healthy"] != 0 || got["scanner_operator_store_size_bytes database"] <= 0 {
		t.Errorf("of a store whose file is away is said: %v", got)
	}
}
