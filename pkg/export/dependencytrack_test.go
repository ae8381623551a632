package export

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func newTrackWorld(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.settings.Receiver.Type = TypeDependencyTrack
	return w
}

// TestSBOMs follows a workload: the SBOM of each container is sent once, and again when it is another one.
func TestSBOMs(t *testing.T) {
	w := newTrackWorld(t)
	const web, proxy = "shop/Deployment/shop/web prod", "shop/Deployment/shop/proxy prod"
	has := func(what string, requests int, want map[string][]string) State {
		t.Helper()
		if n := w.sent(time.Minute); n != requests {
			t.Errorf("%s: %d requests, want %d", what, n, requests)
		}
		w.wantTests(what, want)
		return w.export().After
	}
	w.runs("web", "shop")
	w.runs("proxy", "shop")
	if state := has("nothing is cataloged", 0, map[string][]string{}); state.Waiting != 1 || state.Pending != 0 {
		t.Errorf("%+v, want one workload that waits", state)
	}
	w.catalogs("web", "web's SBOM")
	w.catalogs("proxy", "")
	has("one image has an SBOM", 1, map[string][]string{web: {"web's SBOM"}})
	w.matches("web", vulnerable("CVE-2026-0001", finding.High))
	w.matches("proxy")
	state := has("results", 0, map[string][]string{web: {"web's SBOM"}})
	reason, message := state.Problem()
	for _, want := range []string{"1 workload, such as Deployment shop in the namespace shop:", "grype.catalog.additionalFormats", "scanned again"} {
		if reason != ReasonFormatNotStored || !strings.Contains(message, want) {
			t.Errorf("an image without the format: %s: %s; want %s with %q", reason, message, ReasonFormatNotStored, want)
		}
	}
	if state.Waiting != 1 || state.Workloads != 0 || state.Pending != 0 || state.LastError != nil {
		t.Errorf("an image without the format: %+v, want that the workload waits", state)
	}
	w.catalogs("proxy", "proxy's SBOM")
	state = has("it is cataloged again", 1, map[string][]string{web: {"web's SBOM"}, proxy: {"proxy's SBOM"}})
	if reason, _ := state.Problem(); reason != "" || state.Workloads != 1 || state.Waiting != 0 {
		t.Errorf("%+v with the problem %q, want one complete workload", state, reason)
	}
	w.matches("web", vulnerable("CVE-2026-0002", finding.Critical))
	w.settings.Exceptions = exception.NewSet([]exception.Exception{{UID: "1", Name: "accepted", Namespace: "shop"}}, w.now)
	has("other findings and exceptions", 0, map[string][]string{web: {"web's SBOM"}, proxy: {"proxy's SBOM"}})

	w.runs("proxy", "other")
	const other = "shop/Deployment/other/proxy prod"
	w.others = map[string]bool{"shop": true}
	has("its container may run an image that the store does not know", 1, map[string][]string{web: {"web's SBOM"}, proxy: {"proxy's SBOM"}, other: {"proxy's SBOM"}})
	w.others = nil
	has("a container is gone", 1, map[string][]string{web: {"web's SBOM"}, proxy: {emptyBOM}, other: {"proxy's SBOM"}})
	has("and later", 0, map[string][]string{web: {"web's SBOM"}, proxy: {emptyBOM}, other: {"proxy's SBOM"}})
	w.must(w.store.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "uid", Namespace: "shop", Key: keyOf("web")}, false))
	w.sent(0)
	w.now = w.now.Add(goneAfter)
	state = has("the workload is gone", 1, map[string][]string{web: {emptyBOM}, proxy: {emptyBOM}, other: {"proxy's SBOM"}})
	if states, err := w.store.ExportStates(t.Context(), "uid", "dojo"); err != nil || len(states) != 2 || state.Workloads != 1 {
		t.Errorf("%d records (%v) and %+v, want those of the export and of the other workload", len(states), err, state)
	}
}

// TestEmptyBOM: the SBOM of a container that is gone is valid by the published schema. Dependency-Track refuses any other.
func TestEmptyBOM(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	for _, name := range []string{"bom-1.6.schema.json", "spdx.schema.json", "jsf-0.82.schema.json"} {
		text, err := os.ReadFile(filepath.Join("..", "restapi", "cyclonedx", "testdata", "schema", name))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource("http://cyclonedx.org/schema/"+name, parsed); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(emptyBOM))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(document); err != nil {
		t.Error(err)
	}
}

