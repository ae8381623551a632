package leases

import (
	"bytes"
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

// grace is how long a match that is running may go on after the worker is told to stop; Kubernetes gives
// a pod 30 seconds.
const grace = 10 * time.Second

// abandonAfter is how long a match may take to end after its deadline. Then nobody waits for it any more, and the worker ends soon:
// what cannot be ended keeps memory and a CPU.
const abandonAfter = 10 * time.Second

// outcome is how the work on one lease ended.
type outcome struct {
	// unreadable says that the database failed.
	unreadable bool
	// abandoned says that the match could not be ended. It goes on, with the database.
	abandoned bool
}

// begin works on a lease beside others. Its outcome is sent to w.ended.
func (w *Worker) begin(ctx context.Context, db *database.DB, lease workerapi.Lease) {
	w.running++
	go func() { w.ended <- w.workOn(ctx, db, lease) }()
}

// await waits for the end of one of the leases that are worked on.
func (w *Worker) await() { w.note(<-w.ended) }

// drain waits for the end of all.
func (w *Worker) drain() {
	for w.running > 0 {
		w.await()
	}
}

// collect notes what has ended, and waits for nothing.
func (w *Worker) collect() {
	for {
		select {
		case o := <-w.ended:
			w.note(o)
		default:
			return
		}
	}
}

func (w *Worker) note(o outcome) {
	w.running--
	w.busy = w.config.Clock.Now()
	w.recheck = w.recheck || o.unreadable
	w.stuck = w.stuck || o.abandoned
}

// withGrace returns a context that ends some time after ctx.
func (w *Worker) withGrace(ctx context.Context) (context.Context, func()) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = w.config.Clock.Sleep(running, grace)
		cancel()
	})
	return running, func() { stop(); cancel() }
}

// workOn ends one lease with a report or a failure.
func (w *Worker) workOn(ctx context.Context, db *database.DB, lease workerapi.Lease) (o outcome) {
	log := w.config.Log.With("image", lease.Image, "lease", lease.ID)
	// One chain of steps, each only after the one before: what fails first is what is said.
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
	// The server may take less than this worker knows of. Sending it again would not make it smaller.
	if ingest.Answered(err, http.StatusRequestEntityTooLarge) {
		err = tooLarge(report, err)
	}
	if err == nil {
		log.Info("matched", "findings", len(report.Findings), "ignored", report.Ignored, "distro", report.Distro,
			"bytes", len(encoded), "duration", w.config.Clock.Now().Sub(start).Round(time.Millisecond))
		return o
	}
	// In all three cases there is nobody to tell: the lease is another's now, or soon will be.
	if ctx.Err() != nil || ingest.Gone(err) || errors.Is(err, ingest.ErrUnreachable) {
		log.Warn("the lease is given up", "error", failure.Line(err.Error()))
		return o
	}
	o.unreadable = w.fail(ctx, log, lease, err)
	return o
}

// fail ends the lease with a failure.
func (w *Worker) fail(ctx context.Context, log *slog.Logger, lease workerapi.Lease, err error) (unreadable bool) {
	fallback := workerapi.ReasonMatchFailed
	if ingest.Refused(err) {
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
	return w.matchInTime(ctx, db, file)
}

// matchInTime matches an SBOM and removes it. A match that does not end with its deadline is abandoned: Go cannot end it.
func (w *Worker) matchInTime(ctx context.Context, db *database.DB, file *input.File) (_ *workerapi.Report, abandoned bool, err error) {
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

// limits bound a report, in bytes as sent and after decompression.
type limits struct{ sent, content int }

// tooLarge says how many findings there are, which is what makes a report large; cause may be nil.
func tooLarge(report *workerapi.Report, cause error) error {
	err := fmt.Errorf("the report is too large: %d findings", len(report.Findings))
	if cause != nil {
		err = fmt.Errorf("the report is too large: %d findings: %w", len(report.Findings), cause)
	}
	return failure.New(workerapi.ReasonMatchFailed, err)
}

// encode compresses a report, unless it is larger than the server takes.
func encode(report *workerapi.Report, most limits) ([]byte, error) {
	content, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	// Better a failure that says so than a refusal by the server after the upload.
	if len(content) > most.content {
		return nil, tooLarge(report, nil)
	}
	var encoded bytes.Buffer
	encoder, err := zstd.NewWriter(&encoded, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	if _, err := encoder.Write(content); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	if encoded.Len() > most.sent {
		return nil, tooLarge(report, nil)
	}
	return encoded.Bytes(), nil
}

// leasePath fills a lease into a path of the contract.
func leasePath(template string, lease workerapi.Lease) string {
	return strings.Replace(template, "{lease}", url.PathEscape(lease.ID), 1)
}
