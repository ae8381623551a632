package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestClairDefaults: settings of clair that are not in the file have the documented defaults.
func TestClairDefaults(t *testing.T) {
	config, err := load(t, "clair: {instances: [{url: HTTP://Clair.example.com:80/}]}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Clair{
		Instances:    []ClairInstance{{URL: "HTTP://Clair.example.com:80/"}},
		PollInterval: metav1.Duration{Duration: time.Minute}, MaxAge: metav1.Duration{Duration: 120 * time.Hour},
		MaxIndexing: 4, MaxIndexingPerNamespace: 2, IndexTimeout: metav1.Duration{Duration: 10 * time.Minute}, ReportsPerSecond: 20,
	}
	if diff := cmp.Diff(want, config.Clair); diff != "" {
		t.Errorf("clair (-want +got):\n%s", diff)
	}
}

// TestInvalidClair: each invalid setting is an error that names the field and quotes no credentials.
func TestInvalidClair(t *testing.T) {
	many := strings.Repeat("{url: http://a.example.com},", 65)
	for text, want := range map[string]string{
		"instances: [{url: clair}]":                                                   "clair.instances[0].url: must be a URL",
		"instances: [{url: 'http://u:s3cret@clair'}]":                                 "clair.instances[0].url: must not hold credentials",
		"instances: [{url: http://a}, {url: 'http://A:80/'}]":                         "clair.instances[1].url: http://a stands there twice",
		"instances: [" + many + "]":                                                   "clair.instances: more than 64",
		"instances: [{url: http://a, updaters: [debian/updater, '']}]":                "clair.instances[0].updaters: must not hold an empty name",
		"instances: [{url: http://a, updaters: [" + strings.Repeat("a,", 257) + "]}]": "clair.instances[0].updaters: more than 256",
		"instances: [{url: http://a, caBundle: s3cret}]":                              "clair.instances[0].caBundle",
		"pollInterval: 4s":             "clair.pollInterval: must be at least 5s",
		"maxAge: 59m":                  "clair.maxAge: must be at least 1h",
		"maxIndexing: 0":               "clair.maxIndexing: must be between 1 and 100",
		"maxIndexingPerNamespace: 101": "clair.maxIndexingPerNamespace: must be between 1 and 100",
		"indexTimeout: 2h":             "clair.indexTimeout: must be between 10s and 1h",
		"reportsPerSecond: 0":          "clair.reportsPerSecond: must be between 1 and 1000",
	} {
		_, err := load(t, fmt.Sprintf("clair: {%s}\n", text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}
