package cloudtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Values of a pod with an Azure identity.
const (
	azureTenant = "11111111-2222-3333-4444-555555555555"
	azureClient = "66666666-7777-8888-9999-000000000000"
	entraSecret = "s3cret-entra-token"
)

// NewAzure returns a cloud with a registry and the token service of Microsoft Entra at login
// (https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow,
// https://github.com/Azure/acr/blob/main/docs/AAD-OAuth.md).
func NewAzure(t testing.TB, host, login string) *Cloud {
	t.Helper()
	var c *Cloud
	c = newCloud(host, fmt.Sprintf("Bearer realm=%q,service=%q", "https://"+host+"/oauth2/token", host), func(r *http.Request) bool {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return c.isValid(token)
	})
	token := AccountToken("scanning", "scanner-operator-catalog")
	c.Env = map[string]string{
		"AZURE_CLIENT_ID": azureClient, "AZURE_TENANT_ID": azureTenant, "AZURE_FEDERATED_TOKEN_FILE": file(t, token),
		"AZURE_AUTHORITY_HOST": "https://" + login + "/",
	}
	entra := "https://" + login + "/" + azureTenant
	tokens := c.service(Entra+login, func(r *http.Request) string {
		return checkForm(r, map[string]string{
			"grant_type": "client_credentials", "client_id": azureClient, "scope": "https://containerregistry.azure.net/.default openid offline_access profile",
			"client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer", "client_assertion": token,
		})
	}, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"token_type": "Bearer", "expires_in": 3599, "access_token": entraSecret})
	})
	c.hosts["https://"+login] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/" + azureTenant + "/v2.0/.well-known/openid-configuration":
			writeJSON(w, http.StatusOK, map[string]string{
				"issuer": entra + "/v2.0", "authorization_endpoint": entra + "/oauth2/v2.0/authorize", "token_endpoint": entra + "/oauth2/v2.0/token",
			})
		case "/" + azureTenant + "/oauth2/v2.0/token":
			tokens(w, r)
		default:
			http.NotFound(w, r)
		}
	})
	c.serveExchanges(host)
	return c
}

// serveExchanges adds the token exchanges of Azure Container Registry to the registry.
func (c *Cloud) serveExchanges(host string) {
	images := c.hosts["https://"+host]
	exchange := c.service(Exchange+host, func(r *http.Request) string {
		return checkForm(r, map[string]string{"grant_type": "access_token", "service": host, "tenant": azureTenant, "access_token": entraSecret})
	}, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"refresh_token": c.issueJWT()})
	})
	c.hosts["https://"+host] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/oauth2/exchange":
			exchange(w, r)
		case "/oauth2/token":
			if c.RefusePulls || checkForm(r, map[string]string{"grant_type": "refresh_token", "service": host}) != "" || !c.isValid(r.PostFormValue("refresh_token")) {
				writeJSON(w, http.StatusUnauthorized, map[string]any{"errors": []any{map[string]string{"code": "UNAUTHORIZED", "message": "authentication required"}}})
				return
			}
			access, _ := c.issue("acr")
			writeJSON(w, http.StatusOK, map[string]string{"access_token": access})
		default:
			images.ServeHTTP(w, r)
		}
	})
}

// EntraError answers like Microsoft Entra with an error (RFC 6749, 5.2).
func EntraError(status int, code, description string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, status, map[string]string{"error": code, "error_description": description})
	}
}

// RegistryError answers like a registry with an error.
func RegistryError(status int, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, status, map[string]any{"errors": []any{map[string]string{"code": code, "message": message}}})
	}
}
