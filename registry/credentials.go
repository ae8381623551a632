package registry

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// maxSecretBytes bounds one credentials file: a Kubernetes Secret holds at most 1 MiB.
const maxSecretBytes = 1 << 20

// target is the registry, and optionally the repository prefix, that an entry of a pull secret is for.
type target struct {
	// host of the registry, with its port if the entry has one; its labels may hold wildcards.
	host string
	// path is the repository prefix; empty for the whole registry.
	path string
}

// Credential is one entry of a pull secret.
type Credential struct {
	target
	// secret is the name of the Secret that holds the entry.
	secret string
	// auth is the credential itself. It must never reach a log.
	auth authn.AuthConfig
}

// Authorization implements authn.Authenticator.
func (c Credential) Authorization() (*authn.AuthConfig, error) { return &c.auth, nil }

// Format implements fmt.Formatter. It hides the content from every verb.
func (c Credential) Format(f fmt.State, _ rune) { fmt.Fprint(f, c.String()) }

// String names the credential without its content.
func (c Credential) String() string {
	return fmt.Sprintf("%q for %s", c.secret, strings.TrimSuffix(workerapi.CanonicalHost(c.host)+"/"+c.path, "/"))
}

// unusableEntry is a pull secret, or an entry of one, that cannot be used.
type unusableEntry struct {
	// target of the entry. Its host is empty when the whole Secret is unusable, which may be for any registry.
	target
	secret string
	// problem describes the cause without quoting any content.
	problem string
}

// unusableSecret returns the result for a Secret that cannot be used at all.
func unusableSecret(secret, problem string) Credentials {
	return Credentials{unusable: []unusableEntry{{secret: secret, problem: problem}}}
}

// Credentials are the entries of all pull secrets. Formatting shows only how many there are.
type Credentials struct {
	entries  []Credential
	unusable []unusableEntry
}

// Format implements fmt.Formatter.
func (c Credentials) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "%d credentials", len(c.entries)) }

// LoadCredentials reads the pull secrets below dir: one directory for each, named like the Secret, with a
// .dockerconfigjson or a .dockercfg file in it (https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets).
// A missing, empty or unreadable Secret is not an error, as it is none for the kubelet: the image may be public, or
// another Secret may fit. Such a Secret is kept for the message about a registry that requires credentials.
func LoadCredentials(dir string, log *slog.Logger) (Credentials, error) {
	secrets, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Credentials{}, nil
	}
	if err != nil {
		return Credentials{}, fmt.Errorf("reading pull secrets: %w", err)
	}
	var all Credentials
	for _, secret := range secrets {
		if dir := filepath.Join(dir, secret.Name()); isDir(dir) {
			all.add(loadSecret(dir), secret.Name(), log)
		}
	}
	return all, nil
}

// ParseCredentials reads pull secrets that are in memory. secrets maps the name of each Secret to its data, as the API server
// returns it. A Secret without data counts as missing. A missing or unreadable Secret is kept as in LoadCredentials.
func ParseCredentials(secrets map[string]map[string][]byte, log *slog.Logger) Credentials {
	var all Credentials
	// The order is sorted so that the same Secrets always lead to the same attempts.
	for _, secret := range slices.Sorted(maps.Keys(secrets)) {
		all.add(parseSecret(secret, secrets[secret]), secret, log)
	}
	return all
}

// add appends the credentials that were found in a Secret, and logs their number and what is unusable.
func (c *Credentials) add(found Credentials, secret string, log *slog.Logger) {
	for _, u := range found.unusable {
		log.Warn("pull secret is not usable, or only a part of it", "secret", u.secret, "problem", u.problem)
	}
	log.Info("pull secret read", "secret", secret, "credentials", len(found.entries))
	c.entries = append(c.entries, found.entries...)
	c.unusable = append(c.unusable, found.unusable...)
}

// isDir follows symbolic links, since Secret volumes consist of them.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// loadSecret reads one mounted Secret.
func loadSecret(dir string) Credentials {
	secret, data := filepath.Base(dir), map[string][]byte{}
	keys, err := os.ReadDir(dir)
	if err != nil {
		return unusableSecret(secret, "it cannot be read: "+err.Error())
	}
	for _, key := range keys {
		switch {
		case strings.HasPrefix(key.Name(), ".."): // entries that the kubelet manages
			continue
		case slices.Contains(dockerConfigs, key.Name()):
			if data[key.Name()], err = readBounded(filepath.Join(dir, key.Name())); err != nil {
				return unusableSecret(secret, key.Name()+" cannot be read: "+err.Error())
			}
		default:
			data[key.Name()] = nil // the key shows that the Secret is not empty; its value is not read
		}
	}
	return parseSecret(secret, data)
}

// readBounded reads a file. A file that is larger than a Secret can be is an error.
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
		return nil, errors.New("it is larger than a Secret can be")
	}
	return raw, nil
}

// For returns the credentials for a repository, those with the longest path prefix first.
func (c Credentials) For(repository name.Repository) []Credential {
	var fitting []Credential
	for _, credential := range c.entries {
		if credential.fits(repository) {
			fitting = append(fitting, credential)
		}
	}
	slices.SortStableFunc(fitting, func(a, b Credential) int { return len(b.path) - len(a.path) })
	return fitting
}

// unusableFor returns the unusable Secrets and entries that may be for a repository.
func (c Credentials) unusableFor(repository name.Repository) []unusableEntry {
	var perhaps []unusableEntry
	for _, u := range c.unusable {
		if u.host == "" || u.fits(repository) {
			perhaps = append(perhaps, u)
		}
	}
	return perhaps
}

// fits reports whether the target covers a repository. It follows the kubelet's rules: host labels match one by one, wildcards do
// not span labels, the port must be the same, the path must be a prefix
// (https://kubernetes.io/docs/concepts/containers/images/#config-json).
func (t target) fits(repository name.Repository) bool {
	host, port := splitHost(t.host)
	wantHost, wantPort := splitHost(workerapi.CanonicalHost(repository.RegistryStr()))
	// Like the kubelet, also compare a wildcard with index.docker.io, the client library's name for Docker Hub.
	fullHost, _ := splitHost(repository.RegistryStr())
	if host == "" || port != wantPort || !matchHost(host, wantHost) && !matchHost(host, fullHost) {
		return false
	}
	// A prefix ends at a slash here: a credential for team/a is not one for team/abc.
	repo := repository.RepositoryStr()
	return t.path == "" || repo == t.path || strings.HasPrefix(repo, t.path+"/")
}

// splitHost splits a host into name and port, IPv6 addresses included. Both are empty if the host cannot be parsed.
func splitHost(host string) (name, port string) {
	u, err := url.Parse("//" + host)
	if err != nil {
		return "", ""
	}
	return u.Hostname(), u.Port()
}

// secretValues returns all secret values of the credentials, for redaction.
func (c Credentials) secretValues() (secrets []string) {
	for _, credential := range c.entries {
		auth := credential.auth
		secrets = append(secrets, auth.Password, auth.Auth, auth.IdentityToken, auth.RegistryToken)
	}
	return secrets
}
