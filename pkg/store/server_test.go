package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// canary is a password that must appear in no error.
const canary = "canary-0f6b1a"

func serverOf(dsn string) Server {
	return Server{DSN: func() (string, error) { return dsn, nil }, MaxConnections: 2}
}

// TestPostgreSQLDefaults: connections are encrypted, and the server is verified, in each form of a DSN. The DSN may say otherwise.
func TestPostgreSQLDefaults(t *testing.T) {
	for name, tt := range map[string]struct {
		dsn      string
		tls      bool
		verified string // the name that the certificate must have
		host     string
		port     uint16
		password string
	}{
		"the key uri of CloudNativePG": {"postgresql://app:" + canary + "@cluster-rw.shop:5432/app", true, "cluster-rw.shop", "cluster-rw.shop", 5432, canary},
		"another scheme":               {"postgres://app:" + canary + "@db/app", true, "db", "db", 5432, canary},
		"with empty settings":          {"postgresql://app:" + canary + "@db/app?", true, "db", "db", 5432, canary},
		"with other settings":          {"postgresql://app:" + canary + "@db:5433/app?application_name=x", true, "db", "db", 5433, canary},
		"without encryption":           {"postgresql://app:" + canary + "@db/app?sslmode=disable", false, "", "db", 5432, canary},
		"without a name":               {"postgresql://app@/app?host=db&password=" + canary, true, "db", "db", 5432, canary},
		"a password with a ?":          {"postgresql://app:" + canary + "?@db/app", true, "db", "db", 5432, canary + "?"},
		"a password with an encoded @": {"postgresql://app:" + canary + "%40@db/app", true, "db", "db", 5432, canary + "@"},
		"pairs":                        {"host=db user=app password='" + canary + " x' dbname=app", true, "db", "db", 5432, canary + " x"},
		"pairs without encryption":     {"host=db user=app password=" + canary + " sslmode=disable", false, "", "db", 5432, canary},
		"an IPv6 address":              {"postgresql://app:" + canary + "@[2001:db8::1]:5432/app", true, "2001:db8::1", "2001:db8::1", 5432, canary},
		"a Unix socket":                {"host=/run/postgresql user=app password=" + canary, false, "", "/run/postgresql", 5432, canary},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := serverOf(tt.dsn).postgreSQL()
			must(t, err)
			if config.Host != tt.host || config.Port != tt.port || config.User != "app" || config.Password != tt.password {
				t.Errorf("it connects to %s:%d as %s with the password %q, want %+v", config.Host, config.Port, config.User, config.Password, tt)
			}
			switch {
			case (config.TLSConfig != nil) != tt.tls:
				t.Errorf("TLS is used: %v, want %v", config.TLSConfig != nil, tt.tls)
			case tt.tls && (config.TLSConfig.InsecureSkipVerify || config.TLSConfig.ServerName != tt.verified):
				t.Errorf("TLS verifies the name %q (not at all: %v), want %q", config.TLSConfig.ServerName, config.TLSConfig.InsecureSkipVerify, tt.verified)
			}
			for _, fallback := range config.Fallbacks {
				if tt.tls && fallback.TLSConfig == nil {
					t.Error("without TLS on the server, it connects in plain text")
				}
			}
			if config.ConnectTimeout == 0 || config.ValidateConnect == nil || config.DefaultQueryExecMode != pgx.QueryExecModeExec {
				t.Error("a connection has no timeout, or may be to a server that is read only, or prepares statements")
			}
		})
	}
}

// TestInvalidDSN: an error says what is wrong and where, and nothing of the data source name.
func TestInvalidDSN(t *testing.T) {
	for name, tt := range map[string]struct{ dsn, want string }{
		"empty":                       {"", "is empty"},
		"blank":                       {" \n\n", "is empty"},
		"two lines":                   {"postgresql://app:" + canary + "@db/app\nmore", "one line"},
		"another database":            {"mysql://app:" + canary + "@db/app", "percent-encoded"},
		"only a password":             {canary, "percent-encoded"},
		"a password with a /":         {"postgresql://app:" + canary + "/x@db/app", "percent-encoded"},
		"a password with digits, /":   {"postgresql://app:4711/" + canary + "@db/app", "percent-encoded"},
		"a password with a %":         {"postgresql://app:%zz" + canary + "@db/app", "percent-encoded"},
		"a password with a blank":     {"host=db user=app password=x " + canary, "percent-encoded"},
		"an unknown sslmode":          {"postgresql://app:" + canary + "@db/app?sslmode=" + canary, "percent-encoded"},
		"a port that is no number":    {"postgresql://app:x@db:" + canary + "/app", "percent-encoded"},
		"a file of a client's key":    {"postgresql://app:x@db/app?sslcert=/" + canary + "&sslkey=/" + canary, "percent-encoded"},
		"more than a name may have":   {"postgresql://app:" + strings.Repeat("x", maxDSN) + "@db/app", "one line"},
		"a parameter without a value": {"postgresql://app:x@db/app?" + canary, "percent-encoded"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "dsn")
			must(t, os.WriteFile(path, []byte(tt.dsn), 0o600))
			_, err := OpenPostgreSQL(t.Context(), Server{DSN: DSNFromFile(path), MaxConnections: 2}, newClock().Now)
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want ErrUnavailable with %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}

// TestMissingFiles: an error names the file that is missing and the setting that has its path.
func TestMissingFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	notPEM := filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(notPEM, []byte(canary), 0o600))
	dsn := serverOf("postgresql://app:" + canary + "@localhost/app").DSN
	for name, tt := range map[string]struct {
		server Server
		want   []string
	}{
		"the data source name": {Server{DSN: DSNFromFile(missing)}, []string{missing, "store.dsnFile"}},
		"the authority":        {Server{DSN: dsn, CAFile: missing}, []string{missing, "store.tls.caFile"}},
		"no certificate":       {Server{DSN: dsn, CAFile: notPEM}, []string{notPEM, "store.tls.caFile", "PEM"}},
	} {
		_, err := OpenPostgreSQLReadOnly(t.Context(), tt.server)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
		if strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error has a secret: %v", name, err)
		}
	}
}
