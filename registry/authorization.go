package registry

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Authorization is what a registry wants to see in requests for the layers of a repository. No formatting shows it.
type Authorization struct {
	// header is the value of the HTTP header; empty if everybody is let in.
	header string
	// Expires is when the registry stops to accept it; zero if no end is known.
	Expires time.Time
}

// presented is the authorization by a credential itself.
func presented(config authn.AuthConfig) Authorization {
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

// Header returns the HTTP headers to send; none if everybody is let in. They are secret.
func (a Authorization) Header() http.Header {
	if a.header == "" {
		return nil
	}
	return http.Header{"Authorization": {a.header}}
}

// String says that there is something.
func (a Authorization) String() string {
	if a.header == "" {
		return "none"
	}
	return "…"
}

// Format implements fmt.Formatter: whatever is asked for, the content stays out.
func (a Authorization) Format(f fmt.State, _ rune) { fmt.Fprint(f, a.String()) }

// LogValue implements slog.LogValuer.
func (a Authorization) LogValue() slog.Value { return slog.StringValue(a.String()) }
