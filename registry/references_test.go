package registry_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// contentType returns a wrapper that changes the Content-Type of manifests.
func contentType(change func(string) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/manifests/") {
				next.ServeHTTP(w, r)
				return
			}
			recorded := httptest.NewRecorder()
			next.ServeHTTP(recorded, r)
			for name, values := range recorded.Header() {
				w.Header()[name] = values
			}
			w.Header().Set("Content-Type", change(recorded.Header().Get("Content-Type")))
			w.WriteHeader(recorded.Code)
			_, _ = w.Write(recorded.Body.Bytes())
		})
	}
}

// TestMediaTypeParameters: a registry (Pulp, Red Hat Satellite, once Quay) that adds a charset to the media type of an index. containerd strips
// parameters (core/remotes/docker/resolver.go: getManifestMediaType), so that nodes run the image.
func TestMediaTypeParameters(t *testing.T) {
	for what, change := range map[string]func(string) string{
		"unchanged":           func(s string) string { return s },
		"a charset":           func(s string) string { return s + "; charset=utf-8" },
		"a charset, no space": func(s string) string { return s + ";charset=utf-8" },
	} {
		t.Run(what, func(t *testing.T) {
			server := registrytest.NewRegistry(t, contentType(change))
			onAMD64 := registrytest.ImageFor(t, "amd64", registrytest.Files{"a": "amd64"})
			index := server.PushIndex(t, "app/index:1", registrytest.Index(t, map[string]v1.Image{"amd64": onAMD64}))
			plain := server.Push(t, "app/plain:1", onAMD64)
			for _, reference := range []string{plain, index} {
				if _, err := puller(server.Host).Pull(t.Context(), []string{reference}, amd64); err != nil {
					t.Errorf("%s: %v (%s), want the image", reference, err, reason(err))
				}
			}
		})
	}
}

// dockerHub answers like Docker Hub for a repository that does not exist: 401, whoever asks.
func dockerHub(t *testing.T, status int, header http.Header) (host string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			return
		}
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`))
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// TestShortNameResolvedElsewhere: a pod's spec has the short name "ubi9", which CRI-O resolves to registry.access.redhat.com/ubi9. The
// manager asks docker.io/library/ubi9@… first, for which Docker Hub answers 401, and then what the runtime reported.
func TestShortNameResolvedElsewhere(t *testing.T) {
	hub := dockerHub(t, http.StatusUnauthorized, nil)
	redHat := registrytest.NewRegistry(t, nil)
	image := registrytest.Image(t, registrytest.Files{"a": "b"})
	redHat.Push(t, "ubi9:9.3", image)
	digest := registrytest.Digest(t, image)
	references := []string{hub + "/library/ubi9@" + digest, redHat.Host + "/ubi9@" + digest}
	img, err := puller(hub, redHat.Host).Pull(t.Context(), references, amd64)
	if err != nil {
		t.Fatalf("%v (%s), want %s", err, reason(err), references[1])
	}
	if img.Reference.String() != references[1] {
		t.Errorf("got %s", img.Reference)
	}
}

// TestSideLoadedImage: an image that was loaded into a node with "kind load" has the imageID docker.io/library/import-2026-09-11@sha256:…. The
// registry of its spec does not have the digest: that is what the user has to know, and not that Docker Hub wants credentials.
func TestSideLoadedImage(t *testing.T) {
	hub := dockerHub(t, http.StatusUnauthorized, nil)
	own := registrytest.NewRegistry(t, nil)
	digest := "@sha256:" + strings.Repeat("a", 64)
	references := []string{own.Host + "/shop/web" + digest, hub + "/library/import-2026-09-11" + digest}
	for range 2 {
		_, err := puller(hub, own.Host).Pull(t.Context(), references, amd64)
		if got := reason(err); got != workerapi.ReasonImageNotFound || !strings.Contains(err.Error(), own.Host+"/shop/web") {
			t.Errorf("%q: %s: %v; want %s about the pod's own reference", references, got, err, workerapi.ReasonImageNotFound)
		}
		slices.Reverse(references)
	}
}

// TestTokenServerOnAnotherPort: a registry whose token server has another port of the same private address, such as docker_auth on :5001
// beside a registry on :5000, or a Harbor whose realm is its address and not its name. Nodes pull from it.
func TestTokenServerOnAnotherPort(t *testing.T) {
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"token": "secret"}`)) }))
	defer tokens.Close()
	on := false
	server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if on && r.Header.Get("Authorization") != "Bearer secret" {
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+tokens.URL+`/token",service="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	reference := server.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"a": "b"}))
	on = true
	if _, err := puller(server.Host, strings.TrimPrefix(tokens.URL, "http://")).Pull(t.Context(), []string{reference}, amd64); err != nil {
		t.Errorf("%s: %v", reason(err), err)
	}
}

// TestMediaTypeParametersInside: media types of the document itself, of what an index lists, of the configuration and of layers count without parameters
// and in any case, both where an image is pulled and where its documents are checked again.
func TestMediaTypeParametersInside(t *testing.T) {
	image := registrytest.ImageFor(t, "amd64", registrytest.Files{"a": "amd64"})
	for what, change := range map[string]func(string) string{
		"a charset":  func(s string) string { return s + "; charset=utf-8" },
		"upper case": strings.ToUpper,
		"spaces":     func(s string) string { return s + " ;version=1" },
	} {
		t.Run(what, func(t *testing.T) {
			server := registrytest.NewRegistry(t, nil)
			server.Push(t, "app/web:1", image)
			rewrite := func(raw []byte) []byte {
				return regexp.MustCompile(`"mediaType":"[^"]*"`).ReplaceAllFunc(raw, func(member []byte) []byte {
					value := string(member[len(`"mediaType":"`) : len(member)-1])
					return []byte(`"mediaType":"` + change(value) + `"`)
				})
			}
			raw, err := image.RawManifest()
			if err != nil {
				t.Fatal(err)
			}
			raw = rewrite(raw)
			plain := server.PushManifest(t, "app/web:plain", types.OCIManifestSchema1, raw)
			list, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{{
				MediaType: types.OCIManifestSchema1, Digest: document.Digest(raw), Size: int64(len(raw)), Platform: &amd64,
			}}})
			if err != nil {
				t.Fatal(err)
			}
			list = rewrite(list)
			nested, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{{
				MediaType: types.OCIImageIndex, Digest: document.Digest(list), Size: int64(len(list)),
			}}})
			if err != nil {
				t.Fatal(err)
			}
			index := server.PushManifest(t, "app/web:index", types.OCIImageIndex, list)
			outer := server.PushManifest(t, "app/web:outer", types.OCIImageIndex, rewrite(nested))
			for _, reference := range []string{plain, index, outer} {
				pulled, err := puller(server.Host).Pull(t.Context(), []string{reference}, amd64)
				if err != nil {
					t.Errorf("%s: %v (%s), want the image", reference, err, reason(err))
					continue
				}
				if found, err := document.Verify(pulled.Root, amd64, pulled.Documents); err != nil || found != pulled.Digest {
					t.Errorf("%s: its documents lead to %s (%v), want %s", reference, found, err, pulled.Digest)
				}
			}
		})
	}
}
