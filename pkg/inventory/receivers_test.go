package inventory

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestChannelNotAllowed: a namespace may choose a receiver's own channel and those that it allows. Any other is named, cut between two characters.
func TestChannelNotAllowed(t *testing.T) {
	scanner := &v1alpha1.ClusterScanner{Spec: v1alpha1.ClusterScannerSpec{Notifications: []v1alpha1.ClusterReceiver{{
		Receiver:        v1alpha1.Receiver{Name: "teams", Slack: &v1alpha1.SlackReceiver{Channel: "#security"}},
		AllowedChannels: []string{"#shop"},
	}}}}
	for channel, want := range map[string][]string{
		"": nil, "#security": nil, "#shop": nil, "#everyone": {"Slack channel #everyone"},
		"#" + strings.Repeat("é", 40): {"Slack channel #" + strings.Repeat("é", 29) + "…"},
	} {
		namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{v1alpha1.AnnotationSlackChannel: channel}}}
		got := notAllowed(scanner, &corev1.Pod{}, namespace, allowedReceivers(scanner, namespace))
		if !slices.Equal(got, want) {
			t.Errorf("channel %q: not allowed are %q, want %q", channel, got, want)
		}
	}
}
