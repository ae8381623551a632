package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// spec is the spec of a Scanner or an exception as a user writes it.
type spec = map[string]any

// with adds fields to the spec of a Scanner with the engine Grype.
func with(fields spec) spec {
	whole := spec{"backend": spec{"type": "Grype"}}
	for key, value := range fields {
		whole[key] = value
	}
	return whole
}

// clairSpec returns the spec of a Scanner with the engine Clair and the given settings beside its URL.
func clairSpec(settings spec) spec {
	whole := spec{"url": "https://clair.example.com"}
	for key, value := range settings {
		whole[key] = value
	}
	return spec{"backend": spec{"type": "Clair", "clair": whole}}
}

func receiver(fields spec) spec {
	whole := spec{"name": "team", "slack": spec{"webhookURLSecretRef": spec{"name": "slack"}}}
	for key, value := range fields {
		if value == nil {
			delete(whole, key)
			continue
		}
		whole[key] = value
	}
	return with(spec{"notifications": []any{whole}})
}

// schedule returns the spec of a Scanner with a receiver that has a schedule.
func schedule(s spec) spec { return receiver(spec{"schedule": s}) }

// quietHours returns the spec of a Scanner with a receiver that has quiet hours with one other setting.
func quietHours(field string, value any) spec {
	hours := spec{"startTime": "20:00", "endTime": "08:00"}
	hours[field] = value
	return receiver(spec{"quietHours": []any{hours}})
}

// email returns a Scanner with a receiver that sends mails, with some fields changed; nil removes one.
func email(changes spec) spec {
	fields := spec{"server": "mail.example.com:587", "from": "scanner@example.com", "to": []any{"team@example.com"}}
	for name, value := range changes {
		if fields[name] = value; value == nil {
			delete(fields, name)
		}
	}
	return receiver(spec{"slack": nil, "email": fields})
}

func manyAddresses(n int) (all []any) {
	for i := range n {
		all = append(all, fmt.Sprintf("team-%d@example.com", i))
	}
	return all
}

// slackApp returns the spec of a Scanner with a receiver that is a Slack app, with the given settings. nil leaves one out.
func slackApp(settings spec) spec {
	whole := spec{"tokenSecretRef": spec{"name": "slack"}, "channel": "#security"}
	for key, value := range settings {
		whole[key] = value
		if value == nil {
			delete(whole, key)
		}
	}
	return receiver(spec{"slack": whole})
}

// createScanner creates a Scanner with the given spec.
func (p *testEnv) createScanner(name string, s spec) error {
	o := &unstructured.Unstructured{Object: spec{"spec": s}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Scanner"))
	o.SetNamespace(p.namespace)
	o.SetName(name)
	err := p.client.Create(p.t.Context(), o)
	if err == nil {
		p.deleteOnCleanup(o)
	}
	return err
}

// deleteOnCleanup deletes an object at the end of the test, for namespaces that tests share.
func (p *testEnv) deleteOnCleanup(o client.Object) {
	p.t.Cleanup(func() {
		if err := p.client.Delete(context.Background(), o); err != nil {
			p.t.Errorf("removing what the test made: %v", err)
		}
	})
}

// newUnattendedEnv returns a place in a namespace that no controller watches.
func newUnattendedEnv(t *testing.T) *testEnv {
	t.Helper()
	p := newTestEnv(t)
	p.namespace = unattended
	return p
}

// TestScannerDefaults: the API server sets the defaults of a Scanner.
func TestScannerDefaults(t *testing.T) {
	p := newUnattendedEnv(t)
	written := receiver(nil)
	delete(written, "backend")
	p.must(p.createScanner("defaults", written))
	var scanner v1alpha1.Scanner
	p.must(p.client.Get(t.Context(), keyFor(p, "defaults"), &scanner))
	day, wait, interval := metav1.Duration{Duration: 24 * time.Hour}, metav1.Duration{Duration: 30 * time.Second}, metav1.Duration{Duration: 5 * time.Minute}
	p.Expect(scanner.Spec).To(Equal(v1alpha1.ScannerSpec{
		ScanSettings: v1alpha1.ScanSettings{
			Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}, IgnoreLabel: "scanner-operator.io/ignore",
			Suspend: ptr.To(false), AddPodAnnotation: ptr.To(true), UnusedImageRetention: &day,
		},
		AddPodFinalizer: ptr.To(false),
		Notifications: []v1alpha1.Receiver{{
			Name: "team", Slack: &v1alpha1.SlackReceiver{WebhookURLSecretRef: v1alpha1.SecretKeyReference{Name: "slack", Key: "url"}},
			MinSeverity: "High", UnknownSeverity: v1alpha1.UnknownAnnounceFixable, OnlyFixable: ptr.To(false),
			Announce:  []v1alpha1.Change{v1alpha1.ChangeNew, v1alpha1.ChangeFixAvailable, v1alpha1.ChangeEscalated, v1alpha1.ChangeRegressed},
			Workloads: v1alpha1.WorkloadsOwnAndUnassigned, HealthNotices: ptr.To(true), GroupWait: &wait, GroupInterval: &interval, FirstScan: v1alpha1.FirstScanSummary,
		}},
	}))
}

