// Package notifier sends messages to receivers, such as Slack, on behalf of the manager.
//
// Its outcomes are honest: Delivered means that the receiver accepted the message, Unknown that this is not known. A delivered message is
// not delivered again under the same ID for a day, as long as the process lives. Nothing is delivered for a manager that was replaced as the
// leader: its epoch is too low (epochs.go). A message with an unknown outcome is posted again when the
// manager retries, so that a receiver gets each message at least once. A receiver's address or token is a secret and never reaches a log, an answer
// or a metric. The notifier does not decide what to announce.
//
// Of several notifiers, only the holder of the Lease sends (lease.go). All others are ready to, and name the holder to whoever requests a
// delivery. The state is in memory, except for the epoch, which is in the Lease.
package notifier

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

const (
	// prepareTimeout bounds reading the Secret and waiting for a slot. Each receiver has its own deadline after that.
	prepareTimeout = 12 * time.Second
	// answerWithin is when a request is answered at the latest, before the manager's own deadline (client.Deadline). A receiver of messages by HTTP
	// has answered by then (receiver.Timeout). A mail server may take longer.
	answerWithin = 27 * time.Second
	// progressRetry is the wait that is requested while a delivery is in progress.
	progressRetry = 15 * time.Second
)

// Addresses resolves what a receiver's Secret holds. It returns an outcome instead if that is not usable.
type Addresses interface {
	Address(ctx context.Context, ref announce.ReceiverRef) (receiver.Address, *announce.Outcome)
}

// Authenticator decides who may request deliveries. Allow returns nil, ErrUnauthenticated, ErrForbidden, or another error if that could not be
// determined. The context has the address of the caller (limits.AddressIn).
type Authenticator interface {
	Allow(ctx context.Context, token string) error
}

// deliveryAge is how long a delivered message is remembered. That is longer than the day for which the manager retries a refused message.
const deliveryAge = 25 * time.Hour

// maxDeliveries bounds the memory that is used. A receiver gets a message every few minutes at most, so this is a day for many receivers.
const maxDeliveries = 10_000

// Config holds the dependencies of a Server.
type Config struct {
	Callers   Authenticator
	Addresses Addresses
	// Receivers by their type in the API.
	Receivers map[string]Receiver
	// Exporters by their type in the API.
	Exporters map[string]Exporter
	Budget    *Budget
	// Lease decides whether this notifier sends; nil if it is the only one.
	Lease   *Lease
	Metrics *Metrics
	// AnswerWithin is when a request for a delivery is answered at the latest; 0 means the constant answerWithin.
	AnswerWithin time.Duration
	Log          *slog.Logger
	Clock        cache.Clock
}

// Server serves announce.DeliveryPath, export.Path and announce.EpochPath. It is safe for concurrent use.
type Server struct {
	Config
	// delivered has the outcomes of messages that were delivered recently. A restart clears it: a message whose outcome did not reach the manager
	// may then be delivered twice.
	delivered *cache.LRUExpireCache
	// unclaimed has the outcomes of deliveries that failed after their request was answered, for the next request.
	unclaimed *cache.LRUExpireCache
	// flights joins concurrent requests for the same message and receiver into one delivery.
	flights singleflight.Group
	epochs  epochs
	// exports are those in progress: of all, by namespace and by tool.
	exports limits.Quota
}

// New returns a Server.
func New(c Config) *Server {
	return &Server{Config: c, epochs: epochs{lease: c.Lease}, delivered: cache.NewLRUExpireCacheWithClock(maxDeliveries, c.Clock),
		unclaimed: cache.NewLRUExpireCacheWithClock(maxDeliveries, c.Clock)}
}

// Handler returns the HTTP handler for deliveries.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+announce.DeliveryPath, s.serveDelivery)
	mux.HandleFunc("POST "+export.Path, s.serveExport)
	mux.HandleFunc("PUT "+announce.EpochPath+"{epoch}", s.serveEpoch)
	return mux
}

// serveDelivery handles one request as documented at announce.DeliveryPath.
func (s *Server) serveDelivery(w http.ResponseWriter, r *http.Request) {
	if status, problem := s.admit(w, r); problem != "" {
		http.Error(w, problem, status)
		return
	}
	delivery, err := s.read(w, r)
	if err != nil {
		refuseBody(w, err)
		return
	}
	epoch, admitted := s.admitSending(w, r)
	if admitted {
		s.answer(w, epoch, s.deliverOnce(r.Context(), delivery, epoch))
	}
}

