package install

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/suite"
)

//go:embed manifests
var manifests embed.FS

// startOLM installs the Operator Lifecycle Manager in the cluster and removes it after the test.
func startOLM(t *testing.T) {
	t.Helper()
	values := map[string]any{
		"Label": scenario.Label, "OLM": pushImage(t, images.OLM), "OPM": pushImage(t, images.OPM),
		"Programs": map[string]string{"olm-operator": "/bin/olm", "catalog-operator": "/bin/catalog"},
	}
	crds := filepath.Join(env.Root, "bin", "olm-crds")
	t.Cleanup(func() {
		if t.Failed() {
			diagnoseOLM(t)
		}
		if suite.Keep() {
			return
		}
		cleaning, cancel := context.WithTimeout(context.Background(), suite.CleanUpTimeout)
		defer cancel()
		must(t, env.DeleteText(cleaning, rendered(t, "olm.yaml", values)))
		kubectlOrError(cleaning, t, "delete", "--filename", crds, "--ignore-not-found", "--timeout=60s")
	})
	kubectl(t, "apply", "--server-side", "--force-conflicts", "--filename", crds)
	kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "--filename", crds)
	apply(t, "olm.yaml", values)
	must(t, env.WaitForRollout(t.Context(), "olm", "deployment/olm-operator", "deployment/catalog-operator"))
}

// diagnoseOLM prints the state and the logs of OLM.
func diagnoseOLM(t *testing.T) {
	t.Helper()
	for _, command := range [][]string{
		{"get", "catalogsources,subscriptions,installplans,clusterserviceversions,operatorconditions", "--all-namespaces", "--output", "yaml"},
		{"get", "pods,jobs", "--namespace", "olm", "--output", "wide"},
		{"logs", "--namespace", "olm", "deployment/catalog-operator", "--tail=80"},
		{"logs", "--namespace", "olm", "deployment/olm-operator", "--tail=80"},
	} {
		text, err := env.Kubectl(context.Background(), command...)
		t.Logf("kubectl %s: %v\n%s", strings.Join(command, " "), err, text)
	}
}

// pushImage pushes an image of package images and returns its reference by digest.
func pushImage(t *testing.T, name string) string {
	t.Helper()
	image, err := images.Load(scenario.ImagesDir(env.Root), name)
	must(t, err)
	reference, err := env.Push(t.Context(), name, image)
	must(t, err)
	return reference
}

// catalogServes returns an error unless the catalog is served from an image and OLM is connected to it.
func catalogServes(ctx context.Context, image string) error {
	serving, err := env.Kubectl(ctx, "--namespace", "olm", "get", "pods", "--selector", "olm.catalogSource=operatorhubio-catalog",
		"--output", `jsonpath={range .items[*]}{.spec.containers[0].image} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	if err != nil {
		return err
	}
	state, err := env.Kubectl(ctx, "--namespace", "olm", "get", "catalogsource", "operatorhubio-catalog", "--output", "jsonpath={.status}")
	switch {
	case err != nil:
		return err
	case serving != image+" True\n":
		return fmt.Errorf("expected one pod that serves %s, there are:\n%s\nthe CatalogSource says: %s", image, serving, state)
	case !bytes.Contains([]byte(state), []byte(`"lastObservedState":"READY"`)):
		return errors.New("expected OLM to be connected to the catalog, the CatalogSource says: " + state)
	}
	return nil
}

// apply renders and applies a file of manifests.
func apply(t *testing.T, file string, values any) {
	t.Helper()
	must(t, env.ApplyText(t.Context(), rendered(t, file, values)))
}

func rendered(t *testing.T, file string, values any) string {
	t.Helper()
	parsed, err := template.New(file).Option("missingkey=error").ParseFS(manifests, "manifests/"+file)
	must(t, err)
	var text bytes.Buffer
	must(t, parsed.Execute(&text, values))
	return text.String()
}