// TestScannerAccepted: the API server accepts every valid spec, up to each bound.
func TestScannerAccepted(t *testing.T) {
	p := newUnattendedEnv(t)
	var globs, receivers []any
	for i := range 100 {
		globs = append(globs, fmt.Sprint("registry.example.com/", i, "/*"))
	}
	for i := range 16 {
		receivers = append(receivers, spec{"name": fmt.Sprint("team-", i), "slack": spec{"webhookURLSecretRef": spec{"name": "slack"}}})
	}
	for name, s := range map[string]spec{
		"the-least":    {},
		"no-type":      {"backend": spec{}},
		"job-alone":    {"backend": spec{"grype": spec{"job": spec{"priorityClassName": "low"}}}},
		"grype":        with(nil),
		"grype-shaped": with(spec{"backend": spec{"type": "Grype", "grype": spec{"job": spec{"nodeSelector": spec{"a": "b"}, "tolerations": []any{spec{"operator": "Exists"}}, "priorityClassName": "low", "resources": spec{"limits": spec{"memory": "4Gi"}}}}}}),
		"clair":        clairSpec(nil),
		"clair-in-full": clairSpec(spec{
			"url": "http://clair.clair.svc:6060/some/path", "authSecretRef": spec{"name": repeatToLength("s", 253)},
			"webhookTokenSecretRef": spec{"name": repeatToLength("s", 253), "key": repeatToLength("k", 253)},
		}),
		"exports": {"exports": []spec{
			{"name": "dojo", "defectDojo": dojo(spec{"engagement": nil})}, {"name": "track", "dependencyTrack": spec{"secretRef": spec{"name": "track"}}},
			{"name": "named", "dependencyTrack": track("prod")},
		}},
		"exports-of-clair":  {"backend": clairSpec(nil)["backend"], "exports": []spec{{"name": "dojo", "defectDojo": dojo(nil)}}},
		"longest-url":       clairSpec(spec{"url": repeatToLength("https://clair.example.com/", 512)}),
		"a-selector":        with(spec{"podSelector": spec{"matchLabels": spec{"a": "b"}, "matchExpressions": []any{spec{"key": "c", "operator": "NotIn", "values": []any{"d"}}}}}),
		"no-retention":      with(spec{"unusedImageRetention": "0s"}),
		"longest-retention": with(spec{"unusedImageRetention": "720h"}),
		"mixed-retention":   with(spec{"unusedImageRetention": "1h30m"}),
		"hundred-globs":     with(spec{"images": spec{"exclude": globs}}),
		"longest-glob":      with(spec{"images": spec{"exclude": []any{repeatToLength("*", 512)}}}),
		"sixteen-receivers": with(spec{"notifications": receivers}),
		"no-waiting":        receiver(spec{"groupWait": "0s", "groupInterval": "1s"}),
		"schedule":          receiver(spec{"schedule": spec{"cron": "0 8 * * MON-FRI"}}),
		"named-schedule":    receiver(spec{"schedule": spec{"cron": "@weekly", "timeZone": "Europe/Berlin"}}),
		"quiet-hours": receiver(spec{"quietHours": []any{
			spec{"startTime": "20:00", "endTime": "08:00"},
			spec{"days": []any{"Saturday", "Sunday"}, "startTime": "00:00", "endTime": "00:00", "timeZone": "America/Argentina/Buenos_Aires"},
			spec{"startTime": "23:59", "endTime": "00:00", "timeZone": "Etc/GMT+8"},
		}}),
		"longest-waiting":       receiver(spec{"groupWait": "1h", "groupInterval": "168h"}),
		"longest-names":         receiver(spec{"name": repeatToLength("n", 63), "slack": spec{"webhookURLSecretRef": spec{"name": repeatToLength("s", 253), "key": repeatToLength("k", 253)}}}),
		"a-webhook":             receiver(spec{"slack": nil, "webhook": spec{"secretRef": spec{"name": repeatToLength("s", 253)}}}),
		"teams":                 receiver(spec{"slack": nil, "teams": spec{"secretRef": spec{"name": "teams"}}}),
		"with-alertmanager":     receiver(spec{"slack": nil, "alertmanager": spec{"secretRef": spec{"name": "alertmanager"}}}),
		"mail":                  email(spec{"secretRef": spec{"name": "smtp"}}),
		"mail-to-many":          email(spec{"server": "10.0.0.1:25", "tls": "None", "to": manyAddresses(20)}),
		"mail-of-any-character": email(spec{"from": "a.!#$%&'*+/=?^_{|}~-b@x-1.example", "tls": "Implicit"}),
		"a-channel-by-id":       slackApp(spec{"channel": "C0123456789"}),
		"a-person":              slackApp(spec{"channel": "U0123456789"}),
		"a-channel-by-name":     slackApp(spec{"channel": "#" + strings.Repeat("sécurité-監視_", 6)}),
		"every-choice":          receiver(spec{"minSeverity": "Negligible", "unknownSeverity": "Hold", "onlyFixable": true, "healthNotices": false, "firstScan": "Silent"}),
		"every-switch":          with(spec{"suspend": true, "addPodAnnotation": false, "addPodFinalizer": true}),
		repeatToLength("n", 63): with(nil),
		"with.dots":             with(nil),
	} {
		t.Run(name, func(*testing.T) { p.Expect(p.createScanner(name, s)).To(Succeed()) })
	}
}

