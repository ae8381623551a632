package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/compute/metadata"
	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// issueGCP requests an access token from the metadata server on the pod's node
// (https://docs.cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#metadata_server). Registries take it as the password of
// oauth2accesstoken (https://docs.cloud.google.com/artifact-registry/docs/docker/authentication#token).
func (i *Identity) issueGCP(ctx context.Context, host string) (credential, error) {
	requestedAt := i.now()
	raw, err := metadata.NewClient(i.local).GetWithContext(ctx, "instance/service-accounts/default/token")
	if err != nil {
		return credential{}, i.gcpFailure(host, err)
	}
	var token struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
	}
	if err := json.Unmarshal([]byte(raw), &token); err != nil || token.AccessToken == "" {
		return credential{}, errUnreadable("the metadata server")
	}
	return credential{
		AuthConfig: authn.AuthConfig{Username: "oauth2accesstoken", Password: token.AccessToken},
		expires:    requestedAt.Add(time.Duration(token.ExpiresIn) * time.Second),
	}, nil
}

// gcpFailure returns the failure for an error of the metadata server. A node without the server is not one of GKE, or a network policy does
// not allow it.
func (i *Identity) gcpFailure(host string, err error) error {
	const advice = "enable Workload Identity Federation for the node pool, annotate the ServiceAccount with iam.gke.io/gcp-service-account " +
		"or let it read the repository itself, and let network policies allow the metadata server"
	var refused *metadata.Error
	var undefined metadata.NotDefinedError
	switch {
	case errors.As(err, &undefined):
		return i.missing("Google Cloud", advice)
	case errors.As(err, &refused):
		return i.failure(answer{service: "the metadata server", host: host, status: refused.Code, detail: refused.Message}, err)
	}
	return failure.New(workerapi.ReasonIdentityMissing, fmt.Errorf("the pod of %s reaches no metadata server: %s (%s): %w", i.account, advice, documentation, err))
}
