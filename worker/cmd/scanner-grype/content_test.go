package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// testScratch is the scratch space in these tests in bytes.
const testScratch = 48 << 20

// runCatalog runs the worker for an image, and returns its exit code and the failure in the termination file.
func (p *pod) runCatalog(t *testing.T, host, reference string) (code int, left workerapi.Failure) {
	t.Helper()
	p.registry(host)
	code = run(t.Context(), []string{"catalog", "--image", reference, "--platform", "linux/amd64", "--scratch-size", strconv.Itoa(testScratch)}, p.process)
	if f := p.failure(t); f != nil {
		left = *f
	}
	p.wantEmptyTemp(t)
	return code, left
}

// hostile is a registry that can answer requests for layers with other content.
type hostile struct {
	*registrytest.Registry
	layers map[string]http.HandlerFunc
}

func newHostile(t *testing.T) *hostile {
	h := &hostile{layers: map[string]http.HandlerFunc{}}
	h.Registry = registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if layer := h.layers[path.Base(r.URL.Path)]; layer != nil && r.Method == http.MethodGet {
				layer(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	return h
}

// answerLayers makes the registry answer requests for all layers of an image with answer.
func (h *hostile) answerLayers(t *testing.T, image v1.Image, answer http.HandlerFunc) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		h.layers[registrytest.Digest(t, layer)] = answer
	}
}

// serveLayers makes the registry send body for each layer, with length as its Content-Length.
func (h *hostile) serveLayers(t *testing.T, image v1.Image, body []byte, length int) {
	h.answerLayers(t, image, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(length))
		_, _ = w.Write(body)
	})
}

// plain returns an image with one uncompressed layer, and that layer.
func plain(t *testing.T) (v1.Image, []byte) {
	archive := fixture.Tar(t, tar.Header{Name: "file", Typeflag: tar.TypeReg, Size: 100_000, Mode: 0o644})
	return registrytest.RawImage(t, types.OCIUncompressedLayer, archive), archive
}

