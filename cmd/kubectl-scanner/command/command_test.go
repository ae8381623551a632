package command

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestTranscripts compares everything that commands print to a viewer of some namespaces with files.
func TestTranscripts(t *testing.T) {
	w := newWorld(t)
	token := w.token("viewer", "shop", "scanner-operator-view")
	for _, namespace := range []string{"blog", "void", "archive", "lab", "idle"} {
		w.bind("viewer", namespace, "scanner-operator-view")
	}
	kubeconfig := w.kubeconfig("shop", token)
	for name, commands := range map[string][]string{
		"findings": {
			"findings", "findings -o wide", "findings --severity=high --fixable", "findings --exploited -o csv", "findings --workload CronJob/report --package zlib1g -o yaml",
			"findings --severity=Critical --fail-on=exploited", "findings --exploited --package=zlib1g --fail-on=any", "findings -n blog --fail-on=any", "findings -n void",
			"findings --severity=worst", "findings --fail-on=Unknown", "findings -o xml", "findings -n people", "findings -A",
		},
		"image":   {"image web", "image Deployment/nginx -o wide", "image ghcr.io/shop/billing:1.4", "image ghcr.io/shop/billing:1.4 --fail-on=any", "image shop/ -o csv", "image billing -o yaml", "image nothing"},
		"cve":     {"cve CVE-2026-0002 -n shop", "cve cve-2026-0002 -n shop -o csv", "cve CVE-1999-0001", "cve CVE-1999-0001 -n blog", "cve CVE-1999-0001 -n blog -o json", "cve CVE-1999-0001 -n blog --fail-on=any", "cve CVE-1999-0001 -n shop --fail-on=any", "cve CVE-2026-0001 -n shop --fail-on=exploited -o csv", "cve CVE-1999-0001 -n void", "cve CVE-1999-0001 -n archive --fail-on=any", "cve CVE-2026-0006 -n archive", "cve CVE-1999-0001 -n lab --fail-on=any", "cve CVE-1999-0001 -n lab -o json", "cve CVE-1999-0001 -n idle --fail-on=any", "cve cve 1999 0001 -n blog", "cve 1999 0001 -n blog", "cve CVE-1999-0002 -n blog", "cve CVE-1999-0002 -n blog -o json", "cve nginx-1 -n blog --fail-on=any", "cve CVE-2099-0001", "cve CVE-2026-0001 -n people"},
		"actions": {"actions -n shop", "actions -o wide", "actions -n blog", "actions -n shop -o json", "actions -o csv --fail-on=exploited", "actions -n blog --fail-on=any", "actions -n void --fail-on=any", "actions -A"},
		"why":     {"why billing", "why queue", "why web", "why web -o csv", "why nothing"},
		"status":  {"status", "status -o wide", "status -n blog", "status -n void", "status -A"},
		"sbom":    {"sbom web", "sbom web --format=openvex", "sbom billing", "sbom shop/", "sbom web --format=spdx-json", "sbom billing --format=spdx-json", "sbom nginx --format=spdx-json", "sbom web --format=spdx"},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			var text strings.Builder
			for _, line := range commands {
				args := strings.Fields(line)
				text.WriteString(transcript(args, w.run(kubeconfig, args...)) + "\n")
			}
			golden(t, name, strings.ReplaceAll(text.String(), w.url, "https://API"))
			if strings.Contains(text.String(), token) {
				t.Error("the token was printed")
			}
		})
	}
}

// TestClientCertificate: without a token, commands show what the resources hold and say what is missing, to people only.
func TestClientCertificate(t *testing.T) {
	w := newWorld(t)
	kubeconfig := w.kubeconfig("shop", "")
	var text strings.Builder
	for _, line := range []string{
		"findings", "findings --severity=Critical --fail-on=Critical", "findings -n blog --fail-on=any", "findings --exploited", "findings -o json", "image web", "image billing", "cve CVE-2026-0001",
		"sbom web", "actions", "ui", "why billing", "status -A", "findings --service-account people/nobody", "findings --as=jane",
	} {
		args := strings.Fields(line)
		text.WriteString(transcript(args, w.run(kubeconfig, args...)) + "\n")
	}
	golden(t, "client-certificate", strings.ReplaceAll(text.String(), w.url, "https://API"))
}

