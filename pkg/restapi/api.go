package restapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/events"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Store is the part of the operator's store that the API uses.
type Store interface {
	Locate(ctx context.Context, scanner, namespace string, key image.Key) (store.Location, error)
	FindingsPage(ctx context.Context, s store.Subject, f store.FindingFilter, from store.FindingCursor, limit int) (store.FindingPage, error)
	RunsPage(ctx context.Context, q store.RunsQuery, after store.RunCursor, limit int) (store.RunsPage, error)
	VulnerabilitiesPage(ctx context.Context, seen store.Sight, f store.VulnerabilityFilter, after store.VulnerabilityCursor, limit int) (store.VulnerabilitiesPage, error)
	Vulnerability(ctx context.Context, seen store.Sight, id string) (store.VulnerabilityDetails, error)
	FindsVulnerability(ctx context.Context, engine, id string) (finds, listed bool, err error)
	HasResultsOfEarlierData(ctx context.Context, seen store.Sight) (bool, error)
	ActionsPage(ctx context.Context, asked store.ActionsQuery, after store.ActionCursor, limit int) (store.ActionsPage, error)
	WorkloadsPage(ctx context.Context, asked store.WorkloadsQuery, after store.WorkloadCursor, limit int) (store.WorkloadsPage, error)
	ImagesRunBy(ctx context.Context, seen store.Sight, kind, name string) ([]store.ScannerImage, error)
	Workload(ctx context.Context, asked store.WorkloadQuery, limit int) (store.WorkloadDetails, error)
	History(ctx context.Context, seen store.Sight, days int) ([]store.DayOfHistory, error)
	NamespaceChanges(ctx context.Context, asked store.ChangesQuery, limit int) (store.NamespaceChanges, error)
	PreviewSuppression(ctx context.Context, asked store.SuppressionQuery, limit int) (store.SuppressionPreview, error)
	NamespaceTotals(ctx context.Context, scanner string, exceptions exception.Set) (total store.Totals, byNamespace map[string]store.Totals, err error)
	TotalsIn(ctx context.Context, scanner string, namespaces []string, exceptions exception.Set) (store.Totals, error)
	ID() string
	Status(ctx context.Context) (store.Status, error)
	Messages(ctx context.Context, scanner, receiver string, before int64, limit int) ([]store.Message, error)
	OpenArtifact(ctx context.Context, platformDigest string, scope store.Scope, a store.Artifact) (io.ReadCloser, int64, error)
	InSnapshot(ctx context.Context, work func(context.Context) error) error
	RequestRescan(ctx context.Context, img store.ScannerImage) error
	SaveSessionCode(ctx context.Context, c store.SessionCode, mostOfOwner, most int) error
	TakeSessionCode(ctx context.Context, hash string) (sealed string, err error)
	EndSession(ctx context.Context, e store.EndedSession, maxOfTenant, maxOfAll int) error
	EndedSessions(ctx context.Context) ([]string, error)
	AcquireSlot(ctx context.Context, from *limits.Pool, tenant, namespace string) (release func(), err error)
	externalReports
	uploadedSBOMs
}

// uploadedSBOMs is the part of the operator's store for uploaded SBOMs.
type uploadedSBOMs interface {
	SaveUploadedSBOM(ctx context.Context, u store.UploadedSBOM, content io.ReadSeeker, budget int64) (store.SavedUpload, error)
	DeleteUploadedSBOMs(ctx context.Context, namespace, digest string) error
}

// externalReports is the part of the operator's store for the reports of other tools.
type externalReports interface {
	Platforms(ctx context.Context, namespace, digest string) ([]string, error)
	ExternalReport(ctx context.Context, k store.ExternalKey) (store.ExternalState, error)
	ExternalReports(ctx context.Context, namespace, digest string) ([]store.ExternalState, error)
	OpenExternalReport(ctx context.Context, k store.ExternalKey) (io.ReadCloser, int64, error)
	SaveExternalReport(ctx context.Context, r store.ExternalReport, check func(before *store.ExternalState) error) (store.SavedExternal, error)
	DeleteExternalReport(ctx context.Context, k store.ExternalKey, check func(before *store.ExternalState) error) error
}

