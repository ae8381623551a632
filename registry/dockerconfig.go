package registry

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// dockerConfigs are the keys of a pull secret's data. A Secret has one type, and with it one of the two keys
// (https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets).
var dockerConfigs = []string{".dockerconfigjson", ".dockercfg"}

// secretName matches valid names of Secrets
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names).
// The API server accepts any text as the name of a pod's pull secret.
var secretName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// parseSecret returns the credentials in the data of a Secret.
func parseSecret(secret string, data map[string][]byte) Credentials {
	for _, key := range dockerConfigs {
		if raw, found := data[key]; found {
			return parseConfig(secret, key, raw)
		}
	}
	if !secretName.MatchString(secret) {
		return unusableSecret(secret, "not a name of a Secret")
	}
	if len(data) == 0 {
		return unusableSecret(secret, "missing or empty")
	}
	return unusableSecret(secret, "it has neither "+strings.Join(dockerConfigs, " nor "))
}

// parseConfig decodes both formats: the older .dockercfg is the "auths" object of the newer one. An unreadable entry
// does not affect the other entries.
func parseConfig(secret, file string, raw []byte) Credentials {
	config := struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}{}
	var into any = &config
	if file == ".dockercfg" {
		into = &config.Auths
	}
	// The decoder's own errors may quote the value that it could not read, so they are not passed on.
	if json.Unmarshal(raw, into) != nil {
		return unusableSecret(secret, file+" is not valid JSON of a Docker configuration")
	}
	if len(config.Auths) == 0 {
		return unusableSecret(secret, file+" holds no credentials")
	}
	var found Credentials
	// Maps have no order: the same Secret must always lead to the same attempts.
	for _, key := range slices.Sorted(maps.Keys(config.Auths)) {
		to := splitKey(key)
		var auth authn.AuthConfig
		if to.host == "" || json.Unmarshal(config.Auths[key], &auth) != nil || !complete(auth) {
			found.unusable = append(found.unusable, unusableEntry{target: to, secret: secret, problem: "an entry of " + file + " has no readable credentials"})
			continue
		}
		found.entries = append(found.entries, Credential{target: to, secret: secret, auth: auth})
	}
	return found
}

// complete reports whether a credential can be used: it has user and password (in one field, "auth", or two), a refresh
// token ("identitytoken"), or an access token ("registrytoken")
// (https://github.com/docker/cli/blob/v29.0.0/cli/config/types/authconfig.go).
func complete(auth authn.AuthConfig) bool {
	return auth.Username != "" && auth.Password != "" || auth.IdentityToken != "" || auth.RegistryToken != ""
}

// splitKey splits a key of "auths" into host and path. Registries are written with or without scheme, API version and
// path, and Docker Hub has several names.
func splitKey(key string) target {
	key = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(key), "https://"), "http://")
	host, prefix, _ := strings.Cut(key, "/")
	// A user in the address is no part of the host. Messages name the host, and must not name a password.
	host = host[strings.LastIndex(host, "@")+1:]
	// The API version is not part of a repository.
	if version, rest, _ := strings.Cut(prefix, "/"); version == "v1" || version == "v2" {
		prefix = rest
	}
	return target{host: workerapi.CanonicalHost(host), path: strings.Trim(prefix, "/")}
}
