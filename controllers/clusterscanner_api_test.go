package controllers

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// tryClusterScanner sends a ClusterScanner as a dry run, since controllers of other tests would work on one that exists. It returns what the API
// server would store.
func (p *testEnv) tryClusterScanner(name string, s spec) (v1alpha1.ClusterScanner, error) {
	o := &unstructured.Unstructured{Object: spec{"spec": s}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ClusterScanner"))
	o.SetName(name)
	var stored v1alpha1.ClusterScanner
	if err := p.client.Create(p.t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
		return stored, err
	}
	return stored, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &stored)
}

// selectingAll adds a selector of all namespaces to a spec, unless it has one.
func selectingAll(s spec) spec {
	whole := spec{"namespaceSelector": spec{}}
	maps.Copy(whole, s)
	return whole
}

// TestClusterScannerDefaults: a ClusterScanner gets the defaults of a Scanner, and respects Scanners of namespaces.
func TestClusterScannerDefaults(t *testing.T) {
	p := newUnattendedEnv(t)
	stored, err := p.tryClusterScanner("defaults", selectingAll(receiver(nil)))
	p.must(err)
	p.must(p.createScanner("defaults", receiver(nil)))
	var scanner v1alpha1.Scanner
	p.must(p.client.Get(t.Context(), keyFor(p, "defaults"), &scanner))
	p.Expect(stored.Spec).To(Equal(v1alpha1.ClusterScannerSpec{
		NamespaceSelector: &metav1.LabelSelector{}, OwnScanners: v1alpha1.OwnScannersRespect, ScanSettings: scanner.Spec.ScanSettings,
		Notifications: []v1alpha1.ClusterReceiver{{Receiver: scanner.Spec.Notifications[0]}},
	}))
}

// TestClusterScannerAccepted: the API server accepts every valid spec, up to each bound.
func TestClusterScannerAccepted(t *testing.T) {
	p := newUnattendedEnv(t)
	var excluded, channels []any
	for i := range 500 {
		excluded = append(excluded, fmt.Sprint("n", i))
	}
	for i := range 200 {
		channels = append(channels, fmt.Sprint("#team-", i))
	}
	for name, s := range map[string]spec{
		"the-least":             {},
		"a-selector":            {"namespaceSelector": spec{"matchExpressions": []any{spec{"key": "scan", "operator": "Exists"}}}},
		"many-excluded":         {"excludeNamespaces": excluded},
		"longest-excluded":      {"excludeNamespaces": []any{repeatToLength("n", 63)}},
		"ignoring":              {"ownScanners": "Ignore"},
		"clair":                 clairSpec(nil),
		"many-channels":         clusterReceiver(spec{"allowedChannels": channels}),
		"channel-ids":           clusterReceiver(spec{"allowedChannels": []any{"C0123456789", "G01234567"}}),
		"from-all":              clusterReceiver(spec{"fromNamespaces": spec{}}),
		"from-some":             clusterReceiver(spec{"fromNamespaces": spec{"matchLabels": spec{"team": "shop"}}}),
		repeatToLength("n", 63): {},
	} {
		if _, err := p.tryClusterScanner(name, selectingAll(s)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// clusterReceiver returns a spec with a receiver that is a Slack app, with further fields.
func clusterReceiver(fields spec) spec {
	whole := spec{"name": "teams", "slack": spec{"tokenSecretRef": spec{"name": "slack-app"}, "channel": "#security"}}
	maps.Copy(whole, fields)
	return spec{"notifications": []any{whole}}
}

// TestClusterScannerRejected: the API server rejects each mistake with a message that names the field.
func TestClusterScannerRejected(t *testing.T) {
	p := newUnattendedEnv(t)
	tooMany := make([]any, 501)
	for i := range tooMany {
		tooMany[i] = fmt.Sprint("n", i)
	}
	for name, tt := range map[string]struct {
		spec spec
		want []string
	}{
		"no selector":          {spec{}, []string{"spec.namespaceSelector", "Required value"}},
		"a pattern":            {selectingAll(spec{"excludeNamespaces": []any{"kube-*"}}), []string{"spec.excludeNamespaces[0]", "should match"}},
		"no name":              {selectingAll(spec{"excludeNamespaces": []any{""}}), []string{"spec.excludeNamespaces[0]", "at least 1"}},
		"a name twice":         {selectingAll(spec{"excludeNamespaces": []any{"lab", "lab"}}), []string{"spec.excludeNamespaces[1]", "Duplicate value"}},
		"too many names":       {selectingAll(spec{"excludeNamespaces": tooMany}), []string{"spec.excludeNamespaces", "500"}},
		"another policy":       {selectingAll(spec{"ownScanners": "Replace"}), []string{"spec.ownScanners", `"Respect"`}},
		"a field of a Scanner": {selectingAll(spec{"addPodFinalizer": true}), []string{"spec.addPodFinalizer"}},
		"a token for webhooks": {selectingAll(clairSpec(spec{"webhookTokenSecretRef": spec{"name": "token"}})), []string{"spec", "webhookTokenSecretRef may be set only in a Scanner"}},
		"channels of a webhook": {selectingAll(clusterReceiver(spec{"slack": spec{"webhookURLSecretRef": spec{"name": "slack"}}, "allowedChannels": []any{"#a"}})),
			[]string{"spec.notifications[0]", "allowedChannels needs slack.tokenSecretRef"}},
		"a receiver of no kind": {selectingAll(spec{"notifications": []any{spec{"name": "teams"}}}), []string{"spec.notifications[0]", "a receiver needs exactly one of slack, webhook, teams, email and alertmanager"}},
		"a channel twice": {selectingAll(clusterReceiver(spec{"allowedChannels": []any{"#a", "#a"}})),
			[]string{"spec.notifications[0].allowedChannels[1]", "Duplicate value"}},
		"a channel, too long": {selectingAll(clusterReceiver(spec{"allowedChannels": []any{repeatToLength("#", 82)}})),
			[]string{"spec.notifications[0].allowedChannels[0]", "81"}},
		"a channel without #": {selectingAll(clusterReceiver(spec{"allowedChannels": []any{"#team-blog", "team-shop"}})),
			[]string{"spec.notifications[0].allowedChannels[1]", "must be the channel's ID, such as C0123456789, or its name with #"}},
		"a channel with a space": {selectingAll(clusterReceiver(spec{"allowedChannels": []any{"#team shop"}})),
			[]string{"spec.notifications[0].allowedChannels[0]", "must be the channel's ID"}},
	} {
		_, err := p.tryClusterScanner("rejected", tt.spec)
		if err == nil {
			t.Errorf("%s: it is accepted", name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error %q does not say %q", name, err, want)
			}
		}
	}
	_, err := p.tryClusterScanner(repeatToLength("n", 64), selectingAll(nil))
	p.Expect(err).To(MatchError(ContainSubstring("metadata.name must be at most 63 characters")))
}
