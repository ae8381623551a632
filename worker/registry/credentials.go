package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// maxSecretBytes bounds one credentials file: a Kubernetes Secret holds at most 1 MiB.
const maxSecretBytes = 1 << 20

// Credential is one entry of a pull secret.
type Credential struct {
	// host that the credential is for, with its port if the entry has one; its labels may hold wildcards.
	host string
	// path is the repository prefix that the credential is for; empty for the whole registry.
	path string
	// auth is what is presented. It must never reach a log.
	auth authn.AuthConfig
}

// Credentials are the entries of all pull secrets.
type Credentials []Credential

// LoadCredentials reads the pull secrets below dir: one directory for each, with a .dockerconfigjson or a
// .dockercfg file in it (https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets).
// A missing, empty or unreadable secret is said in the log, without its content, and otherwise ignored, as
// the kubelet does: the image may be public, or another secret may fit.
func LoadCredentials(dir string, log *slog.Logger) (Credentials, error) {
	secrets, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading pull secrets: %w", err)
	}
	var all Credentials
	for _, secret := range secrets {
		if !isDir(filepath.Join(dir, secret.Name())) {
			continue
		}
		found, err := loadSecret(filepath.Join(dir, secret.Name()))
		if err != nil {
			log.Warn("pull secret is not usable, or not all of it", "secret", secret.Name(), "problem", err)
		}
		log.Info("pull secret read", "secret", secret.Name(), "credentials", len(found))
		all = append(all, found...)
	}
	return all, nil
}

// isDir follows symbolic links: that is what Secret volumes are made of.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// loadSecret reads one mounted Secret. Its errors say what is wrong but never quote the content.
func loadSecret(dir string) (Credentials, error) {
	// A Secret has one type, and with it one of the two keys.
	for _, file := range []string{".dockerconfigjson", ".dockercfg"} {
		raw, err := readBounded(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return parseSecret(file, raw)
	}
	return nil, errors.New("it is missing, or has neither .dockerconfigjson nor .dockercfg")
}

// readBounded reads a file that is at most as large as a Secret can be.
func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxSecretBytes {
		return nil, fmt.Errorf("%s is larger than a Secret can be", filepath.Base(file))
	}
	return raw, nil
}

// parseSecret decodes both formats: the older .dockercfg is the "auths" object of the newer one. Entries
// that cannot be read do not spoil the others.
func parseSecret(file string, raw []byte) (Credentials, error) {
	config := struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}{}
	var target any = &config
	if file == ".dockercfg" {
		target = &config.Auths
	}
	// The decoder's own errors may quote the value that it could not read: they are not passed on.
	if json.Unmarshal(raw, target) != nil {
		return nil, fmt.Errorf("%s is not valid JSON of a Docker configuration", file)
	}
	var found Credentials
	for key, entry := range config.Auths {
		host, prefix := splitKey(key)
		var auth authn.AuthConfig
		if host != "" && json.Unmarshal(entry, &auth) == nil && auth != (authn.AuthConfig{}) {
			found = append(found, Credential{host: host, path: prefix, auth: auth})
		}
	}
	// Maps have no order: the same secret must always lead to the same attempts.
	slices.SortFunc(found, func(a, b Credential) int { return strings.Compare(a.host+"/"+a.path, b.host+"/"+b.path) })
	if bad := len(config.Auths) - len(found); bad > 0 || len(found) == 0 {
		return found, fmt.Errorf("%d of its %d entries have no readable credentials", bad, len(config.Auths))
	}
	return found, nil
}

// splitKey takes a key of "auths" apart: registries are written with or without scheme, API version and
// path, and Docker Hub under several names.
func splitKey(key string) (host, prefix string) {
	key = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(key), "https://"), "http://")
	host, prefix, _ = strings.Cut(key, "/")
	prefix = strings.Trim(prefix, "/")
	if prefix == "v1" || prefix == "v2" {
		prefix = ""
	}
	// The client library calls Docker Hub by its long name, and so do most secrets.
	switch host {
	case "docker.io", "registry-1.docker.io", "www.docker.com", name.DefaultRegistry:
		host = name.DefaultRegistry
	}
	return host, prefix
}

// For returns the credentials for a repository, those that name it most precisely first.
func (c Credentials) For(repository name.Repository) []authn.Authenticator {
	var fitting Credentials
	for _, credential := range c {
		if credential.fits(repository) {
			fitting = append(fitting, credential)
		}
	}
	slices.SortStableFunc(fitting, func(a, b Credential) int { return len(b.path) - len(a.path) })
	var auths []authn.Authenticator
	for _, credential := range fitting {
		auths = append(auths, authn.FromConfig(credential.auth))
	}
	return auths
}

// fits follows the kubelet's rules: host labels match one by one, wildcards do not span labels, the port
// must be the same, the path must be a prefix
// (https://kubernetes.io/docs/concepts/containers/images/#config-json).
func (c Credential) fits(repository name.Repository) bool {
	wantHost, wantPort, _ := strings.Cut(repository.RegistryStr(), ":")
	host, port, _ := strings.Cut(c.host, ":")
	if port != wantPort {
		return false
	}
	labels, wantLabels := strings.Split(host, "."), strings.Split(wantHost, ".")
	if len(labels) != len(wantLabels) {
		return false
	}
	for i := range labels {
		if ok, err := path.Match(labels[i], wantLabels[i]); err != nil || !ok {
			return false
		}
	}
	// A prefix ends at a slash here: a credential for team/a is not one for team/abc.
	repo := repository.RepositoryStr()
	return c.path == "" || repo == c.path || strings.HasPrefix(repo, c.path+"/")
}