// Inventory is the part of the operator's inventory that the API reads.
type Inventory interface {
	Namespaces(ctx context.Context, scanner v1alpha1.GenericScanner) (inventory.Namespaces, error)
	CountUnscanned(ctx context.Context, scanner v1alpha1.GenericScanner, namespaces []string) (pending, failed int, err error)
	Watches(namespace string) bool
}

// API serves the REST API.
type API struct {
	// ClusterName is the name of the cluster; empty if it has none.
	ClusterName string
	// WebUI is where people reach the web UI (ui.url); empty if it is not known.
	WebUI string
	// Reader reads Scanners, ClusterScanners, ImageScans, exceptions and the metadata of namespaces from a cache. The API does not change the objects.
	Reader client.Reader
	// Statements reads the statements about images that count as exceptions; nil for none.
	Statements active.Statements
	// ImageScans deletes ImageScans, so that their images are scanned again.
	ImageScans client.Writer
	// TokenReviews creates TokenReviews. Anybody who reaches the API can cause one, so its client has a rate limit of its own (kubeauth.ClientConfig).
	TokenReviews client.Client
	// AccessReviews creates SubjectAccessReviews for callers whose token the API server has accepted.
	AccessReviews client.Client
	Store         Store
	// EngineGaps returns what each engine in use covers in no image, by the name that the store has it by.
	EngineGaps func(context.Context) (map[string][]string, error)
	// Inventory knows what ClusterScanners cover.
	Inventory Inventory
	// SessionKeys returns keys of 32 bytes for the tokens in the cookies of sessions. The first one seals them, and each one opens them. Each replica
	// must have the keys that the others seal with. The sessions of a key end when it is there no more.
	SessionKeys func() ([][]byte, error)
	// BasePath is the path of the web UI, which its cookies are for: "" for "/", or one that begins with a slash and does not end with one.
	BasePath string
	// RenderSlack renders a message of the store for Slack.
	RenderSlack func(message []byte) (restv1.SlackMessage, error)
	// Replicas returns the manager's replicas, ordered by name.
	Replicas func(ctx context.Context) ([]restv1.Replica, error)
	// Wake reports that what is known of an image has changed, given by the digest that nodes report.
	Wake func(ctx context.Context, digest string)
	// Events serves the streams of events. Whoever serves the API runs a Watcher for its log.
	Events *events.Server
	// ReportBudget is how many bytes of reports and SBOMs may be stored for a namespace; 0 for no limit.
	ReportBudget int64
	Clock        clock.PassiveClock
	Log          logr.Logger
	Metrics      prometheus.Registerer

	tokens      *kubeauth.Tokens[authenticationv1.UserInfo]
	sessions    sessions
	codes       *sessionCodes
	crossOrigin *http.CrossOriginProtection
	users       limits.Quota
	authorizer  authorizer
	metrics     *metrics
	rules       rules
	// queries bounds concurrent queries to the store. documents bounds documents that are being made, each of which needs much memory.
	queries, documents *limits.Pool
	// downloads bounds responses that last as long as their reader takes: SBOMs and documents. exports bounds lists, each of which also keeps a
	// connection to the store and its snapshot.
	downloads, exports *downloadSlots
	// writes bounds requests that write. saving bounds the reports and manifests among them that are in memory.
	writes *writeSlots
	saving *limits.Pool
}

// Bounds of concurrency. The store has few readers, and the controllers need them too.
const (
	maxQueries   = 4
	maxDocuments = 1 // each may need a fifth of the process's memory
	maxDownloads = 4
	maxExports   = 2
	// maxCodeLookups bounds requests without a token: a made-up code must not keep the store busy.
	maxCodeLookups = 2
)

const (
	// maxRequestsPerUser is the maximum number of concurrent requests of one user. A page of the web UI sends at most four.
	maxRequestsPerUser   = 32
	maxRequestsPerTenant = 4 * maxRequestsPerUser
	// tokenTTL is how long a revoked token is accepted at most.
	tokenTTL = 30 * time.Second
)

