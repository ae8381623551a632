package leases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Server is the part of the ingest API's client that a Worker needs.
type Server interface {
	Post(ctx context.Context, path string, in, out any) error
	Get(ctx context.Context, path string, read func(io.Reader) error) error
	PutBytes(ctx context.Context, path string, body []byte) error
}

// Databases keeps a vulnerability database open.
type Databases interface {
	DB() *database.DB
	Refresh(ctx context.Context) workerapi.DatabaseStatus
	Recheck(ctx context.Context) (damaged bool)
}

// Config configures a Worker.
type Config struct {
	// Parallel is the number of images that are matched at the same time, at least 1.
	Parallel int
	// IdleTimeout is how long the worker waits for work before it ends.
	IdleTimeout time.Duration
	// Deadline bounds the match of one image. A match that takes longer fails with ReasonMatchTimedOut.
	Deadline time.Duration
	// TempDir is the directory for one SBOM of each running match.
	TempDir string
	Clock   clock.Clock
	Log     *slog.Logger
}

// Intervals of requests for the listing of databases and for work.
const (
	// listingInterval is how often the listing is read without a request by the server.
	listingInterval = 15 * time.Minute
	// minListingInterval is the minimum time between two readings of the listing while the server wants a newer database: the listing may
	// lag behind the server.
	minListingInterval = 10 * time.Second
	// longPoll is how long the server may wait for work before it answers.
	longPoll = 30 * time.Second
)

// A worker that installs a database, or lists its vulnerability IDs, reports every aliveInterval that it is alive, for at most maxInstallTime or
// maxListTime. The server ends workers that send no requests.
const (
	aliveInterval  = time.Minute
	maxInstallTime = time.Hour
	maxListTime    = 10 * time.Minute
)

// Worker processes leases.
type Worker struct {
	config    Config
	server    Server
	databases Databases
	// limits of a report. Outside of tests, they are those of workerapi.
	limits limits

	// wanted is the build time of the newest database that the server knows of.
	wanted time.Time
	// listingReadAt is when the listing was last read.
	listingReadAt time.Time
	// lastBusy is when the worker last had work.
	lastBusy time.Time
	// recheck means that a query has failed since the database was last checked.
	recheck bool
	// running holds the IDs of the leases in progress. Their outcomes arrive at ended.
	running map[string]bool
	ended   chan outcome
	// stuck means that a match was abandoned.
	stuck bool
}

// New returns a worker. Run starts it.
func New(config Config, server Server, databases Databases) *Worker {
	return &Worker{
		config: config, server: server, databases: databases,
		limits:  limits{sent: workerapi.MaxReportBytes, content: workerapi.MaxReportContentBytes},
		running: map[string]bool{}, ended: make(chan outcome, config.Parallel),
	}
}

// Run processes leases until there has been no work for the idle timeout, the context ends, or a match is abandoned. None of these is
// an error. Run returns an error if the server is unavailable or refuses a request, or if there is no database for the idle timeout.
func (w *Worker) Run(ctx context.Context) error {
	w.lastBusy = w.config.Clock.Now()
	matching, cancel := w.withGrace(ctx)
	defer cancel()
	for {
		err := w.round(ctx, matching)
		if err == nil {
			continue
		}
		w.drain()
		switch {
		case ctx.Err() != nil:
			// Any other error is ignored here: if it persists, another worker reports it.
			w.config.Log.Info("stopping")
			return nil
		case errors.Is(err, errStuck):
			w.config.Log.Warn("a match cannot be ended: another worker continues")
			return nil
		case errors.Is(err, errIdle):
			w.config.Log.Info("no work left", "idle", w.config.IdleTimeout)
			return nil
		}
		return err
	}
}

// Errors that end the worker without a failure.
var (
	errIdle  = errors.New("idle")
	errStuck = errors.New("a match cannot be ended")
)

// round refreshes the database if necessary, and leases as many images as it can match at once. It leases no images in advance, so
// that the server sees how much of the worker each namespace uses. Matches that take long do not delay the next images.
func (w *Worker) round(ctx, matching context.Context) error {
	w.collectOutcomes()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if w.isRefreshDue() {
		w.drain() // the database may change only while no match is running
	}
	if w.stuck {
		return errStuck
	}
	if err := w.refreshDatabase(ctx); err != nil {
		return err
	}
	db := w.databases.DB()
	if db == nil {
		return w.awaitDatabase(ctx)
	}
	if len(w.running) == w.config.Parallel {
		w.recordOutcome(<-w.ended)
		return nil
	}
	leases, err := w.lease(ctx, db, w.config.Parallel-len(w.running))
	if err != nil {
		return err
	}
	for _, lease := range leases {
		w.running[lease.ID] = true
		go func() { w.ended <- w.processLease(matching, db, lease) }()
	}
	if len(w.running) == 0 {
		// The server had no work while it waited, or wants a newer database first.
		return w.checkIdle()
	}
	return nil
}

