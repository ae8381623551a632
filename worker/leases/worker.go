package leases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Server is the ingest API as far as it is needed here.
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

// Config says how to work.
type Config struct {
	// Parallel is the number of images that are matched at the same time, at least 1.
	Parallel int
	// IdleTimeout is how long the worker waits for work before it ends.
	IdleTimeout time.Duration
	// Deadline is how long the match of one image may take. Then it has failed with ReasonMatchTimedOut.
	Deadline time.Duration
	// TempDir takes one SBOM for each image that is being matched.
	TempDir string
	Clock   clock.Clock
	Log     *slog.Logger
}

// Times between looks at the listing of databases.
const (
	// listingEvery is how often the listing is read without being told to.
	listingEvery = 15 * time.Minute
	// listingAtMost limits how often the server can have it read: the listing may lag behind the server.
	listingAtMost = 10 * time.Second
	// longPoll is how long the server may take to find work.
	longPoll = 30 * time.Second
)

// A worker that installs a database reports every aliveEvery that it is alive, for installTime at most: the server ends workers that make
// no requests.
const (
	aliveEvery  = time.Minute
	installTime = time.Hour
)

// Worker works leases.
type Worker struct {
	config    Config
	server    Server
	databases Databases
	// limits of a report; the contract's.
	limits limits

	// wanted is the newest build that the server knows of.
	wanted time.Time
	// listed is when the listing was last read.
	listed time.Time
	// busy is when there was last something to do.
	busy time.Time
	// recheck says that a query failed since the database was last found to be in order.
	recheck bool
	// running counts the leases that are worked on, whose outcomes come by ended.
	running int
	ended   chan outcome
	// stuck says that a match could not be ended.
	stuck bool
}

// New returns a worker.
func New(config Config, server Server, databases Databases) *Worker {
	return &Worker{
		config: config, server: server, databases: databases,
		limits: limits{sent: workerapi.MaxReportBytes, content: workerapi.MaxReportContentBytes},
		ended:  make(chan outcome, config.Parallel),
	}
}

// Run works until there has been nothing to do for the idle timeout, the context ends, or a match cannot be ended; none of these is an
// error. It is an error when the server is away or refuses, or when there is no database for the idle timeout.
func (w *Worker) Run(ctx context.Context) error {
	w.busy = w.config.Clock.Now()
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
			// Whatever else went wrong meanwhile: another worker sees it, too.
			w.config.Log.Info("told to stop")
			return nil
		case errors.Is(err, errStuck):
			w.config.Log.Warn("a match cannot be ended: another worker goes on")
			return nil
		case errors.Is(err, errIdle):
			w.config.Log.Info("no work left", "idle", w.config.IdleTimeout)
			return nil
		}
		return err
	}
}

// What ends the worker.
var (
	errIdle  = errors.New("idle")
	errStuck = errors.New("a match cannot be ended")
)

// round keeps the database fresh, and leases as many images as can be matched at once: what is leased is being matched, so that the
// server sees how much of the worker each namespace has. Matches that take long do not keep the next images waiting.
func (w *Worker) round(ctx, matching context.Context) error {
	w.collect()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if w.mustFreshen() {
		w.drain() // the database may change only while no match is running
	}
	if w.stuck {
		return errStuck
	}
	if err := w.freshen(ctx); err != nil {
		return err
	}
	db := w.databases.DB()
	if db == nil {
		return w.pause(ctx)
	}
	if w.running == w.config.Parallel {
		w.await()
		return nil
	}
	leases, err := w.lease(ctx, db, w.config.Parallel-w.running)
	if err != nil {
		return err
	}
	for _, lease := range leases {
		w.begin(matching, db, lease)
	}
	if w.running == 0 {
		// The server has waited for work in vain, or wants a newer database first.
		return w.idle()
	}
	return nil
}

// idle ends the worker when it has waited for long enough.
func (w *Worker) idle() error {
	if w.config.Clock.Now().Sub(w.busy) >= w.config.IdleTimeout {
		return errIdle
	}
	return nil
}

// pause waits for a database, or says that there is none to be had.
func (w *Worker) pause(ctx context.Context) error {
	if errors.Is(w.idle(), errIdle) {
		return failure.New(workerapi.ReasonDatabaseUnreadable,
			fmt.Errorf("no vulnerability database could be installed for %s", w.config.IdleTimeout))
	}
	return w.config.Clock.Sleep(ctx, w.config.Clock.Jitter(listingAtMost))
}

// mustFreshen says whether freshen has anything to do.
func (w *Worker) mustFreshen() bool {
	since := w.config.Clock.Now().Sub(w.listed)
	db := w.databases.DB()
	outdated := db == nil || db.Built.Before(w.wanted)
	return w.recheck || w.listed.IsZero() || since >= listingEvery || outdated && since >= listingAtMost
}

// freshen looks for a newer database when it is time to or the server knows of one, and reports the result. No match may be running.
func (w *Worker) freshen(ctx context.Context) error {
	if !w.mustFreshen() {
		return nil
	}
	// After a failed query the file is read as a whole, once: the disk may have lost a part of it.
	damaged := w.recheck && w.databases.Recheck(ctx)
	if w.recheck = false; !damaged && !w.mustFreshen() {
		return nil
	}
	status := w.refresh(ctx)
	w.listed = w.config.Clock.Now()
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
	return nil
}

// refresh may take minutes. Nothing is leased meanwhile, so nothing expires.
func (w *Worker) refresh(ctx context.Context) workerapi.DatabaseStatus {
	installing, done := w.config.Clock.WithTimeout(ctx, installTime)
	var group sync.WaitGroup
	group.Go(func() {
		w.config.Clock.Every(installing, aliveEvery, func() {
			if err := w.server.Post(installing, workerapi.PathAlive, struct{}{}, nil); err != nil && installing.Err() == nil {
				w.config.Log.Warn("the worker could not report that it is alive", "error", failure.Line(err.Error()))
			}
		})
	})
	defer group.Wait()
	defer done()
	return w.databases.Refresh(ctx)
}

// lease asks for that many images.
func (w *Worker) lease(ctx context.Context, db *database.DB, most int) ([]workerapi.Lease, error) {
	request := workerapi.LeaseRequest{
		Built:       db.Built,
		Max:         min(most, 100),
		WaitSeconds: int(min(longPoll, w.config.IdleTimeout) / time.Second),
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
		// A server that has nothing and does not wait either must not be asked in a tight loop.
		return nil, w.config.Clock.Sleep(ctx, w.config.Clock.Jitter(2*time.Second))
	}
	return response.Leases, nil
}
