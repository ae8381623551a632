package notifier

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/url"

	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Receiver posts a message, once, within its own deadline. The secret is what the receiver's Secret holds: the address of a webhook, or a token.
// The outcome never contains the secret.
type Receiver interface {
	Post(ctx context.Context, secret string, d announce.Delivery) announce.Outcome
}

// Network holds the network settings for requests to receivers.
type Network struct {
	// Roots are the CA certificates to trust; nil for the system's.
	Roots *x509.CertPool
	// Proxy returns the proxy for a request; nil to use no proxy at all.
	Proxy func(*http.Request) (*url.URL, error)
	// SlackAPI is the address of Slack's Web API. The tokens of Slack apps are sent there and nowhere else.
	SlackAPI string
}

// factories create the receivers, by announce.ReceiverRef.Type.
var factories = map[string]func(Network) Receiver{
	announce.ReceiverTypeSlack:    func(n Network) Receiver { return slack.NewPoster(n.Roots, n.Proxy) },
	announce.ReceiverTypeSlackApp: func(n Network) Receiver { return slack.NewApp(n.Roots, n.Proxy, n.SlackAPI) },
}

// NewReceivers returns one receiver of each type, by announce.ReceiverRef.Type.
func NewReceivers(n Network) map[string]Receiver {
	receivers := make(map[string]Receiver, len(factories))
	for kind, factory := range factories {
		receivers[kind] = factory(n)
	}
	return receivers
}
