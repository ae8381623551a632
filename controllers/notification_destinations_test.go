package controllers

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// TestDestinations: a namespace that chooses an allowed channel gets its messages there and nowhere else. Any other channel is not used.
func TestDestinations(t *testing.T) {
	scanner := &v1alpha1.ClusterScanner{Spec: v1alpha1.ClusterScannerSpec{Notifications: []v1alpha1.ClusterReceiver{
		{
			Receiver: v1alpha1.Receiver{Name: "teams", Slack: &v1alpha1.SlackReceiver{
				TokenSecretRef: v1alpha1.TokenSecretReference{Name: "slack-app", Key: "token"}, Channel: "#security",
			}},
			AllowedChannels: []string{"#shop", "#bank"},
		},
		{Receiver: slackReceiver("security")},
	}}}
	namespaces := inventory.Namespaces{
		Covered:       []string{"bank", "blog", "hostile", "shop", "shop-test"},
		SlackChannels: map[string]string{"shop": "#shop", "shop-test": "#shop", "blog": "#security", "hostile": "#everyone"},
	}
	type place struct {
		Name, Channel string
		Namespaces    map[string]bool
	}
	var got []place
	r := &NotificationReconciler{Namespace: operatorNamespace}
	for _, d := range destinationsOf(scanner, namespaces) {
		address := addressOf(r.Namespace, d.ClusterReceiver)
		if d.channel != "" {
			address.Channel = d.channel
		}
		got = append(got, place{d.name(), address.Channel, d.namespaces})
	}
	want := []place{
		{"teams", "#security", map[string]bool{"bank": true, "blog": true, "hostile": true}},
		{"teams/#shop", "#shop", map[string]bool{"shop": true, "shop-test": true}},
		{"security", "", map[string]bool{"bank": true, "blog": true, "hostile": true, "shop": true, "shop-test": true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("destinations (-want +got):\n%s", diff)
	}
}

// TestChannelSettings: messages to a channel that namespaces have chosen are about these namespaces, and have commands that work for them.
func TestChannelSettings(t *testing.T) {
	const findings = "kubectl scanner findings"
	w := newNotifyWorld(t, nil)
	scanner := &v1alpha1.ClusterScanner{}
	for _, c := range []struct {
		to       destination
		only     []string
		readMore string
	}{
		{destination{}, nil, findings + " -A"},
		{destination{namespaces: map[string]bool{"bank": true}}, nil, findings + " -A"},
		{destination{channel: "#shop", namespaces: map[string]bool{"shop": true}}, []string{"shop"}, findings + " -n shop"},
		{
			destination{channel: "#shop", namespaces: map[string]bool{"d": true, "c": true, "b": true, "a": true}}, []string{"a", "b", "c", "d"},
			"for n in a b c; do " + findings + " -n $n; done",
		},
	} {
		c.to.ClusterReceiver = v1alpha1.ClusterReceiver{Receiver: slackReceiver("teams")}
		got := w.reconciler.settings(&notificationScope{scanner: scanner}, c.to)
		if !slices.Equal(got.OnlyNamespaces, c.only) || got.ReadMore != c.readMore {
			t.Errorf("%s: settings about %v with %q, want %v with %q", c.to.name(), got.OnlyNamespaces, got.ReadMore, c.only, c.readMore)
		}
	}
}

// TestFindingsPage: with a web UI, messages link to its page with the receiver's filter. The flag --read-more overrules that.
func TestFindingsPage(t *testing.T) {
	const page = "https://scanner.example.com/vulnerabilities"
	w := newNotifyWorld(t, nil)
	w.reconciler.WebUI = "https://scanner.example.com"
	fixable := v1alpha1.ClusterReceiver{Receiver: slackReceiver("teams")}
	fixable.MinSeverity, fixable.OnlyFixable = "Low", ptr.To(true)
	for want, to := range map[string]destination{
		page + "?minSeverity=High":                {ClusterReceiver: v1alpha1.ClusterReceiver{Receiver: slackReceiver("teams")}},
		page + "?fixable=true&minSeverity=Low":    {ClusterReceiver: fixable},
		page + "?minSeverity=High&namespace=shop": {ClusterReceiver: v1alpha1.ClusterReceiver{Receiver: slackReceiver("teams")}, channel: "#shop", namespaces: map[string]bool{"shop": true}},
	} {
		if got := w.reconciler.settings(&notificationScope{scanner: &v1alpha1.ClusterScanner{}}, to); got.ReadMore != want || got.WebUI != w.reconciler.WebUI {
			t.Errorf("messages link to %s and %s, want %s", got.ReadMore, got.WebUI, want)
		}
	}
	w.reconciler.ReadMore = "https://wiki.example.com"
	if got := w.reconciler.settings(&notificationScope{scanner: &v1alpha1.ClusterScanner{}}, destination{}); got.ReadMore != "https://wiki.example.com" {
		t.Errorf("messages link to %s, want what the flag says", got.ReadMore)
	}
}

// TestCoverageOfChannelDuringRollout: when a namespace moves to another channel while its new image has no result, nothing counts as fixed in the
// image's repository, although each image of the namespaces that stay has a result.
func TestCoverageOfChannelDuringRollout(t *testing.T) {
	scanner := &v1alpha1.ClusterScanner{
		ObjectMeta: metav1.ObjectMeta{Name: "platform", UID: "platform-uid"},
		Spec:       v1alpha1.ClusterScannerSpec{NamespaceSelector: &metav1.LabelSelector{}},
	}
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	u := newUnit(t, scanner, namespace("shop"), namespace("blog"), aPod("shop", "new", running("c", web)), aPod("blog", "other", running("c", vulnerable)))
	covered, err := u.inventory.Coverage(t.Context(), scanner, u.engine.Engine())
	u.must(err)
	o := &notificationScope{scanner: scanner, covered: covered, coverage: describeCoverage(covered, nil)}
	part := o.coverageFor(destination{namespaces: map[string]bool{"blog": true}})
	if len(part.Images) != 1 || part.OtherGaps["registry.example.com/shop/web"] != evidence.AnyPackages {
		t.Errorf("%d images and the other gaps %v, want one image and any gap of the repository of shop's image", len(part.Images), part.OtherGaps)
	}
}
