// Package grype is the backend that runs Syft and Grype in Jobs.
//
// Each image is cataloged once, by a Job of its own with the least privileges that a pod can have. Match workers match the catalogs: these
// are Jobs that keep the vulnerability database open and take image after image from the store's queue. The manager itself pulls no image
// and opens no vulnerability database.
//
// The backend keeps no essential state in memory. Jobs are recorded in the store before they are created, and the store determines what is
// to be matched.
package grype

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/budget"
	"github.com/scanner-operator/scanner-operator/pkg/backend/throttle"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/metrics"
	"github.com/scanner-operator/scanner-operator/pkg/relay"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Engine is the name under which this backend's reports are stored.
const Engine = "grype"

// Intervals after which callers check again if no event wakes them.
const (
	checkCatalog  = 30 * time.Second
	checkCreation = apiTimeout      // by then the API server has answered or the call has timed out
	checkQueue    = 2 * time.Minute // the Job loop wakes queued images
	checkMatch    = time.Minute
)

// Options configure a Backend.
type Options struct {
	// Client creates and deletes Jobs. Reader reads Jobs and their pods without a cache.
	Client client.Client
	Reader client.Reader
	Store  *store.Store
	Config config.Config
	Clock  clock.PassiveClock
	Log    logr.Logger
	// HTTP fetches the listing of vulnerability databases (latest.json).
	HTTP *http.Client
	// Namespace is the operator's own. WorkerImage is the image that Jobs run.
	Namespace   string
	WorkerImage string
	// ServerURL is the address at which workers reach the ingest API. ServerCA returns the PEM bundle to verify it with.
	ServerURL string
	ServerCA  func() []byte
	// Proxy holds the environment variables that name the proxy to registries and databases. They may contain credentials, which everyone
	// who may read pods in the namespace of a Job can see.
	Proxy []corev1.EnvVar
	// Wake enqueues the ImageScans of an image digest.
	Wake func(ctx context.Context, digest string)
	// DataChanged notifies the controllers that the version or the health of the vulnerability data changed.
	DataChanged func(ctx context.Context)
	// Relay passes on to the leader what workers reported to this replica of the manager; nil if there is one replica.
	Relay *relay.Relay
	// Random returns n random lower-case letters and digits, for the suffixes of Job names.
	Random func(n int) string
	// Metrics is where the backend registers its metrics; may be nil. Loops counts runs of the backend's loops.
	Metrics prometheus.Registerer
	Loops   *metrics.Loops
}

// Backend implements backend.Backend.
type Backend struct {
	Options

	// starting is held while the backend decides on a catalog Job and records it, so that no image gets two. It is never held during a
	// call of the API server, because admission in a tenant's namespace may be slow.
	starting      sync.Mutex
	runner        namespaceRunner
	failures      backend.FailureMemo[string]
	throttles     throttle.Registries
	data          dataState
	queue         catalogQueue
	budget        *budget.Budget
	requests      catalogRequests
	startProblems startProblems
	// contacts holds the last contact of each match worker, by Job UID. It is empty after a restart of the manager.
	contacts sync.Map
	// relay is that of the options, or one of a single replica. relayed is when contacts were passed on.
	relay   *relay.Relay
	relayed relayTimes
	// wakeJobs wakes the Job loop.
	wakeJobs chan struct{}
	// volume holds the vulnerability databases; it is chosen when the first match worker starts.
	volume databaseVolume
	// metrics holds the metrics.
	metrics jobMetrics
}

var (
	_ backend.Backend      = (*Backend)(nil)
	_ backend.DataReporter = (*Backend)(nil)
)

// New returns a Backend. It makes progress only while its Job loop and its listing polls run.
func New(o Options) *Backend {
	o.Client, o.Reader = boundedClient{o.Client}, boundedReader{o.Reader}
	b := &Backend{
		Options: o, failures: backend.FailureMemo[string]{Clock: o.Clock}, budget: budget.New(o.Store, o.Clock, o.Config.Ingest.StoreSizePerNamespace), wakeJobs: make(chan struct{}, 1),
		runner: namespaceRunner{after: time.After, log: o.Log},
	}
	if b.relay = o.Relay; b.relay == nil {
		b.relay = &relay.Relay{Leads: func() bool { return true }}
	}
	b.handleNotices()
	b.registerMetrics()
	return b
}

// Engine implements backend.Backend.
func (b *Backend) Engine() string { return Engine }

// StartCatalog implements backend.Backend. It starts a catalog Job unless the image is being cataloged, failed a moment ago, or has to wait.
func (b *Backend) StartCatalog(ctx context.Context, img backend.Image) (backend.Progress, error) {
	request := b.newCatalogRequest(img)
	refused, err := b.refusalOf(ctx, request)
	if err != nil {
		return backend.Progress{}, err
	}
	start, progress, err := b.reserveJob(ctx, request, refused)
	if err != nil || start == nil {
		return progress, err
	}
	return b.createJob(ctx, *start)
}

// RequestMatch implements backend.Backend. It makes sure that match workers run.
func (b *Backend) RequestMatch(ctx context.Context, _ backend.Image) (backend.Progress, error) {
	b.requestJobRun()
	message := "waiting for a match worker"
	switch _, err := b.Store.DataVersion(ctx, Engine); {
	case errors.Is(err, store.ErrNotFound):
		message = "waiting for vulnerability data. " + b.DataProblem(store.DataVersion{})
	case err != nil:
		return backend.Progress{}, err
	default:
		if problem := b.data.workerProblem(); problem != "" {
			message += ". " + problem
		}
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

// requestJobRun starts the Job loop's next run at once. It never blocks.
func (b *Backend) requestJobRun() {
	select {
	case b.wakeJobs <- struct{}{}:
	default: // a run is already pending
	}
}
