package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/worker/ingest"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/match"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// grace is how long a running match may continue after the worker's stop begins. Kubernetes gives
// a pod 30 seconds.
const grace = 10 * time.Second

// abandonAfter is how long a match may take to end after its deadline. After that, the worker abandons the match and ends soon, since
// a match that does not end keeps memory and a CPU.
const abandonAfter = 10 * time.Second

// outcome is the result of the work on one lease.
type outcome struct {
	// lease is the ID of the lease.
	lease string
	// unreadable means that the database failed.
	unreadable bool
	// abandoned means that the match did not end. It continues to run and to use the database.
	abandoned bool
}

// drain waits for the outcomes of all leases in progress.
func (w *Worker) drain() {
	for len(w.running) > 0 {
		w.recordOutcome(<-w.ended)
	}
}

// collectOutcomes records the outcomes that have arrived, without waiting.
func (w *Worker) collectOutcomes() {
	for {
		select {
		case o := <-w.ended:
			w.recordOutcome(o)
		default:
			return
		}
	}
}

func (w *Worker) recordOutcome(o outcome) {
	delete(w.running, o.lease)
	w.lastBusy = w.config.Clock.Now()
	w.recheck = w.recheck || o.unreadable
	w.stuck = w.stuck || o.abandoned
}

// withGrace returns a context that ends grace after ctx, and a function that releases it.
func (w *Worker) withGrace(ctx context.Context) (context.Context, func()) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = w.config.Clock.Sleep(running, grace)
		cancel()
	})
	return running, func() { stop(); cancel() }
}

// processLease ends one lease with a report or a failure.
func (w *Worker) processLease(ctx context.Context, db *database.DB, lease workerapi.Lease) (o outcome) {
	log := w.config.Log.With("image", lease.Image, "lease", lease.ID)
	o.lease = lease.ID
	// Each step needs the one before, so the first error is the one that is reported.
	start := w.config.Clock.Now()
	report, abandoned, err := w.match(ctx, db, lease)
	o.abandoned = abandoned
	var encoded []byte
	if err == nil {
		encoded, err = encode(report, w.limits)
	}
	if err == nil {
		err = w.server.PutBytes(ctx, leasePath(workerapi.PathLeaseReport, lease), encoded)
	}
	// The server may accept less than the limits of this worker. Sending the report again would not make it smaller.
	if ingest.HasStatus(err, http.StatusRequestEntityTooLarge) {
		err = tooLarge(report, err)
	}
	if err == nil {
		log.Info("matched", "findings", len(report.Findings), "ignored", report.Ignored, "distro", report.Distro,
			"bytes", len(encoded), "duration", w.config.Clock.Now().Sub(start).Round(time.Millisecond))
		return o
	}
	// In all three cases, no failure can be reported: the worker stops, the lease belongs to another worker, or will do so soon.
	if ctx.Err() != nil || ingest.IsGone(err) || errors.Is(err, ingest.ErrUnreachable) {
		log.Warn("the lease is given up", "error", failure.Line(err.Error()))
		return o
	}
	o.unreadable = w.reportFailure(ctx, log, lease, err)
	return o
}

// reportFailure ends the lease with a failure. It reports whether the database failed.
func (w *Worker) reportFailure(ctx context.Context, log *slog.Logger, lease workerapi.Lease, err error) (unreadable bool) {
	fallback := workerapi.ReasonMatchFailed
	if ingest.IsRefused(err) {
		fallback = workerapi.ReasonUploadRefused
	}
	described := failure.Describe(err, fallback)
	log.Error("matching failed", "reason", described.Reason, "error", described.Message)
	if err := w.server.Post(ctx, leasePath(workerapi.PathLeaseFailure, lease), described, nil); err != nil {
		log.Warn("the failure could not be reported", "error", failure.Line(err.Error()))
	}
	return described.Reason == workerapi.ReasonDatabaseUnreadable
}

// match fetches the lease's SBOM and matches it.
func (w *Worker) match(ctx context.Context, db *database.DB, lease workerapi.Lease) (report *workerapi.Report, abandoned bool, err error) {
	var file *input.File
	err = w.server.Get(ctx, leasePath(workerapi.PathLeaseInput, lease), func(body io.Reader) (err error) {
		file, err = input.Receive(body, w.config.TempDir)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("fetching the SBOM: %w", err)
	}
	return w.matchWithDeadline(ctx, db, file)
}

// matchWithDeadline matches an SBOM and removes its file. It abandons a match that has not ended abandonAfter after its deadline, since Go
// cannot stop it.
func (w *Worker) matchWithDeadline(ctx context.Context, db *database.DB, file *input.File) (_ *workerapi.Report, abandoned bool, err error) {
	inTime, cancel := w.config.Clock.WithTimeout(ctx, w.config.Deadline)
	defer cancel()
	late, cancel := w.config.Clock.WithTimeout(ctx, w.config.Deadline+abandonAfter)
	defer cancel()
	type result struct {
		report *workerapi.Report
		err    error
	}
	results := make(chan result, 1)
	go func() {
		defer file.Remove()
		report, err := match.SBOM(inTime, db, file)
		results <- result{report, err}
	}()
	select {
	case r := <-results:
		if r.err == nil || inTime.Err() == nil || ctx.Err() != nil {
			return r.report, false, r.err
		}
	case <-late.Done():
		abandoned = true
	}
	return nil, abandoned, failure.New(workerapi.ReasonMatchTimedOut, fmt.Errorf(
		"matching did not end within %s (grype.match.deadline in the operator's configuration)", w.config.Deadline))
}

// limits bound a report in bytes, as sent and after decompression.
type limits struct{ sent, content int }

// tooLarge returns an error with the number of findings, since they make a report large. cause may be nil.
func tooLarge(report *workerapi.Report, cause error) error {
	err := fmt.Errorf("the report is too large: %d findings", len(report.Findings))
	if cause != nil {
		err = fmt.Errorf("the report is too large: %d findings: %w", len(report.Findings), cause)
	}
	return failure.New(workerapi.ReasonMatchFailed, err)
}

// encode compresses a report. A report that is larger than the limits is an error.
func encode(report *workerapi.Report, most limits) ([]byte, error) {
	content, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	// A failure with this reason is more helpful than a refusal by the server after the upload.
	if len(content) > most.content {
		return nil, tooLarge(report, nil)
	}
	encoded := compress(content, zstd.SpeedDefault)
	if len(encoded) > most.sent {
		return nil, tooLarge(report, nil)
	}
	return encoded, nil
}

func compress(content []byte, level zstd.EncoderLevel) []byte {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level))
	if err != nil {
		panic(err) // only options that are not valid are errors
	}
	return encoder.EncodeAll(content, nil)
}

// leasePath inserts the ID of a lease into a path of workerapi.
func leasePath(template string, lease workerapi.Lease) string {
	return strings.Replace(template, "{lease}", url.PathEscape(lease.ID), 1)
}
