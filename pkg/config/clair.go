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

// validate returns an error for each invalid field.
func (c Clair) validate() (errs []error) {
	check := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("clair.%s: %s", field, want))
		}
	}
	check(len(c.Instances) <= maxInstances, "instances", fmt.Sprintf("more than %d", maxInstances))
	seen := map[string]bool{}
	for i, instance := range c.Instances {
		field := fmt.Sprintf("instances[%d]", i)
		url, err := api.CanonicalURL(instance.URL)
		if err != nil {
			check(false, field+".url", err.Error())
		} else {
			check(!seen[url], field+".url", fmt.Sprintf("%s stands there twice", url))
			seen[url] = true
		}
		if err := validateCABundle("clair."+field+".caBundle", instance.CABundle); err != nil {
			errs = append(errs, err)
		}
		check(len(instance.CABundle) <= maxDatabaseBundle, field+".caBundle", "must be at most 64 KiB: shorten it to the authorities that are needed")
		check(len(instance.Updaters) <= maxUpdaters, field+".updaters", fmt.Sprintf("more than %d", maxUpdaters))
		check(!slices.ContainsFunc(instance.Updaters, func(u string) bool { return strings.TrimSpace(u) == "" }), field+".updaters", "must not hold an empty name")
	}
	check(c.PollInterval.Duration >= 5*time.Second, "pollInterval", "must be at least 5s")
	check(c.MaxAge.Duration >= time.Hour, "maxAge", "must be at least 1h")
	check(c.MaxIndexing >= 1 && c.MaxIndexing <= 100, "maxIndexing", "must be between 1 and 100")
	check(c.MaxIndexingPerNamespace >= 1 && c.MaxIndexingPerNamespace <= 100, "maxIndexingPerNamespace", "must be between 1 and 100")
	check(c.IndexTimeout.Duration >= 10*time.Second && c.IndexTimeout.Duration <= time.Hour, "indexTimeout", "must be between 10s and 1h")
	check(c.ReportsPerSecond >= 1 && c.ReportsPerSecond <= 1000, "reportsPerSecond", "must be between 1 and 1000")
	return errs
}