// Maximum durations of a request, including the sending of the response.
const (
	requestTimeout  = 30 * time.Second
	documentTimeout = 2 * time.Minute
	exportTimeout   = 5 * time.Minute // the store grows by what is written while a snapshot is read
	downloadTimeout = 15 * time.Minute
	streamTimeout   = time.Hour // a stream of events ends before
)

// maxLoggedPath bounds a path in the log, in bytes.
const maxLoggedPath = 512

// PathDocument is the path of the OpenAPI document.
const PathDocument = "/openapi.yaml"

// Handler returns the API's handler. Serve it over HTTPS only, since requests carry tokens.
func (a *API) Handler() (_ http.Handler, err error) {
	if a.rules, err = parseRules(restv1.Document); err != nil {
		return nil, err
	}
	if a.metrics, err = newMetrics(a.Metrics, a.Events.Open); err != nil {
		return nil, err
	}
	a.tokens = kubeauth.NewUsers(kubeauth.TokensBy(a.TokenReviews), tokenTTL, a.Clock)
	a.authorizer = authorizer{kubeauth.NewPermissions(kubeauth.AccessBy(a.AccessReviews), a.Clock)}
	a.sessions = sessions{keys: a.SessionKeys, path: cmp.Or(a.BasePath, "/"), clock: a.Clock, ended: endedSessions{store: a.Store, clock: a.Clock}}
	a.codes = &sessionCodes{store: a.Store, clock: a.Clock, lookups: limits.NewPool(maxCodeLookups)}
	a.crossOrigin = http.NewCrossOriginProtection()
	a.queries, a.documents = limits.NewPool(maxQueries), limits.NewPool(maxDocuments)
	a.downloads, a.exports = newDownloadSlots(maxDownloads, fairShareTime), newDownloadSlots(maxExports, exportShareTime)
	a.writes, a.saving = newWriteSlots(a.Clock), limits.NewPool(maxSaving)

	strict := restv1.NewStrictHandlerWithOptions(operations{a}, nil, restv1.StrictHTTPServerOptions{
		RequestErrorHandlerFunc: a.writeBodyError, ResponseErrorHandlerFunc: a.writeError,
	})
	mux := http.NewServeMux()
	restv1.HandlerWithOptions(handlers{strict, a}, restv1.StdHTTPServerOptions{
		BaseRouter: router{ServeMux: mux, api: a}, ErrorHandlerFunc: a.writeBindError,
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { a.writeError(w, r, noOperation(mux, r)) })
	return a.admit(mux), nil
}

// caller is the value that admit adds to a request's context.
type caller struct {
	// user is empty for the operations that need no token.
	user authenticationv1.UserInfo
	// token is what the caller sent, and cookie whether it came in a session's cookie, whose content is sealed. A token must never be logged.
	token, sealed string
	cookie        bool
	// address is where the request comes from.
	address string
	// queryHash identifies what is requested, whichever page of it (see queryHashOf).
	queryHash string
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// methods are those that an operation may have.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete}

// noOperation says which methods the path of a request has, or that there is no such path.
func noOperation(mux *http.ServeMux, r *http.Request) error {
	var allowed []string
	for _, method := range methods {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if allowed == nil {
		return newProblem(restv1.ReasonNotFound, "there is nothing at this path; %s lists the paths", PathDocument)
	}
	return methodNotAllowed(allowed)
}

// admit passes on requests from callers whose token the API server accepts, and requests that sign in or out. It serves the OpenAPI document to
// everybody, and refuses all other requests.
func (a *API) admit(next *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// All handlers write through the recorder: answer must know whether the response has begun.
		recorder := &statusRecorder{ResponseWriter: w, operation: "none"}
		began := a.Clock.Now()
		// An aborted response, which is a panic, is counted as well.
		defer func() { a.metrics.observe(recorder.operation, recorder.status, a.Clock.Since(began)) }()
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		// Findings are for this caller alone, and must be revalidated each time. If-None-Match makes that cheap.
		header.Set("Cache-Control", "private, no-cache")
		if !slices.Contains(methods, r.Method) {
			a.writeError(recorder, r, noOperation(next, r))
			return
		}
		if err := a.checkOrigin(recorder, r); err != nil {
			a.writeError(recorder, r, err)
			return
		}
		if r.URL.Path == PathDocument && r.Method == http.MethodGet {
			header.Set("Content-Type", "application/yaml")
			_, _ = recorder.Write(restv1.Document)
			return
		}
		limit, isStream := downloadTimeout, r.URL.Path == PathEvents
		if isStream {
			limit = streamTimeout
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		c := &caller{address: limits.AddressOf(r), sealed: a.sessions.sealedIn(r)}
		r = r.WithContext(context.WithValue(ctx, callerKey{}, c))
		if !signs(r) {
			if err := a.authenticate(r, c); err != nil {
				a.writeError(recorder, r, err)
				return
			}
			release, err := a.takeRequest(c.user.Username)
			if err != nil {
				a.writeError(recorder, r, err)
				return
			}
			if isStream {
				release() // streams have slots of their own
			} else {
				defer release()
			}
			limits.Authenticated(ctx, w, kubeauth.TenantOf(c.user.Username))
		}
		next.ServeHTTP(recorder, r)
	})
}

// checkOrigin refuses requests by their origin and their body, before anything else is known about them. It bounds the body of the
// request that signs in. A report may be sent with PUT, whose operation bounds it.
func (a *API) checkOrigin(w http.ResponseWriter, r *http.Request) error {
	if a.crossOrigin.Check(r) != nil {
		return foreignOrigin()
	}
	switch {
	case signs(r) && r.Method == http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, maxSignInBytes)
	case r.ContentLength != 0 && r.Method != http.MethodPut:
		return invalidParameter("body", "a request has none")
	}
	return nil
}

func foreignOrigin() *problem {
	return newProblem(restv1.ReasonForbidden, "a page of another origin sent the request; use the web UI at the address that its administrator has published")
}

// signs reports whether a request signs in or out, for which it needs no token.
func signs(r *http.Request) bool {
	return r.URL.Path == PathSession && (r.Method == http.MethodPost || r.Method == http.MethodDelete)
}

// authenticate finds out the user of a request by its token: that in the header, or that in the cookies of a session.
func (a *API) authenticate(r *http.Request, c *caller) (err error) {
	if len(r.Header.Values("Authorization")) == 0 {
		if c.token, c.cookie, err = a.sessions.token(r); err != nil {
			return err
		}
	}
	if !c.cookie {
		var found bool
		if c.token, found = kubeauth.BearerToken(r); !found {
			return newProblem(restv1.ReasonUnauthorized, "a token is needed: send one header, Authorization: Bearer <token> (kubectl create token gives one)")
		}
	}
	c.user, err = a.identify(r.Context(), c)
	return err
}

// identify returns the user of a caller's token. The token's audiences must be those of the API server, as with "kubectl create token".
func (a *API) identify(ctx context.Context, c *caller) (authenticationv1.UserInfo, error) {
	user, err := a.tokens.Identify(ctx, c.address, c.token)
	if errors.Is(err, kubeauth.ErrRefused) {
		err = newProblem(restv1.ReasonUnauthorized,
			"the API server does not accept the token: it has expired, or is not for this cluster; get another one (kubectl create token)")
	}
	return user, err
}

// takeRequest counts a request of a user, over however many connections it comes. The caller must call release.
func (a *API) takeRequest(user string) (release func(), err error) {
	tenant := kubeauth.TenantOf(user)
	release, exceeded := a.users.Take(limits.Bound{Owner: "user " + user, Max: maxRequestsPerUser}, limits.Bound{Owner: tenant, Max: maxRequestsPerTenant})
	switch exceeded {
	case 0:
		return nil, unavailable("your user has too many requests at once; retry later")
	case 1:
		return nil, unavailable(tenant + " have too many requests at once; retry later")
	}
	return release, nil
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
		if answer, ok := w.(*statusRecorder); ok {
			answer.operation = route.operation
		}
		if err := route.check(r); err != nil {
			m.api.writeError(w, r, err)
			return
		}
		callerOf(r.Context()).queryHash = queryHashOf(r)
		limit := operationTimeout(route.operation)
		// The connection's deadline is in real time, whatever clock the API uses. Writers without a connection have no deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		handle(w, r.WithContext(ctx))
	})
}

