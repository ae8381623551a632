package main

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// olderCRDs returns a directory with the CRDs of an earlier version: some kinds are missing, and one has fewer fields.
func olderCRDs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"scanners", "imagescans", "vulnerabilityexceptions"} {
		file := "scanner-operator.io_" + name + ".yaml"
		text, err := os.ReadFile(filepath.Join(definitions, file))
		must(t, err)
		if name == "scanners" {
			text = withoutField(t, text, "status", "storeID")
		}
		must(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	return dir
}

// withoutField removes a field from the schema of a CRD with one version.
func withoutField(t *testing.T, text []byte, part, field string) []byte {
	t.Helper()
	var definition map[string]any
	must(t, yaml.Unmarshal(text, &definition))
	versions, _, err := unstructured.NestedSlice(definition, "spec", "versions")
	must(t, err)
	way := []string{"schema", "openAPIV3Schema", "properties", part, "properties", field}
	version := versions[0].(map[string]any)
	if _, found, _ := unstructured.NestedMap(version, way...); !found {
		t.Fatalf("there is no field %s.%s to take away", part, field)
	}
	unstructured.RemoveNestedField(version, way...)
	must(t, unstructured.SetNestedSlice(definition, versions, "spec", "versions"))
	changed, err := yaml.Marshal(definition)
	must(t, err)
	return changed
}

// TestOlderCRDs: with the CRDs of an earlier version, the operator waits and reports it. It continues once the command that it names has
// been run.
func TestOlderCRDs(t *testing.T) {
	c := newOwnCluster(t, administrator, olderCRDs(t))
	c.createPod("a")
	manager := c.start("newer", t.TempDir())
	command := "kubectl -n " + c.system + " exec deploy/scanner-operator-manager -- /scanner-operator crds | kubectl apply --server-side --force-conflicts -f -"
	lacking := "the cluster's CustomResourceDefinitions are older than the operator: " +
		"clusterscanners.scanner-operator.io has no version v1alpha1; clustervulnerabilityexceptions.scanner-operator.io has no version v1alpha1; scanners.scanner-operator.io has no field status.storeID"
	c.Eventually(c.readyOf(c.shop), waitTimeout, "250ms").Should(Equal("stalled OutdatedKinds: " + command + ": " + lacking))
	c.Expect(manager.log.String()).To(And(ContainSubstring(lacking), ContainSubstring(command)))
	c.Expect(manager.liveness()).To(Equal(http.StatusOK), "it is not started again and again")
	status, text := manager.probe("/readyz")
	c.Expect(status).To(Equal(http.StatusServiceUnavailable))
	c.Expect(text).To(ContainSubstring("scanners.scanner-operator.io has no field status.storeID"))

	c.applyCRDs()
	c.waitReady(manager)
	c.waitScanned(1)
	c.Expect(c.readyOf(c.shop)()).To(HavePrefix("Scanned: "))
	c.Expect(manager.ended).NotTo(BeClosed())
	c.Expect(c.warnings(c.shop, v1alpha1.ReasonOutdatedKinds)).To(Equal([]string{command + ": " + lacking}), "events")
}

// warnings returns the notes of a namespace's warning events about Scanners with a reason.
func (c *cluster) warnings(namespace, reason string) (notes []string) {
	var events eventsv1.EventList
	c.Expect(c.client.List(c.t.Context(), &events, client.InNamespace(namespace))).To(Succeed())
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning && e.Reason == reason && e.Regarding.Kind == "Scanner" {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// applyCRDs runs the command that the manager advises.
func (c *cluster) applyCRDs() {
	c.t.Helper()
	printing := exec.CommandContext(c.t.Context(), os.Args[0], "crds")
	printing.Env = append(os.Environ(), asManager+"=1")
	printed, err := printing.Output()
	c.Expect(err).NotTo(HaveOccurred())
	applying := exec.CommandContext(c.t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"),
		"--kubeconfig", c.kubeconfig, "apply", "--server-side", "--force-conflicts", "-f", "-")
	applying.Stdin = bytes.NewReader(printed)
	output, err := applying.CombinedOutput()
	c.Expect(err).NotTo(HaveOccurred(), string(output))
}