// TestSamples: the API server accepts each sample manifest unchanged, including its Roles and RoleBindings, and those for the web UI.
func TestSamples(t *testing.T) {
	p := newUnattendedEnv(t)
	p.installGatewayAPI()
	files, err := filepath.Glob(filepath.Join("..", "config", "samples", "*.yaml"))
	p.must(err)
	forWebUI, err := filepath.Glob(filepath.Join("..", "config", "samples", "web-ui", "*.yaml"))
	p.must(err)
	kinds := map[string]int{}
	for _, file := range slices.Concat(files, forWebUI) {
		text, err := os.ReadFile(file)
		p.must(err)
		for _, document := range strings.Split(string(text), "\n---\n") {
			o := &unstructured.Unstructured{}
			p.must(yaml.UnmarshalStrict([]byte(document), &o.Object))
			if o.GetKind() == "" { // a kustomize file
				continue
			}
			if !strings.HasPrefix(o.GetKind(), "Cluster") {
				o.SetNamespace(p.namespace)
			}
			if err := p.client.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			kinds[o.GetKind()]++
		}
	}
	if kinds["Ingress"] != 1 || kinds["HTTPRoute"] != 1 || kinds["BackendTLSPolicy"] != 1 || kinds["Deployment"] != 1 {
		t.Errorf("the samples for the web UI are %v, want one for each way", kinds)
	}
	if kinds["VulnerabilityException"] != 1 || kinds["ClusterScanner"] != 1 || kinds["ClusterVulnerabilityException"] != 1 || kinds["Scanner"] < 2 || kinds["Role"] < 3 || kinds["RoleBinding"] != kinds["Role"] {
		t.Errorf("the samples are %v: is this test looking in the right place?", kinds)
	}
}

// installGatewayAPI adds the CRDs of the version that hack/tools/gateway-api pins. The module is downloaded if the module cache lacks it.
func (p *testEnv) installGatewayAPI() {
	p.t.Helper()
	download := exec.CommandContext(p.t.Context(), "go", "mod", "download", "-json", "sigs.k8s.io/gateway-api")
	download.Dir = filepath.Join("..", "hack", "tools", "gateway-api")
	text, err := download.Output()
	p.must(err)
	var module struct{ Dir string }
	p.must(json.Unmarshal(text, &module))
	_, err = envtest.InstallCRDs(p.config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(module.Dir, "config", "crd", "standard")}, ErrorIfPathMissing: true,
	})
	p.must(err)
}

// dojo returns the settings of an export to DefectDojo with some changes; nil removes a field.
func dojo(change spec) spec {
	settings := spec{"secretRef": spec{"name": "dojo"}, "engagement": "prod"}
	for name, value := range change {
		if settings[name] = value; value == nil {
			delete(settings, name)
		}
	}
	return settings
}

// track returns the settings of an export to Dependency-Track.
func track(version string) spec {
	return spec{"secretRef": spec{"name": "track"}, "projectVersion": version}
}

