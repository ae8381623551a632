// Package webhook posts messages as CloudEvents to any server (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md,
// structured mode).
//
// Each request can be verified by its signature, and recognized when it comes twice by the event's id. The package knows nothing about Secrets,
// retries, or what is new.
package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Headers of each request.
const (
	// SignatureHeader has "sha256=" and the HMAC-SHA256 of the body in hexadecimal digits, as Flux' generic-hmac
	// (https://fluxcd.io/flux/components/notification/providers/#generic-webhook-with-hmac).
	SignatureHeader = "X-Signature"
	// IdempotencyHeader has the message's ID (https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header).
	IdempotencyHeader = "Idempotency-Key"
)

// Poster posts messages to webhooks. It is safe for concurrent use.
type Poster struct {
	client *receiver.Client
}

// NewPoster returns a Poster.
func NewPoster(network receiver.Network) *Poster {
	return &Poster{client: receiver.NewClient("the webhook", network)}
}

// Post sends a message, once, within receiver.Timeout. The outcome contains nothing of the address.
func (p *Poster) Post(ctx context.Context, to receiver.Address, d announce.Delivery) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, receiver.Timeout)
	defer cancel()
	body, err := Encode(d.Message)
	if err != nil {
		return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "the message cannot be encoded"}
	}
	header := http.Header{}
	header.Set("User-Agent", "scanner-operator")
	for name, value := range to.Headers {
		header.Set(name, value)
	}
	header.Set("Content-Type", cloudevents.ApplicationCloudEventsJSON+"; charset=utf-8")
	header.Set(IdempotencyHeader, `"`+d.Message.ID+`"`)
	if to.Token != "" {
		header.Set(SignatureHeader, sign(to.Token, body))
	}
	answer, none := p.client.Post(ctx, to, header, body)
	if none != nil {
		return *none
	}
	return p.client.Outcome(answer, receiver.Word(answer.Body), adviceFor(answer.Status))
}

func sign(key string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// adviceFor tells the user what to do about a status.
func adviceFor(status int) string {
	switch status {
	case http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return "it must accept CloudEvents 1.0 in JSON (" + cloudevents.ApplicationCloudEventsJSON + ")"
	case http.StatusUnauthorized, http.StatusForbidden:
		return "check the keys token and headers of the Secret"
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return "nothing accepts webhooks at that address: check the key address of the Secret"
	}
	return ""
}
