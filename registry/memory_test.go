package registry_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const (
	// maxMemory bounds the memory of locating an image, including the rest of the process, in bytes.
	maxMemory = 64 << 20
	// locateEnvironment names the environment variable with the reference that a separate process locates, see TestMain.
	locateEnvironment = "SCANNER_TEST_LOCATE"
)

// outcome is the output of such a process.
type outcome struct {
	Reason string
	Memory uint64 // obtained from the system in bytes
}

// locateAlone locates an image as the manager does for Clair, and prints the outcome.
func locateAlone(reference string) {
	host, _, _ := strings.Cut(reference, "/")
	_, err := puller(host).Locate(context.Background(), []string{reference}, amd64)
	var o outcome
	if err != nil {
		o.Reason = failure.Describe(err, "none").Reason
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	o.Memory = memory.Sys
	_ = json.NewEncoder(os.Stdout).Encode(o)
}

// TestMemoryOfDocuments checks that memory stays within bounds, whatever a registry sends. Garbage is collected only when
// memory gets short, so that the result shows the memory in use at one time.
func TestMemoryOfDocuments(t *testing.T) {
	filled := func(begin, element, end string) string {
		return begin + element + strings.Repeat(","+element, (document.MaxBytes-len(begin)-len(end)-len(element))/(len(element)+1)) + end
	}
	nothing := document.Digest([]byte("{}"))
	good := registrytest.Image(t, registrytest.Files{"a": "b"})
	descriptor := func(raw string, size int) string {
		return fmt.Sprintf(`{"mediaType": %q, "size": %d, "digest": %q, "platform": {"os": "linux", "architecture": "amd64"}}`,
			types.OCIManifestSchema1, size, document.Digest([]byte(raw)))
	}
	// indexOfNothing pushes an index of as many elements as fit, and returns its descriptor for an index, for amd64.
	indexOfNothing := func(s *registrytest.Registry) string {
		junk := filled(`{"schemaVersion": 2, "manifests": [`, "{}", "]}")
		s.PushManifest(t, "app:junk", types.OCIImageIndex, []byte(junk))
		return strings.Replace(descriptor(junk, len(junk)), string(types.OCIManifestSchema1), string(types.OCIImageIndex), 1)
	}
	for what, c := range map[string]struct {
		// push returns the reference to locate.
		push func(server *registrytest.Registry) string
		want string // reason
	}{
		"an index of nothing": {func(s *registrytest.Registry) string {
			return s.PushManifest(t, "app:1", types.OCIImageIndex, []byte(filled(`{"schemaVersion": 2, "manifests": [`, "{}", "]}")))
		}, workerapi.ReasonNotAnImage},
		"an index that looks like a manifest": {func(s *registrytest.Registry) string {
			return s.PushManifest(t, "app:1", types.OCIImageIndex, []byte(filled(`{"schemaVersion": 2, "manifests": [], "layers": [`, "{}", "]}")))
		}, workerapi.ReasonNotAnImage},
		"a manifest of layers": {func(s *registrytest.Registry) string {
			return s.PushManifest(t, "app:1", types.OCIManifestSchema1, []byte(filled(`{"schemaVersion": 2, "layers": [`, "{}", "]}")))
		}, workerapi.ReasonNotAnImage},
		"a configuration in the manifest": {func(s *registrytest.Registry) string {
			history := `{"os": "linux", "architecture": "amd64", "history": [{}` + strings.Repeat(",{}", document.MaxBytes/5) + `]}`
			return s.PushManifest(t, "app:1", types.OCIManifestSchema1, fmt.Appendf(nil,
				`{"schemaVersion": 2, "config": {"mediaType": %q, "size": %d, "digest": %q, "data": %q}, "layers": []}`,
				types.OCIConfigJSON, len(history), document.Digest([]byte(history)), base64.StdEncoding.EncodeToString([]byte(history))))
		}, workerapi.ReasonNotAnImage},
		"children in the index": {func(s *registrytest.Registry) string {
			junk := `{"schemaVersion": 2, "layers": [{}` + strings.Repeat(",{}", document.MaxBytes/5) + `]}`
			child := strings.TrimSuffix(descriptor(junk, len(junk)), "}") + `, "data": "` + base64.StdEncoding.EncodeToString([]byte(junk)) + `"}`
			s.PushManifest(t, "app:junk", types.OCIManifestSchema1, []byte(junk))
			return s.PushManifest(t, "app:1", types.OCIImageIndex, []byte(`{"schemaVersion": 2, "manifests": [`+child+`]}`))
		}, workerapi.ReasonNotAnImage},
		"an index of nothing in the index": {func(s *registrytest.Registry) string {
			return s.PushManifest(t, "app:1", types.OCIImageIndex, []byte(`{"schemaVersion": 2, "manifests": [`+indexOfNothing(s)+`]}`))
		}, workerapi.ReasonNotAnImage},
		"an index of nothing, for a variant that no node has, before the image": {func(s *registrytest.Registry) string {
			s.Push(t, "app:good", good)
			raw, err := good.RawManifest()
			if err != nil {
				t.Fatal(err)
			}
			return s.PushManifest(t, "app:1", types.OCIImageIndex, []byte(`{"schemaVersion": 2, "manifests": [`+
				strings.Replace(indexOfNothing(s), `"amd64"`, `"amd64", "variant": "v9"`, 1)+","+
				strings.Replace(descriptor(string(raw), len(raw)), string(types.OCIManifestSchema1), string(types.DockerManifestSchema2), 1)+`]}`))
		}, ""},
		"as many layers as may be, with addresses": {func(s *registrytest.Registry) string {
			s.Push(t, "app:good", good)
			manifest, err := good.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			layer := manifest.Layers[0]
			layer.URLs = slices.Repeat([]string{"https://files.example/" + strings.Repeat("x", 70)}, 15)
			manifest.Layers = slices.Repeat([]v1.Descriptor{layer}, 1990)
			raw, err := json.Marshal(manifest)
			if err != nil {
				t.Fatal(err)
			}
			return s.PushManifest(t, "app:1", types.DockerManifestSchema2, raw)
		}, ""},
		"as many and as large documents as may be": {func(s *registrytest.Registry) string {
			element := `{"annotations": {` + strings.TrimSuffix(strings.Repeat(`"a":"`+strings.Repeat("x", 60)+`",`, 20), ",") + `}}`
			var children []string
			for n := range 20 {
				large := fmt.Sprintf(`{"schemaVersion": 2, "n": %d, "config": {"mediaType": "x", "size": 2, "digest": %q, "data": "e30="}, "layers": [%s%s]}`,
					n, nothing, element, strings.Repeat(","+element, 1990))
				s.PushManifest(t, fmt.Sprintf("app:junk%d", n), types.OCIManifestSchema1, []byte(large))
				children = append(children, descriptor(large, len(large)))
			}
			return s.PushManifest(t, "app:1", types.OCIImageIndex, []byte(`{"schemaVersion": 2, "manifests": [`+strings.Join(children, ",")+`]}`))
		}, workerapi.ReasonNotAnImage},
		"a large index with the image": {func(s *registrytest.Registry) string {
			s.Push(t, "app:good", good)
			raw, err := good.RawManifest()
			if err != nil {
				t.Fatal(err)
			}
			other := `{"platform": {"os": "linux", "architecture": "s390x"}, "annotations": {"a": "` + strings.Repeat("x", 2000) + `"}}`
			return s.PushManifest(t, "app:1", types.OCIImageIndex, []byte(`{"schemaVersion": 2, "manifests": [`+
				strings.Repeat(other+",", 1900)+strings.Replace(descriptor(string(raw), len(raw)), string(types.OCIManifestSchema1), string(types.DockerManifestSchema2), 1)+`]}`))
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			expectOutcome(t, c.push(registrytest.NewRegistry(t, nil)), c.want)
		})
	}
	t.Run("refusals", func(t *testing.T) {
		armed := false
		server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if armed && strings.Contains(r.URL.Path, "/manifests/") {
					w.WriteHeader(http.StatusNotFound)
					fmt.Fprint(w, filled(`{"errors": [`, "{}", "]}"))
					return
				}
				next.ServeHTTP(w, r)
			})
		})
		reference := server.Push(t, "app:1", good)
		armed = true
		expectOutcome(t, reference, workerapi.ReasonImageNotFound)
	})
}

// expectOutcome locates an image in a separate process. A busy machine collects garbage late, by as many as four documents of 4 MiB: the limit
// leaves room for them.
func expectOutcome(t *testing.T, reference, want string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), locateEnvironment+"="+reference, "GOGC=off", "GOMEMLIMIT=40MiB", "HTTP_PROXY=", "HTTPS_PROXY=")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var o outcome
	if err := json.Unmarshal(out, &o); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if o.Reason != want {
		t.Errorf("failed with reason %q, want %q", o.Reason, want)
	}
	if o.Memory > maxMemory {
		t.Errorf("took %d MiB of memory, want at most %d MiB", o.Memory>>20, maxMemory>>20)
	}
}
