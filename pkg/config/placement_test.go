package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The configuration has the fields of a pod, and refuses by name what the API server would refuse in each Job.
func TestPlacement(t *testing.T) {
	for text, want := range map[string]string{
		"nodeSelector: {pool: scanning}": "",
		"tolerations: [{key: pool, operator: Exists, effect: NoExecute, tolerationSeconds: 60}, {operator: Exists}]": "",
		"priorityClassName: low": "",
		"nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [a]}]}]}}":        "",
		"nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: NotIn, values: [a]}]}]}}": "",
		"nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [a, b]}]}]}}": ".nodeSelectorTerms[0].matchFields[0]",
		"nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.uid, operator: In, values: [a]}]}]}}":     ".nodeSelectorTerms[0].matchFields[0]",
		"nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: Exists}]}]}}":             ".nodeSelectorTerms[0].matchFields[0]",
		"nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: Like}]}]}}":                   `.matchExpressions[0].operator: "Like" must be In`,
		"nodeSelector: {pool: not a value}":                                                       ".nodeSelector[pool]",
		"tolerations: [{operator: Equal}]":                                                        ".tolerations[0].key",
		"tolerations: [{key: a, operator: Like}]":                                                 ".tolerations[0].operator",
		"tolerations: [{key: a, effect: NoRun}]":                                                  ".tolerations[0].effect",
		"tolerations: [{key: a, operator: Exists, value: b}]":                                     ".tolerations[0].value",
		"tolerations: [{key: a, value: b, tolerationSeconds: 1}]":                                 ".tolerations[0].tolerationSeconds",
		"tolerations: [{key: a b, operator: Exists}]":                                             ".tolerations[0]",
		"tolerations: [{key: a, value: x y}]":                                                     ".tolerations[0]",
		"priorityClassName: Low":                                                                  ".priorityClassName",
		"nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}": ".nodeSelectorTerms",
		"nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In}]}]}}":          ".nodeSelectorTerms[0].matchExpressions[0]",
		"nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {matchExpressions: [{key: pool, operator: Exists}]}}]}": "[0].weight",
	} {
		for _, part := range []string{"catalog", "match"} {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte("grype:\n  "+part+":\n    "+text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			switch _, err := Load(path); {
			case want == "" && err != nil:
				t.Errorf("%s: %s: %v", part, text, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "grype."+part)):
				t.Errorf("%s: %s: the error is %v, want %q", part, text, err, want)
			}
		}
	}
}
