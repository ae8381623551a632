package registry

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Identity is a cloud's workload identity. It pulls from the registries for which the configuration names a provider.
type Identity interface {
	// Credential returns a credential that is valid now. It is called for each request to the registry, and requests a new credential only
	// if the last one is about to expire. Errors are *failure.Error.
	Credential(ctx context.Context, registry workerapi.Registry) (authn.AuthConfig, error)
	// String names the identity in messages, such as "ServiceAccount shop/scanner-operator-catalog".
	String() string
}

// identityLogin authenticates at one registry by an identity. It implements authn.ContextAuthenticator, which the client library calls again
// when a registry does not accept its token any more: tokens expire in the middle of long pulls.
type identityLogin struct {
	identity Identity
	registry workerapi.Registry
}

// Authorization implements authn.Authenticator.
func (l *identityLogin) Authorization() (*authn.AuthConfig, error) {
	return l.AuthorizationContext(context.Background())
}

// AuthorizationContext implements authn.ContextAuthenticator.
func (l *identityLogin) AuthorizationContext(ctx context.Context) (*authn.AuthConfig, error) {
	config, err := l.identity.Credential(ctx, l.registry)
	if err != nil {
		return nil, err
	}
	return &config, nil
}

// String names the identity and its cloud.
func (l *identityLogin) String() string {
	return fmt.Sprintf("the %s identity of %s", l.registry.Provider, l.identity)
}

// identityLogin returns the login by the Puller's identity at a registry; nil without an identity, or without a provider.
func (p *Puller) identityLogin(repository name.Repository) *identityLogin {
	registry := hostsOf(p.Registries).configFor(repository.RegistryStr())
	if p.Identity == nil || registry.Provider == "" {
		return nil
	}
	return &identityLogin{identity: p.Identity, registry: registry}
}

// pullPermissions are what an identity needs to pull, by provider:
// https://docs.aws.amazon.com/AmazonECR/latest/userguide/repository-policy-examples.html,
// https://docs.cloud.google.com/artifact-registry/docs/access-control,
// https://learn.microsoft.com/azure/container-registry/container-registry-rbac-built-in-roles-overview.
var pullPermissions = map[string]string{
	workerapi.ProviderAWS:   "ecr:BatchGetImage and ecr:GetDownloadUrlForLayer",
	workerapi.ProviderGCP:   "roles/artifactregistry.reader",
	workerapi.ProviderAzure: "AcrPull, or Container Registry Repository Reader",
}
