package throttle

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestLatestRetryAfterWins: of several Retry-After times the latest wins, and a Job that only avoided a throttled registry does not
// extend it.
func TestLatestRetryAfterWins(t *testing.T) {
	var known Registries
	until := func() string {
		return known.Throttled(noon, "shop")["quay.io"].Sub(noon).String()
	}
	for _, step := range []struct {
		asked time.Duration
		want  string
	}{{time.Minute, "1m0s"}, {time.Hour, "1h0m0s"}, {10 * time.Second, "1h0m0s"}, {0, "1h0m0s"}} {
		failure := &backend.Failure{Reason: "RegistryThrottled", Registry: "quay.io", RetryAfter: step.asked}
		known.Record(noon, "shop", failure)
		if got := until(); got != step.want || failure.RetryAfter.String() != step.want {
			t.Errorf("after %s was asked for: the registry is left alone for %s and the image for %s, want %s", step.asked, got, failure.RetryAfter, step.want)
		}
	}
}

// TestThrottlesAreBounded: the number of remembered registries is bounded, since a tenant's Jobs may name any.
func TestThrottlesAreBounded(t *testing.T) {
	var known Registries
	for i := range 10 * maxHosts {
		known.Record(noon, "shop", &backend.Failure{Reason: "RegistryThrottled", Registry: fmt.Sprintf("r%d.example.com", i), RetryAfter: time.Hour})
	}
	if got := len(known.until["shop"]); got != maxHosts {
		t.Errorf("%d registries are remembered, want %d", got, maxHosts)
	}
	known.Record(noon, "shop", &backend.Failure{Reason: "RegistryThrottled", Registry: "docker.io", RetryAfter: time.Minute})
	if _, found := known.Throttled(noon, "shop")["docker.io"]; !found || len(known.until["shop"]) != maxHosts {
		t.Errorf("of %d registries docker.io is left alone: %v, want that nobody can take the room of who comes later", len(known.until["shop"]), found)
	}
	known.Record(noon, "shop", &backend.Failure{Reason: "RegistryThrottled", Registry: "last.example.com", RetryAfter: time.Hour})
	if _, found := known.Throttled(noon, "shop")["docker.io"]; !found {
		t.Error("docker.io is forgotten for one that wants to be left alone for longer")
	}
	later := noon.Add(time.Hour)
	known.Record(later, "shop", &backend.Failure{Reason: "RegistryThrottled", Registry: "new.example.com", RetryAfter: time.Hour})
	if _, found := known.Throttled(later, "shop")["new.example.com"]; !found || len(known.until["shop"]) != 1 {
		t.Errorf("%d registries are remembered after the others' time is over, want the new one", len(known.until["shop"]))
	}
	known.Record(noon, "shop", &backend.Failure{Reason: "ImageNotFound", Registry: "gone.example.com", RetryAfter: time.Hour})
	if _, found := known.Throttled(noon, "shop")["gone.example.com"]; found {
		t.Error("a registry is left alone for a failure that is none of throttling")
	}
}

// TestThrottledHosts: Throttled returns the throttled registries of one credential scope, until their time is over.
func TestThrottledHosts(t *testing.T) {
	var known Registries
	for host, wait := range map[string]time.Duration{"quay.io": time.Hour, "index.docker.io": 2 * time.Hour, "ghcr.io": time.Minute} {
		known.Record(noon, "shop", &backend.Failure{Reason: "RegistryThrottled", Registry: host, RetryAfter: wait})
	}
	want := map[string]time.Time{"docker.io": noon.Add(2 * time.Hour), "quay.io": noon.Add(time.Hour)}
	if diff := cmp.Diff(want, known.Throttled(noon.Add(time.Minute), "shop")); diff != "" {
		t.Errorf("after a minute (-want +got):\n%s", diff)
	}
	if got := known.Throttled(noon, "bank"); got != nil {
		t.Errorf("another namespace spares %v", got)
	}
}
