package metrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const component = "config/components/prometheus"

type alert struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

type rules struct {
	Groups []struct {
		Name  string
		Rules []alert
	}
}

// prometheusRule returns the rules of the released manifest.
func prometheusRule(t *testing.T) (spec rules) {
	t.Helper()
	var rule struct{ Spec rules }
	if err := yaml.Unmarshal([]byte(read(t, component+"/prometheusrule.yaml")), &rule); err != nil {
		t.Fatal(err)
	}
	return rule.Spec
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	for _, group := range prometheusRule(t).Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no alerts")
	}
	return all
}

// runbookURL is the URL of the runbooks; the anchor of an alert follows.
const runbookURL = "https://github.com/scanner-operator/scanner-operator/blob/main/docs/operate/runbooks.md#"

// Each alert has a runbook with its meaning, impact, diagnosis and mitigation, and each runbook has an alert.
func TestAlertsHaveRunbooks(t *testing.T) {
	page := read(t, "docs/operate/runbooks.md")
	sections := map[string]string{}
	for _, section := range strings.Split("\n"+page, "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	for _, alert := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning", "info"}, alert.Labels["severity"]) {
			t.Errorf("%s has severity %q", alert.Alert, alert.Labels["severity"])
		}
		for _, name := range []string{"summary", "description"} {
			if alert.Annotations[name] == "" {
				t.Errorf("%s has no %s", alert.Alert, name)
			}
		}
		if want := runbookURL + strings.ToLower(alert.Alert); alert.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %q", alert.Alert, alert.Annotations["runbook_url"], want)
		}
		text, found := sections[alert.Alert]
		if !found {
			t.Errorf("docs/operate/runbooks.md has no section %s", alert.Alert)
		}
		for _, part := range []string{"**Meaning.**", "**Impact.**", "**Diagnosis.**", "**Mitigation.**"} {
			if found && !strings.Contains(text, part) {
				t.Errorf("the runbook of %s has no part %s", alert.Alert, part)
			}
		}
		delete(sections, alert.Alert)
	}
	for name := range sections {
		t.Errorf("docs/operate/runbooks.md has a section %s, which is no alert", name)
	}
}

var (
	identifier = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	quoted     = regexp.MustCompile(`"[^"]*"`)
	metricName = regexp.MustCompile(`^(scanner|controller|leader_election)_`)
)

// externalMetrics are metrics of controller-runtime, from its documentation.
var externalMetrics = []string{
	"controller_runtime_reconcile_total", "controller_runtime_reconcile_time_seconds_bucket", "leader_election_master_status",
}

// unknownMetrics returns the names in an expression that have the form of a metric but are not one, and the number of metrics.
func unknownMetrics(t *testing.T, expression string) (used int, unknown []string) {
	t.Helper()
	all := declared(t)
	for _, name := range identifier.FindAllString(quoted.ReplaceAllString(expression, ""), -1) {
		if name == "scanner_namespace" || !metricName.MatchString(name) {
			continue
		}
		used++
		base := strings.TrimSuffix(name, "_bucket")
		if metric, found := all[base]; (!found || base != name && metric.Type != "histogram") && !slices.Contains(externalMetrics, name) {
			unknown = append(unknown, name)
		}
	}
	return used, unknown
}

// Alerts use only existing metrics.
func TestAlertsUseMetrics(t *testing.T) {
	for _, alert := range alerts(t) {
		used, unknown := unknownMetrics(t, alert.Expr)
		if used == 0 || len(unknown) > 0 {
			t.Errorf("%s: %d metrics, of which there are not: %q", alert.Alert, used, unknown)
		}
	}
}

// Each dashboard is valid, and each panel uses existing metrics. Metrics that no dashboard or alert uses are logged.
func TestDashboardsUseMetrics(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, component, "dashboards", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d dashboards: %v", len(paths), err)
	}
	kustomization, shown := read(t, component+"/kustomization.yaml"), ""
	for _, path := range paths {
		var dashboard struct {
			UID, Title string
			Panels     []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &dashboard); err != nil || dashboard.UID == "" || dashboard.Title == "" || len(dashboard.Panels) == 0 {
			t.Errorf("%s is no dashboard: %v", path, err)
		}
		if !strings.Contains(kustomization, "dashboards/"+filepath.Base(path)) {
			t.Errorf("%s/kustomization.yaml does not list %s", component, filepath.Base(path))
		}
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				shown += target.Expr + "\n"
				if used, unknown := unknownMetrics(t, target.Expr); used == 0 || len(unknown) > 0 {
					t.Errorf("%s, panel %q: %d metrics, of which there are not: %q", filepath.Base(path), panel.Title, used, unknown)
				}
			}
		}
	}
	for _, alert := range alerts(t) {
		shown += alert.Expr
	}
	for name := range declared(t) {
		if !strings.Contains(shown, name) {
			t.Logf("no dashboard or alert uses %s", name)
		}
	}
}

// promtool returns the path of Prometheus' promtool, from "make bin/promtool" or the PATH.
func promtool(t *testing.T) string {
	t.Helper()
	for _, place := range []string{filepath.Join(root, "bin", "promtool"), "promtool"} {
		if path, err := exec.LookPath(place); err == nil {
			absolute, err := filepath.Abs(path)
			if err != nil {
				t.Fatal(err)
			}
			return absolute
		}
	}
	t.Skip(`needs promtool: "make bin/promtool" on Debian, or install Prometheus`)
	return ""
}

// Prometheus accepts the rules, and each alert fires and does not fire in the cases of testdata/rules_test.yaml.
func TestAlertsFire(t *testing.T) {
	tool, dir := promtool(t), t.TempDir()
	text, err := yaml.Marshal(asPrometheusReads(t))
	if err != nil {
		t.Fatal(err)
	}
	cases := "test/metrics/testdata/rules_test.yaml"
	for name, content := range map[string]string{"rules.yaml": string(text), "rules_test.yaml": read(t, cases)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, arguments := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		command := exec.CommandContext(t.Context(), tool, arguments...)
		command.Dir = dir
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
	}
	checkCases(t, read(t, cases))
}

// asPrometheusReads returns the rule's spec, which has the format of a rules file.
func asPrometheusReads(t *testing.T) (spec any) {
	t.Helper()
	var rule map[string]any
	if err := yaml.Unmarshal([]byte(read(t, component+"/prometheusrule.yaml")), &rule); err != nil {
		t.Fatal(err)
	}
	return rule["spec"]
}

// checkCases checks that each alert has a case in which it fires and one in which it does not.
func checkCases(t *testing.T, text string) {
	t.Helper()
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, one := range test.AlertRuleTest {
			if len(one.ExpAlerts) > 0 {
				fires[one.Alertname] = true
			} else {
				silent[one.Alertname] = true
			}
		}
	}
	for _, alert := range alerts(t) {
		if !fires[alert.Alert] || !silent[alert.Alert] {
			t.Errorf("%s: a case in which it fires: %v, one in which it does not: %v; want both", alert.Alert, fires[alert.Alert], silent[alert.Alert])
		}
	}
}
