package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/worker/ingest"
	"github.com/scanner-operator/scanner-operator/worker/leases"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// matchJob matches images until it gets no more leases.
type matchJob struct {
	process
	source      *database.Source
	databaseDir string
	idleTimeout time.Duration
	deadline    time.Duration
	parallel    int
	client      *ingest.Client
}

// maxParallel bounds the number of parallel matches: each may need a few hundred MiB.
const maxParallel = 32

// parseMatch reads the flags, and checks everything that can be checked before the work starts.
func (p process) parseMatch(args []string, log *slog.Logger) (*matchJob, error) {
	set := p.flags("match")
	job := &matchJob{process: p}
	address := set.String("database-url", "", "`URL` of vulnerability databases: a listing (.json), or the base of v6/latest.json")
	authorities := set.String("database-ca", "", "`certificates` in PEM of authorities to trust for the database's server, in addition to the well-known ones")
	set.StringVar(&job.databaseDir, "database-dir", workerapi.DatabaseDir, "writable `directory` that keeps databases")
	set.DurationVar(&job.idleTimeout, "idle-timeout", 10*time.Minute, "`time` without work after which the worker ends")
	set.DurationVar(&job.deadline, "deadline", 5*time.Minute, "`time` that the match of one image may take")
	set.IntVar(&job.parallel, "parallel", 2, "`number` of images that are matched at the same time")
	if err := set.parse(args); err != nil {
		return nil, err
	}
	switch {
	case *address == "":
		return nil, errors.New("--database-url is required")
	case job.databaseDir == "":
		return nil, errors.New("--database-dir must not be empty")
	case job.idleTimeout < time.Second:
		return nil, fmt.Errorf("--idle-timeout must be at least 1s, not %s", job.idleTimeout)
	case job.deadline < time.Second:
		return nil, fmt.Errorf("--deadline must be at least 1s, not %s", job.deadline)
	case job.parallel < 1 || job.parallel > maxParallel:
		return nil, fmt.Errorf("--parallel must be from 1 to %d, not %d", maxParallel, job.parallel)
	}
	transport, err := database.NewTransport(*authorities)
	if err != nil {
		return nil, fmt.Errorf("--database-ca: %w", err)
	}
	if job.source, err = database.NewSource(*address, transport); err != nil {
		return nil, fmt.Errorf("--database-url: %w", err)
	}
	job.client, err = p.ingestClient(log)
	return job, err
}

// run opens the newest installed database and matches images until the idle timeout.
func (j *matchJob) run(ctx context.Context, log *slog.Logger) (err error) {
	// The database is opened before the first request for leases, since a worker without a database can match nothing.
	store, err := database.OpenStore(j.databaseDir, j.clock, log)
	if err != nil {
		return err
	}
	databases, err := database.NewUpdater(store, j.source, j.clock, log)
	if err != nil {
		return err
	}
	// The database is closed last, since reports query it while they are built.
	defer func() { err = errors.Join(err, databases.Close()) }()
	// The directory holds one SBOM for each running match.
	dir, err := os.MkdirTemp("", "scanner-match-")
	if err != nil {
		return fmt.Errorf("the temporary directory must be writable: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	worker := leases.New(leases.Config{
		Parallel: j.parallel, IdleTimeout: j.idleTimeout, Deadline: j.deadline, TempDir: dir, Clock: j.clock, Log: log,
	}, j.client, databases)
	return withRefusalReason(worker.Run(ctx))
}
