// Package clairhook takes Clair's webhooks: the operator asks Clair for newer data at once, and not when the interval is over
// (clair.pollInterval).
//
// A webhook says only that Clair has a notification of a certain id. The notification is read from the Clair that the
// Scanner names, if the operator's configuration lists it; never from an address in the webhook. The ImageScans of the
// Scanner whose images are in it are marked, and Clair forgets the notification. A mark, whatever image it is on, has the
// operator look for newer data; which reports are then read, and in which order, does not depend on marks.
//
// It promises that a webhook is answered with 200 only when all of that is done, so that Clair tries again otherwise; that
// nothing of a request but its headers is read before it is known to come from somebody who has the Scanner's secret;
// that it cannot be told from outside which Scanners there are, as long as their Secrets can be read; that no secret
// reaches a log or an answer; and that what one namespace's webhooks cost, forged ones included, is bounded and leaves the
// others theirs. It remembers nothing beyond its process: webhooks only make faster what happens without them.
package clairhook

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/clair"
	"github.com/scanner-operator/scanner-operator/pkg/config"
)

// Path of the webhooks; notifier.webhook.target in Clair's configuration ends with it.
const Path = "/clair/{namespace}/{scanner}"

// TokenHeader carries the token that spec.backend.clair.webhookTokenSecretRef names; Clair sends what its configuration
// has in notifier.webhook.headers.
const TokenHeader = "X-Scanner-Operator-Token"

const (
	// patience is how long a webhook waits for its answer. Clair has no limit of its own, and sends nothing else meanwhile.
	patience = 25 * time.Second
	// maxCredentialBytes bounds the headers that are looked at.
	maxCredentialBytes = 4 << 10
)

// What keeps a webhook from being taken. Anything else is trouble that may be over when Clair tries again.
var (
	errUnauthorized = errors.New("there is no such Scanner for Clair, or its secret is another one")
	errNotAllowed   = errors.New("spec.backend.clair.url of the Scanner is none that clair.instances in the operator's configuration lists")
	errInvalid      = errors.New("not a webhook of Clair")
	errBusy         = errors.New("too many webhooks for this namespace, or in all; try again later")
	errUnfinished   = errors.New("it takes longer; try again later")
)

// Config is what a Server is made of.
type Config struct {
	// Cluster reads Scanners, and lists and patches ImageScans; not from a cache.
	Cluster client.Client
	// Secrets are read by name, where a namespace has granted it.
	Secrets coreclient.SecretsGetter
	// Instances are the Clairs that may be spoken with, by their addresses in canonical form.
	Instances map[string]config.ClairInstance
	// HowToGrant says how to let the notifier read a Secret.
	HowToGrant func(namespace, secret string) string
	Metrics    *Metrics
	Log        *slog.Logger
	Clock      clock.PassiveClock
}

// Server takes webhooks.
type Server struct {
	Config
	network *clair.Network
	// admitted are requests, working the notifications that are being taken care of.
	admitted, working *places
	// lookups and notifications bound how often the API server and Clairs are asked.
	lookups, notifications *rates
	// met are namespaces that have a Scanner for Clair, looking shares a look at a Scanner among those that want it now.
	met     *cache.LRUExpireCache
	looking singleflight.Group
	// verdicts by the hash of what was shown; secrets themselves are not kept.
	verdicts *cache.LRUExpireCache
	// handled notifications: false while Clair still has to forget them. flights joins webhooks about the same one.
	handled *cache.LRUExpireCache
	flights singleflight.Group
	// turns bounds how many notifications are read at a time; indexes are of Scanners, by UID.
	turns   chan struct{}
	indexes *cache.LRUExpireCache
	// said are log lines that need no repetition.
	said *cache.LRUExpireCache
}

// New returns a Server.
func New(c Config) *Server {
	lru := func(size int) *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(size, c.Clock) }
	return &Server{
		Config: c, network: clair.NewNetwork(),
		admitted: newPlaces(maxRequestsPerNamespace, maxRequests), working: newPlaces(maxWorkPerNamespace, maxWork),
		lookups: newRates(lookupsPerSecond, lookupsAtOnce, c.Clock), notifications: newRates(notificationsPerSecond, notificationsAtOnce, c.Clock),
		met: lru(maxNamespaces), verdicts: lru(maxVerdicts), handled: lru(maxHandled), indexes: lru(maxIndexes), said: lru(maxSaid),
		turns: make(chan struct{}, maxTurns),
	}
}

// Instances are those of the configuration by their addresses in canonical form.
func Instances(c config.Clair) map[string]config.ClairInstance {
	instances := map[string]config.ClairInstance{}
	for _, instance := range c.Instances {
		if address, err := clair.CanonicalURL(instance.URL); err == nil { // else the configuration would not have been loaded
			instances[address] = instance
		}
	}
	return instances
}

// Handler routes requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, s.webhook)
	return mux
}

// webhook answers 200 when there is nothing left to do; Clair takes anything else, 2xx included, for a failure.
func (s *Server) webhook(w http.ResponseWriter, r *http.Request) {
	err := s.take(r)
	outcome := outcomeOf(err)
	s.Metrics.Webhook(outcome)
	if err == nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("Connection", "close") // or the rest of the body would be read
	http.Error(w, outcome.text(), outcome.status())
}

// take admits a request, finds out whom it comes from, reads it, and does what it is about.
func (s *Server) take(r *http.Request) error {
	scanner := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("scanner")}
	_, leave, err := s.admitted.take(scanner.Namespace)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	uid, err := s.authenticate(ctx, scanner, credentialsOf(r.Header))
	if err != nil {
		return err
	}
	hook, err := clair.ParseWebhook(r.Body)
	if err != nil {
		s.say(slog.LevelWarn, scanner, "a request with the right secret is no webhook of Clair", "error", err)
		return errInvalid
	}
	return s.handle(ctx, task{scanner: scanner, uid: uid, id: hook.NotificationID})
}

// credentials are what a request shows; either is enough.
type credentials struct {
	token, bearer string
}

// credentialsOf reads the headers. What is longer than any token is none.
func credentialsOf(header http.Header) credentials {
	c := credentials{token: header.Get(TokenHeader)}
	c.bearer, _ = strings.CutPrefix(header.Get("Authorization"), "Bearer ")
	if len(c.token)+len(c.bearer) > maxCredentialBytes {
		return credentials{}
	}
	return c
}

// hash is what a verdict about credentials is remembered by.
func (c credentials) hash(scanner types.NamespacedName) [sha256.Size]byte {
	// Headers hold no NUL, and names are checked.
	return sha256.Sum256([]byte(strings.Join([]string{scanner.Namespace, scanner.Name, c.token, c.bearer}, "\x00")))
}

// valid says whether there can be a Scanner of this name.
func valid(scanner types.NamespacedName) bool {
	return len(validation.IsDNS1123Label(scanner.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(scanner.Name)) == 0
}

// say logs something about a Scanner, at most once a minute.
func (s *Server) say(level slog.Level, scanner types.NamespacedName, what string, args ...any) {
	key := scanner.String() + " " + what
	if _, before := s.said.Get(key); before {
		return
	}
	s.said.Add(key, true, time.Minute)
	s.Log.Log(context.Background(), level, what, append([]any{"namespace", scanner.Namespace, "scanner", scanner.Name}, args...)...)
}
