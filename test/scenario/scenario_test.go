package scenario

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

func TestRunStepsStopsAtFailedStep(t *testing.T) {
	var out strings.Builder
	steps := []Step{
		{"good", func(context.Context) (string, error) { return "all is well", nil }},
		{"bad", func(context.Context) (string, error) { return "", errors.New("no database") }},
		{"never", func(context.Context) (string, error) { t.Error("a step after the failure was run"); return "", nil }},
	}
	err := RunSteps(t.Context(), &out, func() time.Time { return time.Time{} }, steps)
	if err == nil || !strings.Contains(err.Error(), "step 2 of 3 (bad): no database") {
		t.Errorf("want the step and its reason, got %v", err)
	}
	if want := "[1/3] good\n      all is well (0.0 s)\n[2/3] bad\n"; out.String() != want {
		t.Errorf("want progress %q, got %q", want, out.String())
	}
}

// The rendered templates are valid for Kubernetes and the operator.
func TestOperatorConfigurationIsValid(t *testing.T) {
	for _, upstream := range []bool{false, true} {
		e := &Environment{Options: Options{Registry: "198.51.100.10:5000/scanner-operator", Upstream: upstream}, SlackAuthority: []byte("-----BEGIN\nx\n")}
		values, err := e.operatorValues()
		if err != nil {
			t.Fatal(err)
		}
		text, err := render("operator/config.yaml", values)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := config.Load(file)
		if err != nil {
			t.Fatalf("the operator does not take its configuration: %v\n%s", err, text)
		}
		if want := []config.Registry{{Host: "198.51.100.10:5000", PlainHTTP: true}}; !cmp.Equal(want, read.Registries) {
			t.Errorf("registries: want %v, got %v", want, read.Registries)
		}
		if got := strings.Contains(read.Grype.Database.URL, "anchore"); got != upstream {
			t.Errorf("upstream=%v, but the database's URL is %s", upstream, read.Grype.Database.URL)
		}
		trust, err := render("operator/trust.yaml", values)
		if err != nil {
			t.Fatal(err)
		}
		var configMap corev1.ConfigMap
		if err := yaml.UnmarshalStrict([]byte(trust), &configMap); err != nil || configMap.Data["ca.crt"] != string(e.SlackAuthority) {
			t.Errorf("want the authority in ca.crt, got %q, %v", configMap.Data["ca.crt"], err)
		}
	}
}

// With integrations, the operator prefers SBOMs that the key has signed, for one registry only, and the notifier reaches the stand-in.
func TestOperatorConfigurationHasIntegrations(t *testing.T) {
	e := &Environment{
		Options: Options{Registry: "198.51.100.10:5000/scanner-operator", Integrations: true}, SlackAuthority: []byte("slack\n"), receiverAuthority: []byte("receivers\n"),
	}
	if _, err := e.makeSBOMKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := e.OperatorConfig()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := config.Load(file)
	if err != nil {
		t.Fatalf("the operator does not take its configuration: %v\n%s", err, text)
	}
	if read.SBOMPolicy(attestedHost+"/shop/web") == "" || read.SBOMPolicy(e.Reference("shop/web")) != "" {
		t.Errorf("attested SBOMs are not preferred for %s alone:\n%s", attestedHost, text)
	}
	values, err := e.operatorValues()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := render("operator/kustomization.yaml", values)
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct {
		Components []string
		Images     []any
	}
	if err := yaml.Unmarshal([]byte(overlay), &kustomization); err != nil || len(kustomization.Components) != 1 || len(kustomization.Images) != 0 {
		t.Errorf("want the component of OpenReports alone: %+v, %v", kustomization, err)
	}
	if want := "--allowed-webhook-hosts=" + SlackHost + "," + ReceiverHost + "," + ReceiverHost + ":587"; !strings.Contains(overlay, want) {
		t.Errorf("want %s in\n%s", want, overlay)
	}
	if values["Authority"] != `"slack\nreceivers\n"` {
		t.Errorf("the notifier trusts %s, want both authorities", values["Authority"])
	}
}

func TestOperatorConfigurationAllowsClair(t *testing.T) {
	image := pushedImage{Repository: "198.51.100.10:5000/demo-infra/clair", Digest: "sha256:aa"}
	e := &Environment{Options: Options{Registry: "198.51.100.10:5000/scanner-operator"}, clair: &clairSetup{image: image}, postgreSQL: &image}
	values, err := e.operatorValues()
	if err != nil {
		t.Fatal(err)
	}
	text, err := render("operator/config.yaml", values)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := config.Load(file)
	if err != nil {
		t.Fatalf("the operator does not take its configuration: %v\n%s", err, text)
	}
	want := []config.ClairInstance{{URL: clairURL, Updaters: []string{"debian/updater", "osv/go", "alpine-main-v3.18-updater", "clair.cvss"}}}
	if diff := cmp.Diff(want, read.Clair.Instances); diff != "" {
		t.Errorf("Clairs that Scanners may name (-want +got):\n%s", diff)
	}
}

