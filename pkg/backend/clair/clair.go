// Package clair is the backend for Clair, which fetches and matches images by itself.
//
// The manager resolves an image in its registry. It sends Clair the layers' locations, with credentials issued for that purpose. It reads
// reports whenever Clair's vulnerability data has changed. Each Clair instance is an engine of its own, and results of one do not count
// for another. The manager contacts only the instances in the operator's configuration.
//
// Clair stores manifests permanently. The manager deletes a manifest from Clair when no Scanner has the image any more, unless Clair knew
// the manifest before.
//
// The store records which images are indexed, by which Clair, in which state of its indexer. All other state is in memory and is rebuilt
// after a restart. Scanners may have different settings. A failure caused by one Scanner's settings does not affect other Scanners, and no
// image is indexed with another Scanner's credentials.
package clair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/budget"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/backend/throttle"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/metrics"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Tool is the tool name in data versions.
const Tool = "Clair"

// requeueAfter is the interval of checks when no event wakes a loop or a caller.
const requeueAfter = 2 * time.Minute

// Options configure Engines.
type Options struct {
	// Reader reads Secrets and ServiceAccounts by name, without a cache.
	Reader client.Reader
	Store  *store.Store
	Config config.Config
	Clock  clock.Clock
	Log    logr.Logger
	// Namespace and ServiceAccount identify the manager. They are used in messages that tell users how to let it read Secrets.
	Namespace, ServiceAccount string
	// Registries is the HTTP transport to registries.
	Registries http.RoundTripper
	// Wake enqueues the ImageScans of an image digest.
	Wake func(ctx context.Context, digest string)
	// DataChanged notifies the controllers that the health or the data of an engine changed.
	DataChanged func(ctx context.Context)
	// Random returns a number of at least 0 and less than 1.
	Random func() float64
	// Metrics is where the engines register their metrics; may be nil. Loops counts runs of their loops, and Requests the requests to
	// Clair.
	Metrics  prometheus.Registerer
	Loops    *metrics.Loops
	Requests *metrics.Requests
}

// Engines holds all Clair instances of the operator's configuration.
type Engines struct {
	Options
	instances map[string]*instance // by canonical URL
	secrets   secrets
	throttles throttle.Registries
	budget    *budget.Budget
	// reportSlots bounds how many reports, vulnerability and index reports, are in memory at a time.
	reportSlots chan struct{}
}

// NewEngines returns the instances of a valid configuration. They make progress only while Run runs.
func NewEngines(o Options) *Engines {
	e := &Engines{Options: o, instances: map[string]*instance{}, reportSlots: make(chan struct{}, maxReportsInMemory)}
	e.secrets = secrets{reader: o.Reader, clock: o.Clock}
	e.budget = budget.New(o.Store, o.Clock, o.Config.Ingest.StoreSizePerNamespace)
	network := api.NewNetwork()
	network.WrapTransport = func(way http.RoundTripper) http.RoundTripper { return o.Requests.Transport("clair", way) }
	for url, settings := range o.Config.Clair.ByURL() {
		e.instances[url] = newInstance(e, network, url, settings)
	}
	e.registerMetrics()
	return e
}

// Run runs the loops of all instances until the context ends, and returns after all loops have.
func (e *Engines) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, i := range e.instances {
		for _, loop := range []func(context.Context){i.pollLoop, i.indexLoop, i.readLoop, i.sweepLoop} {
			all.Go(func() { loop(ctx) })
		}
	}
	all.Wait()
	return nil
}

// For returns the Backend for a Scanner; it implements backend.Chooser.
func (e *Engines) For(scanner v1alpha1.GenericScanner) backend.Backend {
	b := &Backend{engine: "clair"}
	settings := scanner.Settings().Backend.Clair
	if settings == nil {
		b.settingsFailure = &backend.Failure{Reason: backend.ReasonClairSettings, Message: "spec.backend.clair.url: is missing"}
		return b
	}
	url, err := api.CanonicalURL(settings.URL)
	if err != nil {
		b.settingsFailure = &backend.Failure{Reason: backend.ReasonClairSettings, Message: "spec.backend.clair.url: " + err.Error()}
		return b
	}
	b.engine = engineOf(url)
	to := e.instances[url]
	for _, other := range e.instances {
		if other != to {
			other.unbind(string(scanner.GetUID())) // the Scanner may have used that instance before
		}
	}
	if to == nil {
		b.settingsFailure = e.notAllowedFailure()
		return b
	}
	b.instance, b.link = to, to.bind(scanner)
	return b
}

// engineOf returns the engine name under which the reports of a Clair are stored.
func engineOf(url string) string { return "clair " + url }

func (e *Engines) notAllowedFailure() *backend.Failure {
	allowed := slices.Sorted(maps.Keys(e.instances))
	message := "spec.backend.clair.url: this Clair is not in clair.instances of the operator's configuration, and is not asked; "
	if len(allowed) == 0 {
		return &backend.Failure{Reason: backend.ReasonClairNotAllowed, Message: message + "there is none"}
	}
	return &backend.Failure{Reason: backend.ReasonClairNotAllowed, Message: message + "those are: " + strings.Join(allowed, ", ")}
}

// Backend is a Clair instance with the settings of one Scanner.
type Backend struct {
	engine string
	// settingsFailure is why the Scanner's settings cannot be used; instance and link are then nil.
	settingsFailure *backend.Failure
	instance        *instance
	link            *link
}

