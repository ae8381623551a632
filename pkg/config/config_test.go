package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// load loads a configuration file with this content.
func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

// TestDefaults: settings that are not in the file have the documented defaults. No file and an empty file give the same.
func TestDefaults(t *testing.T) {
	config, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{}", "# only a comment\n", "grype: {}\n"} {
		loaded, err := load(t, text)
		if err != nil {
			t.Fatalf("the file %q: %v", text, err)
		}
		if diff := cmp.Diff(config, loaded); diff != "" {
			t.Errorf("the file %q differs from the defaults:\n%s", text, diff)
		}
	}
	if err := config.Validate(); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
	for field, pair := range map[string][2]any{
		"grype.database.url":                {config.Grype.Database.URL, "https://grype.anchore.io/databases"},
		"grype.database.pollInterval":       {config.Grype.Database.PollInterval.Duration, time.Hour},
		"grype.database.volume.size":        {config.Grype.Database.Volume.Size.String(), "10Gi"},
		"grype.catalog.maxJobs":             {config.Grype.Catalog.MaxJobs, 4},
		"grype.catalog.deadline":            {config.Grype.Catalog.Deadline.Duration, 15 * time.Minute},
		"grype.catalog.scratchSize":         {config.Grype.Catalog.ScratchSize.String(), "10Gi"},
		"grype.catalog.maxJobsPerNamespace": {config.Grype.Catalog.MaxJobsPerNamespace, 3},
		"grype.catalog.memoryLadder":        {fmt.Sprint(config.Grype.Catalog.MemoryLadder[0].String(), " ", config.Grype.Catalog.MemoryLadder[1].String()), "4Gi 8Gi"},
		"grype.catalog.history":             {config.Grype.Catalog.History, JobHistory{Failed: 10, TTL: metav1.Duration{Duration: time.Hour}}},
		"grype.catalog memory limit":        {config.Grype.Catalog.Resources.Limits.Memory().String(), "2Gi"},
		"grype.match.maxWorkers":            {config.Grype.Match.MaxWorkers, 2},
		"openReports":                       {config.OpenReports, OpenReports{Mode: "None", MaxResults: 50}},
		"metrics.maxImages":                 {config.Metrics.MaxImages, 0},
		"notifications.scansFailingAfter":   {config.Notifications.ScansFailingAfter.Duration, 6 * time.Hour},
		"notifications.imagesFailedAfter":   {config.Notifications.ImagesFailedAfter.Duration, time.Hour},
		"ingest.spoolSize":                  {config.Ingest.SpoolSize.String(), "1Gi"},
		"ingest.spoolSizePerNamespace":      {config.Ingest.SpoolSizePerNamespace.String(), "256Mi"},
		"ingest.storeSizePerNamespace":      {config.Ingest.StoreSizePerNamespace.String(), "1Gi"},
		"notifications.logRetention":        {config.Notifications.LogRetention.Duration, 2160 * time.Hour},
		"limits":                            {config.Limits, Limits{ScannersPerNamespace: 20, ImageScansPerNamespace: 5000}},
		"grype.match.imagesPerWorker":       {config.Grype.Match.ImagesPerWorker, 500},
		"grype.match.idleTimeout":           {config.Grype.Match.IdleTimeout.Duration, 10 * time.Minute},
		"grype.match.deadline":              {config.Grype.Match.Deadline.Duration, 5 * time.Minute},
		"grype.match memory limit":          {config.Grype.Match.Resources.Limits.Memory().String(), "1Gi"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v by default, want %v", field, pair[0], pair[1])
		}
	}
}

// TestDefaultsAreIndependent: a change of one configuration changes no other.
func TestDefaultsAreIndependent(t *testing.T) {
	changed := Default()
	changed.Grype.Catalog.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("9Gi")
	limits := Default().Grype.Catalog.Resources.Limits
	if got := limits.Memory().String(); got != "2Gi" {
		t.Errorf("the default memory limit has become %s", got)
	}
}

