package notifier_test

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/notifier"
)

// TestOptions: the manager's ServiceAccount defaults to one in the notifier's namespace, and errors name the flag.
func TestOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace string
		args      []string
		wantErr   string
		wantUser  string
	}{
		"defaults":          {"system", nil, "", "system:serviceaccount:system:scanner-operator-manager"},
		"another manager":   {"system", []string{"--manager-service-account=system:serviceaccount:a:b"}, "", "system:serviceaccount:a:b"},
		"no namespace":      {"", nil, "POD_NAMESPACE", ""},
		"a bare name":       {"system", []string{"--manager-service-account=manager"}, "--manager-service-account", ""},
		"nobody to post to": {"system", []string{"--allowed-webhook-hosts=, "}, "--allowed-webhook-hosts", ""},
		"a URL to post to":  {"system", []string{"--allowed-webhook-hosts=https://hooks.slack.com"}, "--allowed-webhook-hosts", ""},
		"hosts and networks": {"system", []string{"--allowed-webhook-hosts=hooks.slack.com,*.example.com,http://alerts.shop.svc:9093,10.0.0.0/8"}, "",
			"system:serviceaccount:system:scanner-operator-manager"},
		"GovSlack":          {"system", []string{"--slack-api-url=https://slack-gov.com/api"}, "", "system:serviceaccount:system:scanner-operator-manager"},
		"tokens over http":  {"system", []string{"--slack-api-url=http://slack.com/api"}, "--slack-api-url", ""},
		"tokens to no host": {"system", []string{"--slack-api-url=https:///api"}, "--slack-api-url", ""},
		"tokens to a user":  {"system", []string{"--slack-api-url=https://slack.com@evil.example/api"}, "--slack-api-url", ""},
		"no secret":         {"system", []string{"--serving-secret="}, "--serving-secret", ""},
		"Clair over TLS": {"system", []string{"--clair-webhook-listen=:8444", "--clair-webhook-cert-dir=/tls", "--config=/c"}, "",
			"system:serviceaccount:system:scanner-operator-manager"},
		"Clair over plain HTTP": {"system", []string{"--clair-webhook-listen=:8444", "--clair-webhook-plain-http", "--config=/c"}, "",
			"system:serviceaccount:system:scanner-operator-manager"},
		"Clair over neither": {"system", []string{"--clair-webhook-listen=:8444", "--config=/c"}, "--clair-webhook-listen", ""},
		"Clair over both": {"system", []string{"--clair-webhook-listen=:8444", "--clair-webhook-cert-dir=/tls", "--clair-webhook-plain-http", "--config=/c"},
			"--clair-webhook-plain-http", ""},
		"a certificate for nothing": {"system", []string{"--clair-webhook-cert-dir=/tls"}, "--clair-webhook-cert-dir", ""},
		"plain HTTP for nothing":    {"system", []string{"--clair-webhook-plain-http"}, "--clair-webhook-plain-http", ""},
		"one of several":            {"system", []string{"--leader-elect"}, "--leader-elect: also needs the environment variables POD_NAME and POD_IP", ""},
		"no allowed Clairs":         {"system", []string{"--clair-webhook-listen=:8444", "--clair-webhook-plain-http"}, "--config", ""},
	} {
		o := notifier.NewOptions(func(string) string { return tt.namespace })
		flags := flag.NewFlagSet("notifier", flag.ContinueOnError)
		o.AddFlags(flags)
		if err := flags.Parse(tt.args); err != nil {
			t.Fatal(err)
		}
		switch err := o.Complete(); {
		case tt.wantErr == "" && err != nil:
			t.Errorf("%s: error %v, want none", name, err)
		case tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)):
			t.Errorf("%s: error %v, want one that names %s", name, err, tt.wantErr)
		case tt.wantErr == "" && o.ManagerServiceAccount != tt.wantUser:
			t.Errorf("%s: manager is %s, want %s", name, o.ManagerServiceAccount, tt.wantUser)
		}
	}
}

// TestDeliveryAddress: a notifier that is one of several is reached at its pod's address.
func TestDeliveryAddress(t *testing.T) {
	for ip, want := range map[string]string{"10.0.0.7": "10.0.0.7:8443", "fd00::7": "[fd00::7]:8443", "": ""} {
		o := notifier.NewOptions(func(name string) string {
			return map[string]string{"POD_IP": ip, "POD_NAME": "notifier-1", "POD_NAMESPACE": "system"}[name]
		})
		flags := flag.NewFlagSet("notifier", flag.ContinueOnError)
		o.AddFlags(flags)
		if err := flags.Parse([]string{"--leader-elect"}); err != nil {
			t.Fatal(err)
		}
		if got, err := o.DeliveryAddress(); got != want || (err == nil) != (want != "") {
			t.Errorf("address of the pod with IP %q: %q, error %v, want %q", ip, got, err, want)
		}
		if err := o.Complete(); (err == nil) != (want != "") {
			t.Errorf("IP %q: error %v", ip, err)
		}
	}
}

// TestRoots: the CA file may be missing when the notifier starts, and is used when it comes. The same is true of a file without
// certificates, and the log has the reason. While a changed one contains none, the certificates before stay trusted.
func TestRoots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.crt")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	roots, err := notifier.LoadRoots(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("a missing file is error %v, want none", err)
	}
	system := roots.Pool()
	first, second := newPair(t, 1)["tls.crt"], newPair(t, 2)["tls.crt"]
	write(first)
	one := roots.Pool()
	if one.Equal(system) {
		t.Error("the certificates of a file that comes later are not trusted")
	}
	write("broken")
	if !roots.Pool().Equal(one) {
		t.Error("the certificates before are not trusted while the file has none")
	}
	for _, content := range []string{"", "broken"} {
		write(content)
		var log strings.Builder
		late, err := notifier.LoadRoots(path, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || !strings.Contains(log.String(), "no certificate in it") || !late.Pool().Equal(system) {
			t.Fatalf("a file with %q: error %v, log %q; want no error, and the reason", content, err, &log)
		}
		if write(first); !late.Pool().Equal(one) {
			t.Errorf("the certificates are not trusted that come after %q", content)
		}
	}
	write(second)
	if roots.Pool().Equal(one) {
		t.Error("the certificates of a changed file are not trusted")
	}
}
