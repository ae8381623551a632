package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
)

// Bounds of the settings for Clair.
const (
	maxInstances = 64
	maxUpdaters  = 256
)

// ByURL returns the Clair instances by canonical URL. The settings must be valid.
func (c Clair) ByURL() map[string]ClairInstance {
	instances := map[string]ClairInstance{}
	for _, instance := range c.Instances {
		if url, err := api.CanonicalURL(instance.URL); err == nil {
			instances[url] = instance
		}
	}
	return instances
}

func (c Clair) validate(errs *fieldErrors) {
	errs.check(len(c.Instances) <= maxInstances, "clair.instances", "more than %d", maxInstances)
	seen := map[string]bool{}
	for i, instance := range c.Instances {
		field := fmt.Sprintf("clair.instances[%d]", i)
		url, err := api.CanonicalURL(instance.URL)
		if err != nil {
			errs.add(field+".url", "%v", err)
		} else {
			errs.check(!seen[url], field+".url", "%s stands there twice", url)
			seen[url] = true
		}
		errs.checkCABundle(field+".caBundle", instance.CABundle)
		errs.check(len(instance.CABundle) <= maxDatabaseBundle, field+".caBundle", "must be at most 64 KiB: shorten it to the authorities that are needed")
		errs.check(len(instance.Updaters) <= maxUpdaters, field+".updaters", "more than %d", maxUpdaters)
		errs.check(!slices.ContainsFunc(instance.Updaters, func(u string) bool { return strings.TrimSpace(u) == "" }), field+".updaters", "must not hold an empty name")
	}
	errs.check(c.PollInterval.Duration >= 5*time.Second, "clair.pollInterval", "must be at least 5s")
	errs.check(c.MaxAge.Duration >= time.Hour, "clair.maxAge", "must be at least 1h")
	errs.checkRange("clair.maxIndexing", c.MaxIndexing, 1, 100)
	errs.checkRange("clair.maxIndexingPerNamespace", c.MaxIndexingPerNamespace, 1, 100)
	errs.check(c.IndexTimeout.Duration >= 10*time.Second && c.IndexTimeout.Duration <= time.Hour, "clair.indexTimeout", "must be between 10s and 1h")
	errs.checkRange("clair.reportsPerSecond", c.ReportsPerSecond, 1, 1000)
}
