package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// An unknown value or a value of the wrong type is an error that names it.
func TestWrongValuesAreRefused(t *testing.T) {
	for values, want := range map[string]string{
		"watchNamespace: [shop]":                                 "watchNamespace",
		"nameOverride: mine":                                     "nameOverride",
		"fullnameOverride: mine":                                 "fullnameOverride",
		"watchNamespaces: shop":                                  "/watchNamespaces",
		"watchNamespaces: [Shop]":                                "/watchNamespaces/0",
		"manager: {resource: {}}":                                "resource",
		"manager: {resources: {limit: {}}}":                      "limit",
		"manager: {resources: {limits: {memory: lots}}}":         "/manager/resources/limits/memory",
		"manager: {replica: 2}":                                  "replica",
		"manager: {replicas: 0}":                                 "/manager/replicas",
		"notifier: {replicas: two}":                              "/notifier/replicas",
		"manager: {args: --log-level=debug}":                     "/manager/args",
		"manager: {memoryTarget: 1GB}":                           "/manager/memoryTarget",
		"image: {manager: {digest: 'sha256:abc'}}":               "/image/manager/digest",
		"image: {registry: ''}":                                  "/image/registry",
		"image: {registry: 'mirror.example.com/'}":               "/image/registry",
		"image: {registry: 'https://mirror.example.com'}":        "/image/registry",
		"image: {pullPolicy: Sometimes}":                         "/image/pullPolicy",
		"config: {grype: {databse: {}}}":                         "databse",
		"config: {grype: {database: {pollInterval: 60}}}":        "/config/grype/database/pollInterval",
		"config: {grype: {catalog: {maxJobs: many}}}":            "/config/grype/catalog/maxJobs",
		"config: {registries: [{name: a}]}":                      "name",
		"proxy: {httpsProxy: 'proxy:3128'}":                      "/proxy/httpsProxy",
		"store: {size: big}":                                     "/store/size",
		"store: {type: Oracle}":                                  "/store/type",
		"store: {type: PostgreSQL, maxConnections: 2}":           "/store/maxConnections",
		"store: {dsnSecretRef: {name: 'postgresql://u:p@h/d'}}":  "/store/dsnSecretRef/name",
		"ui: {tls: {}}":                                          "tls",
		"ui: {enabled: 'no'}":                                    "/ui/enabled",
		"ui: {url: scanner.example.com}":                         "/ui/url",
		"ui: {url: 'https://scanner.example.com/?a=b'}":          "/ui/url",
		"ui: {basePath: scanner/}":                               "/ui/basePath",
		"ui: {tlsSecretRef: {name: My_Secret}}":                  "/ui/tlsSecretRef/name",
		"notifier: {allowedWebhookHosts: ['https://a.b']}":       "/notifier/allowedWebhookHosts/0",
		"notifier: {allowedWebhookHosts: ['http://10.0.0.0/8']}": "/notifier/allowedWebhookHosts/0",
		"notifier: {trust: {certificates: /etc/ca.crt}}":         "/notifier/trust/certificates",
		"crds: {keep: 'no'}":                                     "/crds/keep",
		"networkPolicy: {kubernetesAPI: {ports: [70000]}}":       "/networkPolicy/kubernetesAPI/ports/0",
		"monitoring: {serviceMonitor: {interval: sometimes}}":    "/monitoring/serviceMonitor/interval",
		"cleanup: {timeoutSeconds: 0}":                           "/cleanup/timeoutSeconds",
		// The operator, Services and policies select pods by these labels.
		"commonLabels: {app.kubernetes.io/name: mine}":              "/commonLabels",
		"manager: {podLabels: {app.kubernetes.io/component: mine}}": "/manager/podLabels",
		"notifier: {podLabels: {app.kubernetes.io/name: mine}}":     "/notifier/podLabels",
		"manager: {serviceAccount: {name: null}}":                   "/manager/serviceAccount",
		"notifier: {serviceAccount: {name: null}}":                  "/notifier/serviceAccount",
	} {
		_, err := template(t, values)
		if err == nil || !strings.Contains(err.Error(), "schema") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error of the schema that names %s, got %v", values, want, err)
		}
	}
}

