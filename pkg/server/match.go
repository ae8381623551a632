package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Bounds of what a worker may ask for at once.
const (
	maxLeases = 100
	maxWait   = time.Minute
)

// leasePoll is how often a waiting request looks for work.
const leasePoll = time.Second

func (i *Ingest) postDatabase(w http.ResponseWriter, r *http.Request, _ store.Job) error {
	var status workerapi.DatabaseStatus
	if err := i.decode(w, r, &status); err != nil {
		return err
	}
	wanted, err := i.Engine.DatabaseReported(r.Context(), status)
	if err != nil {
		return err
	}
	return writeJSON(w, workerapi.DatabaseOrder{Wanted: wanted})
}

// postLeases lends images, waiting for some if there are none.
func (i *Ingest) postLeases(w http.ResponseWriter, r *http.Request, job store.Job) error {
	var request workerapi.LeaseRequest
	if err := i.decode(w, r, &request); err != nil {
		return err
	}
	limit := min(max(request.Max, 1), maxLeases)
	wait := min(time.Duration(max(request.WaitSeconds, 0))*time.Second, maxWait)
	deadline := i.Clock.Now().Add(wait)
	ticker := i.Clock.NewTicker(leasePoll)
	defer ticker.Stop()
	for {
		response, err := i.lend(r.Context(), job, request.Built, limit)
		if err != nil {
			return err
		}
		if len(response.Leases) > 0 || !response.Wanted.IsZero() || !i.Clock.Now().Before(deadline) {
			return writeJSON(w, response)
		}
		select {
		case <-ticker.C():
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

// lend gives out images, or says that the worker's database is not the one to match with.
func (i *Ingest) lend(ctx context.Context, job store.Job, built time.Time, limit int) (workerapi.LeaseResponse, error) {
	response := workerapi.LeaseResponse{Leases: []workerapi.Lease{}}
	wanted, ok, err := i.Engine.Wanted(ctx, built)
	if err != nil {
		return response, err
	}
	if !ok {
		response.Wanted = wanted
		return response, nil
	}
	now := i.Clock.Now()
	leases, err := i.Store.LeaseMatches(ctx, i.Engine.Engine(), job.UID, limit, now, now.Add(i.LeaseTime))
	if err != nil {
		return response, err
	}
	for _, lease := range leases {
		response.Leases = append(response.Leases, workerapi.Lease{ID: lease.ID, Image: lease.PlatformDigest, Until: lease.Until})
	}
	return response, nil
}

func (i *Ingest) lease(r *http.Request, job store.Job) (store.Lease, error) {
	return i.Store.Lease(r.Context(), r.PathValue("lease"), job.UID, i.Clock.Now())
}

func (i *Ingest) getLeaseInput(w http.ResponseWriter, r *http.Request, job store.Job) error {
	lease, err := i.lease(r, job)
	if err != nil {
		return err
	}
	content, size, err := i.Store.OpenArtifact(r.Context(), lease.PlatformDigest, lease.Scope, store.ArtifactMatchInput)
	if errors.Is(err, store.ErrNotFound) {
		return refuse(http.StatusGone, "the image was forgotten meanwhile")
	}
	if err != nil {
		return err
	}
	defer content.Close()
	w.Header().Set("Content-Type", workerapi.ContentTypeZstd)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if _, err := io.Copy(w, content); err != nil {
		i.Log.V(1).Info("A match input was not read to its end", "error", err.Error())
	}
	return nil
}

// putReport stores a report if it is whole and made with the data that reports are made with now.
func (i *Ingest) putReport(w http.ResponseWriter, r *http.Request, job store.Job) error {
	defer drain(r.Body)
	lease, err := i.lease(r, job)
	if err != nil {
		return err
	}
	sum := sha256.New()
	body := io.TeeReader(http.MaxBytesReader(w, r.Body, i.Limits.Report), sum)
	content, err := decompress(body, i.Limits.ReportContent)
	if err != nil {
		return refuse(http.StatusBadRequest, "the body is not zstd: %v", err)
	}
	defer content.Close()
	var report workerapi.Report
	if err := decodeWhole(content, &report); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return err
	}
	if want := r.Header.Get(workerapi.DigestHeader); digestOf(sum) != want {
		return refuse(http.StatusBadRequest, "the body has the digest %s, but %s was announced", digestOf(sum), want)
	}
	if err := i.Engine.SaveReport(r.Context(), lease, report); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// decodeWhole reads one JSON value and nothing after it, to the end of the stream: a truncated body is no report.
func decodeWhole(content io.Reader, report *workerapi.Report) error {
	decoder := json.NewDecoder(content)
	err := decoder.Decode(report)
	if err == nil {
		if _, err = decoder.Token(); err == nil {
			err = errors.New("something comes after it")
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
	case errors.As(err, &tooLarge), errors.Is(err, errContentTooLarge):
		return err
	default:
		return refuse(http.StatusBadRequest, "the body is not a whole report: %v", err)
	}
	if report.Database.Built.IsZero() {
		return refuse(http.StatusUnprocessableEntity, "database.built: a report must say which data it was made with")
	}
	return nil
}

func (i *Ingest) postFailure(w http.ResponseWriter, r *http.Request, job store.Job) error {
	lease, err := i.lease(r, job)
	if err != nil {
		return err
	}
	var failure workerapi.Failure
	if err := i.decode(w, r, &failure); err != nil {
		return err
	}
	if failure.Reason == "" {
		return refuse(http.StatusUnprocessableEntity, "reason: must be said")
	}
	failure.Reason = clip(failure.Reason)
	failure.Message = strings.ToValidUTF8(failure.Message[:min(len(failure.Message), 4*maxText)], "")
	if err := i.Engine.FailMatch(r.Context(), lease, failure); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