// TestLoadOverDefaults: the settings of a file replace the defaults, and all others keep them.
func TestLoadOverDefaults(t *testing.T) {
	config, err := load(t, `
clusterName: prod-eu.1
grype:
  database:
    url: http://mirror.example.com/databases/latest.json
    volume: {claimName: databases}
  catalog:
    maxJobs: 1
    resources: {limits: {memory: 4Gi}}
registries:
- {host: "198.51.100.10:5000", plainHTTP: true}
- {host: ghcr.io}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.ClusterName = "prod-eu.1"
	want.Grype.Database.URL = "http://mirror.example.com/databases/latest.json"
	want.Grype.Database.Volume.ClaimName = "databases"
	want.Grype.Catalog.MaxJobs = 1
	want.Grype.Catalog.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("4Gi")}
	want.Registries = []Registry{{Host: "198.51.100.10:5000", PlainHTTP: true}, {Host: "ghcr.io"}}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

// TestLoadInvalid: an invalid file is an error that names the file and the mistake.
func TestLoadInvalid(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"a misspelled field":       {"grype:\n  catalog: {maxJob: 3}\n", "maxJob"},
		"a field of another level": {"maxJobs: 3\n", "maxJobs"},
		"a field twice":            {"registries: []\nregistries: []\n", "registries"},
		"no YAML":                  {"grype: [\n", "yaml"},
		"a list":                   {"- a\n", "config.yaml"},
		"a text for a number":      {"grype:\n  catalog: {maxJobs: many}\n", "maxJobs"},
		"no duration":              {"grype:\n  match: {idleTimeout: soon}\n", "soon"},
		"no quantity":              {"grype:\n  catalog: {scratchSize: much}\n", "quantities"},
		"a value out of range":     {"grype:\n  catalog: {maxJobs: 0}\n", "grype.catalog.maxJobs"},
		"a cluster with a slash":   {"clusterName: arn:aws:eks:eu-west-1:1:cluster/prod\n", "clusterName"},
		"a cluster with a tag":     {"clusterName: <!channel>\n", "clusterName"},
		"a cluster with a newline": {"clusterName: \"prod\\n\"\n", "clusterName"},
		"a long cluster":           {"clusterName: " + strings.Repeat("a", 64) + "\n", "clusterName"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tt.text)
			if err == nil {
				t.Fatalf("the file is accepted:\n%s", tt.text)
			}
			for _, want := range []string{tt.want, "config.yaml"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not name %s", err, want)
				}
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "missing.yaml")); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("a missing file gives %v, want an error that names it", err)
	}
}

// invalidSettings has one entry for each way in which a value can be invalid, with the field that the error names.
var invalidSettings = map[string]struct {
	field  string
	change func(*Config)
}{
	"no database":                 {"grype.database.url", func(c *Config) { c.Grype.Database.URL = "" }},
	"another scheme":              {"grype.database.url", func(c *Config) { c.Grype.Database.URL = "ftp://example.com/db" }},
	"only a host":                 {"grype.database.url", func(c *Config) { c.Grype.Database.URL = "example.com/db" }},
	"credentials in it":           {"grype.database.url", func(c *Config) { c.Grype.Database.URL = "https://user:hunter2@example.com/db" }},
	"credentials, no URL":         {"grype.database.url", func(c *Config) { c.Grype.Database.URL = "https://user:hunter2@example.com:port/" }},
	"no certificates":             {"grype.database.caBundle", func(c *Config) { c.Grype.Database.CABundle = "hunter2" }},
	"polled without pause":        {"grype.database.pollInterval", func(c *Config) { c.Grype.Database.PollInterval.Duration = time.Second }},
	"no volume":                   {"grype.database.volume.size", func(c *Config) { c.Grype.Database.Volume.Size = resource.Quantity{} }},
	"no Jobs":                     {"grype.catalog.maxJobs", func(c *Config) { c.Grype.Catalog.MaxJobs = 0 }},
	"far too many Jobs":           {"grype.catalog.maxJobs", func(c *Config) { c.Grype.Catalog.MaxJobs = 1001 }},
	"no Jobs of a Scanner":        {"grype.catalog.maxJobsPerNamespace", func(c *Config) { c.Grype.Catalog.MaxJobsPerNamespace = 0 }},
	"a ladder that does not rise": {"grype.catalog.memoryLadder[1]", func(c *Config) { c.Grype.Catalog.MemoryLadder[1] = resource.MustParse("0") }},
	"a rung of nothing": {"grype.catalog.memoryLadder[0]", func(c *Config) {
		c.Grype.Catalog.MemoryLadder[0] = resource.MustParse("0")
	}},
	"an endless ladder": {"grype.catalog.memoryLadder", func(c *Config) {
		c.Grype.Catalog.MemoryLadder = append(c.Grype.Catalog.MemoryLadder, quantities("9Gi", "10Gi", "11Gi", "12Gi", "13Gi", "14Gi", "15Gi")...)
	}},
	"a request above the limit": {"grype.catalog.resources.requests.memory", func(c *Config) {
		c.Grype.Catalog.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("3Gi")}
	}},
	"less than no images":    {"metrics.maxImages", func(c *Config) { c.Metrics.MaxImages = -1 }},
	"images without bound":   {"metrics.maxImages", func(c *Config) { c.Metrics.MaxImages = 10_001 }},
	"no mode":                {"openReports.mode", func(c *Config) { c.OpenReports.Mode = "" }},
	"another mode":           {"openReports.mode", func(c *Config) { c.OpenReports.Mode = "Off" }},
	"no results":             {"openReports.maxResults", func(c *Config) { c.OpenReports.MaxResults = 0 }},
	"too many results":       {"openReports.maxResults", func(c *Config) { c.OpenReports.MaxResults = 501 }},
	"less than no history":   {"grype.catalog.history.failed", func(c *Config) { c.Grype.Catalog.History.Failed = -1 }},
	"too long a history":     {"grype.catalog.history.succeeded", func(c *Config) { c.Grype.Catalog.History.Succeeded = 1001 }},
	"no time for history":    {"grype.catalog.history.ttl", func(c *Config) { c.Grype.Catalog.History.TTL.Duration = 0 }},
	"history for ever":       {"grype.catalog.history.ttl", func(c *Config) { c.Grype.Catalog.History.TTL.Duration = 1000 * time.Hour }},
	"no age":                 {"grype.database.maxAge", func(c *Config) { c.Grype.Database.MaxAge.Duration = 0 }},
	"no time":                {"grype.catalog.deadline", func(c *Config) { c.Grype.Catalog.Deadline.Duration = 0 }},
	"an unknown format":      {"grype.catalog.additionalFormats[1]", func(c *Config) { c.Grype.Catalog.AdditionalFormats = []string{"spdx-json", "spdx-tag-value"} }},
	"the format of all":      {"grype.catalog.additionalFormats[1]", func(c *Config) { c.Grype.Catalog.AdditionalFormats = []string{"spdx-json", "syft-json"} }},
	"a format twice":         {"grype.catalog.additionalFormats[1]", func(c *Config) { c.Grype.Catalog.AdditionalFormats = []string{"spdx-json", "spdx-json"} }},
	"less than no scratch":   {"grype.catalog.scratchSize", func(c *Config) { c.Grype.Catalog.ScratchSize = resource.MustParse("-1") }},
	"no match workers":       {"grype.match.maxWorkers", func(c *Config) { c.Grype.Match.MaxWorkers = 0 }},
	"too many match workers": {"grype.match.maxWorkers", func(c *Config) { c.Grype.Match.MaxWorkers = 101 }},
	"no images per worker":   {"grype.match.imagesPerWorker", func(c *Config) { c.Grype.Match.ImagesPerWorker = 0 }},
	"scans fail at once":     {"notifications.scansFailingAfter", func(c *Config) { c.Notifications.ScansFailingAfter.Duration = 59 * time.Second }},
	"scans fail for ever":    {"notifications.scansFailingAfter", func(c *Config) { c.Notifications.ScansFailingAfter.Duration = 721 * time.Hour }},
	"images fail at once":    {"notifications.imagesFailedAfter", func(c *Config) { c.Notifications.ImagesFailedAfter.Duration = 0 }},
	"no spool":               {"ingest.spoolSize", func(c *Config) { c.Ingest.SpoolSize = resource.MustParse("1023Ki") }},
	"no share of the spool":  {"ingest.spoolSizePerNamespace", func(c *Config) { c.Ingest.SpoolSizePerNamespace = resource.Quantity{} }},
	"no store":               {"ingest.storeSizePerNamespace", func(c *Config) { c.Ingest.StoreSizePerNamespace = resource.MustParse("0") }},
	"no log":                 {"notifications.logRetention", func(c *Config) { c.Notifications.LogRetention.Duration = 59 * time.Minute }},
	"a log for ever":         {"notifications.logRetention", func(c *Config) { c.Notifications.LogRetention.Duration = 87601 * time.Hour }},
	"no time to match":       {"grype.match.deadline", func(c *Config) { c.Grype.Match.Deadline.Duration = 0 }},
	"a day to match":         {"grype.match.deadline", func(c *Config) { c.Grype.Match.Deadline.Duration = 24 * time.Hour }},
	"no idle time":           {"grype.match.idleTimeout", func(c *Config) { c.Grype.Match.IdleTimeout.Duration = -time.Second }},
	"a nameless registry":    {"registries[0].host", func(c *Config) { c.Registries = []Registry{{}} }},
	"a registry with scheme": {"registries[0].host", func(c *Config) { c.Registries = []Registry{{Host: "https://ghcr.io"}} }},
	"a registry twice":       {"registries[1].host", func(c *Config) { c.Registries = []Registry{{Host: "ghcr.io"}, {Host: "ghcr.io", PlainHTTP: true}} }},
}

// TestValidate: each error is one line that begins with its field. Secrets are not repeated.
func TestValidate(t *testing.T) {
	for name, tt := range invalidSettings {
		t.Run(name, func(t *testing.T) {
			config := Default()
			tt.change(&config)
			err := config.Validate()
			if err == nil {
				t.Fatal("it is accepted")
			}
			if !strings.HasPrefix(err.Error(), tt.field+": ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %q, want one line that begins with %q", err, tt.field+": ")
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error gives away a password: %q", err)
			}
		})
	}
}

// TestSpoolShareBound: one namespace's share cannot be more than the whole spool.
func TestSpoolShareBound(t *testing.T) {
	config := Default()
	config.Ingest.SpoolSizePerNamespace = resource.MustParse("2Gi")
	if err := config.Validate(); err == nil || !strings.HasPrefix(err.Error(), "ingest.spoolSizePerNamespace: ") {
		t.Errorf("the error is %v, want one about ingest.spoolSizePerNamespace", err)
	}
}

// TestValidateAllAtOnce: the error names all invalid fields of a file.
func TestValidateAllAtOnce(t *testing.T) {
	config := Default()
	for _, tt := range invalidSettings {
		if !strings.HasPrefix(tt.field, "registries") {
			tt.change(&config)
		}
	}
	config.Registries = []Registry{{}, {Host: "a/b"}, {Host: "c"}, {Host: "c"}}
	err := config.Validate()
	if err == nil {
		t.Fatal("it is accepted")
	}
	for _, want := range []string{"registries[0].host", "registries[1].host", "registries[3].host"} {
		if !strings.Contains(err.Error(), want+": ") {
			t.Errorf("%s is not named in:\n%v", want, err)
		}
	}
	for _, tt := range invalidSettings {
		if !strings.HasPrefix(tt.field, "registries") && !strings.Contains(err.Error(), tt.field+": ") {
			t.Errorf("%s is not named in:\n%v", tt.field, err)
		}
	}
}

func quantities(texts ...string) (all []resource.Quantity) {
	for _, text := range texts {
		all = append(all, resource.MustParse(text))
	}
	return all
}
