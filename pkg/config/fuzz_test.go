package config

import (
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/registry"
)

// FuzzDecode: an error about a configuration names one of its fields. What is accepted is also accepted by the code that uses it.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"grype:\n  catalog: {maxJobs: 3, scratchSize: 2Gi}\n  database: {url: https://mirror.example.com/db, pollInterval: 1h}\n",
		"registries:\n- {host: 'registry.example.com:5000', plainHTTP: true, mirrors: [mirror.example.com/hub, 'localhost/a']}\n", "registries: [{host: '[::1]:5000'}, {host: A.b}]\n",
		"clair:\n  instances: [{url: 'http://Clair:6060/', updaters: [rhel]}]\n", "ui: {url: https://scanner.example.com/scanner, basePath: /scanner}\n", "grype:\n  catalog: {maxJob: 3}\n",
		"grype: {match: {idleTimeout: soon}}\n", "registries: []\nregistries: []\n", "grype: [\n", "- a\n", "grype: {catalog: {memoryLadder: [1Gi, 1Gi]}}\n", "store: {type: PostgreSQL}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		config := Default()
		err := decode(text, &config)
		if err == nil {
			config.Store.complete()
			err = config.Validate()
		}
		if err != nil {
			var whole any
			if yaml.Unmarshal(text, &whole) != nil {
				return // the decoder names the line
			}
			fields := fieldsOf(whole)
			if named := slices.ContainsFunc(fields, func(field string) bool { return strings.Contains(err.Error(), field) }); len(fields) > 0 && !named {
				t.Errorf("%q is refused with %q, which names none of its fields", text, err)
			}
			return
		}
		if err := registry.Validate(config.RegistrySettings()); err != nil {
			t.Errorf("%q is accepted, but workers refuse it: %v", text, err)
		}
		for _, instance := range config.Clair.Instances {
			if _, err := api.New(api.Options{URL: instance.URL, CABundle: instance.CABundle}); err != nil {
				t.Errorf("%q is accepted, but there is no client for it: %v", text, err)
			}
		}
	})
}

// fieldsOf returns the names of all fields in a document.
func fieldsOf(part any) (names []string) {
	switch part := part.(type) {
	case map[string]any:
		for name, value := range part {
			names = append(names, name)
			names = append(names, fieldsOf(value)...)
		}
	case []any:
		for _, value := range part {
			names = append(names, fieldsOf(value)...)
		}
	}
	return names
}

// FuzzCABundle: of a bundle, nothing but certificates is kept, all of them, and in a form that stays the same.
func FuzzCABundle(f *testing.F) {
	block := func(kind, content string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)}))
	}
	certificate := newCertificate(f)
	for _, seed := range []string{
		"", certificate, "# a remark\n" + certificate + certificate, certificate + block("PRIVATE KEY", "hunter2"), strings.ReplaceAll(block("PRIVATE KEY", "hunter2"), "-----END", "----END") + certificate, block("CERTIFICATE", "no certificate"), "hunter2",
		strings.ReplaceAll(certificate, "\n", "\r\n"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, bundle string) {
		kept, err := extractCertificates(bundle)
		if err != nil {
			if kept != "" {
				t.Errorf("%q beside the error %v", kept, err)
			}
			return
		}
		if again, err := extractCertificates(kept); err != nil || again != kept || strings.Count(kept, "-----BEGIN CERTIFICATE-----") != strings.Count(bundle, "-----BEGIN") {
			t.Errorf("of %q, %q is kept, and of that %q, %v", bundle, kept, again, err)
		}
		for rest := []byte(kept); len(rest) > 0; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
				t.Fatalf("of %q, %q is kept, which is no certificate", bundle, kept)
			}
		}
	})
}
