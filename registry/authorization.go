package registry

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Authorization is the value that a registry requires in requests for the layers of a repository. Neither formatting nor logging
// shows its content.
type Authorization struct {
	// header is the value of the Authorization header; empty if the registry allows anonymous pulls.
	header string
	// Expires is when the registry stops accepting the authorization; zero if no expiry is known.
	Expires time.Time
}

// credentialAuthorization returns the authorization that sends a credential itself, without a token.
func credentialAuthorization(config authn.AuthConfig) Authorization {
	switch {
	case config.RegistryToken != "":
		return Authorization{header: "Bearer " + config.RegistryToken}
	case config.Username != "" && config.Password != "":
		request := http.Request{Header: http.Header{}}
		request.SetBasicAuth(config.Username, config.Password)
		return Authorization{header: request.Header.Get("Authorization")}
	}
	return Authorization{}
}

// Header returns the HTTP headers to send; nil if the registry allows anonymous pulls. The headers are secret.
func (a Authorization) Header() http.Header {
	if a.header == "" {
		return nil
	}
	return http.Header{"Authorization": {a.header}}
}

// String returns a placeholder instead of the content, and "none" for an empty authorization.
func (a Authorization) String() string {
	if a.header == "" {
		return "none"
	}
	return "…"
}

// Format implements fmt.Formatter. It hides the content from every verb.
func (a Authorization) Format(f fmt.State, _ rune) { fmt.Fprint(f, a.String()) }

// LogValue implements slog.LogValuer.
func (a Authorization) LogValue() slog.Value { return slog.StringValue(a.String()) }
