package cloudtest

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// metadataURL is the address of the metadata server.
const metadataURL = "http://169.254.169.254"

// NewGCP returns a cloud with a registry and the metadata server of GKE
// (https://docs.cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#metadata_server).
func NewGCP(host string) *Cloud {
	var c *Cloud
	c = newCloud(host, fmt.Sprintf("Bearer realm=%q,service=%q", "https://"+host+"/v2/token", host), func(r *http.Request) bool {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return c.isValid(token)
	})
	images := c.hosts["https://"+host]
	c.hosts["https://"+host] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/token" {
			images.ServeHTTP(w, r)
			return
		}
		user, token, _ := r.BasicAuth()
		if c.RefusePulls || user != "oauth2accesstoken" || !c.isValid(token) {
			writeJSON(w, http.StatusForbidden, map[string]any{"errors": []any{map[string]string{"code": "DENIED", "message": "permission denied"}}})
			return
		}
		writeJSON(w, http.StatusOK, map[string]string{"token": token})
	})
	c.hosts[metadataURL] = c.service(MetadataToken, func(r *http.Request) string {
		if r.URL.Path != "/computeMetadata/v1/instance/service-accounts/default/token" || r.Header.Get("Metadata-Flavor") != "Google" {
			return "it is not for the token of the default account with Metadata-Flavor: Google"
		}
		return ""
	}, func(w http.ResponseWriter, _ *http.Request) {
		token, expires := c.issue("google")
		writeJSON(w, http.StatusOK, map[string]any{"access_token": token, "expires_in": int(expires.Sub(c.Now()) / time.Second), "token_type": "Bearer"})
	})
	return c
}

// RemoveMetadataServer makes the metadata server unreachable, as on nodes of other clouds.
func (c *Cloud) RemoveMetadataServer() { delete(c.hosts, metadataURL) }
