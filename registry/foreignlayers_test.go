package registry_test

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestLayerURLsAreIgnored checks that no request goes to a host that a manifest names for a layer: only the registry's own
// answer for the layer counts.
func TestLayerURLsAreIgnored(t *testing.T) {
	for what, c := range map[string]struct {
		status    int // of the registry's answer for the layer; 0 if the registry has the layer
		mediaType types.MediaType
		want      workerapi.Failure
	}{
		"the registry has it":    {0, types.DockerLayer, workerapi.Failure{}},
		"of a foreign type":      {0, types.DockerForeignLayer, workerapi.Failure{}},
		"it has it not":          {http.StatusNotFound, types.DockerLayer, workerapi.Failure{Reason: workerapi.ReasonForeignLayer}},
		"foreign, it has it not": {http.StatusNotFound, types.DockerForeignLayer, workerapi.Failure{Reason: workerapi.ReasonForeignLayer}},
		"the registry throttles": {http.StatusTooManyRequests, types.DockerLayer,
			workerapi.Failure{Reason: workerapi.ReasonRegistryThrottled, RetryAfterSeconds: 60, Registry: "HOST"}},
		"the registry is broken": {http.StatusNotImplemented, types.DockerLayer, workerapi.Failure{Reason: workerapi.ReasonRegistryUnavail}},
	} {
		t.Run(what, func(t *testing.T) {
			layer := registrytest.Layer(t, registrytest.Files{"a": "b"})
			image, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, MediaType: c.mediaType, URLs: []string{"https://elsewhere.example/layer?token=s3cret"}})
			if err != nil {
				t.Fatal(err)
			}
			server := registrytest.NewRegistry(t, nil)
			// The client library does not push foreign layers.
			server.Push(t, "team/app:2", registrytest.Image(t, registrytest.Files{"a": "b"}))
			reference := server.Push(t, "team/app:1", registrytest.WithPlatform(t, image, amd64))
			digest := registrytest.Digest(t, layer)
			p, asked := puller(server.Host), 0
			p.Transport = transportFunc(func(r *http.Request) (*http.Response, error) {
				switch {
				case r.URL.Host != server.Host:
					asked++
					return emptyAnswer(r, http.StatusTooManyRequests, "86400"), nil
				case c.status != 0 && strings.HasSuffix(r.URL.Path, "/blobs/"+digest):
					return emptyAnswer(r, c.status, "60"), nil
				}
				return http.DefaultTransport.RoundTrip(r)
			})
			pulled, err := p.Pull(t.Context(), []string{reference}, amd64)
			if err != nil {
				t.Fatal(err)
			}
			got := workerapi.Failure{}
			if _, err = readLayer(t, pulled.Content); err != nil {
				got = failure.Describe(err, "none")
			}
			if c.want.Reason == workerapi.ReasonForeignLayer && (!strings.Contains(got.Message, `"elsewhere.example"`) || strings.Contains(got.Message, "s3cret")) {
				t.Errorf("the message does not name the other host, or more: %s", got.Message)
			}
			got.Message, c.want.Registry = "", strings.ReplaceAll(c.want.Registry, "HOST", server.Host)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%v\nfailure (-want +got):\n%s", err, diff)
			}
			if asked > 0 {
				t.Errorf("the other host was asked %d times", asked)
			}
			located := workerapi.Failure{}
			if _, err := p.Locate(t.Context(), []string{reference}, amd64); err != nil {
				located = failure.Describe(err, "none")
				located.Message = ""
			}
			if diff := cmp.Diff(c.want, located); diff != "" {
				t.Errorf("locations of the layers (-want +got):\n%s", diff)
			}
			byDigest, err := pulled.Content.LayerByDigest(hash(t, digest))
			if err != nil {
				t.Fatal(err)
			}
			if content, err := byDigest.Compressed(); err == nil {
				content.Close()
			}
			if asked > 0 {
				t.Errorf("the other host was asked for the layer by its digest")
			}
		})
	}
}