// TestClientCertificateAndUnlistedWorkloads: without a token, too, it is not known whether a workload runs an image that does not list them all.
func TestClientCertificateAndUnlistedWorkloads(t *testing.T) {
	w := newWorld(t)
	var scan v1alpha1.ImageScan
	w.must(w.cluster.Get(t.Context(), client.ObjectKey{Namespace: "blog", Name: "site-5f2c7a9d31e04b68"}, &scan))
	set := func(count int32) {
		scan.Status.WorkloadCount = count
		w.must(w.cluster.Status().Update(t.Context(), &scan))
	}
	set(9)
	defer set(1)
	r := w.run(w.kubeconfig("blog", ""), "findings", "--workload=Deployment/hidden", "--fail-on=any")
	if r.status != exitError || !strings.Contains(r.err, "1 image has more workloads than are listed") {
		t.Errorf("%+v; want an error that says what is not known", r)
	}
}

// TestServiceAccount: an administrator with a client certificate sees all findings with the token of a ServiceAccount.
func TestServiceAccount(t *testing.T) {
	w := newWorld(t)
	w.token("viewer", "shop", "scanner-operator-view")
	r := w.run(w.kubeconfig("shop", ""), "findings", "--service-account", "people/viewer", "-o", "json")
	var list findingList
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list.Items) != 6 {
		t.Errorf("%d findings, %v; want 6: %+v", len(list.Items), err, r)
	}
}

// TestTokenFlag: --token is the token of the caller for both APIs.
func TestTokenFlag(t *testing.T) {
	w := newWorld(t)
	token := w.token("blogger", "blog", "scanner-operator-view")
	kubeconfig := w.kubeconfig("blog", "not-a-token")
	if r := w.run(kubeconfig, "findings", "--token", token); r.status != 0 || !strings.Contains(r.err, "No findings in namespace blog") {
		t.Errorf("with the token: %+v", r)
	}
	if r := w.run(kubeconfig, "cve", "CVE-1"); r.status != exitError || !strings.Contains(r.err, "the API server does not accept the token") {
		t.Errorf("with another token: %+v", r)
	}
}

// TestFormatsAgree: all formats for programs have the same findings.
func TestFormatsAgree(t *testing.T) {
	w := newWorld(t)
	kubeconfig := w.kubeconfig("shop", w.token("viewer", "shop", "scanner-operator-view"))
	ids := func(format string) (all []string) {
		r := w.run(kubeconfig, "findings", "-o", format)
		if r.status != 0 {
			t.Fatalf("-o %s: %+v", format, r)
		}
		if format == "csv" {
			rows, err := csv.NewReader(strings.NewReader(r.out)).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows[1:] {
				all = append(all, row[2])
			}
			return all
		}
		var list findingList
		if err := yaml.Unmarshal([]byte(r.out), &list); err != nil {
			t.Fatal(err)
		}
		if list.Complete || len(list.NotKnown) != 2 {
			t.Errorf("-o %s: complete: %v, not known: %q; want what is pending and what failed", format, list.Complete, list.NotKnown)
		}
		for _, item := range list.Items {
			all = append(all, item.Finding.ID)
		}
		return all
	}
	want := []string{"CVE-2026-0001", "CVE-2026-0002", "CVE-2026-0002", "CVE-2026-0003", "CVE-2026-0005", "CVE-2026-0004"}
	for _, format := range []string{"json", "yaml", "csv"} {
		if got := ids(format); !slices.Equal(got, want) {
			t.Errorf("-o %s has %q, want %q", format, got, want)
		}
	}
}

