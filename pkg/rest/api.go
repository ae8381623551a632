package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Store is the part of the operator's store that the API reads.
type Store interface {
	store.Views
	ID() string
	Messages(ctx context.Context, scanner, receiver string, before int64, limit int) ([]store.Message, error)
	OpenArtifact(ctx context.Context, platformDigest string, scope store.Scope, a store.Artifact) (io.ReadCloser, int64, error)
}

// API serves the REST API.
type API struct {
	// Reader reads Scanners, ImageScans, exceptions and the metadata of namespaces from a cache. The API does not change the objects.
	Reader client.Reader
	// TokenReviews creates TokenReviews. Anybody who reaches the API can cause one. Its rate limit should therefore be separate from that
	// of the operator's own work and that of AccessReviews: made-up tokens then keep out only callers whose token is not cached.
	TokenReviews client.Client
	// AccessReviews creates SubjectAccessReviews for callers whose token the API server has accepted.
	AccessReviews client.Client
	Store         Store
	Clock         clock.PassiveClock
	Log           logr.Logger
	Metrics       prometheus.Registerer

	authenticator authenticator
	authorizer    authorizer
	metrics       *metrics
	rules         rules
	// queries bounds concurrent queries to the store. documents bounds documents that are being made, each of which needs much memory.
	queries, documents semaphore
	// downloads bounds responses that last as long as their reader takes: SBOMs and documents.
	downloads *turns
}

// Bounds of concurrency. The store has few readers, and the controllers need them too.
const (
	maxQueries   = 2
	maxDocuments = 1 // each may need a fifth of the process's memory
	maxDownloads = 4
)

// Maximum durations of a request, including the sending of the response.
const (
	requestTime  = 30 * time.Second
	documentTime = 2 * time.Minute
	downloadTime = 15 * time.Minute
)

// PathDocument is the path of the OpenAPI document.
const PathDocument = "/openapi.yaml"

// Handler returns the API's handler. Serve it over HTTPS only, since requests carry tokens.
func (a *API) Handler() (_ http.Handler, err error) {
	if a.rules, err = readRules(restv1.Document); err != nil {
		return nil, err
	}
	if a.metrics, err = newMetrics(a.Metrics); err != nil {
		return nil, err
	}
	a.authenticator = authenticator{
		reviews: a.TokenReviews, known: cache.NewLRUExpireCacheWithClock(maxTokens, a.Clock),
		refused: cache.NewLRUExpireCacheWithClock(maxRefused, a.Clock), asking: make(semaphore, maxReviews),
	}
	a.authorizer = authorizer{
		reviews: a.AccessReviews, known: cache.NewLRUExpireCacheWithClock(maxDecisions, a.Clock), asking: make(semaphore, maxReviews),
	}
	a.queries, a.documents, a.downloads = make(semaphore, maxQueries), make(semaphore, maxDocuments), newTurns(maxDownloads)

	strict := restv1.NewStrictHandlerWithOptions(operations{a}, nil, restv1.StrictHTTPServerOptions{
		RequestErrorHandlerFunc: a.answer, ResponseErrorHandlerFunc: a.answer,
	})
	mux := http.NewServeMux()
	restv1.HandlerWithOptions(strict, restv1.StdHTTPServerOptions{
		BaseRouter: router{ServeMux: mux, api: a}, ErrorHandlerFunc: a.answerUnbound,
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.answer(w, r, refuse(restv1.ReasonNotFound, "there is nothing at this path; %s says what there is", PathDocument))
	})
	return a.admit(mux), nil
}

// caller is the value that admit adds to a request's context.
type caller struct {
	user authenticationv1.UserInfo
	// question identifies what is requested, whichever page of it (see questionOf).
	question string
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// admit passes on GET requests without a body from callers whose token the API server accepts. It serves the OpenAPI document to everybody,
// and refuses all other requests.
func (a *API) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// All handlers write through the recorder: answer must know whether the response has begun.
		answer := &recorder{ResponseWriter: w, operation: "none"}
		began := a.Clock.Now()
		// An aborted response, which is a panic, is counted as well.
		defer func() { a.metrics.served(answer.operation, answer.status, a.Clock.Since(began)) }()
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		// Findings are for this caller alone, and must be revalidated each time. If-None-Match makes that cheap.
		header.Set("Cache-Control", "private, no-cache")
		if r.Method != http.MethodGet {
			a.answer(answer, r, refuse(restv1.ReasonMethodNotAllowed, "the API is read-only: only GET is allowed"))
			return
		}
		if r.ContentLength != 0 {
			header.Set("Connection", "close")
			// The server must not wait for the rest of the body.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
			a.answer(answer, r, invalid("body", "a request has none"))
			return
		}
		if r.URL.Path == PathDocument {
			header.Set("Content-Type", "application/yaml")
			_, _ = answer.Write(restv1.Document)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), downloadTime)
		defer cancel()
		c := &caller{}
		r = r.WithContext(context.WithValue(ctx, callerKey{}, c))
		var err error
		if c.user, err = a.authenticate(r); err != nil {
			a.answer(answer, r, err)
			return
		}
		next.ServeHTTP(answer, r)
	})
}

