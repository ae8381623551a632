package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Bounds of one lease request.
const (
	maxLeases = 100
	maxWait   = time.Minute
)

// leasePoll is how often a waiting request checks the queue.
const leasePoll = time.Second

func (i *Ingest) postDatabase(w http.ResponseWriter, r *http.Request, _ store.Job) error {
	var status workerapi.DatabaseStatus
	if err := i.decode(w, r, &status); err != nil {
		return err
	}
	wanted, err := i.Backend.RecordDatabase(r.Context(), status)
	switch {
	case errors.Is(err, backend.ErrWorkerReplaced):
		return refuse(http.StatusForbidden, "%v", err)
	case err != nil:
		return err
	}
	order := workerapi.DatabaseOrder{Wanted: wanted}
	if order.SendIDs, err = i.lacksVulnerabilityIDs(r.Context(), status.Installed); err != nil {
		return err
	}
	return writeJSON(w, order)
}

// postAlive does nothing more, because every request of a match worker is recorded as a contact.
func (i *Ingest) postAlive(w http.ResponseWriter, _ *http.Request, _ store.Job) error {
	clearBodyDeadline(w)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// postLeases leases images to a match worker. It waits for some if the queue is empty.
func (i *Ingest) postLeases(w http.ResponseWriter, r *http.Request, job store.Job) error {
	var request workerapi.LeaseRequest
	if err := i.decode(w, r, &request); err != nil {
		return err
	}
	if len(request.Held) > maxLeases {
		return refuse(http.StatusUnprocessableEntity, "held: at most %d", maxLeases)
	}
	// The manager may have ended after it gave a lease and before the answer arrived.
	if err := i.Store.ReturnLeases(r.Context(), grype.Engine, job.UID, request.Held...); err != nil {
		return err
	}
	limit := min(max(request.Max, 1), maxLeases)
	wait := min(time.Duration(max(request.WaitSeconds, 0))*time.Second, maxWait)
	deadline := i.Clock.Now().Add(wait)
	ticker := i.Clock.NewTicker(leasePoll)
	defer ticker.Stop()
	for {
		response, err := i.leaseImages(r.Context(), job, request.Built, limit)
		if err != nil {
			return err
		}
		if len(response.Leases) > 0 || !response.Wanted.IsZero() || !i.Clock.Now().Before(deadline) {
			return writeJSON(w, response)
		}
		select {
		case <-ticker.C():
		case <-i.Closing:
			return writeJSON(w, response)
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

// leaseImages leases up to limit images, or returns the database build that the worker has to install first.
func (i *Ingest) leaseImages(ctx context.Context, job store.Job, built time.Time, limit int) (workerapi.LeaseResponse, error) {
	response := workerapi.LeaseResponse{Leases: []workerapi.Lease{}}
	wanted, ok, err := i.Backend.WantedDatabase(ctx, built)
	if err != nil {
		return response, err
	}
	if !ok {
		response.Wanted = wanted
		return response, nil
	}
	now := i.Clock.Now()
	leases, err := i.Store.LeaseMatches(ctx, grype.Engine, job.UID, limit, now, now.Add(i.LeaseTime))
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
	i.sendArtifact(w, content, size, workerapi.ContentTypeZstd)
	return nil
}

// sendArtifact answers with an artifact, and closes it. No body of the request is expected. A client that stops reading is disconnected after
// artifactTime.
func (i *Ingest) sendArtifact(w http.ResponseWriter, content io.ReadCloser, size int64, contentType string) {
	defer content.Close()
	clearBodyDeadline(w)
	connection := http.NewResponseController(w)
	_ = connection.SetWriteDeadline(time.Now().Add(artifactTime))
	defer func() { _ = connection.SetWriteDeadline(time.Time{}) }()
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if _, err := io.Copy(w, content); err != nil {
		i.Log.V(1).Info("An artifact was not read to its end", "contentType", contentType, "error", err.Error())
	}
}

// putReport stores a complete report that was made with the current data.
func (i *Ingest) putReport(w http.ResponseWriter, r *http.Request, job store.Job) error {
	defer drain(r.Body)
	lease, err := i.lease(r, job)
	if err != nil {
		return err
	}
	// The slot is held until the report is stored, because the report is in memory that long.
	namespace := cmp.Or(string(lease.Scope), lease.Namespace)
	release, err := i.Store.AcquireSlot(r.Context(), i.decoding, namespace, namespace)
	if err != nil {
		return err
	}
	defer release()
	setBodyDeadline(w, reportTime)
	report, err := receiveReport(http.MaxBytesReader(w, r.Body, i.Limits.Report), r.Header.Get(workerapi.DigestHeader), i.Limits.ReportContent)
	if err != nil {
		return err
	}
	clearBodyDeadline(w)
	if err := i.checkData(r.Context(), lease, report); err != nil {
		return err
	}
	if err := i.Backend.SaveReport(r.Context(), lease, report); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkData refuses a report that was made with other data than the current one. The lease ends with a match failure for the data version
// of the lease. The image can therefore be leased again at once with newer data.
func (i *Ingest) checkData(ctx context.Context, lease store.Lease, report workerapi.Report) error {
	current, err := i.Store.DataVersion(ctx, grype.Engine)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if report.Database.Built.Equal(current.Built) && (current.Tool == "" || report.Tool == current.Tool) {
		return nil
	}
	text := fmt.Sprintf("the report was made with the vulnerability database of %s, by %q; the current one is of %s, for %q",
		report.Database.Built.UTC().Format(time.RFC3339), report.Tool, current.Built.UTC().Format(time.RFC3339), current.Tool)
	if err := i.Backend.FailMatch(ctx, lease, workerapi.Failure{Reason: workerapi.ReasonMatchFailed, Message: text}); err != nil {
		return err
	}
	return refuse(http.StatusConflict, "%s", text)
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
		return refuse(http.StatusUnprocessableEntity, "reason: must be set")
	}
	failure.Reason, failure.Message = truncate(failure.Reason, maxText), truncate(failure.Message, 4*maxText)
	if err := i.Backend.FailMatch(r.Context(), lease, failure); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