// TestMirrorWithoutAForeignLayer checks that a mirror without a foreign layer is skipped, as for any other layer: the registry may
// have the layer.
func TestMirrorWithoutAForeignLayer(t *testing.T) {
	plain := registrytest.Image(t, registrytest.Files{"a": "b"})
	layers, err := plain.Layers()
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layers[0], MediaType: types.DockerForeignLayer, URLs: []string{"https://elsewhere.example/layer"}})
	if err != nil {
		t.Fatal(err)
	}
	image = registrytest.WithPlatform(t, image, amd64)
	origin := registrytest.NewRegistry(t, nil)
	mirror := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/blobs/"+registrytest.Digest(t, layers[0])) {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	origin.Push(t, "team/app:2", plain) // with the layer, which the client library does not push as a foreign one
	origin.Push(t, "team/app:1", image)
	reference := origin.Host + "/team/app@" + registrytest.Digest(t, image)
	mirror.Push(t, "team/app:1", image)
	p := puller(mirror.Host)
	p.Registries = append(p.Registries, workerapi.Registry{Host: origin.Host, PlainHTTP: true, Mirrors: []string{mirror.Host}})
	pulled, err := p.Pull(t.Context(), []string{reference}, amd64)
	if err != nil || pulled.Mirror != mirror.Host {
		t.Fatalf("pulled %+v, error %v, want the mirror's manifest", pulled, err)
	}
	location, err := p.Locate(t.Context(), []string{reference}, amd64)
	if err != nil || location.Mirror != "" {
		t.Errorf("located %+v, error %v, want the layer in the registry itself", location, err)
	}
	if _, err = readLayer(t, pulled.Content); err == nil || !p.ExcludeMirror(pulled, err) {
		t.Errorf("the mirror is not avoided after the error %v", err)
	}
}

// TestForeignLayersAreRequestedOnce checks that a layer costs one request, however often a manifest lists it.
func TestForeignLayersAreRequestedOnce(t *testing.T) {
	layer := registrytest.Layer(t, registrytest.Files{"a": "b"})
	image, err := mutate.Append(empty.Image, slices.Repeat([]mutate.Addendum{{Layer: layer, URLs: []string{"https://elsewhere.example/layer"}}}, 100)...)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/blobs/"+registrytest.Digest(t, layer)) {
				asked++
			}
			next.ServeHTTP(w, r)
		})
	})
	reference := server.Push(t, "team/app:1", registrytest.WithPlatform(t, image, amd64))
	located, err := puller(server.Host).Locate(t.Context(), []string{reference}, amd64)
	if err != nil || len(located.Layers) != 100 || asked != 1 {
		t.Errorf("%d requests for the layer, error %v, want 1 request for 100 layers that are one", asked, err)
	}
}

// TestManyForeignLayers checks the bound of foreign layers, each of which costs a request. Beyond the bound, none is requested.
func TestManyForeignLayers(t *testing.T) {
	for n, want := range map[int]string{20: "", 21: workerapi.ReasonForeignLayer} {
		var added []mutate.Addendum
		asked := 0
		server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && slices.ContainsFunc(added, func(a mutate.Addendum) bool {
					return strings.HasSuffix(r.URL.Path, "/blobs/"+registrytest.Digest(t, a.Layer))
				}) {
					asked++
				}
				next.ServeHTTP(w, r)
			})
		})
		for i := range n {
			layer := registrytest.Layer(t, registrytest.Files{"a": strconv.Itoa(i)})
			added = append(added, mutate.Addendum{Layer: layer, URLs: []string{"https://elsewhere.example/layer"}})
		}
		image, err := mutate.Append(empty.Image, added...)
		if err != nil {
			t.Fatal(err)
		}
		reference := server.Push(t, "team/app:1", registrytest.WithPlatform(t, image, amd64))
		_, err = puller(server.Host).Locate(t.Context(), []string{reference}, amd64)
		got := ""
		if err != nil {
			got = failure.Describe(err, "Other").Reason
		}
		if got != want {
			t.Errorf("%d foreign layers: %v, want the reason %q", n, err, want)
		}
		if want != "" && asked > 0 {
			t.Errorf("%d foreign layers: %d requests for them, want none", n, asked)
		}
	}
}

func hash(t *testing.T, digest string) v1.Hash {
	t.Helper()
	parsed, err := v1.NewHash(digest)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// emptyAnswer returns an answer without a body.
func emptyAnswer(r *http.Request, status int, retryAfter string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}, Body: io.NopCloser(strings.NewReader("")), Request: r}
}
