// Package grype is the backend that runs Grype and Syft in Jobs.
//
// An image is cataloged once, by a Job of its own, under the least rights that a pod can have. What it contains
// is matched by match workers, Jobs that hold the vulnerability database open and take image after image from
// the store's queue. The manager itself pulls no image and opens no vulnerability database.
//
// The backend keeps no state that matters: Jobs are recorded in the store before they are made, and what is to
// be matched follows from the store.
package grype

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/room"
	"github.com/scanner-operator/scanner-operator/pkg/backend/throttle"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/metrics"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Engine is the name under which this backend's reports are stored.
const Engine = "grype"

// How often things are looked at when nothing wakes them.
const (
	checkCatalog = 30 * time.Second
	checkIntent  = callTimeout     // then the API server has answered, or does not
	checkQueue   = 2 * time.Minute // the Tender calls those who wait
	checkMatch   = time.Minute
)

// failureMemory is how long a failure answers for all Scanners that want the same image: less than the first
// retry of an ImageScan, so that it never suppresses one.
const failureMemory = 50 * time.Second

// Options are what a Backend is made of.
type Options struct {
	// Client makes and deletes Jobs, Reader reads Jobs and their pods without a cache.
	Client client.Client
	Reader client.Reader
	Store  store.Store
	Config config.Config
	Clock  clock.PassiveClock
	Log    logr.Logger
	// HTTP fetches the listing of vulnerability databases.
	HTTP *http.Client
	// Namespace is the operator's own; WorkerImage runs in Jobs.
	Namespace   string
	WorkerImage string
	// ServerURL is where workers reach the ingest API, and ServerCA the PEM bundle to verify it with.
	ServerURL string
	ServerCA  func() []byte
	// Proxy are the environment variables by which workers find the proxy to registries and databases. They may hold
	// credentials, which whoever may read pods where Jobs run can see there.
	Proxy []corev1.EnvVar
	// Wake tells the controllers about an image, by digest.
	Wake func(ctx context.Context, digest string)
	// DataChanged tells whoever shows the version of the vulnerability data.
	DataChanged func(ctx context.Context)
	// Random makes suffixes of Job names: lower-case letters and digits, n of them.
	Random func(n int) string
	// Metrics is where this backend's are registered, if anywhere. Loops counts runs.
	Metrics prometheus.Registerer
	Loops   *metrics.Loops
}

// Backend implements backend.Backend.
type Backend struct {
	Options

	// starting is held while it is decided and recorded that a catalog Job is to be made, so that no image gets two. The
	// API server is never asked meanwhile: admission in a tenant's namespace may take its time.
	starting  sync.Mutex
	lanes     lanes
	failures  failureMemo
	throttles throttle.Registries
	data      dataState
	line      waitingLine
	room      *room.Budget
	asked     asked
	troubles  troubles
	contacts  contacts
	// work wakes the tender.
	work chan struct{}
	// volume of the vulnerability database, once chosen.
	volume databaseVolume
	// counts is for the operator of the operator.
	counts counts
}

var (
	_ backend.Backend      = (*Backend)(nil)
	_ backend.DataReporter = (*Backend)(nil)
)

// New returns a Backend. Its Tender and Poller must run for anything to happen.
func New(o Options) *Backend {
	o.Client, o.Reader = boundedClient{o.Client}, boundedReader{o.Reader}
	b := &Backend{
		Options: o, failures: failureMemo{clock: o.Clock}, room: room.NewBudget(o.Store, o.Clock, o.Config.Ingest.StoreSizePerNamespace), work: make(chan struct{}, 1),
		lanes: lanes{after: time.After},
	}
	b.register()
	return b
}

// Engine implements backend.Backend.
func (b *Backend) Engine() string { return Engine }

// Index implements backend.Backend: it starts a catalog Job unless the image is cataloged, was found to be
// impossible a moment ago, or is being cataloged.
func (b *Backend) Index(ctx context.Context, img backend.Image) (backend.Progress, error) {
	switch _, err := b.Store.Catalogued(ctx, Engine, img.Key, img.Scope); {
	case err == nil:
		b.line.leave(img.Key, img.Scope)
		return backend.Done, nil
	case !errors.Is(err, store.ErrNotFound):
		return backend.Progress{}, err
	}
	if failure := b.failures.recent(img); failure != nil {
		b.line.withdraw(img)
		return backend.Progress{}, failure
	}
	if progress, throttled := b.throttled(img); throttled {
		b.line.withdraw(img)
		return progress, nil
	}
	return b.catalog(ctx, img)
}

