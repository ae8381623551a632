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
	"sync"
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

// work works on the leases, some at the same time, and returns when none is being worked on any more.
func (w *Worker) work(ctx context.Context, db *database.DB, leases []workerapi.Lease) {
	running, cancel := w.withGrace(ctx)
	defer cancel()
	// Without a buffer: what no goroutine has taken has not been begun.
	queue := make(chan workerapi.Lease)
	var group sync.WaitGroup
	var mu sync.Mutex
	for range w.config.Parallel {
		group.Go(func() {
			for lease := range queue {
				if unreadable := w.workOn(running, db, lease); unreadable {
					mu.Lock()
					w.recheck = true
					mu.Unlock()
				}
			}
		})
	}
	for _, lease := range leases {
		select {
		case queue <- lease:
		case <-ctx.Done():
			// Not begun: the lease expires, and another worker gets the image.
		}
	}
	close(queue)
	group.Wait()
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

// workOn ends one lease with a report or a failure. It says whether the database failed.
func (w *Worker) workOn(ctx context.Context, db *database.DB, lease workerapi.Lease) (unreadable bool) {
	log := w.config.Log.With("image", lease.Image, "lease", lease.ID)
	// One chain of steps, each only after the one before: what fails first is what is said.
	start := w.config.Clock.Now()
	report, err := w.match(ctx, db, lease)
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
		return false
	}
	// In all three cases there is nobody to tell: the lease is another's now, or soon will be.
	if ctx.Err() != nil || ingest.Gone(err) || errors.Is(err, ingest.ErrUnreachable) {
		log.Warn("the lease is given up", "error", failure.Line(err.Error()))
		return false
	}
	return w.fail(ctx, log, lease, err)
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
func (w *Worker) match(ctx context.Context, db *database.DB, lease workerapi.Lease) (*workerapi.Report, error) {
	var file *input.File
	err := w.server.Get(ctx, leasePath(workerapi.PathLeaseInput, lease), func(body io.Reader) (err error) {
		file, err = input.Receive(body, w.config.TempDir)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("fetching the SBOM: %w", err)
	}
	defer file.Remove()
	return match.SBOM(ctx, db, file)
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
