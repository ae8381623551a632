// Package clairwebhook receives Clair's webhooks, so that the operator asks Clair for newer data at once instead of after clair.pollInterval.
//
// A webhook only contains the ID of a notification. The Server reads the notification from the Clair instance that the Scanner names, if
// the operator's configuration lists that instance; it never uses an address from the webhook. It annotates the Scanner's ImageScans of the
// images in the notification, and deletes the notification in Clair. The annotation, on whichever ImageScan, makes the operator check for
// newer data. It does not affect which reports are read, or in which order.
//
// The package guarantees:
//   - A webhook is answered with 200 only when all of that is done. Clair retries otherwise.
//   - Only the headers of a request are read before it is authenticated with the Scanner's secret.
//   - Clients cannot find out which Scanners exist, as long as the Scanners' Secrets can be read.
//   - No secret reaches a log or an answer.
//   - The cost of one namespace's webhooks, including forged ones, is bounded and leaves the other namespaces their share.
//
// The Server keeps state only in memory: webhooks merely speed up what happens without them.
package clairwebhook

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

// Path is the path of the webhooks. notifier.webhook.target in Clair's configuration ends with it.
const Path = "/clair/{namespace}/{scanner}"

// webhookTimeout is how long a webhook waits for its result. Clair has no timeout of its own, and sends no other webhook in the meantime.
const webhookTimeout = 25 * time.Second

// Errors that refuse a webhook. Any other error is temporary, and Clair's retry may succeed.
var (
	errUnauthorized = errors.New("the Scanner does not exist, has another engine, or has another secret")
	errNotAllowed   = errors.New("clair.instances in the operator's configuration does not list spec.backend.clair.url of the Scanner")
	errInvalid      = errors.New("not a webhook of Clair")
	errBusy         = errors.New("too many webhooks for this namespace, or for all; retry later")
	errUnfinished   = errors.New("it takes longer; retry later")
)

// Config holds the dependencies of a Server.
type Config struct {
	// Cluster reads Scanners, and lists and patches ImageScans. It must not use a cache.
	Cluster client.Client
	// Secrets are read by name. Each namespace has to grant access to its own.
	Secrets coreclient.SecretsGetter
	// Instances are the Clair instances that the Server may connect to, by canonical URL.
	Instances map[string]config.ClairInstance
	// GrantCommands returns the commands that let the notifier read a Secret.
	GrantCommands func(namespace, secret string) string
	Metrics       *Metrics
	Log           *slog.Logger
	Clock         clock.PassiveClock
}

// Server receives webhooks. It is safe for concurrent use.
type Server struct {
	Config
	network *api.Network
	// admitted bounds concurrent requests, inProgress the notifications that are being handled.
	admitted, inProgress limits.Quota
	// lookups rate limits reads from the API server, notifications those from Clair instances.
	lookups, notifications *limits.Rates
	// knownNamespaces are the namespaces known to have a Scanner for Clair. lookupFlights shares one lookup of a Scanner among concurrent requests.
	knownNamespaces *cache.LRUExpireCache
	lookupFlights   singleflight.Group
	// verdicts are cached by the hash of the shown credentials. Secrets are not kept.
	verdicts *cache.LRUExpireCache
	// handled are the notifications whose ImageScans are marked. The value is false until the notification is deleted in Clair. flights
	// joins webhooks about the same notification.
	handled *cache.LRUExpireCache
	flights singleflight.Group
	// readSlots bounds how many notifications are read at a time. indexes are cached by the Scanner's UID.
	readSlots *limits.Pool
	indexes   *cache.LRUExpireCache
	// loggedLines are the log lines of the last minute, which are not repeated.
	loggedLines *cache.LRUExpireCache
}

// New returns a Server.
func New(c Config) *Server {
	lru := func(size int) *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(size, c.Clock) }
	return &Server{
		Config: c, network: api.NewNetwork(),
		lookups: limits.NewRates(lookupsPerSecond, lookupBurst, c.Clock), notifications: limits.NewRates(notificationsPerSecond, notificationBurst, c.Clock),
		knownNamespaces: lru(maxNamespaces), verdicts: lru(maxVerdicts), handled: lru(maxHandled), indexes: lru(maxIndexes), loggedLines: lru(maxLoggedLines),
		readSlots: limits.NewStrictPool(maxReads),
	}
}

// Handler returns the HTTP handler for the webhooks.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, s.webhook)
	return mux
}

// webhook answers with 200 when nothing is left to do. Clair treats any other status, including other 2xx, as a failure.
func (s *Server) webhook(w http.ResponseWriter, r *http.Request) {
	err := s.process(r)
	outcome := outcomeOf(err)
	s.Metrics.Webhook(outcome)
	if err == nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	if outcome.status == http.StatusTooManyRequests || outcome.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1") // what was refused for a namespace's rate or work is over within about a second
	}
	w.Header().Set("Connection", "close") // otherwise net/http would read the rest of the body
	http.Error(w, outcome.text, outcome.status)
}

// process admits, authenticates, parses and handles a webhook.
func (s *Server) process(r *http.Request) error {
	scanner := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("scanner")}
	leave, err := take(&s.admitted, scanner.Namespace, maxRequestsPerNamespace, maxRequests)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), webhookTimeout)
	defer cancel()
	uid, err := s.authenticate(ctx, scanner, r.Header)
	if err != nil {
		return err
	}
	notification, err := api.ParseWebhook(r.Body)
	if err != nil {
		s.logOncePerMinute(slog.LevelWarn, scanner, "the request is not a webhook of Clair", "error", err)
		return errInvalid
	}
	return s.handle(ctx, task{scanner: scanner, uid: uid, id: notification})
}

// logOncePerMinute logs a message about a Scanner, at most once a minute.
func (s *Server) logOncePerMinute(level slog.Level, scanner types.NamespacedName, what string, args ...any) {
	key := scanner.String() + " " + what
	if _, before := s.loggedLines.Get(key); before {
		return
	}
	s.loggedLines.Add(key, true, time.Minute)
	s.Log.Log(context.Background(), level, what, append([]any{"namespace", scanner.Namespace, "scanner", scanner.Name}, args...)...)
}
