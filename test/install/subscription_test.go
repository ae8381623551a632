package install

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// changed returns the YAML documents with a changed Subscription.
func changed(t *testing.T, documents string, change func(spec map[string]any) error) string {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(documents)), 4096)
	var text bytes.Buffer
	subscriptions := 0
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if object.GetKind() == "Subscription" {
			subscriptions++
			spec, _, err := unstructured.NestedMap(object.Object, "spec")
			must(t, err)
			must(t, change(spec))
			object.Object["spec"] = spec
		}
		document, err := sigsyaml.Marshal(object.Object)
		must(t, err)
		text.WriteString("---\n")
		text.Write(document)
	}
	if subscriptions != 1 {
		t.Fatalf("expected one Subscription, there are %d in:\n%s", subscriptions, documents)
	}
	return text.String()
}

// withSlack allows the notifier to post to the stand-in for Slack.
func withSlack(t *testing.T, documents string) string {
	t.Helper()
	return changed(t, documents, func(spec map[string]any) error {
		return unstructured.SetNestedSlice(spec, []any{
			map[string]any{"name": "SCANNER_NOTIFIER_ALLOWED_WEBHOOK_HOSTS", "value": scenario.SlackHost},
		}, "config", "env")
	})
}

// withoutVolumes removes the volumes, which make the store durable.
func withoutVolumes(t *testing.T, documents string) string {
	t.Helper()
	return changed(t, documents, func(spec map[string]any) error {
		unstructured.RemoveNestedField(spec, "config", "volumes")
		return nil
	})
}

// withoutClaim removes the PersistentVolumeClaim, which a store on a server does not need.
func withoutClaim(t *testing.T, documents string) string {
	t.Helper()
	all := strings.Split(documents, "\n---\n")
	kept := slices.DeleteFunc(slices.Clone(all), func(document string) bool { return strings.Contains(document, "kind: PersistentVolumeClaim\n") })
	if len(kept) != len(all)-1 {
		t.Fatalf("expected one PersistentVolumeClaim in:\n%s", documents)
	}
	return strings.Join(kept, "\n---\n")
}
