package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Ingest is the API that workers use, see package workerapi.
type Ingest struct {
	Store *store.Store
	// Backend gets what workers deliver, and knows which database a worker should have.
	Backend *grype.Backend
	Clock   clock.WithTicker
	Log     logr.Logger
	// Client creates TokenReviews. Reader reads pods without a cache. Everyone who reaches the API can cause such requests, so both should
	// have rate limits separate from the operator's own work.
	Client client.Client
	Reader client.Reader
	// SpoolDir holds uploads until they are stored. It is emptied at start.
	SpoolDir string
	// SpoolBytes bounds the bytes in SpoolDir at any time. SpoolShare bounds those on behalf of one namespace.
	SpoolBytes, SpoolShare int64
	// StoreBytes bounds what is stored on behalf of one namespace (store.StoredBytes); 0 for no bound.
	StoreBytes int64
	// LeaseTime is how long a worker may hold the lease of an image.
	LeaseTime time.Duration
	// WorkerImage is the image of current Jobs. Requests of Jobs with another image are refused.
	WorkerImage string
	// Closing is closed when the server is about to end: workers that wait for images then ask again, another replica. May be nil.
	Closing <-chan struct{}
	// Limits bound request bodies. The zero value means the limits that package workerapi promises.
	Limits Limits
	// Metrics is where the API registers its metrics; may be nil.
	Metrics prometheus.Registerer

	auth    authenticator
	spool   *spool
	metrics metrics
	// decoding has a slot for each report or list of IDs in memory, and checking for each upload being decompressed.
	decoding, checking *limits.Pool
}

// maxDecoding is how many reports and lists of IDs may be in memory at once. Further requests wait before their first byte is read.
const maxDecoding = 2

// maxChecking is how many uploads of catalog Jobs are checked and stored at once. Each takes a CPU for seconds at most.
const maxChecking = 2

// How long a caller may take to send a body, or to read an artifact.
const (
	smallBodyTime = 30 * time.Second
	reportTime    = 2 * time.Minute
	uploadTime    = 10 * time.Minute
	artifactTime  = 10 * time.Minute
)

// Limits are the maximum bytes of a body, as sent and after decompression.
type Limits struct {
	Catalog, SBOMContent, MatchInputContent, Report, ReportContent, VulnerabilityIDs, VulnerabilityIDsContent, JSON int64
}

var defaultLimits = Limits{
	Catalog: workerapi.MaxCatalogBytes, SBOMContent: workerapi.MaxSBOMContentBytes, MatchInputContent: workerapi.MaxMatchInputContentBytes,
	Report: workerapi.MaxReportBytes, ReportContent: workerapi.MaxReportContentBytes, JSON: workerapi.MaxJSONBytes,
	VulnerabilityIDs: workerapi.MaxVulnerabilityIDsBytes, VulnerabilityIDsContent: workerapi.MaxVulnerabilityIDsContentBytes,
}

// Handler empties the spool and returns the API's handler.
func (i *Ingest) Handler() (http.Handler, error) {
	if i.Limits == (Limits{}) {
		i.Limits = defaultLimits
	}
	// An upload that can never fit is refused as too large, instead of being asked to retry forever.
	i.Limits.Catalog = min(i.Limits.Catalog, i.SpoolBytes, i.SpoolShare)
	i.auth = newAuthenticator(i)
	i.metrics = newMetrics(i.Metrics, i.SpoolShare, i.StoreBytes)
	i.spool = newSpool(i.SpoolDir, i.SpoolBytes, i.SpoolShare, i.metrics.spooled)
	i.decoding, i.checking = limits.NewPool(maxDecoding), limits.NewPool(maxChecking)
	if err := i.spool.reset(); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	route := func(method, path string, purpose store.JobPurpose, serve func(http.ResponseWriter, *http.Request, store.Job) error) {
		mux.Handle(method+" "+path, i.metrics.instrument(method+" "+path, func(w http.ResponseWriter, r *http.Request) {
			setBodyDeadline(w, smallBodyTime)
			job, err := i.auth.job(r, purpose)
			if err == nil && purpose == store.JobMatch {
				i.Backend.RecordContact(r.Context(), job)
			}
			if err == nil {
				limits.Authenticated(r.Context(), w, job.UID)
				err = serve(w, r, job)
			}
			i.writeError(w, r, err)
		}))
	}
	route(http.MethodPut, workerapi.PathCatalogResult, store.JobCatalog, i.putResult)
	route(http.MethodGet, workerapi.PathUploadedSBOM, store.JobCatalog, i.getUploadedSBOM)
	route(http.MethodPost, workerapi.PathDatabase, store.JobMatch, i.postDatabase)
	route(http.MethodPut, workerapi.PathVulnerabilityIDs, store.JobMatch, i.putVulnerabilityIDs)
	route(http.MethodPost, workerapi.PathAlive, store.JobMatch, i.postAlive)
	route(http.MethodPost, workerapi.PathLeases, store.JobMatch, i.postLeases)
	route(http.MethodGet, workerapi.PathLeaseInput, store.JobMatch, i.getLeaseInput)
	route(http.MethodPut, workerapi.PathLeaseReport, store.JobMatch, i.putReport)
	route(http.MethodPost, workerapi.PathLeaseFailure, store.JobMatch, i.postFailure)
	return mux, nil
}