func gzipped(t *testing.T, content io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	if _, err := io.Copy(writer, content); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// zeros returns a reader of n zeros.
func zeros(n int64) io.Reader { return io.LimitReader(endless{}, n) }

type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestHostileImagesFail checks that each of these images leaves a reason and a message of one line, uploads
// nothing, and leaves nothing on the disk.
func TestHostileImagesFail(t *testing.T) {
	for name, tt := range map[string]struct {
		push    func(t *testing.T, h *hostile) string
		reason  string
		message string
	}{
		"a Helm chart": {func(t *testing.T, h *hostile) string { return h.Push(t, "app:1", registrytest.Chart(t)) },
			workerapi.ReasonNotAnImage, `not a container image: its configuration is of type "application/vnd.cncf.helm.config.v1+json"`},
		"an index of artifacts": {func(t *testing.T, h *hostile) string {
			return h.PushIndex(t, "app:1", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: registrytest.Chart(t)}))
		}, workerapi.ReasonNotAnImage, "not a container image"},
		"an index of attestations": {func(t *testing.T, h *hostile) string {
			return h.PushIndex(t, "app:1", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
				Add: registrytest.Chart(t), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}}))
		}, workerapi.ReasonPlatformMismatch, `no manifest for linux/amd64, only for ["unknown/unknown"]`},
		"without the platform": {func(t *testing.T, h *hostile) string {
			return h.PushIndex(t, "app:1", registrytest.Index(t, map[string]v1.Image{"s390x": registrytest.ImageFor(t, "s390x", registrytest.Files{"a": "b"})}))
		}, workerapi.ReasonPlatformMismatch, `no manifest for linux/amd64, only for ["linux/s390x"]`},
		"a manifest of schema 1": {func(t *testing.T, h *hostile) string {
			return h.PushManifest(t, "app:1", types.DockerManifestSchema1Signed, []byte(`{"schemaVersion": 1, "name": "app", "fsLayers": []}`))
		}, workerapi.ReasonNotAnImage, "schema 1"},
		"a layer with bad gzip": {func(t *testing.T, h *hostile) string {
			bad := gzipped(t, zeros(100_000))
			copy(bad[20:], bytes.Repeat([]byte{0xff}, 40))
			return h.Push(t, "app:1", registrytest.RawImage(t, types.DockerLayer, bad))
		}, workerapi.ReasonNotAnImage, "flate: corrupt input"},
		"a layer with a bad tar archive": {func(t *testing.T, h *hostile) string {
			return h.Push(t, "app:1", registrytest.RawImage(t, types.OCIUncompressedLayer, bytes.Repeat([]byte("nonsense"), 1000)))
		}, workerapi.ReasonNotAnImage, "invalid tar header"},
		"a layer whose tar archive ends early": {func(t *testing.T, h *hostile) string {
			_, archive := plain(t)
			return h.Push(t, "app:1", registrytest.RawImage(t, types.OCIUncompressedLayer, archive[:50_000]))
		}, workerapi.ReasonNotAnImage, "unexpected EOF"},
		"a layer of an unknown type": {func(t *testing.T, h *hostile) string {
			return h.Push(t, "app:1", registrytest.RawImage(t, "application/vnd.example.layer", []byte("x")))
		}, workerapi.ReasonNotAnImage, "layer media type"},
		"a layer with another digest": {func(t *testing.T, h *hostile) string {
			image, archive := plain(t)
			altered := slices.Clone(archive)
			altered[600] = 'x'
			h.serveLayers(t, image, altered, len(altered))
			return h.Push(t, "app:1", image)
		}, workerapi.ReasonRegistryUnavail, "error verifying sha256 checksum"},
		"a truncated layer": {func(t *testing.T, h *hostile) string {
			image, archive := plain(t)
			h.serveLayers(t, image, archive[:50_000], 50_000)
			return h.Push(t, "app:1", image)
		}, workerapi.ReasonRegistryUnavail, "does not match expected size"},
		"a layer whose connection is cut": {func(t *testing.T, h *hostile) string {
			image, archive := plain(t)
			h.serveLayers(t, image, archive[:50_000], len(archive))
			return h.Push(t, "app:1", image)
		}, workerapi.ReasonRegistryUnavail, "unexpected EOF"},
		"a layer of less than no bytes": {func(t *testing.T, h *hostile) string {
			image, _ := plain(t)
			return h.PushModified(t, "app:1", image, func(m *v1.Manifest) { m.Layers[0].Size = -1 })
		}, workerapi.ReasonNotAnImage, "size of -1 bytes"},
		"a layer that is larger than the scratch space": {func(t *testing.T, h *hostile) string {
			image, _ := plain(t)
			return h.PushModified(t, "app:1", image, func(m *v1.Manifest) { m.Layers[0].Size = 1 << 62 })
		}, workerapi.ReasonImageTooLarge, "raise grype.catalog.scratchSize"},
		"an endless layer: its registry never ends sending": {func(t *testing.T, h *hostile) string {
			image, _ := plain(t)
			h.answerLayers(t, image, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, endless{}) })
			return h.PushModified(t, "app:1", image, func(m *v1.Manifest) { m.Layers[0].Size = testScratch })
		}, workerapi.ReasonRegistryUnavail, "error verifying sha256 checksum"},
		"an endless layer: it decompresses without end": {func(t *testing.T, h *hostile) string {
			return h.Push(t, "app:1", registrytest.RawImage(t, types.DockerLayer, gzipped(t, zeros(8*testScratch))))
		}, workerapi.ReasonImageTooLarge, "more than the 48 MiB of scratch space; raise grype.catalog.scratchSize"},
		"an endless layer: compressed nothing again and again": {func(t *testing.T, h *hostile) string {
			image, nothing := registrytest.RawImage(t, types.DockerLayer, gzipped(t, zeros(100))), bytes.Repeat(gzipped(t, zeros(0)), 1000)
			h.answerLayers(t, image, func(w http.ResponseWriter, _ *http.Request) {
				for err := error(nil); err == nil; {
					_, err = w.Write(nothing)
				}
			})
			return h.PushModified(t, "app:1", image, func(m *v1.Manifest) { m.Layers[0].Size = 1 << 20 })
		}, workerapi.ReasonRegistryUnavail, "error verifying sha256 checksum"},
		"many layers that are too large together": {func(t *testing.T, h *hostile) string {
			image := registrytest.Image(t)
			for i := range 10 {
				image = fixture.AppendLayer(t, image, fixture.Tar(t, tar.Header{Name: strconv.Itoa(i), Typeflag: tar.TypeReg, Size: testScratch / 8}))
			}
			return h.Push(t, "app:1", image)
		}, workerapi.ReasonImageTooLarge, "raise grype.catalog.scratchSize"},
		"a file name of 64 KiB": {func(t *testing.T, h *hostile) string {
			long := fixture.Tar(t, tar.Header{Name: strings.Repeat("long", 16<<10), Typeflag: tar.TypeReg})
			return h.Push(t, "app:1", fixture.AppendLayer(t, registrytest.Image(t, fixture.Alpine()), long))
		}, workerapi.ReasonNotAnImage, "a path of 65536 bytes, which no node can unpack"},
		"a link to a name of 64 KiB": {func(t *testing.T, h *hostile) string {
			long := fixture.Tar(t, tar.Header{Name: "link", Linkname: strings.Repeat("d/", 32<<10), Typeflag: tar.TypeSymlink})
			return h.Push(t, "app:1", fixture.AppendLayer(t, registrytest.Image(t, fixture.Alpine()), long))
		}, workerapi.ReasonNotAnImage, "a path of 65536 bytes, which no node can unpack"},
		"one huge file": {func(t *testing.T, h *hostile) string {
			huge := fixture.Tar(t, tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: 4 * testScratch})
			return h.Push(t, "app:1", registrytest.RawImage(t, types.DockerLayer, gzipped(t, bytes.NewReader(huge))))
		}, workerapi.ReasonImageTooLarge, "raise grype.catalog.scratchSize"},
		"a zip bomb": {func(t *testing.T, h *hostile) string {
			bomb := fixture.Bomb(t, 4*testScratch, "a.jar", "b.jar", "c.jar")
			return h.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"app.jar": bomb}))
		}, workerapi.ReasonImageTooLarge, "its layers and the archives in them, unpacked, have more than the 48 MiB"},
		"a zip bomb in a zip file": {func(t *testing.T, h *hostile) string {
			bomb := fixture.Bomb(t, 4*testScratch, "a.jar", "b.jar", "c.jar")
			return h.Push(t, "app:1", registrytest.Image(t, registrytest.Files{"app.zip": fixture.Jar(t, "outer", "1", registrytest.Files{"lib/inner.jar": bomb})}))
		}, workerapi.ReasonImageTooLarge, "raise grype.catalog.scratchSize"},
	} {
		t.Run(name, func(t *testing.T) {
			p, h := newPod(t), newHostile(t)
			code, left := p.runCatalog(t, h.Host, tt.push(t, h))
			if code != exitFailed || left.Reason != tt.reason || !strings.Contains(left.Message, tt.message) {
				t.Errorf("exit code %d, left %+v; want %s with %q", code, left, tt.reason, tt.message)
			}
			if strings.ContainsAny(left.Message, "\n\r") || len(left.Message) > 1024 {
				t.Errorf("the message has %d bytes, want one line of at most 1024: %q", len(left.Message), left.Message)
			}
			if len(p.server.Results) > 0 {
				t.Errorf("%d results were uploaded, want none: it would be shown as clean", len(p.server.Results))
			}
		})
	}
}

