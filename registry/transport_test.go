package registry_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry/document"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// documentBytes is larger than any document may be.
const documentBytes = document.MaxBytes + 1<<20

// writeEndless writes 64 MiB, far more than a document may have.
func writeEndless(w http.ResponseWriter) {
	block := []byte(strings.Repeat(" ", 1<<20))
	for range 64 {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// isTooLarge reports whether an answer was refused for its size, by a bound of this package or by a lower one of the client library.
func isTooLarge(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "larger than") || strings.Contains(err.Error(), "byte limit"))
}

// largeImage returns an image with one layer that is larger than a document may be.
func largeImage(t *testing.T) (image v1.Image, layer string) {
	t.Helper()
	content := make([]byte, documentBytes)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(content) // cannot fail
	made := static.NewLayer(content, types.OCIUncompressedLayer)
	image, err := mutate.AppendLayers(empty.Image, made)
	if err != nil {
		t.Fatal(err)
	}
	return image, registrytest.Digest(t, made)
}

// layerPath is a path that looks like that of a layer.
const layerPath = "/v2/app/blobs/sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// TestDocumentsAreBounded checks that the kind of the request determines the bound of an answer. An address that looks like a
// layer's, as the target of a redirect or as a realm, does not lift the bound.
func TestDocumentsAreBounded(t *testing.T) {
	isManifest := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") }
	isBlob := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") }
	storage := registrytest.NewRegistry(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeEndless(w) })
	})
	// hostile returns true if it has answered.
	for what, hostile := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"a manifest": func(w http.ResponseWriter, r *http.Request) bool {
			if isManifest(r) {
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				writeEndless(w)
			}
			return isManifest(r)
		},
		"a manifest after a redirect": func(w http.ResponseWriter, r *http.Request) bool {
			if isManifest(r) {
				http.Redirect(w, r, "http://"+storage.Host+layerPath, http.StatusTemporaryRedirect)
			}
			return isManifest(r)
		},
		"a configuration": func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r) {
				writeEndless(w)
			}
			// The client library trusts the size in the manifest.
			if isManifest(r) {
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				fmt.Fprintf(w, `{"schemaVersion": 2, "config": {"mediaType": %q, "size": %d, "digest": %q}, "layers": []}`,
					types.OCIConfigJSON, 1<<40, "sha256:"+strings.Repeat("a", 64))
			}
			return isBlob(r) || isManifest(r)
		},
		"a token from a realm among the blobs": func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case r.URL.Query().Has("scope"):
				writeEndless(w)
			case r.URL.Path == "/v2/":
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s%s",service="x"`, r.Host, layerPath))
				w.WriteHeader(http.StatusUnauthorized)
			}
			return r.URL.Query().Has("scope") || r.URL.Path == "/v2/"
		},
	} {
		t.Run(what, func(t *testing.T) {
			armed := false
			server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !armed || !hostile(w, r) {
						next.ServeHTTP(w, r)
					}
				})
			})
			reference := server.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"a": "b"}))
			armed = true
			_, err := puller(server.Host, storage.Host).Pull(t.Context(), []string{reference}, amd64)
			if !isTooLarge(err) {
				t.Errorf("got %v, want that the answer is too large", err)
			}
		})
	}
}

// TestLayersAreNotBounded checks that layers may have any size, in the registry and after redirects.
func TestLayersAreNotBounded(t *testing.T) {
	image, _ := largeImage(t)
	storage := registrytest.NewRegistry(t, nil)
	storage.Push(t, "app:1", image)
	for what, at := range map[string]string{"at the registry": "", "after two redirects": "http://" + storage.Host} {
		t.Run(what, func(t *testing.T) {
			server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					path, moved := strings.CutPrefix(r.URL.Path, "/moved")
					switch {
					case moved:
						http.Redirect(w, r, at+path, http.StatusTemporaryRedirect)
					case at != "" && r.Method == http.MethodGet && strings.Contains(path, "/blobs/"):
						http.Redirect(w, r, "/moved"+path, http.StatusTemporaryRedirect)
					default:
						next.ServeHTTP(w, r)
					}
				})
			})
			reference := server.Push(t, "app:1", image)
			img, err := puller(server.Host, storage.Host).Pull(t.Context(), []string{reference}, amd64)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := readLayer(t, img.Content); err != nil || got != documentBytes {
				t.Errorf("%d bytes of the layer and error %v, want all %d", got, err, documentBytes)
			}
		})
	}
}

// TestTokenFromLayerURL checks the bound of a token that is renewed while layers are pulled, with the address of a layer as
// its realm.
func TestTokenFromLayerURL(t *testing.T) {
	image, layer := largeImage(t)
	pulling := false
	server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			path := "/v2/app/blobs/" + layer
			switch {
			case r.URL.Query().Has("scope") && pulling:
				writeEndless(w)
			case r.URL.Query().Has("scope"):
				_, _ = io.Copy(w, strings.NewReader(`{"token": "first"}`))
			case r.URL.Path == "/v2/" && r.Header.Get("Authorization") == "" && strings.Contains(r.UserAgent(), "scanner-operator"),
				r.URL.Path == path && pulling:
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s%s",service="x"`, r.Host, path))
				w.WriteHeader(http.StatusUnauthorized)
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	reference := server.Push(t, "app:1", image)
	img, err := puller(server.Host).Pull(t.Context(), []string{reference}, amd64)
	if err != nil {
		t.Fatal(err)
	}
	pulling = true
	if _, err := readLayer(t, img.Content); !isTooLarge(err) {
		t.Errorf("got %v, want that the answer is too large", err)
	}
}

// TestRefusalsAreBounded checks that only the beginning of an endless error response is read, and that its status decides.
func TestRefusalsAreBounded(t *testing.T) {
	image, layer := largeImage(t)
	for what, c := range map[string]struct{ path, begin string }{
		"of a manifest": {"/manifests/", ""},
		"of a layer":    {layer, ""},
		"with a code":   {layer, `{"errors": [{"code": "DENIED"}`},
	} {
		t.Run(what, func(t *testing.T) {
			armed := false
			server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if armed && r.Method == http.MethodGet && strings.Contains(r.URL.Path, c.path) {
						w.WriteHeader(http.StatusForbidden)
						fmt.Fprint(w, c.begin)
						writeEndless(w)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			reference := server.Push(t, "app:1", image)
			armed = true
			img, err := puller(server.Host).Pull(t.Context(), []string{reference}, amd64)
			if err == nil {
				_, err = readLayer(t, img.Content)
			}
			if err == nil || reason(err) != workerapi.ReasonUnauthorized || len(err.Error()) > 4<<10 {
				t.Errorf("got %.200v, want a short text with reason %s", err, workerapi.ReasonUnauthorized)
			}
		})
	}
}

// readLayer reads the only layer of an image to its end.
func readLayer(t *testing.T, image v1.Image) (int64, error) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers and error %v, want one layer", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		return 0, err
	}
	defer content.Close()
	return io.Copy(io.Discard, content)
}