// TestScannerRejected: the API server rejects each mistake with a message that names the field.
func TestScannerRejected(t *testing.T) {
	p := newUnattendedEnv(t)
	tooMany := make([]any, 101)
	for i := range tooMany {
		tooMany[i] = "x"
	}
	var receivers []any
	for i := range 17 {
		receivers = append(receivers, spec{"name": fmt.Sprint("team-", i), "slack": spec{"webhookURLSecretRef": spec{"name": "slack"}}})
	}
	for name, tt := range map[string]struct {
		spec spec
		want []string
	}{
		"another engine":               {spec{"backend": spec{"type": "Trivy"}}, []string{"spec.backend.type", `"Grype", "Clair"`}},
		"the engine of tests":          {spec{"backend": spec{"type": "Fake"}}, []string{"spec.backend.type", `"Grype", "Clair"`}},
		"Clair's settings, no type":    {spec{"backend": spec{"clair": spec{"url": "https://clair.example.com"}}}, []string{"spec.backend", "clair may be set only when type is Clair"}},
		"Clair's settings for Grype":   {spec{"backend": spec{"type": "Grype", "clair": spec{"url": "https://clair.example.com"}}}, []string{"spec.backend", "clair may be set only when type is Clair"}},
		"Grype's settings for Clair":   {spec{"backend": spec{"type": "Clair", "grype": spec{}, "clair": spec{"url": "https://clair.example.com"}}}, []string{"spec.backend", "grype may be set only when type is Grype"}},
		"Clair without settings":       {spec{"backend": spec{"type": "Clair"}}, []string{"spec.backend", "clair.url is needed when type is Clair"}},
		"Clair without an address":     {spec{"backend": spec{"type": "Clair", "clair": spec{}}}, []string{"spec.backend.clair.url", "Required value"}},
		"an address of no scheme":      {clairSpec(spec{"url": "clair.example.com"}), []string{"spec.backend.clair.url", "should match"}},
		"an address of another scheme": {clairSpec(spec{"url": "ftp://clair.example.com"}), []string{"spec.backend.clair.url", "should match"}},
		"an address that is too long":  {clairSpec(spec{"url": repeatToLength("https://clair.example.com/", 513)}), []string{"spec.backend.clair.url", "512"}},
		"a key in no Secret":           {clairSpec(spec{"authSecretRef": spec{}}), []string{"spec.backend.clair.authSecretRef.name", "Required value"}},
		"a key, Secret without name":   {clairSpec(spec{"authSecretRef": spec{"name": ""}}), []string{"spec.backend.clair.authSecretRef.name", "at least 1"}},
		"a key, no name of a Secret":   {clairSpec(spec{"authSecretRef": spec{"name": "x;y"}}), []string{"spec.backend.clair.authSecretRef.name", "should match"}},
		"a token, no name of a Secret": {clairSpec(spec{"webhookTokenSecretRef": spec{"name": "../x"}}), []string{"spec.backend.clair.webhookTokenSecretRef.name", "should match"}},
		"a token in no Secret":         {clairSpec(spec{"webhookTokenSecretRef": spec{"key": "a"}}), []string{"spec.backend.clair.webhookTokenSecretRef.name", "Required value"}},
		"a token, empty key":           {clairSpec(spec{"webhookTokenSecretRef": spec{"name": "a", "key": ""}}), []string{"spec.backend.clair.webhookTokenSecretRef.key", "at least 1"}},
		"a priority that is too long":  {spec{"backend": spec{"type": "Grype", "grype": spec{"job": spec{"priorityClassName": repeatToLength("x", 254)}}}}, []string{"spec.backend.grype.job.priorityClassName", "253"}},
		"an empty ignore label":        {with(spec{"ignoreLabel": ""}), []string{"spec.ignoreLabel", "at least 1"}},
		"an ignore label, too long":    {with(spec{"ignoreLabel": repeatToLength("x", 318)}), []string{"spec.ignoreLabel", "317"}},
		"neither true nor false":       {with(spec{"addPodAnnotation": "Enabled"}), []string{"spec.addPodAnnotation", "boolean"}},
		"suspended by a word":          {with(spec{"suspend": "yes"}), []string{"spec.suspend", "boolean"}},
		"a negative retention":         {with(spec{"unusedImageRetention": "-1s"}), []string{"spec.unusedImageRetention", "must be between 0s and 720h"}},
		"a retention that is too long": {with(spec{"unusedImageRetention": "721h"}), []string{"spec.unusedImageRetention", "must be between 0s and 720h"}},
		"a retention in words":         {with(spec{"unusedImageRetention": "a day"}), []string{"spec.unusedImageRetention"}},
		"too many globs":               {with(spec{"images": spec{"exclude": tooMany}}), []string{"spec.images.exclude", "100"}},
		"an empty glob":                {with(spec{"images": spec{"exclude": []any{""}}}), []string{"spec.images.exclude[0]", "at least 1"}},
		"a glob that is too long":      {with(spec{"images": spec{"exclude": []any{repeatToLength("*", 513)}}}), []string{"spec.images.exclude[0]", "512"}},
		"too many receivers":           {with(spec{"notifications": receivers}), []string{"spec.notifications", "16"}},
		"a receiver twice":             {with(spec{"notifications": []any{receivers[0], receivers[0]}}), []string{"spec.notifications[1]", "Duplicate value"}},
		"an export of no kind":         {spec{"exports": []spec{{"name": "a"}}}, []string{"spec.exports[0]", "an export needs exactly one of defectDojo, dependencyTrack"}},
		"an export with a bad name":    {spec{"exports": []spec{{"name": "A b", "defectDojo": dojo(nil)}}}, []string{"spec.exports[0].name", "should match"}},
		"an export of two kinds":       {spec{"exports": []spec{{"name": "a", "defectDojo": dojo(nil), "dependencyTrack": track("prod")}}}, []string{"spec.exports[0]", "an export needs exactly one of"}},
		"a version with a space":       {spec{"exports": []spec{{"name": "a", "dependencyTrack": track("prod eu")}}}, []string{"spec.exports[0].dependencyTrack.projectVersion", "spaces"}},
		"an empty version":             {spec{"exports": []spec{{"name": "a", "dependencyTrack": track("")}}}, []string{"spec.exports[0].dependencyTrack.projectVersion", "at least 1"}},
		"SBOMs of Clair": {spec{"backend": spec{"type": "Clair", "clair": spec{"url": "https://clair.example.com"}}, "exports": []spec{{"name": "a", "dependencyTrack": track("prod")}}},
			[]string{"exports[].dependencyTrack needs backend.type Grype"}},
		"a cluster of two lines":        {spec{"exports": []spec{{"name": "a", "defectDojo": dojo(spec{"engagement": "a\nb"})}}}, []string{"spec.exports[0].defectDojo.engagement", "control characters"}},
		"a product type, too long":      {spec{"exports": []spec{{"name": "a", "defectDojo": dojo(spec{"productType": repeatToLength("n", 64)})}}}, []string{"spec.exports[0].defectDojo.productType", "63"}},
		"an export in no Secret":        {spec{"exports": []spec{{"name": "a", "defectDojo": dojo(spec{"secretRef": nil})}}}, []string{"spec.exports[0].defectDojo.secretRef", "Required value"}},
		"a receiver without a name":     {receiver(spec{"name": nil}), []string{"spec.notifications[0].name", "Required value"}},
		"a receiver with a bad name":    {receiver(spec{"name": "Team A"}), []string{"spec.notifications[0].name", "should match"}},
		"a receiver, name too long":     {receiver(spec{"name": repeatToLength("n", 64)}), []string{"spec.notifications[0].name", "63"}},
		"a receiver of no kind":         {receiver(spec{"slack": nil}), []string{"spec.notifications[0]", "a receiver needs exactly one of slack, webhook, teams, email and alertmanager"}},
		"a receiver of two kinds":       {receiver(spec{"webhook": spec{"secretRef": spec{"name": "a"}}}), []string{"spec.notifications[0]", "a receiver needs exactly one of slack, webhook, teams, email and alertmanager"}},
		"Teams in no Secret":            {receiver(spec{"slack": nil, "teams": spec{}}), []string{"spec.notifications[0].teams.secretRef", "Required value"}},
		"an Alertmanager in no Secret":  {receiver(spec{"slack": nil, "alertmanager": spec{}}), []string{"spec.notifications[0].alertmanager.secretRef", "Required value"}},
		"mail to nobody":                {email(spec{"to": []any{}}), []string{"spec.notifications[0].email.to", "at least 1"}},
		"mail to too many":              {email(spec{"to": manyAddresses(21)}), []string{"spec.notifications[0].email.to", "20"}},
		"mail to somebody twice":        {email(spec{"to": []any{"a@example.com", "a@example.com"}}), []string{"spec.notifications[0].email.to[1]", "Duplicate value"}},
		"mail to a name":                {email(spec{"to": []any{"Team <a@example.com>"}}), []string{"spec.notifications[0].email.to[0]", "should match"}},
		"mail with a line break":        {email(spec{"to": []any{"a@example.com\nBcc: b@example.com"}}), []string{"spec.notifications[0].email.to[0]", "should match"}},
		"mail from nobody":              {email(spec{"from": nil}), []string{"spec.notifications[0].email.from", "Required value"}},
		"mail of a long address":        {email(spec{"from": repeatToLength("a", 249) + "@b.com"}), []string{"spec.notifications[0].email.from", "254"}},
		"mail by no server":             {email(spec{"server": "smtp://mail.example.com"}), []string{"spec.notifications[0].email.server", "should match"}},
		"mail with some TLS":            {email(spec{"tls": "Maybe"}), []string{"spec.notifications[0].email.tls", `"StartTLS"`}},
		"a password without TLS":        {email(spec{"tls": "None", "secretRef": spec{"name": "smtp"}}), []string{"spec.notifications[0].email", "secretRef needs TLS"}},
		"a webhook in no Secret":        {receiver(spec{"slack": nil, "webhook": spec{}}), []string{"spec.notifications[0].webhook.secretRef", "Required value"}},
		"a webhook, no name":            {receiver(spec{"slack": nil, "webhook": spec{"secretRef": spec{"name": "../x"}}}), []string{"spec.notifications[0].webhook.secretRef.name", "should match"}},
		"no Secret":                     {receiver(spec{"slack": spec{}}), []string{"spec.notifications[0].slack", "set either webhookURLSecretRef"}},
		"a webhook and an app":          {slackApp(spec{"webhookURLSecretRef": spec{"name": "slack"}}), []string{"spec.notifications[0].slack", "set either webhookURLSecretRef"}},
		"a channel of a webhook":        {receiver(spec{"slack": spec{"webhookURLSecretRef": spec{"name": "slack"}, "channel": "#security"}}), []string{"spec.notifications[0].slack", "channel may be set only with tokenSecretRef"}},
		"a channel alone":               {receiver(spec{"slack": spec{"channel": "#security"}}), []string{"spec.notifications[0].slack", "set either webhookURLSecretRef"}},
		"an app without a channel":      {slackApp(spec{"channel": nil}), []string{"spec.notifications[0].slack", "channel is needed with tokenSecretRef"}},
		"a channel without #":           {slackApp(spec{"channel": "security"}), []string{"spec.notifications[0].slack.channel", "must be the channel's ID"}},
		"a channel with a space":        {slackApp(spec{"channel": "#security team"}), []string{"spec.notifications[0].slack.channel", "must be the channel's ID"}},
		"a bot":                         {slackApp(spec{"channel": "B0123456789"}), []string{"spec.notifications[0].slack.channel", "must be the channel's ID"}},
		"a channel that is too long":    {slackApp(spec{"channel": repeatToLength("#", 82)}), []string{"spec.notifications[0].slack.channel", "81"}},
		"an app in no Secret":           {slackApp(spec{"tokenSecretRef": spec{"key": "a"}}), []string{"spec.notifications[0].slack.tokenSecretRef.name", "Required value"}},
		"an app, empty key":             {slackApp(spec{"tokenSecretRef": spec{"name": "a", "key": ""}}), []string{"spec.notifications[0].slack.tokenSecretRef.key", "at least 1"}},
		"a Secret without a name":       {receiver(spec{"slack": spec{"webhookURLSecretRef": spec{"key": "url"}}}), []string{"spec.notifications[0].slack.webhookURLSecretRef.name", "Required value"}},
		"a Secret with an empty name":   {receiver(spec{"slack": spec{"webhookURLSecretRef": spec{"name": ""}}}), []string{"spec.notifications[0].slack.webhookURLSecretRef.name", "at least 1"}},
		"no name of a Secret":           {receiver(spec{"slack": spec{"webhookURLSecretRef": spec{"name": "$(x)"}}}), []string{"spec.notifications[0].slack.webhookURLSecretRef.name", "should match"}},
		"an empty key":                  {receiver(spec{"slack": spec{"webhookURLSecretRef": spec{"name": "a", "key": ""}}}), []string{"spec.notifications[0].slack.webhookURLSecretRef.key", "at least 1"}},
		"another severity":              {receiver(spec{"minSeverity": "Severe"}), []string{"spec.notifications[0].minSeverity", `"Critical"`}},
		"Unknown is no threshold":       {receiver(spec{"minSeverity": "Unknown"}), []string{"spec.notifications[0].minSeverity", `"Critical"`}},
		"another policy":                {receiver(spec{"unknownSeverity": "Perhaps"}), []string{"spec.notifications[0].unknownSeverity", `"AnnounceFixable"`}},
		"another first scan":            {receiver(spec{"firstScan": "Loud"}), []string{"spec.notifications[0].firstScan", `"Summary"`}},
		"a wait that is too long":       {receiver(spec{"groupWait": "61m"}), []string{"spec.notifications[0].groupWait", "must be between 0s and 1h"}},
		"a schedule without times":      {schedule(spec{"timeZone": "UTC"}), []string{"spec.notifications[0].schedule.cron", "Required"}},
		"an interval":                   {schedule(spec{"cron": "@every 1h"}), []string{"spec.notifications[0].schedule.cron", "five fields"}},
		"a zone in the schedule":        {schedule(spec{"cron": "TZ=UTC 0 8 * * *"}), []string{"spec.notifications[0].schedule.cron", "belongs in timeZone"}},
		"a zone before the schedule":    {schedule(spec{"cron": "CRON_TZ=UTC 0 8 * * *"}), []string{"spec.notifications[0].schedule.cron", "belongs in timeZone"}},
		"a schedule with seconds":       {schedule(spec{"cron": "0 0 8 * * *"}), []string{"spec.notifications[0].schedule.cron", "five fields"}},
		"a schedule each minute":        {schedule(spec{"cron": "* * * * *"}), []string{"spec.notifications[0].schedule.cron", "one number"}},
		"a schedule in the local zone":  {schedule(spec{"cron": "@daily", "timeZone": "local"}), []string{"spec.notifications[0].schedule.timeZone", "such as Europe/Berlin or UTC"}},
		"quiet hours without an end":    {receiver(spec{"quietHours": []any{spec{"startTime": "20:00"}}}), []string{"spec.notifications[0].quietHours[0].endTime", "Required"}},
		"quiet hours until 24:00":       {quietHours("endTime", "24:00"), []string{"spec.notifications[0].quietHours[0].endTime", "from 00:00 to 23:59"}},
		"quiet hours from 8":            {quietHours("startTime", "8"), []string{"spec.notifications[0].quietHours[0].startTime"}},
		"quiet hours in the local zone": {quietHours("timeZone", "Local"), []string{"spec.notifications[0].quietHours[0].timeZone", "such as Europe/Berlin or UTC"}},
		"quiet hours in a file":         {quietHours("timeZone", "../../etc/passwd"), []string{"spec.notifications[0].quietHours[0].timeZone", "such as Europe/Berlin or UTC"}},
		"quiet hours at an offset":      {quietHours("timeZone", "+02:00"), []string{"spec.notifications[0].quietHours[0].timeZone", "such as Europe/Berlin or UTC"}},
		"quiet hours on a date":         {quietHours("days", []any{"Holiday"}), []string{"spec.notifications[0].quietHours[0].days[0]", "Saturday"}},
		"quiet hours on a day twice":    {quietHours("days", []any{"Monday", "Monday"}), []string{"spec.notifications[0].quietHours[0].days", "Duplicate"}},
		"too many quiet hours":          {receiver(spec{"quietHours": slices.Repeat([]any{spec{"startTime": "20:00", "endTime": "08:00"}}, 9)}), []string{"spec.notifications[0].quietHours", "8"}},
		"a negative wait":               {receiver(spec{"groupWait": "-1s"}), []string{"spec.notifications[0].groupWait", "must be between 0s and 1h"}},
		"no interval":                   {receiver(spec{"groupInterval": "0s"}), []string{"spec.notifications[0].groupInterval", "must be between 1s and 168h"}},
		"an interval that is too long":  {receiver(spec{"groupInterval": "169h"}), []string{"spec.notifications[0].groupInterval", "must be between 1s and 168h"}},
		"an interval in words":          {receiver(spec{"groupInterval": "often"}), []string{"spec.notifications[0].groupInterval"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.createScanner("rejected", tt.spec)
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
	p.Expect(p.createScanner(repeatToLength("n", 64), with(nil))).To(MatchError(ContainSubstring("metadata.name must be at most 63 characters")))
}

// TestImageScanImmutable: digest and platform of an ImageScan are immutable; its references are not.
func TestImageScanImmutable(t *testing.T) {
	p := newUnattendedEnv(t)
	scan := scanOf(aScanner(p.namespace, "all"), web, func(s *v1alpha1.ImageScan) { s.OwnerReferences, s.Spec.DigestType = nil, "" })
	p.create(scan)
	p.deleteOnCleanup(scan)
	p.Expect(scan.Spec.DigestType).To(Equal(v1alpha1.DigestManifest), "the default")
	for field, change := range map[string]func(*v1alpha1.ImageScanSpec){
		"digest":   func(s *v1alpha1.ImageScanSpec) { s.Digest = digest("another") },
		"platform": func(s *v1alpha1.ImageScanSpec) { s.Platform = "linux/arm64" },
	} {
		changed := scan.DeepCopy()
		change(&changed.Spec)
		p.Expect(p.client.Update(t.Context(), changed)).To(MatchError(ContainSubstring(field + " is immutable")))
	}
	scan.Spec.References = append(scan.Spec.References, "another:1")
	p.Expect(p.client.Update(t.Context(), scan)).To(Succeed())
}

// TestImageScanRejected: the API server rejects an ImageScan with an invalid field.
func TestImageScanRejected(t *testing.T) {
	p := newUnattendedEnv(t)
	for name, tt := range map[string]struct {
		change func(*v1alpha1.ImageScanSpec)
		want   string
	}{
		"no digest":           {func(s *v1alpha1.ImageScanSpec) { s.Digest = "" }, "spec.digest"},
		"a digest cut short":  {func(s *v1alpha1.ImageScanSpec) { s.Digest = s.Digest[:70] }, "spec.digest"},
		"another type":        {func(s *v1alpha1.ImageScanSpec) { s.DigestType = "Layer" }, "spec.digestType"},
		"no platform":         {func(s *v1alpha1.ImageScanSpec) { s.Platform = "" }, "spec.platform"},
		"a long platform":     {func(s *v1alpha1.ImageScanSpec) { s.Platform = repeatToLength("p", 65) }, "spec.platform"},
		"no Scanner":          {func(s *v1alpha1.ImageScanSpec) { s.ScannerRef.Name = "" }, "spec.scannerRef"},
		"a long Scanner":      {func(s *v1alpha1.ImageScanSpec) { s.ScannerRef.Name = repeatToLength("s", 64) }, "spec.scannerRef"},
		"too many references": {func(s *v1alpha1.ImageScanSpec) { s.References = []string{"a", "b", "c", "d"} }, "spec.references"},
		"a reference, too long": {func(s *v1alpha1.ImageScanSpec) {
			s.References = []string{repeatToLength("r", v1alpha1.MaxReferenceBytes+1)}
		}, "spec.references[0]"},
	} {
		scan := scanOf(aScanner(p.namespace, "all"), "rejected:1")
		tt.change(&scan.Spec)
		if err := p.client.Create(t.Context(), scan); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: the error is %v, want one that names %s", name, err, tt.want)
		}
	}
}

// TestPrinterColumns: the columns that kubectl get shows for Scanners and ImageScans.
func TestPrinterColumns(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "all")
	p.create(scanner, aPod(p.namespace, "a", running("main", vulnerable), running("broken", failing)))
	p.waitForPhases(scanner, phasesOf{vulnerable: v1alpha1.PhaseScanned, failing: v1alpha1.PhaseFailed})
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{Total: 2, Scanned: 1, Failed: 1}))
		g.Expect(status.Findings.Critical).To(BeEquivalentTo(1))
	})
	scanners := p.table("scanners")
	p.Expect(scanners.columns).To(Equal([]string{
		"Name", "Ready", "Images", "Scanned", "Failed", "Critical", "High", "Exploited", "Messages", "Data Age", "Age", "Suppressed", "Engine", "Message",
	}))
	p.Expect(scanners.rows).To(HaveLen(1))
	p.Expect(scanners.rows[0][:9]).To(Equal([]any{"all", "True", "2", "1", "1", "1", "1", "0", "None"}))
	p.Expect(scanners.rows[0][9]).To(MatchRegexp("^[0-9]+[hd]$"))
	p.Expect(scanners.rows[0][11:]).To(Equal([]any{"0", "Grype", "1 of 2 images could not be scanned (ImageNotFound: registry.example.com/shop/…"}))
	scans := p.table("imagescans")
	p.Expect(scans.columns).To(Equal([]string{
		"Name", "Image", "Phase", "Reason", "Exploited", "Critical", "High", "Age", "Fixable", "Suppressed", "Detail",
	}))
	row := scans.rows[1]
	p.Expect(row[1:7]).To(Equal([]any{"shop/vulnerable:1", "Scanned", "-", "0", "1", "1"}))
	p.Expect(row[8:10]).To(Equal([]any{"1", "0"}))
	p.Expect(row[10]).To(ContainSubstring(" Critical "))
	row = scans.rows[0]
	p.Expect(row[1:7]).To(Equal([]any{"shop/failing:1", "Failed", "ImageNotFound", "-", "-", "-"}), "an image without a result has no count, not even 0")
	p.Expect(row[10]).NotTo(Equal("-"))
}