func TestTotalOfSamples(t *testing.T) {
	metrics := "# TYPE indexed_total counter\n" +
		"indexed_total{code=\"201\",method=\"post\"} 5\nindexed_total{code=\"500\",method=\"post\"} 2\n" +
		"indexed_total{code=\"200\",method=\"get\"} 9\nother_total{method=\"post\"} 1\n"
	if got, err := total(metrics, "indexed_total{", `method="post"`); err != nil || got != 7 {
		t.Errorf("want the sum of all codes of one method, 7, got %d (error %v)", got, err)
	}
	if got, err := total("", "indexed_total{", ""); err != nil || got != 0 {
		t.Errorf("what has never happened has no sample: want 0, got %d (error %v)", got, err)
	}
}

func TestRepositoriesLocalAndElsewhere(t *testing.T) {
	for registry, want := range map[string]string{
		"198.51.100.10:5000/scanner-operator": "198.51.100.10:5000/shop/web:1.0",
		"ghcr.io/me/scanner":                  "ghcr.io/me/scanner/shop/web:1.0",
	} {
		e := &Environment{Options: Options{Registry: registry}}
		if got := e.Reference("shop/web"); got != want {
			t.Errorf("REGISTRY=%s: want %s, got %s", registry, want, got)
		}
	}
}

func TestServingIsTrustedForItsHostOnly(t *testing.T) {
	now := time.Now()
	made, err := newServing("slack.demo-infra.svc", now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(made.certificate, made.key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(made.authority) {
		t.Fatal("the authority is no certificate")
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "slack.demo-infra.svc", CurrentTime: now}); err != nil {
		t.Errorf("for its host: %v", err)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "hooks.slack.com", CurrentTime: now}); err == nil {
		t.Error("it is trusted for another host")
	}
}

func TestReadsSinceAMark(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	early := `10.0.0.1 - - [21/Nov/2026] "GET /v2/shop/web/manifests/1.0 HTTP/1.1" 200 1 "" "containerd"` + "\n"
	late := `10.0.0.1 - - [21/Nov/2026] "GET /v2/shop/ghost/manifests/missing HTTP/1.1" 404 1 "" "containerd"` + "\n" +
		`10.0.0.1 - - [21/Nov/2026] "PUT /v2/shop/web/manifests/1.0 HTTP/1.1" 201 1 "" "push"` + "\n" +
		`10.0.0.1 - - [21/Nov/2026] "HEAD /v2/shop/api/manifests/1.0 HTTP/1.1" 200 1 "" "worker"` + "\n"
	if err := os.WriteFile(file, []byte(early), 0o600); err != nil {
		t.Fatal(err)
	}
	log := openAccessLog(file)
	mark, err := log.Mark()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(early+late), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := log.ReadsSince(mark, "shop/web", "shop/api")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"HEAD /v2/shop/api/manifests/1.0 HTTP/1.1"}, got); diff != "" {
		t.Errorf("requests that read one of the images after the mark (-want +got):\n%s", diff)
	}
}

func TestAnnouncedLinesAreUnique(t *testing.T) {
	critical := finding.Finding{ID: "CVE-1", Severity: finding.Critical, Package: finding.Package{Name: "openssl", Version: "1"}}
	older := critical
	older.Package.Version = "0"
	images := []ImageFindings{
		{References: []string{"example.org/shop/web:1", "example.org/shop/web:2"}, Findings: []finding.Finding{critical, older}},
		{References: []string{"example.org/shop/api:1"}, Findings: []finding.Finding{
			{ID: "CVE-2", Severity: finding.Medium, Package: finding.Package{Name: "zlib"}},
			{ID: "CVE-3", Severity: finding.Low, KnownExploited: true, Package: finding.Package{Name: "zlib"}},
			{ID: "CVE-4", FixState: finding.FixStateFixed, FixVersions: []string{"2"}, Package: finding.Package{Name: "zlib"}},
			{ID: "CVE-5", Package: finding.Package{Name: "zlib"}},
		}},
	}
	var got []string
	for _, line := range AnnouncedLines(images) {
		got = append(got, line.String())
	}
	want := []string{"CVE-1 in openssl of example.org/shop/web", "CVE-3 in zlib of example.org/shop/api", "CVE-4 in zlib of example.org/shop/api"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
}

func TestAnnotationMatchesRunningContainers(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "web", ImageID: "registry/shop/web@sha256:aa"}}}}
	if err := checkAnnotation(pod); err == nil {
		t.Error("a missing annotation was not noticed")
	}
	pod.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{Annotation: `{"web":"sha256:aa"}`}}
	if err := checkAnnotation(pod); err != nil {
		t.Errorf("the right annotation: %v", err)
	}
	pod.Annotations[Annotation] = `{"web":"sha256:bb"}`
	if err := checkAnnotation(pod); err == nil {
		t.Error("another digest was not noticed")
	}
}

