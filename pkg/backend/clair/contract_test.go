package clair

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quay/claircore"
	"k8s.io/apimachinery/pkg/types"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/backendtest"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

// contractHarness is the contract's harness for this engine with a scripted Clair.
type contractHarness struct {
	*world
	published int
	// clean holds the digests without findings, and pushed the digest of each repository's image.
	clean  map[string]bool
	pushed map[string]string
	broken bool
}

func newContractHarness(t *testing.T) backendtest.Harness {
	h := &contractHarness{world: newWorld(t, func(o *Options) { o.Config.Clair.Instances[0].Updaters = []string{"debian/updater"} }), clean: map[string]bool{}, pushed: map[string]string{}}
	h.clair.change(func() {
		h.clair.before, h.clair.advisories = h.answers, nil
		clear(h.clair.updaters)
	})
	return h
}

// answers handles requests that the scripted Clair does not support.
func (h *contractHarness) answers(w http.ResponseWriter, r *http.Request) bool {
	digest := path.Base(r.URL.Path)
	h.clair.mu.Lock()
	broken, clean := h.broken, h.clean[digest]
	h.clair.mu.Unlock()
	switch {
	case broken:
		w.WriteHeader(http.StatusServiceUnavailable)
	case clean && strings.Contains(r.URL.Path, "/vulnerability_report/") && h.clair.has(digest):
		report := small()
		report.Hash, _ = claircore.ParseDigest(digest)
		for _, environment := range report.Environments["1"] {
			environment.IntroducedIn = report.Hash
		}
		h.clair.answer(w, http.StatusOK, report)
	default:
		return false
	}
	return true
}

func (h *contractHarness) Backend(s backendtest.Scanner) backend.Backend {
	scanner := h.scanner(s.Namespace)
	scanner.UID = types.UID(s.UID)
	return h.For(scanner)
}

func (h *contractHarness) Restart() { h.start() }

func (h *contractHarness) Store() *store.Store { return h.store }

// Image pushes an image to the registry. The failing image is not pushed.
func (h *contractHarness) Image(repository string) backend.Image {
	name := path.Base(repository)
	if h.pushed[name] == "" {
		content := registrytest.Image(h.t, files(name))
		h.pushed[name] = registrytest.Digest(h.t, content)
		if repository != backendtest.Failing {
			h.push(name, content)
		}
		h.clair.change(func() { h.clean[h.pushed[name]] = repository == backendtest.Clean })
	}
	digest := h.pushed[name]
	return backend.Image{Key: image.Key{Digest: digest, Platform: amd64}, PullReferences: []string{h.registry.Host + "/" + name + "@" + digest}}
}

func (h *contractHarness) Publish() {
	h.published++
	h.clair.change(func() { h.clair.advisories = append(h.clair.advisories, fmt.Sprintf("CVE-2026-%04d", h.published)) })
	h.clair.update("debian/updater", h.clock.Now())
}

func (h *contractHarness) Now() time.Time { return h.clock.Now() }

func (h *contractHarness) Advance(d time.Duration) { h.advance(d) }

// Work lets every loop run.
func (h *contractHarness) Work() {
	h.t.Helper()
	h.advance(h.options.Config.Clair.PollInterval.Duration)
	h.waitUntilIdle()
}

func (h *contractHarness) CatalogCount(img backend.Image) (times int) {
	h.clair.mu.Lock()
	defer h.clair.mu.Unlock()
	for _, manifest := range h.clair.posts {
		if manifest.Hash.String() == img.Key.Digest {
			times++
		}
	}
	return times
}

// Manifests implements backendtest.ExternalState.
func (h *contractHarness) Manifests() []string {
	h.clair.mu.Lock()
	defer h.clair.mu.Unlock()
	return slices.Sorted(maps.Keys(h.clair.indexed))
}

// Break implements backendtest.Breakable: Clair is down.
func (h *contractHarness) Break() { h.clair.change(func() { h.broken = true }) }

// Mend implements backendtest.Breakable.
func (h *contractHarness) Mend() { h.clair.change(func() { h.broken = false }) }

// TestContract: the Clair engine fulfills the contract of all engines.
func TestContract(t *testing.T) { backendtest.Run(t, newContractHarness) }
