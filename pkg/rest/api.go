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

// Store is what the API needs of the operator's store.
type Store interface {
	store.Views
	ID() string
	Messages(ctx context.Context, scanner, receiver string, before int64, limit int) ([]store.Message, error)
	OpenArtifact(ctx context.Context, platformDigest string, scope store.Scope, a store.Artifact) (io.ReadCloser, int64, error)
}

// API serves the REST API.
type API struct {
	// Reader has Scanners, ImageScans, exceptions and the metadata of namespaces, from a cache. What it gives is not changed.
	Reader client.Reader
	// TokenReviews creates TokenReviews. Anybody who reaches the API can have one made, so its rate should be limited apart
	// from that of the operator's own work and of AccessReviews: made-up tokens then keep out only callers who are new.
	TokenReviews client.Client
	// AccessReviews creates SubjectAccessReviews, of callers whose token the API server accepted.
	AccessReviews client.Client
	Store         Store
	Clock         clock.PassiveClock
	Log           logr.Logger
	Metrics       prometheus.Registerer

	authenticator authenticator
	authorizer    authorizer
	metrics       *metrics
	rules         rules
	// queries are those to the store, and documents those that are being made, each of which needs much memory.
	queries, documents semaphore
	// downloads last as long as their reader takes: SBOMs, and documents that were made.
	downloads *turns
}

// How many do something at once. The store has few readers, and the controllers need them too.
const (
	maxQueries   = 2
	maxDocuments = 1 // each may take a fifth of the process's memory
	maxDownloads = 4
)

// How long a request may take, sending the answer included.
const (
	requestTime  = 30 * time.Second
	documentTime = 2 * time.Minute
	downloadTime = 15 * time.Minute
)

// PathDocument is where the OpenAPI document is.
const PathDocument = "/openapi.yaml"

// Handler returns the API's handler. It is for HTTPS only: requests have tokens.
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

// caller is what a request's context has.
type caller struct {
	user authenticationv1.UserInfo
	// question is what is asked for, whichever page of it.
	question string
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// admit lets requests pass that only read, by callers that the API server knows.
func (a *API) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Everything below writes through the recorder, so that an answer that has begun is known as such.
		answer := &recorder{ResponseWriter: w, operation: "none"}
		began := a.Clock.Now()
		// Also when the answer is broken off, which is by a panic.
		defer func() { a.metrics.served(answer.operation, answer.status, a.Clock.Since(began)) }()
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		// What was found is for the caller alone, and asked for again each time (If-None-Match makes that cheap).
		header.Set("Cache-Control", "private, no-cache")
		if r.Method != http.MethodGet {
			a.answer(answer, r, refuse(restv1.ReasonMethodNotAllowed, "the API is read-only: only GET is allowed"))
			return
		}
		if r.ContentLength != 0 {
			header.Set("Connection", "close")
			// What is left of the body is not waited for.
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

// authenticate waits for the API server no longer than any request does.
func (a *API) authenticate(r *http.Request) (authenticationv1.UserInfo, error) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	return a.authenticator.user(r.WithContext(ctx))
}

// router checks parameters before the generated code reads them.
type router struct {
	*http.ServeMux
	api *API
}

// HandleFunc implements restv1.ServeMux.
func (m router) HandleFunc(pattern string, handle func(http.ResponseWriter, *http.Request)) {
	route, known := m.api.rules[pattern]
	if !known {
		// Not reached: routes and rules come from the same document. Parameters would go unchecked.
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
		// It is the connection's own time, whatever the clock of the rest is. Writers without a connection have no deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		handle(w, r.WithContext(ctx))
	})
}

// timeOf is how long an operation may take.
func timeOf(operation string) time.Duration {
	switch operation {
	case "getSBOM":
		return downloadTime
	case "getCycloneDX", "getOpenVEX":
		return documentTime
	}
	return requestTime
}

// answerUnbound answers what the generated code could not take apart, which the rules should have refused before.
func (a *API) answerUnbound(w http.ResponseWriter, r *http.Request, err error) {
	var unread *restv1.InvalidParamFormatError
	if errors.As(err, &unread) {
		a.answer(w, r, invalid(unread.ParamName, "it cannot be read"))
		return
	}
	a.answer(w, r, invalid("query", "%v", err))
}

// answer turns an error into an answer, with one line in the log. Callers get the text of a refusal, and of anything else
// only that the operator is in trouble.
func (a *API) answer(w http.ResponseWriter, r *http.Request, err error) {
	user := ""
	if c := callerOf(r.Context()); c != nil {
		user = c.user.Username
	}
	log := a.Log.WithValues("method", abbreviate(r.Method), "path", abbreviatePath(r.URL.Path), "user", user)
	if answer, ok := w.(*recorder); ok && answer.status != 0 {
		// The answer has begun. It must not look as if it were whole.
		log.Info("Broke off an answer", "reason", err.Error())
		panic(http.ErrAbortHandler)
	}
	var refused *problem
	switch {
	case errors.As(err, &refused):
	case errors.Is(r.Context().Err(), context.Canceled):
		// The caller has gone, or the operator is about to end.
		busy("the operator is about to end; come back later").write(w)
		return
	case errors.Is(err, context.DeadlineExceeded): // the request's own time, which the store and the API server heed
		refused = busy("it took too long; ask for less, or come back later")
	default:
		log.Error(err, "Serving a request")
		refused = busy("the operator cannot answer now, its log says why; come back later")
	}
	log.Info("Refused a request", "status", refused.Status, "reason", refused.Reason, "field", refused.Field)
	refused.write(w)
}

// abbreviatePath keeps what is needed to know what was asked for.
func abbreviatePath(path string) string {
	const most = 512
	if len(path) > most {
		return path[:most] + "…"
	}
	return path
}

// recorder notes what was answered.
type recorder struct {
	http.ResponseWriter
	operation string
	status    int // 0 until the answer begins
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

// query asks the store, when it is this request's turn.
func (a *API) query(ctx context.Context, work func() error) error {
	if err := a.queries.acquire(ctx); err != nil {
		return err
	}
	defer a.queries.release()
	return work()
}
