package notify

import (
	"time"
)

// Delivery asks the notifier to bring a digest to one receiver. It names the Secret and never holds what is in it.
type Delivery struct {
	Receiver ReceiverRef `json:"receiver"`
	Digest   Digest      `json:"digest"`
}

// ReceiverRef says where a receiver's address is kept.
type ReceiverRef struct {
	// Type is the receiver's kind: "slack".
	Type string `json:"type"`
	// Namespace, SecretName and SecretKey name the webhook URL.
	Namespace  string `json:"namespace"`
	SecretName string `json:"secretName"`
	SecretKey  string `json:"secretKey"`
}

// ReceiverTypeSlack posts to a Slack incoming webhook.
const ReceiverTypeSlack = "slack"

// PathDigests takes POST with a Delivery as JSON and answers with an Outcome, whatever the outcome is, with:
// 200 delivered, 429 (with Retry-After) rate limited, 422 permanent, 502 temporary, 504 unknown; and without
// an Outcome 400 for a malformed request, 401 and 403 for a caller who is not the manager, 413 for a too large one.
const PathDigests = "/v1/digests"

// NotifierAudience is the audience of the token that the manager presents to the notifier.
const NotifierAudience = "scanner-operator-notifier"

// MaxDeliveryBytes bounds the body of a Delivery.
const MaxDeliveryBytes = 1 << 20

// MaxMessageBytes bounds Outcome.Message: room for the longest commands that a message tells people to run.
const MaxMessageBytes = 1024

// Result is what became of a delivery.
type Result string

// Results.
const (
	// Delivered: the receiver took it, now or in an earlier attempt with the same digest id.
	Delivered Result = "Delivered"
	// RateLimited: the receiver (or the notifier's own budget for it) says later, see Outcome.RetryAfter. No failure.
	RateLimited Result = "RateLimited"
	// Permanent: trying again is of no use until the user changes something.
	Permanent Result = "Permanent"
	// Temporary: try again.
	Temporary Result = "Temporary"
	// UnknownOutcome: the request was sent and the answer was lost. The receiver may have it.
	UnknownOutcome Result = "Unknown"
)

// Outcome is the notifier's answer.
type Outcome struct {
	Result Result `json:"result"`
	// Reason is one CamelCase word for conditions, such as SecretNotFound or SlackRefused.
	Reason string `json:"reason,omitempty"`
	// Message is for people, in the receiver's own words where there are some; never an address or a secret. At most MaxMessageBytes.
	Message string `json:"message,omitempty"`
	// RetryAfter is set with RateLimited.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
}

// Reasons of outcomes.
const (
	ReasonSecretNotFound  = "SecretNotFound"      // the Secret or its key is missing
	ReasonSecretForbidden = "SecretForbidden"     // the namespace does not let the notifier read it
	ReasonInvalidURL      = "InvalidURL"          // not https, or a host that the notifier may not post to
	ReasonReceiverRefused = "ReceiverRefused"     // 400, 403, 404, 410: the receiver's own words are in the message
	ReasonReceiverLimited = "ReceiverLimited"     // 429, or our own budget
	ReasonReceiverFailed  = "ReceiverFailed"      // 5xx
	ReasonNetwork         = "Network"             // no connection
	ReasonAnswerLost      = "AnswerLost"          // sent, no answer
	ReasonUnconfirmed     = "DeliveryUnconfirmed" // given up after many attempts without an answer
	ReasonStoreBudget     = "StoreBudgetExceeded" // what is recorded of the namespace's receivers takes all its room in the store
	ReasonNotifierUnavail = "NotifierUnavailable" // the manager could not reach the notifier
	ReasonClusterAPI      = "KubernetesAPI"       // the notifier could not ask the Kubernetes API
)
