package registry_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/worker/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// A registry that stops sending is noticed, wherever it stops, and nobody waits for it to go on.
func TestStalledRegistries(t *testing.T) {
	for what, stalls := range map[string]func(r *http.Request) bool{
		"before the answer to a manifest": func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") },
		"before a layer":                  func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") },
		"in the middle of a layer":        func(r *http.Request) bool { return false },
	} {
		t.Run(what, func(t *testing.T) {
			middle, asked := strings.HasPrefix(what, "in the middle"), 0
			image := fixture.Image(t, fixture.Files{"a": strings.Repeat("b", 1000)})
			layers, err := image.Layers()
			if err != nil {
				t.Fatal(err)
			}
			layer := fixture.Digest(t, layers[0])
			server := fixture.NewRegistry(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					isLayer := strings.HasSuffix(r.URL.Path, layer)
					if r.Method != http.MethodGet || !stalls(r) && (!middle || !isLayer) {
						next.ServeHTTP(w, r)
						return
					}
					asked++
					if middle {
						_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0}) // where gzip begins
						_ = http.NewResponseController(w).Flush()
					}
					<-r.Context().Done()
				})
			})
			reference := server.Push(t, "app:1", image)
			p := puller(server.Host)
			p.Patience = 200 * time.Millisecond
			img, err := p.Pull(t.Context(), []string{reference}, amd64)
			if err == nil {
				layers, layersErr := img.Content.Layers()
				if layersErr != nil {
					t.Fatal(layersErr)
				}
				err = readAll(layers[0])
			}
			if got := reason(err); got != workerapi.ReasonRegistryUnavail || !strings.Contains(err.Error(), "has stopped sending") {
				t.Errorf("got %s (%v), want %s that has stopped sending", got, err, workerapi.ReasonRegistryUnavail)
			}
			if asked != 1 {
				t.Errorf("asked %d times, want once: another attempt waits as long", asked)
			}
		})
	}
}

// readAll reads a whole layer as it was sent, and returns why that ended early.
func readAll(layer v1.Layer) error {
	content, err := layer.Uncompressed()
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(io.Discard, content)
	return err
}
