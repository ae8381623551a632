package grype

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// throttledProgress reports whether an image has to wait because all of its registries are throttled and none of them has a mirror.
func (b *Backend) throttledProgress(img backend.Image) (backend.Progress, bool) {
	hosts, now := registriesOf(img), b.Clock.Now()
	var first time.Time
	for _, host := range hosts {
		until, throttled := b.throttles.ThrottledUntil(now, img.Scope, host)
		if !throttled || b.hasMirrors(host) {
			return backend.Progress{}, false
		}
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	if len(hosts) == 0 {
		return backend.Progress{}, false
	}
	verb := "asks"
	if len(hosts) > 1 {
		verb = "ask"
	}
	message := fmt.Sprintf("%s %s to wait until %s", strings.Join(hosts, " and "), verb, first.UTC().Format(time.RFC3339))
	return backend.Waiting(workerapi.ReasonRegistryThrottled, message, max(first.Sub(now), time.Second)), true
}

// throttledRegistries returns the image's registries that are throttled. A Job uses only the mirrors of these.
func (b *Backend) throttledRegistries(img backend.Image) []string {
	return slices.DeleteFunc(registriesOf(img), func(host string) bool {
		_, throttled := b.throttles.ThrottledUntil(b.Clock.Now(), img.Scope, host)
		return !throttled
	})
}

// hasMirrors reports whether the configuration has mirrors for a registry.
func (b *Backend) hasMirrors(host string) bool {
	return slices.ContainsFunc(b.Config.Registries, func(registry config.Registry) bool {
		return workerapi.CanonicalHost(registry.Host) == host && len(registry.Mirrors) > 0
	})
}

// registriesOf returns the hosts that an image can be pulled from, without duplicates.
func registriesOf(img backend.Image) (hosts []string) {
	for _, text := range img.PullReferences {
		ref, err := image.ParseReference(text)
		if err != nil {
			continue // the image's Job reports what is wrong
		}
		host, _, _ := strings.Cut(ref.Repository, "/")
		if host = workerapi.CanonicalHost(host); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