// TestSBOMFile: a file is complete or does not exist.
func TestSBOMFile(t *testing.T) {
	w := newWorld(t)
	kubeconfig := w.kubeconfig("shop", w.token("viewer", "shop", "scanner-operator-view"))
	file := filepath.Join(w.dir, "sbom.json")
	if r := w.run(kubeconfig, "sbom", "billing", "--file", file); r.status != exitError {
		t.Errorf("an image without an SBOM: %+v", r)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
	r := w.run(kubeconfig, "sbom", "web", "--file", file)
	text, err := os.ReadFile(file)
	if r.status != 0 || err != nil || string(text) != `{"artifacts":[{"name":"web"}]}` {
		t.Errorf("the file has %q, %v, %+v", text, err, r)
	}
	r = w.run(kubeconfig, "sbom", "web", "--format=sarif", "--file", file)
	if text, err = os.ReadFile(file); r.status != 0 || err != nil || !strings.Contains(string(text), `"version":"2.1.0","runs":[`) {
		t.Errorf("as SARIF the file has %q, %v, %+v", text, err, r)
	}
}

// TestRescan: an image's ImageScan is deleted, and a Scanner gets a new request each time.
func TestRescan(t *testing.T) {
	w := newWorld(t)
	f := fixture{world: w, ctx: t.Context()}
	f.namespaces("again")
	scanner := f.scanner("again", v1alpha1.ImageCounts{})
	f.scan(scanner, "app", func(s *v1alpha1.ImageScan) { s.Status.Phase = v1alpha1.PhaseFailed })
	f.scan(scanner, "other", func(s *v1alpha1.ImageScan) { s.Status.Phase = v1alpha1.PhaseScanned })
	w.must(f.err)
	token := w.token("editor", "again", "scanner-operator-edit", "scanner-operator-view")
	kubeconfig := w.kubeconfig("again", token)
	var text strings.Builder
	for _, line := range []string{"rescan again/", "rescan app", "rescan app", "rescan", "rescan app --scanner default", "rescan --scanner default", "rescan --scanner none", "rescan --cluster-scanner platform"} {
		args := strings.Fields(line)
		text.WriteString(transcript(args, w.run(kubeconfig, args...)) + "\n")
	}
	golden(t, "rescan", text.String())
	scans, err := listScans(t.Context(), w.cluster, "again")
	if err != nil || len(scans) != 1 || scans[0].Name != "other-5f2c7a9d31e04b68" {
		t.Errorf("%d ImageScans are left, %v; want only that of the other image", len(scans), err)
	}
	var got v1alpha1.Scanner
	w.must(w.cluster.Get(t.Context(), client.ObjectKeyFromObject(scanner), &got))
	if got.Annotations[v1alpha1.AnnotationRequestedAt] != "2026-03-01T12:00:00Z" {
		t.Errorf("the annotations are %v", got.Annotations)
	}
}

// TestTestMessage: the command succeeds only if the receiver took the message of its own request, and says otherwise why not.
func TestTestMessage(t *testing.T) {
	w := newWorld(t)
	f := fixture{world: w, ctx: t.Context()}
	f.namespaces("sends")
	scanner := f.scanner("sends", v1alpha1.ImageCounts{})
	w.must(f.err)
	for _, name := range []string{"other", "third"} {
		scanner.Spec.Notifications = append(scanner.Spec.Notifications, v1alpha1.Receiver{
			Name: name, Slack: &v1alpha1.SlackReceiver{WebhookURLSecretRef: v1alpha1.SecretKeyReference{Name: "slack"}},
		})
	}
	w.must(w.cluster.Update(t.Context(), scanner))
	second := &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: "sends", Name: "second"}, Spec: *scanner.Spec.DeepCopy()}
	second.Spec.Notifications, second.Spec.Suspend = second.Spec.Notifications[1:], ptr.To(true)
	w.must(w.cluster.Create(t.Context(), second))
	kubeconfig := w.kubeconfig("sends", w.token("editor", "sends", "scanner-operator-edit", "scanner-operator-view"))
	var text strings.Builder
	run := func(outcome v1alpha1.TestMessageOutcome, request, message, line string) {
		t.Helper()
		w.must(w.cluster.Get(t.Context(), client.ObjectKeyFromObject(scanner), scanner))
		scanner.Status.TestMessage = &v1alpha1.TestMessageStatus{Request: request, Outcome: outcome, Message: message}
		w.must(w.cluster.Status().Update(t.Context(), scanner))
		args := strings.Fields(line)
		text.WriteString(transcript(args, w.run(kubeconfig, args...)) + "\n")
	}
	const request = "team 2026-03-01T12:00:00Z"
	run(v1alpha1.TestMessageDelivered, request, "", "test-message team")
	run(v1alpha1.TestMessageDelivered, request, "RecipientsRefused: the mail server took the message for 1 of 2 recipients", "test-message team --scanner default")
	run(v1alpha1.TestMessageFailed, request, "SecretNotFound: there is no Secret slack in namespace sends", "test-message team")
	run(v1alpha1.TestMessagePending, request, "", "test-message team --timeout 10ms")
	run(v1alpha1.TestMessageDelivered, "team 2026-02-28T12:00:00Z", "", "test-message team --timeout 10ms")
	run(v1alpha1.TestMessageDelivered, request, "", "test-message nobody")
	run(v1alpha1.TestMessageDelivered, request, "", "test-message nobody --scanner default")
	run(v1alpha1.TestMessageDelivered, request, "", "test-message other")
	run(v1alpha1.TestMessageDelivered, request, "", "test-message other --scanner second")
	run(v1alpha1.TestMessageDelivered, request, "", "test-message team --cluster-scanner platform")
	run(v1alpha1.TestMessageDelivered, request, "", "test-message team --scanner default --cluster-scanner platform")
	golden(t, "test-message", text.String())
	w.must(w.cluster.Get(t.Context(), client.ObjectKeyFromObject(scanner), scanner))
	if got := scanner.Annotations[v1alpha1.AnnotationTestMessage]; got != request {
		t.Errorf("the annotation is %q, want %q", got, request)
	}
}

