// Package receiver sends requests to receivers over HTTP, and reports honestly what became of each. The types of receivers share it: each of
// them only renders messages and knows its receiver's own words.
//
// A receiver gets requests only at the addresses that package egress allows. Redirects are not followed, since that would send the secrets of
// a receiver to another server. The package knows nothing about Kubernetes, retries, or what is new.
package receiver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/egress"
)

// Address is what a receiver's Secret holds: where to send, and with which credentials. All of it is secret.
type Address struct {
	// Target is the URL of a webhook or a tool.
	Target egress.Target
	// Token is the bot token of a Slack app, the key that signs the requests to a webhook, the API key of a tool, or the password of Username;
	// empty for none.
	Token string
	// Username is the user of a mail server; empty for none.
	Username string
	// IsAccessToken means that Token is the user's access token of OAuth 2.0, and no password.
	IsAccessToken bool
	// Client gets the access token; nil if Token is one already.
	Client *ClientCredentials
	// Headers are sent with each request to a webhook.
	Headers map[string]string
	// Certificates are the receiver's own.
	Certificates Certificates
}

// ClientCredentials are those with which a token server gives access tokens (https://www.rfc-editor.org/rfc/rfc6749#section-4.4).
type ClientCredentials struct {
	Server            egress.Target
	ID, Secret, Scope string
}

// Key identifies the address with its credentials and certificates without showing them, for limits of the rate. A server that slows down one sender to a URL may
// accept another: whoever knows the URL must not stop the messages of others to it.
func (a Address) Key() string {
	sum := sha256.New()
	for _, secret := range append(a.Secrets(), slices.Concat([]string{a.Username}, slices.Sorted(maps.Keys(a.Headers)))...) {
		fmt.Fprintf(sum, "%q\n", secret)
	}
	if a.Client != nil {
		fmt.Fprintf(sum, "%q %q\n", a.Client.ID, a.Client.Scope)
	}
	a.Certificates.identify(sum)
	return hex.EncodeToString(sum.Sum(nil))
}

// Secrets returns the texts that must not be shown.
func (a Address) Secrets() []string {
	secrets := []string{a.Target.URL(), a.Token}
	if a.Client != nil {
		secrets = append(secrets, a.Client.Server.URL(), a.Client.Secret)
	}
	return append(secrets, slices.Sorted(maps.Values(a.Headers))...)
}

// IsLink reports whether messages may have an address of somebody else's as a link: an https URL with a host, without credentials, and without
// characters that end a link early somewhere.
func IsLink(address string) bool {
	for _, r := range address {
		if r <= ' ' || r > '~' || strings.ContainsRune("<>|\"`\\", r) {
			return false
		}
	}
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil
}