// TestColumnsOfNewObjects: before any manager reports on an object, its numbers are unknown, and not left out.
func TestColumnsOfNewObjects(t *testing.T) {
	p := newUnattendedEnv(t)
	scanner, e := aScanner(p.namespace, "new"), anException("new", "CVE-2024-0001")
	scan := scanOf(scanner, "columns:1", func(s *v1alpha1.ImageScan) { s.OwnerReferences = nil })
	e.Namespace, e.UID = p.namespace, ""
	p.create(scanner, scan, e)
	p.deleteOnCleanup(scanner)
	p.deleteOnCleanup(scan)
	p.deleteOnCleanup(e)
	for resource, name := range map[string]string{"scanners": scanner.Name, "imagescans": scan.Name, "vulnerabilityexceptions": e.Name} {
		table := p.table(resource)
		row := table.rows[slices.IndexFunc(table.rows, func(cells []any) bool { return cells[0] == name })]
		for i, column := range table.columns {
			if text := cellText(row[i]); text == "" && column != "Image" && column != "Phase" || strings.HasPrefix(text, "<") {
				t.Errorf("%s: the column %s prints %q, want a value or -", resource, column, text)
			}
		}
	}
}

// TestColumnWidths: kubectl get prints lines of at most 130 characters for a name of 20, and of at most 220 with -o wide, whatever the status says.
func TestColumnWidths(t *testing.T) {
	p := newUnattendedEnv(t)
	long := repeatToLength("long text ", 2000)
	now := time.Now()
	ready := []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "ServiceAccountMissing", Message: truncate(long, v1alpha1.MaxMessageBytes),
		LastTransitionTime: metav1.NewTime(now),
	}, {
		Type: v1alpha1.ConditionNotificationsDelivered, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDelivered, LastTransitionTime: metav1.NewTime(now),
	}}
	status := v1alpha1.ScannerStatus{
		Conditions: ready, Images: v1alpha1.ImageCounts{Total: 99999, Scanned: 99999}, Findings: v1alpha1.FindingCounts{High: 9999, Critical: 9999},
		VulnerabilityData: &v1alpha1.VulnerabilityData{BuildTime: metav1.NewTime(now.Add(-2000 * 24 * time.Hour))},
	}
	name := repeatToLength("n", 20)
	scanner := aScanner(p.namespace, name)
	cluster := &v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterScannerSpec{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{repeatToLength("n", 60): repeatToLength("v", 60)}},
	}}
	scan := scanOf(scanner, "registry.example.com/"+repeatToLength("team/", 60)+"web:1.4.7-2026-11-29-with-a-long-tag", func(s *v1alpha1.ImageScan) {
		s.OwnerReferences, s.Name = nil, name
	})
	e := anException(name, "CVE-2024-0001")
	e.Namespace, e.UID, e.Spec.Status, e.Spec.Reason = p.namespace, "", v1alpha1.VEXUnderInvestigation, repeatToLength("because ", 1000)
	e.Spec.ExpirationTime = &metav1.Time{Time: now.AddDate(1, 0, 0)}
	for _, o := range []client.Object{scanner, cluster, scan, e} {
		p.create(o)
		p.deleteOnCleanup(o)
	}
	scope := &scannerScope{scannerFacts: scannerFacts{covered: true, totals: &store.Totals{}}}
	write := func(o client.Object, change func()) {
		p.Eventually(func() error { // the ClusterScanner has a reconciler, which writes its status as well
			p.must(p.client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
			change()
			return p.client.Status().Update(t.Context(), o)
		}, eventuallyTimeout, "100ms").Should(Succeed())
	}
	write(scanner, func() { scanner.Status, scope.scanner = status, scanner; scope.setColumns(now) })
	write(cluster, func() {
		cluster.Status.ScannerStatus, scope.scanner = status, cluster
		cluster.Status.Namespaces.Covered = 99999
		scope.setColumns(now)
	})
	write(scan, func() {
		scan.Status.Image, scan.Status.Phase, scan.Status.Conditions = shortImageName(scan.Spec), v1alpha1.PhaseCataloging, ready[:1]
		scan.Status.Columns = columnsOf(&scan.Status, nil)
	})
	write(e, func() { e.Status.Conditions = ready[:1]; exceptionObjectOf(e).setColumns() })
	for _, resource := range []string{"scanners", "imagescans", "vulnerabilityexceptions", "clusterscanners"} {
		table := p.table(resource)
		if narrow, wide := table.width(name, false), table.width(name, true); narrow > 130 || wide > 220 {
			t.Errorf("kubectl get %s prints lines of %d characters, with -o wide of %d", resource, narrow, wide)
		}
	}
}