// checkIdle returns errIdle if there has been no work for the idle timeout.
func (w *Worker) checkIdle() error {
	if w.config.Clock.Now().Sub(w.lastBusy) >= w.config.IdleTimeout {
		return errIdle
	}
	return nil
}

// awaitDatabase waits before the next attempt to get a database. It returns an error if there was none for the idle timeout.
func (w *Worker) awaitDatabase(ctx context.Context) error {
	if errors.Is(w.checkIdle(), errIdle) {
		return failure.New(workerapi.ReasonDatabaseUnreadable,
			fmt.Errorf("no vulnerability database could be installed for %s", w.config.IdleTimeout))
	}
	return w.config.Clock.Sleep(ctx, w.config.Clock.Jitter(minListingInterval))
}

// isRefreshDue reports whether refreshDatabase has anything to do.
func (w *Worker) isRefreshDue() bool {
	since := w.config.Clock.Now().Sub(w.listingReadAt)
	db := w.databases.DB()
	outdated := db == nil || db.Built.Before(w.wanted)
	return w.recheck || w.listingReadAt.IsZero() || since >= listingInterval || outdated && since >= minListingInterval
}

// refreshDatabase checks the database after a failed query, and installs a newer one if that is due or the server wants it. It reports the
// result to the server. No match may be running.
func (w *Worker) refreshDatabase(ctx context.Context) error {
	if !w.isRefreshDue() {
		return nil
	}
	// After a failed query, the whole file is read once, since the disk may have lost a part of it.
	damaged := w.recheck && w.databases.Recheck(ctx)
	if w.recheck = false; !damaged && !w.isRefreshDue() {
		return nil
	}
	status := w.refresh(ctx)
	w.listingReadAt = w.config.Clock.Now()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var order workerapi.DatabaseOrder
	if err := w.server.Post(ctx, workerapi.PathDatabase, status, &order); err != nil {
		return err
	}
	if order.Wanted.After(w.wanted) {
		w.wanted = order.Wanted
	}
	if db := w.databases.DB(); order.SendIDs && db != nil {
		w.sendVulnerabilityIDs(ctx, db)
	}
	return nil
}

// sendVulnerabilityIDs sends the list of the database's IDs. Matches do not need it: after a failure, the server asks again when it gets the next
// status.
func (w *Worker) sendVulnerabilityIDs(ctx context.Context, db *database.DB) {
	err := w.whileAlive(ctx, maxListTime, func(ctx context.Context) error {
		ids, err := db.VulnerabilityIDs(ctx)
		if err != nil {
			return err
		}
		path := strings.Replace(workerapi.PathVulnerabilityIDs, "{built}", url.PathEscape(db.Built.UTC().Format(time.RFC3339Nano)), 1)
		return w.server.PutBytes(ctx, path, compress([]byte(ids), zstd.SpeedBestCompression))
	})
	if err != nil && ctx.Err() == nil {
		w.config.Log.Warn("the vulnerability IDs of the database could not be sent", "error", failure.Line(err.Error()))
	}
}

// refresh installs a newer database, which may take minutes.
func (w *Worker) refresh(ctx context.Context) (status workerapi.DatabaseStatus) {
	_ = w.whileAlive(ctx, maxInstallTime, func(context.Context) error {
		status = w.databases.Refresh(ctx) // has bounds of its own
		return nil
	})
	return status
}

// whileAlive does what may take minutes, and reports meanwhile that the worker is alive. The context of the work ends after limit. No lease can
// expire, since the worker has none.
func (w *Worker) whileAlive(ctx context.Context, limit time.Duration, work func(context.Context) error) error {
	bounded, done := w.config.Clock.WithTimeout(ctx, limit)
	var group sync.WaitGroup
	group.Go(func() {
		w.config.Clock.Every(bounded, aliveInterval, func() {
			if err := w.server.Post(bounded, workerapi.PathAlive, struct{}{}, nil); err != nil && bounded.Err() == nil {
				w.config.Log.Warn("the worker could not report that it is alive", "error", failure.Line(err.Error()))
			}
		})
	})
	defer group.Wait()
	defer done()
	return work(bounded)
}

// lease requests at most that many images.
func (w *Worker) lease(ctx context.Context, db *database.DB, most int) ([]workerapi.Lease, error) {
	request := workerapi.LeaseRequest{
		Built:       db.Built,
		Max:         min(most, 100),
		WaitSeconds: int(min(longPoll, w.config.IdleTimeout) / time.Second),
		Held:        slices.Sorted(maps.Keys(w.running)),
	}
	var response workerapi.LeaseResponse
	asked := w.config.Clock.Now()
	if err := w.server.Post(ctx, workerapi.PathLeases, request, &response); err != nil {
		return nil, err
	}
	if response.Wanted.After(w.wanted) {
		w.wanted = response.Wanted
	}
	if len(response.Leases) == 0 && w.config.Clock.Now().Sub(asked) < time.Second {
		// The pause prevents a tight loop if the server has no work and does not wait for any.
		return nil, w.config.Clock.Sleep(ctx, w.config.Clock.Jitter(2*time.Second))
	}
	return response.Leases, nil
}