// Names of files at the bounds of what a kernel accepts.
var (
	longName = strings.Repeat("long", 1000)
	deepName = strings.Repeat("d/", 2000) + "file"
)

// TestIrregularLayersAreCataloged checks that packages are found beside irregular files, and that nothing is
// written outside of the temporary directory.
func TestIrregularLayersAreCataloged(t *testing.T) {
	regular := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 10, Mode: 0o644}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
	}
	outside := path.Join(t.TempDir(), "outside")
	for name, entries := range map[string][]tar.Header{
		"symlink loops": {link("loop", "loop"), link("a", "b"), link("b", "a"), link("usr/x", "../usr/x/y"), link("up", "../../.."),
			link("usr/lib/self", "/usr/lib"), regular("usr/lib/self/file")},
		"path traversal":                 {regular("../../../../../../../../.." + outside), regular(outside), regular("usr/../../.." + outside), link("etc/out", outside), regular("etc/out/file")},
		"device nodes":                   {{Name: "dev/sda", Typeflag: tar.TypeBlock, Devmajor: 8}, {Name: "dev/zero.jar", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}, {Name: "dev/fifo.jar", Typeflag: tar.TypeFifo}},
		"absolute hard links":            {{Name: "passwd.jar", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}, {Name: "self", Linkname: "self", Typeflag: tar.TypeLink}, {Name: "gone", Linkname: "../../gone", Typeflag: tar.TypeLink}},
		"the longest file names":         {regular(longName), regular("usr/" + longName + ".jar")},
		"the deepest directories":        {regular(deepName)},
		"file names that are no UTF-8":   {regular("usr/\xff\xfe\x80.jar"), link("usr/lib/\xc3\x28", "\xff"), regular("usr/share/\xed\xa0\x80/package.json")},
		"a file twice":                   {regular("usr/bin/twice"), regular("usr/bin/twice")},
		"whiteouts of what is not there": {regular(".wh.gone"), regular("empty/.wh..wh..opq"), regular("nowhere/.wh."), regular("../.wh.gone"), regular("usr/.wh.gone/file")},
		"an empty archive":               {},
		"one huge file":                  {{Name: "huge", Typeflag: tar.TypeReg, Size: testScratch / 2}},
	} {
		t.Run(name, func(t *testing.T) {
			p, h := newPod(t), newHostile(t)
			image := fixture.AppendLayer(t, registrytest.Image(t, fixture.Alpine()), fixture.Tar(t, entries...))
			code, left := p.runCatalog(t, h.Host, h.Push(t, "app:1", image))
			if code != exitDone {
				t.Fatalf("exit code %d, left %+v", code, left)
			}
			found := map[string]bool{}
			for _, artifact := range p.artifact(t, p.server.MatchInput).Artifacts {
				found[artifact.Name] = true
			}
			for _, want := range []string{"musl", "busybox", "stdlib"} {
				if !found[want] {
					t.Errorf("package %s is missing", want)
				}
			}
			if _, err := os.Stat(outside); err == nil {
				t.Error("a file was written where the archive says")
			}
		})
	}
}

