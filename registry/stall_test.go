package registry_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestStalledRegistries checks that a registry that stops sending at any point is a failure, and that the request is not retried.
func TestStalledRegistries(t *testing.T) {
	for what, stalls := range map[string]func(r *http.Request) bool{
		"before the answer to a manifest": func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") },
		"before a layer":                  func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") },
		"in the middle of a layer":        func(r *http.Request) bool { return false },
	} {
		t.Run(what, func(t *testing.T) {
			middle, asked := strings.HasPrefix(what, "in the middle"), new(atomic.Int32)
			image := registrytest.Image(t, registrytest.Files{"a": strings.Repeat("b", 1000)})
			layers, err := image.Layers()
			if err != nil {
				t.Fatal(err)
			}
			layer := registrytest.Digest(t, layers[0])
			server := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					isLayer := strings.HasSuffix(r.URL.Path, layer)
					if r.Method != http.MethodGet || !stalls(r) && (!middle || !isLayer) {
						next.ServeHTTP(w, r)
						return
					}
					asked.Add(1)
					if middle {
						_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0}) // the beginning of a gzip file
						_ = http.NewResponseController(w).Flush()
					}
					<-r.Context().Done()
				})
			})
			reference := server.Push(t, "app:1", image)
			p := puller(server.Host)
			p.StallTimeout = 200 * time.Millisecond
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
			if got := asked.Load(); got != 1 {
				t.Errorf("asked %d times, want once: another attempt waits as long", got)
			}
		})
	}
}

// silentServer starts a server that accepts connections, counts them, and sends nothing.
func silentServer(t *testing.T) (host string, connections *atomic.Int32) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int32)
	var accepted []net.Conn // referenced, since the garbage collector closes unreferenced connections
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			accepted = append(accepted, connection)
			connections.Add(1)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
		for _, connection := range accepted {
			connection.Close()
		}
	})
	return listener.Addr().String(), connections
}

// TestSilentRegistry checks that a pull fails after one stall timeout if a registry accepts connections and sends nothing, not even
// in a TLS handshake.
func TestSilentRegistry(t *testing.T) {
	for what, plain := range map[string]bool{"TLS": false, "plain HTTP": true} {
		t.Run(what, func(t *testing.T) {
			host, connections := silentServer(t)
			p := puller()
			if plain {
				p = puller(host)
			}
			p.StallTimeout = 400 * time.Millisecond
			_, err := p.Pull(t.Context(), []string{host + "/app:1"}, amd64)
			if got := reason(err); got != workerapi.ReasonRegistryUnavail || !strings.Contains(err.Error(), "has stopped sending") {
				t.Errorf("got %s (%v), want %s that has stopped sending", got, err, workerapi.ReasonRegistryUnavail)
			}
			// The client library tries TLS as well as plain HTTP.
			if got := connections.Load(); got > 2 {
				t.Errorf("%d connections, want one for each scheme", got)
			}
		})
	}
}

// TestSilentMirrors checks that the stall timeout of a mirror's manifest is shorter than that of a registry, since there is another
// source. That of its layers is not: a cache may have to fetch them first.
func TestSilentMirrors(t *testing.T) {
	m := newMirrored(t, nil)
	host, _ := silentServer(t)
	var log strings.Builder
	p := m.puller()
	p.Registries[2].Mirrors = []string{host}
	p.Registries = append(p.Registries, workerapi.Registry{Host: host, PlainHTTP: true})
	p.StallTimeout, p.Log = 400*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	if _, err := p.Pull(t.Context(), []string{m.reference}, amd64); err != nil || !strings.Contains(log.String(), "has sent nothing for 100ms") {
		t.Errorf("error %v, want the image of the registry after a quarter of the time:\n%s", err, log.String())
	}

	image := registrytest.Image(t, registrytest.Files{"a": "b"})
	slow := registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if layers, err := image.Layers(); err != nil || r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, registrytest.Digest(t, layers[0])) {
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	slow.Push(t, "team/app:1", image)
	p = m.puller()
	p.Registries[2].Mirrors = []string{slow.Host}
	p.Registries = append(p.Registries, workerapi.Registry{Host: slow.Host, PlainHTTP: true})
	p.StallTimeout = 400 * time.Millisecond
	img, err := p.Pull(t.Context(), []string{m.registry.Host + "/team/app@" + registrytest.Digest(t, image)}, amd64)
	if err != nil || img.Mirror != slow.Host {
		t.Fatalf("got %+v and %v, want the image of the slow mirror", img, err)
	}
	layers, err := img.Content.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if err := readAll(layers[0]); err == nil || !strings.Contains(err.Error(), "has sent nothing for 400ms") {
		t.Errorf("got %v, want that the layer was waited for", err)
	}
}

// readAll reads a whole layer, and returns the error that ended it early.
func readAll(layer v1.Layer) error {
	content, err := layer.Uncompressed()
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(io.Discard, content)
	return err
}
