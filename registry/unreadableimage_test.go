package registry_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestUnreadableImageIsNotSkipped checks that an unreadable image in an index is a failure. containerd parses less of a
// configuration, and may run that image rather than the next one in the index.
func TestUnreadableImageIsNotSkipped(t *testing.T) {
	good := registrytest.Image(t, registrytest.Files{"a": "b"})
	raw, err := good.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	config := `{"os": "linux", "architecture": "amd64", "docker_version": 1}`
	first := fmt.Sprintf(`{"schemaVersion": 2, "mediaType": %q, "config": {"mediaType": %q, "size": %d, "digest": %q, "data": %q}, "layers": []}`,
		types.OCIManifestSchema1, types.OCIConfigJSON, len(config), document.Digest([]byte(config)), base64.StdEncoding.EncodeToString([]byte(config)))
	server := registrytest.NewRegistry(t, nil)
	server.Push(t, "app:good", good)
	server.PushManifest(t, "app:first", types.OCIManifestSchema1, []byte(first))
	child := func(kind types.MediaType, raw string) string {
		return fmt.Sprintf(`{"mediaType": %q, "size": %d, "digest": %q, "platform": {"os": "linux", "architecture": "amd64"}}`, kind, len(raw), document.Digest([]byte(raw)))
	}
	reference := server.PushManifest(t, "app:1", types.OCIImageIndex, []byte(`{"schemaVersion": 2, "manifests": [`+
		child(types.OCIManifestSchema1, first)+","+child(types.DockerManifestSchema2, string(raw))+`]}`))
	pulled, err := puller(server.Host).Pull(t.Context(), []string{reference}, amd64)
	if err == nil {
		t.Fatalf("%s is taken for what runs", pulled.Digest)
	}
	if got := failure.Describe(err, "none"); got.Reason != workerapi.ReasonNotAnImage || !strings.Contains(got.Message, "is not readable") {
		t.Errorf("the failure is %s: %s", got.Reason, got.Message)
	}
}