// authenticate returns the user of a request. It waits for the API server for at most requestTime.
func (a *API) authenticate(r *http.Request) (authenticationv1.UserInfo, error) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	return a.authenticator.user(r.WithContext(ctx))
}

// router checks the parameters of each route before the generated code reads them.
type router struct {
	*http.ServeMux
	api *API
}

// HandleFunc implements restv1.ServeMux.
func (m router) HandleFunc(pattern string, handle func(http.ResponseWriter, *http.Request)) {
	route, known := m.api.rules[pattern]
	if !known {
		// Unreachable, since routes and rules come from the same document. A route without rules would leave its parameters unchecked.
		panic("the OpenAPI document does not have " + pattern)
	}
	m.ServeMux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if answer, ok := w.(*recorder); ok {
			answer.operation = route.operation
		}
		if err := route.check(r); err != nil {
			m.api.answer(w, r, err)
			return
		}
		callerOf(r.Context()).question = questionOf(r)
		limit := timeOf(route.operation)
		// The connection's deadline is in real time, whatever clock the API uses. Writers without a connection have no deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		handle(w, r.WithContext(ctx))
	})
}

// timeOf returns the maximum duration of an operation.
func timeOf(operation string) time.Duration {
	switch operation {
	case "getSBOM":
		return downloadTime
	case "getCycloneDX", "getOpenVEX":
		return documentTime
	}
	return requestTime
}

// answerUnbound answers a request that the generated code cannot parse. The rules should have refused it before.
func (a *API) answerUnbound(w http.ResponseWriter, r *http.Request, err error) {
	var unread *restv1.InvalidParamFormatError
	if errors.As(err, &unread) {
		a.answer(w, r, invalid(unread.ParamName, "it cannot be read"))
		return
	}
	a.answer(w, r, invalid("query", "%v", err))
}

// answer sends an error as the response, and logs one line unless the request was canceled. The caller gets the text of a refusal. Of any
// other error, the caller learns only that the operator cannot answer. If the response has already begun, answer panics with
// http.ErrAbortHandler.
func (a *API) answer(w http.ResponseWriter, r *http.Request, err error) {
	user := ""
	if c := callerOf(r.Context()); c != nil {
		user = c.user.Username
	}
	log := a.Log.WithValues("method", abbreviate(r.Method), "path", abbreviatePath(r.URL.Path), "user", user)
	if answer, ok := w.(*recorder); ok && answer.status != 0 {
		// The response has begun, and must not look complete.
		log.Info("Broke off an answer", "reason", err.Error())
		panic(http.ErrAbortHandler)
	}
	var refused *problem
	switch {
	case errors.As(err, &refused):
	case errors.Is(r.Context().Err(), context.Canceled):
		// The caller is gone, or the operator is shutting down.
		busy("the operator is about to end; come back later").write(w)
		return
	case errors.Is(err, context.DeadlineExceeded): // the request's own deadline, which the store and the API server observe
		refused = busy("it took too long; ask for less, or come back later")
	default:
		log.Error(err, "Serving a request")
		refused = busy("the operator cannot answer now, its log says why; come back later")
	}
	log.Info("Refused a request", "status", refused.Status, "reason", refused.Reason, "field", refused.Field)
	refused.write(w)
}

// abbreviatePath cuts a path for the log.
func abbreviatePath(path string) string {
	const most = 512
	if len(path) > most {
		return path[:most] + "…"
	}
	return path
}

// recorder records the status of a response.
type recorder struct {
	http.ResponseWriter
	operation string
	status    int // 0 until the response begins
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// query runs a query to the store once a slot is free.
func (a *API) query(ctx context.Context, work func() error) error {
	if err := a.queries.acquire(ctx); err != nil {
		return err
	}
	defer a.queries.release()
	return work()
}
