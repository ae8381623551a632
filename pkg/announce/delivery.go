package announce

import (
	"net/http"
	"time"
)

// Delivery asks the notifier to send a message to one receiver. It references the receiver's Secret and never holds its content.
type Delivery struct {
	Receiver ReceiverRef `json:"receiver"`
	Message  Message     `json:"digest"`
}

// ReceiverRef references the Secret with a receiver's address.
type ReceiverRef struct {
	// Type is the receiver's type, such as ReceiverTypeSlack.
	Type string `json:"type"`
	// Namespace, SecretName and SecretKey locate the webhook URL.
	Namespace  string `json:"namespace"`
	SecretName string `json:"secretName"`
	SecretKey  string `json:"secretKey"`
}

// ReceiverTypeSlack is a Slack incoming webhook.
const ReceiverTypeSlack = "slack"

// DeliveryPath is the notifier's endpoint. It takes POST with a Delivery as JSON. The answer has an Outcome as JSON with the status in
// StatusCodes, and Retry-After if it is rate limited. Without an Outcome, the status is 400 for a malformed request, 401 or 403 for a caller
// that is not the manager, 413 for a request that is too large, or 503 if the token could not be reviewed.
const DeliveryPath = "/v1/digests"

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
	// RetryAfter is set with RateLimited.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
}

// Reasons of outcomes.
const (
	ReasonSecretNotFound  = "SecretNotFound"      // the Secret or its key is missing
	ReasonSecretForbidden = "SecretForbidden"     // the namespace has no RoleBinding that lets the notifier read it
	ReasonInvalidURL      = "InvalidURL"          // not an https URL, or a host that the notifier may not post to
	ReasonReceiverRefused = "ReceiverRefused"     // 400, 403, 404, 410: the message quotes the receiver
	ReasonReceiverLimited = "ReceiverLimited"     // 429, or the notifier's own budget
	ReasonReceiverFailed  = "ReceiverFailed"      // 5xx
	ReasonNetwork         = "Network"             // no connection
	ReasonAnswerLost      = "AnswerLost"          // sent, no answer
	ReasonUnconfirmed     = "DeliveryUnconfirmed" // given up after many attempts without an answer
	ReasonStoreBudget     = "StoreBudgetExceeded" // what is recorded of the namespace's receivers takes all its room in the store
	ReasonNotifierUnavail = "NotifierUnavailable" // the manager could not reach the notifier
	ReasonClusterAPI      = "KubernetesAPI"       // the notifier got no answer, or an error, from the Kubernetes API
)