// operationTimeout returns the maximum duration of an operation.
func operationTimeout(operation string) time.Duration {
	switch operation {
	case operationEvents:
		return streamTimeout
	case "getSBOM":
		return downloadTimeout
	case "getExternalReport":
		return downloadTimeout
	case "getCycloneDX", "getOpenVEX", "getSARIF", "putExternalReport", "putUploadedSBOM":
		return documentTimeout
	}
	if strings.HasPrefix(operation, "export") {
		return exportTimeout
	}
	return requestTimeout
}

// writeBindError answers a request that the generated code cannot parse. The rules should have refused it before.
func (a *API) writeBindError(w http.ResponseWriter, r *http.Request, err error) {
	var unread *restv1.InvalidParamFormatError
	if errors.As(err, &unread) {
		a.writeError(w, r, invalidParameter(unread.ParamName, "it cannot be read"))
		return
	}
	var missing *restv1.RequiredParamError
	if errors.As(err, &missing) {
		a.writeError(w, r, invalidParameter(missing.ParamName, "it is needed"))
		return
	}
	a.writeError(w, r, invalidParameter("query", "%v", err))
}

// writeBodyError answers a request whose body the generated code cannot parse. The error itself may repeat parts of a token.
func (a *API) writeBodyError(w http.ResponseWriter, r *http.Request, err error) {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		a.writeError(w, r, invalidParameter("body", "it is longer than %d bytes", tooLarge.Limit))
		return
	}
	a.writeError(w, r, invalidParameter("body", "it is not the JSON that %s describes", PathDocument))
}

