package config

import (
	"strings"
	"testing"
)

// TestInvalidValueNamesItsField: the error names the fields of all values that cannot be decoded.
func TestInvalidValueNamesItsField(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"a duration in words":   {"grype: {match: {idleTimeout: often}}", []string{`grype.match.idleTimeout: time: invalid duration "often"`}},
		"a duration, no unit":   {"grype: {match: {idleTimeout: 10}}", []string{"grype.match.idleTimeout: "}},
		"a quantity in words":   {"grype: {catalog: {scratchSize: a lot}}", []string{"grype.catalog.scratchSize: quantities must match"}},
		"one of a list":         {"grype: {catalog: {memoryLadder: [4Gi, 8Gb]}}", []string{"grype.catalog.memoryLadder[1]: "}},
		"a limit":               {"grype: {catalog: {resources: {limits: {memory: 2GiB}}}}", []string{"grype.catalog.resources.limits.memory: "}},
		"a number in words":     {"grype: {catalog: {maxJobs: four}}", []string{"grype.catalog.maxJobs: "}},
		"a misspelled field":    {"grype: {catalog: {maxjob: 4}}", []string{`grype.catalog.maxjob: unknown field "maxjob"`}},
		"a value for a section": {"grype: 5", []string{"grype: "}},
		"in a list of sections": {"registries: [{host: a}, {host: b, plainHTTP: maybe}]", []string{"registries[1].plainHTTP: "}},
		"several":               {"grype: {match: {idleTimeout: often, maxWorkers: x}, nonsense: 1}", []string{"grype.match.idleTimeout: ", "grype.match.maxWorkers: ", "grype.nonsense: "}},
		"a field twice":         {"grype:\n  match: {}\n  match: {}\n", []string{`"match" already set`}},
		"no YAML":               {"grype: [", []string{"line 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tt.text)
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "unmarshaling") {
				t.Errorf("the error %q speaks of the decoder", err)
			}
		})
	}
}