type printed struct {
	columns []string
	// wide is true for a column that only -o wide prints.
	wide []bool
	rows [][]any
}

// width returns the number of characters of the line of one object, with all columns or only those that are printed by default.
func (all printed) width(name string, wide bool) (characters int) {
	row := all.rows[slices.IndexFunc(all.rows, func(cells []any) bool { return cells[0] == name })]
	for i, column := range all.columns {
		if wide || !all.wide[i] {
			characters += max(utf8.RuneCountInString(cellText(row[i])), len(column)) + len("   ")
		}
	}
	return characters - len("   ")
}

// cellText returns the text that kubectl prints for a cell.
func cellText(cell any) string {
	if cell == nil {
		return ""
	}
	return fmt.Sprint(cell)
}

// table requests a resource as a Table, as kubectl does.
func (p *testEnv) table(resource string) printed {
	p.t.Helper()
	transport, err := rest.TransportFor(p.config)
	p.must(err)
	namespace := "/namespaces/" + p.namespace
	if strings.HasPrefix(resource, "cluster") {
		namespace = ""
	}
	url := fmt.Sprintf("%s/apis/%s%s/%s", strings.TrimSuffix(p.config.Host, "/"), v1alpha1.GroupVersion, namespace, resource)
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, url, nil)
	p.must(err)
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := (&http.Client{Transport: transport}).Do(request)
	p.must(err)
	defer response.Body.Close()
	var table metav1.Table
	p.must(json.NewDecoder(response.Body).Decode(&table))
	var all printed
	for _, column := range table.ColumnDefinitions {
		all.columns, all.wide = append(all.columns, column.Name), append(all.wide, column.Priority > 0)
	}
	for _, row := range table.Rows {
		for i, cell := range row.Cells {
			if number, isNumber := cell.(float64); isNumber {
				row.Cells[i] = int64(number)
			}
		}
		all.rows = append(all.rows, row.Cells)
	}
	return all
}

func keyFor(p *testEnv, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: p.namespace, Name: name}
}
