// Package teams renders messages as Adaptive Cards, and posts them to a Workflow of Microsoft Teams.
//
// The words and the bounds of a card are those of package slack. Whatever names an image contains, a card stays within the limit of Teams,
// mentions nobody, and links only to https URLs. The package knows nothing about Secrets, retries, or what is new.
package teams

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
)

// Poster posts messages to the webhooks of Workflows. It is safe for concurrent use.
type Poster struct {
	client *receiver.Client
}

// NewPoster returns a Poster.
func NewPoster(network receiver.Network) *Poster {
	return &Poster{client: receiver.NewClient("Teams", network)}
}

// connectorFailed is in the answer of an Office 365 connector that could not deliver a message. Its status is 200
// (https://github.com/MicrosoftDocs/msteams-docs/issues/400).
const connectorFailed = "Webhook message delivery failed"

// connectorHosts are the hosts of Office 365 connectors, and connectorDomain is the domain of the later ones.
var connectorHosts = []string{"outlook.office.com", "outlook.office365.com"}

const connectorDomain = ".webhook.office.com"

// useWorkflow is the way out of an address that takes no messages.
const useWorkflow = "create a workflow in Teams that begins with \"When a Teams webhook request is received\", and put its URL into the Secret"

// Post sends a message, once, within receiver.Timeout. The outcome contains nothing of the address.
func (p *Poster) Post(ctx context.Context, to receiver.Address, d announce.Delivery) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, receiver.Timeout)
	defer cancel()
	body, err := Render(d.Message)
	if err != nil {
		return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "the message cannot be encoded"}
	}
	answer, none := p.client.Post(ctx, to, http.Header{"Content-Type": {"application/json"}}, body)
	if none != nil {
		return *none
	}
	return p.outcome(answer, isConnector(to.Target))
}

// outcome converts an answer. Microsoft has retired the connectors of Office 365 (https://aka.ms/O365ConnectorDeprecation): what theirs refuses, only a
// workflow takes.
func (p *Poster) outcome(answer receiver.Answer, ofConnector bool) announce.Outcome {
	advice := adviceFor(answer.Status)
	if ofConnector {
		advice = "the URL is that of an Office 365 connector, which Microsoft has retired: " + useWorkflow
	}
	if answer.IsOK() && strings.Contains(string(answer.Body), connectorFailed) {
		return announce.Outcome{
			Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "Teams takes no messages at this address; " + cmp.Or(advice, useWorkflow),
		}
	}
	return p.client.Outcome(answer, receiver.Word(answer.Body), advice)
}

// isConnector reports whether an address is that of an Office 365 connector.
func isConnector(to egress.Target) bool {
	u, err := url.Parse(to.URL())
	return err == nil && (slices.Contains(connectorHosts, u.Hostname()) || strings.HasSuffix(u.Hostname(), connectorDomain))
}

// adviceFor tells the user what to do about a status.
func adviceFor(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "the workflow must begin with \"When a Teams webhook request is received\" and post the card of the request"
	case http.StatusUnauthorized, http.StatusForbidden:
		return "the workflow must accept requests of anyone, or the signature in its URL was replaced: copy the URL again into the Secret"
	case http.StatusNotFound, http.StatusGone:
		return "the workflow was deleted or switched off: " + useWorkflow
	}
	return ""
}
