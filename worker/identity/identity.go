package identity

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Bounds of requests for credentials.
const (
	// renewBefore is how long before its expiry a credential is renewed. GKE's metadata server returns the same token until five minutes
	// before it expires, so that a longer time would request it again and again.
	renewBefore = time.Minute
	// issueTimeout bounds all requests for one credential together.
	issueTimeout = 30 * time.Second
	// maxAttempts is how often a request is sent, and maxBackoff the longest wait between two attempts. The manager retries the image later.
	maxAttempts = 3
	maxBackoff  = 5 * time.Second
	// maxDetail bounds what a message quotes of an answer, in bytes.
	maxDetail = 300
	// localTimeout is how long an endpoint on the pod's node may take to accept a connection.
	localTimeout = 2 * time.Second
)

// documentation describes how to give an identity to a ServiceAccount.
const documentation = "https://github.com/scanner-operator/scanner-operator/blob/main/docs/operate/cloud-registries.md"

// Options configure an Identity.
type Options struct {
	// Account is the ServiceAccount of the pod.
	Account Account
	// Getenv reads the variables that the clouds' admission webhooks set in the pod.
	Getenv func(string) string
	Now    func() time.Time
	Log    *slog.Logger
	// Transport replaces the network in tests; nil for the network. MaxBackoff is the longest wait between two attempts; 0 for 5 seconds.
	Transport  http.RoundTripper
	MaxBackoff time.Duration
}

// Identity is the cloud identity of the pod. It is safe for concurrent use.
type Identity struct {
	account Account
	getenv  func(string) string
	now     func() time.Time
	log     *slog.Logger
	// cloud sends requests to the clouds' APIs, and local to the endpoints on the pod's node.
	cloud, local *http.Client
	maxBackoff   time.Duration

	mu sync.Mutex
	// credentials holds the last credential of each registry's host.
	credentials map[string]credential
}

var _ registry.Identity = (*Identity)(nil)

// credential is a credential for one registry.
type credential struct {
	authn.AuthConfig
	expires time.Time
}

// issuers request a credential for a registry's host, by provider: registry.Validate accepts no other. Errors are *failure.Error.
var issuers = map[string]func(i *Identity, ctx context.Context, host string) (credential, error){
	workerapi.ProviderAWS:   (*Identity).issueAWS,
	workerapi.ProviderGCP:   (*Identity).issueGCP,
	workerapi.ProviderAzure: (*Identity).issueAzure,
}

// New returns the identity of the pod.
func New(o Options) (*Identity, error) {
	i := &Identity{
		account: o.Account, getenv: o.Getenv, now: o.Now, log: o.Log, maxBackoff: cmp.Or(o.MaxBackoff, maxBackoff), credentials: map[string]credential{},
	}
	cloud, local := o.Transport, o.Transport
	if cloud == nil {
		var err error
		// Without registries, it trusts the well-known authorities only. It takes the proxy from the environment.
		if cloud, err = registry.NewTransport(nil); err != nil {
			return nil, err
		}
		local = &http.Transport{DialContext: (&net.Dialer{Timeout: localTimeout}).DialContext}
	}
	i.cloud, i.local = &http.Client{Transport: cloud, CheckRedirect: refuseRedirect}, &http.Client{Transport: local, CheckRedirect: refuseRedirect}
	return i, nil
}

// refuseRedirect makes a redirect the answer. The clouds' APIs send none, and another host must not get a token.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// String implements registry.Identity.
func (i *Identity) String() string { return i.account.String() }

// Credential implements registry.Identity.
func (i *Identity) Credential(ctx context.Context, target workerapi.Registry) (authn.AuthConfig, error) {
	host := workerapi.CanonicalHost(target.Host)
	i.mu.Lock()
	defer i.mu.Unlock()
	if known, found := i.credentials[host]; found && i.now().Before(known.expires.Add(-renewBefore)) {
		return known.AuthConfig, nil
	}
	ctx, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	issued, err := issuers[target.Provider](i, ctx, host)
	if err != nil {
		return authn.AuthConfig{}, err
	}
	i.log.Info("the identity has a credential", "registry", host, "provider", target.Provider, "identity", i.String(), "expires", issued.expires.UTC().Format(time.RFC3339))
	i.credentials[host] = issued
	return issued.AuthConfig, nil
}

// missing returns the failure of a pod without an identity of a cloud. advice says what gives it one.
func (i *Identity) missing(cloud, advice string) error {
	return failure.New(workerapi.ReasonIdentityMissing, fmt.Errorf("the pod of %s has no identity of %s: %s (%s)", i.account, cloud, advice, documentation))
}

// tokenFile returns the path in a variable. The file, which the kubelet renews, must be readable.
func (i *Identity) tokenFile(variable string) (string, error) {
	path := i.getenv(variable)
	if _, err := os.ReadFile(path); err != nil {
		return "", failure.New(workerapi.ReasonIdentityMissing, fmt.Errorf("the token of %s in %s cannot be read: %w", i.account, variable, err))
	}
	return path, nil
}

// answer is what a token service answered to a request that failed.
type answer struct {
	// service is the name of the service, and host the registry that the credential is for.
	service, host string
	// status is the HTTP status; 0 if there was no answer. throttled is true if the service limits the rate, for retryAfter at least.
	status     int
	throttled  bool
	retryAfter time.Duration
	// detail is the service's own explanation, without a token.
	detail string
}

// failure returns the failure for an answer. cause is the error of the request.
func (i *Identity) failure(a answer, cause error) error {
	a.detail = text.Truncate(cmp.Or(a.detail, http.StatusText(a.status)), maxDetail)
	switch {
	case a.throttled || a.status == http.StatusTooManyRequests:
		return &failure.Error{
			Reason: workerapi.ReasonRegistryThrottled, Registry: a.host, RetryAfter: a.retryAfter,
			Err: fmt.Errorf("%s limits the rate of requests for tokens: %s", a.service, a.detail),
		}
	case a.status == 0:
		return failure.New(workerapi.ReasonRegistryUnavail, fmt.Errorf("%s does not answer: %w", a.service, cause))
	case a.status < http.StatusBadRequest:
		// Nothing was refused: something else answers in the service's place, or redirects. Its text is no explanation.
		return failure.New(workerapi.ReasonRegistryUnavail, fmt.Errorf("%s answers with status %d and without a credential: is there a proxy in between?", a.service, a.status))
	case a.status >= http.StatusInternalServerError:
		return failure.New(workerapi.ReasonRegistryUnavail, fmt.Errorf("%s answers with status %d: %s", a.service, a.status, a.detail))
	}
	return failure.New(workerapi.ReasonUnauthorized, fmt.Errorf("%s refuses %s: %s (%s)", a.service, i.account, a.detail, documentation))
}