// Values that the schema cannot check are errors as well.
func TestContradictionsAreRefused(t *testing.T) {
	for values, want := range map[string]string{
		"store: {type: PostgreSQL}":                                               "store.dsnSecretRef.name: name the Secret",
		"config: {store: {type: PostgreSQL}}":                                     "config.store: set the value store instead",
		"{store: {type: MySQL, dsnSecretRef: {name: a}}, config: {store: {}}}":    "",
		"manager: {replicas: 2}":                                                  "manager.replicas: more than one manager needs a store on a database server",
		"{manager: {replicas: 2}, store: {type: MySQL, dsnSecretRef: {name: a}}}": "",
		"notifier: {replicas: 2}":                                                 "",
		"config: {ui: {enabled: false}}":                                          "config.ui: set the value ui instead",
		"ui: {url: 'https://example.com', basePath: /scanner}":                    `ui.url: must end with ui.basePath "/scanner"`,
		"ui: {url: 'https://example.com/scanner/', basePath: /scanner}":           "",
	} {
		_, err := template(t, values)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", values, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: want an error with %q, got %v", values, want, err)
		}
	}
}

// The schema allows exactly the values in values.yaml.
func TestSchemaMatchesValues(t *testing.T) {
	var values, schema map[string]any
	for file, into := range map[string]*map[string]any{"values.yaml": &values, "values.schema.json": &schema} {
		text, err := os.ReadFile(filepath.Join(chart, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, "", values, schema)
}

// compare recurses while both values and schema have fields.
func compare(t *testing.T, path string, values, schema map[string]any) {
	t.Helper()
	properties, described := schema["properties"].(map[string]any)
	if !described {
		return // any type, or the operator's configuration
	}
	if schema["additionalProperties"] != false {
		t.Errorf("%s: the schema accepts fields that nobody knows", path)
	}
	for name, property := range properties {
		value, found := values[name]
		if !found && path+"/"+name != "/global" && path+"/"+name != "/enabled" {
			t.Errorf("%s/%s is in the schema and not in values.yaml", path, name)
		}
		if fields, isMap := value.(map[string]any); isMap {
			compare(t, path+"/"+name, fields, property.(map[string]any))
		}
	}
}

// The chart is the dependency of another one, also under another name: its condition decides about all objects, and else they are the same.
func TestWithinAnotherChart(t *testing.T) {
	alone, err := template(t, "manager: {nodeSelector: {pool: a}}", "--namespace", "scanning")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"scanner-operator", "scanner"} {
		parent := t.TempDir()
		if err := os.CopyFS(filepath.Join(parent, "charts", "scanner-operator"), os.DirFS(chart)); err != nil {
			t.Fatal(err)
		}
		text := "apiVersion: v2\nname: platform\nversion: 1.0.0\ndependencies:\n- {name: scanner-operator, version: '*', alias: " + name + ", condition: " + name + ".enabled}\n"
		if err := os.WriteFile(filepath.Join(parent, "Chart.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for switched, count := range map[string]int{"": len(decode(t, alone)), ", enabled: true": len(decode(t, alone)), ", enabled: false": 0} {
			values := "{global: {anything: 1}, " + name + ": {manager: {nodeSelector: {pool: a}}" + switched + "}}"
			out, err := run(t, values, program(t, "HELM"), "template", "platform-of-all", parent, "--namespace", "scanning", "--kube-version", "1.37.0", "--values", "-")
			if err != nil {
				t.Fatalf("%s: %v", values, err)
			}
			got := decode(t, out)
			if len(got) != count {
				t.Errorf("%s: %d objects, want %d", values, len(got), count)
			}
			if strings.Contains(out, namespace) {
				t.Errorf("%s: the chart names another namespace than the release's", values)
			}
			if count > 0 && podOf(t, got, "Deployment scanning/scanner-operator-manager").NodeSelector["pool"] != "a" {
				t.Errorf("%s: the values do not reach the manager", values)
			}
		}
	}
}

// Helm 3's lint reports nothing.
func TestLint(t *testing.T) {
	if len(decode(t, linted(t, program(t, "HELM")))) < 40 {
		t.Error("Helm 3 makes fewer objects than there are")
	}
}

// Helm 4's lint reports nothing either, and it renders the same objects.
func TestHelm4(t *testing.T) {
	if os.Getenv("HELM4") == "" {
		t.Skip("HELM4 names no Helm 4, which takes long to compile: make e2e-install does")
	}
	same(t, decode(t, linted(t, program(t, "HELM"))), decode(t, linted(t, program(t, "HELM4"))))
}

// linted lints the chart and returns the rendered objects.
func linted(t *testing.T, helm string) string {
	t.Helper()
	if text, err := run(t, "", helm, "lint", "--strict", chart); err != nil {
		t.Errorf("%s lint: %v", helm, err)
	} else if strings.Contains(text, "[WARNING]") || strings.Contains(text, "[ERROR]") {
		t.Errorf("%s lint:\n%s", helm, text)
	}
	text, err := run(t, "", helm, "template", "scanner-operator", chart, "--namespace", namespace, "--kube-version", "1.37.0")
	if err != nil {
		t.Errorf("%s template: %v", helm, err)
	}
	return text
}