// TestLargeVEX: a document without an end is refused before it fills the memory.
func TestLargeVEX(t *testing.T) {
	if _, err := readAll("-", io.LimitReader(zeros{}, maxVEXBytes+2)); err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("a document of more than 16 MiB: %v", err)
	}
	if text, err := readAll("-", io.LimitReader(zeros{}, maxVEXBytes)); err != nil || len(text) != maxVEXBytes {
		t.Errorf("a document of 16 MiB: %d bytes, %v", len(text), err)
	}
}

// zeros is a file without an end.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestExcept: the API server checks an exception, the user sees what it suppresses, and it is created only after a yes.
func TestExcept(t *testing.T) {
	w := newWorld(t)
	f := fixture{world: w, ctx: t.Context()}
	f.namespaces("risky")
	scanner := f.scanner("risky", v1alpha1.ImageCounts{Total: 1, Scanned: 1})
	f.scanned(scanner, "shell", []string{"Deployment/shell"},
		vulnerable("CVE-2016-2781", "coreutils", "9.1-1", finding.Low, ""), vulnerable("CVE-2026-0007", "bash", "5.2", finding.High, "5.3"))
	w.must(f.err)
	kubeconfig := w.kubeconfig("risky", w.token("risk", "risky", "scanner-operator-view", "scanner-operator-except"))
	viewer := w.kubeconfig("risky", w.token("onlooker", "risky", "scanner-operator-view"))
	vex := filepath.Join(w.dir, "vex.json")
	w.must(os.WriteFile(vex, []byte(`{
		"@context": "https://openvex.dev/ns/v0.2.0", "@id": "https://example.com/vex-1", "author": "team", "timestamp": "2026-02-01T00:00:00Z", "version": 1,
		"statements": [{
			"vulnerability": {"name": "CVE-2026-0007"}, "status": "not_affected", "justification": "vulnerable_code_not_in_execute_path", "impact_statement": "no login shell",
			"products": [{"@id": "pkg:oci/shell?repository_url=ghcr.io/risky/shell", "subcomponents": [{"@id": "pkg:deb/debian/bash@5.2"}]}]
		}]
	}`), 0o600))
	const chroot = "except CVE-2016-2781 --justification vulnerable_code_not_in_execute_path --reason unused"
	var text strings.Builder
	for _, step := range []struct{ kubeconfig, in, line string }{
		{kubeconfig, "", "except CVE-2016-2781"},
		{kubeconfig, "", "except"},
		{kubeconfig, "", "except CVE-2016-2781 --reason unused"},
		{kubeconfig, "", "except CVE-2016-2781 --reason unused --until 2020-01-01"},
		{kubeconfig, "", "except CVE-2016-2781 --reason unused --until soon"},
		{viewer, "", chroot},
		{kubeconfig, "n\n", chroot},
		{kubeconfig, "", chroot + " --dry-run"},
		{kubeconfig, "", chroot + " --dry-run -o yaml"},
		{kubeconfig, "y\n", chroot},
		{kubeconfig, "", chroot},
		{kubeconfig, "", chroot + " --package coreutils"},
		{kubeconfig, "", chroot + " --package coreutils --overwrite --yes"},
		{kubeconfig, "", "except CVE-1999-0001 --reason unknown --until 30d --yes"},
		{kubeconfig, "", "except --from-vex VEX --yes"},
		{kubeconfig, "", "except --from-vex VEX --yes"},
		{kubeconfig, "", "except --from-vex VEX --dry-run -o yaml"},
		{kubeconfig, "", "except --from-vex VEX --dry-run -o csv"},
		{kubeconfig, "", "except --from-vex VEX --yes -o json"},
		{kubeconfig, "", "except --from-vex VEX --reason other"},
		{kubeconfig, "", "except CVE-2016-2781 --cluster --reason unused --status fixed"},
	} {
		args := strings.Fields(strings.ReplaceAll(step.line, "VEX", vex))
		r := w.runWithInput(step.kubeconfig, strings.NewReader(step.in), args...)
		text.WriteString(transcript(strings.Fields(step.line), r) + "\n")
	}
	golden(t, "except", text.String())
	var list v1alpha1.VulnerabilityExceptionList
	w.must(w.cluster.List(t.Context(), &list, client.InNamespace("risky")))
	var names []string
	for _, e := range list.Items {
		names = append(names, e.Name)
	}
	if len(names) != 3 || list.Items[1].Spec.Packages[0].Name != "coreutils" {
		t.Errorf("the exceptions are %q: %+v", names, list.Items)
	}
}