// refuseBody answers a request whose body is not valid.
func refuseBody(w http.ResponseWriter, err error) {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		http.Error(w, fmt.Sprintf("the body has at most %d bytes", tooLarge.Limit), http.StatusRequestEntityTooLarge)
		return
	}
	http.Error(w, err.Error(), http.StatusBadRequest)
}

// admitSending reports whether this notifier may send for the manager's epoch, and answers the request otherwise.
func (s *Server) admitSending(w http.ResponseWriter, r *http.Request) (epoch int64, admitted bool) {
	epoch, err := parseEpoch(cmp.Or(r.Header.Get(announce.EpochHeader), "0"))
	if err != nil {
		http.Error(w, announce.EpochHeader+": "+err.Error(), http.StatusBadRequest)
		return 0, false
	}
	return epoch, !s.refuseAsStandby(w) && s.admitEpoch(w, r, epoch)
}

// answer answers with an outcome.
func (s *Server) answer(w http.ResponseWriter, epoch int64, outcome announce.Outcome) {
	if outcome.Reason == announce.ReasonDeposed {
		s.refuseEpoch(w, epoch)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if outcome.Result == announce.RateLimited {
		// Rounded up: a retry that is too early would be refused again.
		w.Header().Set("Retry-After", fmt.Sprint(int((outcome.RetryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(cmp.Or(announce.StatusCodes[outcome.Result], http.StatusGatewayTimeout)) // a result without a code is unknown
	_ = json.NewEncoder(w).Encode(outcome)                                                 // the manager retries if this answer is lost
}

// admit checks that the caller is the manager, before any of the body is read. An empty problem means that it is.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (status int, problem string) {
	token, found := kubeauth.BearerToken(r)
	if !found {
		return http.StatusUnauthorized, "a bearer token is needed"
	}
	err := s.Callers.Allow(limits.WithAddress(r.Context(), limits.AddressOf(r)), token)
	switch {
	case err == nil:
		limits.Authenticated(r.Context(), w, "the manager")
		return 0, ""
	case errors.Is(err, ErrUnauthenticated):
		return http.StatusUnauthorized, "the token is not valid for the notifier"
	case errors.Is(err, ErrForbidden):
		return http.StatusForbidden, "only the manager may request deliveries"
	}
	s.Log.Error("cannot review a token", "error", err)
	return http.StatusServiceUnavailable, "the token could not be reviewed"
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

// read decodes and validates a delivery.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (announce.Delivery, error) {
	var d announce.Delivery
	body := http.MaxBytesReader(w, r.Body, announce.MaxDeliveryBytes)
	if err := json.NewDecoder(body).Decode(&d); err != nil {
		return d, fmt.Errorf("the delivery is not valid JSON: %w", err)
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return d, fmt.Errorf("after the delivery: %w", err)
	}
	ref := d.Receiver
	switch {
	case !idPattern.MatchString(d.Message.ID):
		return d, errors.New("digest.id: want 32 hexadecimal digits")
	case s.Receivers[ref.Type] == nil:
		return d, fmt.Errorf("receiver.type: there is no receiver of type %.64q", ref.Type)
	case (ref.Type == announce.ReceiverTypeEmail) != (ref.Mail != nil):
		return d, errors.New("receiver.mail: missing, or not for this type of receiver")
	case ref.Mail != nil && ref.Mail.Validate() != nil:
		return d, fmt.Errorf("receiver.mail.%w", ref.Mail.Validate())
	case (ref.Type == announce.ReceiverTypeSlackApp) != announce.IsChannel(ref.Channel):
		return d, errors.New("receiver.channel: not the ID or name of a channel or the ID of a person, or not for this type of receiver")
	case d.Thread != "" && (ref.Channel == "" || !slack.IsTimestamp(d.Thread)):
		return d, errors.New("thread: not the timestamp of a message, or not for this type of receiver")
	}
	return d, checkSecretOf(ref)
}

// checkSecretOf checks that a receiver names a key of a Secret.
func checkSecretOf(ref announce.ReceiverRef) error {
	switch {
	case len(validation.IsDNS1123Label(ref.Namespace)) > 0:
		return errors.New("receiver.namespace: not the name of a namespace")
	case ref.Mail != nil && ref.SecretName == "":
		return nil // a server that requires no password
	case len(validation.IsDNS1123Subdomain(ref.SecretName)) > 0:
		return errors.New("receiver.secretName: not the name of a Secret")
	case len(validation.IsConfigMapKey(ref.SecretKey)) > 0:
		return errors.New("receiver.secretKey: not the name of a key")
	}
	return nil
}

// deliverOnce delivers a message, unless it was delivered before or a delivery of it is in progress. The outcome has announce.ReasonDeposed if
// the epoch became too low in the meantime.
func (s *Server) deliverOnce(ctx context.Context, d announce.Delivery, epoch int64) announce.Outcome {
	ref := d.Receiver
	key := strings.Join([]string{d.Message.ID, ref.Type, ref.Namespace, ref.SecretName, ref.SecretKey, ref.Channel, mailOf(ref)}, "\x00")
	if before, found := s.delivered.Get(key); found {
		s.Log.Info("message was delivered before", "digest", d.Message.ID, "namespace", ref.Namespace)
		return before.(announce.Outcome)
	}
	if before, found := s.unclaimed.Get(key); found {
		s.unclaimed.Remove(key)
		return before.(announce.Outcome)
	}
	outcome := s.join(key, epoch, func() announce.Outcome {
		if before, found := s.delivered.Get(key); found {
			return before.(announce.Outcome)
		}
		begun := time.Now()
		outcome := s.deliver(context.WithoutCancel(ctx), d, epoch)
		switch {
		case outcome.Result == announce.Delivered:
			s.delivered.Add(key, outcome, deliveryAge)
		case time.Since(begun) >= s.answerWithin():
			s.unclaimed.Add(key, outcome, deliveryAge)
		}
		return outcome
	})
	if !outcome.IsInProgress() {
		s.unclaimed.Remove(key)
	}
	return outcome
}

// join delivers something, unless a delivery with the same key is in progress, and returns its outcome, or that it is still in progress when the request
// must be answered. The delivery continues when the caller disconnects, or has waited long enough: its retry then learns the outcome.
func (s *Server) join(key string, epoch int64, deliver func() announce.Outcome) announce.Outcome {
	timer := time.NewTimer(s.answerWithin())
	defer timer.Stop()
	for {
		flight := s.flights.DoChan(key, func() (any, error) { return deliver(), nil })
		select {
		case result := <-flight:
			outcome := result.Val.(announce.Outcome)
			// The request may have joined the delivery of a leader that was deposed, whose refusal says nothing about this request.
			if outcome.Reason != announce.ReasonDeposed || !s.epochs.isCurrent(epoch) {
				return outcome
			}
		case <-timer.C:
			return inProgress(progressRetry)
		}
	}
}

// answerWithin is when a request is answered at the latest.
func (s *Server) answerWithin() time.Duration { return cmp.Or(s.AnswerWithin, answerWithin) }

// inProgress is the outcome of a delivery to a receiver or a tool that has not answered yet.
func inProgress(retryAfter time.Duration) announce.Outcome {
	return announce.Outcome{
		Result: announce.UnknownOutcome, Reason: announce.ReasonInProgress, RetryAfter: retryAfter,
		Message: "the receiver takes long to answer; the delivery goes on, and is not started again",
	}
}

// deliver posts a message, unless a higher epoch begins before.
func (s *Server) deliver(ctx context.Context, d announce.Delivery, epoch int64) announce.Outcome {
	ref := d.Receiver
	return s.attempt(ctx, epoch, attempt{
		receiver: ref,
		// It does not contain the message ID, because a message that waits for long is composed again under another ID.
		caller: strings.Join([]string{ref.Type, ref.Namespace, ref.SecretName, ref.SecretKey, mailOf(ref), d.Message.Scanner}, "\x00"),
		post: func(ctx context.Context, to receiver.Address) announce.Outcome {
			return s.Receivers[ref.Type].Post(ctx, to, d)
		},
		log: []any{"digest", d.Message.ID, "kind", d.Message.Kind, "scanner", d.Message.Scanner, "channel", ref.Channel},
	})
}

// attempt is one attempt to send something to a receiver or a tool.
type attempt struct {
	receiver announce.ReceiverRef
	// caller identifies the Scanner and receiver in the budget's queue.
	caller string
	post   func(ctx context.Context, to receiver.Address) announce.Outcome
	// log are the keys and values that identify what is sent.
	log []any
}

// attempt resolves the address, waits for the budget and posts, unless a higher epoch begins before.
func (s *Server) attempt(ctx context.Context, epoch int64, a attempt) announce.Outcome {
	start := s.Clock.Now()
	preparing, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	address, none := s.Addresses.Address(preparing, a.receiver)
	if none != nil {
		return s.recordOutcome(a, start, *none)
	}
	// An app has a limit for each channel, a webhook has only one channel.
	budget := address.Key() + "\x00" + a.receiver.Channel
	if wait, err := s.Budget.Take(preparing, budget, a.caller); err != nil {
		return s.recordOutcome(a, start, announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverLimited, Message: "no time left to wait for a slot of the receiver"})
	} else if wait > 0 {
		return s.recordOutcome(a, start, announce.Outcome{
			Result: announce.RateLimited, Reason: announce.ReasonReceiverLimited,
			Message: "too many messages for this channel at the moment", RetryAfter: wait,
		})
	}
	if !s.epochs.isCurrent(epoch) {
		return s.recordOutcome(a, start, announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonDeposed, Message: "a newer leader began while the message waited"})
	}
	if !s.sends() {
		return s.recordOutcome(a, start, announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonNotifierUnavail, Message: "the notifier lost its Lease while the message waited"})
	}
	outcome := a.post(ctx, address)
	if outcome.Result == announce.RateLimited && outcome.Reason != export.ReasonBusy {
		s.Budget.Pause(budget, outcome.RetryAfter)
	}
	for _, secret := range address.Secrets() {
		outcome.Message = redact(outcome.Message, secret)
	}
	return s.recordOutcome(a, start, outcome)
}

// mailOf identifies the server and the addresses of mails; "" for other types of receivers.
func mailOf(ref announce.ReceiverRef) string {
	if ref.Mail == nil {
		return ""
	}
	return fmt.Sprint(*ref.Mail)
}

// recordOutcome logs and counts an outcome, with one log line per attempt.
func (s *Server) recordOutcome(a attempt, start time.Time, o announce.Outcome) announce.Outcome {
	if len(o.Message) > announce.MaxMessageBytes {
		o.Message = strings.ToValidUTF8(o.Message[:announce.MaxMessageBytes], "")
	}
	s.Metrics.Delivered(a.receiver.Type, o, s.Clock.Now().Sub(start))
	level := slog.LevelInfo
	if o.Result != announce.Delivered && o.Result != announce.RateLimited {
		level = slog.LevelWarn
	}
	s.Log.Log(context.Background(), level, "message handled", append(a.log,
		"namespace", a.receiver.Namespace, "secret", a.receiver.SecretName,
		"result", o.Result, "reason", o.Reason, "message", o.Message, "retryAfter", o.RetryAfter.String())...)
	return o
}

// redact removes an address, a token or a header's value from a text, whole and in parts. No text should contain it; this is the last safeguard.
func redact(text, secret string) string {
	const hidden = "(hidden)"
	if isLongEnough(secret) {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	// A token consists of parts: xoxb-, numbers, and the secret at the end. So does a header: Bearer and the token.
	path := strings.NewReplacer("-", "/", " ", "/").Replace(secret)
	if _, rest, isURL := strings.Cut(secret, "://"); isURL {
		path = rest[strings.IndexAny(rest+"/", "/?#"):]
	}
	parts := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("/?&=#", r) })
	// Longer parts come first: a short one that is the beginning of a longer one would leave the rest of the longer one readable.
	slices.SortFunc(parts, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, part := range parts {
		if isLongEnough(part) && !isPathWord.MatchString(part) {
			text = strings.ReplaceAll(text, part, hidden)
		}
	}
	return text
}

// isLongEnough reports whether a text can be a secret. Shorter ones would be removed from within other words.
func isLongEnough(text string) bool { return len(text) >= 6 }

// isPathWord matches words in the paths of URLs, such as services and webhook, which outcomes contain, too.
var isPathWord = regexp.MustCompile(`^[a-z]{1,12}$`)