// peak returns the maximum resident memory of the process so far, in MiB.
func peak() int64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Maxrss >> 10
}

// TestHundredsOfLayers checks the memory of many layers: a tree of all files for each layer would take gigabytes.
func TestHundredsOfLayers(t *testing.T) {
	const layers, files = 300, 5000
	base := fixture.Alpine()
	for i := range files {
		base[fmt.Sprintf("usr/share/data/%d/file", i)] = ""
	}
	image := registrytest.Image(t, base)
	for i := range layers {
		image = fixture.AppendLayer(t, image, fixture.Tar(t, tar.Header{Name: fmt.Sprintf("layer/%d", i), Typeflag: tar.TypeReg, Size: 1}))
	}
	// The last layer removes a package.
	image = fixture.AppendLayer(t, image, fixture.Tar(t, tar.Header{Name: "usr/local/bin/.wh.tool", Typeflag: tar.TypeReg}))

	p, h := newPod(t), newHostile(t)
	reference := h.Push(t, "app:1", image)
	debug.FreeOSMemory()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	if code, left := p.runCatalog(t, h.Host, reference); code != exitDone {
		t.Fatalf("exit code %d, left %+v", code, left)
	}
	runtime.ReadMemStats(&after)
	allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
	t.Logf("%d layers on %d files: %s, %d MiB allocated in all, at most %d MiB resident", layers, files, time.Since(start).Round(time.Millisecond), allocated, peak())
	// The library would create a tree of all files for each layer, of more than 10 MiB.
	if allocated > 10*layers {
		t.Errorf("%d MiB were allocated, want less than 10 for each layer", allocated)
	}
	full := p.artifact(t, p.server.SBOM)
	for _, artifact := range full.Artifacts {
		for _, location := range artifact.Locations {
			if location.RealPath == "/usr/local/bin/tool" {
				t.Errorf("%s is found in a file that the last layer removes", artifact.Name)
			}
		}
	}
	if len(full.Artifacts) < 5 {
		t.Errorf("%d packages, want those of the lowest layer", len(full.Artifacts))
	}
}
