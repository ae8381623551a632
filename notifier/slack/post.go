package slack

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Poster posts messages to Slack's incoming webhooks. It is safe for concurrent use.
type Poster struct {
	client *receiver.Client
}

// NewPoster returns a Poster.
func NewPoster(network receiver.Network) *Poster {
	return &Poster{client: receiver.NewClient("Slack", network)}
}

// cannotEncode is the outcome for a message that JSON cannot express.
var cannotEncode = announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "the message cannot be encoded"}

// accepted is the whole answer of a webhook that has taken a message
// (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks#posting_with_webhooks).
const accepted = "ok"

// Post sends a message to a webhook, once, within receiver.Timeout. The outcome does not contain the webhook's address, which is a secret.
func (p *Poster) Post(ctx context.Context, to receiver.Address, d announce.Delivery) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, receiver.Timeout)
	defer cancel()
	body, err := json.Marshal(Render(d.Message))
	if err != nil {
		return cannotEncode
	}
	// slack-go's own client is not used: it discards Slack's answer and whether the request was sent.
	answer, none := p.client.Post(ctx, to, http.Header{"Content-Type": {"application/json"}}, body)
	if none != nil {
		return *none
	}
	return p.outcome(answer)
}

// outcome converts an answer of a webhook.
func (p *Poster) outcome(answer receiver.Answer) announce.Outcome {
	if answer.IsOK() && strings.TrimSpace(string(answer.Body)) != accepted {
		return p.client.Foreign(answer)
	}
	return p.client.Outcome(answer, receiver.Word(answer.Body), adviceFor(answer.Status))
}

// adviceFor tells the user what to do about a status
// (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks#handling_errors).
func adviceFor(status int) string {
	switch status {
	case http.StatusForbidden, http.StatusNotFound:
		return "the webhook was revoked or may not post there: create a new one in Slack and put its URL into the Secret"
	case http.StatusGone:
		return "its channel no longer exists: create a webhook for another channel in Slack and put its URL into the Secret"
	}
	return ""
}
