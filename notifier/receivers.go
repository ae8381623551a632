package notifier

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/url"

	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/notify"
)

// Receiver posts a message to an address, once, within its own deadline. The outcome never holds the address.
type Receiver interface {
	Post(ctx context.Context, address string, d notify.Digest) notify.Outcome
}

// Network is how receivers are reached.
type Network struct {
	// Roots are the certificates to trust, nil for the system's.
	Roots *x509.CertPool
	// Proxy says which proxy a request goes through, nil for none at all.
	Proxy func(*http.Request) (*url.URL, error)
}

// factories make the receiver of each type, by the name that a delivery has for it.
var factories = map[string]func(Network) Receiver{
	notify.ReceiverTypeSlack: func(n Network) Receiver { return slack.NewPoster(n.Roots, n.Proxy) },
}

// NewReceivers returns a receiver of each type.
func NewReceivers(n Network) map[string]Receiver {
	receivers := make(map[string]Receiver, len(factories))
	for kind, factory := range factories {
		receivers[kind] = factory(n)
	}
	return receivers
}
