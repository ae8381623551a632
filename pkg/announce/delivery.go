package announce

import (
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Delivery asks the notifier to send a message to one receiver. It references the receiver's Secret and never holds its content.
type Delivery struct {
	Receiver ReceiverRef `json:"receiver"`
	Message  Message     `json:"digest"`
	// Thread is the timestamp of the message in Receiver.Channel that this message is a reply to; empty for a message to the channel itself.
	Thread string `json:"thread,omitempty"`
	// Alerts is set for a receiver that keeps a state. Message then has only an ID, and names the Scanner.
	Alerts *Alerts `json:"alerts,omitempty"`
}

// ReceiverRef references the Secret with a receiver's address, and names the channel if the Secret's content does not select one.
type ReceiverRef struct {
	// Type is the receiver's type, such as ReceiverTypeSlack.
	Type string `json:"type"`
	// Namespace, SecretName and SecretKey locate the webhook URL, or the token.
	Namespace  string `json:"namespace"`
	SecretName string `json:"secretName"`
	SecretKey  string `json:"secretKey"`
	// Channel is the ID of a channel or of a person, or a channel's name with "#"; IsChannel holds for it. It is set for ReceiverTypeSlackApp only.
	Channel string `json:"channel,omitempty"`
	// Mail is set for ReceiverTypeEmail only. Its Secret holds the password, in SecretKey, and the user name. SecretName is empty for a server that
	// requires none.
	Mail *MailRef `json:"mail,omitempty"`
}

// Types of receivers.
const (
	// ReceiverTypeSlack is a Slack incoming webhook.
	ReceiverTypeSlack = "slack"
	// ReceiverTypeSlackApp is a Slack app that posts with chat.postMessage, and can reply in threads.
	ReceiverTypeSlackApp = "slackApp"
	// ReceiverTypeWebhook is any server that accepts CloudEvents.
	ReceiverTypeWebhook = "webhook"
	// ReceiverTypeTeams is the webhook of a Workflow of Microsoft Teams.
	ReceiverTypeTeams = "teams"
	// ReceiverTypeAlertmanager is an Alertmanager of Prometheus.
	ReceiverTypeAlertmanager = "alertmanager"
	// ReceiverTypeEmail is a mail server.
	ReceiverTypeEmail = "email"
)

// hasThreads reports whether messages to the receiver can be replies to earlier ones.
func (r ReceiverRef) hasThreads() bool { return r.Type == ReceiverTypeSlackApp }

// maxChannelBytes bounds the name of a channel: Slack allows 80 characters, in any script.
const maxChannelBytes = 4 * 81

var channelPattern = regexp.MustCompile(`^([CDGUW][A-Z0-9]{7,}|#[^[:cntrl:][:space:]#@<>&,]+)$`)

// IsChannel reports whether a text can be the ID of a Slack channel (C0123456789), a channel's name (#security), or where a message to one person
// goes (IsDirect).
func IsChannel(text string) bool {
	return len(text) <= maxChannelBytes && channelPattern.MatchString(text)
}

// IsDirect reports whether messages to a channel are direct messages: it is the ID of a person (U0123456789, W0123456789), or of the conversation of a
// person with the app (D0123456789). The notifier sends them only where the administrator allows that.
func IsDirect(channel string) bool {
	return strings.ContainsAny(channel[:min(1, len(channel))], "DUW")
}

// DeliveryPath is the notifier's endpoint. It takes POST with a Delivery as JSON. The answer has an Outcome as JSON with the status in
// StatusCodes, and Retry-After if it is rate limited. Without an Outcome, the status is 400 for a malformed request, 401 or 403 for a caller
// that is not the manager, 409 with an EpochRefusal as JSON for an epoch that is too low (EpochHeader), 413 for a request that is too large,
// or 503 if the token could not be reviewed, the epoch could not be kept, or another notifier sends (SenderHeader). None of these has sent
// the message.
const DeliveryPath = "/v1/digests"

// SenderHeader is the header of a standby's answer, with status 503, that has the address of the notifier that sends, as "IP:port". That
// notifier has the same serving certificate. The header is missing while none sends.
const SenderHeader = "Scanner-Operator-Sender"

// NotifierAudience is the audience of the token that the manager presents to the notifier.
const NotifierAudience = "scanner-operator-notifier"

// MaxDeliveryBytes bounds the body of a Delivery.
const MaxDeliveryBytes = 1 << 20

// MaxMessageBytes bounds Outcome.Message. It has room for the longest commands that a message advises people to run.
const MaxMessageBytes = 1024

// Result is the result of a delivery attempt.
type Result string

// Results.
const (
	// Delivered: the receiver accepted the message, now or in an earlier attempt with the same message ID.
	Delivered Result = "Delivered"
	// RateLimited: the receiver, or the notifier's own budget for it, requires a wait of Outcome.RetryAfter. This is no failure.
	RateLimited Result = "RateLimited"
	// Permanent: retrying cannot succeed before the user changes something.
	Permanent Result = "Permanent"
	// Temporary: the message was not accepted. Retry.
	Temporary Result = "Temporary"
	// UnknownOutcome: the request was sent and the answer was lost. The receiver may have the message.
	UnknownOutcome Result = "Unknown"
)

// StatusCodes are the HTTP status codes of the notifier's answers, by result.
var StatusCodes = map[Result]int{
	Delivered: http.StatusOK, RateLimited: http.StatusTooManyRequests, Permanent: http.StatusUnprocessableEntity,
	Temporary: http.StatusBadGateway, UnknownOutcome: http.StatusGatewayTimeout,
}

// Outcome is the notifier's answer to a Delivery.
type Outcome struct {
	Result Result `json:"result"`
	// Reason is one CamelCase word for conditions, such as SecretNotFound or ReceiverRefused.
	Reason string `json:"reason,omitempty"`
	// Message is for people, with the receiver's own words if there are any. It never holds an address or a secret. At most
	// MaxMessageBytes.
	Message string `json:"message,omitempty"`
	// RetryAfter is set with RateLimited and with ReasonInProgress.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	// Timestamp identifies the delivered message in its channel; empty if the receiver has no threads.
	Timestamp string `json:"timestamp,omitempty"`
	// InThread is true if the delivered message is a reply in Delivery.Thread. Otherwise the message is in the channel itself, even if a
	// thread was requested: the thread's first message was deleted.
	InThread bool `json:"inThread,omitempty"`
}

// Reasons of outcomes.
const (
	ReasonSecretNotFound  = "SecretNotFound"  // the Secret or its key is missing
	ReasonSecretForbidden = "SecretForbidden" // the namespace has no RoleBinding that lets the notifier read it
	ReasonInvalidURL      = "InvalidURL"      // not an https URL, or a host or an address that the notifier may not post to
	ReasonInvalidToken    = "InvalidToken"    // the Secret holds no token of a Slack app, or unusable credentials or certificates
	// ReasonChannelNotAllowed is that of a direct message, which the administrator does not allow.
	ReasonChannelNotAllowed = "ChannelNotAllowed"
	ReasonReceiverRefused   = "ReceiverRefused" // 3xx, 4xx, or an error of Slack's API: the message quotes the receiver
	// ReasonRecipientsRefused comes with Delivered: some of a mail's recipients were refused for good.
	ReasonRecipientsRefused = "RecipientsRefused"
	ReasonReceiverLimited   = "ReceiverLimited" // 429, 503 with Retry-After, or the notifier's own budget
	ReasonReceiverFailed    = "ReceiverFailed"  // 5xx
	ReasonNetwork           = "Network"         // no connection
	ReasonAnswerLost        = "AnswerLost"      // sent, no answer
	// ReasonInProgress comes with UnknownOutcome and Outcome.RetryAfter: the receiver has not answered yet. A request with the same message ID then joins
	// the delivery that is in progress.
	ReasonInProgress      = "DeliveryInProgress"
	ReasonUnconfirmed     = "DeliveryUnconfirmed" // given up after many attempts without an answer
	ReasonStoreBudget     = "StoreBudgetExceeded" // what is recorded of the namespace's receivers takes all its room in the store
	ReasonNotifierUnavail = "NotifierUnavailable" // the manager could not reach the notifier
	ReasonDeposed         = "Deposed"             // the notifier has seen a newer leader than this manager
	ReasonClusterAPI      = "KubernetesAPI"       // the notifier got no answer, or an error, from the Kubernetes API
)
