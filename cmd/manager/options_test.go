package main

import (
	"flag"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parseOptions parses flags in an environment that has, of the variables that count, only these.
func parseOptions(t *testing.T, environment map[string]string, args ...string) (options, error) {
	t.Helper()
	for _, variable := range []string{"POD_NAMESPACE", "POD_NAME", "SERVICE_ACCOUNT", "RELATED_IMAGE_WORKER"} {
		t.Setenv(variable, "")
	}
	for variable, value := range environment {
		t.Setenv(variable, value)
	}
	var o options
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o.addFlags(flags)
	err := o.parse(flags, args)
	return o, err
}

// deployed has the variables that config/manager sets.
var deployed = map[string]string{"POD_NAMESPACE": "scanners", "POD_NAME": "manager-1", "RELATED_IMAGE_WORKER": "scanner-grype:v1"}

// TestDefaults: in a pod, no flag is needed.
func TestDefaults(t *testing.T) {
	got, err := parseOptions(t, deployed)
	if err != nil {
		t.Fatal(err)
	}
	want := options{
		SpoolDir: "/var/spool/scanner-operator", DataDir: "/var/lib/scanner-operator", Namespace: "scanners", PodName: "manager-1", Account: "scanner-operator-manager", WorkerImage: "scanner-grype:v1",
		IngestAddress: ":9443", IngestURL: "https://scanner-operator-ingest.scanners.svc:9443", APIAddress: ":8444",
		NotifierURL: "https://scanner-operator-notifier.scanners.svc", NotifierToken: "/var/run/secrets/scanner-operator/notifier-token",
		ProbeAddress: ":8081", MetricsAddr: ":8443", LeaderElect: true, SweepInterval: time.Hour, LogLevel: "info",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

// TestSources: a flag overrides its variable, and the variable overrides the default.
func TestSources(t *testing.T) {
	environment := map[string]string{
		"SCANNER_NAMESPACE": "from-variable", "SCANNER_SWEEP_INTERVAL": "5m", "SCANNER_LEADER_ELECT": "false", "SCANNER_ENABLE_FAKE_BACKEND": "true", "SCANNER_SHARE_NAMESPACE_SBOMS": "true",
		"SCANNER_READ_MORE": "https://wiki.example.com", "SCANNER_DATA_DIR": "",
	}
	for key, value := range deployed {
		environment[key] = value
	}
	got, err := parseOptions(t, environment, "--namespace=from-flag", "--sweep-interval", "7m")
	if err != nil {
		t.Fatal(err)
	}
	if got.Namespace != "from-flag" || got.SweepInterval != 7*time.Minute {
		t.Errorf("namespace %s, sweep interval %s; want those of the flags", got.Namespace, got.SweepInterval)
	}
	if got.LeaderElect || !got.FakeBackend || !got.ShareSBOMs || got.ReadMore != "https://wiki.example.com" || got.DataDir != "" {
		t.Errorf("options %+v, want those of the variables", got)
	}
	if got.IngestURL != "https://scanner-operator-ingest.from-flag.svc:9443" {
		t.Errorf("the ingest API is at %s, want it in the namespace of the flag", got.IngestURL)
	}
}

// TestInvalidOptions: the error names the flag or variable of each mistake.
func TestInvalidOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		environment map[string]string
		args        []string
		want        []string
	}{
		"nothing known":       {nil, nil, []string{"--namespace: ", "POD_NAMESPACE", "--worker-image: ", "RELATED_IMAGE_WORKER"}},
		"no TLS to workers":   {deployed, []string{"--ingest-url=http://x"}, []string{"--ingest-url: must begin with https://"}},
		"no TLS to notifier":  {deployed, []string{"--notifier-url=http://x"}, []string{"--notifier-url: must begin with https://"}},
		"swept all the time":  {deployed, []string{"--sweep-interval=1ms"}, []string{"--sweep-interval: must be at least 1s"}},
		"no namespaces":       {deployed, []string{"--watch-namespaces=shop,Shop,shop"}, []string{"--watch-namespaces: ", `"Shop" is no name`, `"shop" stands there twice`}},
		"another log level":   {deployed, []string{"--log-level=loud"}, []string{"--log-level: must be info or debug"}},
		"an unknown flag":     {deployed, []string{"--verbose"}, []string{"-verbose"}},
		"an unknown command":  {deployed, []string{"find"}, []string{`"find" is neither a flag nor a command`}},
		"no number":           {deployed, []string{"--sweep-interval=often"}, []string{"sweep-interval"}},
		"a variable in words": {map[string]string{"SCANNER_SWEEP_INTERVAL": "often", "SCANNER_LEADER_ELECT": "perhaps"}, nil, []string{"SCANNER_SWEEP_INTERVAL: ", "SCANNER_LEADER_ELECT: "}},
		"all at once":         {nil, []string{"--log-level=loud", "--ingest-url=x"}, []string{"--namespace", "--worker-image", "--ingest-url", "--log-level"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(t, tt.environment, tt.args...)
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not say %q", err, want)
				}
			}
		})
	}
}

// TestFlagsAreExplained: each flag has a usage text, and a name in lower case with hyphens.
func TestFlagsAreExplained(t *testing.T) {
	var o options
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	o.addFlags(flags)
	flags.VisitAll(func(f *flag.Flag) {
		if len(f.Usage) < 10 || !regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(f.Name) {
			t.Errorf("--%s is explained as %q", f.Name, f.Usage)
		}
	})
}

// TestServiceNames: a Service has all DNS names by which a pod may reach it.
func TestServiceNames(t *testing.T) {
	want := []string{"a.b.svc", "a.b.svc.cluster.local", "a.b"}
	if diff := cmp.Diff(want, serviceDNSNames("a", "b")); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// TestNotifierNames: the certificate is valid for the Service, and for the name by which the manager reaches the notifier.
func TestNotifierNames(t *testing.T) {
	service := serviceDNSNames(notifierService, "scanners")
	for url, want := range map[string][]string{
		"https://scanner-operator-notifier.scanners.svc:8443": service,
		"https://notifier.example.com:8443":                   append(slices.Clone(service), "notifier.example.com"),
		"https://192.0.2.7":                                   service,
	} {
		got, err := parseOptions(t, deployed, "--notifier-url="+url)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.notifierDNSNames()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", url, diff)
		}
	}
}

// TestRandomSuffix: a suffix has the requested length, fits into a name, and is different each time.
func TestRandomSuffix(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		suffix := randomSuffix(10)
		if !regexp.MustCompile(`^[a-z0-9]{10}$`).MatchString(suffix) {
			t.Fatalf("the suffix %q does not fit a name", suffix)
		}
		if seen[suffix] {
			t.Fatalf("the suffix %q comes twice", suffix)
		}
		seen[suffix] = true
	}
}