var (
	_ backend.Backend             = (*Backend)(nil)
	_ backend.SettingsChecker     = (*Backend)(nil)
	_ backend.CatalogRefresher    = (*Backend)(nil)
	_ backend.DataReporter        = (*Backend)(nil)
	_ backend.AvailabilityChecker = (*Backend)(nil)
	_ backend.DataPoller          = (*Backend)(nil)
	_ backend.PartialCoverage     = (*Backend)(nil)
	_ backend.ExternalStateHolder = (*Backend)(nil)
)

// Engine implements backend.Backend.
func (b *Backend) Engine() string { return b.engine }

// NotCovered implements backend.PartialCoverage.
func (b *Backend) NotCovered() []string { return NotCovered }

// SettingsProblem implements backend.SettingsChecker.
func (b *Backend) SettingsProblem() *backend.Failure { return b.settingsFailure }

// StartCatalog implements backend.Backend. It queues the image for indexing.
func (b *Backend) StartCatalog(_ context.Context, img backend.Image) (backend.Progress, error) {
	i := b.instance
	if failure := i.failures.Get(idOf(img)); failure != nil {
		i.failures.Shorten(idOf(img), failureTTL)
		return backend.Progress{}, failure
	}
	running := i.enqueue(img, b.link)
	if trouble := i.problemOf(b.link); trouble != nil && !running {
		return waitingFor(trouble), nil
	}
	if running {
		return backend.Waiting(v1alpha1.ReasonCataloging, "Clair at "+i.host+" indexes the image", requeueAfter), nil
	}
	return backend.Waiting(v1alpha1.ReasonPending, fmt.Sprintf("waiting for one of the places at Clair at %s (clair.maxIndexing and "+
		"clair.maxIndexingPerNamespace in the operator's configuration)", i.host), requeueAfter), nil
}

// RefreshCatalog implements backend.CatalogRefresher: a catalog made in an earlier state of Clair's indexer is outdated.
func (b *Backend) RefreshCatalog(img backend.Image, cataloged store.Catalog) {
	if b.instance.isOutdated(cataloged) && b.instance.failures.Get(idOf(img)) == nil {
		b.instance.enqueue(img, b.link)
	}
}

// waitingFor returns the Progress of an image while a Clair cannot be used. That is no failure of the image.
func waitingFor(trouble *backend.Failure) backend.Progress {
	return backend.Waiting(trouble.Reason, trouble.Message, requeueAfter)
}

// RequestMatch implements backend.Backend. It wakes the loop that reads reports.
func (b *Backend) RequestMatch(ctx context.Context, _ backend.Image) (backend.Progress, error) {
	var failure *backend.Failure
	if _, err := b.DataVersion(ctx); errors.As(err, &failure) {
		return waitingFor(failure), nil
	} else if err != nil {
		return backend.Progress{}, err
	}
	wake(b.instance.reading)
	return backend.Waiting(v1alpha1.ReasonMatching, "waiting for the report of Clair at "+b.instance.host, requeueAfter), nil
}

// DataVersion implements backend.Backend. It fails if this Scanner cannot use Clair, even while reports from other Scanners or from
// earlier exist.
func (b *Backend) DataVersion(ctx context.Context) (store.DataVersion, error) {
	if b.settingsFailure != nil {
		return store.DataVersion{}, b.settingsFailure
	}
	if trouble := b.instance.problemOf(b.link); trouble != nil {
		return store.DataVersion{}, trouble
	}
	version, err := b.instance.Store.DataVersion(ctx, b.engine)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.DataVersion{}, err
	}
	if problem := b.instance.dataMissing(err != nil); problem != "" {
		return store.DataVersion{}, &backend.Failure{Reason: v1alpha1.ReasonNoVulnerabilityData, Message: problem}
	}
	return version, nil
}

// AvailabilityKnown implements backend.AvailabilityChecker.
func (b *Backend) AvailabilityKnown() bool {
	if b.settingsFailure != nil {
		return true
	}
	b.instance.mu.Lock()
	defer b.instance.mu.Unlock()
	return b.link.checked || b.link.problem() != nil
}

// DataProblem implements backend.DataReporter.
func (b *Backend) DataProblem(current store.DataVersion) string {
	if b.settingsFailure != nil || current.Built.IsZero() {
		return ""
	}
	most := b.instance.Config.Clair.MaxAge.Duration
	age := b.instance.Clock.Since(current.Built)
	if age <= most {
		return backend.FutureData(current.Built, b.instance.Clock.Now())
	}
	return fmt.Sprintf("no updater of Clair at %s has found anything new for %d hours, since %s (clair.maxAge is %s): see to its updaters and what they read",
		b.instance.host, int(age.Hours()), current.Built.UTC().Format(time.RFC3339), most)
}

// MaxDataAge implements backend.DataReporter.
func (b *Backend) MaxDataAge() time.Duration {
	if b.settingsFailure != nil {
		return 0
	}
	return b.instance.Config.Clair.MaxAge.Duration
}

// RequestDataPoll implements backend.DataPoller.
func (b *Backend) RequestDataPoll(context.Context) error {
	if b.settingsFailure == nil {
		b.instance.requestPoll()
	}
	return nil
}
