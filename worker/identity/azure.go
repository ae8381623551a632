package identity

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/containers/azcontainerregistry"
	"github.com/google/go-containerregistry/pkg/authn"
)

// Variables that the webhook of Microsoft Entra Workload ID sets in pods
// (https://azure.github.io/azure-workload-identity/docs/installation/mutating-admission-webhook.html).
const (
	azureClient = "AZURE_CLIENT_ID"
	azureTenant = "AZURE_TENANT_ID"
	azureToken  = "AZURE_FEDERATED_TOKEN_FILE"
)

// issueAzure exchanges the pod's token for one of Microsoft Entra, and that for a refresh token of the registry
// (https://github.com/Azure/acr/blob/main/docs/AAD-OAuth.md).
func (i *Identity) issueAzure(ctx context.Context, host string) (credential, error) {
	transport := &statusKeeper{client: i.cloud}
	options := azcore.ClientOptions{
		Cloud: azureCloud(host), Transport: transport,
		Retry: policy.RetryOptions{MaxRetries: maxAttempts - 1, RetryDelay: min(time.Second, i.maxBackoff), MaxRetryDelay: i.maxBackoff},
	}
	token, err := i.entraToken(ctx, host, options, transport)
	if err != nil {
		return credential{}, err
	}
	client, err := azcontainerregistry.NewAuthenticationClient("https://"+host, &azcontainerregistry.AuthenticationClientOptions{ClientOptions: options})
	if err != nil {
		return credential{}, i.failure(answer{service: "the registry's token exchange", host: host}, err)
	}
	tenant := i.getenv(azureTenant)
	exchanged, err := client.ExchangeAADAccessTokenForACRRefreshToken(ctx, azcontainerregistry.PostContentSchemaGrantTypeAccessToken, host,
		&azcontainerregistry.AuthenticationClientExchangeAADAccessTokenForACRRefreshTokenOptions{AccessToken: &token, Tenant: &tenant})
	if err != nil {
		var refused *azcore.ResponseError
		a := answer{service: "the registry's token exchange", host: host, status: transport.status}
		if errors.As(err, &refused) {
			a = a.of(refused.RawResponse)
		}
		return credential{}, i.failure(a, err)
	}
	var claims struct {
		Expires int64 `json:"exp"`
	}
	if exchanged.RefreshToken == nil || decodeClaims(*exchanged.RefreshToken, &claims) != nil {
		return credential{}, errUnreadable("the registry's token exchange")
	}
	return credential{AuthConfig: authn.AuthConfig{IdentityToken: *exchanged.RefreshToken}, expires: time.Unix(claims.Expires, 0)}, nil
}

// entraToken requests an access token for registries with the pod's token
// (https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow#third-case-access-token-request-with-a-federated-credential).
func (i *Identity) entraToken(ctx context.Context, host string, options azcore.ClientOptions, transport *statusKeeper) (string, error) {
	if i.getenv(azureClient) == "" || i.getenv(azureTenant) == "" || i.getenv(azureToken) == "" {
		return "", i.missing("Azure", "annotate the ServiceAccount with azure.workload.identity/client-id, and let the webhook of Microsoft Entra Workload ID run")
	}
	file, err := i.tokenFile(azureToken)
	if err != nil {
		return "", err
	}
	entra, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		ClientOptions: options, ClientID: i.getenv(azureClient), TenantID: i.getenv(azureTenant), TokenFilePath: file,
		// The authority is one of those that azureCloud knows.
		DisableInstanceDiscovery: true,
	})
	if err != nil {
		return "", i.failure(answer{service: "Microsoft Entra", host: host}, err)
	}
	token, err := entra.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{options.Cloud.Services[azcontainerregistry.ServiceName].Audience + "/.default"}})
	if err != nil {
		var refused *azidentity.AuthenticationFailedError
		a := answer{service: "Microsoft Entra", host: host, status: transport.status}
		if errors.As(err, &refused) {
			a = a.of(refused.RawResponse)
		}
		return "", i.failure(a, err)
	}
	return token.Token, nil
}

// statusKeeper sends requests, one after the other, and keeps the status of the last answer; 0 if there was none. After an answer that the
// libraries cannot read, their errors have no response and quote it, with the token in it: only without any answer is an error's text shown.
type statusKeeper struct {
	client *http.Client
	status int
}

// Do implements policy.Transporter.
func (k *statusKeeper) Do(request *http.Request) (*http.Response, error) {
	k.status = 0
	response, err := k.client.Do(request) //nolint:gosec // the library has made it for one of the clouds
	if err == nil {
		k.status = response.StatusCode
	}
	return response, err
}

// azureCloud returns the cloud that a registry is in.
func azureCloud(host string) cloud.Configuration {
	switch {
	case strings.HasSuffix(host, ".azurecr.cn"):
		return cloud.AzureChina
	case strings.HasSuffix(host, ".azurecr.us"):
		return cloud.AzureGovernment
	}
	return cloud.AzurePublic
}

// of returns the answer with what a response says; unchanged without a response. The explanation is error_description of OAuth 2.0
// (RFC 6749, 5.2) or the first message of a registry's errors, up to the first line break: identifiers of the request follow it.
func (a answer) of(response *http.Response) answer {
	if response == nil {
		return a
	}
	a.status, a.detail = response.StatusCode, http.StatusText(response.StatusCode)
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		// Bounded before the conversion, since a large number of seconds overflows a Duration.
		a.retryAfter = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	}
	var body struct {
		Description string `json:"error_description"`
		Errors      []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	payload, err := runtime.Payload(response)
	if err != nil || json.Unmarshal(payload, &body) != nil {
		return a
	}
	if len(body.Errors) > 0 && body.Errors[0].Message != "" {
		a.detail = body.Errors[0].Message
	}
	if first, _, _ := strings.Cut(body.Description, "\n"); first != "" {
		a.detail = strings.TrimSpace(first)
	}
	return a
}

// maxRetryAfter bounds the wait that a token service can ask for.
const maxRetryAfter = 24 * time.Hour