// writeError translates an error into an HTTP status; nil needs none. The text of a refusal goes to the caller. The text of any other error
// is only logged, and the caller gets the answer that the manager cannot serve the request now.
func (i *Ingest) writeError(w http.ResponseWriter, r *http.Request, err error) {
	var refused *refusal
	switch {
	case err == nil:
	case errors.As(err, &refused):
		i.metrics.countSpoolFull(err)
		i.Log.Info("Refused a worker's request", "method", r.Method, "path", r.URL.Path, "status", refused.status, "reason", refused.text)
		if refused.retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(refused.retryAfter.Seconds())))
			w.Header().Set("Connection", "close") // the next attempt may reach another replica
		}
		http.Error(w, refused.text, refused.status)
	case isTooLarge(err):
		i.Log.Info("Refused a worker's request", "method", r.Method, "path", r.URL.Path, "status", http.StatusRequestEntityTooLarge)
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
	case errors.Is(err, store.ErrLeaseEnded):
		http.Error(w, "the lease has ended", http.StatusConflict)
	case errors.Is(err, limits.ErrBusy) && r.Context().Err() == nil:
		i.writeError(w, r, refuseTemporarily(http.StatusServiceUnavailable, spoolRetry, "too many others wait"))
	case errors.Is(err, os.ErrDeadlineExceeded):
		http.Error(w, "the body was not sent in time", http.StatusRequestTimeout)
	case r.Context().Err() != nil:
		// The worker closed the connection: nobody reads an answer.
	default:
		i.Log.Error(err, "Serving a worker", "method", r.Method, "path", r.URL.Path)
		http.Error(w, "the manager cannot do that now, see its log", http.StatusServiceUnavailable)
	}
}

// decode reads a small JSON body.
func (i *Ingest) decode(w http.ResponseWriter, r *http.Request, into any) error {
	body := http.MaxBytesReader(w, r.Body, i.Limits.JSON)
	if err := json.NewDecoder(body).Decode(into); err != nil {
		if isTooLarge(err) || errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		return refuse(http.StatusBadRequest, "the body is not the JSON that is wanted: %v", err)
	}
	clearBodyDeadline(w)
	return nil
}

// setBodyDeadline gives the caller the given time to send its body. The deadline belongs to the connection, so it uses the real time instead
// of the injected clock. Writers without a connection have no deadline.
func setBodyDeadline(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit))
}

// clearBodyDeadline removes the deadline for the body. Callers need it before any long operation: net/http continues to read in order to detect
// a closed connection, and would take an expired deadline for one.
func clearBodyDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
}

// Sweep aborts the uploads of ended Jobs, and updates the metrics of what is stored on behalf of each namespace.
func (i *Ingest) Sweep(ctx context.Context) error {
	// The uploads are listed first. A Job with an upload was recorded before, so it is missing from LiveJobs only if it has ended.
	uploading := i.spool.jobs()
	live, err := i.Store.LiveJobs(ctx)
	if err != nil {
		return err
	}
	for _, job := range live {
		delete(uploading, job.UID)
	}
	for uid := range uploading {
		i.spool.abort(uid)
	}
	stored, err := i.Store.StoredByNamespace(ctx)
	if err != nil {
		return err
	}
	i.metrics.setStored(stored)
	return nil
}

func writeJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", workerapi.ContentTypeJSON)
	return json.NewEncoder(w).Encode(value)
}

// drain reads up to 64 KiB of the rest of a body, so that the connection can be reused.
func drain(r io.Reader) { _, _ = io.CopyN(io.Discard, r, 64<<10) }