// TestImagesOfOneContainer: a container that runs two images has the SBOM of one of them, which stays the same one, in whatever order they came.
func TestImagesOfOneContainer(t *testing.T) {
	for _, order := range [][]string{{"old", "new"}, {"new", "old"}} {
		w := newTrackWorld(t)
		for _, name := range order {
			w.must(w.store.SetUsage(t.Context(), store.ImageUsage{
				Scanner: "uid", Namespace: "shop", Key: keyOf(name), Engine: "grype", Workloads: []store.Workload{{
					Namespace: "shop", Kind: "Deployment", Name: "web", Container: "main", Repository: "ghcr.io/shop/web", Reference: "ghcr.io/shop/web:" + name,
				}},
			}))
			w.catalogs(name, name)
		}
		if n := w.sent(0); n != 1 {
			t.Errorf("%v: %d requests, want 1", order, n)
		}
		w.wantTests("two images", map[string][]string{"shop/Deployment/web/main prod": {"new"}})
		w.must(w.store.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "uid", Namespace: "shop", Key: keyOf("new")}, false))
		w.sent(time.Minute)
		w.wantTests("one image", map[string][]string{"shop/Deployment/web/main prod": {"old"}})
	}
}

// TestInterruptedSBOMs: when an attempt fails, the SBOMs that were accepted before are not sent again, and the others come first then.
func TestInterruptedSBOMs(t *testing.T) {
	for name, outcome := range map[string]announce.Outcome{
		"rate limited": {Result: announce.RateLimited, RetryAfter: time.Second},
		"refused":      {Result: announce.Permanent, Reason: announce.ReasonReceiverRefused},
	} {
		w := newTrackWorld(t)
		for _, container := range []string{"a", "b", "c"} {
			w.runs(container, "web")
			w.catalogs(container, container)
		}
		w.dojo.answer = func(r Request) *announce.Outcome {
			if strings.HasSuffix(r.Project.DependencyTrack.Name, "/b") {
				return &outcome
			}
			return nil
		}
		if n := w.sent(0); n != 2 {
			t.Errorf("%s: %d requests, want those of a and b", name, n)
		}
		if n := w.sent(time.Minute); n != 2 || len(w.dojo.tests) != 2 {
			t.Errorf("%s: %d requests and %d projects later, want c accepted before b is tried again", name, n, len(w.dojo.tests))
		}
		w.dojo.answer = nil
		if n := w.sent(time.Hour); n != 1 {
			t.Errorf("%s: %d requests at the end, want that of b", name, n)
		}
		if n := len(w.dojo.tests); n != 3 {
			t.Errorf("%s: %d projects, want 3", name, n)
		}
	}
}

// TestLargeSBOM: an SBOM that is too large is named, and delays no other workload for long.
func TestLargeSBOM(t *testing.T) {
	w := newTrackWorld(t)
	w.runs("large", "large")
	w.runs("web", "web")
	w.catalogs("large", strings.Repeat("x", MaxDocumentBytes+1))
	w.catalogs("web", "web's SBOM")
	w.sent(0)
	w.sent(time.Minute)
	state := w.export().After
	reason, message := state.Problem()
	if reason != ReasonSBOMNotSent || !strings.Contains(message, "Deployment large in the namespace shop: the compressed SBOM has 4 MiB") || state.Pending != 1 {
		t.Errorf("%+v: %s: %s; want the SBOM that is too large, and that only it waits", state, reason, message)
	}
	w.wantTests("the other workload", map[string][]string{"shop/Deployment/web/web prod": {"web's SBOM"}})
}

// TestNoClusterName: without a name for the cluster nothing is sent, and what the tool has stays.
func TestNoClusterName(t *testing.T) {
	w := newTrackWorld(t)
	w.runs("web", "web")
	w.catalogs("web", "web's SBOM")
	w.settings.Cluster = ""
	n := w.sent(0)
	reason, message := w.export().After.Problem()
	if n != 0 || reason != ReasonClusterNameMissing || !strings.Contains(message, "clusterName in the operator's configuration") {
		t.Errorf("%d requests, %s: %s; want none, and what to do", n, reason, message)
	}
	w.settings.Cluster = "prod"
	if n := w.sent(0); n != 1 {
		t.Errorf("%d requests with a name, want 1", n)
	}
	if reason, _ := w.export().After.Problem(); reason != "" {
		t.Errorf("the problem %s stays", reason)
	}
}