func TestFilesBelow(t *testing.T) {
	files, err := filesBelow(fstest.MapFS{"v6/latest.json": {Data: []byte("{}")}}, "/srv")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(files["/srv/v6/latest.json"].Content); len(files) != 1 || got != "{}" {
		t.Errorf("want the one file below /srv, got %v", files)
	}
}

func TestFixedLinesAreMissingOnes(t *testing.T) {
	line := func(id, pkg, version string) Line {
		return Line{Repository: "shop/web", ID: id, Package: pkg, Version: version}
	}
	before := []Line{line("CVE-2", "openssl", "1"), line("CVE-1", "openssl", "1"), line("CVE-1", "zlib", "1")}
	want := []string{"Fixed: CVE-1 in openssl of shop/web", "Fixed: CVE-2 in openssl of shop/web"}
	if diff := cmp.Diff(want, fixed(before, []Line{line("CVE-1", "zlib", "2"), line("CVE-3", "openssl", "2")})); diff != "" {
		t.Errorf("fixed (-want +got):\n%s", diff)
	}
}

func TestRequireOnlyFixed(t *testing.T) {
	gone := func(id string) Line {
		return Line{Repository: "shop/web", ID: id, Package: "openssl", Change: v1alpha1.ChangeFixed}
	}
	var many []Line
	for i := range itemsInSection + 2 {
		many = append(many, gone(fmt.Sprintf("CVE-%02d", i)))
	}
	present := gone("CVE-00")
	present.Change = v1alpha1.ChangeNew
	for name, tt := range map[string]struct {
		message Message
		want    []Line
		wrong   bool
	}{
		"all":                     {message: Message{Findings: 2, Lines: many[:2]}, want: many[:2]},
		"the worst of many":       {message: Message{Findings: len(many), Lines: many[:itemsInSection]}, want: many},
		"one is missing":          {message: Message{Findings: 1, Lines: many[:1]}, want: many[:2], wrong: true},
		"one is missing of many":  {message: Message{Findings: len(many), Lines: many[:itemsInSection-1]}, want: many, wrong: true},
		"one too many":            {message: Message{Findings: 3, Lines: many[:3]}, want: many[:2], wrong: true},
		"another one":             {message: Message{Findings: 2, Lines: many[1:3]}, want: many[:2], wrong: true},
		"one that is not fixed":   {message: Message{Findings: 1, Lines: []Line{present}}, want: many[:1], wrong: true},
		"a wrong number":          {message: Message{Findings: 3, Lines: many[:2]}, want: many[:2], wrong: true},
		"a notice in the message": {message: Message{Findings: 2, Lines: many[:2], Notices: []string{"trouble"}}, want: many[:2], wrong: true},
	} {
		want := Message{Lines: tt.want}.announcements()
		if err := requireOnlyFixed(tt.message, want); (err != nil) != tt.wrong {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Each receiver's Secret key has the URL of its channel's webhook.
func TestScannerIsRendered(t *testing.T) {
	values := map[string]any{
		"Namespace": "shop", "Name": "scanner", "System": "system", "FirstScan": "Summary", "Backend": "Grype", "ClairURL": "",
		"GroupWait": time.Second, "GroupInterval": time.Minute,
		"Receivers": []Receiver{{Name: "red", Announce: announcedChanges}, {Name: "blue", Workloads: "Own"}},
		"URLs":      map[string]string{"red": "https://x/red", "blue": "https://x/blue"},
	}
	text, err := render("manifests/scanner.yaml", values)
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(text, "\n---\n")
	var secret corev1.Secret
	if err := yaml.UnmarshalStrict([]byte(documents[0]), &secret); err != nil || !cmp.Equal(secret.StringData, values["URLs"]) {
		t.Errorf("the Secret holds %v, want %v (error %v)", secret.StringData, values["URLs"], err)
	}
	var scanner v1alpha1.Scanner
	if err := yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), &scanner); err != nil {
		t.Fatal(err)
	}
	red, blue := scanner.Spec.Notifications[0], scanner.Spec.Notifications[1]
	want := []v1alpha1.Change{v1alpha1.ChangeNew, v1alpha1.ChangeFixAvailable, v1alpha1.ChangeEscalated, v1alpha1.ChangeRegressed, v1alpha1.ChangeFixed}
	if !cmp.Equal(red.Announce, want) || red.Slack.WebhookURLSecretRef.Key != "red" || red.Workloads != "" {
		t.Errorf("want a receiver of %v at the address red, got %+v", want, red)
	}
	if blue.Workloads != v1alpha1.WorkloadsOwn || blue.Slack.WebhookURLSecretRef.Key != "blue" || blue.Announce != nil {
		t.Errorf("want a receiver of its own workloads at the address blue, got %+v", blue)
	}
}
