package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStoreLoad: a store on a server has defaults, which its fields replace. A store in a file has none of these fields.
func TestStoreLoad(t *testing.T) {
	for text, want := range map[string]Store{
		"":                          {Type: SQLite},
		"store: {}":                 {Type: SQLite},
		"store: {type: SQLite}":     {Type: SQLite},
		"store: {type: MySQL}":      {Type: MySQL, DSNFile: "/etc/scanner-operator/store/dsn", MaxConnections: 10},
		"store: {type: PostgreSQL}": {Type: PostgreSQL, DSNFile: "/etc/scanner-operator/store/dsn", MaxConnections: 10},
		"store: {type: PostgreSQL, dsnFile: /run/dsn, maxConnections: 1000, tls: {caFile: /run/ca.crt}}": {
			Type: PostgreSQL, DSNFile: "/run/dsn", MaxConnections: 1000, TLS: StoreTLS{CAFile: "/run/ca.crt"},
		},
	} {
		loaded, err := load(t, text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, loaded.Store); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// TestStoreFile: the file store/config.yaml beside the configuration adds to it, and its mistakes are errors that name it.
func TestStoreFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	if err := os.Mkdir(filepath.Join(dir, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ text, wantErr string }{
		"a server":  {"store: {type: PostgreSQL}", ""},
		"a mistake": {"store: {typ: PostgreSQL}", "store/config.yaml: store.typ: unknown field"},
	} {
		for file, text := range map[string]string{path: "store: {maxConnections: 20}\ngrype: {match: {maxWorkers: 7}}", filepath.Join(dir, "store", "config.yaml"): tt.text} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		loaded, err := Load(path)
		switch {
		case tt.wantErr != "":
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("%s: %v, want %q", name, err, tt.wantErr)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case loaded.Store.Type != PostgreSQL || loaded.Store.MaxConnections != 20 || loaded.Grype.Match.MaxWorkers != 7:
			t.Errorf("%s: %+v and %d workers, want the settings of both files", name, loaded.Store, loaded.Grype.Match.MaxWorkers)
		}
	}
}

// TestStoreInvalid: an error names the field. It does not quote a data source name that stands where its file belongs, since it has a password.
func TestStoreInvalid(t *testing.T) {
	const password = "canary-in-the-configuration"
	for text, want := range map[string]string{
		"{type: SQLite, dsnFile: /run/dsn}":         "store.dsnFile: must not be set with store.type SQLite",
		"{maxConnections: 5}":                       "store.maxConnections: must not be set with store.type SQLite",
		"{tls: {caFile: /run/ca.crt}}":              "store.tls.caFile: must not be set with store.type SQLite",
		"{type: Oracle}":                            "store.type: must be SQLite, PostgreSQL or MySQL",
		"{type: postgresql}":                        "store.type: must be SQLite, PostgreSQL or MySQL",
		"{type: ''}":                                "store.type: must be SQLite, PostgreSQL or MySQL",
		"{type: PostgreSQL, maxConnections: 2}":     "store.maxConnections: must be between 3 and 1000",
		"{type: PostgreSQL, maxConnections: 1001}":  "store.maxConnections: must be between 3 and 1000",
		"{type: PostgreSQL, dsnFile: dsn}":          "store.dsnFile: must be the absolute path of a file",
		"{type: PostgreSQL, tls: {caFile: ca.crt}}": "store.tls.caFile: must be the absolute path of a file",
		"{type: PostgreSQL, dsnFile: 'postgresql://u:" + password + "@h/d'}": "store.dsnFile: must be the absolute path of a file",
		"{type: PostgreSQL, dsn: 'postgresql://u:" + password + "@h/d'}":     `store.dsn: unknown field`,
	} {
		_, err := load(t, "store: "+text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), password) {
			t.Errorf("%s: the error has the password: %v", text, err)
		}
	}
}
