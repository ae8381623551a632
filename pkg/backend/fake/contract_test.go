package fake

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/backendtest"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// harness is the contract's harness for this engine, which does everything synchronously.
type harness struct {
	engine *Backend
	clock  *clocktesting.FakePassiveClock
	// published counts calls of Publish. indexed has the log line of each indexed image.
	published int
	indexed   []string
}

func (h *harness) Backend(backendtest.Scanner) backend.Backend { return h.engine }

func (h *harness) Store() *store.Store { return h.engine.Store }

func (h *harness) Image(repository string) backend.Image {
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(repository)))
	return backend.Image{
		Key:            image.Key{Digest: sum, Platform: image.Platform{OS: "linux", Architecture: "amd64"}},
		PullReferences: []string{repository + "@" + sum},
	}
}

// Restart replaces the engine. Only the invented vulnerability data is carried over: the engine has no other state.
func (h *harness) Restart() {
	h.engine = &Backend{Store: h.engine.Store, Clock: h.clock, Log: h.engine.Log, extra: h.engine.extra, built: h.engine.built}
}

func (h *harness) Publish() {
	h.published++
	h.engine.Publish(Finding(fmt.Sprintf("CVE-2026-%04d", h.published), finding.High, "curl", ""))
}

func (h *harness) Work() {}

func (h *harness) Now() time.Time { return h.clock.Now() }

func (h *harness) Advance(d time.Duration) { h.clock.SetTime(h.clock.Now().Add(d)) }

func (h *harness) CatalogCount(img backend.Image) (times int) {
	for _, message := range h.indexed {
		if strings.Contains(message, img.Key.Digest) {
			times++
		}
	}
	return times
}

// TestContract: the fake engine fulfills the contract of all engines.
func TestContract(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		engine, clock := newFake(t)
		h := &harness{engine: engine, clock: clock}
		engine.Log = funcr.New(func(_, args string) {
			if strings.Contains(args, IndexedMessage) {
				h.indexed = append(h.indexed, args)
			}
		}, funcr.Options{})
		return h
	})
}
