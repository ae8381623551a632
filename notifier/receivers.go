package notifier

import (
	"context"

	"github.com/scanner-operator/scanner-operator/notifier/alertmanager"
	"github.com/scanner-operator/scanner-operator/notifier/defectdojo"
	"github.com/scanner-operator/scanner-operator/notifier/dependencytrack"
	"github.com/scanner-operator/scanner-operator/notifier/email"
	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/notifier/teams"
	"github.com/scanner-operator/scanner-operator/notifier/webhook"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
)

// Receiver posts a message, once, within its own deadline. The address is secret, and the outcome contains nothing of it.
type Receiver interface {
	Post(ctx context.Context, to receiver.Address, d announce.Delivery) announce.Outcome
}

// Exporter sends a document to a tool, once, within its own deadline. The address is secret, and the outcome contains nothing of it.
type Exporter interface {
	Export(ctx context.Context, to receiver.Address, r export.Request) announce.Outcome
}

// Network holds the network settings for requests to receivers.
type Network struct {
	receiver.Network
	// SlackAPI is the address of Slack's Web API. The tokens of Slack apps are sent there and nowhere else.
	SlackAPI string
	// SlackDirectMessages is true where Slack apps may post to persons.
	SlackDirectMessages bool
}

// factories create the receivers, by announce.ReceiverRef.Type.
var factories = map[string]func(Network) Receiver{
	announce.ReceiverTypeAlertmanager: func(n Network) Receiver { return alertmanager.NewPoster(n.Network) },
	announce.ReceiverTypeSlack:        func(n Network) Receiver { return slack.NewPoster(n.Network) },
	announce.ReceiverTypeSlackApp:     func(n Network) Receiver { return slack.NewApp(n.Network, n.SlackAPI, n.SlackDirectMessages) },
	announce.ReceiverTypeWebhook:      func(n Network) Receiver { return webhook.NewPoster(n.Network) },
	announce.ReceiverTypeTeams:        func(n Network) Receiver { return teams.NewPoster(n.Network) },
	announce.ReceiverTypeEmail:        func(n Network) Receiver { return email.NewPoster(n.Network) },
}

// NewReceivers returns one receiver of each type, by announce.ReceiverRef.Type.
func NewReceivers(n Network) map[string]Receiver {
	receivers := make(map[string]Receiver, len(factories))
	for kind, factory := range factories {
		receivers[kind] = factory(n)
	}
	return receivers
}

// NewExporters returns an exporter for each type of tool, by announce.ReceiverRef.Type.
func NewExporters(n Network) map[string]Exporter {
	return map[string]Exporter{
		export.TypeDefectDojo:      defectdojo.NewExporter(n.Network),
		export.TypeDependencyTrack: dependencytrack.NewExporter(n.Network),
	}
}