// Match implements backend.Backend. The store's queue holds the image by itself; this only sees to it that
// somebody works on the queue.
func (b *Backend) Match(ctx context.Context, img backend.Image) (backend.Progress, error) {
	catalogued, err := b.Store.Catalogued(ctx, Engine, img.Key, img.Scope)
	if err != nil {
		return backend.Progress{}, err
	}
	subject := store.Subject{PlatformDigest: catalogued.PlatformDigest, Scope: img.Scope, Engine: Engine}
	current, err := b.Store.DataVersion(ctx, Engine)
	if errors.Is(err, store.ErrNotFound) {
		b.wakeTender()
		return backend.Waiting(v1alpha1.ReasonMatching, "waiting for vulnerability data. "+b.DataProblem(store.DataVersion{}), checkMatch), nil
	}
	if err != nil {
		return backend.Progress{}, err
	}
	switch summary, err := b.Store.Summary(ctx, subject, store.Excepting{}); {
	case err == nil && summary.DataVersion == current.Version:
		return backend.Done, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return backend.Progress{}, err
	}
	switch failure, err := b.Store.MatchFailure(ctx, subject); {
	case err == nil && failure.RetryAt.After(b.Clock.Now()) && !failure.FailedAt.After(b.Clock.Now()):
		return backend.Progress{}, &backend.Failure{
			Reason: failure.Reason, Message: failure.Message, RetryAfter: failure.RetryAt.Sub(b.Clock.Now()),
		}
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return backend.Progress{}, err
	}
	b.wakeTender()
	message := "waiting for a match worker"
	if problem := b.data.workerProblem(); problem != "" {
		message += ". " + problem
	}
	return backend.Waiting(v1alpha1.ReasonMatching, message, checkMatch), nil
}

// DataVersion implements backend.Backend.
func (b *Backend) DataVersion(ctx context.Context) (store.DataVersion, error) {
	version, err := b.Store.DataVersion(ctx, Engine)
	if errors.Is(err, store.ErrNotFound) {
		message := "no vulnerability database is installed yet"
		if problem := b.DataProblem(store.DataVersion{}); problem != "" {
			message += ": " + problem
		}
		return store.DataVersion{}, &backend.Failure{Reason: v1alpha1.ReasonNoVulnerabilityData, Message: message}
	}
	return version, err
}

// wakeTender makes the Tender look at once. It never waits.
func (b *Backend) wakeTender() {
	select {
	case b.work <- struct{}{}:
	default: // it is awake already
	}
}

// failureMemo remembers failures for a short while, for those who ask for the same with the same references and pull
// secrets: whoever names a digest at a host of its own makes it fail for nobody else. What is about a namespace's own budget answers only
// those of that namespace.
type failureMemo struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	known map[string]rememberedFailure
}

type rememberedFailure struct {
	failure *backend.Failure
	until   time.Time
}

// memoKey is the same for all images that differ only in the order of their references and pull secrets.
func memoKey(img backend.Image) string {
	return fmt.Sprintf("%s@%s %q %q", img.Key, img.Scope, inOrder(img.PullReferences), inOrder(img.PullSecrets))
}

// ownMemoKey is that of failures of an image's namespace.
func ownMemoKey(img backend.Image) string { return fmt.Sprintf("%q %s", img.Namespace, memoKey(img)) }

func inOrder(names []string) []string { return slices.Sorted(slices.Values(names)) }

func (m *failureMemo) recent(img backend.Image) *backend.Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range []string{memoKey(img), ownMemoKey(img)} {
		if known, found := m.known[key]; found && m.clock.Now().Before(known.until) {
			return known.failure
		}
	}
	return nil
}

// remember notes a failure, and drops those whose time is over.
func (m *failureMemo) remember(img backend.Image, failure *backend.Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	for known, remembered := range m.known {
		if !now.Before(remembered.until) {
			delete(m.known, known)
		}
	}
	if m.known == nil {
		m.known = map[string]rememberedFailure{}
	}
	key := memoKey(img)
	if failure.Reason == v1alpha1.ReasonStoreBudgetExceeded {
		key = ownMemoKey(img)
	}
	m.known[key] = rememberedFailure{failure: failure, until: now.Add(failureMemory)}
}