// writeError sends an error as the response, and logs one line unless the request was canceled. The caller gets the text of a refusal. Of any
// other error, the caller learns only that the operator cannot answer. If the response has already begun, answer panics with
// http.ErrAbortHandler.
func (a *API) writeError(w http.ResponseWriter, r *http.Request, err error) {
	user := ""
	if c := callerOf(r.Context()); c != nil {
		user = c.user.Username
	}
	log := a.Log.WithValues("method", truncate(r.Method), "path", text.Truncate(r.URL.Path, maxLoggedPath), "user", user)
	if answer, ok := w.(*statusRecorder); ok && answer.status != 0 {
		// The response has begun, and must not look complete.
		log.Info("Cut off an answer", "reason", err.Error())
		panic(http.ErrAbortHandler)
	}
	var refused *problem
	switch {
	case errors.As(err, &refused):
	case errors.Is(r.Context().Err(), context.Canceled):
		// The caller is gone, or the operator is shutting down.
		unavailable("the operator is shutting down; retry later").write(w)
		return
	case errors.Is(err, limits.ErrBusy):
		refused = unavailable("there are too many requests at once; retry later")
	case errors.Is(err, context.DeadlineExceeded): // the request's own deadline, which the store and the API server observe
		refused = unavailable("it took too long; request less, or retry later")
	default:
		log.Error(err, "Serving a request")
		refused = unavailable("the operator cannot answer now; retry later, its log has the reason")
	}
	log.Info("Refused a request", "status", refused.Status, "reason", refused.Reason, "field", refused.Field)
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
		// The server must not wait for the rest of the body.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	}
	refused.write(w)
}

// statusRecorder records the status of a response.
type statusRecorder struct {
	http.ResponseWriter
	operation string
	status    int // 0 until the response begins
}

// WriteHeader implements http.ResponseWriter.
func (r *statusRecorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *statusRecorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// query runs a query to the store in a slot. It may run the query again, since a tenant's queries beyond its share end when others wait. An export has a
// slot and a connection already: it must not wait for those who wait for it.
func (a *API) query(ctx context.Context, work func(context.Context) error) error {
	if isExport(ctx) {
		return work(ctx)
	}
	return a.queries.Do(ctx, tenantOf(ctx), work)
}

// tenantOf returns for whom the work of a request counts.
func tenantOf(ctx context.Context) string { return kubeauth.TenantOf(callerOf(ctx).user.Username) }

// acquireBriefly waits for at most slotWait, since its caller occupies other slots meanwhile.
func acquireBriefly(ctx context.Context, from *limits.Pool, tenant string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	return from.Acquire(ctx, tenant)
}
